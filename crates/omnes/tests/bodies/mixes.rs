//! Bodies with many messages in flight: random ones, large ones in both directions, floods.
//!
//! Every rank draws the messages and their senders and receivers from the same seed, so each knows
//! which ones it must get.

use super::{assert_same, partner, pattern};
use omnes::{Communicator, Source, Tag};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Draws numbers; equal seeds give equal numbers.
struct Draw(u64);

impl Draw {
    /// A number below `limit`.
    fn below(&mut self, limit: u32) -> u32 {
        // Knuth's multiplier; the upper bits are the random ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        ((self.0 >> 33) % u64::from(limit)) as u32
    }
}

/// One message of a plan.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Planned {
    from: u32,
    to: u32,
    tag: u32,
    bytes: usize,
}

impl Planned {
    fn data(&self) -> Vec<u8> {
        pattern(self.bytes, self.tag * 64 + self.from * 8 + self.to)
    }
}

/// `count` messages between any ranks, including from a rank to itself; mostly short ones.
fn plan(seed: u64, count: u32, size: u32, bytes_max: usize) -> Vec<Planned> {
    let mut draw = Draw(seed);
    let mut message = |tag| {
        let longest = [1, 200, 2000, 20_000, 150_000][draw.below(5) as usize];
        Planned {
            from: draw.below(size),
            to: draw.below(size),
            tag,
            bytes: (draw.below(longest + 1) as usize).min(bytes_max),
        }
    };
    (0..count).map(&mut message).collect()
}

fn split_plan(plan: &[Planned], me: u32) -> (Vec<(Planned, Vec<u8>)>, Vec<Planned>) {
    let sent = plan.iter().filter(|message| message.from == me);
    let received = plan.iter().filter(|message| message.to == me);
    (sent.map(|message| (*message, message.data())).collect(), received.copied().collect())
}

/// Any source, any tag: the messages of each source arrive in order, unchanged.
pub fn mix(comm: &Communicator, bytes_max: usize) {
    let size = comm.size();
    let plan = plan(42, 40 * size, size, bytes_max);
    let (sent, received) = split_plan(&plan, comm.rank());
    let mut wanted: BTreeMap<u32, VecDeque<Planned>> = BTreeMap::new();
    for message in &received {
        wanted.entry(message.from).or_default().push_back(*message);
    }
    let mut buffer = vec![0; 150_000];
    comm.scope(|scope| {
        for (message, data) in &sent {
            let _ = scope.isend(message.to, message.tag, data).unwrap();
        }
        for _ in &received {
            let status = comm.recv(Source::Any, Tag::Any, &mut buffer).unwrap();
            let next = wanted.get_mut(&status.source).and_then(VecDeque::pop_front);
            let next = next.expect("no more than was sent");
            assert_eq!((status.tag, status.bytes), (next.tag, next.bytes));
            assert_same(&buffer[..next.bytes], &next.data(), format_args!("{next:?}"));
        }
    });
}

/// Messages are received by tag in an order unrelated to that of sending; half of the receives are
/// posted before anything is sent.
pub fn out_of_order(comm: &Communicator, bytes_max: usize) {
    let size = comm.size();
    let plan = plan(7, 20 * size, size, bytes_max);
    let (sent, mut received) = split_plan(&plan, comm.rank());
    let mut draw = Draw(u64::from(comm.rank()));
    received.sort_by_cached_key(|message| (draw.below(1 << 30), message.tag));
    let mut buffers: Vec<Vec<u8>> = received.iter().map(|message| vec![0; message.bytes]).collect();
    let (early, late) = buffers.split_at_mut(received.len() / 2);
    comm.scope(|scope| {
        for (message, buffer) in received.iter().zip(early) {
            let _ = scope.irecv(Source::Any, message.tag, buffer).unwrap();
        }
        for (message, data) in &sent {
            let _ = scope.isend(message.to, message.tag, data).unwrap();
        }
        for (message, buffer) in received[received.len() / 2..].iter().zip(late) {
            comm.recv(message.from, message.tag, buffer).unwrap();
        }
    });
    for (message, buffer) in received.iter().zip(buffers) {
        assert_same(&buffer, &message.data(), format_args!("{message:?}"));
    }
}

/// Large messages in both directions between all neighbours at the same time.
pub fn both_ways(comm: &Communicator, bytes_max: usize) {
    let (me, size) = (comm.rank(), comm.size());
    if size == 1 {
        return;
    }
    let neighbours = [(me + 1) % size, (me + size - 1) % size];
    let mine = pattern(bytes_max, me);
    let mut theirs = [vec![0; bytes_max], vec![0; bytes_max]];
    let [from_next, from_before] = &mut theirs;
    comm.scope(|scope| {
        // In a job of two ranks, both neighbours are one rank: the tag gives the direction of a
        // message.
        let _ = scope.irecv(neighbours[0], 1, from_next).unwrap();
        let _ = scope.irecv(neighbours[1], 0, from_before).unwrap();
        let _ = scope.isend(neighbours[0], 0, &mine).unwrap();
        let _ = scope.isend(neighbours[1], 1, &mine).unwrap();
    });
    for (neighbour, data) in neighbours.into_iter().zip(&theirs) {
        assert_same(data, &pattern(bytes_max, neighbour), format_args!("from rank {neighbour}"));
    }
}

/// All ranks send to one at the same time.
pub fn incast(comm: &Communicator, bytes_max: usize) {
    let bytes = (1 << 20).min(bytes_max);
    let last = comm.size() - 1;
    if comm.rank() != last {
        comm.send(last, 3, &pattern(bytes, comm.rank())).unwrap();
        return;
    }
    let mut buffer = vec![0; bytes];
    let mut sources: Vec<u32> = (0..last).collect();
    while !sources.is_empty() {
        let status = comm.recv(Source::Any, 3, &mut buffer).unwrap();
        assert!(sources.contains(&status.source), "{} sent twice", status.source);
        sources.retain(|rank| *rank != status.source);
        assert_same(&buffer, &pattern(bytes, status.source), format_args!("{status:?}"));
    }
}

/// 64 messages in flight, waited for in the opposite order.
pub fn burst(comm: &Communicator, bytes_max: usize) {
    let Some(peer) = partner(comm) else { return };
    let length = |tag: u32| (tag as usize * 1000).min(bytes_max);
    if comm.rank() < peer {
        let messages: Vec<Vec<u8>> = (0..64).map(|tag| pattern(length(tag), tag)).collect();
        comm.scope(|scope| {
            let messages = (0..).zip(&messages);
            let sends: Vec<_> =
                messages.map(|(tag, data)| scope.isend(peer, tag, data).unwrap()).collect();
            sends.into_iter().rev().for_each(|send| assert!(send.wait().is_ok()));
        });
        return;
    }
    for tag in (0..64).rev() {
        let mut buffer = vec![0; length(tag)];
        comm.recv(peer, tag, &mut buffer).unwrap();
        assert_same(&buffer, &pattern(length(tag), tag), format_args!("message {tag}"));
    }
}

const FLOOD_MESSAGES: u32 = 20_000;
const FLOOD_BYTES: usize = 100;
/// Memory that both sides may need for a flood: the messages once, with the overhead of each.
const FLOOD_MEMORY_KIB: u64 = 100 << 10;

/// Many small messages to a rank that posts no receive: its pool fills and it rejects the others;
/// when it finally receives, all arrive, in order. The size of the pool determines when it fills.
pub fn flood(comm: &Communicator, _bytes_max: usize) {
    let Some(peer) = partner(comm) else { return };
    let before = resident_kib();
    if comm.rank() < peer {
        for number in 0..FLOOD_MESSAGES {
            let mut data = [number as u8; FLOOD_BYTES];
            data[..4].copy_from_slice(&number.to_be_bytes());
            comm.send(peer, 8, &data).unwrap();
        }
    } else {
        wait_for_refusals(comm);
        let mut data = [0; FLOOD_BYTES];
        for number in 0..FLOOD_MESSAGES {
            comm.recv(peer, 8, &mut data).unwrap();
            assert_eq!(data[..4], number.to_be_bytes());
            assert!(data[4..].iter().all(|byte| *byte == number as u8));
        }
    }
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < FLOOD_MEMORY_KIB, "memory has grown by {grown} KiB");
}

/// Returns when this rank has rejected a packet: only its progress thread works meanwhile.
fn wait_for_refusals(comm: &Communicator) {
    let before = comm.stats().rejects_sent;
    let deadline = Instant::now() + Duration::from_secs(20);
    while comm.stats().rejects_sent == before {
        assert!(Instant::now() < deadline, "the pool never filled: {:?}", comm.stats());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Resident memory of this process.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
