//! The native steps against a simple model without bits and masks.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use omnes_firmware::barrier::{Barrier, Contribution, Table, Verdict};
use omnes_topo::{BarrierAlgorithm, Party, Step};
use omnes_wire::{Rank, Words};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::BTreeSet;

/// A plain model of a member: it keeps every message that counts, and walks through its steps one
/// by one.
struct Model {
    schedule: Vec<Step>,
    size: u32,
    own: u32,
    done: u32,
    /// In barrier `done + 1`: number of steps that have begun, each of which has sent.
    begun: Option<usize>,
    /// Epoch, step and sender.
    arrived: BTreeSet<(u32, u32, u32)>,
}

impl Model {
    fn new(algorithm: BarrierAlgorithm, own: u32, size: u32, done: u32) -> Self {
        let schedule = algorithm.schedule(Rank(own), size).unwrap();
        Self { schedule, size, own, done, begun: None, arrived: BTreeSet::new() }
    }

    fn others(&self, party: Party) -> BTreeSet<u32> {
        party.ranks(Rank(self.own), self.size).map(|rank| rank.0).collect()
    }

    fn has_all(&self, step: usize) -> bool {
        let epoch = self.done.wrapping_add(1);
        let awaited = self.others(self.schedule[step].receive_from);
        awaited.iter().all(|from| self.arrived.contains(&(epoch, step as u32, *from)))
    }

    /// Advances as far as messages allow: returns the steps that send now, and whether the barrier
    /// ends.
    fn walk(&mut self, mut begun: usize) -> (Vec<u32>, bool) {
        let mut sends = Vec::new();
        while begun == 0 || self.has_all(begun - 1) {
            if begun == self.schedule.len() {
                self.done = self.done.wrapping_add(1);
                self.begun = None;
                let (done, old) = (self.done, &mut self.arrived);
                old.retain(|(epoch, ..)| *epoch == done.wrapping_add(1));
                return (sends, true);
            }
            if self.schedule[begun].send_to != Party::Nobody {
                sends.push(begun as u32);
            }
            begun += 1;
        }
        self.begun = Some(begun);
        (sends, false)
    }

    fn enter(&mut self, epoch: u32) -> (Verdict, Vec<u32>, bool) {
        if self.begun.is_some() || epoch != self.done.wrapping_add(1) {
            return (Verdict::Ignored, Vec::new(), false);
        }
        let (sends, is_done) = self.walk(0);
        (Verdict::Taken, sends, is_done)
    }

    fn arrive(&mut self, epoch: u32, step: u32, from: u32) -> (Verdict, Vec<u32>, bool) {
        let nothing = |verdict| (verdict, Vec::new(), false);
        let awaited = self.schedule.get(step as usize).map(|it| self.others(it.receive_from));
        if !awaited.is_some_and(|awaited| awaited.contains(&from)) {
            return nothing(Verdict::Nonsense);
        }
        let is_next = epoch == self.done.wrapping_add(1);
        let is_after_next = epoch == self.done.wrapping_add(2) && self.begun.is_some();
        if !is_next && !is_after_next {
            let is_old = epoch.wrapping_sub(self.done) as i32 <= 0;
            return nothing(if is_old { Verdict::Duplicate } else { Verdict::Ignored });
        }
        if !self.arrived.insert((epoch, step, from)) {
            return nothing(Verdict::Duplicate);
        }
        match self.begun {
            Some(begun) if is_next => {
                let (sends, is_done) = self.walk(begun);
                (Verdict::Taken, sends, is_done)
            }
            _ => nothing(Verdict::Taken),
        }
    }

    fn repeat(&self, epoch: u32, step: u32, to: u32) -> Verdict {
        let sends_to = self.schedule.get(step as usize).map(|it| self.others(it.send_to));
        if !sends_to.is_some_and(|sends_to| sends_to.contains(&to)) {
            return Verdict::Nonsense;
        }
        let is_under_way = epoch == self.done.wrapping_add(1);
        let has_begun = self.begun.is_some_and(|begun| (step as usize) < begun);
        let is_sent = epoch == self.done || is_under_way && has_begun;
        if is_sent { Verdict::Taken } else { Verdict::Ignored }
    }

    /// The senders whose messages the waiting step of the barrier misses.
    fn missing(&self) -> Vec<u32> {
        let Some(begun) = self.begun else { return Vec::new() };
        let (epoch, step) = (self.done.wrapping_add(1), begun - 1);
        let awaited = self.others(self.schedule[step].receive_from);
        let missing = |from: &u32| !self.arrived.contains(&(epoch, step as u32, *from));
        awaited.into_iter().filter(missing).collect()
    }
}

/// What happens to a member. Numbers are made to fit, or to miss narrowly.
#[derive(Clone, Debug)]
enum Input {
    /// Enters the barrier that is this many after the newest one done.
    Enter(u32),
    /// A message of such an epoch, for such a step, from the sender that the step awaits, or from
    /// any.
    Arrive { ahead: u32, step: u32, from: Option<u32>, pick: u32 },
    /// A member misses a message.
    Repeat { ahead: u32, step: u32, to: Option<u32>, pick: u32 },
}

fn ahead() -> impl Strategy<Value = u32> {
    prop_oneof![
        12 => Just(1u32),
        3 => Just(2),
        3 => Just(0),
        2 => prop_oneof![Just(3), Just(u32::MAX), Just(u32::MAX - 1), Just(1 << 31)],
        1 => any::<u32>(),
    ]
}

fn whom() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![
        5 => Just(None),
        1 => (0u32..48).prop_map(Some),
        1 => prop_oneof![Just(1023u32), Just(1024), Just(u32::MAX), Just(u32::MAX - 1)]
            .prop_map(Some),
    ]
}

fn input() -> impl Strategy<Value = Input> {
    let step = || prop_oneof![8 => 0u32..12, 1 => 60u32..70, 1 => any::<u32>()];
    prop_oneof![
        2 => ahead().prop_map(Input::Enter),
        6 => (ahead(), step(), whom(), any::<u32>())
            .prop_map(|(ahead, step, from, pick)| Input::Arrive { ahead, step, from, pick }),
        2 => (ahead(), step(), whom(), any::<u32>())
            .prop_map(|(ahead, step, to, pick)| Input::Repeat { ahead, step, to, pick }),
    ]
}

/// One of the ranks that `party` stands for, if any.
fn one_of(party: Option<Party>, model: &Model, pick: u32) -> u32 {
    let others: Vec<u32> =
        party.map(|party| model.others(party)).unwrap_or_default().into_iter().collect();
    if others.is_empty() { pick } else { others[pick as usize % others.len()] }
}

fn algorithm() -> impl Strategy<Value = BarrierAlgorithm> {
    (0..BarrierAlgorithm::ALL.len()).prop_map(|at| BarrierAlgorithm::ALL[at])
}

/// A group's size, an index in it, and the newest barrier done.
fn place() -> impl Strategy<Value = (u32, u32, u32)> {
    let size = prop_oneof![6 => 1u32..=9, 2 => 10u32..=70, 1 => 1000u32..=1024];
    let done = prop_oneof![Just(0u32), Just(1), (0u32..6).prop_map(|back| u32::MAX - back)];
    (size, any::<u32>(), done).prop_map(|(size, own, done)| (size, own % size, done))
}

proptest! {
    // The same samples in every run, so that everybody sees a failure.
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(0x6669_726d),
        failure_persistence: None,
        ..ProptestConfig::with_cases(600)
    })]

    #[test]
    fn barrier_steps_match_the_model(
        algorithm in algorithm(),
        (size, own, done) in place(),
        is_multicast: bool,
        inputs in proptest::collection::vec(input(), 0..250),
    ) {
        // [CB-R4, R6, R8]
        let table = Table::new(algorithm, own, size, is_multicast).unwrap();
        let mut barrier = Barrier::after(&table, done);
        let mut model = Model::new(algorithm, own, size, done);
        for input in inputs {
            let before = model.done;
            let in_range = |step: u32| model.schedule.get(step as usize);
            match input {
                Input::Enter(ahead) => {
                    let epoch = before.wrapping_add(ahead);
                    let (verdict, action) = barrier.enter(&table, epoch, Contribution::default());
                    let steps: Vec<u32> = action.steps().collect();
                    prop_assert_eq!((verdict, steps, action.is_done()), model.enter(epoch));
                    prop_assert_eq!(action.epoch, epoch);
                }
                Input::Arrive { ahead, step, from, pick } => {
                    let awaited = in_range(step).map(|it| it.receive_from);
                    let from = from.unwrap_or_else(|| one_of(awaited, &model, pick));
                    let epoch = before.wrapping_add(ahead);
                    let (message, words) = ((epoch, step), Words::NONE);
                    let (verdict, action) = barrier.arrive(&table, message, from, words);
                    let steps: Vec<u32> = action.steps().collect();
                    let expected = model.arrive(epoch, step, from);
                    prop_assert_eq!((verdict, steps, action.is_done()), expected);
                    prop_assert_eq!(action.epoch, epoch);
                }
                Input::Repeat { ahead, step, to, pick } => {
                    let receiver = in_range(step).map(|it| it.send_to);
                    let to = to.unwrap_or_else(|| one_of(receiver, &model, pick));
                    let epoch = before.wrapping_add(ahead);
                    let verdict = barrier.repeat(&table, epoch, step, to);
                    prop_assert_eq!(verdict, model.repeat(epoch, step, to));
                }
            }
            prop_assert_eq!(barrier.done(), model.done);
            let entered = model.done.wrapping_add(model.begun.is_some().into());
            prop_assert_eq!(barrier.entered(), entered);
            prop_assert_eq!(barrier.waits_at(), model.begun.map(|begun| begun as u32 - 1));
            prop_assert_eq!(barrier.missing(&table), model.missing());
        }
    }
}

#[test]
fn table_never_mixes_waiting_for_all_and_for_single_members() {
    // Both would share the bits of a record.
    for algorithm in BarrierAlgorithm::ALL {
        for size in 1..=130 {
            for own in 0..size {
                let schedule = algorithm.schedule(Rank(own), size).unwrap();
                let awaits = |all: bool| {
                    schedule
                        .iter()
                        .filter(|step| step.receive_from != Party::Nobody)
                        .filter(|step| (step.receive_from == Party::Everybody) == all)
                        .count()
                };
                assert!(awaits(true) == 0 || (awaits(true), awaits(false)) == (1, 0));
            }
        }
    }
}

#[test]
fn counter_root_ignores_and_never_retransmits_to_itself() {
    let table = Table::new(BarrierAlgorithm::Counter, 0, 3, false).unwrap();
    let mut root = Barrier::after(&table, 0);
    root.enter(&table, 1, Contribution::default());
    root.arrive(&table, (1, 0), 1, Words::NONE);
    let (verdict, action) = root.arrive(&table, (1, 0), 0, Words::NONE);
    assert_eq!((verdict, action.is_done()), (Verdict::Nonsense, false));
    assert_eq!(root.missing(&table), [2]);
    let (verdict, action) = root.arrive(&table, (1, 0), 2, Words::NONE);
    assert_eq!((verdict, action.is_done()), (Verdict::Taken, true));
    let again = [0, 1, 2, 3].map(|to| root.repeat(&table, 1, 1, to));
    let (sent, nonsense) = (Verdict::Taken, Verdict::Nonsense);
    assert_eq!(again, [nonsense, sent, sent, nonsense]);
}
