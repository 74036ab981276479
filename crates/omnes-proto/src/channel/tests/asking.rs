//! Overdue messages: a rank that waits for one asks for it.

use super::*;

/// A channel on which messages usually arrive 100 µs after the wait for them begins: one every
/// 1,000 µs, from 1,000 µs on. The next expected packet is number 50.
fn acquainted() -> Channel {
    let mut channel = channel();
    for round in 0..50 {
        let us = (u64::from(round) + 1) * 1000;
        channel.receive(at(us), from(PEER), 8).unwrap();
        hand_first(&mut channel, us + 100, PEER, round, 8, 8).unwrap();
        sent(&mut channel, us + 900);
    }
    sent(&mut channel, 55_000);
    events(&mut channel);
    channel
}

fn question(channel: &mut Channel, us: u64, expects: u32) {
    let header = Header { flags: Flags::ACK_NOW, ..header(PEER, Kind::Nack, 0, expects) };
    hand(channel, at(us), header, &[], 0);
}

/// Such a channel, on which a message that a receive waits for began to arrive at 60,010 us.
fn begun(bytes: u64) -> Channel {
    let mut channel = acquainted();
    channel.receive(at(60_000), from(PEER), bytes).unwrap();
    hand_first(&mut channel, 60_010, PEER, 50, bytes, FIRST).unwrap();
    channel
}

/// Passes in a packet of a message that has begun to arrive.
fn hand_next(channel: &mut Channel, us: u64, seq: u32, data: usize) {
    hand(channel, at(us), header(PEER, Kind::Data, seq, 0), &[], data).unwrap();
}

/// Time of the next timer, in µs.
fn due_us(channel: &Channel) -> u64 {
    channel.poll_timeout().unwrap().as_ns().div_ceil(1000)
}

#[test]
fn overdue_message_is_requested_ever_less_often_until_arrival() {
    let mut channel = acquainted();
    channel.receive(at(60_000), from(PEER), 8).unwrap();
    // Not before the shortest time, however early such messages usually arrive.
    assert_eq!(due_us(&channel), 61_000);
    assert_eq!(sent(&mut channel, 60_999), NOTHING);
    assert_eq!(sent(&mut channel, 61_000), ["nack expects 50 e0 ack_now"]);
    assert_eq!(sent(&mut channel, 62_999), NOTHING);
    assert_eq!(sent(&mut channel, 63_000), ["nack expects 50 e0 ack_now"]);
    hand_first(&mut channel, 63_100, PEER, 50, 8, 8).unwrap();
    assert_eq!(sent(&mut channel, 63_100 + 1000), ["ack expects 51 e0"]);
    assert_eq!(channel.poll_timeout(), None);
}

#[test]
fn sought_message_is_requested_when_overdue_and_reported_once() {
    let mut channel = acquainted();
    let sought = from(PEER);
    channel.seek(at(60_000), &sought).unwrap();
    assert!(
        channel.is_seeking(&sought) && !channel.is_seeking(&Pattern { source: None, ..sought })
    );
    assert_eq!(sent(&mut channel, 61_000), ["nack expects 50 e0 ack_now"]);
    for seq in [50, 51] {
        hand_first(&mut channel, 61_100, PEER, seq, 8, 8).unwrap();
    }
    assert_eq!(events(&mut channel), [Event::Sought]);
    assert_eq!(channel.probe(&sought), Some((PEER, 5, 8)));
    assert!(!channel.is_seeking(&sought));
    channel.fail_peer(PEER);
    let failed = ChannelError::PeerFailed { rank: PEER };
    assert_eq!(channel.seek(at(62_000), &sought), Err(failed));
}

#[test]
fn seeking_ends_once_a_receive_takes_the_sought_message() {
    let mut channel = acquainted();
    let sought = from(PEER);
    channel.seek(at(60_000), &sought).unwrap();
    // Two packets: the receive is posted when the first has arrived.
    hand_first(&mut channel, 60_100, PEER, 50, 300, 200).unwrap();
    let (_, tag, bytes) = channel.probe(&sought).unwrap();
    let id = channel.receive(at(60_200), Pattern { tag: Some(tag), ..sought }, bytes).unwrap();
    hand(&mut channel, at(60_300), header(PEER, Kind::Data, 51, 0), &[], 100).unwrap();
    let received = Event::Received { id, from: PEER, tag, bytes };
    assert_eq!(events(&mut channel), [Event::Sought, received]);
    assert!(!channel.is_seeking(&sought));
    assert_eq!(sent(&mut channel, 62_000), ["ack expects 52 e0"]);
    assert_eq!(channel.poll_timeout(), None);
}

#[test]
fn requests_to_an_always_late_sender_soon_cease() {
    let mut channel = acquainted();
    let mut questions = Vec::new();
    for round in 0..30 {
        let us = (u64::from(round) + 2) * 50_000;
        channel.receive(at(us), from(PEER), 8).unwrap();
        let asked = (0..200).flat_map(|step| sent(&mut channel, us + step * 100)).count();
        questions.push(asked);
        hand_first(&mut channel, us + 20_000, PEER, 50 + round, 8, 8).unwrap();
        sent(&mut channel, us + 30_000);
    }
    assert_eq!(questions[0], 4, "after 1, 3, 7 and 15 ms: {questions:?}");
    assert_eq!(questions[20..].iter().sum::<usize>(), 0, "{questions:?}");
}

#[test]
fn known_gaps_and_receives_without_a_wait_cause_no_extra_requests() {
    let mut channel = acquainted();
    // A gap is reported as a gap, and repeatedly so.
    channel.receive(at(60_000), from(PEER), 8).unwrap();
    hand_first(&mut channel, 60_010, PEER, 51, 8, 8).unwrap();
    let lines: Vec<String> = (0..40).flat_map(|ms| sent(&mut channel, 60_010 + ms * 500)).collect();
    assert!(lines.len() > 2 && lines.iter().all(|line| line == "nack expects 50 e0"), "{lines:?}");
    // A cancelled receive waits for nothing, and one from any source for no particular rank.
    hand_first(&mut channel, 90_000, PEER, 50, 8, 8).unwrap();
    sent(&mut channel, 99_000);
    channel.receive(at(100_000), from(PEER), 8).unwrap();
    channel.receive(at(100_000), Pattern { source: None, ..from(PEER) }, 8).unwrap();
    assert!(channel.poll_timeout().is_none(), "51 had come before its receive");
    let id = channel.receive(at(100_000), from(OTHER), 8).unwrap();
    assert!(channel.poll_timeout().is_some() && channel.cancel(id));
    assert_eq!(sent(&mut channel, 900_000), NOTHING);
}

#[test]
fn rest_of_a_message_is_requested_when_nothing_arrives() {
    let mut channel = begun(700);
    hand_next(&mut channel, 60_510, 51, NEXT);
    assert_eq!(sent(&mut channel, 61_510), ["ack expects 52 e0"]);
    // After twice the shortest time, counted from the last packet.
    assert_eq!(sent(&mut channel, 62_509), NOTHING);
    assert_eq!(sent(&mut channel, 62_510), ["nack expects 52 e0 ack_now"]);
    let lines: Vec<String> =
        (0..900).flat_map(|ms| sent(&mut channel, 63_000 + ms * 500)).collect();
    assert_eq!(lines, ["nack expects 52 e0 ack_now"; 3], "then the sender's timer remains");
    hand_next(&mut channel, 600_000, 52, 700 - FIRST - NEXT);
    assert_eq!(sent(&mut channel, 601_000), ["ack expects 53 e0"]);
    assert_eq!(channel.poll_timeout(), None);
}

#[test]
fn wait_for_the_rest_of_a_slow_message_follows_its_pace() {
    let mut channel = begun(700);
    hand_next(&mut channel, 61_910, 51, NEXT);
    sent(&mut channel, 62_910);
    assert_eq!(sent(&mut channel, 65_709), NOTHING);
    assert_eq!(sent(&mut channel, 65_710), ["nack expects 52 e0 ack_now"]);
}

#[test]
fn rest_of_a_message_is_requested_after_another_receive_is_cancelled() {
    let mut channel = begun(700);
    let id = channel.receive(at(60_020), from(PEER), 8).unwrap();
    assert!(channel.cancel(id));
    assert_eq!(sent(&mut channel, 61_010), ["ack expects 51 e0"]);
    assert_eq!(sent(&mut channel, 63_000), ["nack expects 51 e0 ack_now"]);
}

#[test]
fn rest_of_a_granted_message_is_requested_on_its_lane() {
    let mut channel = begun(4096);
    hand_next(&mut channel, 60_020, 51, NEXT);
    assert_eq!(sent(&mut channel, 60_020), ["grant 0 e0"]);
    let granted = Header { flags: Flags::GRANTS, ..header(PEER, Kind::Ack, 0, 1) };
    hand(&mut channel, at(60_100), granted, &[], 0);
    let bulk = Header { flags: Flags::BULK, ..header(PEER, Kind::Data, 0, 0) };
    hand(&mut channel, at(60_500), bulk, &[], 256).unwrap();
    assert_eq!(sent(&mut channel, 61_500), ["ack expects 52 e0", "ack expects 1 e0 bulk"]);
    assert_eq!(sent(&mut channel, 62_499), NOTHING);
    assert_eq!(sent(&mut channel, 62_500), ["nack expects 1 e0 bulk ack_now"]);
}

#[test]
fn rest_of_a_message_without_a_receive_is_not_requested() {
    let mut channel = acquainted();
    hand_first(&mut channel, 60_010, PEER, 50, 400, FIRST).unwrap();
    assert_eq!(sent(&mut channel, 61_010), ["ack expects 51 e0"]);
    assert_eq!(channel.poll_timeout(), None);
}

#[test]
fn stopped_channel_sends_no_requests_and_restarts_its_wait_on_resume() {
    let mut channel = acquainted();
    channel.receive(at(60_000), from(PEER), 8).unwrap();
    channel.stop(at(60_500));
    assert_eq!(sent(&mut channel, 90_000), NOTHING);
    channel.resume(at(100_000));
    assert_eq!(sent(&mut channel, 100_999), NOTHING);
    assert_eq!(sent(&mut channel, 101_000), ["nack expects 50 e0 ack_now"]);
}

#[test]
fn request_repeats_only_packets_older_than_a_round_trip() {
    let mut channel = channel();
    channel.send(message(PEER, 752)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 3);
    // The round trip is then known to be 200 µs.
    ack(&mut channel, 200, 1);
    channel.send(message(PEER, 8)).unwrap();
    assert_eq!(sent(&mut channel, 1000), ["data 3 e0 @0+8"]);
    question(&mut channel, 1100, 1);
    // One packet; its answer shows whether more is missing.
    assert_eq!(sent(&mut channel, 1100), ["data 1 e0 @240+256 ack_now"]);
    // The repeated packet gets its time too, and number 3 may be in flight.
    question(&mut channel, 1200, 1);
    question(&mut channel, 1150, 3);
    assert_eq!(sent(&mut channel, 1190), NOTHING);
    question(&mut channel, 1250, 4);
    assert_eq!(sent(&mut channel, 60_000), NOTHING);
    assert_eq!(channel.counters().timeouts, 0);
}

#[test]
fn request_to_a_rejected_sender_causes_no_retransmission() {
    let mut channel = channel();
    channel.send(message(PEER, 8)).unwrap();
    sent(&mut channel, 0);
    reject(&mut channel, 100, 0, 0);
    question(&mut channel, 50_000, 0);
    assert_eq!(sent(&mut channel, 200), NOTHING);
    assert_eq!(channel.counters().retransmits, 0);
}
