use super::*;
use crate::limits::MESSAGE_PACKETS_MAX;

const DELAY: Duration = Duration::from_micros(50);

fn at(us: u64) -> Instant {
    Instant::from_ns(us * 1000)
}

#[test]
fn gap_is_reported_immediately_after_three_later_packets() {
    let mut lane = Arrivals::default();
    lane.on_in_order(at(0));
    lane.on_ahead(at(1), Seq::nth(2), DELAY);
    lane.on_ahead(at(2), Seq::nth(3), DELAY);
    assert_eq!(lane.due(), None);
    lane.on_ahead(at(3), Seq::nth(5), DELAY);
    assert_eq!(lane.take_report(at(3)), Some(Report::Nack));
    let map = lane.gap_map();
    let reported: Vec<u32> =
        (1..8).filter(|seq| map.contains(Seq::nth(1), Seq::nth(*seq))).collect();
    assert_eq!(reported, [2, 3, 5]);
}

#[test]
fn counting_untouched_numbers_does_not_scan_the_message() {
    let mut lane = Arrivals::default();
    lane.on_ahead(Instant::ZERO, Seq::nth(3), Duration::ZERO);
    for _ in 0..1000 {
        assert_eq!(lane.untouched(Seq::nth(4), MESSAGE_PACKETS_MAX), MESSAGE_PACKETS_MAX);
    }
    assert_eq!(lane.untouched(Seq::nth(1), MESSAGE_PACKETS_MAX), 2);
}

#[test]
fn untouched_count_is_zero_from_a_duplicate_on() {
    let mut lane = Arrivals::default();
    (0..8).for_each(|us| lane.on_in_order(at(us)));
    assert_eq!(lane.untouched(Seq::nth(8), 5), 5);
    assert_eq!(lane.untouched(Seq::nth(2), 5), 0);
    lane.on_ahead(at(8), Seq::nth(10), DELAY);
    assert_eq!(lane.untouched(Seq::nth(8), 5), 2);
    assert_eq!(lane.untouched(Seq::nth(2), 5), 0);
}

#[test]
fn single_late_packet_is_not_reported_as_a_gap() {
    let mut lane = Arrivals::default();
    lane.on_ahead(at(0), Seq::nth(1), DELAY);
    assert_eq!(lane.deadline(), Some(at(50)));
    lane.on_in_order(at(20));
    assert!(lane.next_is_here());
    lane.on_in_order(at(20));
    assert_eq!(lane.deadline(), None);
    assert!(!lane.has_gap());
}

#[test]
fn gap_behind_a_due_acknowledgement_is_reported_later() {
    let mut lane = Arrivals::default();
    lane.on_in_order(at(0));
    lane.owe(at(0), AckWhen::Now, DELAY);
    lane.on_ahead(at(0), Seq::nth(2), DELAY);
    assert_eq!(lane.take_report(at(0)), Some(Report::Ack));
    assert!(lane.on_deadline(at(50)));
    assert_eq!(lane.take_report(at(50)), Some(Report::Nack));
}

#[test]
fn nack_is_sent_once_per_gap_until_its_repeat() {
    let mut lane = Arrivals::default();
    lane.on_ahead(at(0), Seq::nth(1), DELAY);
    assert!(lane.on_deadline(at(50)));
    assert_eq!(lane.take_report(at(50)), Some(Report::Nack));
    lane.on_ahead(at(60), Seq::nth(2), DELAY);
    assert_eq!(lane.due(), None);
    assert!(!lane.on_deadline(at(1049)));
    assert!(lane.on_deadline(at(1050)));
}

#[test]
fn repair_wait_adapts_to_measured_repair_times() {
    let mut lane = Arrivals::default();
    for round in 0..100 {
        let (start, seq) = (at(round * 1000), Seq::nth(round as u32 * 2 + 1));
        lane.on_ahead(start, seq, Duration::ZERO);
        assert!(lane.on_deadline(start));
        assert_eq!(lane.take_report(start), Some(Report::Nack));
        (0..2).for_each(|_| lane.on_in_order(at(round * 1000 + 100)));
        lane.on_piggyback();
    }
    lane.on_ahead(at(200_000), Seq::nth(201), Duration::ZERO);
    assert!(lane.on_deadline(at(200_000)));
    lane.take_report(at(200_000));
    // Twice the time of a repair; longer if that was not enough.
    assert_eq!(lane.deadline(), Some(at(200_200)));
    assert!(lane.on_deadline(at(200_200)));
    assert_eq!(lane.take_report(at(200_200)), Some(Report::Nack));
    assert_eq!(lane.deadline(), Some(at(200_500)));
}

#[test]
fn arrivals_postpone_the_repeat_but_not_the_report_of_a_new_gap() {
    let mut lane = Arrivals::default();
    lane.put_off_repeat(at(1));
    assert_eq!(lane.deadline(), None, "nothing is missing");
    (1..4).for_each(|seq| lane.on_ahead(at(0), Seq::nth(seq), DELAY));
    assert_eq!(lane.take_report(at(10)), Some(Report::Nack));
    lane.put_off_repeat(at(1700));
    assert_eq!(lane.deadline(), Some(at(1700)));
    lane.on_ahead(at(600), Seq::nth(5), DELAY);
    lane.put_off_repeat(at(1800));
    assert_eq!(lane.deadline(), Some(at(650)), "there is news");
    assert!(lane.on_deadline(at(650)));
    assert_eq!(lane.take_report(at(650)), Some(Report::Nack));
    // The wait follows the fastest repair.
    (0..6).for_each(|_| lane.on_in_order(at(700)));
    assert_eq!(lane.repair_wait(), Duration::from_micros(100));
}

#[test]
fn run_of_packets_is_acknowledged_once() {
    // [PM-R15]
    let mut lane = Arrivals::default();
    for us in 0..10 {
        lane.on_in_order(at(us));
        lane.owe(at(us), AckWhen::After(10), Duration::from_micros(500));
    }
    assert_eq!(lane.take_report(at(10)), Some(Report::Ack));
    assert_eq!(lane.take_report(at(11)), None);
}

#[test]
fn reverse_data_carry_the_acknowledgement() {
    let mut lane = Arrivals::default();
    lane.on_in_order(at(0));
    lane.owe(at(0), AckWhen::After(64), Duration::from_micros(500));
    assert!(!lane.is_stable());
    lane.on_piggyback();
    assert!(lane.is_stable());
    assert_eq!(lane.deadline(), None);
}

#[test]
fn rejecting_lane_forgets_out_of_order_packets() {
    // [PM-R16]
    let mut lane = Arrivals::default();
    lane.on_ahead(at(0), Seq::nth(2), DELAY);
    lane.on_rejected();
    assert_eq!(lane.take_report(at(1)), Some(Report::Reject));
    assert_eq!(lane.classify(Seq::nth(2)), Arrival::Ahead);
    lane.on_buffers();
    assert_eq!(lane.take_report(at(2)), Some(Report::Resume));
}

#[test]
fn numbers_beyond_the_window_are_rejected() {
    let lane = Arrivals::default();
    assert_eq!(lane.classify(Seq::nth(WINDOW_PACKETS_MAX)), Arrival::BeyondWindow);
    assert_eq!(lane.classify(Seq::nth(WINDOW_PACKETS_MAX - 1)), Arrival::Ahead);
    assert_eq!(lane.classify(Seq::nth(u32::MAX)), Arrival::Duplicate);
}

#[test]
fn overtaken_packet_does_not_restore_an_earlier_epoch() {
    let mut lane = Arrivals::default();
    for (seen, newest) in
        [(3, 3), (2, 3), (40_000 - 1, 3), (30_000, 30_000), (60_000, 60_000), (1, 1), (60_000, 1)]
    {
        lane.on_packet(at(0), seen);
        assert_eq!(lane.epoch(), newest);
    }
}
