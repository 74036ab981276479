//! Placement of incoming data, and answers to it.

use super::*;

#[test]
fn run_of_packets_gets_one_acknowledgement() {
    // [PM-R15]
    let mut channel = channel();
    channel.receive(at(0), from(PEER), 2000).unwrap();
    hand_first(&mut channel, 10, PEER, 0, 752, FIRST);
    hand(&mut channel, at(11), header(PEER, Kind::Data, 1, 0), &[], NEXT);
    assert_eq!(sent(&mut channel, 11), NOTHING);
    hand(&mut channel, at(12), header(PEER, Kind::Data, 2, 0), &[], NEXT);
    assert_eq!(sent(&mut channel, 12), ["ack expects 3 e0"]);
    assert_eq!(sent(&mut channel, 10_000), NOTHING);
}

#[test]
fn single_gap_is_reported_once_for_any_number_of_later_packets() {
    // [PM-R18]
    let mut channel = channel();
    channel.receive(at(0), from(PEER), 2048).unwrap();
    hand_first(&mut channel, 10, PEER, 0, 2032, FIRST);
    for seq in 2..4 {
        hand(&mut channel, at(10), header(PEER, Kind::Data, seq, 0), &[], NEXT);
    }
    assert_eq!(channel.counters().discarded, 0);
    assert_eq!(sent(&mut channel, 10), NOTHING);
    assert_eq!(sent(&mut channel, 60), ["nack expects 1 e0"]);
    assert_eq!(sent(&mut channel, 61), NOTHING);
    hand(&mut channel, at(70), header(PEER, Kind::Data, 1, 0), &[], NEXT);
    assert_eq!(sent(&mut channel, 70), ["ack expects 4 e0"]);
}

#[test]
fn any_tag_receive_gets_the_message_sent_first() {
    let mut channel = channel();
    for (seq, tag) in [(0, 6), (1, 5), (2, 6)] {
        let mut header = header(PEER, Kind::Data, seq, 0);
        header.flags = Flags::FIRST;
        let envelope = Envelope { tag, token: seq, bytes: 10 }.emit();
        hand(&mut channel, at(10), header, &envelope, 10);
    }
    for tag in [None, Some(6), None] {
        channel.receive(at(20), Pattern { tag, ..from(PEER) }, 10).unwrap();
        moves(&mut channel);
    }
    let events = events(&mut channel);
    let tags = events.iter().map(|event| match event {
        Event::Received { tag, .. } => *tag,
        other => panic!("{other:?}"),
    });
    assert_eq!(tags.collect::<Vec<_>>(), [6, 6, 5]);
}

#[test]
fn data_are_placed_directly_into_the_memory_of_the_receive() {
    // [PM-R11]
    let mut channel = channel();
    let id = channel.receive(at(0), from(PEER), 300).unwrap();
    let first = hand_first(&mut channel, 10, PEER, 0, 400, FIRST).unwrap();
    let (target, packet_offset) = (Target::Receive(id), PACKET_OVERHEAD_BYTES + 16);
    assert_eq!(first, Placement { channel: 0, target, offset: 0, packet_offset, bytes: FIRST });
    // Data beyond the receive's capacity are dropped.
    let rest = hand(&mut channel, at(11), header(PEER, Kind::Data, 1, 0), &[], 160).unwrap();
    let (offset, packet_offset) = (FIRST as u64, PACKET_OVERHEAD_BYTES);
    assert_eq!(rest, Placement { channel: 0, target, offset, packet_offset, bytes: 60 });
    assert_eq!(events(&mut channel), [Event::Received { id, from: PEER, tag: 5, bytes: 400 }]);
    assert_eq!(moves(&mut channel), []);
}

#[test]
fn unexpected_data_are_buffered_until_a_receive_consumes_them() {
    // [PM-R11]
    let mut channel = channel();
    let placed = hand_first(&mut channel, 10, PEER, 0, 400, FIRST).unwrap();
    let Target::Slot(first) = placed.target else { panic!("{placed:?}") };
    let id = channel.receive(at(20), from(PEER), 400).unwrap();
    let step = Move { origin: Origin::Slot(first), receive: id, offset: 0, bytes: FIRST };
    assert_eq!(moves(&mut channel), [step]);
    assert_eq!(channel.received_bytes(id), FIRST as u64);
    let rest = hand(&mut channel, at(30), header(PEER, Kind::Data, 1, 0), &[], 160).unwrap();
    assert_eq!((rest.target, rest.offset), (Target::Receive(id), FIRST as u64));
    assert_eq!(events(&mut channel), [Event::Received { id, from: PEER, tag: 5, bytes: 400 }]);
}

#[test]
fn message_too_long_for_packet_numbers_is_rejected() {
    let mut channel = channel();
    channel.receive(at(0), from(PEER), 100).unwrap();
    assert_eq!(hand_first(&mut channel, 10, PEER, 0, u64::MAX, FIRST), None);
    assert_eq!(channel.counters().malformed, 1);
    let bytes = channel.config().message_bytes_max() + 1;
    let refused = channel.send(message(PEER, bytes)).unwrap_err();
    assert!(matches!(refused, ChannelError::MessageTooLarge { .. }));
}

#[test]
fn packet_larger_than_a_slot_is_dropped() {
    let mut channel = channel();
    let payload = usize::from(channel.config().payload_bytes);
    assert_eq!(hand_first(&mut channel, 10, PEER, 0, 1000, payload + 1), None);
    assert_eq!(channel.counters().malformed, 1);
    assert!(hand_first(&mut channel, 20, PEER, 0, 1000, payload - 16).is_some());
}

#[test]
fn receives_match_in_posting_order_with_and_without_a_source() {
    let mut channel = channel();
    let from_any = Pattern { source: None, ..from(PEER) };
    let patterns = [from(OTHER), from(PEER), from_any, from(PEER), from_any];
    let posted = patterns.map(|pattern| channel.receive(at(0), pattern, 8).unwrap());
    assert!(channel.cancel(posted[3]) && !channel.cancel(posted[3]));
    let comes = [(PEER, 0), (PEER, 1), (OTHER, 0), (OTHER, 1)];
    for (us, (source, seq)) in (1..).zip(comes) {
        hand_first(&mut channel, us, source, seq, 8, 8).unwrap();
    }
    let received = |id, from| Event::Received { id, from, tag: 5, bytes: 8 };
    let by_order = [(1, PEER), (2, PEER), (0, OTHER), (4, OTHER)];
    assert_eq!(events(&mut channel), by_order.map(|(place, from)| received(posted[place], from)));
}

#[test]
fn credits_of_all_senders_leave_room_for_one_more_sender() {
    let config = config().build().unwrap();
    for senders in 0..100u32 {
        let share = u32::from(Channel::credits(&config, senders)) * CREDIT_UNIT_BYTES;
        let all = share * (senders.max(1) + 1);
        let least = share == CREDIT_UNIT_BYTES;
        assert!(least || all <= config.receive_truesize_bytes, "{share} to each of {senders}");
    }
}

#[test]
fn first_posted_receive_matches_with_or_without_a_named_sender() {
    for is_named_first in [false, true] {
        let mut channel = channel();
        let named = from(PEER);
        let anybody = Pattern { source: None, ..named };
        let patterns = if is_named_first { [named, anybody] } else { [anybody, named] };
        let ids = patterns.map(|pattern| channel.receive(at(0), pattern, 10).unwrap());
        for (seq, id) in (0..).zip(ids) {
            hand_first(&mut channel, 1, PEER, seq, 10, 10);
            let received = Event::Received { id, from: PEER, tag: 5, bytes: 10 };
            assert_eq!(events(&mut channel), [received]);
        }
    }
}

#[test]
fn data_beyond_the_end_of_the_message_are_rejected() {
    let mut channel = channel();
    let id = channel.receive(at(0), from(PEER), 9999).unwrap();
    hand_first(&mut channel, 1, PEER, 0, 300, FIRST);
    assert_eq!(hand(&mut channel, at(2), header(PEER, Kind::Data, 1, 0), &[], NEXT), None);
    assert_eq!((channel.counters().malformed, channel.received_bytes(id)), (1, FIRST as u64));
}

#[test]
fn out_of_order_packets_take_at_most_half_of_the_slots() {
    let mut channel = channel();
    for seq in 1..5 {
        hand(&mut channel, at(1), header(PEER, Kind::Data, seq, 0), &[], NEXT);
    }
    assert_eq!((channel.pool.used(), channel.counters().discarded), (2, 2));
}
