//! Options of `omnes bench`: as typed, then resolved and checked.

use super::transfer::element_of;
use crate::units::{parse_bytes, parse_duration, short_time};
use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use omnes::MultiSend;
use omnes_wire::CARRIED_MAX;
use serde_json::Value;
use std::fmt::Write as _;
use std::time::Duration;

/// Larger messages are rejected: a rank holds one or two of them in memory.
const MESSAGE_BYTES_MAX: u64 = 16 << 30;

/// Upper limit of `--min-iters`, as in `omnes sim`: each rank keeps all times in memory.
const MIN_ITERS_MAX: u64 = 1_000_000;

/// Delays of late ranks if none are given.
const SKEWS_US: [u64; 4] = [0, 200, 400, 1000];

/// Fields that every output line has; a tag with one of these names would hide the field.
const OWN_FIELDS: [&str; 32] = [
    "impl",
    "op",
    "n",
    "bytes",
    "iters",
    "median_us",
    "p99_us",
    "min_us",
    "mean_us",
    "errors",
    "algorithm",
    "MBps",
    "packets",
    "wire_bytes",
    "copied_bytes",
    "syscalls",
    "wakeups",
    "retransmits",
    "late",
    "window_us",
    "window",
    "skew_us",
    "root_us",
    "per_s",
    "root_packets",
    "root_repairs",
    "root_acks",
    "root_nacks",
    "destinations",
    "compute_us",
    "overall_us",
    "overlap_percent",
];

/// Operations that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Op {
    /// Ping-pong between ranks 0 and 1; one-way time, half of the round trip
    Latency,
    /// Stream of messages from rank 0 to rank 1
    Bandwidth,
    /// Broadcast by rank 0, each started by a barrier
    Bcast,
    /// Broadcast by rank 0, each started by the clock; only with all ranks on one machine
    Wbcast,
    /// Back-to-back broadcasts by rank 0
    Throughput,
    /// Broadcast by rank 0 while the other ranks are late; time inside the call
    Skew,
    /// Multi-send by rank 0 until the last destination answers; also as separate messages to one
    /// destination after the other
    Multisend,
    /// Barrier
    Barrier,
    /// Sum of all ranks' numbers, at all ranks
    Allreduce,
    /// Sum of all ranks' numbers, at rank 0
    Reduce,
    /// Prefix sum: at each rank, the sum of its numbers and those of all lower ranks
    Scan,
    /// Data of the given size from each rank to all ranks
    Allgather,
    /// Data of the given size from each rank to every other rank
    Alltoall,
    /// Nonblocking allreduce, waited for immediately, and with computation before the wait
    Iallreduce,
    /// Nonblocking reduce, likewise
    Ireduce,
    /// Nonblocking allgather, likewise
    Iallgather,
    /// Nonblocking alltoall, likewise
    Ialltoall,
    /// Nonblocking broadcast by rank 0, likewise
    Ibcast,
    /// Memory copy by all ranks concurrently, started by the clock: a bound that no broadcast among
    /// ranks of one machine can beat; only with all ranks on one machine
    Copy,
}

impl Op {
    /// Name in the output. The broadcast started by the clock has the name that other tools use.
    pub fn name(self, direction: Direction) -> &'static str {
        match (self, direction) {
            (Self::Latency, _) => "latency",
            (Self::Bandwidth, Direction::Forth) => "bandwidth",
            (Self::Bandwidth, Direction::Both) => "bibandwidth",
            (Self::Bcast, _) => "bcast",
            (Self::Wbcast, _) => "bcast_window",
            (Self::Throughput, _) => "throughput",
            (Self::Skew, _) => "skew",
            (Self::Multisend, _) => "multisend",
            (Self::Barrier, _) => "barrier",
            (Self::Allreduce, _) => "allreduce",
            (Self::Reduce, _) => "reduce",
            (Self::Scan, _) => "scan",
            (Self::Allgather, _) => "allgather",
            (Self::Alltoall, _) => "alltoall",
            (Self::Iallreduce, _) => "iallreduce",
            (Self::Ireduce, _) => "ireduce",
            (Self::Iallgather, _) => "iallgather",
            (Self::Ialltoall, _) => "ialltoall",
            (Self::Ibcast, _) => "ibcast",
            (Self::Copy, _) => "copy",
        }
    }

    /// Name on the command line.
    pub fn typed(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The blocking operation on the same data; itself if it blocks.
    pub fn blocking(self) -> Self {
        match self {
            Self::Iallreduce => Self::Allreduce,
            Self::Ireduce => Self::Reduce,
            Self::Iallgather => Self::Allgather,
            Self::Ialltoall => Self::Alltoall,
            Self::Ibcast => Self::Bcast,
            blocking => blocking,
        }
    }

    /// True if the operation can proceed while its caller computes.
    pub fn is_nonblocking(self) -> bool {
        self.blocking() != self
    }

    /// True if rank 0's data go to all ranks.
    pub fn is_broadcast(self) -> bool {
        matches!(self.blocking(), Self::Bcast | Self::Wbcast | Self::Throughput | Self::Skew)
    }

    /// True if all ranks start at a time given by a common clock.
    pub fn is_by_clock(self) -> bool {
        matches!(self, Self::Wbcast | Self::Copy)
    }

    /// True if the operation can use multi-sends.
    pub fn may_multisend(self) -> bool {
        self.is_broadcast() || self == Self::Multisend
    }

    fn is_between_two(self) -> bool {
        matches!(self, Self::Latency | Self::Bandwidth)
    }
}

/// Direction of a bandwidth test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From rank 0 to rank 1.
    Forth,
    /// Both directions concurrently.
    Both,
}

/// Whether received data are compared with the data sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Before and after each timed loop.
    BeforeAndAfter,
    /// Never.
    Off,
}

/// An algorithm of one of the collectives, or the library's own choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// The library's own choice.
    Default,
    /// For broadcasts.
    Bcast(omnes::BcastAlgorithm),
    /// For multi-sends: messages over channels, to one destination after the other.
    Unicast,
    /// For barriers.
    Barrier(omnes::BarrierKind),
    /// For allreduces, which can also use the trees of [`Self::Bcast`].
    Reduce(omnes::ReduceAlgorithm),
}

impl Algorithm {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "default" {
            return Ok(Self::Default);
        }
        if let Ok(barrier) = text.parse() {
            return Ok(Self::Barrier(barrier));
        }
        if let Ok(
            reduce @ (omnes::ReduceAlgorithm::Blocks
            | omnes::ReduceAlgorithm::Ring
            | omnes::ReduceAlgorithm::Words),
        ) = text.parse()
        {
            return Ok(Self::Reduce(reduce));
        }
        text.parse().map(Self::Bcast).map_err(|error| match error {
            omnes::BcastAlgorithmError::Unknown { text } => format!(
                "`{text}` is not an algorithm; for broadcast: multicast, basic, window, \
                 tree-ack=RADIX, co-root=COUNT, ack-every=M, skewed=M, nack, combined, \
                 combinations such as co-root=4+skewed=8; original, binomial, chain, flat, \
                 knomial=RADIX, kary=ARITY, postal=LAMBDA, postal=LAMBDA/FAN_OUT; for barrier: \
                 gather-broadcast, pairwise, dissemination, counter; also by form: nic, user, \
                 channel, nic:counter; for allreduce: words, blocks, ring, and the trees"
            ),
            error => error.to_string(),
        })
    }

    /// Forms of multi-send that `op` is measured with for this algorithm; `None` is the job's own
    /// form, or that none is needed.
    pub fn forms(self, op: Op, forms: &[MultiSend]) -> Vec<Option<MultiSend>> {
        let is_over_channels =
            matches!(self, Self::Unicast | Self::Bcast(omnes::BcastAlgorithm::Tree { .. }));
        if is_over_channels || forms.is_empty() || !op.may_multisend() {
            return vec![None];
        }
        forms.iter().copied().map(Some).collect()
    }

    /// True if `bytes` bytes can be measured: packets of barriers hold few numbers.
    pub fn takes(self, bytes: usize) -> bool {
        let is_of_words = matches!(self, Self::Reduce(omnes::ReduceAlgorithm::Words));
        !is_of_words || (1..=CARRIED_MAX).contains(&(bytes / element_of(bytes).bytes()))
    }

    fn fits(self, op: Op) -> bool {
        match self {
            Self::Default => true,
            Self::Bcast(omnes::BcastAlgorithm::Tree { forwarding, .. }) if op == Op::Allreduce => {
                forwarding == omnes::Forwarding::Pipelined
            }
            Self::Bcast(_) => op.is_broadcast(),
            Self::Reduce(_) => op == Op::Allreduce,
            Self::Barrier(_) => op == Op::Barrier,
            Self::Unicast => op == Op::Multisend,
        }
    }
}

impl std::fmt::Display for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Bcast(bcast) => bcast.fmt(f),
            Self::Barrier(barrier) => barrier.fmt(f),
            Self::Reduce(reduce) => reduce.fmt(f),
            Self::Unicast => f.write_str("unicast"),
        }
    }
}

/// What to measure, and for how long.
#[derive(clap::Args)]
pub struct Measure {
    /// Operations to measure, separated by commas
    #[arg(value_enum, value_delimiter = ',', required = true, value_name = "OP")]
    pub ops: Vec<Op>,
    /// Message sizes (8, 64k, 4m)
    #[arg(long, value_delimiter = ',', default_value = "8,1k,64k,1m,4m", value_name = "BYTES",
          value_parser = parse_bytes)]
    pub sizes: Vec<u64>,
    /// Algorithms (schemes) to compare; each is used for the operations that it supports
    #[arg(long, visible_alias = "scheme", value_delimiter = ',', default_value = "default",
          value_name = "NAME", value_parser = Algorithm::parse)]
    pub algorithms: Vec<Algorithm>,
    /// Forms of multi-send to compare in jobs without multicast: trees, optionally with the place
    /// where copies are made (flat:nic, flat:loop, postal=6:host, auto, off); for broadcasts and
    /// multisend
    #[arg(long, value_delimiter = ',', value_name = "TREE", value_parser = parse_multisend)]
    pub multisend: Vec<MultiSend>,
    /// Numbers of destinations of a multi-send [default: all other ranks]
    #[arg(long, value_delimiter = ',', value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub destinations: Vec<u32>,
    /// Longest delays of late ranks (200us, 1ms) [default: 0,200us,400us,1000us]
    #[arg(long, value_delimiter = ',', value_name = "TIME", value_parser = parse_duration)]
    pub skew: Vec<Duration>,
    /// Time for which each point is measured
    #[arg(long, default_value = "0.5s", value_name = "TIME", value_parser = parse_duration)]
    pub budget: Duration,
    /// Minimum number of iterations, however long they take
    #[arg(long, default_value_t = 5, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=MIN_ITERS_MAX))]
    pub min_iters: u64,
    /// Maximum number of iterations
    #[arg(long, default_value_t = 1000, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub max_iters: u64,
    /// Warm-up iterations before the timed ones
    #[arg(long, default_value_t = 5, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub warmup: u64,
    /// Measure bandwidth in both directions concurrently
    #[arg(long)]
    pub bidirectional: bool,
    /// Do not compare received data with the data sent
    #[arg(long)]
    pub no_check: bool,
    /// Seed of the data; drawn at random and printed if not given
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

impl Measure {
    /// Rejects options that contradict each other or the number of ranks.
    pub fn check(&self, ranks: u32) -> Result<()> {
        ensure!(
            self.min_iters <= self.max_iters,
            "--min-iters {} is above --max-iters {}",
            self.min_iters,
            self.max_iters
        );
        for &bytes in &self.sizes {
            ensure!(bytes <= MESSAGE_BYTES_MAX, "--sizes: {bytes} bytes is above 16g");
        }
        for &algorithm in &self.algorithms {
            if !self.ops.iter().any(|&op| algorithm.fits(op)) {
                bail!("--algorithms {algorithm}: none of the operations can use it");
            }
            if !self.sizes.iter().any(|&bytes| algorithm.takes(bytes as usize)) {
                let numbers = format!("1 to {CARRIED_MAX} numbers");
                bail!("--algorithms {algorithm}: it is for {numbers}, such as --sizes 8");
            }
        }
        if let Some(op) = self.ops.iter().find(|op| op.is_between_two() && ranks < 2) {
            let name = op.name(self.direction());
            bail!("{name} needs 2 ranks; run `omnes run -n 2 -- omnes bench {name}`");
        }
        let is_both = self.bidirectional;
        ensure!(!is_both || self.ops.contains(&Op::Bandwidth), "--bidirectional is for bandwidth");
        let has_skew = !self.skew.is_empty();
        ensure!(!has_skew || self.ops.contains(&Op::Skew), "--skew is for skew");
        self.check_multisend(ranks)
    }

    fn check_multisend(&self, ranks: u32) -> Result<()> {
        ensure!(
            self.multisend.is_empty() || self.ops.iter().any(|op| op.may_multisend()),
            "--multisend: none of the operations can use it"
        );
        let is_wanted = self.ops.contains(&Op::Multisend);
        ensure!(is_wanted || self.destinations.is_empty(), "--destinations is for multisend");
        ensure!(!is_wanted || ranks > 1, "multisend needs a destination: at least 2 ranks");
        for &destinations in &self.destinations {
            ensure!(
                destinations < ranks,
                "--destinations {destinations}: a job of {ranks} ranks has at most {}, all but \
                 rank 0",
                ranks - 1
            );
        }
        Ok(())
    }

    /// True if nothing remains to be measured in a job without multi-send.
    pub fn needs_multisend(&self) -> bool {
        !self.multisend.is_empty() || self.ops.contains(&Op::Multisend)
    }

    /// Numbers of destinations of `op`; all ranks but rank 0 for every operation except multisend.
    pub fn destinations_for(&self, op: Op, ranks: u32) -> Vec<u32> {
        let is_wanted = op == Op::Multisend && !self.destinations.is_empty();
        if is_wanted { self.destinations.clone() } else { vec![ranks - 1] }
    }

    /// Algorithms of `op`: the named ones that `op` supports, else the library's choice.
    pub fn algorithms_for(&self, op: Op) -> Vec<Algorithm> {
        let fitting = self.algorithms.iter().copied().filter(|algorithm| algorithm.fits(op));
        if op == Op::Multisend {
            return vec![Algorithm::Unicast, Algorithm::Default];
        }
        let fitting: Vec<_> = if op.is_between_two() { Vec::new() } else { fitting.collect() };
        if fitting.is_empty() { vec![Algorithm::Default] } else { fitting }
    }

    /// Sizes of `op`; a barrier has none.
    pub fn sizes_for(&self, op: Op) -> Vec<u64> {
        if op == Op::Barrier { vec![0] } else { self.sizes.clone() }
    }

    /// Delays of `op`; none for every operation except skew.
    pub fn skews_for(&self, op: Op) -> Vec<Duration> {
        match op {
            Op::Skew if self.skew.is_empty() => SKEWS_US.map(Duration::from_micros).to_vec(),
            Op::Skew => self.skew.clone(),
            _ => vec![Duration::ZERO],
        }
    }

    /// Direction in which bandwidth is measured.
    pub fn direction(&self) -> Direction {
        if self.bidirectional { Direction::Both } else { Direction::Forth }
    }

    /// Whether data are checked.
    pub fn data_check(&self) -> Check {
        if self.no_check { Check::Off } else { Check::BeforeAndAfter }
    }

    /// Command line that repeats this measurement.
    pub fn command_line(&self, seed: u64) -> String {
        let ops: Vec<_> = self.ops.iter().map(|op| op.typed()).collect();
        let sizes: Vec<_> = self.sizes.iter().map(|&bytes| short_bytes(bytes)).collect();
        let algorithms: Vec<_> = self.algorithms.iter().map(Algorithm::to_string).collect();
        let mut line = format!(
            "omnes bench {} --sizes {} --algorithms {} --budget {} --min-iters {} --max-iters {} \
             --warmup {}",
            ops.join(","),
            sizes.join(","),
            algorithms.join(","),
            short_time(self.budget),
            self.min_iters,
            self.max_iters,
            self.warmup
        );
        if self.ops.contains(&Op::Skew) {
            let skews: Vec<_> = self.skews_for(Op::Skew).into_iter().map(short_time).collect();
            write!(line, " --skew {}", skews.join(",")).expect("a string takes all text");
        }
        let forms: Vec<_> = self.multisend.iter().map(MultiSend::to_string).collect();
        let counts: Vec<_> = self.destinations.iter().map(u32::to_string).collect();
        for (flag, values) in [("multisend", forms), ("destinations", counts)] {
            if !values.is_empty() {
                write!(line, " --{flag} {}", values.join(",")).expect("a string takes all text");
            }
        }
        for (is_given, flag) in
            [(self.bidirectional, " --bidirectional"), (self.no_check, " --no-check")]
        {
            line.push_str(if is_given { flag } else { "" });
        }
        write!(line, " --seed {seed}").expect("a string takes all text");
        line
    }
}

/// A size in the form of the command line: `8`, `64k`, `4m`.
pub fn short_bytes(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        _ if bytes.is_multiple_of(1 << 20) => format!("{}m", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{}k", bytes >> 10),
        _ => bytes.to_string(),
    }
}

fn parse_multisend(text: &str) -> Result<MultiSend, String> {
    text.parse().map_err(|reason| format!("`{text}` {reason}"))
}

/// Parses a `KEY=VALUE` tag of the output lines; a number stays a number.
pub fn parse_tag(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text
        .split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .ok_or_else(|| format!("`{text}` is not KEY=VALUE"))?;
    if OWN_FIELDS.contains(&key) {
        return Err(format!("`{key}` is a field of the output; name the tag otherwise"));
    }
    let number = serde_json::from_str::<serde_json::Number>(value).map(Value::Number);
    Ok((key.to_owned(), number.unwrap_or_else(|_| Value::String(value.to_owned()))))
}

#[cfg(test)]
mod tests;
