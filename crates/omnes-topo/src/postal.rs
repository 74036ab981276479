//! Trees fitted to the ratio of latency to sending time: the postal model.
//!
//! What it is: [`Lambda`], the trees that reach the most ranks in a given time, and the number of
//! these ranks. Time unit: a rank's time to send one packet to one child, written as 1000
//! thousandths. A packet whose sending begins at t can be forwarded by its receiver from t + lambda
//! on.
//!
//! ```text
//! postal=2, size 8: all at 5      postal=3, size 8: all at 7
//!          0                                0
//!    /  /  |  \                       / /  |  \  \
//!   1   2  3   5                     1 2   3   4  6
//!  / \  |                           / \
//! 4   6 7                          5   7
//! ```
//!
//! Source: model [MS-R17], reach [MS-R18], builder [MS-R19], a tree for every lambda and so the
//! search over them [MS-R20]; all for fractional lambda too. The builder keeps two queues, one of
//! ranks that have sent nothing yet and one of ranks that have; each next rank becomes a child of
//! the rank that is free first. Both queues stay sorted by time. At equal times a rank that has
//! sent before goes first, because this gives the flat tree where it is among the best (lambda at
//! least size - 2). Guarantees: no tree reaches `size` ranks earlier; integers only, so all ranks
//! agree. Relative ranks are numbered in the order in which they are sent to, so a parent's number
//! is below its children's. With a limit on the fan-out, no tree within that limit is earlier.
//! Assumes: sending is serial, receiving and preparing (lambda - 1 units) delay no other packet;
//! all ranks are equally far from each other. Cost: O(size) time and memory for any property of a
//! shape, so sizes end at [`POSTAL_SIZE_MAX`]; [`reach`] and [`completion`] build nothing. Not
//! done: measuring lambda; unequal distances.

use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::error::{TopoError, check_size};
use crate::tree::Edges;

/// Largest group for which a postal tree is built, at 16 bytes of queue per rank.
pub const POSTAL_SIZE_MAX: u32 = 1 << 20;

/// The time unit in thousandths: the time to send one packet to one child.
pub const UNIT: u64 = 1000;

/// Digits after the point of a [`Lambda`].
const DECIMALS: usize = 3;

/// Latency in units of sending time, in thousandths, at least 1 [MS-R17].
///
/// Text form, both ways: `2.5`; up to three digits after the point, none for whole numbers.
///
/// ```
/// use omnes_topo::Lambda;
///
/// let lambda: Lambda = "2.5".parse()?;
/// assert_eq!(lambda, Lambda::from_thousandths(2500)?);
/// assert_eq!(lambda.to_string(), "2.5");
/// assert!("0.9".parse::<Lambda>().is_err());
/// # Ok::<(), omnes_topo::TopoError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lambda(u32);

/// Times of a packet on its way from one rank to the next, in nanoseconds.
///
/// The three times are those of [MS-R17]: measured one by one or taken from fitted lines.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PostalTimes {
    /// The sender's work before a packet can be transmitted; paid once for all children.
    pub send_ns: u64,
    /// Transmission to one child, which delays the next child; at least 1.
    pub transmit_ns: u64,
    /// The receiver's work until the packet can be forwarded.
    pub receive_ns: u64,
}

impl Lambda {
    /// The smallest lambda: a receiver can forward a packet when its sender can send again.
    pub const ONE: Self = Self(1000);

    /// The largest lambda that can be written.
    pub const MAX: Self = Self(u32::MAX);

    /// Lambda of this many thousandths.
    ///
    /// Errors with [`TopoError::LambdaOutOfRange`] below 1000.
    pub fn from_thousandths(thousandths: u32) -> Result<Self, TopoError> {
        if thousandths < Self::ONE.0 {
            return Err(TopoError::LambdaOutOfRange { thousandths: thousandths.into() });
        }
        Ok(Self(thousandths))
    }

    /// A whole lambda, for constants; 0 counts as 1.
    pub const fn whole(units: u16) -> Self {
        let units = if units == 0 { 1 } else { units };
        Self(units as u32 * Self::ONE.0)
    }

    /// `(transmit + receive + send) / transmit`, to the nearest thousandth [MS-R17].
    ///
    /// Errors with [`TopoError::TransmitTimeZero`] or, if the quotient is above
    /// [`Lambda::MAX`], [`TopoError::LambdaOutOfRange`]. It is never below 1.
    ///
    /// ```
    /// use omnes_topo::{Lambda, PostalTimes};
    ///
    /// // A packet of 1536 bytes on the machines of the multi-send paper.
    /// let times = PostalTimes { send_ns: 49_020, transmit_ns: 12_916, receive_ns: 39_610 };
    /// assert_eq!(Lambda::from_times(times)?.to_string(), "7.862");
    /// # Ok::<(), omnes_topo::TopoError>(())
    /// ```
    pub fn from_times(times: PostalTimes) -> Result<Self, TopoError> {
        let PostalTimes { send_ns, transmit_ns, receive_ns } = times;
        if transmit_ns == 0 {
            return Err(TopoError::TransmitTimeZero);
        }
        let [send, transmit, receive] = [send_ns, transmit_ns, receive_ns].map(u128::from);
        let scaled = (transmit + receive + send) * u128::from(UNIT);
        let rounded = (scaled + transmit / 2) / transmit;
        u32::try_from(rounded).map(Self).map_err(|_| TopoError::LambdaOutOfRange {
            thousandths: u64::try_from(rounded).unwrap_or(u64::MAX),
        })
    }

    /// The value in thousandths, at least 1000.
    pub fn thousandths(self) -> u32 {
        self.0
    }

    fn time(self) -> u64 {
        self.0.into()
    }
}

impl fmt::Display for Lambda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&decimal(self.time()))
    }
}

/// Thousandths as a number with a point, without trailing zeros.
pub(crate) fn decimal(thousandths: u64) -> alloc::string::String {
    let (whole, part) = (thousandths / UNIT, thousandths % UNIT);
    let text = alloc::format!("{whole}.{part:03}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

impl FromStr for Lambda {
    type Err = TopoError;

    /// Reads the text form; [`TopoError::UnknownLambda`] if the text is not such a number, else
    /// [`TopoError::LambdaOutOfRange`].
    fn from_str(text: &str) -> Result<Self, TopoError> {
        let unknown = || TopoError::UnknownLambda { text: text.to_string() };
        let (whole, part) = match text.split_once('.') {
            Some((whole, part)) if !part.is_empty() => (whole, part),
            Some(_) => return Err(unknown()),
            None => (text, ""),
        };
        // Digits are checked one by one, because the integer parser accepts signs.
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !is_digits(whole) || part.len() > DECIMALS || !is_digits(part) {
            return Err(unknown());
        }
        let thousandths: u64 =
            alloc::format!("{whole}{part:0<3}").parse().map_err(|_| unknown())?;
        let narrow = u32::try_from(thousandths);
        Self::from_thousandths(narrow.map_err(|_| TopoError::LambdaOutOfRange { thousandths })?)
    }
}

/// Maximum number of ranks that can have a packet at `time`, the root included [MS-R18].
///
/// `time` is in thousandths of the time unit. The result is F of the recurrence F(t) = 1 for t <
/// lambda, F(t) = F(t - 1) + F(t - lambda), as the sum over the depth b of a rank: along b edges
/// the senders may have sent before, a times in all, in C(a + b - 1, b - 1) ways. Values above
/// `u64::MAX` are returned as `u64::MAX`. Cost: O(time / lambda), no allocation.
///
/// ```
/// use omnes_topo::{Lambda, postal};
///
/// let lambda = Lambda::from_thousandths(2000)?;
/// let reach = |units| postal::reach(units * postal::UNIT, lambda);
/// assert_eq!([0, 1, 2, 3, 4, 5, 6].map(reach), [1, 1, 2, 3, 5, 8, 13]);
/// # Ok::<(), omnes_topo::TopoError>(())
/// ```
pub fn reach(time: u64, lambda: Lambda) -> u64 {
    let mut ranks: u64 = 0;
    for depth in 0..=time / lambda.time() {
        let sends = (time - depth * lambda.time()) / UNIT;
        // All a up to `sends` together.
        ranks = ranks.saturating_add(choose_saturating(sends + depth, depth));
        if ranks == u64::MAX {
            break;
        }
    }
    ranks
}

/// Earliest time at which `size` ranks can have a packet; 0 for a group of one.
///
/// In thousandths of the time unit. `size` is at least 1, without an upper limit. Errors with
/// [`TopoError::SizeZero`]. Cost: up to 43 calls of [`reach`], no allocation.
///
/// ```
/// use omnes_topo::{Lambda, postal};
///
/// assert_eq!(postal::completion(1024, Lambda::ONE)?, 10_000);
/// assert_eq!(postal::completion(8, "2.5".parse()?)?, 6_000);
/// # Ok::<(), omnes_topo::TopoError>(())
/// ```
pub fn completion(size: u32, lambda: Lambda) -> Result<u64, TopoError> {
    check_size(size)?;
    let others = u64::from(size) - 1;
    if others == 0 {
        return Ok(0);
    }
    // The root alone needs this long.
    let (mut least, mut most) = (0, (others - 1) * UNIT + lambda.time());
    while least < most {
        let middle = least + (most - least) / 2;
        if reach(middle, lambda) < u64::from(size) { least = middle + 1 } else { most = middle }
    }
    Ok(least)
}

/// `n` over `k`, at most `u64::MAX`; `k` is at most `n`.
fn choose_saturating(n: u64, k: u64) -> u64 {
    let mut ways: u64 = 1;
    for index in 0..k.min(n - k) {
        // Exact: `ways` is n over `index` here. It never shrinks up to the middle.
        let wider = u128::from(ways) * u128::from(n - index) / u128::from(index + 1);
        let Ok(narrow) = u64::try_from(wider) else { return u64::MAX };
        ways = narrow;
    }
    ways
}

/// One rank in a queue of the builder.
#[derive(Clone, Copy)]
struct Waiting {
    /// Time at which it can send next.
    free_at: u64,
    rank: u32,
    /// Number of children it has.
    sent: u32,
}

/// An edge to the next rank: 1, 2, 3 and so on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Edge {
    /// Relative rank of the parent.
    pub(crate) parent: u32,
    /// Time at which the new rank can send, in thousandths.
    pub(crate) ready_at: u64,
}

/// The greedy builder [MS-R19]: an endless sequence of edges, in the order in which they are used.
///
/// Used within [`POSTAL_SIZE_MAX`], where no number overflows.
#[derive(Clone)]
pub(crate) struct Greedy {
    lambda: Lambda,
    fan_out_max: u32,
    next: u32,
    /// Ranks that have sent nothing yet, by time.
    new: VecDeque<Waiting>,
    /// Ranks that have sent and may send again, by time.
    old: VecDeque<Waiting>,
}

impl Greedy {
    /// The tree in which no rank has more than `fan_out_max` children, at least 1.
    pub(crate) fn new(lambda: Lambda, fan_out_max: u32) -> Self {
        let new = VecDeque::from([Waiting { free_at: 0, rank: 0, sent: 0 }]);
        Self { lambda, fan_out_max, next: 1, new, old: VecDeque::new() }
    }

    /// The rank that can send first; of two at the same time the one that has sent before.
    fn take_first(&mut self) -> Option<Waiting> {
        let is_old_first = match (self.old.front(), self.new.front()) {
            (Some(old), Some(new)) => old.free_at <= new.free_at,
            (old, _) => old.is_some(),
        };
        if is_old_first { self.old.pop_front() } else { self.new.pop_front() }
    }
}

impl Iterator for Greedy {
    type Item = Edge;

    fn next(&mut self) -> Option<Edge> {
        // The rank added last has sent nothing, so a rank is always found.
        let Waiting { free_at, rank, sent } = self.take_first()?;
        let ready_at = free_at + self.lambda.time();
        self.new.push_back(Waiting { free_at: ready_at, rank: self.next, sent: 0 });
        self.next += 1;
        if sent + 1 < self.fan_out_max {
            self.old.push_back(Waiting { free_at: free_at + UNIT, rank, sent: sent + 1 });
        }
        Some(Edge { parent: rank, ready_at })
    }
}

/// Parents of the relative ranks 1 to `size - 1`; entry i is that of rank i + 1.
fn parents(size: u32, greedy: Greedy) -> impl Iterator<Item = u32> {
    greedy.take(size as usize - 1).map(|edge| edge.parent)
}

/// Children of a relative rank, ascending, which is the order of sending.
pub(crate) fn children(relative: u64, size: u32, greedy: Greedy) -> impl Iterator<Item = u64> {
    let edges = (1..).zip(parents(size, greedy));
    edges.filter(move |(_, parent)| u64::from(*parent) == relative).map(|(child, _)| child)
}

/// Parent of a relative rank, which is not 0.
pub(crate) fn parent(relative: u64, mut greedy: Greedy) -> u64 {
    let edge = greedy.nth(relative as usize - 1);
    edge.map_or(0, |edge| edge.parent.into())
}

/// Edges on the longest path from the root.
pub(crate) fn depth(size: u32, greedy: Greedy) -> u32 {
    let mut depths = Vec::with_capacity(size as usize);
    depths.push(0);
    for parent in parents(size, greedy) {
        depths.push(depths[parent as usize] + 1);
    }
    depths.into_iter().max().unwrap_or(0)
}

/// Children of the root, which has the most: it sends first, and whenever another rank sends its
/// n-th time, it has done so at least a time unit before.
pub(crate) fn fan_out(size: u32, greedy: Greedy) -> u32 {
    parents(size, greedy).filter(|parent| *parent == 0).count() as u32
}

/// All edges; the builder runs twice, to count and to place.
pub(crate) fn edges(size: u32, greedy: Greedy) -> Edges {
    let mut first = vec![0; size as usize + 1];
    for parent in parents(size, greedy.clone()) {
        first[parent as usize + 1] += 1;
    }
    for index in 1..first.len() {
        first[index] += first[index - 1];
    }
    let mut places = first.clone();
    let mut children = vec![0; size as usize - 1];
    for (child, parent) in (1..).zip(parents(size, greedy)) {
        let place = &mut places[parent as usize];
        children[*place as usize] = child;
        *place += 1;
    }
    Edges { first, children }
}
