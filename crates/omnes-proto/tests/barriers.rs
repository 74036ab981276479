//! Barriers through endpoints: tags, ranks that fail or leave, and no allocation.
#![allow(clippy::unwrap_used)]

use omnes_proto::LivenessConfig;
use omnes_proto::channel::ChannelConfig;
use omnes_proto::collective::{self, BarrierGroupConfig, CollectiveConfig, NicView, Runner};
use omnes_proto::endpoint::{Endpoint, EndpointConfig, Event};
use omnes_proto::group::Nodes;
use omnes_proto::packet::{Destination, Head};
use omnes_topo::BarrierAlgorithm;
use omnes_wire::{CommunicatorId, Flags, Header, Instant, JobId, JobKey, Kind, Rank, Words};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

const GROUP: CommunicatorId = CommunicatorId(3);
const SIZE: u32 = 3;
const KEY: JobKey = JobKey::new([7; 16]);

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, with a count of allocations per thread.
struct Counting;

// SAFETY: all calls are forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller guarantees what the system's allocator requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn endpoint(me: u32, algorithm: BarrierAlgorithm, runner: Runner) -> Endpoint {
    let config = EndpointConfig {
        me: Rank(me),
        size: SIZE,
        job: JobId(1),
        key: KEY,
        channels: vec![ChannelConfig::default().build().unwrap()],
        broadcast: None,
        collective: CollectiveConfig::default(),
        liveness: LivenessConfig::default(),
    };
    let mut endpoint = Endpoint::new(Instant::ZERO, config);
    let nodes = Nodes::one_each(SIZE);
    let is_multicast = true;
    let group = BarrierGroupConfig { communicator: GROUP, nodes, algorithm, runner, is_multicast };
    endpoint.collective_mut().open(group);
    endpoint
}

fn endpoints(algorithm: BarrierAlgorithm) -> Vec<Endpoint> {
    (0..SIZE).map(|me| endpoint(me, algorithm, Runner::Host)).collect()
}

fn done(epoch: u32) -> Event {
    Event::Collective(collective::Event::Done { communicator: GROUP, epoch, words: Words::NONE })
}

fn next(endpoint: &mut Endpoint) -> Option<(Destination, Vec<u8>)> {
    let mut head = Head::default();
    let transmit = endpoint.poll_transmit(Instant::ZERO, &mut head)?;
    assert_eq!(transmit.segment, None);
    Some((transmit.to, head.as_bytes().to_vec()))
}

/// Delivers packets until no more are sent.
fn pass(ends: &mut [Endpoint]) {
    let mut head = Head::default();
    let mut is_over = false;
    while !std::mem::replace(&mut is_over, true) {
        for from in 0..ends.len() {
            while let Some(transmit) = ends[from].poll_transmit(Instant::ZERO, &mut head) {
                is_over = false;
                for (to, end) in (0..).zip(ends.iter_mut()) {
                    let is_meant = match transmit.to {
                        Destination::Rank(rank) => rank.0 == to,
                        Destination::Group => from != to as usize,
                        _ => panic!("no NIC is used"),
                    };
                    if is_meant {
                        let bytes = head.as_bytes();
                        end.handle_packet(Instant::ZERO, bytes, bytes.len());
                    }
                }
            }
        }
    }
}

fn enter(end: &mut Endpoint) -> u32 {
    end.collective_mut().enter(Instant::ZERO, GROUP).unwrap()
}

#[test]
fn unicast_and_multicast_steps_pass_the_gate() {
    for algorithm in BarrierAlgorithm::ALL {
        let mut ends = endpoints(algorithm);
        for epoch in 1..=3 {
            ends.iter_mut().for_each(|end| assert_eq!(enter(end), epoch));
            pass(&mut ends);
            for end in &mut ends {
                assert_eq!(end.poll_event(Instant::ZERO), Some(done(epoch)), "{algorithm}");
                assert_eq!(end.counters().bad_tag, 0);
            }
        }
    }
}

/// [CB-R3]
#[test]
fn barrier_allocates_no_memory_after_the_first() {
    for (algorithm, runner) in
        BarrierAlgorithm::ALL.into_iter().flat_map(|it| [(it, Runner::Host), (it, Runner::Nic)])
    {
        let mut ends: Vec<_> = (0..SIZE).map(|me| endpoint(me, algorithm, runner)).collect();
        let mut head = Head::default();
        let mut packets = 0;
        let mut counted = 0;
        for epoch in 1..=20 {
            ends.iter_mut().for_each(|end| assert_eq!(enter(end), epoch));
            // The endpoint's state for each peer is allocated in the first barrier.
            let before = ALLOCATIONS.get();
            if runner == Runner::Host {
                pass(&mut ends);
            }
            for end in &mut ends {
                while end.poll_transmit(Instant::ZERO, &mut head).is_some() {
                    packets += 1;
                }
                let arrived = [0; 16];
                let view = NicView { entered: epoch, done: epoch, at: 0, results: [0; 4], arrived };
                end.collective_mut().handle_nic(Instant::ZERO, GROUP, &view);
                assert_eq!(end.poll_event(Instant::ZERO), Some(done(epoch)));
            }
            counted = if epoch == 1 { 0 } else { counted + ALLOCATIONS.get() - before };
        }
        assert_eq!(counted, 0, "{algorithm} {runner:?}");
        assert_eq!(packets, if runner == Runner::Nic { 20 * SIZE } else { 0 });
    }
}

#[test]
fn doorbell_contains_a_complete_tagged_step() {
    let mut root = endpoint(0, BarrierAlgorithm::Counter, Runner::Nic);
    let mut leaf = endpoint(1, BarrierAlgorithm::Counter, Runner::Nic);
    assert_eq!((enter(&mut root), enter(&mut leaf)), (1, 1));
    let key = |rank| KEY.sender(Rank(rank));
    let check = |end: &mut Endpoint, from, to, tagged| {
        let (sent_to, packet) = next(end).unwrap();
        assert_eq!(sent_to, Destination::Doorbell { to: Rank(to), communicator: GROUP });
        let (header, tag) = Header::parse(&packet).unwrap();
        assert_eq!((header.kind, header.job, packet.len()), (Kind::Step, JobId(1), 40));
        assert_eq!(header.flags.has(Flags::GROUP), tagged == Rank::ALL);
        assert!(key(from).verify(tag, packet.first_chunk().unwrap(), tagged, &[]));
    };
    check(&mut root, 0, 1, Rank::ALL);
    check(&mut leaf, 1, 0, Rank(0));
}

#[test]
fn misdirected_and_altered_steps_are_rejected() {
    let mut ends = endpoints(BarrierAlgorithm::Counter);
    enter(&mut ends[1]);
    let (to, step) = next(&mut ends[1]).unwrap();
    assert_eq!(to, Destination::Rank(Rank(0)));
    ends[2].handle_packet(Instant::ZERO, &step, step.len());
    assert_eq!(ends[2].counters().bad_tag, 1);
    for at in 4..step.len() {
        let mut forged = step.clone();
        forged[at] ^= 0x80;
        ends[0].handle_packet(Instant::ZERO, &forged, forged.len());
    }
    let counters = *ends[0].counters();
    // The job's number is compared, all other bytes are covered by the tag.
    assert_eq!((counters.foreign_job, counters.bad_tag), (4, 32));
    assert_eq!(ends[0].collective().counters(), &Default::default());
    ends[0].handle_packet(Instant::ZERO, &step, step.len());
    assert_eq!(ends[0].collective().counters().steps_received, 1);
}

#[test]
fn step_overtaken_by_a_farewell_is_accepted() {
    let mut ends = endpoints(BarrierAlgorithm::Dissemination);
    ends.iter_mut().for_each(|end| assert_eq!(enter(end), 1));
    let (_, step) = next(&mut ends[0]).unwrap();
    ends[1].depart_rank(Instant::ZERO, Rank(0), None);
    ends[1].handle_packet(Instant::ZERO, &step, step.len());
    assert_eq!(ends[1].collective().counters().steps_received, 1);
    assert_eq!((ends[1].counters().accepted, ends[1].counters().from_gone), (1, 0));
    // Packets of a failed rank do not count.
    ends[0].fail_rank(Instant::ZERO, Rank(2));
    let (to, step) = next(&mut ends[2]).unwrap();
    assert_eq!(to, Destination::Rank(Rank(0)));
    ends[0].handle_packet(Instant::ZERO, &step, step.len());
    assert_eq!((ends[0].counters().accepted, ends[0].counters().from_gone), (0, 1));
}

#[test]
fn departing_rank_sends_its_steps_before_the_farewell() {
    let mut ends = endpoints(BarrierAlgorithm::Counter);
    ends[1..].iter_mut().for_each(|end| assert_eq!(enter(end), 1));
    pass(&mut ends);
    enter(&mut ends[0]);
    ends[0].leave();
    pass(&mut ends);
    for end in &mut ends[1..] {
        assert_eq!(end.poll_event(Instant::ZERO), Some(done(1)));
        assert_eq!(end.poll_event(Instant::ZERO), Some(Event::PeerDeparted(Rank(0))));
    }
}

#[test]
fn barrier_failure_is_reported_before_the_peer_failure() {
    let mut ends = endpoints(BarrierAlgorithm::PairwiseExchange);
    enter(&mut ends[0]);
    ends[0].fail_rank(Instant::ZERO, Rank(2));
    let rank = Rank(2);
    let failed = collective::Event::Failed { communicator: GROUP, epoch: 1, rank };
    assert_eq!(ends[0].poll_event(Instant::ZERO), Some(Event::Collective(failed)));
    assert_eq!(ends[0].poll_event(Instant::ZERO), Some(Event::PeerFailed(rank)));
}

#[test]
fn endpoint_timeout_includes_barrier_timers() {
    let mut ends = endpoints(BarrierAlgorithm::PairwiseExchange);
    let idle_until = ends[0].poll_timeout();
    enter(&mut ends[0]);
    while next(&mut ends[0]).is_some() {}
    let wakes_at = ends[0].poll_timeout().unwrap();
    assert!(idle_until.is_none_or(|at| at > wakes_at));
    ends[0].handle_timeout(wakes_at);
    let (to, nack) = next(&mut ends[0]).unwrap();
    assert_eq!(to, Destination::Rank(Rank(2)), "it owes the first step");
    assert_eq!(Header::parse(&nack).unwrap().0.kind, Kind::StepNack);
}
