//! Messages that their sender abandons before all their bytes are available.

use super::*;

/// Passes in a packet of a granted part.
fn hand_bulk(channel: &mut Channel, us: u64, seq: u32, index: u32, data: usize) {
    let header = header(PEER, Kind::Data, seq, 0);
    hand(channel, at(us), Header { flags: Flags::BULK, argument: index, ..header }, &[], data);
}

fn hand_cut(channel: &mut Channel, us: u64, flags: Flags, seq: u32, index: u32) {
    let header = header(PEER, Kind::Data, seq, 0);
    let flags = flags.with(Flags::CUT).with(Flags::LAST);
    hand(channel, at(us), Header { flags, argument: index, ..header }, &[], 0);
}

fn grant(channel: &mut Channel, us: u64, seq: u32, token: u32) {
    let header = header(PEER, Kind::Grant, seq, 0);
    hand(channel, at(us), Header { flags: Flags::GRANTS, argument: token, ..header }, &[], 0);
}

fn partial(bytes: u64, available: u64) -> Message {
    Message { available, ..message(PEER, bytes) }
}

#[test]
fn cut_of_an_unsent_message_is_announced_and_later_messages_follow() {
    let mut channel = channel();
    let id = channel.send(partial(600, 100)).unwrap();
    channel.send(message(PEER, 8)).unwrap();
    assert_eq!(sent(&mut channel, 0), NOTHING);
    assert_eq!(channel.cut(id, u64::MAX), Some(PEER));
    assert_eq!(channel.available_bytes(id), 0);
    assert_eq!(sent(&mut channel, 10), ["data 0 e0 ack_now cut", "data 1 e0 @0+8"]);
    // The cut is retransmitted like any other packet, and the message cannot be extended.
    channel.extend(id, 600);
    nack(&mut channel, 20, 0, &[1]);
    assert_eq!(sent(&mut channel, 20), ["data 0 e0 ack_now cut"]);
    ack(&mut channel, 30, 2);
    assert!(channel.is_idle());
}

#[test]
fn fully_available_message_is_not_cut() {
    let mut channel = channel();
    let id = channel.send(message(PEER, 10_000)).unwrap();
    assert_eq!(channel.cut(id, u64::MAX), None);
    assert_eq!(sent(&mut channel, 0), ["data 0 e0 @0+240", "data 1 e0 @240+256"]);
}

/// Its sender has an error, and must not copy the remaining data.
#[test]
fn fully_available_message_is_cut_if_too_much_is_unsent() {
    let mut channel = channel();
    let id = channel.send(message(PEER, 10_000)).unwrap();
    assert_eq!(sent(&mut channel, 0), ["data 0 e0 @0+240", "data 1 e0 @240+256"]);
    assert_eq!(channel.unanswered_from(id), 0);
    grant(&mut channel, 10, 0, id.0);
    let handed_out = 496 + 256 * sent(&mut channel, 10).len() as u64;
    assert!(handed_out < 10_000);
    ack(&mut channel, 20, 2);
    assert_eq!(channel.unanswered_from(id), 496);
    assert_eq!(channel.cut(id, 10_000 - handed_out), None);
    assert_eq!(channel.cut(id, 10_000 - handed_out - 1), Some(PEER));
    assert_eq!(channel.available_bytes(id), handed_out);
}

#[test]
fn partially_sent_message_is_cut_at_its_last_packet() {
    let mut channel = channel();
    let id = channel.send(partial(1000, 500)).unwrap();
    assert_eq!(sent(&mut channel, 0), ["data 0 e0 @0+240", "data 1 e0 @240+256"]);
    channel.cut(id, u64::MAX);
    assert_eq!(channel.available_bytes(id), 496, "what may be sent again");
    assert_eq!(sent(&mut channel, 10), ["data 2 e0 ack_now cut"]);
    ack(&mut channel, 20, 3);
    assert!(channel.is_idle());
}

#[test]
fn granted_part_behind_a_cut_waits_until_the_cut_has_arrived() {
    let mut channel = channel();
    let first = channel.send(partial(10_000, 1100)).unwrap();
    let second = channel.send(message(PEER, 2560)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 4);
    grant(&mut channel, 10, 0, first.0);
    grant(&mut channel, 10, 1, second.0);
    let lines = sent(&mut channel, 10);
    assert_eq!(lines[..2], ["data 0 e0 @496+256 bulk", "data 1 e0 @752+256 bulk"]);
    assert_eq!(lines.len(), 2, "the second waits for its turn: {lines:?}");
    channel.cut(first, u64::MAX);
    assert_eq!(sent(&mut channel, 20), ["data 2 e0 bulk ack_now cut"]);
    let bulk_ack = Header { flags: Flags::BULK, ..header(PEER, Kind::Ack, 0, 2) };
    hand(&mut channel, at(30), bulk_ack, &[], 0);
    assert_eq!(sent(&mut channel, 30), NOTHING);
    hand(&mut channel, at(40), Header { expects: Seq::nth(3), ..bulk_ack }, &[], 0);
    assert_eq!(sent(&mut channel, 40)[0], "data 3 e0 @496+256 bulk");
}

/// The ordered part may be waiting for the window when the granted one has begun.
#[test]
fn sent_packets_of_a_granted_part_remain_repeatable_after_a_cut() {
    let config = ChannelConfig { window_packets: 1, ..config() };
    let mut channel = Channel::new(ChannelId(0), 0, ME, 3, config.build().unwrap());
    let id = channel.send(partial(10_000, 1100)).unwrap();
    assert_eq!(sent(&mut channel, 0), ["data 0 e0 @0+240 ack_now"]);
    grant(&mut channel, 10, 0, id.0);
    assert_eq!(sent(&mut channel, 10)[0], "data 0 e0 @496+256 bulk ack_now");
    channel.cut(id, u64::MAX);
    assert_eq!(channel.available_bytes(id), 496 + 256);
}

#[test]
fn message_granted_after_its_cut_ends_immediately() {
    let mut channel = channel();
    let id = channel.send(partial(10_000, 300)).unwrap();
    assert_eq!(sent(&mut channel, 0), ["data 0 e0 @0+240"]);
    channel.cut(id, u64::MAX);
    assert_eq!(sent(&mut channel, 10), ["data 1 e0 ack_now cut"]);
    ack(&mut channel, 20, 2);
    assert!(!channel.is_idle(), "the granted part is numbered");
    grant(&mut channel, 30, 0, id.0);
    assert_eq!(sent(&mut channel, 30)[0], "data 0 e0 bulk ack_now cut");
}

#[test]
fn receive_of_a_cut_message_reports_the_cut_and_the_next_one_is_whole() {
    let mut channel = channel();
    let [first, second] = [0, 0].map(|us| channel.receive(at(us), from(PEER), 2000).unwrap());
    hand_first(&mut channel, 0, PEER, 0, 1000, FIRST);
    hand_cut(&mut channel, 10, Flags::NONE, 1, 1);
    assert_eq!(events(&mut channel), [Event::Cut { id: first, from: PEER, tag: 5 }]);
    hand_first(&mut channel, 20, PEER, 2, 100, 100);
    let received = Event::Received { id: second, from: PEER, tag: 5, bytes: 100 };
    assert_eq!(events(&mut channel), [received]);
}

#[test]
fn granted_data_after_a_cut_does_not_count_as_received() {
    let mut channel = channel();
    let id = channel.receive(at(0), from(PEER), 10_000).unwrap();
    hand_first(&mut channel, 0, PEER, 0, 10_000, FIRST);
    hand_cut(&mut channel, 10, Flags::NONE, 1, 1);
    let bulk = Header { flags: Flags::BULK, ..header(PEER, Kind::Data, 0, 0) };
    assert!(hand(&mut channel, at(20), bulk, &[], 256).is_some());
    assert_eq!(channel.received_bytes(id), FIRST as u64);
}

#[test]
fn late_receive_of_a_cut_message_reports_the_cut() {
    let mut channel = channel();
    hand_first(&mut channel, 0, PEER, 0, 10_000, FIRST);
    hand_cut(&mut channel, 10, Flags::NONE, 1, 1);
    let id = channel.receive(at(20), from(PEER), 10_000).unwrap();
    assert_eq!(moves(&mut channel).len(), 1);
    assert_eq!(events(&mut channel), []);
    assert!(sent(&mut channel, 20).contains(&"grant 0 e0".to_owned()));
    // Its granted part has been numbered, so it ends too.
    hand_cut(&mut channel, 30, Flags::BULK, 0, 0);
    assert_eq!(events(&mut channel), [Event::Cut { id, from: PEER, tag: 5 }]);
    assert_eq!(channel.received_bytes(id), 0);
}

#[test]
fn granted_parts_behind_a_cut_are_renumbered_in_any_arrival_order() {
    let mut channel = channel();
    let [first, second] = [0, 0].map(|us| channel.receive(at(us), from(PEER), 4000).unwrap());
    let bytes = 496 + 8 * NEXT as u64;
    for seq in [0, 2] {
        hand_first(&mut channel, 0, PEER, seq, bytes, FIRST);
        hand(&mut channel, at(0), header(PEER, Kind::Data, seq + 1, 0), &[], NEXT);
    }
    hand_bulk(&mut channel, 10, 0, 0, NEXT);
    // Packet 1 is late.
    hand_cut(&mut channel, 10, Flags::BULK, 2, 2);
    hand_cut(&mut channel, 10, Flags::BULK, 2, 2);
    assert_eq!(events(&mut channel), []);
    hand_bulk(&mut channel, 20, 1, 1, NEXT);
    assert_eq!(events(&mut channel), [Event::Cut { id: first, from: PEER, tag: 5 }]);
    for index in 0..8 {
        hand_bulk(&mut channel, 30, 3 + index, index, NEXT);
    }
    let received = Event::Received { id: second, from: PEER, tag: 5, bytes };
    assert_eq!(events(&mut channel), [received]);
    assert_eq!(channel.counters().malformed, 0);
}

#[test]
fn invalid_cut_is_counted_and_dropped() {
    let mut channel = channel();
    channel.receive(at(0), from(PEER), 4000).unwrap();
    hand_first(&mut channel, 0, PEER, 0, 496 + 8 * NEXT as u64, FIRST);
    hand_bulk(&mut channel, 10, 2, 2, NEXT);
    hand_cut(&mut channel, 20, Flags::BULK, 1, 1); // A later packet has arrived.
    hand_cut(&mut channel, 20, Flags::BULK, 3, 2); // The index does not match the number.
    assert_eq!(channel.counters().malformed, 2);
    let with_data = Flags::CUT.with(Flags::BULK);
    let header = Header { flags: with_data, argument: 3, ..header(PEER, Kind::Data, 3, 0) };
    hand(&mut channel, at(30), header, &[], NEXT);
    assert_eq!(channel.counters().malformed, 3);
    assert_eq!(events(&mut channel), []);
}

#[test]
fn message_starts_only_when_some_bytes_are_available() {
    let config = ChannelConfig { eager_bytes: 0, eager_head_bytes: 0, ..config() };
    let mut channel = Channel::new(ChannelId(0), 0, ME, 3, config.build().unwrap());
    let late = channel.send(partial(1000, 0)).unwrap();
    let other = Message { communicator: CommunicatorId(2), ..message(PEER, 1000) };
    channel.send(other).unwrap();
    assert_eq!(sent(&mut channel, 0), ["data 0 e0"], "the other one: what is granted keeps order");
    channel.extend(late, 1);
    assert_eq!(sent(&mut channel, 10), ["data 1 e0"]);
}
