//! Cost of an endpoint in a very large job: little memory, the same whatever the job's size.
//! Broadcasts and barriers of such jobs complete.
#![allow(clippy::unwrap_used)]

use omnes_proto::LivenessConfig;
use omnes_proto::broadcast::{
    self, BroadcastConfig, BroadcastCounters, CastMessage, CheckedBroadcast, GroupId, Policy,
};
use omnes_proto::channel::{ChannelConfig, Checked, Reply};
use omnes_proto::collective::{self, CollectiveConfig, Runner};
use omnes_proto::endpoint::{Endpoint, EndpointConfig, Event};
use omnes_proto::group::Nodes;
use omnes_proto::packet::{Destination, Head};
use omnes_topo::BarrierAlgorithm;
use omnes_wire::{CommunicatorId, Instant, JobId, JobKey, Rank};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};

/// Ranks of the large job; fewer in unoptimized builds, as only the cost of a rank matters.
const RANKS: u32 = if cfg!(debug_assertions) { 1 << 13 } else { 1 << 16 };
const BARRIERS: CommunicatorId = CommunicatorId(7);
const GROUP: GroupId = GroupId { communicator: CommunicatorId(1), number: 0 };
const POLICIES: [&str; 4] = ["combined", "tree-ack=8", "co-root=256", "nack"];
const ROOT: u32 = 5;
/// Most bytes that an endpoint may use with a group for broadcasts and one for barriers.
const BYTES_MAX: i64 = 17 << 9;

thread_local! {
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator, with a count of the bytes held per thread.
struct Counting;

// SAFETY: all calls are forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.set(LIVE_BYTES.get() + layout.size() as i64);
        // SAFETY: the caller guarantees what the system's allocator requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE_BYTES.set(LIVE_BYTES.get() - layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Settings shared by all ranks.
struct Settings {
    channels: Vec<Checked>,
    broadcast: CheckedBroadcast,
    nodes: Nodes,
}

impl Settings {
    fn new(ranks: u32) -> Self {
        let channel = ChannelConfig::default().build().unwrap();
        let broadcast = BroadcastConfig::default().build().unwrap();
        let nodes = Nodes::one_each(ranks);
        Self { channels: vec![channel.clone(), channel], broadcast, nodes }
    }

    fn endpoint(&self, me: u32) -> Endpoint {
        let config = EndpointConfig {
            me: Rank(me),
            size: self.nodes.seats(),
            job: JobId(1),
            key: JobKey::new([7; 16]),
            channels: self.channels.clone(),
            broadcast: Some(self.broadcast.clone()),
            collective: CollectiveConfig::default(),
            liveness: LivenessConfig::default(),
        };
        Endpoint::new(Instant::ZERO, config)
    }

    fn open(&self, end: &mut Endpoint, policy: Policy, algorithm: BarrierAlgorithm) {
        let (id, nodes) = (GROUP, self.nodes.clone());
        end.broadcast_mut().unwrap().open(broadcast::CastGroupConfig { id, nodes, policy });
        end.collective_mut().open(collective::BarrierGroupConfig {
            communicator: BARRIERS,
            nodes: self.nodes.clone(),
            algorithm,
            runner: Runner::Host,
            is_multicast: true,
        });
    }
}

/// A whole job on a network that delivers immediately.
struct Job {
    ends: Vec<Endpoint>,
    now: Instant,
    /// Ranks that may have something to send.
    busy: VecDeque<u32>,
    is_busy: Vec<bool>,
    /// Times at which ranks are to be woken; `planned` has the one of each rank.
    wakes: BTreeSet<(Instant, u32)>,
    planned: Vec<Option<Instant>>,
    received: u32,
    sent: u32,
    done: u32,
}

impl Job {
    fn new(ranks: u32, policy: &str, algorithm: BarrierAlgorithm) -> Self {
        let settings = Settings::new(ranks);
        let policy = policy.parse().unwrap();
        let open = |me| {
            let mut end = settings.endpoint(me);
            settings.open(&mut end, policy, algorithm);
            end
        };
        Self {
            ends: (0..ranks).map(open).collect(),
            now: Instant::ZERO,
            busy: VecDeque::new(),
            is_busy: vec![false; ranks as usize],
            wakes: BTreeSet::new(),
            planned: vec![None; ranks as usize],
            received: 0,
            sent: 0,
            done: 0,
        }
    }

    fn ranks(&self) -> u32 {
        self.ends.len() as u32
    }

    fn mark(&mut self, rank: u32) {
        if !std::mem::replace(&mut self.is_busy[rank as usize], true) {
            self.busy.push_back(rank);
        }
    }

    fn hand_over(&mut self, to: u32, packet: &[u8], bytes: usize) {
        self.ends[to as usize].handle_packet(self.now, packet, bytes);
        self.mark(to);
    }

    /// Lets one rank send all its packets, and handles its events.
    fn serve(&mut self, rank: u32) {
        let mut head = Head::default();
        while let Some(transmit) = self.ends[rank as usize].poll_transmit(self.now, &mut head) {
            let data = transmit.segment.map_or(0, |segment| segment.bytes as usize);
            let bytes = head.as_bytes().len() + data;
            match transmit.to {
                Destination::Rank(to) => self.hand_over(to.0, head.as_bytes(), bytes),
                Destination::Group => (0..self.ranks())
                    .filter(|to| *to != rank)
                    .for_each(|to| self.hand_over(to, head.as_bytes(), bytes)),
                _ => panic!("nobody has a NIC"),
            }
        }
        let end = &mut self.ends[rank as usize];
        while end.poll_move().is_some() {}
        while let Some(event) = end.poll_event(self.now) {
            match event {
                Event::Broadcast(broadcast::Event::Received { .. }) => self.received += 1,
                Event::Broadcast(broadcast::Event::Sent { .. }) => self.sent += 1,
                Event::Collective(collective::Event::Done { .. }) => self.done += 1,
                other => panic!("{other:?}"),
            }
        }
        let wake = end.poll_timeout();
        if let Some(planned) = std::mem::replace(&mut self.planned[rank as usize], wake) {
            self.wakes.remove(&(planned, rank));
        }
        self.wakes.extend(wake.map(|wake| (wake, rank)));
    }

    /// Continues until there is nothing to send at present.
    fn settle(&mut self) {
        while let Some(rank) = self.busy.pop_front() {
            self.is_busy[rank as usize] = false;
            self.serve(rank);
        }
    }

    /// Continues until `is_over` returns true.
    fn run_until(&mut self, is_over: impl Fn(&Self) -> bool) {
        self.settle();
        while !is_over(self) {
            let (wake, rank) = self.wakes.pop_first().unwrap();
            self.planned[rank as usize] = None;
            self.now = self.now.max(wake);
            self.ends[rank as usize].handle_timeout(self.now);
            self.mark(rank);
            self.settle();
        }
    }

    fn broadcast(&mut self, bytes: u64) -> BroadcastCounters {
        let (received, sent) = (self.received, self.sent);
        for rank in (0..self.ranks()).filter(|rank| *rank != ROOT) {
            let machine = self.ends[rank as usize].broadcast_mut().unwrap();
            machine.receive(self.now, GROUP, Rank(ROOT), bytes).unwrap();
        }
        let root = self.ends[ROOT as usize].broadcast_mut().unwrap();
        root.send(CastMessage { group: GROUP, bytes, reply: Reply::Soon }).unwrap();
        self.mark(ROOT);
        let others = self.ranks() - 1;
        self.run_until(|job| job.received == received + others && job.sent == sent + 1);
        *self.ends[ROOT as usize].broadcast().unwrap().counters()
    }

    fn barrier(&mut self) {
        let done = self.done;
        for rank in 0..self.ranks() {
            self.ends[rank as usize].collective_mut().enter(self.now, BARRIERS).unwrap();
            self.mark(rank);
        }
        let all = self.ranks();
        self.run_until(|job| job.done == done + all);
    }
}

/// Makes `what`, and returns how many bytes per rank it has allocated.
fn bytes_per_rank<T>(ranks: u32, what: impl FnOnce() -> T) -> (T, i64) {
    let before = LIVE_BYTES.get();
    let made = what();
    (made, (LIVE_BYTES.get() - before) / i64::from(ranks))
}

#[test]
fn endpoint_memory_does_not_grow_with_the_job_size() {
    let (small, bytes_small) =
        bytes_per_rank(64, || Job::new(64, "combined", BarrierAlgorithm::Dissemination));
    assert_eq!(small.ranks(), 64);
    for algorithm in BarrierAlgorithm::ALL {
        let (job, bytes) = bytes_per_rank(RANKS, || Job::new(RANKS, "combined", algorithm));
        println!("{RANKS} ranks, {algorithm}: {bytes} B per endpoint; of 64: {bytes_small} B");
        assert_eq!(job.ranks(), RANKS);
        assert!(bytes <= BYTES_MAX, "{algorithm}: {bytes} B");
        // A table of steps has the length of the longest one; all other state depends on the steps.
        assert!(bytes <= bytes_small + 256, "{algorithm}: {bytes} B, of 64 ranks {bytes_small} B");
    }
}

#[test]
fn broadcasts_of_a_large_job_complete_within_the_memory_limit() {
    for policy in POLICIES {
        let before = LIVE_BYTES.get();
        let mut job = Job::new(RANKS, policy, BarrierAlgorithm::Dissemination);
        let first = job.broadcast(5000);
        let second = job.broadcast(0);
        let bytes = (LIVE_BYTES.get() - before) / i64::from(RANKS);
        let took = job.now.since(Instant::ZERO);
        println!("{policy}: {bytes} B per endpoint, {took:?}, {second:?}");
        // Collectors keep a copy of packets that they may have to repair; if one rank in 32 is a
        // collector, as in the smaller job of a debug build, this is noticeable.
        let copies = if policy.starts_with("co-root") { 2 << 10 } else { 0 };
        assert!(bytes <= BYTES_MAX + copies, "{policy}: {bytes} B");
        // Four packets, and then one.
        assert_eq!((first.casts_sent, second.casts_sent), (4, 5), "{policy}");
    }
}

#[test]
fn barriers_of_a_large_job_complete_with_every_algorithm() {
    for algorithm in BarrierAlgorithm::ALL {
        let mut job = Job::new(RANKS, "combined", algorithm);
        (0..2).for_each(|_| job.barrier());
        let steps = job.ends.iter().map(|end| end.collective().counters().steps_sent);
        let mut messages = algorithm.messages(RANKS).unwrap();
        if algorithm == BarrierAlgorithm::Counter {
            // All releases are one packet.
            messages = u64::from(RANKS);
        }
        assert_eq!(steps.sum::<u64>(), 2 * messages, "{algorithm}");
    }
}
