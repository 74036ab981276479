//! One collector: reports in, repairs out.

#![allow(clippy::unwrap_used)]
use super::hold::HOLD_SHARE;
use super::*;
use crate::lane::Allowance;

const ASKED: Allowance = Allowance { least: Duration::from_micros(200), held_back: Duration::ZERO };

/// Ranks that have owed an answer for `limit` by then.
fn silent(collector: &Collector, us: u64, limit: Duration) -> Vec<u32> {
    collector.silent(at(us), limit).into_iter().map(|silent| silent.rank.0).collect()
}

const WITNESS: Witness = Witness { rank: Rank(1), repair: None, is_idle: false, is_full: false };

fn collector(ranks: u32) -> Collector {
    let alone = |rank| Reporter { rank: Rank(rank), below: Vec::new() };
    Collector::new((1..=ranks).map(alone).collect(), 100, 1 << 20)
}

fn at(us: u64) -> Instant {
    Instant::from_ns(us * 1000)
}

fn report(collector: &mut Collector, us: u64, rank: u32, expects: u32) -> bool {
    collector.on_report(at(us), Rank(rank), (Seq::nth(expects), 100), Some(Duration::ZERO))
}

#[test]
fn slowest_advances_when_the_last_rank_has_reported() {
    // [BC-R23]: no rank is sent more than the rank with the least space has advertised.
    let mut collector = collector(3);
    assert!(!report(&mut collector, 1, 1, 5));
    assert!(!report(&mut collector, 2, 3, 7));
    assert!(report(&mut collector, 3, 2, 6));
    assert_eq!(collector.slowest(), Some(Seq::nth(5)));
    assert_eq!(collector.limit(), Some(Seq::nth(105)));
    collector.forget(Rank(1));
    assert_eq!(collector.slowest(), Some(Seq::nth(6)));
    assert_eq!(collector.limit(), Some(Seq::nth(106)), "nor does who has left hold others back");
    collector.forget_all();
    assert_eq!(collector.slowest(), None);
}

#[test]
fn rank_with_packets_beyond_a_gap_is_not_silent() {
    let limit = Duration::from_secs(4);
    let mut collector = collector(2);
    collector.answers.arm(at(0), ASKED);
    assert!(collector.on_timeout(at(1_000_000), Seq::nth(4)));
    let mut map = GapMap::default();
    map.insert(Seq::nth(0), Seq::nth(2));
    collector.on_gaps(at(2_000_000), WITNESS, (Seq::nth(0), &map), Seq::nth(4));
    // It has received nothing, so its question does not show whether packets reach it.
    let other = Witness { rank: Rank(2), ..WITNESS };
    collector.on_gaps(at(2_000_000), other, (Seq::nth(0), &GapMap::default()), Seq::nth(4));
    assert_eq!(silent(&collector, 9_000_000, limit), [2]);
}

#[test]
fn packets_lacked_by_few_go_by_unicast_and_by_many_to_the_group() {
    // [BC-R9] as D-06 has it.
    let mut collector = collector(3);
    let mut map = GapMap::default();
    map.insert(Seq::nth(0), Seq::nth(1));
    map.insert(Seq::nth(0), Seq::nth(3));
    collector.on_gaps(at(1), WITNESS, (Seq::nth(0), &map), Seq::nth(9));
    collector.want(Rank(3), Seq::nth(2), false);
    let mut next = || collector.next_repair(2, |_| 0).map(|repair| (repair.seq.index(), repair.to));
    assert_eq!(next(), Some((0, Destination::Rank(Rank(1)))));
    assert_eq!(next(), Some((2, Destination::Group)));
    assert_eq!(next(), None);
}

#[test]
fn report_withdraws_wants_for_acknowledged_packets() {
    let mut collector = collector(2);
    (0..4).for_each(|seq| collector.want(Rank(1), Seq::nth(seq), false));
    report(&mut collector, 1, 1, 3);
    assert_eq!(collector.next_repair(2, |_| 0).unwrap().seq, Seq::nth(3));
    assert!(!collector.has_repairs());
}

#[test]
fn timeout_follows_the_slowest_answer_and_queries_late_ranks() {
    // [BC-R22]
    let mut collector = collector(3);
    for round in 0..50u32 {
        let start = u64::from(round) * 10_000;
        collector.history.on_sent(at(start), Seq::nth(round));
        collector.answers.on_asked(at(start), Seq::nth(round));
        report(&mut collector, start + 100, 1, round + 1);
        report(&mut collector, start + 300, 2, round + 1);
        report(&mut collector, start + 1000, 3, round + 1);
    }
    collector.answers.arm(at(1_000_000), ASKED);
    let waits = collector.answers.deadline().unwrap().since(at(1_000_000));
    assert!(waits >= Duration::from_micros(1900) && waits < Duration::from_micros(2100));
    assert!(!collector.on_timeout(at(1_000_100), Seq::nth(51)));
    report(&mut collector, 1_000_200, 1, 51);
    assert!(collector.on_timeout(at(1_003_000), Seq::nth(51)));
    let repair = collector.next_repair(2, |_| 0).unwrap();
    assert_eq!(
        repair,
        Repair { seq: Seq::nth(50), coded: None, to: Destination::Group, asks: true }
    );
    collector.answers.arm(at(1_003_000), ASKED);
    assert!(collector.answers.deadline().unwrap().since(at(1_003_000)) >= 2 * waits - waits / 10);
}

#[test]
fn silence_is_counted_from_the_end_of_a_pause() {
    let mut collector = collector(2);
    let limit = Duration::from_micros(1000);
    collector.history.on_sent(at(0), Seq::nth(0));
    collector.answers.arm(at(0), ASKED);
    assert!(collector.on_timeout(at(500_000), Seq::nth(1)));
    report(&mut collector, 500_100, 1, 1);
    collector.on_pause(at(9_000_000));
    assert_eq!(silent(&collector, 9_000_999, limit), []);
    assert_eq!(silent(&collector, 9_001_000, limit), [2]);
}

#[test]
fn gap_report_older_than_the_repair_is_ignored() {
    let mut collector = collector(1);
    collector.history.on_sent(at(0), Seq::nth(0));
    collector.answers.on_asked(at(0), Seq::nth(0));
    report(&mut collector, 100, 1, 1);
    let mut map = GapMap::default();
    map.insert(Seq::nth(1), Seq::nth(2));
    collector.history.on_sent(at(200), Seq::nth(1));
    collector.on_gaps(at(270), WITNESS, (Seq::nth(1), &map), Seq::nth(9));
    assert!(!collector.has_repairs());
    collector.on_gaps(at(280), WITNESS, (Seq::nth(1), &map), Seq::nth(9));
    assert!(collector.has_repairs());
}

/// Reports of rank 1 that packet 0 is missing, though it is repaired after each report, one report
/// per `us`. Returns after how many of them, of `most`, the repairs count as failed for 900 µs.
fn reports_in_vain(us: u64, most: u32, is_full: impl Fn(u32) -> bool) -> Option<u32> {
    let mut collector = collector(2);
    let limit = Duration::from_micros(900);
    collector.history.on_sent(at(0), Seq::nth(0));
    (1..=most).find(|number| {
        let now = at(u64::from(*number) * us);
        let from = Witness { is_full: is_full(*number), ..WITNESS };
        collector.on_gaps(now, from, (Seq::nth(0), &GapMap::default()), Seq::nth(1));
        collector.want(Rank(1), Seq::nth(0), false);
        let repair = collector.next_repair(2, |_| 0).unwrap();
        collector.on_repaired(now, &repair, Seq::nth(1));
        collector.lacks_after_repairs(now, Rank(1), limit) == Some(Seq::nth(0))
    })
}

#[test]
fn packet_is_undeliverable_only_after_many_failed_repairs_over_time() {
    // The first report refers to the packet sent to all, and the second is the first one after a
    // repair.
    assert_eq!(reports_in_vain(200, 99, |_| false), Some(10), "often");
    assert_eq!(reports_in_vain(25, 99, |_| false), Some(38), "for long");
    assert_eq!(reports_in_vain(100, 99, |number| number == 9), Some(19), "it had come");
    assert_eq!(reports_in_vain(100, 99, |number| number % 9 == 0), None);
}

#[test]
fn repairs_are_held_while_reports_follow_each_other_closely() {
    let mut collector = collector(3);
    collector.hold.is_allowed = true;
    let mut map = GapMap::default();
    map.insert(Seq::nth(0), Seq::nth(5));
    let wait = collector.answers.times().usual / HOLD_SHARE;
    let start = at(1_000_000);
    collector.on_gaps(start, WITNESS, (Seq::nth(0), &map), Seq::nth(9));
    assert!(!collector.holds_repairs(start), "the first is not held");
    while collector.next_repair(9, |_| 0).is_some() {}
    let next = start + wait / 2;
    collector.on_gaps(next, Witness { rank: Rank(2), ..WITNESS }, (Seq::nth(0), &map), Seq::nth(9));
    assert!(collector.holds_repairs(next));
    assert_eq!(collector.held_until(), Some(next + wait));
    assert!(collector.end_hold(next + wait) && collector.held_until().is_none());
}

#[test]
fn silent_rank_is_occasionally_queried_by_unicast() {
    let mut collector = collector(5);
    let mut alone = Vec::new();
    let mut now = 0;
    while now < 250_000 {
        // Rank 4 does not report, while the others report that they have nothing.
        (1..=5).filter(|rank| *rank != 4).for_each(|rank| _ = report(&mut collector, now, rank, 0));
        collector.answers.arm(at(now), ASKED);
        now = collector.answers.deadline().unwrap().as_ns() / 1000;
        collector.on_timeout(at(now), Seq::nth(1));
        while let Some(repair) = collector.next_repair(2, |_| 0) {
            alone.extend(repair.to.rank().map(|rank| (rank.0, now / 100_000, repair.asks)));
        }
    }
    assert_eq!(alone, [(4, 1, true), (4, 2, true)]);
}

#[test]
fn what_went_in_vain_before_a_pause_says_nothing_after_it() {
    let mut collector = collector(2);
    let limit = Duration::from_micros(900);
    collector.history.on_sent(at(0), Seq::nth(0));
    for number in 1..9 {
        let now = at(number * 100);
        collector.on_gaps(now, WITNESS, (Seq::nth(0), &GapMap::default()), Seq::nth(1));
        collector.want(Rank(1), Seq::nth(0), false);
        let repair = collector.next_repair(2, |_| 0).unwrap();
        collector.on_repaired(now, &repair, Seq::nth(1));
    }
    collector.on_pause(at(9_000_000));
    for us in [9_000_100, 9_000_800] {
        collector.on_gaps(at(us), WITNESS, (Seq::nth(0), &GapMap::default()), Seq::nth(1));
        collector.want(Rank(1), Seq::nth(0), false);
        let repair = collector.next_repair(2, |_| 0).unwrap();
        collector.on_repaired(at(us), &repair, Seq::nth(1));
        assert_eq!(collector.lacks_after_repairs(at(us), Rank(1), limit), None);
    }
}

#[test]
fn forgiven_silence_restarts_for_that_rank_only() {
    let mut collector = collector(2);
    let limit = Duration::from_micros(1000);
    collector.answers.arm(at(0), ASKED);
    assert!(collector.on_timeout(at(500_000), Seq::nth(1)));
    collector.forgive_silence(at(900_000), Rank(2));
    assert_eq!(silent(&collector, 900_999, limit), [1]);
    assert_eq!(silent(&collector, 901_000, limit), [1, 2]);
}
