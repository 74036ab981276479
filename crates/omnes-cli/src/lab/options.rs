//! Properties of the links of a lab: as typed ([`LinkOptions`]) and resolved ([`Link`]).
//!
//! All typed options are optional, so that `omnes lab set` changes only the given ones and
//! `omnes run` can flatten them without defaults of its own. A resolved link is complete, can be
//! written to a lab's state and printed as the flags that create it again.

use crate::units;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Smallest MTU: the minimum of IPv6.
pub const MTU_MIN: u32 = 1280;
/// Largest MTU: jumbo frames as switches forward them.
pub const MTU_MAX: u32 = 9216;
const MTU_DEFAULT: u32 = 1500;

/// Options for every link of a lab, as typed.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Link options (each host's link to the switch)")]
pub struct LinkOptions {
    /// Rate of every link in both directions, such as 1gbit; none: no shaping [default: none]
    #[arg(long = "rate", value_name = "RATE", value_parser = units::parse_rate)]
    pub rate_bps: Option<u64>,
    /// Share of packets lost on the way to the switch, such as 1% [default: 0%]
    #[arg(long, value_name = "SHARE", value_parser = units::parse_share)]
    pub loss: Option<f64>,
    /// Share of packets lost on the way from the switch, drawn at each host [default: 0%]
    #[arg(long, value_name = "SHARE", value_parser = units::parse_share)]
    pub receive_loss: Option<f64>,
    /// Share of packets that are duplicated, such as 0.1% [default: 0%]
    #[arg(long, value_name = "SHARE", value_parser = units::parse_share)]
    pub duplicate: Option<f64>,
    /// Share of packets held 100us to 300us longer, so that later ones overtake [default: 0%]
    #[arg(long, value_name = "SHARE", value_parser = units::parse_share)]
    pub reorder: Option<f64>,
    /// Delay of every packet on its way to the switch, such as 50us; at most 10s [default: 0us]
    #[arg(long, value_name = "TIME", value_parser = parse_delay)]
    pub delay: Option<Duration>,
    /// Largest IP packet of every link in bytes, 1280 to 9216; fixed once created [default: 1500]
    #[arg(long, value_name = "BYTES", value_parser = parse_mtu)]
    pub mtu: Option<u32>,
    /// Let the hosts' interfaces compute checksums; off: the kernel does, as with a network
    /// interface that cannot [default: on]
    #[arg(long, value_enum, value_name = "on|off", hide_possible_values = true)]
    pub tx_offload: Option<Switch>,
    /// Seed of the faults: same traffic, same faults [default: random, shown by `omnes lab list`]
    #[arg(long, value_name = "N")]
    pub fault_seed: Option<u64>,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Switch {
    /// Enabled
    On,
    /// Disabled
    Off,
}

fn parse_delay(text: &str) -> Result<Duration, String> {
    match units::parse_duration(text)? {
        delay if delay > Duration::from_secs(10) => Err(format!("`{text}` is more than 10s")),
        delay => Ok(delay),
    }
}

fn parse_mtu(text: &str) -> Result<u32, String> {
    let bytes = units::parse_bytes(text)?;
    u32::try_from(bytes)
        .ok()
        .filter(|mtu| (MTU_MIN..=MTU_MAX).contains(mtu))
        .ok_or_else(|| format!("`{text}`: an MTU is {MTU_MIN} to {MTU_MAX} bytes"))
}

/// Properties of every link of a lab, complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Rate in both directions; not shaped if `None`.
    pub rate_bps: Option<u64>,
    /// Largest IP packet.
    pub mtu_bytes: u32,
    /// Share of packets lost on the way to the switch, 0 to 1.
    pub loss: f64,
    /// Share of packets lost on the way from the switch, drawn separately for each host, 0 to 1.
    pub receive_loss: f64,
    /// Share of packets duplicated, 0 to 1.
    pub duplicate: f64,
    /// Share of packets overtaken by later ones, 0 to 1.
    pub reorder: f64,
    /// Delay of every packet.
    pub delay_ns: u64,
    /// True if the hosts' interfaces compute checksums.
    #[serde(default = "yes")]
    pub tx_offload: bool,
    /// Seed of the faults.
    pub fault_seed: u64,
}

fn yes() -> bool {
    true
}

impl Link {
    /// A perfect link changed by `options`.
    pub fn resolve(options: &LinkOptions) -> anyhow::Result<Self> {
        let mut seed = [0; 4];
        getrandom::fill(&mut seed).map_err(|error| anyhow::anyhow!("no random seed: {error}"))?;
        let perfect = Self {
            rate_bps: None,
            mtu_bytes: MTU_DEFAULT,
            loss: 0.0,
            receive_loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            delay_ns: 0,
            tx_offload: true,
            fault_seed: u64::from(u32::from_ne_bytes(seed)),
        };
        Ok(perfect.with(options))
    }

    /// This link changed by the given `options`.
    pub fn with(&self, options: &LinkOptions) -> Self {
        Self {
            rate_bps: options.rate_bps.map_or(self.rate_bps, |bps| (bps > 0).then_some(bps)),
            mtu_bytes: options.mtu.unwrap_or(self.mtu_bytes),
            loss: options.loss.unwrap_or(self.loss),
            receive_loss: options.receive_loss.unwrap_or(self.receive_loss),
            duplicate: options.duplicate.unwrap_or(self.duplicate),
            reorder: options.reorder.unwrap_or(self.reorder),
            delay_ns: options.delay.map_or(self.delay_ns, |delay| delay.as_nanos() as u64),
            tx_offload: options.tx_offload.map_or(self.tx_offload, |it| it == Switch::On),
            fault_seed: options.fault_seed.unwrap_or(self.fault_seed),
        }
    }

    /// True if any packet can meet a fault, so that the fault programs are needed.
    pub fn has_faults(&self) -> bool {
        self.loss > 0.0 || self.receive_loss > 0.0 || self.duplicate > 0.0 || self.is_holding()
    }

    /// True if packets are held, so that the hold loop is needed too.
    pub fn is_holding(&self) -> bool {
        self.reorder > 0.0 || self.delay_ns > 0
    }
}

/// Formats the flags that create this link again.
impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut flags = Vec::new();
        if let Some(bps) = self.rate_bps {
            flags.push(format!("--rate {}", units::format_rate(bps).replace(' ', "")));
        }
        let shares = [
            ("loss", self.loss),
            ("receive-loss", self.receive_loss),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
        ];
        for (name, share) in shares.into_iter().filter(|(_, share)| *share > 0.0) {
            flags.push(format!("--{name} {}", units::format_share(share)));
        }
        if self.delay_ns > 0 {
            let delay = units::short_time(Duration::from_nanos(self.delay_ns));
            flags.push(format!("--delay {delay}"));
        }
        if self.mtu_bytes != MTU_DEFAULT {
            flags.push(format!("--mtu {}", self.mtu_bytes));
        }
        if !self.tx_offload {
            flags.push("--tx-offload off".to_owned());
        }
        if self.has_faults() {
            flags.push(format!("--fault-seed {}", self.fault_seed));
        }
        f.write_str(if flags.is_empty() { "perfect" } else { "" })?;
        f.write_str(&flags.join(" "))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::{Args, FromArgMatches};

    fn typed(flags: &str) -> LinkOptions {
        let command = LinkOptions::augment_args(clap::Command::new("link").no_binary_name(true));
        LinkOptions::from_arg_matches(&command.get_matches_from(flags.split_whitespace())).unwrap()
    }

    #[test]
    fn only_the_given_link_options_change() {
        let link =
            Link::resolve(&typed("--loss 1% --delay 50us --rate 1gbit --fault-seed 7")).unwrap();
        let changed = link.with(&typed("--loss 2% --rate none"));
        assert_eq!(changed, Link { loss: 0.02, rate_bps: None, ..link });
    }

    #[test]
    fn displayed_link_flags_round_trip() {
        let flags = "--rate 1.28Gbit/s --loss 1% --receive-loss 2% --duplicate 0.1% --reorder 7% \
                     --delay 50us --mtu 9000 --tx-offload off --fault-seed 7";
        let link = Link::resolve(&typed(flags)).unwrap();
        assert_eq!(link.to_string(), flags);
        assert_eq!(Link::resolve(&typed(&link.to_string())).unwrap(), link);
    }

    #[test]
    fn perfect_links_need_no_fault_program() {
        let link = Link::resolve(&LinkOptions::default()).unwrap();
        assert!(!link.has_faults() && !link.is_holding());
        assert_eq!(link.to_string(), "perfect");
        let lossy = link.with(&typed("--receive-loss 1%"));
        assert!(lossy.has_faults() && !lossy.is_holding());
    }

    #[test]
    fn out_of_range_mtu_and_delay_are_rejected() {
        assert!(parse_mtu("1279").is_err() && parse_mtu("1280").is_ok());
        assert!(parse_mtu("9216").is_ok() && parse_mtu("9217").is_err());
        assert!(parse_delay("10s").is_ok() && parse_delay("11s").is_err());
    }
}
