//! The kinds of barriers.

use omnes_topo::BarrierAlgorithm;
use std::fmt;
use std::str::FromStr;

/// The component that runs the steps of a barrier. Text form: `nic`, `user`, `channel`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BarrierForm {
    /// The kernel NIC: an eBPF program of this library at the network interface.
    Nic,
    /// The firmware in user space.
    User,
    /// Messages over channels.
    Channel,
}

impl fmt::Display for BarrierForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nic => "nic",
            Self::User => "user",
            Self::Channel => "channel",
        })
    }
}

impl FromStr for BarrierForm {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "nic" => Ok(Self::Nic),
            "user" => Ok(Self::User),
            "channel" => Ok(Self::Channel),
            _ => Err("must be nic, user or channel"),
        }
    }
}

/// Form and algorithm of a barrier; the library chooses whichever is not given. Text form:
/// `nic:counter`, `dissemination`, `user`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BarrierKind {
    /// The component that runs the steps.
    pub form: Option<BarrierForm>,
    /// Algorithm that determines the steps.
    pub algorithm: Option<BarrierAlgorithm>,
}

impl From<BarrierAlgorithm> for BarrierKind {
    fn from(algorithm: BarrierAlgorithm) -> Self {
        Self { form: None, algorithm: Some(algorithm) }
    }
}

impl fmt::Display for BarrierKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.form, self.algorithm) {
            (Some(form), Some(algorithm)) => f.pad(&format!("{form}:{algorithm}")),
            (Some(form), None) => form.fmt(f),
            (None, Some(algorithm)) => algorithm.fmt(f),
            (None, None) => f.pad("default"),
        }
    }
}

impl FromStr for BarrierKind {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "must be FORM, ALGORITHM or FORM:ALGORITHM, with nic, user or channel \
                             and dissemination, pairwise, gather-broadcast or counter";
        let algorithm = |text: &str| text.parse::<BarrierAlgorithm>().map_err(|_| WRONG);
        if let Some((form, rest)) = text.split_once(':') {
            let form = form.parse().map_err(|_| WRONG)?;
            return Ok(Self { form: Some(form), algorithm: Some(algorithm(rest)?) });
        }
        match text.parse() {
            Ok(form) => Ok(Self { form: Some(form), algorithm: None }),
            Err(_) => algorithm(text).map(Self::from),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn barrier_kinds_round_trip_as_text() {
        for text in ["nic:counter", "user", "channel:pairwise", "dissemination"] {
            assert_eq!(text.parse::<BarrierKind>().unwrap().to_string(), text);
        }
        for text in ["", "nic:", "counter:nic", "fast"] {
            assert!(text.parse::<BarrierKind>().is_err(), "{text}");
        }
    }
}
