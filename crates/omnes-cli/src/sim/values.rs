//! Values of axes, as typed, printed and written into scenarios.
//!
//! All have a text form for parsing and printing, shared by flags and scenario files.

use crate::units::{format_share, parse_share};
use omnes::{BarrierForm, BarrierKind};
use omnes_proto::algorithm::{BcastAlgorithm, BcastAlgorithmError};
use omnes_proto::broadcast::Policy;
use omnes_proto::collective::Runner;
use omnes_sim::model::{self, Carrier, Cloning, Steps};
use omnes_topo::{BarrierAlgorithm, TopoError, Tree};
use std::fmt;
use std::str::FromStr;

/// Operations that can be simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Broadcast, all ranks starting together.
    Bcast,
    /// Consecutive barriers.
    Barrier,
    /// Ping-pong between ranks 0 and 1.
    Pingpong,
    /// Stream of messages from rank 0 to rank 1.
    Bandwidth,
    /// Back-to-back broadcasts.
    Throughput,
    /// Broadcast while the other ranks are late.
    Skew,
}

impl Op {
    /// All operations.
    pub const ALL: [Self; 6] =
        [Self::Bcast, Self::Barrier, Self::Pingpong, Self::Bandwidth, Self::Throughput, Self::Skew];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bcast => "bcast",
            Self::Barrier => "barrier",
            Self::Pingpong => "pingpong",
            Self::Bandwidth => "bandwidth",
            Self::Throughput => "throughput",
            Self::Skew => "skew",
        }
    }

    /// Name in results, the same as in `omnes bench`.
    pub fn result_name(self) -> &'static str {
        if self == Self::Pingpong { "latency" } else { self.name() }
    }

    /// True if a root's data go to all ranks.
    pub fn is_broadcast(self) -> bool {
        matches!(self, Self::Bcast | Self::Throughput | Self::Skew)
    }

    /// True if only ranks 0 and 1 take part.
    pub fn is_between_two(self) -> bool {
        matches!(self, Self::Pingpong | Self::Bandwidth)
    }
}

impl FromStr for Op {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|op| [op.name(), op.result_name()].contains(&text));
        found.ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|op| format!("`{}`", op.name())).collect();
            format!("`{text}` is not an operation; choose among {}", names.join(", "))
        })
    }
}

/// An algorithm as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// The library's own choice.
    Default,
    /// A postal tree for the testbed, the message and the ranks.
    Postal,
    /// For broadcasts.
    Bcast(BcastAlgorithm),
    /// For barriers.
    Barrier(BarrierKind),
}

impl Algorithm {
    /// True if `op` can use it.
    pub fn fits(self, op: Op) -> bool {
        match self {
            Self::Default => !op.is_between_two(),
            Self::Postal | Self::Bcast(_) => op.is_broadcast(),
            Self::Barrier(_) => op == Op::Barrier,
        }
    }

    /// True if an `op` of `ranks` ranks sends packets to all ranks, and so needs a carrier.
    pub fn sends_to_all(self, op: Op, ranks: u32) -> bool {
        let is_counter = |kind| {
            let (form, algorithm) = usual_barrier(kind, ranks);
            form != BarrierForm::Channel && algorithm == BarrierAlgorithm::Counter
        };
        match self {
            Self::Default if op == Op::Barrier => is_counter(BarrierKind::default()),
            Self::Default => op.is_broadcast(),
            Self::Barrier(kind) => is_counter(kind),
            Self::Bcast(bcast) => matches!(bcast, BcastAlgorithm::Multicast(_)),
            Self::Postal => false,
        }
    }
}

impl FromStr for Algorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "default" => return Ok(Self::Default),
            "postal" => return Ok(Self::Postal),
            _ => {}
        }
        if let Ok(barrier) = text.parse() {
            return Ok(Self::Barrier(barrier));
        }
        text.parse().map(Self::Bcast).map_err(|error| match error {
            BcastAlgorithmError::Unknown { text } => format!(
                "`{text}` is not an algorithm; for broadcast: multicast, basic, window, \
                 tree-ack=RADIX, co-root=COUNT, ack-every=M, skewed=M, nack, combined, \
                 combinations such as co-root=4+skewed=8; original, binomial, chain, flat, \
                 knomial=RADIX, kary=ARITY, postal (for the testbed), postal=LAMBDA, \
                 postal=LAMBDA/FAN_OUT; for barrier: gather-broadcast, pairwise, dissemination, \
                 counter; also by form: nic, user, channel, nic:counter"
            ),
            error => error.to_string(),
        })
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.pad("default"),
            Self::Postal => f.pad("postal"),
            Self::Bcast(bcast) => bcast.fmt(f),
            Self::Barrier(barrier) => barrier.fmt(f),
        }
    }
}

/// The broadcast that the library uses by default with multicast to `nodes` nodes.
pub fn usual_bcast(nodes: u32) -> BcastAlgorithm {
    BcastAlgorithm::Multicast(Policy::usual(nodes))
}

/// A completely specified barrier, as the library chooses on hosts that wait for it.
pub fn usual_barrier(kind: BarrierKind, ranks: u32) -> (BarrierForm, BarrierAlgorithm) {
    let usual = if ranks <= BarrierAlgorithm::COUNTER_NODES_MAX {
        BarrierAlgorithm::Counter
    } else {
        BarrierAlgorithm::Dissemination
    };
    (kind.form.unwrap_or(BarrierForm::User), kind.algorithm.unwrap_or(usual))
}

/// Steps of the model for a form.
pub fn steps(form: BarrierForm) -> Steps {
    match form {
        BarrierForm::Nic => Steps::Machine(Runner::Nic),
        BarrierForm::User => Steps::Machine(Runner::Host),
        BarrierForm::Channel => Steps::Channel,
    }
}

/// How packets to all ranks travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarrierKind(pub Carrier);

impl CarrierKind {
    /// Suffix of an algorithm in `omnes bench`; empty for multicast.
    pub fn suffix(self) -> String {
        self.to_string().strip_prefix("multisend:").map_or(String::new(), |form| format!("@{form}"))
    }
}

impl FromStr for CarrierKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "multicast" {
            return Ok(Self(Carrier::Multicast));
        }
        let wrong = || {
            format!(
                "`{text}` must be multicast or multisend:TREE, such as multisend:flat, \
                 multisend:postal=6:nic or multisend:binomial:host"
            )
        };
        let form = text.strip_prefix("multisend:").ok_or_else(wrong)?;
        let (tree, cloning) = form.split_once(':').unwrap_or((form, "nic"));
        let cloning = match cloning {
            "nic" => Cloning::Nic,
            "host" => Cloning::Host,
            _ => return Err(wrong()),
        };
        let tree: Tree = tree.parse().map_err(|error| match error {
            TopoError::UnknownTree { .. } => wrong(),
            error => format!("`{text}`: {error}"),
        })?;
        Ok(Self(Carrier::MultiSend { tree, cloning }))
    }
}

impl fmt::Display for CarrierKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            model::Carrier::Multicast => f.pad("multicast"),
            model::Carrier::MultiSend { tree, cloning } => {
                let who = if cloning == Cloning::Nic { "nic" } else { "host" };
                f.pad(&format!("multisend:{tree}:{who}"))
            }
        }
    }
}

/// Number of lost packets in a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss(pub u32);

impl FromStr for Loss {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const MILLION: f64 = 1e6;
        let share = if text == "0" { 0.0 } else { parse_share(text)? };
        let ppm = (share * MILLION).round();
        if share > 0.0 && (ppm < 1.0 || (share * MILLION - ppm).abs() > 1e-6) {
            return Err(format!("`{text}`: a loss is a multiple of 0.0001%"));
        }
        if share > 0.5 {
            return Err(format!("`{text}`: above 50% nothing gets through; give less"));
        }
        Ok(Self(ppm as u32))
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format_share(f64::from(self.0) / 1e6))
    }
}

/// Parses the number of ranks of a model.
pub fn parse_ranks(text: &str) -> Result<u32, String> {
    const RANKS_MAX: u32 = 65_536;
    match text.parse() {
        Ok(ranks @ 2..=RANKS_MAX) => Ok(ranks),
        Ok(ranks) => Err(format!("{ranks} ranks; a model has 2 to {RANKS_MAX}")),
        Err(_) => Err(format!("`{text}` is not a number of ranks (8, 512)")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn values_round_trip_through_their_text() {
        for text in ["default", "postal", "postal=2.5/4", "combined", "nic:counter", "pairwise"] {
            assert_eq!(text.parse::<Algorithm>().unwrap().to_string(), text);
        }
        for text in ["multicast", "multisend:flat:nic", "multisend:postal=6:host"] {
            assert_eq!(text.parse::<CarrierKind>().unwrap().to_string(), text);
        }
        for text in ["0%", "0.01%", "0.0001%", "50%"] {
            assert_eq!(text.parse::<Loss>().unwrap().to_string(), text);
        }
        for op in Op::ALL {
            assert_eq!(op.name().parse(), Ok(op));
        }
    }

    #[test]
    fn invalid_values_are_rejected_with_a_hint() {
        let refused = |error: Result<Loss, String>| error.unwrap_err();
        assert!(refused("0.01".parse()).contains("0.01%"));
        assert!(refused("101%".parse()).contains("more than 100%"));
        assert!(refused("51%".parse()).contains("above 50%"));
        assert!(refused("0.00001%".parse()).contains("multiple of 0.0001%"));
        assert!(parse_ranks("1").unwrap_err().contains("2 to 65536"));
        assert!("bush".parse::<Algorithm>().unwrap_err().contains("binomial"));
        for (text, part) in [("postal=0.5", "lambda"), ("knomial=1:store", "radix")] {
            let error = text.parse::<Algorithm>().unwrap_err();
            assert!(error.contains(part) && !error.contains("binomial"), "{error}");
        }
        assert!(refused("1e9%".parse()).contains("a number and a percent sign (0.1%)"));
        assert!("flat:nic".parse::<CarrierKind>().unwrap_err().contains("multisend:flat"));
        assert!("cast".parse::<Op>().unwrap_err().contains("`bcast`"));
    }

    #[test]
    fn only_multisend_carriers_have_an_algorithm_suffix() {
        let suffix = |text: &str| text.parse::<CarrierKind>().unwrap().suffix();
        assert_eq!(
            (suffix("multicast"), suffix("multisend:flat")),
            (String::new(), "@flat:nic".into())
        );
    }
}
