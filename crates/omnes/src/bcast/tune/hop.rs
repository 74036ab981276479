//! Measures the times of the postal model on this network, by multi-sends on the live path
//! [MS-R17, R25].
//!
//! Rank 0 multi-sends by a flat tree to the leaders of the first nodes, in the job's own form, so
//! the measured path is that of broadcasts. Per size of message:
//!
//! | time | what it is | how |
//! |---|---|---|
//! | t_send | the host, per multi-send to one rank | time in the call, between idle ranks |
//! | t_xmit | one more destination | slope over destinations of the time per multi-send in a row |
//! | t_recv | the rest of a hop | half a round trip between two ranks less the two above |
//!
//! The time in a row is from the first call until the answer of the last destination, so it is that
//! of the slowest of host, wire and receivers. All times are medians of rounds.
//!
//! Guarantees: all ranks go through the same rounds, because rank 0 announces each of them.
//! Deviations: [MS-R25] reads the interface's own clock; the kernel does not offer one here, so
//! t_xmit is a slope and t_recv a difference, which includes wire and polling. The host's call
//! makes a copy itself, so t_send includes time that t_xmit counts, too, and their sum may exceed
//! the half round trip: t_recv is then 0, and lambda counts the shared time once.
//! Cost: up to three communicators, and per size four times the budget.
//! Not done: trees for each size; the job's multi-send has one, chosen by the times of a full
//! packet.

use super::super::BcastAlgorithm;
use super::super::multisend::Cloning;
use super::measure::median;
use crate::communicator::Communicator;
use crate::error::Error;
use omnes_proto::broadcast::Policy;
use omnes_topo::{Lambda, PostalTimes, Tree, pipeline};
use std::time::{Duration, Instant};

/// Algorithm of the multi-sends.
const CAST: BcastAlgorithm = BcastAlgorithm::Multicast(Policy::COMBINED);
/// Tree by which rank 0 announces rounds.
const TREE: Tree = Tree::Binomial;
/// A slope needs two numbers of destinations.
const NODES_MIN: u32 = 3;
/// Maximum number of destinations: more do not improve the slope, and their answers load rank 0.
const DESTINATIONS_MAX: u32 = 16;
/// Minimum and maximum number of rounds per size.
const ROUNDS: (usize, usize) = (5, 200);
/// Round trips per round after the first, at which the ranks have only just learnt of the round.
const ROUND_TRIPS: u32 = 8;
/// Bytes in a row per round, and the minimum and maximum number of messages.
const ROW_BYTES: u64 = 512 << 10;
const ROW_MESSAGES: (u64, u64) = (8, 64);
/// Tag of the answer at the end of a row.
const ANSWER: u32 = 1;

/// Times of one hop for one size of message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// Length of the message.
    pub bytes: u64,
    /// Number of packets of the message.
    pub packets: u32,
    /// Time of the host per multi-send to one destination, in nanoseconds.
    pub send_ns: u64,
    /// Time of one more destination, in nanoseconds, at least 1.
    pub transmit_ns: u64,
    /// Remaining time of a hop, in nanoseconds; 0 if the two above account for all of it.
    pub receive_ns: u64,
    /// Half of a round trip, in nanoseconds: the whole hop.
    pub half_trip_ns: u64,
}

impl Hop {
    /// Hop with these measured times, in nanoseconds; noise may make `slope_ns` negative.
    fn new(bytes: u64, packets: u32, send_ns: u64, slope_ns: f64, half_trip_ns: u64) -> Self {
        let transmit_ns = slope_ns.round().max(1.0) as u64;
        let receive_ns = half_trip_ns.saturating_sub(send_ns.saturating_add(transmit_ns));
        Self { bytes, packets, send_ns, transmit_ns, receive_ns, half_trip_ns }
    }

    /// (t_xmit + t_recv + t_send) / t_xmit [MS-R17], without the time that t_send shares with
    /// t_xmit if the sum exceeds the half round trip; limited to the range from 1 to the largest
    /// valid lambda.
    pub fn lambda(&self) -> Lambda {
        let Self { transmit_ns, receive_ns, half_trip_ns, .. } = *self;
        let own = half_trip_ns.saturating_sub(transmit_ns.saturating_add(receive_ns));
        let times = PostalTimes { send_ns: own.min(self.send_ns), transmit_ns, receive_ns };
        Lambda::from_times(times).unwrap_or(Lambda::MAX)
    }

    /// The tree by which `nodes` nodes have such a message first, if each packet is forwarded as it
    /// arrives [MS-R16, R21]. `None` for zero nodes, or more than the model supports.
    pub fn tree(&self, nodes: u32) -> Option<Tree> {
        // The model's unit is one packet of many: the last of M leaves M - 1 units after the first.
        let (packets, hop) = (u64::from(self.packets.max(1)), self.lambda().thousandths());
        let first = (u64::from(hop) * packets).saturating_sub((packets - 1) * 1000).max(1000);
        let narrow = u32::try_from(first).ok().and_then(|it| Lambda::from_thousandths(it).ok());
        pipeline::choose(nodes, self.packets, narrow.unwrap_or(Lambda::MAX)).ok()
    }
}

/// The hop that determines the job's tree: that of one full packet.
pub(super) fn decisive(hops: &[Hop], payload_bytes: u16) -> Option<Hop> {
    hops.iter().copied().find(|hop| hop.bytes == u64::from(payload_bytes))
}

impl Communicator {
    /// Measures hops, for about `budget` per size and number of destinations; returns the times at
    /// rank 0 only. Collective; on the communicator of all ranks. Measures nothing if the job does
    /// not multi-send, or has fewer than three nodes.
    pub(super) fn measure_hops(&self, budget: Duration) -> Result<Vec<Hop>, Error> {
        let nodes = self.nodes().count();
        if !self.job().has_multisend() || nodes < NODES_MIN {
            return Ok(Vec::new());
        }
        let most = (nodes - 1).min(DESTINATIONS_MAX);
        let mut counts = vec![1, most.div_ceil(2), most];
        counts.dedup();
        let stars: Result<Vec<Option<Star>>, Error> =
            counts.into_iter().map(|count| self.star(count, budget)).collect();
        let stars: Vec<Star> = stars?.into_iter().flatten().collect();
        let payload = self.job().engine.payload_bytes();
        let mut hops = Vec::new();
        for bytes in [8, u64::from(payload), 16 << 10, 64 << 10] {
            let packets = bytes.div_ceil(u64::from(payload).max(1)) as u32;
            hops.extend(hop(&stars, bytes, packets)?);
        }
        // No star may be dropped while another rank still multi-sends in it.
        self.meet()?;
        Ok(if self.rank() == 0 { hops } else { Vec::new() })
    }

    /// Rank 0 with the leaders of `destinations` other nodes; `None` at ranks that are left out.
    fn star(&self, destinations: u32, budget: Duration) -> Result<Option<Star>, Error> {
        let mut leaders = self.nodes().by_node().iter().map(|node| node[0].0);
        let me = self.job_rank(self.rank()).0;
        let is_in = leaders.position(|it| it == me).is_some_and(|it| it as u32 <= destinations);
        let part = self.split(is_in.then_some(0), 0)?;
        let Some(part) = part else { return Ok(None) };
        let cloning: Cloning = self.cloning();
        part.use_multisend_tree(Tree::Flat, cloning)?;
        Ok(Some(Star { part, budget }))
    }
}

/// The hop of a size, if this rank takes part in measuring the round trips.
fn hop(stars: &[Star], bytes: u64, packets: u32) -> Result<Option<Hop>, Error> {
    let mut memory = vec![1; bytes as usize];
    let (mut rows, mut lone) = (Vec::new(), None);
    for star in stars {
        let destinations = star.part.size() - 1;
        let in_a_row = star.time_in_a_row(&mut memory)?;
        rows.push((f64::from(destinations), in_a_row.as_nanos() as f64));
        if destinations == 1 {
            lone = Some(star.time_of_a_trip(&mut memory)?);
        }
    }
    Ok(lone.map(|Trip { send, half }| {
        let ns = |time: Duration| time.as_nanos() as u64;
        Hop::new(bytes, packets, ns(send), slope(&rows), ns(half))
    }))
}

/// A rank with its destinations, all one hop away.
struct Star {
    part: Communicator,
    budget: Duration,
}

/// A round trip between two ranks.
#[derive(Clone, Copy)]
struct Trip {
    /// Time in the root's call.
    send: Duration,
    /// Half of the round trip.
    half: Duration,
}

impl Star {
    /// Time per multi-send of many in a row, until the last destination has the last one.
    fn time_in_a_row(&self, memory: &mut [u8]) -> Result<Duration, Error> {
        let (part, last) = (&self.part, self.part.size() - 1);
        let (least, most) = ROW_MESSAGES;
        let messages = (ROW_BYTES / (memory.len() as u64).max(1)).clamp(least, most) as u32;
        let mut times = self.rounds(|| {
            let start = Instant::now();
            (0..messages).try_for_each(|_| part.broadcast(0, memory, CAST))?;
            if part.rank() == last {
                part.send(0, ANSWER, &[])?;
            } else if part.rank() == 0 {
                part.recv(last, ANSWER, &mut [])?;
            }
            Ok(start.elapsed() / messages)
        })?;
        Ok(median(&mut times))
    }

    /// Measures round trips by multi-send between the first two ranks.
    fn time_of_a_trip(&self, memory: &mut [u8]) -> Result<Trip, Error> {
        let part = &self.part;
        let trips = self.rounds(|| {
            let (mut sending, mut whole) = (Duration::ZERO, Duration::ZERO);
            for trip in 0..=ROUND_TRIPS {
                let start = Instant::now();
                part.broadcast(0, memory, CAST)?;
                let sent = start.elapsed();
                part.broadcast(1, memory, CAST)?;
                if trip > 0 {
                    (sending, whole) = (sending + sent, whole + start.elapsed());
                }
            }
            Ok(Trip { send: sending / ROUND_TRIPS, half: whole / (2 * ROUND_TRIPS) })
        })?;
        let median_of = |pick: fn(&Trip) -> Duration| {
            median(&mut trips.iter().map(pick).collect::<Vec<Duration>>())
        };
        Ok(Trip { send: median_of(|trip| trip.send), half: median_of(|trip| trip.half) })
    }

    /// Results of `round`, repeated for as long as rank 0 decides; at least one.
    fn rounds<T>(&self, mut round: impl FnMut() -> Result<T, Error>) -> Result<Vec<T>, Error> {
        // Not counted: nothing is prepared for the first multi-send of a size.
        round()?;
        let (start, mut results) = (Instant::now(), Vec::new());
        loop {
            let (least, most) = ROUNDS;
            let has_time = results.len() < most && start.elapsed() < self.budget;
            let mut goes_on = [u8::from(results.len() < least || has_time)];
            self.part.broadcast(0, &mut goes_on, BcastAlgorithm::tree(TREE))?;
            // After an invalid decision the ranks stay in step, because all receive the same.
            if goes_on == [0] && !results.is_empty() {
                return Ok(results);
            }
            results.push(round()?);
        }
    }
}

/// Slope of the straight line through `points`, by least squares; their x values differ.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len().max(1) as f64;
    let mean = |pick: fn(&(f64, f64)) -> f64| points.iter().map(pick).sum::<f64>() / count;
    let (x, y) = (mean(|it| it.0), mean(|it| it.1));
    let (along, square) = points.iter().fold((0.0, 0.0), |(along, square), it| {
        (along + (it.0 - x) * (it.1 - y), square + (it.0 - x).powi(2))
    });
    if square > 0.0 { along / square } else { 0.0 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn lambda(text: &str) -> Lambda {
        text.parse().unwrap()
    }

    #[test]
    fn lambda_is_the_hop_time_in_units_of_one_copy() {
        // [MS-R17]: (4 + 11 + 5) / 4.
        let hop = Hop::new(1400, 1, 5_000, 4_000.4, 20_000);
        assert_eq!((hop.send_ns, hop.transmit_ns, hop.receive_ns), (5_000, 4_000, 11_000));
        assert_eq!(hop.lambda(), lambda("5"));
    }

    #[test]
    fn noise_yields_neither_negative_times_nor_invalid_lambdas() {
        let falling = Hop::new(8, 1, 5_000, -300.0, 20_000);
        assert_eq!((falling.transmit_ns, falling.receive_ns), (1, 14_999));
        assert_eq!(falling.lambda(), lambda("20000"));
        // If copies cost nothing, the root makes all of them.
        assert_eq!(falling.tree(9), Some(Tree::Flat));
        let slow = Hop::new(8, 1, 5_000, 0.0, u64::MAX / 2);
        assert_eq!(slow.lambda(), Lambda::MAX);
    }

    #[test]
    fn overlapping_times_are_counted_once() {
        // Calls of 5 us with a copy of 4 us inside, in a hop of 6 us.
        let hop = Hop::new(8, 1, 5_000, 4_000.0, 6_000);
        assert_eq!((hop.send_ns, hop.receive_ns, hop.lambda()), (5_000, 0, lambda("1.5")));
        // A hop never ends before its copy is made.
        let hasty = Hop::new(8, 1, 5_000, 4_000.0, 3_000);
        assert_eq!((hasty.receive_ns, hasty.lambda()), (0, Lambda::ONE));
    }

    #[test]
    fn tree_is_derived_from_message_size_and_node_count() {
        // With lambda 1, every rank that has a packet forwards it immediately.
        let quick = Hop::new(1400, 1, 0, 1000.0, 1000);
        let binomial_depth = quick.tree(8).unwrap().depth(8).unwrap();
        assert_eq!((quick.lambda(), binomial_depth), (Lambda::ONE, 3));
        // Of two trees that take two units, the chain.
        assert_eq!(quick.tree(3), Some(Tree::Chain));
        // A hop of a hundred packets takes the time of all of them and that of the first: a chain.
        let long = Hop::new(140_000, 100, 0, 100_000.0, 102_000);
        assert_eq!(long.tree(8), Some(Tree::Chain));
        assert_eq!(long.tree(0), None);
    }

    #[test]
    fn slope_is_fitted_by_least_squares() {
        assert!((slope(&[(1.0, 12.0), (4.0, 18.0), (7.0, 24.0)]) - 2.0).abs() < 1e-9);
        assert!((slope(&[(1.0, 10.0), (2.0, 9.0)]) + 1.0).abs() < 1e-9);
        assert!(slope(&[(1.0, 10.0)]).abs() < 1e-9);
    }

    #[test]
    fn hop_of_a_full_packet_is_decisive() {
        let of = |bytes| Hop::new(bytes, 1, 1, 1.0, bytes);
        assert_eq!(decisive(&[of(8), of(1416), of(16 << 10)], 1416), Some(of(1416)));
        assert_eq!(decisive(&[], 1416), None);
    }
}
