//! Barrier algorithms as step tables: with whom a rank exchanges empty messages, and when.
//!
//! What it is: for each rank a list of steps; a step first sends, then waits for its receive.
//!
//! Source, with N for the size:
//!
//! | algorithm | rule | steps | messages | N = 10 |
//! |---|---|---|---|---|
//! | gather-broadcast | [CB-R9] | 2 ceil(log2 N) | 2 (N - 1) | 8, 18 |
//! | pairwise exchange | [CB-R10] | floor(log2 N), + 2 if N is no power of 2 | see below | 5, 28 |
//! | dissemination | [CB-R11] | ceil(log2 N) | N ceil(log2 N) | 4, 40 |
//! | counter | see below | 2 | 2 (N - 1) | 2, 18 |
//!
//! Pairwise, with M = 2^floor(log2 N): M log2 M messages in exchanges (an exchange is two
//! messages), plus two for each of the N - M extra ranks.
//! Counter: every rank reports to rank 0, which counts the reports, then releases all; the N - 1
//! releases are equal, so one multicast packet can carry them. It is gather-broadcast with the flat
//! tree, for groups in which rank 0 receives reports cheaply; it is in none of the papers.
//!
//! Guarantees: no rank ends its last step before every rank has begun its first; no deadlock. Steps
//! are *aligned*: all tables of a group have the same length, and a message sent in step s is
//! awaited in step s. So a message is named by its step alone, arrivals fit one bit vector (CB-R4),
//! and a receiver that misses step s asks `receive_from` of its own step s for the message of step
//! s (CB-R6). The price is steps in which a rank does nothing (for example a leaf between its
//! report and its release); they cost no packet. Only the counter has a step that waits for several
//! messages: step 0 of rank 0, which needs a bit per member instead. Limit: at most 64 steps at any
//! size, so a 64-bit word holds the arrivals.
//!
//! Assumes: all members use the same size and algorithm.
//! Cost: tables are built in O(steps); state is one step number and one bit per step; for the
//! counter, one bit per member at rank 0.
//! Not done here: barriers that know which ranks share a node; combining data on the way.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use omnes_wire::Rank;

use crate::error::{TopoError, check_rank, check_size};
use crate::tree::Tree;

/// Maximum number of steps of any algorithm at any size: one bit each in a 64-bit arrival vector.
pub const STEPS_MAX: u32 = 2 * u32::BITS;

/// With whom a rank exchanges the message of one step, in one direction.
///
/// Text form: `-`, the number of the rank, or `all`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Party {
    /// No message in this step.
    #[default]
    Nobody,
    /// One other rank of the group.
    Rank(Rank),
    /// Every rank of the group except the own one: one message to, or from, each.
    Everybody,
}

impl Party {
    /// The rank, if the party is a single one; `None` for nobody and for everybody.
    ///
    /// ```
    /// use omnes_topo::Party;
    /// use omnes_wire::Rank;
    ///
    /// assert_eq!(Party::Rank(Rank(3)).rank(), Some(Rank(3)));
    /// assert_eq!(Party::Everybody.rank(), None);
    /// ```
    pub fn rank(self) -> Option<Rank> {
        match self {
            Self::Rank(rank) => Some(rank),
            Self::Nobody | Self::Everybody => None,
        }
    }

    /// The ranks that the party stands for in a group of `size` ranks including `own`, ascending.
    ///
    /// Cost: O(1) per rank; no allocation.
    ///
    /// ```
    /// use omnes_topo::Party;
    /// use omnes_wire::Rank;
    ///
    /// assert!(Party::Everybody.ranks(Rank(1), 4).eq([Rank(0), Rank(2), Rank(3)]));
    /// assert!(Party::Rank(Rank(3)).ranks(Rank(1), 4).eq([Rank(3)]));
    /// assert!(Party::Nobody.ranks(Rank(1), 4).eq([]));
    /// ```
    pub fn ranks(self, own: Rank, size: u32) -> impl Iterator<Item = Rank> {
        let ranks = match self {
            Self::Nobody => 0..0,
            // Not `rank..rank + 1`, whose end overflows for the largest rank.
            Self::Rank(_) => 0..1,
            Self::Everybody => 0..size,
        };
        let skipped = (self == Self::Everybody).then_some(own);
        ranks
            .map(move |index| self.rank().unwrap_or(Rank(index)))
            .filter(move |r| Some(*r) != skipped)
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.pad("-"),
            Self::Rank(rank) => rank.0.fmt(f),
            Self::Everybody => f.pad("all"),
        }
    }
}

/// What a rank does in one step: send its message, then wait for one; either may be absent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Step {
    /// Destination of this step's message.
    pub send_to: Party,
    /// Origin of the message, or messages, without which the next step must not begin.
    pub receive_from: Party,
}

impl Step {
    /// True if the rank neither sends nor waits; the step then only keeps the numbers aligned.
    pub fn is_idle(self) -> bool {
        self == Self::default()
    }
}

/// Barrier algorithm.
///
/// Text form, both ways: `gather-broadcast`, `pairwise`, `dissemination`, `counter`.
///
/// ```
/// use omnes_topo::BarrierAlgorithm;
///
/// let counts = |b: BarrierAlgorithm| Ok((b.steps(10)?, b.messages(10)?));
/// assert_eq!(counts(BarrierAlgorithm::GatherBroadcast)?, (8, 18));
/// assert_eq!(counts("pairwise".parse()?)?, (5, 28));
/// assert_eq!(counts(BarrierAlgorithm::Dissemination)?, (4, 40));
/// assert_eq!(counts("counter".parse()?)?, (2, 18));
/// # Ok::<(), omnes_topo::TopoError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BarrierAlgorithm {
    /// Reports travel up the binomial tree of rank 0, the release travels down [CB-R9].
    GatherBroadcast,
    /// Recursive doubling; extra ranks report in first and are released at the end [CB-R10].
    PairwiseExchange,
    /// In step i, send to `rank + 2^i` and hear from `rank - 2^i`, modulo size [CB-R11].
    Dissemination,
    /// Everybody reports to rank 0, which then releases everybody.
    Counter,
}

impl BarrierAlgorithm {
    /// All algorithms, for tables and tests.
    pub const ALL: [Self; 4] =
        [Self::GatherBroadcast, Self::PairwiseExchange, Self::Dissemination, Self::Counter];

    /// Maximum number of nodes for which the counter is used if no algorithm is named: with more
    /// nodes, their reports take longer than the steps of the other algorithms.
    pub const COUNTER_NODES_MAX: u32 = 64;

    /// The step table of `rank`, in the order of execution.
    ///
    /// `rank` is in `0..size`, `size` at least 1. The length is [`BarrierAlgorithm::steps`] for
    /// every rank; 0 in a group of one. Errors with [`TopoError::SizeZero`] or
    /// [`TopoError::RankOutOfRange`]. Cost: O(log size), one or two allocations.
    ///
    /// ```
    /// use omnes_topo::{BarrierAlgorithm, Party, Step};
    /// use omnes_wire::Rank;
    ///
    /// let (one, two) = (Party::Rank(Rank(1)), Party::Rank(Rank(2)));
    /// let steps = BarrierAlgorithm::Dissemination.schedule(Rank(0), 3)?;
    /// assert_eq!(steps[0], Step { send_to: one, receive_from: two });
    /// assert_eq!(steps[1], Step { send_to: two, receive_from: one });
    /// let steps = BarrierAlgorithm::Counter.schedule(Rank(0), 3)?;
    /// assert_eq!(steps[0], Step { send_to: Party::Nobody, receive_from: Party::Everybody });
    /// assert_eq!(steps[1], Step { send_to: Party::Everybody, receive_from: Party::Nobody });
    /// # Ok::<(), omnes_topo::TopoError>(())
    /// ```
    pub fn schedule(self, rank: Rank, size: u32) -> Result<Vec<Step>, TopoError> {
        let steps = self.steps(size)?;
        check_rank(rank, size)?;
        match self {
            Self::GatherBroadcast => gather_broadcast(rank, size, steps),
            Self::PairwiseExchange => Ok(pairwise_exchange(rank, size, steps)),
            Self::Dissemination => Ok(dissemination(rank, size, steps)),
            Self::Counter => Ok(counter(rank, steps)),
        }
    }

    /// Number of steps of the barrier, at most [`STEPS_MAX`]; 0 for a group of one.
    ///
    /// Also the number of one-way latencies on the longest path: exactly, if `size` is a power of
    /// two or the algorithm is not gather-broadcast; otherwise an upper bound, because the tree is
    /// cut.
    /// Errors with [`TopoError::SizeZero`]. Cost: O(1).
    pub fn steps(self, size: u32) -> Result<u32, TopoError> {
        check_size(size)?;
        Ok(match self {
            Self::GatherBroadcast => 2 * log2_ceil(size),
            Self::PairwiseExchange if size.is_power_of_two() => size.ilog2(),
            Self::PairwiseExchange => size.ilog2() + 2,
            Self::Dissemination => log2_ceil(size),
            Self::Counter if size == 1 => 0,
            Self::Counter => 2,
        })
    }

    /// Number of messages that all ranks together send in one barrier without loss; 0 for a group
    /// of one.
    ///
    /// A message to [`Party::Everybody`] counts once for each receiver. By multicast the counter's
    /// releases are one packet, so it sends N packets for 2 (N - 1) messages.
    /// Errors with [`TopoError::SizeZero`]. Cost: O(1).
    pub fn messages(self, size: u32) -> Result<u64, TopoError> {
        check_size(size)?;
        let ranks = u64::from(size);
        Ok(match self {
            Self::GatherBroadcast | Self::Counter => 2 * (ranks - 1),
            Self::PairwiseExchange => {
                let core = u64::from(core_size(size));
                core * u64::from(size.ilog2()) + 2 * (ranks - core)
            }
            Self::Dissemination => ranks * u64::from(log2_ceil(size)),
        })
    }
}

impl fmt::Display for BarrierAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::GatherBroadcast => "gather-broadcast",
            Self::PairwiseExchange => "pairwise",
            Self::Dissemination => "dissemination",
            Self::Counter => "counter",
        })
    }
}

impl FromStr for BarrierAlgorithm {
    type Err = TopoError;

    /// Reads the text form; [`TopoError::UnknownBarrier`] otherwise.
    fn from_str(text: &str) -> Result<Self, TopoError> {
        match text {
            "gather-broadcast" => Ok(Self::GatherBroadcast),
            "pairwise" => Ok(Self::PairwiseExchange),
            "dissemination" => Ok(Self::Dissemination),
            "counter" => Ok(Self::Counter),
            _ => Err(TopoError::UnknownBarrier { name: text.to_string() }),
        }
    }
}

/// Up and down the binomial tree of rank 0 [CB-R9].
///
/// The edge between a parent and `parent + 2^i` is used in step i upwards and in the i-th step
/// from the end downwards. A rank reports only after its children have, as they differ from it in
/// lower bits; it is released before it releases them.
fn gather_broadcast(rank: Rank, size: u32, steps: u32) -> Result<Vec<Step>, TopoError> {
    let root = Rank(0);
    let mut table = idle_table(steps);
    let step_of_edge = |upper: Rank, lower: Rank| {
        let up = (lower.0 - upper.0).trailing_zeros();
        (up as usize, (steps - 1 - up) as usize)
    };
    for child in Tree::Binomial.children(rank, root, size)? {
        let (up, down) = step_of_edge(rank, child);
        table[up].receive_from = Party::Rank(child);
        table[down].send_to = Party::Rank(child);
    }
    if let Some(parent) = Tree::Binomial.parent(rank, root, size)? {
        let (up, down) = step_of_edge(parent, rank);
        table[up].send_to = Party::Rank(parent);
        table[down].receive_from = Party::Rank(parent);
    }
    Ok(table)
}

/// Recursive doubling among the largest power of two of ranks [CB-R10].
///
/// An extra rank, at or above that power, reports to the rank below it by that power in the first
/// step and is released by it in the last.
fn pairwise_exchange(rank: Rank, size: u32, steps: u32) -> Vec<Step> {
    let core = core_size(size);
    let mut table = idle_table(steps);
    let last = table.len().saturating_sub(1);
    if rank.0 >= core {
        let proxy = Party::Rank(Rank(rank.0 - core));
        table[0].send_to = proxy;
        table[last].receive_from = proxy;
        return table;
    }
    // Compared by distance: `rank + core` may exceed the range of a rank.
    if rank.0 < size - core {
        let extra = Party::Rank(Rank(rank.0 + core));
        table[0].receive_from = extra;
        table[last].send_to = extra;
    }
    let exchanges = core.ilog2();
    // If extras exist, all ranks leave the first step to the reports, whether they have an extra or
    // not.
    let first = usize::from(exchanges < steps);
    for (bit, step) in (0..exchanges).zip(&mut table[first..]) {
        let partner = Party::Rank(Rank(rank.0 ^ (1 << bit)));
        *step = Step { send_to: partner, receive_from: partner };
    }
    table
}

/// Each rank hears from twice as many ranks in every step [CB-R11].
fn dissemination(rank: Rank, size: u32, steps: u32) -> Vec<Step> {
    let (own, ranks) = (u64::from(rank.0), u64::from(size));
    // The remainders are below a u32, so the casts are lossless.
    let at = |index: u64| Party::Rank(Rank((index % ranks) as u32));
    (0..steps)
        .map(|step| {
            let distance = 1u64 << step;
            Step { send_to: at(own + distance), receive_from: at(own + ranks - distance) }
        })
        .collect()
}

/// Reports to rank 0 in the first step, releases by it in the second.
fn counter(rank: Rank, steps: u32) -> Vec<Step> {
    let mut table = idle_table(steps);
    // A group of one has no steps.
    if let [report, release] = &mut table[..] {
        match rank {
            Rank(0) => {
                report.receive_from = Party::Everybody;
                release.send_to = Party::Everybody;
            }
            _ => {
                report.send_to = Party::Rank(Rank(0));
                release.receive_from = Party::Rank(Rank(0));
            }
        }
    }
    table
}

fn idle_table(steps: u32) -> Vec<Step> {
    vec![Step::default(); steps as usize]
}

/// Largest power of two not above `size`, which is not 0.
fn core_size(size: u32) -> u32 {
    1 << size.ilog2()
}

/// ceil(log2 size); `size` is not 0.
fn log2_ceil(size: u32) -> u32 {
    u32::BITS - (size - 1).leading_zeros()
}
