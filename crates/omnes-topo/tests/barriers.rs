//! Barriers, checked by running the step tables of all ranks for every size to 130.
//!
//! The executor is independent of the algorithms: it sends, matches messages to receives per
//! ordered pair in FIFO order, and carries with each message the set of ranks whose entry the
//! sender knows of. A barrier is safe if every rank knows of all when it leaves.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use std::collections::{BTreeMap, VecDeque};

use omnes_topo::barrier::STEPS_MAX;
use omnes_topo::{BarrierAlgorithm, Party, Step, TopoError};
use omnes_wire::Rank;

const SIZE_LAST: u32 = 130;
const SIZES: std::ops::RangeInclusive<u32> = 1..=SIZE_LAST;

/// Bit r is set if the entry of rank r is known.
type RankSet = [u64; SIZE_LAST as usize / 64 + 1];

struct Message {
    known: RankSet,
    step: usize,
    arrives: u32,
}

struct Runner {
    rank: u32,
    table: Vec<Step>,
    step: usize,
    /// The messages of the current step have been sent.
    has_sent: bool,
    /// Senders of the current step whose message is still missing.
    awaited: Vec<Rank>,
    known: RankSet,
    /// Own clock in one-way latencies; a message sent in one step arrives one later.
    clock: u32,
}

#[derive(Default)]
struct Network {
    in_flight: BTreeMap<(u32, u32), VecDeque<Message>>,
    messages: u64,
}

/// Outcome of a run of all tables.
#[derive(PartialEq, Eq, Debug)]
enum Outcome {
    /// All ranks left, knowing of all entries, and no message is left over.
    Safe {
        messages: u64,
        latencies: u32,
    },
    Deadlock,
    LeftEarly,
    MessageNotReceived,
}

impl Runner {
    fn new(rank: u32, table: Vec<Step>) -> Self {
        let mut known = RankSet::default();
        known[rank as usize / 64] |= 1 << (rank % 64);
        Self { rank, table, step: 0, has_sent: false, awaited: Vec::new(), known, clock: 0 }
    }

    fn is_done(&self) -> bool {
        self.step == self.table.len()
    }

    /// Continues until done or waiting; true if anything happened.
    fn advance(&mut self, network: &mut Network, size: u32) -> bool {
        let mut moved = false;
        while let Some(&step) = self.table.get(self.step) {
            if !self.has_sent {
                self.awaited = step.receive_from.ranks(Rank(self.rank), size).collect();
                self.send(step.send_to.ranks(Rank(self.rank), size).collect(), network);
                moved = true;
            }
            while let Some(from) = self.awaited.last() {
                if !self.try_receive(*from, network) {
                    return moved;
                }
                self.awaited.pop();
                moved = true;
            }
            self.step += 1;
            self.has_sent = false;
        }
        moved
    }

    fn send(&mut self, receivers: Vec<Rank>, network: &mut Network) {
        self.has_sent = true;
        self.clock += u32::from(!receivers.is_empty());
        for to in receivers {
            let message = Message { known: self.known, step: self.step, arrives: self.clock };
            network.in_flight.entry((self.rank, to.0)).or_default().push_back(message);
            network.messages += 1;
        }
    }

    fn try_receive(&mut self, from: Rank, network: &mut Network) -> bool {
        let queue = network.in_flight.get_mut(&(from.0, self.rank));
        let Some(message) = queue.and_then(VecDeque::pop_front) else { return false };
        assert_eq!(message.step, self.step, "steps of {from:?} and rank {} differ", self.rank);
        self.clock = self.clock.max(message.arrives);
        for (own, new) in self.known.iter_mut().zip(message.known) {
            *own |= new;
        }
        true
    }

    fn knows_all(&self, size: u32) -> bool {
        self.known.iter().map(|word| word.count_ones()).sum::<u32>() == size
    }
}

fn run(tables: Vec<Vec<Step>>) -> Outcome {
    let size = tables.len() as u32;
    let mut network = Network::default();
    let mut runners: Vec<Runner> =
        (0..).zip(tables).map(|(rank, table)| Runner::new(rank, table)).collect();
    // Every turn except the last takes at least one step, so the loop ends.
    loop {
        let moved =
            runners.iter_mut().filter_map(|r| r.advance(&mut network, size).then_some(())).count();
        if moved == 0 {
            break;
        }
    }
    if !runners.iter().all(Runner::is_done) {
        return Outcome::Deadlock;
    }
    if !runners.iter().all(|runner| runner.knows_all(size)) {
        return Outcome::LeftEarly;
    }
    if !network.in_flight.values().all(VecDeque::is_empty) {
        return Outcome::MessageNotReceived;
    }
    let latencies = runners.iter().map(|runner| runner.clock).max().unwrap();
    Outcome::Safe { messages: network.messages, latencies }
}

fn tables(barrier: BarrierAlgorithm, size: u32) -> Vec<Vec<Step>> {
    (0..size).map(|rank| barrier.schedule(Rank(rank), size).unwrap()).collect()
}

/// Runs the barrier, which must be safe with the closed form's number of messages; returns the
/// latencies.
fn latencies_of_safe_run(barrier: BarrierAlgorithm, size: u32) -> u32 {
    match run(tables(barrier, size)) {
        Outcome::Safe { messages, latencies } => {
            assert_eq!(messages, barrier.messages(size).unwrap(), "{barrier} of {size}");
            latencies
        }
        other => panic!("{barrier} of {size}: {other:?}"),
    }
}

fn step(send_to: impl Into<Option<u32>>, receive_from: impl Into<Option<u32>>) -> Step {
    let party = |rank: Option<u32>| rank.map_or(Party::Nobody, |rank| Party::Rank(Rank(rank)));
    Step { send_to: party(send_to.into()), receive_from: party(receive_from.into()) }
}

#[test]
fn gather_broadcast_is_safe_within_its_steps() {
    // [CB-R9]: 2 ceil(log2 N) one-way latencies; a tree cut by the size may be faster.
    for size in SIZES {
        let latencies = latencies_of_safe_run(BarrierAlgorithm::GatherBroadcast, size);
        let steps = BarrierAlgorithm::GatherBroadcast.steps(size).unwrap();
        assert_eq!(steps, 2 * f64::from(size).log2().ceil() as u32);
        assert!(latencies <= steps, "{latencies} latencies at size {size}");
        assert!(latencies == steps || !size.is_power_of_two(), "size {size}");
    }
}

#[test]
fn pairwise_exchange_is_safe_and_takes_two_more_steps_with_extras() {
    // [CB-R10]
    for size in SIZES {
        let extra_steps = if size.is_power_of_two() { 0 } else { 2 };
        let expected = f64::from(size).log2().floor() as u32 + extra_steps;
        assert_eq!(BarrierAlgorithm::PairwiseExchange.steps(size), Ok(expected));
        assert_eq!(latencies_of_safe_run(BarrierAlgorithm::PairwiseExchange, size), expected);
    }
}

#[test]
fn dissemination_is_safe_in_log_steps_at_any_size() {
    // [CB-R11]
    for size in SIZES {
        let expected = f64::from(size).log2().ceil() as u32;
        assert_eq!(BarrierAlgorithm::Dissemination.steps(size), Ok(expected));
        assert_eq!(latencies_of_safe_run(BarrierAlgorithm::Dissemination, size), expected);
    }
}

#[test]
fn counter_is_safe_in_two_steps_at_any_size() {
    for size in SIZES {
        let expected = if size == 1 { 0 } else { 2 };
        assert_eq!(BarrierAlgorithm::Counter.steps(size), Ok(expected));
        assert_eq!(latencies_of_safe_run(BarrierAlgorithm::Counter, size), expected);
    }
}

#[test]
fn ten_ranks_need_the_published_steps_and_messages() {
    let counts =
        |barrier: BarrierAlgorithm| (barrier.steps(10).unwrap(), barrier.messages(10).unwrap());
    assert_eq!(BarrierAlgorithm::ALL.map(counts), [(8, 18), (5, 28), (4, 40), (2, 18)]);
}

#[test]
fn messages_are_awaited_in_the_step_in_which_they_are_sent() {
    // CB-R4 (one bit per step) and CB-R6 (a NACK goes to the sender of that step) rely on this.
    for barrier in BarrierAlgorithm::ALL {
        for size in SIZES {
            let tables = tables(barrier, size);
            for (rank, table) in (0..).map(Rank).zip(&tables) {
                assert_eq!(table.len(), barrier.steps(size).unwrap() as usize);
                for (index, step) in table.iter().enumerate() {
                    let at = |other: Rank| tables[other.0 as usize][index];
                    for to in step.send_to.ranks(rank, size) {
                        assert!(at(to).receive_from.ranks(to, size).any(|from| from == rank));
                    }
                    for from in step.receive_from.ranks(rank, size) {
                        assert!(at(from).send_to.ranks(from, size).any(|to| to == rank));
                    }
                }
            }
        }
    }
}

#[test]
fn no_rank_sends_to_itself_and_no_step_is_idle_for_all_ranks() {
    for barrier in BarrierAlgorithm::ALL {
        for size in SIZES {
            let tables = tables(barrier, size);
            for (rank, table) in (0..).map(Rank).zip(&tables) {
                let own = Party::Rank(rank);
                assert!(table.iter().all(|s| s.send_to != own && s.receive_from != own));
            }
            for index in 0..barrier.steps(size).unwrap() as usize {
                assert!(tables.iter().any(|table| !table[index].is_idle()));
            }
        }
    }
}

#[test]
fn tables_for_five_ranks_match_hand_written_ones() {
    let table = |barrier: BarrierAlgorithm, rank| barrier.schedule(Rank(rank), 5).unwrap();
    let idle = Step::default();
    assert_eq!(
        table(BarrierAlgorithm::GatherBroadcast, 0),
        [step(None, 1), step(None, 2), step(None, 4), step(4, None), step(2, None), step(1, None)]
    );
    assert_eq!(
        table(BarrierAlgorithm::GatherBroadcast, 2),
        [step(None, 3), step(0, None), idle, idle, step(None, 0), step(3, None)]
    );
    assert_eq!(
        table(BarrierAlgorithm::PairwiseExchange, 0),
        [step(None, 4), step(1, 1), step(2, 2), step(4, None)]
    );
    assert_eq!(table(BarrierAlgorithm::PairwiseExchange, 3), [idle, step(2, 2), step(1, 1), idle]);
    assert_eq!(
        table(BarrierAlgorithm::PairwiseExchange, 4),
        [step(0, None), idle, idle, step(None, 0)]
    );
    assert_eq!(table(BarrierAlgorithm::Dissemination, 3), [step(4, 2), step(0, 1), step(2, 4)]);
}

#[test]
fn counter_tables_match_hand_written_ones() {
    // The steps of rank 0; all other ranks have identical ones.
    let all = Party::Everybody;
    let centre =
        [Step { receive_from: all, ..Step::default() }, Step { send_to: all, ..Step::default() }];
    for size in [2, 5, 1000] {
        assert_eq!(BarrierAlgorithm::Counter.schedule(Rank(0), size).unwrap(), centre);
        for rank in [1, size - 1] {
            let table = BarrierAlgorithm::Counter.schedule(Rank(rank), size).unwrap();
            assert_eq!(table, [step(0, None), step(None, 0)]);
        }
    }
}

#[test]
fn only_the_counter_waits_for_several_ranks_and_in_one_step() {
    // One bit per step, besides one set of bits per member, relies on this.
    for barrier in BarrierAlgorithm::ALL {
        for size in SIZES {
            for table in tables(barrier, size) {
                let several =
                    table.iter().filter(|step| step.receive_from == Party::Everybody).count();
                assert!(several <= usize::from(barrier == BarrierAlgorithm::Counter));
            }
        }
    }
}

#[test]
fn parties_resolve_to_the_ranks_they_name() {
    for size in SIZES {
        for own in (0..size).map(Rank) {
            let others: Vec<Rank> = (0..size).map(Rank).filter(|rank| *rank != own).collect();
            assert_eq!(Party::Everybody.ranks(own, size).collect::<Vec<_>>(), others);
            assert_eq!(Party::Nobody.ranks(own, size).count(), 0);
            for rank in others {
                assert!(Party::Rank(rank).ranks(own, size).eq([rank]));
                assert_eq!(Party::Rank(rank).rank(), Some(rank));
            }
        }
    }
    assert_eq!((Party::Nobody.rank(), Party::Everybody.rank()), (None, None));
    assert_eq!(Party::default(), Party::Nobody);
    let last = Rank(u32::MAX - 1);
    assert!(Party::Rank(last).ranks(Rank(0), u32::MAX).eq([last]));
    let text = [Party::Nobody, Party::Rank(Rank(7)), Party::Everybody].map(|it| it.to_string());
    assert_eq!(text, ["-", "7", "all"]);
    assert_eq!(format!("[{:>4}][{:<4}]", Party::Everybody, Party::Rank(Rank(12))), "[ all][12  ]");
}

#[test]
fn executor_detects_broken_tables() {
    let broken = |change: fn(&mut Vec<Vec<Step>>)| {
        let mut tables = tables(BarrierAlgorithm::Dissemination, 8);
        change(&mut tables);
        run(tables)
    };
    assert_eq!(broken(|t| t[3][1].send_to = Party::Nobody), Outcome::Deadlock);
    assert_eq!(broken(|t| t[3][2].receive_from = Party::Nobody), Outcome::LeftEarly);
    assert_eq!(broken(|t| t.iter_mut().for_each(|table| _ = table.pop())), Outcome::LeftEarly);
    assert_eq!(broken(|t| t[3].push(step(4, None))), Outcome::MessageNotReceived);
    let mut counters = tables(BarrierAlgorithm::Counter, 8);
    counters[3][0].send_to = Party::Nobody;
    assert_eq!(run(counters.clone()), Outcome::Deadlock);
    counters[3] = vec![step(0, None)];
    assert_eq!(run(counters.clone()), Outcome::LeftEarly);
    counters[3] = vec![step(0, None), step(None, 0)];
    counters[0][0].receive_from = Party::Rank(Rank(3));
    assert_eq!(run(counters), Outcome::LeftEarly);
}

#[test]
fn group_of_one_needs_no_steps_or_messages() {
    for barrier in BarrierAlgorithm::ALL {
        assert_eq!(barrier.schedule(Rank(0), 1), Ok(vec![]));
        assert_eq!((barrier.steps(1), barrier.messages(1)), (Ok(0), Ok(0)));
    }
}

#[test]
fn the_largest_size_does_not_overflow() {
    let (size, last) = (u32::MAX, Rank(u32::MAX - 1));
    for barrier in BarrierAlgorithm::ALL {
        let steps = barrier.steps(size).unwrap();
        assert!(steps <= STEPS_MAX);
        for rank in [Rank(0), Rank(1 << 31), last] {
            let table = barrier.schedule(rank, size).unwrap();
            assert_eq!(table.len(), steps as usize);
            let parties = table.iter().flat_map(|s| [s.send_to, s.receive_from]);
            assert!(parties.filter_map(Party::rank).all(|partner| partner.0 < size));
        }
    }
    assert_eq!(BarrierAlgorithm::GatherBroadcast.steps(size), Ok(STEPS_MAX));
    assert_eq!(BarrierAlgorithm::Dissemination.messages(size), Ok(u64::from(size) * 32));
}

#[test]
fn mistakes_are_refused_with_value_and_limit() {
    for barrier in BarrierAlgorithm::ALL {
        let expected = TopoError::RankOutOfRange { rank: Rank(4), size: 4 };
        assert_eq!(barrier.schedule(Rank(4), 4), Err(expected));
        assert_eq!(barrier.schedule(Rank(0), 0), Err(TopoError::SizeZero));
        assert_eq!(barrier.steps(0), Err(TopoError::SizeZero));
        assert_eq!(barrier.messages(0), Err(TopoError::SizeZero));
    }
}

#[test]
fn barrier_names_round_trip_and_unknown_ones_are_rejected() {
    for barrier in BarrierAlgorithm::ALL {
        assert_eq!(barrier.to_string().parse(), Ok(barrier));
    }
    let error = "pair-wise".parse::<BarrierAlgorithm>().unwrap_err();
    assert_eq!(error, TopoError::UnknownBarrier { name: "pair-wise".to_string() });
    let text = "expected gather-broadcast, pairwise, dissemination or counter";
    assert_eq!(error.to_string(), format!("unknown barrier \"pair-wise\": {text}"));
}
