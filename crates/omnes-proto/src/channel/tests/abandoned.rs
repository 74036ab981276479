//! Communicators that were dropped after a collective was given up.

use super::*;

const OTHER: CommunicatorId = CommunicatorId(COMMUNICATOR.0 + 1);

/// Passes in packet `seq`, a message of `bytes` bytes of a communicator.
fn hand_message(channel: &mut Channel, communicator: CommunicatorId, seq: u32, bytes: usize) {
    let mut header = Header { communicator, ..header(PEER, Kind::Data, seq, 0) };
    header.flags = Flags::FIRST.with(Flags::LAST);
    let envelope = Envelope { tag: 5, token: seq, bytes: bytes as u64 }.emit();
    hand(channel, at(10), header, &envelope, bytes);
}

#[test]
fn abandoned_communicator_keeps_neither_receives_nor_messages() {
    let mut channel = channel();
    let posted = channel.receive(at(0), Pattern { tag: Some(6), ..from(PEER) }, 10).unwrap();
    let mine = Pattern { communicator: OTHER, ..from(PEER) };
    let kept = channel.receive(at(0), mine, 10).unwrap();
    hand_message(&mut channel, COMMUNICATOR, 0, 10);
    // Part of a longer message.
    hand_first(&mut channel, 10, PEER, 1, 500, FIRST);
    assert_eq!(channel.pool.used(), 2);
    channel.abandon(COMMUNICATOR);
    assert_eq!(events(&mut channel), [Event::ReceiveFailed { id: posted, from: PEER }]);
    assert_eq!(moves(&mut channel).len(), 2);
    assert_eq!((channel.pool.used(), channel.matching.unexpected_count()), (0, 0));
    hand(&mut channel, at(20), header(PEER, Kind::Data, 2, 0), &[], NEXT);
    hand(&mut channel, at(20), header(PEER, Kind::Data, 3, 0), &[], 4);
    // More messages than the pool has slots for, in order and out of order.
    for seq in [4, 5, 7, 6, 8, 9, 10] {
        hand_message(&mut channel, COMMUNICATOR, seq, 10);
    }
    moves(&mut channel);
    assert_eq!((channel.pool.used(), channel.counters().rejects_sent), (0, 0));
    hand_message(&mut channel, OTHER, 11, 10);
    let bytes = 10;
    assert_eq!(events(&mut channel), [Event::Received { id: kept, from: PEER, tag: 5, bytes }]);
    assert_eq!(sent(&mut channel, 60), ["ack expects 12 e0"]);
}

#[test]
fn long_messages_of_an_abandoned_communicator_are_granted_and_discarded() {
    let mut channel = channel();
    // Its first packets have arrived before, those of the next one arrive later.
    for seq in [0, 2] {
        hand_first(&mut channel, 10, PEER, seq, 3000, FIRST);
        hand(&mut channel, at(10), header(PEER, Kind::Data, seq + 1, 0), &[], NEXT);
        channel.abandon(COMMUNICATOR);
        moves(&mut channel);
    }
    let lines = sent(&mut channel, 20);
    assert_eq!(lines.iter().filter(|line| line.starts_with("grant")).count(), 2, "{lines:?}");
    assert_eq!((channel.pool.used(), channel.matching.unexpected_count()), (0, 0));
    for seq in 0..20 {
        let (flags, argument) = (Flags::BULK, seq % 10);
        let header = Header { flags, argument, ..header(PEER, Kind::Data, seq, 0) };
        hand(&mut channel, at(30), header, &[], if seq % 10 == 9 { 200 } else { NEXT });
    }
    assert_eq!(events(&mut channel), []);
    assert!(channel.matching.receives.is_empty());
}
