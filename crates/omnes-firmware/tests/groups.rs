//! Whole groups of native members on a network that reorders, duplicates and loses messages.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use omnes_firmware::barrier::{
    Action, Barrier, Combine, Contribution, Table, Verdict, can_combine,
};
use omnes_firmware::{GROUP_MAX, KERNEL_GROUP_MAX};
use omnes_topo::{BarrierAlgorithm, Party};
use omnes_wire::{CARRIED_MAX, Rank, Words};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::{BTreeMap, VecDeque};

/// A message, or the request for one, in flight.
#[derive(Clone, Copy, Debug)]
struct Packet {
    from: u32,
    to: u32,
    epoch: u32,
    step: u32,
    words: Words,
    is_request: bool,
}

/// The contribution of a member to a barrier of a group that combines words.
fn brings(own: u32, epoch: u32) -> Contribution {
    let combine = Combine::ALL[epoch as usize % Combine::ALL.len()];
    let words: [u64; CARRIED_MAX] = std::array::from_fn(|which| {
        let word = (u64::from(own) + 7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let word = word.rotate_left(epoch.wrapping_add(13 * which as u32));
        // Rounded, so that the order matters.
        if combine == Combine::SumF64 { (word as f64).sqrt().to_bits() } else { word }
    });
    Contribution::new(combine, &words[..1 + epoch as usize % CARRIED_MAX])
}

/// The network's behaviour, drawn from a seed.
struct Chance(u64);

impl Chance {
    fn draw(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % below
    }

    fn happens(&mut self, percent: usize) -> bool {
        self.draw(100) < percent
    }
}

struct Group {
    tables: Vec<Table>,
    members: Vec<Barrier>,
    network: Vec<Packet>,
    /// Newest barrier that each member has entered.
    entered: Vec<u32>,
    /// The first result of each barrier that combines words.
    results: BTreeMap<u32, Words>,
    combines: bool,
    sent: u64,
}

impl Group {
    fn new(algorithm: BarrierAlgorithm, size: u32, start: u32) -> Self {
        let table = |own| Table::new(algorithm, own, size, false).unwrap();
        let tables: Vec<Table> = (0..size).map(table).collect();
        Self {
            members: tables.iter().map(|table| Barrier::after(table, start)).collect(),
            tables,
            network: Vec::new(),
            entered: vec![start; size as usize],
            results: BTreeMap::new(),
            combines: can_combine(algorithm, size),
            sent: 0,
        }
    }

    fn enter(&mut self, own: usize) {
        let epoch = self.members[own].done().wrapping_add(1);
        self.entered[own] = epoch;
        let brought =
            if self.combines { brings(own as u32, epoch) } else { Contribution::default() };
        let (verdict, action) = self.members[own].enter(&self.tables[own], epoch, brought);
        assert_eq!(verdict, Verdict::Taken);
        self.act(own, &action);
    }

    fn act(&mut self, own: usize, action: &Action) {
        for step in action.steps() {
            let party = self.tables[own].send_to(step);
            for to in party.ranks(Rank(own as u32), self.tables[own].size()) {
                let (from, to, epoch) = (own as u32, to.0, action.epoch);
                let words = self.members[own].words(&self.tables[own], epoch, step);
                self.network.push(Packet { from, to, epoch, step, words, is_request: false });
                self.sent += 1;
            }
        }
        if action.is_done() {
            // Safety: no member leaves a barrier that another has not entered.
            let behind = |entered: &u32| (action.epoch.wrapping_sub(*entered) as i32) > 0;
            assert!(!self.entered.iter().any(behind), "member {own} has left too early");
            let result = self.members[own].results(&self.tables[own]);
            let first = *self.results.entry(action.epoch).or_insert(result);
            assert_eq!(result, first, "member {own} has another result");
        }
    }

    fn deliver(&mut self, packet: Packet) {
        let own = packet.to as usize;
        let (table, member) = (&self.tables[own], &mut self.members[own]);
        let Packet { from, to, epoch, step, words, is_request } = packet;
        if is_request {
            let verdict = member.repeat(table, epoch, step, from);
            assert_ne!(verdict, Verdict::Nonsense);
            if verdict == Verdict::Taken {
                let words = member.words(table, epoch, step);
                let (from, to) = (to, from);
                self.network.push(Packet { from, to, epoch, step, words, is_request: false });
            }
        } else {
            let (verdict, action) = member.arrive(table, (epoch, step), from, words);
            assert_ne!(verdict, Verdict::Nonsense);
            self.act(own, &action);
        }
    }

    /// Every member asks for the messages that it misses.
    fn ask(&mut self) {
        for (own, (member, table)) in self.members.iter().zip(&self.tables).enumerate() {
            let Some(step) = member.waits_at() else { continue };
            let epoch = member.entered();
            self.network.extend(member.missing(table).into_iter().map(|to| Packet {
                from: own as u32,
                to,
                epoch,
                step,
                words: Words::NONE,
                is_request: true,
            }));
        }
    }

    fn are_done(&self, epoch: u32) -> bool {
        self.members.iter().all(|member| member.done() == epoch)
    }
}

/// Runs some barriers after `start`; the network's behaviour follows from `seed`.
fn run(
    algorithm: BarrierAlgorithm,
    size: u32,
    start: u32,
    barriers: u32,
    loss: usize,
    seed: u64,
) -> Group {
    let mut chance = Chance(seed | 1);
    let mut group = Group::new(algorithm, size, start);
    let last = start.wrapping_add(barriers);
    let mut turns = 0;
    while !group.are_done(last) {
        turns += 1;
        assert!(turns < 2_000_000, "no end: seed {seed}");
        let idle: Vec<usize> = (0..size as usize)
            .filter(|own| group.members[*own].waits_at().is_none())
            .filter(|own| group.members[*own].done() != last)
            .collect();
        // Members enter in any order, early and late.
        if !idle.is_empty() && (group.network.is_empty() || chance.happens(20)) {
            group.enter(idle[chance.draw(idle.len())]);
        } else if group.network.is_empty() {
            group.ask();
        } else {
            let at = chance.draw(group.network.len());
            let packet = group.network[at];
            if chance.happens(loss) {
                group.network.swap_remove(at);
                continue;
            }
            // A packet may arrive again later, even after the barrier is over.
            if !chance.happens(15) {
                group.network.swap_remove(at);
            }
            group.deliver(packet);
        }
    }
    group
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(0x6772_6f75),
        failure_persistence: None,
        ..ProptestConfig::with_cases(300)
    })]

    #[test]
    fn barriers_are_safe_and_complete_on_unreliable_networks(
        algorithm in (0..BarrierAlgorithm::ALL.len()).prop_map(|at| BarrierAlgorithm::ALL[at]),
        size in prop_oneof![8 => 1u32..=17, 1 => 60u32..=70],
        start in prop_oneof![Just(0u32), Just(u32::MAX - 2)],
        loss in prop_oneof![Just(0usize), Just(30)],
        seed: u64,
    ) {
        let group = run(algorithm, size, start, 9, loss, seed);
        if !group.combines {
            assert!(group.results.values().all(|result| *result == Words::NONE));
            return Ok(());
        }
        // Late and lost messages change nothing, not even the rounding.
        let calm = run(algorithm, size, start, 9, 0, !seed);
        assert_eq!(group.results, calm.results);
        for (epoch, result) in group.results {
            let words = (1..size).map(|own| brings(own, epoch).words());
            let made = brings(0, epoch).with(words).words();
            assert_eq!(result.as_slice().len(), 1 + epoch as usize % CARRIED_MAX);
            if brings(0, epoch).combine() != Combine::SumF64 as u32 {
                assert_eq!(result, made, "barrier {epoch}");
                continue;
            }
            for (result, made) in result.as_slice().iter().zip(made.as_slice()) {
                let (result, made) = (f64::from_bits(*result), f64::from_bits(*made));
                assert!((result - made).abs() <= made * 1e-12, "{result} {made}");
            }
        }
    }
}

#[test]
fn each_message_is_sent_once_without_loss() {
    for algorithm in BarrierAlgorithm::ALL {
        for size in 1..=33 {
            let group = run(algorithm, size, 0, 7, 0, u64::from(size) * 77);
            assert_eq!(group.sent, 7 * algorithm.messages(size).unwrap(), "{algorithm} {size}");
        }
    }
}

#[test]
fn group_of_the_kernel_size_limit_completes_its_barriers() {
    for algorithm in BarrierAlgorithm::ALL {
        run(algorithm, KERNEL_GROUP_MAX as u32, 0, 2, 0, 5);
    }
}

/// Runs one barrier after `done` with messages in the order of sending; returns the messages sent.
fn run_in_order(tables: &[Table], members: &mut [Barrier], done: u32) -> u64 {
    let epoch = done + 1;
    let (mut queue, mut sent, mut ends) = (VecDeque::new(), 0, 0);
    let mut act = |own: u32, action: &Action, queue: &mut VecDeque<(u32, u32, u32)>| {
        for step in action.steps() {
            let party = tables[own as usize].send_to(step);
            queue.extend(party.ranks(Rank(own), tables.len() as u32).map(|to| (own, to.0, step)));
        }
        ends += usize::from(action.is_done());
    };
    for own in (0..tables.len() as u32).rev() {
        let (verdict, action) =
            members[own as usize].enter(&tables[own as usize], epoch, Contribution::default());
        assert_eq!((verdict, action.is_done()), (Verdict::Taken, false));
        act(own, &action, &mut queue);
    }
    while let Some((from, to, step)) = queue.pop_front() {
        sent += 1;
        let own = to as usize;
        let (verdict, action) = members[own].arrive(&tables[own], (epoch, step), from, Words::NONE);
        assert_eq!(verdict, Verdict::Taken);
        act(to, &action, &mut queue);
    }
    assert_eq!(ends, tables.len(), "all are done");
    sent
}

#[test]
fn largest_group_completes_its_barriers_with_small_states() {
    let size = GROUP_MAX as u32;
    for algorithm in BarrierAlgorithm::ALL {
        let tables = (0..size).map(|own| Table::new(algorithm, own, size, false).unwrap());
        let tables: Vec<Table> = tables.collect();
        let members = tables.iter().map(|table| Barrier::after(table, 0));
        let mut members: Vec<Barrier> = members.collect();
        let bytes: Vec<usize> = members.iter().map(Barrier::bytes).collect();
        let most = if algorithm == BarrierAlgorithm::Counter { 16 * 1024 + 192 } else { 192 };
        assert!(bytes[0] <= most && bytes[1..].iter().all(|bytes| *bytes <= 192), "{algorithm}");
        for done in 0..2 {
            let sent = run_in_order(&tables, &mut members, done);
            assert_eq!(sent, algorithm.messages(size).unwrap(), "{algorithm}");
        }
    }
}

#[test]
fn counter_root_tracks_each_of_65535_other_members() {
    let size = GROUP_MAX as u32;
    let table = Table::new(BarrierAlgorithm::Counter, 0, size, true).unwrap();
    let mut member = Barrier::after(&table, 0);
    member.enter(&table, 1, Contribution::default());
    let absent = [1, 64, 1024, 40_000, size - 1];
    for from in (1..size).filter(|from| !absent.contains(from)) {
        assert_eq!(member.arrive(&table, (1, 0), from, Words::NONE).0, Verdict::Taken);
        // A message of the next barrier: both records are in use.
        assert_eq!(member.arrive(&table, (2, 0), from, Words::NONE).0, Verdict::Taken);
        assert_eq!(member.arrive(&table, (1, 0), from, Words::NONE).0, Verdict::Duplicate);
    }
    assert_eq!(member.missing(&table), absent);
    assert_eq!(member.arrive(&table, (1, 0), size, Words::NONE).0, Verdict::Nonsense);
    let ends = absent.map(|from| member.arrive(&table, (1, 0), from, Words::NONE).1.is_done());
    assert_eq!(ends, [false, false, false, false, true]);
    member.enter(&table, 2, Contribution::default());
    assert_eq!(member.missing(&table), absent);
}

#[test]
fn missing_members_are_named() {
    // The counter's root waits for every other member.
    let mut group = Group::new(BarrierAlgorithm::Counter, 70, 0);
    group.enter(0);
    for own in (1..70).filter(|own| ![3, 64, 69].contains(own)) {
        group.enter(own);
    }
    while let Some(packet) = group.network.pop() {
        group.deliver(packet);
    }
    assert_eq!(group.members[0].missing(&group.tables[0]), [3, 64, 69]);
    assert_eq!(group.members[5].missing(&group.tables[5]), [0]);
    assert_eq!(group.members[3].missing(&group.tables[3]), [] as [u32; 0], "it does not wait");
    assert_eq!(group.tables[0].receive_from(0), Party::Everybody);
}

#[test]
fn words_are_combined_in_table_order() {
    // Doubles whose sum depends on the order: 1 and many halves of its last bit.
    let (one, half) = (1f64.to_bits(), (f64::EPSILON / 2.0).to_bits());
    let sum = |algorithm, size: u32| {
        let mut group = Group::new(algorithm, size, 0);
        for own in (0..size as usize).rev() {
            let own_word = Contribution::new(Combine::SumF64, &[if own == 0 { one } else { half }]);
            let (_, action) = group.members[own].enter(&group.tables[own], 1, own_word);
            group.entered[own] = 1;
            group.act(own, &action);
        }
        while let Some(packet) = group.network.pop() {
            group.deliver(packet);
        }
        f64::from_bits(group.results[&1].first())
    };
    // The counter adds one half after another to 1, which does not change; a tree adds halves
    // first.
    assert_eq!(sum(BarrierAlgorithm::Counter, 8), 1.0);
    assert_eq!(sum(BarrierAlgorithm::GatherBroadcast, 8), 1.0 + 3.0 * f64::EPSILON);
}

#[test]
fn result_learned_from_another_member_is_forwarded() {
    let table = Table::new(BarrierAlgorithm::GatherBroadcast, 1, 4, false).unwrap();
    let mut member = Barrier::after(&table, 0);
    let (verdict, _) = member.enter(&table, 1, Contribution::new(Combine::Sum, &[5, 6]));
    assert_eq!(verdict, Verdict::Taken);
    let known = Words::new(&[42, 43]);
    member.end(&table, 1, known);
    assert_eq!((member.done(), member.waits_at(), member.results(&table)), (1, None, known));
    let words: Vec<Words> = (0..table.steps()).map(|step| member.words(&table, 1, step)).collect();
    assert!(words.iter().all(|words| *words == known), "{words:?}");
}
