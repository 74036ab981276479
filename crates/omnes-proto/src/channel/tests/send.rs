//! What is sent and when, and what its answers free and retransmit.

use super::*;

#[test]
fn acknowledgement_frees_all_packets_before_it() {
    // [PM-R13]
    let mut channel = channel();
    let first = channel.send(message(PEER, 496)).unwrap();
    let second = channel.send(message(PEER, 10)).unwrap();
    assert_eq!(
        sent(&mut channel, 0),
        ["data 0 e0 @0+240", "data 1 e0 @240+256", "data 2 e0 @0+10"]
    );
    ack(&mut channel, 50, 1);
    assert_eq!(events(&mut channel), []);
    ack(&mut channel, 60, 3);
    assert_eq!(events(&mut channel), [Event::Sent { id: first }, Event::Sent { id: second }]);
    assert_eq!(sent(&mut channel, 60), NOTHING);
    assert!(channel.is_idle());
}

#[test]
fn gap_report_frees_earlier_packets_and_repeats_only_missing_ones() {
    // [PM-R13], D-01
    let mut channel = channel();
    channel.send(message(PEER, 1264)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 5);
    nack(&mut channel, 50, 1, &[2, 4]);
    assert_eq!(sent(&mut channel, 50), ["data 1 e0 @240+256", "data 3 e0 @752+256 ack_now"]);
    // The repeated report cannot reflect the repairs.
    nack(&mut channel, 70, 1, &[2, 4]);
    assert_eq!(sent(&mut channel, 70), NOTHING);
}

#[test]
fn timer_repeats_the_oldest_packet_and_its_answer_reveals_other_losses() {
    // [PM-R18]
    let mut channel = channel();
    channel.send(message(PEER, 752)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 3);
    let timeout = channel.poll_timeout().unwrap().as_ns() / 1000;
    assert_eq!(sent(&mut channel, timeout - 1), NOTHING);
    assert_eq!(sent(&mut channel, timeout), ["data 0 e1 @0+240 ack_now"]);
    // An answer sent before the timer expired proves nothing; one that has seen the round does.
    ack(&mut channel, timeout + 10, 1);
    assert_eq!(sent(&mut channel, timeout + 10), NOTHING);
    let seen = Header { epoch: 1, ..header(PEER, Kind::Ack, 0, 1) };
    hand(&mut channel, at(timeout + 20), seen, &[], 0);
    assert_eq!(
        sent(&mut channel, timeout + 20),
        ["data 1 e1 @240+256", "data 2 e1 @496+256 ack_now"]
    );
}

#[test]
fn window_bounds_unacknowledged_packets() {
    // [PM-R19]: the cost of optimism is bounded here.
    let mut channel = channel();
    channel.send(message(PEER, 2048)).unwrap();
    channel.send(message(PEER, 2048)).unwrap();
    let lines = sent(&mut channel, 0);
    assert_eq!(lines.len(), 8);
    assert_eq!(lines[7], "data 7 e0 @1776+256 ack_now");
    ack(&mut channel, 50, 1);
    assert_eq!(sent(&mut channel, 50), ["data 8 e0 @2032+16 ack_now"]);
}

#[test]
fn flight_limit_of_a_path_bounds_packets_in_flight() {
    let mut channel = channel();
    channel.limit_flight(PEER, 3 * Checked::charge(256));
    channel.send(message(PEER, 2048)).unwrap();
    channel.send(message(OTHER, 1)).unwrap();
    let lines = sent(&mut channel, 0);
    assert_eq!(lines.len(), 4, "{lines:?}");
    // Half of the window is in flight, and then all of it: an answer is requested.
    assert_eq!(lines[1..3], ["data 1 e0 @240+256 ack_now", "data 2 e0 @496+256 ack_now"]);
    assert_eq!(lines[3], "data 0 e0 @0+1 to 2");
    ack(&mut channel, 50, 1);
    assert_eq!(sent(&mut channel, 50).len(), 1);
}

#[test]
fn sender_knows_the_fate_of_every_message() {
    // [PM-R19]: the known benefit: delivered, to be sent again, or never sent.
    let mut channel = channel();
    let delivered = channel.send(message(PEER, 1)).unwrap();
    channel.send(message(PEER, 2)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 2);
    channel.stop(at(10));
    channel.send(message(PEER, 3)).unwrap();
    reject(&mut channel, 50, 1, 0);
    assert_eq!(events(&mut channel), [Event::Sent { id: delivered }, Event::Stable]);
    channel.resume(at(100));
    assert_eq!(sent(&mut channel, 100), ["data 1 e1 @0+2 ack_now"]);
    ack(&mut channel, 150, 2);
    assert_eq!(sent(&mut channel, 150), ["data 2 e1 @0+3"]);
}

#[test]
fn message_is_sent_as_its_bytes_become_available() {
    // [PM-R7]
    let mut channel = channel();
    let partial = Message { available: 100, ..message(PEER, 600) };
    let id = channel.send(partial).unwrap();
    assert_eq!(sent(&mut channel, 0), NOTHING);
    channel.extend(id, FIRST as u64);
    assert_eq!(sent(&mut channel, 10), ["data 0 e0 @0+240"]);
    channel.extend(id, 599);
    assert_eq!(sent(&mut channel, 20), ["data 1 e0 @240+256"]);
    // The number of available bytes never decreases, and never exceeds the message's length.
    channel.extend(id, 10);
    channel.extend(id, 10_000);
    assert_eq!(sent(&mut channel, 30), ["data 2 e0 @496+104"]);
}

#[test]
fn unavailable_message_delays_only_messages_with_the_same_matching() {
    let mut channel = channel();
    let awaited = Message { available: 0, ..message(PEER, 300) };
    let id = channel.send(awaited).unwrap();
    channel.send(message(PEER, 10)).unwrap();
    assert_eq!(sent(&mut channel, 0), NOTHING, "the same communicator and tag");
    channel.send(Message { tag: 6, ..message(PEER, 11) }).unwrap();
    let elsewhere = Message { communicator: CommunicatorId(2), ..message(PEER, 12) };
    channel.send(elsewhere).unwrap();
    assert_eq!(sent(&mut channel, 10), ["data 0 e0 @0+11", "data 1 e0 @0+12"]);
    channel.extend(id, FIRST as u64);
    assert_eq!(sent(&mut channel, 20), ["data 2 e0 @0+240"]);
    channel.send(Message { tag: 6, ..message(PEER, 13) }).unwrap();
    assert_eq!(sent(&mut channel, 30), NOTHING, "nothing comes between the parts of a message");
    channel.extend(id, 300);
    let rest = ["data 3 e0 @240+60", "data 4 e0 @0+10", "data 5 e0 @0+13"];
    assert_eq!(sent(&mut channel, 40), rest);
}

#[test]
fn large_message_waits_for_its_grant_and_does_not_block_the_next() {
    let mut channel = channel();
    let id = channel.send(message(PEER, 3000)).unwrap();
    channel.send(message(PEER, 1)).unwrap();
    assert_eq!(sent(&mut channel, 0), ["data 0 e0 @0+240", "data 1 e0 @240+256", "data 2 e0 @0+1"]);
    let flags = Flags::GRANTS;
    let grant = Header { argument: id.0, flags, ..header(PEER, Kind::Grant, 0, 0) };
    hand(&mut channel, at(50), grant, &[], 0);
    let lines = sent(&mut channel, 50);
    assert_eq!(lines[0], "data 0 e0 @496+256 bulk");
    assert_eq!(lines.len(), 8);
    // A second grant of the same message is nonsense.
    let grant = Header { seq: Seq::nth(1), ..grant };
    hand(&mut channel, at(60), grant, &[], 0);
    assert_eq!(channel.counters().malformed, 1);
}

#[test]
fn message_is_sent_only_on_its_own_channel() {
    // [PM-R1]
    let config = ChannelConfig::default().build().unwrap();
    let mut second = Channel::new(ChannelId(1), 1, ME, 3, config);
    second.send(message(PEER, 1)).unwrap();
    let outbound = second.poll_transmit(at(0), &mut Head::default()).unwrap();
    assert_eq!((outbound.header.channel, outbound.to), (ChannelId(1), PEER));
    // Channels are asynchronous: the next packet can be sent before the first is answered.
    second.send(message(PEER, 1)).unwrap();
    assert!(second.poll_transmit(at(1), &mut Head::default()).is_some());
}
