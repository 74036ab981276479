#![allow(clippy::unwrap_used)]
use super::*;

const TIMEOUT: Duration = Duration::from_millis(3);

fn lane(packets: u32) -> SendLane {
    let mut lane = SendLane::default();
    for index in 0..packets {
        let item = Item::Data { message: SendId(0), index };
        lane.push(Instant::ZERO, item, 2304, || TIMEOUT);
    }
    lane
}

fn after(us: u64) -> Instant {
    Instant::from_ns(us * 1000)
}

fn map(arrived: &[u32]) -> GapMap {
    let mut map = GapMap::default();
    for seq in arrived {
        map.insert(Seq::FIRST, Seq::nth(*seq));
    }
    map
}

#[test]
fn only_packets_missing_in_the_gap_map_are_retransmitted() {
    // [PM-R13] as D-01 has it.
    let mut lane = lane(6);
    let found = lane.on_gap_map(after(100), Seq::FIRST, &map(&[1, 3]), Duration::ZERO);
    assert_eq!(found, 2);
    assert_eq!(lane.take_lost(after(100)).unwrap().0, Seq::FIRST);
    assert_eq!(lane.take_lost(after(100)).unwrap().0, Seq::nth(2));
    assert_eq!(lane.take_lost(after(100)), None);
}

#[test]
fn report_older_than_the_retransmission_is_ignored() {
    let mut lane = lane(3);
    lane.on_gap_map(after(100), Seq::FIRST, &map(&[2]), Duration::from_micros(50));
    while lane.take_lost(after(100)).is_some() {}
    assert_eq!(lane.on_gap_map(after(120), Seq::FIRST, &map(&[2]), Duration::from_micros(50)), 0);
    assert_eq!(lane.on_gap_map(after(150), Seq::FIRST, &map(&[2]), Duration::from_micros(50)), 2);
}

#[test]
fn rejected_lane_probes_and_then_retransmits_all_packets() {
    // [PM-R13, R14]
    let mut lane = lane(3);
    lane.on_reject(after(10), 0, Duration::from_micros(200));
    assert!(lane.is_blocked() && lane.is_stable());
    assert!(!lane.on_deadline(after(200)));
    assert!(lane.on_deadline(after(210)));
    assert_eq!(lane.take_probe(after(210)).unwrap().0, Seq::FIRST);
    lane.on_unblocked(after(300), TIMEOUT);
    let again: Vec<_> = std::iter::from_fn(|| lane.take_lost(after(300))).collect();
    assert_eq!(again.iter().map(|(seq, _)| seq.index()).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn a_reject_of_an_earlier_epoch_is_ignored() {
    // [PM-R18]
    let mut lane = lane(2);
    lane.on_reject(after(10), 0, Duration::from_micros(200));
    lane.on_unblocked(after(20), TIMEOUT);
    lane.on_reject(after(30), 0, Duration::from_micros(200));
    assert!(!lane.is_blocked());
}

#[test]
fn timeout_retransmits_only_the_oldest_packet() {
    let mut lane = lane(5);
    assert!(!lane.on_deadline(after(2999)));
    assert!(lane.on_deadline(after(3000)));
    assert_eq!(lane.take_lost(after(3000)).unwrap().0, Seq::FIRST);
    assert_eq!(lane.take_lost(after(3000)), None);
}

#[test]
fn answers_outside_the_window_are_classified_as_stale_or_beyond() {
    let base = Seq(u32::MAX - 1);
    let next = base.plus(4);
    assert_eq!(classify_answer(base, next, base.plus(u32::MAX)), Verdict::Stale);
    assert_eq!(classify_answer(base, next, base), Verdict::Valid);
    assert_eq!(classify_answer(base, next, next), Verdict::Valid);
    assert_eq!(classify_answer(base, next, next.plus(1)), Verdict::BeyondWindow);
}
