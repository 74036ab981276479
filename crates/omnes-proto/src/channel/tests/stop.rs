//! A channel that is stopped, becomes stable and is resumed.

use super::*;

#[test]
fn stopped_channel_is_stable_once_all_packets_are_answered() {
    // [PM-R20, R21]
    let mut channel = channel();
    channel.send(message(PEER, 496)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 2);
    channel.stop(at(10));
    channel.send(message(PEER, 1)).unwrap();
    assert_eq!(sent(&mut channel, 10), NOTHING);
    ack(&mut channel, 40, 1);
    assert!(!channel.is_stable());
    ack(&mut channel, 50, 2);
    assert!(channel.is_stable());
    assert!(events(&mut channel).contains(&Event::Stable));
    channel.resume(at(60));
    assert_eq!(sent(&mut channel, 60), ["data 2 e0 @0+1"]);
}

#[test]
fn stopped_channel_sends_owed_and_later_acknowledgements() {
    // [PM-R21, R23]: otherwise the peers would never become stable.
    let mut channel = channel();
    channel.receive(at(0), from(PEER), 2048).unwrap();
    hand_first(&mut channel, 10, PEER, 0, 752, FIRST);
    channel.stop(at(20));
    assert!(!channel.is_stable());
    assert_eq!(sent(&mut channel, 20), ["ack expects 1 e0"]);
    assert!(channel.is_stable());
    let mut next = header(PEER, Kind::Data, 1, 0);
    next.flags = Flags::ACK_NOW;
    assert!(hand(&mut channel, at(30), next, &[], NEXT).is_some());
    assert_eq!(sent(&mut channel, 30), ["ack expects 2 e0"]);
}

#[test]
fn stopped_channel_retransmits_packets_in_flight() {
    // [PM-R20], D-04
    let mut channel = channel();
    channel.send(message(PEER, 1)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 1);
    channel.stop(at(10));
    let timeout = channel.poll_timeout().unwrap().as_ns() / 1000;
    assert_eq!(sent(&mut channel, timeout), ["data 0 e1 @0+1 ack_now"]);
}

#[test]
fn rejected_packet_is_not_probed_while_the_channel_is_stopped() {
    // [PM-R20]
    let mut channel = channel();
    channel.send(message(PEER, 1)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 1);
    reject(&mut channel, 50, 0, 0);
    channel.stop(at(60));
    assert!(channel.is_stable());
    resume(&mut channel, 70, 0, 0);
    for ms in 1..30 {
        assert_eq!(sent(&mut channel, ms * 1000), NOTHING);
    }
    assert_eq!(events(&mut channel), [Event::Stable]);
    channel.resume(at(30_000));
    assert_eq!(sent(&mut channel, 30_000), ["data 0 e1 @0+1 ack_now"]);
}

#[test]
fn unanswered_probe_keeps_a_stopped_channel_unstable() {
    // [PM-R20]: the answer to the probe is outstanding.
    let mut channel = channel();
    channel.send(message(PEER, 1)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 1);
    reject(&mut channel, 50, 0, 0);
    let probe_at = channel.poll_timeout().unwrap().as_ns() / 1000;
    assert_eq!(sent(&mut channel, probe_at).len(), 1);
    channel.stop(at(probe_at + 10));
    assert!(!channel.is_stable());
    reject(&mut channel, probe_at + 50, 0, 1);
    assert!(channel.is_stable());
}

#[test]
fn peer_timeout_counts_from_the_end_of_a_pause() {
    let mut channel = channel();
    channel.send(message(PEER, 10)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 1);
    channel.on_pause(at(60_000_000));
    assert_eq!(sent(&mut channel, 60_000_000), ["data 0 e1 @0+10 ack_now"]);
    assert_eq!(events(&mut channel), []);
    let silent_at = loop {
        let us = channel.poll_timeout().unwrap().as_ns() / 1000;
        sent(&mut channel, us);
        if events(&mut channel) == [Event::PeerSilent { rank: PEER }] {
            break us;
        }
    };
    // Four seconds, and the longest wait between two repetitions.
    assert!((64_000_000..=64_500_000).contains(&silent_at), "{silent_at}");
}
