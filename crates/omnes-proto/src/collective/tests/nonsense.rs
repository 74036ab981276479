//! Members that lie: whatever they send, a machine neither panics nor grows, and rejected packets
//! change nothing.

use super::super::*;
use super::net::{GROUP, group, message};
use crate::limits::ANSWERS_MAX;
use omnes_topo::BarrierAlgorithm;
use omnes_wire::{Flags, Header, Seq, Words};
use proptest::prelude::*;
use std::time::Duration;

const RANKS: u32 = 9;

#[derive(Clone, Debug)]
enum Deed {
    Packet(Header),
    Enter,
    Look(NicView),
    Poll(u32),
    Wait(u64),
    Ask,
    Close,
    Open(BarrierAlgorithm, Runner),
    Fail(u32),
    Depart(u32),
}

/// Mostly numbers close to `start`, sometimes any number.
fn any_number(start: u32) -> impl Strategy<Value = u32> {
    prop_oneof![9 => (0..6u32).prop_map(move |it| start.wrapping_add(it)), 1 => any::<u32>()]
}

fn any_packet(start: u32) -> impl Strategy<Value = Header> {
    let kinds = [Kind::Step, Kind::Step, Kind::StepNack, Kind::StepAsk, Kind::StepTell, Kind::Ping];
    let steps = prop_oneof![6 => 0..5u32, 2 => STEP_JOIN..STEP_JOIN + 3, 1 => any::<u32>()];
    let numbers = (any_number(start), any_number(start), steps);
    let from = prop_oneof![20 => 0..RANKS, 1 => any::<u32>()];
    let names = (prop::sample::select(kinds.to_vec()), from, 0..20u16);
    (names, numbers, any::<u8>()).prop_map(|((kind, from, other), (seq, expects, step), flags)| {
        let communicator = CommunicatorId(if other == 0 { 1 } else { GROUP.0 });
        let header = message(kind, from, seq, step);
        Header { communicator, expects: Seq(expects), flags: Flags(flags), ..header }
    })
}

fn any_view(start: u32) -> impl Strategy<Value = NicView> {
    let at = prop_oneof![9 => 0..5u32, 1 => any::<u32>()];
    (any_number(start), any_number(start), at, any::<[u64; 16]>()).prop_map(
        |(entered, done, at, arrived)| NicView { entered, done, at, results: [7; 4], arrived },
    )
}

fn any_deed(start: u32) -> impl Strategy<Value = Deed> {
    let runner = prop_oneof![Just(Runner::Host), Just(Runner::Nic)];
    let open = (prop::sample::select(BarrierAlgorithm::ALL.to_vec()), runner);
    prop_oneof![
        40 => any_packet(start).prop_map(Deed::Packet),
        6 => Just(Deed::Enter),
        6 => any_view(start).prop_map(Deed::Look),
        6 => (0..20u32).prop_map(Deed::Poll),
        6 => (0..20_000u64).prop_map(Deed::Wait),
        2 => Just(Deed::Ask),
        1 => Just(Deed::Close),
        1 => open.prop_map(|(algorithm, runner)| Deed::Open(algorithm, runner)),
        1 => (0..RANKS + 1).prop_map(Deed::Fail),
        1 => (0..RANKS + 1).prop_map(Deed::Depart),
    ]
}

struct Trial {
    machine: Collective,
    now: Instant,
    start: u32,
    entered: u32,
    ended: u32,
}

impl Trial {
    fn open(&mut self, algorithm: BarrierAlgorithm, runner: Runner) {
        let config = group(&[2, 3, 1, 1, 2], algorithm, runner);
        self.drain_events();
        self.machine.open_after(&config, self.start);
        (self.entered, self.ended) = (0, 0);
    }

    fn drain_events(&mut self) {
        while let Some(event) = self.machine.poll_event() {
            let (Event::Done { epoch, .. } | Event::Failed { epoch, .. }) = event;
            self.ended += 1;
            assert_eq!(epoch, self.start.wrapping_add(self.ended), "in order, each once");
            assert!(self.ended <= self.entered, "nothing ends that was not entered");
        }
    }

    fn act(&mut self, deed: Deed) {
        let (machine, now) = (&mut self.machine, self.now);
        match deed {
            Deed::Packet(header) => machine.handle_packet(now, &header, &[]),
            Deed::Enter => self.entered += u32::from(machine.enter(now, GROUP).is_ok()),
            Deed::Look(view) => machine.handle_nic(now, GROUP, &view),
            Deed::Poll(most) => {
                _ = (0..most).map_while(|_| machine.poll_transmit(now)).count();
            }
            Deed::Wait(us) => {
                self.now = now + Duration::from_micros(us);
                machine.handle_timeout(self.now);
                assert!(machine.poll_timeout().is_none_or(|at| at > self.now));
            }
            Deed::Ask => machine.ask(GROUP),
            Deed::Close => machine.close(GROUP),
            Deed::Open(algorithm, runner) => self.open(algorithm, runner),
            Deed::Fail(rank) => machine.fail_peer(Rank(rank)),
            Deed::Depart(rank) => machine.depart_peer(Rank(rank)),
        }
        self.drain_events();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_member_packets_cause_neither_panic_nor_endless_answers(
        me in 0..RANKS,
        algorithm in prop::sample::select(BarrierAlgorithm::ALL.to_vec()),
        is_nic: bool,
        (start, deeds) in prop_oneof![Just(0), Just(u32::MAX - 2)].prop_flat_map(|start| {
            (Just(start), prop::collection::vec(any_deed(start), 0..200))
        }),
    ) {
        let machine = Collective::new(Rank(me), RANKS + 1, CollectiveConfig::default());
        let mut trial = Trial { machine, now: Instant::ZERO, start, entered: 0, ended: 0 };
        trial.open(algorithm, if is_nic { Runner::Nic } else { Runner::Host });
        for deed in deeds {
            trial.act(deed);
        }
        let now = trial.now;
        let packets = std::iter::from_fn(|| trial.machine.poll_transmit(now)).count();
        prop_assert!(packets < ANSWERS_MAX);
    }
}

/// Counters of a leader of ranks 0 and 1, with 2 and 3 as other nodes' leaders, after a packet.
fn judge(me: u32, header: &Header) -> CollectiveCounters {
    let mut machine = Collective::new(Rank(me), 6, CollectiveConfig::default());
    machine.open_after(&group(&[2, 1, 2], BarrierAlgorithm::Dissemination, Runner::Host), 10);
    machine.enter(Instant::ZERO, GROUP).unwrap();
    machine.handle_packet(Instant::ZERO, header, &[]);
    assert_eq!(machine.poll_event(), None);
    *machine.counters()
}

#[test]
fn invalid_member_packets_are_counted_as_nonsense() {
    let cases = [
        // From a rank that is not a member, from itself, of an unexpected kind.
        (0, message(Kind::Step, 5, 11, 0)),
        (0, message(Kind::Step, 0, 11, 0)),
        (0, message(Kind::Step, 77, 11, 0)),
        (0, message(Kind::Data, 2, 11, 0)),
        // Joins and releases of other nodes, of leaders and of other ranks.
        (0, message(Kind::Step, 2, 11, STEP_JOIN)),
        (0, message(Kind::Step, 4, 11, STEP_JOIN)),
        (0, message(Kind::Step, 1, 11, STEP_RELEASE)),
        (1, message(Kind::Step, 2, 11, STEP_RELEASE)),
        (1, message(Kind::Step, 0, 11, STEP_JOIN)),
        // Of barriers that cannot be in progress.
        (0, message(Kind::Step, 1, 12, STEP_JOIN + 2)),
        (0, message(Kind::Step, 1, 99, STEP_JOIN)),
        (1, message(Kind::Step, 0, 12, STEP_RELEASE)),
        // Steps of ranks that lead no node, that do not exist, or that other ranks send.
        (0, message(Kind::Step, 4, 11, 0)),
        (0, message(Kind::Step, 1, 11, 0)),
        (0, message(Kind::Step, 2, 11, 2)),
        (0, message(Kind::Step, 2, 11, 0)),
        // Questions for messages that this rank does not owe.
        (0, message(Kind::StepNack, 3, 11, 0)),
        (0, message(Kind::StepNack, 4, 11, 1)),
        (0, message(Kind::StepNack, 1, 11, STEP_JOIN)),
        (0, message(Kind::StepNack, 2, 11, STEP_RELEASE)),
        (1, message(Kind::StepNack, 2, 11, 0)),
        // Impossible numbers of entered barriers.
        (0, message(Kind::StepTell, 2, 8, 0)),
        (0, message(Kind::StepTell, 2, 12 + BARRIERS_OUTSTANDING_MAX, 0)),
    ];
    for (me, header) in cases {
        let counters = judge(me, &header);
        assert_eq!(counters.nonsense, 1, "{header:?}: {counters:?}");
        assert_eq!((counters.steps_received, counters.barriers), (0, 0));
    }
}

#[test]
fn duplicate_and_late_packets_are_counted_separately() {
    let duplicate = |me, header| judge(me, &header).duplicates;
    assert_eq!(duplicate(0, message(Kind::Step, 3, 10, 0)), 1);
    assert_eq!(duplicate(0, message(Kind::Step, 1, 10, STEP_JOIN)), 1);
    assert_eq!(duplicate(1, message(Kind::Step, 0, 10, STEP_RELEASE)), 1);
    let ignored = |me, header| judge(me, &header).ignored;
    assert_eq!(ignored(0, message(Kind::StepNack, 2, 11, 0)), 1);
    assert_eq!(ignored(0, message(Kind::StepNack, 1, 11, STEP_RELEASE)), 1);
    assert_eq!(ignored(1, message(Kind::StepNack, 0, 9, STEP_JOIN)), 1);
    assert_eq!(ignored(0, message(Kind::Step, 1, 12, STEP_JOIN)), 1);
    // No member is believed to be done while all members are present.
    let hearsay = Header { expects: Seq(11), ..message(Kind::StepTell, 2, 11, 0) };
    assert_eq!(judge(0, &hearsay).ended_by_hearsay, 0);
}

/// Only by hearsay can another rank of a node complete a barrier before its leader.
#[test]
fn join_of_the_next_barrier_does_not_count_for_the_current_one() {
    let mut machine = Collective::new(Rank(0), 3, CollectiveConfig::default());
    machine.open(group(&[3], BarrierAlgorithm::Counter, Runner::Host));
    machine.enter(Instant::ZERO, GROUP).unwrap();
    machine.handle_packet(Instant::ZERO, &message(Kind::Step, 2, 1, STEP_JOIN), &[]);
    machine.handle_packet(Instant::ZERO, &message(Kind::Step, 1, 2, STEP_JOIN), &[]);
    assert_eq!((machine.poll_event(), machine.counters().ignored), (None, 1));
    machine.handle_packet(Instant::ZERO, &message(Kind::Step, 1, 1, STEP_JOIN), &[]);
    assert_eq!(
        machine.poll_event(),
        Some(Event::Done { communicator: GROUP, epoch: 1, words: Words::NONE })
    );
}
