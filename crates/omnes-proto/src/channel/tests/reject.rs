//! Packets without a buffer, at the receiver that rejects them and at their sender.

use super::*;

#[test]
fn packet_without_a_buffer_is_rejected_once_and_later_ones_discarded() {
    // [PM-R15, R16]
    let mut channel = channel();
    for seq in 0..4 {
        hand_first(&mut channel, 10, PEER, seq, 10, 10);
    }
    assert_eq!(sent(&mut channel, 10), ["ack expects 4 e0"]);
    assert_eq!(hand_first(&mut channel, 20, PEER, 4, 10, 10), None);
    assert_eq!(sent(&mut channel, 20), ["nack expects 4 e0 reject"]);
    for seq in 5..8 {
        assert_eq!(hand_first(&mut channel, 30, PEER, seq, 10, 10), None);
    }
    assert_eq!(sent(&mut channel, 30), NOTHING);
    assert_eq!(channel.counters().discarded, 3);
    // A receive takes the oldest message: its buffer is free, and the peer is notified.
    channel.receive(at(40), from(PEER), 10).unwrap();
    assert_eq!(moves(&mut channel).len(), 1);
    assert_eq!(sent(&mut channel, 40), ["ack expects 4 e0 resume"]);
    assert!(hand_first(&mut channel, 50, PEER, 4, 10, 10).is_some());
    channel.stop(at(50));
    assert_eq!(sent(&mut channel, 50), ["ack expects 5 e0"]);
}

#[test]
fn retransmitted_packet_that_still_does_not_fit_is_rejected_again() {
    // [PM-R18]
    let mut channel = channel();
    for seq in 0..5 {
        hand_first(&mut channel, 10, PEER, seq, 10, 10);
    }
    assert_eq!(sent(&mut channel, 10), ["nack expects 4 e0 reject"]);
    let mut again = header(PEER, Kind::Data, 4, 0);
    again.flags = Flags::FIRST;
    again.epoch = 1;
    let envelope = Envelope { tag: 5, token: 9, bytes: 10 }.emit();
    assert_eq!(hand(&mut channel, at(20), again, &envelope, 10), None);
    assert_eq!(sent(&mut channel, 20), ["nack expects 4 e1 reject"]);
}

#[test]
fn rejection_affects_only_its_sender() {
    // [PM-R16, R17]
    let mut channel = channel();
    channel.receive(at(0), from(OTHER), 10).unwrap();
    for seq in 0..5 {
        hand_first(&mut channel, 10, PEER, seq, 10, 10);
    }
    assert_eq!(sent(&mut channel, 10), ["nack expects 4 e0 reject"]);
    let placed = hand_first(&mut channel, 20, OTHER, 0, 10, 10).unwrap();
    assert!(matches!(placed.target, Target::Receive(_)));
}

#[test]
fn buffers_are_shared_by_all_senders() {
    // [PM-R17]: buffers are taken in order of arrival, and no sender has a share of its own.
    let mut channel = channel();
    for (source, seq) in [(PEER, 0), (OTHER, 0), (PEER, 1), (PEER, 2)] {
        let placed = hand_first(&mut channel, 10, source, seq, 10, 10).unwrap();
        assert!(matches!(placed.target, Target::Slot(_)));
    }
    assert_eq!(hand_first(&mut channel, 20, OTHER, 1, 10, 10), None);
    let lines = sent(&mut channel, 20);
    assert!(lines.contains(&"nack expects 1 e0 reject to 2".to_owned()), "{lines:?}");
}

#[test]
fn out_of_order_empty_message_is_not_lost_when_too_many_wait() {
    // [PM-R15]: its number must not be taken before it has been accepted.
    let mut channel = channel();
    for seq in 0..3 {
        hand_first(&mut channel, 10, PEER, seq, 0, 0);
    }
    hand_first(&mut channel, 11, PEER, 4, 0, 0);
    hand_first(&mut channel, 12, PEER, 3, 0, 0);
    assert_eq!(sent(&mut channel, 12), ["nack expects 4 e0 reject"]);
    assert_eq!(channel.counters().malformed, 0);
}

#[test]
fn rejected_sender_sends_nothing_new_until_it_is_acknowledged() {
    // [PM-R13, R14]
    let mut channel = channel();
    channel.send(message(PEER, 0)).unwrap();
    channel.send(message(PEER, 10)).unwrap();
    assert_eq!(sent(&mut channel, 0), ["data 0 e0", "data 1 e0 @0+10"]);
    reject(&mut channel, 50, 0, 0);
    channel.send(message(PEER, 20)).unwrap();
    assert_eq!(sent(&mut channel, 60), NOTHING);
    // The probe; then any answer beyond it causes retransmission of all discarded packets, and
    // sends the new one.
    let probe_at = channel.poll_timeout().unwrap().as_ns() / 1000;
    assert_eq!(sent(&mut channel, probe_at), ["data 0 e1 ack_now"]);
    ack(&mut channel, probe_at + 50, 1);
    assert_eq!(sent(&mut channel, probe_at + 50), ["data 1 e1 @0+10 ack_now", "data 2 e1 @0+20"]);
}

#[test]
fn second_rejection_is_probed_again_after_a_longer_wait() {
    // [PM-R14, R18]
    let mut channel = channel();
    channel.send(message(PEER, 0)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 1);
    let mut waits = Vec::new();
    let mut us = 50;
    for epoch in 0..3 {
        reject(&mut channel, us, 0, epoch);
        assert_eq!(sent(&mut channel, us), NOTHING);
        let before = us;
        loop {
            us = channel.poll_timeout().unwrap().as_ns() / 1000;
            let lines = sent(&mut channel, us);
            if !lines.is_empty() {
                assert_eq!(lines, [format!("data 0 e{} ack_now", epoch + 1)]);
                break;
            }
        }
        waits.push(us - before);
        us += 50;
    }
    assert_eq!(waits, [1000, 2000, 4000]);
}

#[test]
fn acknowledgement_beyond_the_rejected_packet_is_accepted() {
    // [PM-R18]: the peer accepted a run and acknowledges only the last packet.
    let mut channel = channel();
    for bytes in [1, 2, 3] {
        channel.send(message(PEER, bytes)).unwrap();
    }
    assert_eq!(sent(&mut channel, 0).len(), 3);
    reject(&mut channel, 50, 0, 0);
    ack(&mut channel, 60, 2);
    assert_eq!(sent(&mut channel, 60), ["data 2 e1 @0+3 ack_now"]);
}

#[test]
fn rejection_of_an_earlier_round_is_ignored() {
    // [PM-R18]
    let mut channel = channel();
    channel.send(message(PEER, 1)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 1);
    reject(&mut channel, 50, 0, 0);
    resume(&mut channel, 60, 0, 0);
    assert_eq!(sent(&mut channel, 60), ["data 0 e1 @0+1 ack_now"]);
    reject(&mut channel, 70, 0, 0);
    channel.send(message(PEER, 2)).unwrap();
    assert_eq!(sent(&mut channel, 80), NOTHING, "the probe is not answered");
    ack(&mut channel, 90, 1);
    assert_eq!(sent(&mut channel, 90), ["data 1 e1 @0+2"]);
}

#[test]
fn resume_after_a_lost_rejection_retransmits_everything() {
    // [PM-R18]: otherwise each packet that the peer has discarded would wait for a timer.
    let mut channel = channel();
    channel.send(message(PEER, 496)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 2);
    resume(&mut channel, 50, 0, 0);
    assert_eq!(sent(&mut channel, 50), ["data 0 e1 @0+240", "data 1 e1 @240+256 ack_now"]);
    resume(&mut channel, 60, 0, 0);
    assert_eq!(sent(&mut channel, 60), NOTHING);
}

#[test]
fn packet_reported_and_then_discarded_is_retransmitted() {
    // [PM-R16, R18]: a peer that rejects discards the packets it had stashed.
    let mut channel = channel();
    channel.send(message(PEER, 752)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 3);
    nack(&mut channel, 50, 0, &[1, 2]);
    assert_eq!(sent(&mut channel, 50), ["data 0 e0 @0+240 ack_now"]);
    ack(&mut channel, 100, 1);
    assert_eq!(sent(&mut channel, 100), ["data 1 e0 @240+256", "data 2 e0 @496+256 ack_now"]);
}

#[test]
fn rejected_rank_is_resumed_immediately_when_a_receive_is_posted() {
    let mut channel = channel();
    (0..5).for_each(|seq| _ = hand_first(&mut channel, 0, PEER, seq, 100, 100));
    assert!(sent(&mut channel, 0).iter().any(|line| line.ends_with("reject")));
    channel.receive(at(10), Pattern { tag: Some(6), ..from(PEER) }, 100).unwrap();
    assert!(sent(&mut channel, 10).iter().any(|line| line.ends_with("resume")));
}
