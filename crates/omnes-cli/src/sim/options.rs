//! Requested values, as typed or as read from a scenario: lists are axes, empty lists are unset.

use super::network::NetworkKind;
use super::values::{Algorithm, CarrierKind, Loss, parse_ranks};
use crate::format::{Format, FormatArgs};
use crate::units::parse_bytes;
use crate::units::parse_duration;
use std::path::PathBuf;
use std::time::Duration;

/// Requested axes and settings.
#[derive(clap::Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Simulation (a list makes an axis)")]
pub struct Wanted {
    /// Testbed: a name of `omnes sim testbeds`, or a TOML file [default: ethernet-25g]
    #[arg(long, value_name = "NAME|FILE")]
    pub testbed: Option<String>,
    /// Ranks, one on each host, 2 to 65536 [default: 8; 2 for pingpong and bandwidth]
    #[arg(short = 'n', long, value_delimiter = ',', value_name = "N", value_parser = parse_ranks)]
    pub ranks: Vec<u32>,
    /// Message sizes (8, 64k, 64MiB) [default: 8,1k,64k,1m,4m]
    #[arg(long, value_delimiter = ',', value_name = "BYTES", value_parser = parse_bytes)]
    pub sizes: Vec<u64>,
    /// Algorithms (schemes) to compare; `postal` without a number is fitted to the testbed
    /// [default: default]
    #[arg(long, visible_alias = "scheme", value_delimiter = ',', value_name = "NAME",
          value_parser = str::parse::<Algorithm>)]
    pub algorithms: Vec<Algorithm>,
    /// Roots of broadcasts [default: 0]
    #[arg(long, value_delimiter = ',', value_name = "RANK")]
    pub roots: Vec<u32>,
    /// Networks: single (one switch), fat-tree, fat-tree=RADIX, dragonfly [default: single]
    #[arg(long, value_delimiter = ',', value_name = "SHAPE",
          value_parser = str::parse::<NetworkKind>)]
    pub network: Vec<NetworkKind>,
    /// Shares of packets lost on the link to a host (0.01%) [default: 0%]
    #[arg(long, value_delimiter = ',', value_name = "SHARE", value_parser = str::parse::<Loss>)]
    pub loss: Vec<Loss>,
    /// Longest delays of late ranks (200us, 1ms); for skew [default: 0,200us,400us,1000us]
    #[arg(long, value_delimiter = ',', value_name = "TIME", value_parser = parse_duration)]
    pub skew: Vec<Duration>,
    /// How packets to all ranks travel: multicast, or multisend:TREE with the place where they are
    /// forwarded (:nic, :host); barriers without multicast send to one rank after the other,
    /// whatever the tree [default: multicast]
    #[arg(long, value_delimiter = ',', value_name = "CARRIER",
          value_parser = str::parse::<CarrierKind>)]
    pub carrier: Vec<CarrierKind>,
    /// First seed of all randomness [default: 1]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Number of seeds; each gives a run and an output line of its own [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub seeds: Option<u32>,
    /// Timed iterations of each run [default: 10, fewer where ranks x bytes is large]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: Option<u32>,
    /// Warm-up iterations before these [default: 1, none where ranks x bytes is large]
    #[arg(long, value_name = "N")]
    pub warmup: Option<u32>,
}

impl Wanted {
    /// These values, with unset ones taken from `others`.
    pub fn or(self, others: Self) -> Self {
        fn list<T>(mine: Vec<T>, theirs: Vec<T>) -> Vec<T> {
            if mine.is_empty() { theirs } else { mine }
        }
        Self {
            testbed: self.testbed.or(others.testbed),
            ranks: list(self.ranks, others.ranks),
            sizes: list(self.sizes, others.sizes),
            algorithms: list(self.algorithms, others.algorithms),
            roots: list(self.roots, others.roots),
            network: list(self.network, others.network),
            loss: list(self.loss, others.loss),
            skew: list(self.skew, others.skew),
            carrier: list(self.carrier, others.carrier),
            seed: self.seed.or(others.seed),
            seeds: self.seeds.or(others.seeds),
            repeat: self.repeat.or(others.repeat),
            warmup: self.warmup.or(others.warmup),
        }
    }
}

/// Options for results.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct Output {
    #[command(flatten)]
    format: FormatArgs,
    /// Concurrent runs; results and their order do not depend on it [default: number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Plot time over size, ranks, loss or skew, or as bars, one line for each algorithm
    #[arg(long, value_name = "FILE.svg|FILE.html")]
    pub plot: Option<PathBuf>,
    /// Write the activity of hosts, NICs and links, one line each (docs/SIMULATOR.md); for one run
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Write the same for ui.perfetto.dev or chrome://tracing; for one run
    #[arg(long, value_name = "FILE.json")]
    pub perfetto: Option<PathBuf>,
    /// Print the resolved configuration, as a scenario file for `omnes sim run`
    #[arg(long)]
    pub print_config: bool,
}

impl Output {
    /// How results are printed.
    pub fn format(&self) -> Format {
        self.format.chosen()
    }

    /// True if files are to be written besides the printed results.
    pub fn has_files(&self) -> bool {
        self.plot.is_some() || self.has_bars()
    }

    /// True if the activity of every resource is to be recorded.
    pub fn has_bars(&self) -> bool {
        self.trace.is_some() || self.perfetto.is_some()
    }
}
