//! Scripts: one end of a channel, exact packets in and out with their times, and nothing else.
//!
//! What goes out is compared as text, one line per packet: kind, number, epoch, place of its
//! data, marks. Settings are small: 256 data bytes per packet, a window of 8 packets, 4 slots.

#![allow(clippy::unwrap_used)]

mod asking;

use super::*;
use crate::packet::{Head, Origin, Placement, Target};
use omnes_wire::{
    CommunicatorId, Envelope, Flags, GapMap, Header, JobId, Kind, PACKET_OVERHEAD_BYTES, Seq,
    TAG_BYTES,
};

const ME: Rank = Rank(0);
const PEER: Rank = Rank(1);
const OTHER: Rank = Rank(2);
const COMMUNICATOR: CommunicatorId = CommunicatorId(1);
/// Data bytes of the first packet of a message, and of the others.
const FIRST: usize = 240;
const NEXT: usize = 256;

fn at(us: u64) -> Instant {
    Instant::from_ns(us * 1000)
}

fn channel() -> Channel {
    let config = ChannelConfig {
        payload_bytes: 256,
        eager_bytes: 2048,
        eager_head_bytes: 496,
        pool_slots: 4,
        window_packets: 8,
        ack_packets: 3,
        ..ChannelConfig::default()
    };
    Channel::new(ChannelId(0), 0, ME, 3, config.build().unwrap())
}

/// A lazy message of `bytes` with tag 5.
fn message(to: Rank, bytes: u64) -> Message {
    let reply = Reply::Lazy;
    Message { to, communicator: COMMUNICATOR, tag: 5, bytes, available: bytes, reply }
}

fn from(source: Rank) -> Pattern {
    Pattern { communicator: COMMUNICATOR, source: Some(source), tag: Some(5) }
}

fn header(source: Rank, kind: Kind, seq: u32, expects: u32) -> Header {
    Header {
        kind,
        job: JobId(0),
        communicator: COMMUNICATOR,
        channel: ChannelId(0),
        flags: Flags::NONE,
        source,
        seq: Seq(seq),
        expects: Seq(expects),
        epoch: 0,
        credits: 0,
        argument: 0,
    }
}

/// Hands in a packet with this control body and `data` bytes of data.
fn hand(
    channel: &mut Channel,
    now: Instant,
    header: Header,
    body: &[u8],
    data: usize,
) -> Option<Placement> {
    let mut head = header.emit().to_vec();
    head.extend_from_slice(&[0; TAG_BYTES]);
    head.extend_from_slice(body);
    let packet_bytes = head.len() + data;
    channel.handle_packet(now, &header, &head, packet_bytes)
}

/// First packet of a message of `bytes`, with `data` of them.
fn hand_first(
    channel: &mut Channel,
    us: u64,
    source: Rank,
    seq: u32,
    bytes: u64,
    data: usize,
) -> Option<Placement> {
    let mut header = header(source, Kind::Data, seq, 0);
    header.flags = Flags::FIRST;
    let envelope = Envelope { tag: 5, token: 9, bytes }.emit();
    hand(channel, at(us), header, &envelope, data)
}

fn ack(channel: &mut Channel, us: u64, expects: u32) {
    hand(channel, at(us), header(PEER, Kind::Ack, 0, expects), &[], 0);
}

fn nack(channel: &mut Channel, us: u64, expects: u32, arrived: &[u32]) {
    let mut map = GapMap::default();
    for seq in arrived {
        map.insert(Seq(expects), Seq(*seq));
    }
    hand(channel, at(us), header(PEER, Kind::Nack, 0, expects), map.as_bytes(), 0);
}

fn reject(channel: &mut Channel, us: u64, expects: u32, epoch: u16) {
    let flags = Flags::REJECT;
    let header = Header { flags, epoch, ..header(PEER, Kind::Nack, 0, expects) };
    hand(channel, at(us), header, &[], 0);
}

fn resume(channel: &mut Channel, us: u64, expects: u32, epoch: u16) {
    let flags = Flags::RESUME;
    let header = Header { flags, epoch, ..header(PEER, Kind::Ack, 0, expects) };
    hand(channel, at(us), header, &[], 0);
}

/// Everything that the channel wants to send at this time.
fn sent(channel: &mut Channel, us: u64) -> Vec<String> {
    channel.handle_timeout(at(us));
    let mut head = Head::default();
    let mut lines = Vec::new();
    while let Some(outbound) = channel.poll_transmit(at(us), &mut head) {
        let Header { kind, seq, expects, epoch, flags, .. } = outbound.header;
        let mut line = format!("{kind:?}").to_lowercase();
        match kind {
            Kind::Data | Kind::Grant => line += &format!(" {}", seq.0),
            _ => line += &format!(" expects {}", expects.0),
        }
        line += &format!(" e{epoch}");
        if let Some(segment) = outbound.segment {
            line += &format!(" @{}+{}", segment.offset, segment.bytes);
        }
        let marks = [
            (Flags::BULK, "bulk"),
            (Flags::ACK_NOW, "ack_now"),
            (Flags::REJECT, "reject"),
            (Flags::RESUME, "resume"),
        ];
        for (_, name) in marks.iter().filter(|(flag, _)| flags.has(*flag)) {
            line += &format!(" {name}");
        }
        if outbound.to != PEER {
            line += &format!(" to {}", outbound.to);
        }
        lines.push(line);
    }
    lines
}

fn events(channel: &mut Channel) -> Vec<Event> {
    std::iter::from_fn(|| channel.poll_event()).collect()
}

fn moves(channel: &mut Channel) -> Vec<Move> {
    std::iter::from_fn(|| channel.poll_move()).collect()
}

const NOTHING: [&str; 0] = [];

// ---- the sender -----------------------------------------------------------------------------

#[test]
fn acknowledgement_frees_all_packets_before_it() {
    // [PM-R13]
    let mut channel = channel();
    let first = channel.send(at(0), message(PEER, 496)).unwrap();
    let second = channel.send(at(0), message(PEER, 10)).unwrap();
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
fn gap_report_frees_what_is_before_it_and_repeats_only_what_is_missing() {
    // [PM-R13], D-01
    let mut channel = channel();
    channel.send(at(0), message(PEER, 1264)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 5);
    nack(&mut channel, 50, 1, &[2, 4]);
    assert_eq!(sent(&mut channel, 50), ["data 1 e0 @240+256", "data 3 e0 @752+256 ack_now"]);
    // The same report again cannot have seen the repairs.
    nack(&mut channel, 70, 1, &[2, 4]);
    assert_eq!(sent(&mut channel, 70), NOTHING);
}

#[test]
fn rejected_sender_sends_nothing_new_until_it_is_acknowledged() {
    // [PM-R13, R14]
    let mut channel = channel();
    channel.send(at(0), message(PEER, 0)).unwrap();
    channel.send(at(0), message(PEER, 10)).unwrap();
    assert_eq!(sent(&mut channel, 0), ["data 0 e0", "data 1 e0 @0+10"]);
    reject(&mut channel, 50, 0, 0);
    channel.send(at(60), message(PEER, 20)).unwrap();
    assert_eq!(sent(&mut channel, 60), NOTHING);
    // The probe; then any answer beyond it brings back all that was discarded, and the new.
    let probe_at = channel.poll_timeout().unwrap().as_ns() / 1000;
    assert_eq!(sent(&mut channel, probe_at), ["data 0 e1 ack_now"]);
    ack(&mut channel, probe_at + 50, 1);
    assert_eq!(sent(&mut channel, probe_at + 50), ["data 1 e1 @0+10 ack_now", "data 2 e1 @0+20"]);
}

#[test]
fn second_rejection_is_probed_again_after_a_longer_wait() {
    // [PM-R14, R18]
    let mut channel = channel();
    channel.send(at(0), message(PEER, 0)).unwrap();
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
fn acknowledgement_may_skip_the_rejected_packet() {
    // [PM-R18]: the peer took in a run and answers its last only.
    let mut channel = channel();
    for bytes in [1, 2, 3] {
        channel.send(at(0), message(PEER, bytes)).unwrap();
    }
    assert_eq!(sent(&mut channel, 0).len(), 3);
    reject(&mut channel, 50, 0, 0);
    ack(&mut channel, 60, 2);
    assert_eq!(sent(&mut channel, 60), ["data 2 e1 @0+3 ack_now"]);
}

#[test]
fn rejection_of_an_earlier_round_is_not_believed() {
    // [PM-R18]
    let mut channel = channel();
    channel.send(at(0), message(PEER, 1)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 1);
    reject(&mut channel, 50, 0, 0);
    resume(&mut channel, 60, 0, 0);
    assert_eq!(sent(&mut channel, 60), ["data 0 e1 @0+1 ack_now"]);
    reject(&mut channel, 70, 0, 0);
    channel.send(at(80), message(PEER, 2)).unwrap();
    assert_eq!(sent(&mut channel, 80), ["data 1 e1 @0+2"]);
}

#[test]
fn resume_whose_rejection_was_lost_brings_everything_back() {
    // [PM-R18]: else what the peer has discarded would wait for a timer each.
    let mut channel = channel();
    channel.send(at(0), message(PEER, 496)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 2);
    resume(&mut channel, 50, 0, 0);
    assert_eq!(sent(&mut channel, 50), ["data 0 e1 @0+240", "data 1 e1 @240+256 ack_now"]);
    resume(&mut channel, 60, 0, 0);
    assert_eq!(sent(&mut channel, 60), NOTHING);
}

#[test]
fn packet_that_was_reported_and_then_discarded_is_sent_again() {
    // [PM-R16, R18]: a peer that rejects discards what it had kept ahead.
    let mut channel = channel();
    channel.send(at(0), message(PEER, 752)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 3);
    nack(&mut channel, 50, 0, &[1, 2]);
    assert_eq!(sent(&mut channel, 50), ["data 0 e0 @0+240 ack_now"]);
    ack(&mut channel, 100, 1);
    assert_eq!(sent(&mut channel, 100), ["data 1 e0 @240+256", "data 2 e0 @496+256 ack_now"]);
}

#[test]
fn timer_repeats_the_oldest_and_its_answer_shows_what_else_is_lost() {
    // [PM-R18]
    let mut channel = channel();
    channel.send(at(0), message(PEER, 752)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 3);
    let timeout = channel.poll_timeout().unwrap().as_ns() / 1000;
    assert_eq!(sent(&mut channel, timeout - 1), NOTHING);
    assert_eq!(sent(&mut channel, timeout), ["data 0 e1 @0+240 ack_now"]);
    // An answer from before the timer proves nothing; one that has seen the round does.
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
fn peer_owes_its_answer_since_the_end_of_a_pause() {
    let mut channel = channel();
    channel.send(at(0), message(PEER, 10)).unwrap();
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

#[test]
fn window_bounds_what_is_sent_without_an_answer() {
    // [PM-R19]: the cost of optimism has a bound here.
    let mut channel = channel();
    channel.send(at(0), message(PEER, 2048)).unwrap();
    channel.send(at(0), message(PEER, 2048)).unwrap();
    let lines = sent(&mut channel, 0);
    assert_eq!(lines.len(), 8);
    assert_eq!(lines[7], "data 7 e0 @1776+256 ack_now");
    ack(&mut channel, 50, 1);
    assert_eq!(sent(&mut channel, 50), ["data 8 e0 @2032+16 ack_now"]);
}

#[test]
fn what_the_way_to_a_rank_holds_bounds_what_is_sent_to_it() {
    let mut channel = channel();
    channel.limit_flight(PEER, 3 * Checked::charge(256));
    channel.send(at(0), message(PEER, 2048)).unwrap();
    channel.send(at(0), message(OTHER, 1)).unwrap();
    let lines = sent(&mut channel, 0);
    assert_eq!(lines.len(), 4, "{lines:?}");
    // Half of what may be in flight is out, and then all of it: an answer is asked for.
    assert_eq!(lines[1..3], ["data 1 e0 @240+256 ack_now", "data 2 e0 @496+256 ack_now"]);
    assert_eq!(lines[3], "data 0 e0 @0+1 to 2");
    ack(&mut channel, 50, 1);
    assert_eq!(sent(&mut channel, 50).len(), 1);
}

#[test]
fn sender_knows_the_fate_of_every_message() {
    // [PM-R19]: the known benefit: delivered, to be sent again, or never sent.
    let mut channel = channel();
    let delivered = channel.send(at(0), message(PEER, 1)).unwrap();
    channel.send(at(0), message(PEER, 2)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 2);
    channel.stop(at(10));
    channel.send(at(10), message(PEER, 3)).unwrap();
    reject(&mut channel, 50, 1, 0);
    assert_eq!(events(&mut channel), [Event::Sent { id: delivered }, Event::Stable]);
    channel.resume(at(100));
    assert_eq!(sent(&mut channel, 100), ["data 1 e1 @0+2 ack_now"]);
    ack(&mut channel, 150, 2);
    assert_eq!(sent(&mut channel, 150), ["data 2 e1 @0+3"]);
}

#[test]
fn message_follows_its_bytes_as_they_become_available() {
    // [PM-R7]
    let mut channel = channel();
    let partial = Message { available: 100, ..message(PEER, 600) };
    let id = channel.send(at(0), partial).unwrap();
    assert_eq!(sent(&mut channel, 0), NOTHING);
    channel.extend(at(10), id, FIRST as u64);
    assert_eq!(sent(&mut channel, 10), ["data 0 e0 @0+240"]);
    channel.extend(at(20), id, 599);
    assert_eq!(sent(&mut channel, 20), ["data 1 e0 @240+256"]);
    // Bytes that were there once stay there, and there are no more than the message has.
    channel.extend(at(30), id, 10);
    channel.extend(at(30), id, 10_000);
    assert_eq!(sent(&mut channel, 30), ["data 2 e0 @496+104"]);
}

#[test]
fn message_that_is_not_here_yet_holds_up_only_those_that_could_be_taken_for_it() {
    let mut channel = channel();
    let awaited = Message { available: 0, ..message(PEER, 300) };
    let id = channel.send(at(0), awaited).unwrap();
    channel.send(at(0), message(PEER, 10)).unwrap();
    assert_eq!(sent(&mut channel, 0), NOTHING, "the same communicator and tag");
    channel.send(at(10), Message { tag: 6, ..message(PEER, 11) }).unwrap();
    let elsewhere = Message { communicator: CommunicatorId(2), ..message(PEER, 12) };
    channel.send(at(10), elsewhere).unwrap();
    assert_eq!(sent(&mut channel, 10), ["data 0 e0 @0+11", "data 1 e0 @0+12"]);
    channel.extend(at(20), id, FIRST as u64);
    assert_eq!(sent(&mut channel, 20), ["data 2 e0 @0+240"]);
    channel.send(at(30), Message { tag: 6, ..message(PEER, 13) }).unwrap();
    assert_eq!(sent(&mut channel, 30), NOTHING, "nothing comes between the parts of a message");
    channel.extend(at(40), id, 300);
    let rest = ["data 3 e0 @240+60", "data 4 e0 @0+10", "data 5 e0 @0+13"];
    assert_eq!(sent(&mut channel, 40), rest);
}

// ---- the receiver ---------------------------------------------------------------------------

#[test]
fn run_of_packets_is_answered_by_one_acknowledgement() {
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
fn packet_without_buffer_is_rejected_once_and_what_follows_is_discarded_silently() {
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
    // A receive takes the oldest message: its buffer is free, and the peer is told so.
    channel.receive(at(40), from(PEER), 10).unwrap();
    assert_eq!(moves(&mut channel).len(), 1);
    assert_eq!(sent(&mut channel, 40), ["ack expects 4 e0 resume"]);
    assert!(hand_first(&mut channel, 50, PEER, 4, 10, 10).is_some());
    channel.stop(at(50));
    assert_eq!(sent(&mut channel, 50), ["ack expects 5 e0"]);
}

#[test]
fn packet_that_comes_again_and_still_does_not_fit_is_rejected_again() {
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
fn rejection_concerns_its_sender_only() {
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
    // [PM-R17]: whoever comes first takes them, and nobody has a share of its own.
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
fn empty_message_that_came_ahead_is_not_lost_when_too_many_wait() {
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
fn single_gap_is_reported_once_however_much_follows() {
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
fn data_go_straight_into_the_memory_of_the_receive() {
    // [PM-R11]
    let mut channel = channel();
    let id = channel.receive(at(0), from(PEER), 300).unwrap();
    let first = hand_first(&mut channel, 10, PEER, 0, 400, FIRST).unwrap();
    let (target, packet_offset) = (Target::Receive(id), PACKET_OVERHEAD_BYTES + 16);
    assert_eq!(first, Placement { channel: 0, target, offset: 0, packet_offset, bytes: FIRST });
    // What exceeds the receive is cut off.
    let rest = hand(&mut channel, at(11), header(PEER, Kind::Data, 1, 0), &[], 160).unwrap();
    let (offset, packet_offset) = (FIRST as u64, PACKET_OVERHEAD_BYTES);
    assert_eq!(rest, Placement { channel: 0, target, offset, packet_offset, bytes: 60 });
    assert_eq!(events(&mut channel), [Event::Received { id, from: PEER, tag: 5, bytes: 400 }]);
    assert_eq!(moves(&mut channel), []);
}

#[test]
fn data_that_nobody_has_asked_for_wait_in_buffers_until_they_are_consumed_in_place() {
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
fn length_that_packet_numbers_cannot_count_is_refused() {
    let mut channel = channel();
    channel.receive(at(0), from(PEER), 100).unwrap();
    assert_eq!(hand_first(&mut channel, 10, PEER, 0, u64::MAX, FIRST), None);
    assert_eq!(channel.counters().malformed, 1);
    let bytes = channel.config().message_bytes_max() + 1;
    let refused = channel.send(at(20), message(PEER, bytes)).unwrap_err();
    assert!(matches!(refused, ChannelError::MessageTooLarge { .. }));
}

#[test]
fn packet_that_no_slot_holds_is_dropped() {
    let mut channel = channel();
    let payload = usize::from(channel.config().payload_bytes);
    assert_eq!(hand_first(&mut channel, 10, PEER, 0, 1000, payload + 1), None);
    assert_eq!(channel.counters().malformed, 1);
    assert!(hand_first(&mut channel, 20, PEER, 0, 1000, payload - 16).is_some());
}

// ---- large messages -------------------------------------------------------------------------

#[test]
fn large_message_waits_for_its_grant_and_does_not_block_the_next() {
    let mut channel = channel();
    let id = channel.send(at(0), message(PEER, 3000)).unwrap();
    channel.send(at(0), message(PEER, 1)).unwrap();
    assert_eq!(sent(&mut channel, 0), ["data 0 e0 @0+240", "data 1 e0 @240+256", "data 2 e0 @0+1"]);
    let flags = Flags::GRANTS;
    let grant = Header { argument: id.0, flags, ..header(PEER, Kind::Grant, 0, 0) };
    hand(&mut channel, at(50), grant, &[], 0);
    let lines = sent(&mut channel, 50);
    assert_eq!(lines[0], "data 0 e0 @496+256 bulk");
    assert_eq!(lines.len(), 8);
    // A second grant of the same message is nonsense.
    let grant = Header { seq: Seq(1), ..grant };
    hand(&mut channel, at(60), grant, &[], 0);
    assert_eq!(channel.counters().malformed, 1);
}

// ---- channels and the context switch --------------------------------------------------------

#[test]
fn message_travels_on_its_own_channel_only() {
    // [PM-R1]
    let config = ChannelConfig::default().build().unwrap();
    let mut second = Channel::new(ChannelId(1), 1, ME, 3, config);
    second.send(at(0), message(PEER, 1)).unwrap();
    let outbound = second.poll_transmit(at(0), &mut Head::default()).unwrap();
    assert_eq!((outbound.header.channel, outbound.to), (ChannelId(1), PEER));
    // It is asynchronous: the next can be sent before anything is known of the first.
    second.send(at(1), message(PEER, 1)).unwrap();
    assert!(second.poll_transmit(at(1), &mut Head::default()).is_some());
}

#[test]
fn stopped_channel_is_stable_once_all_answers_are_in() {
    // [PM-R20, R21]
    let mut channel = channel();
    channel.send(at(0), message(PEER, 496)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 2);
    channel.stop(at(10));
    channel.send(at(10), message(PEER, 1)).unwrap();
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
fn stopped_channel_gives_the_answers_that_it_owes_and_those_that_follow() {
    // [PM-R21, R23]: or the peers would never become stable.
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
fn stopped_channel_repairs_what_is_in_flight() {
    // [PM-R20], D-04
    let mut channel = channel();
    channel.send(at(0), message(PEER, 1)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 1);
    channel.stop(at(10));
    let timeout = channel.poll_timeout().unwrap().as_ns() / 1000;
    assert_eq!(sent(&mut channel, timeout), ["data 0 e1 @0+1 ack_now"]);
}

#[test]
fn rejected_packet_is_not_probed_while_the_channel_is_stopped() {
    // [PM-R20]
    let mut channel = channel();
    channel.send(at(0), message(PEER, 1)).unwrap();
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
fn probe_under_way_keeps_a_stopped_channel_from_being_stable() {
    // [PM-R20]: its answer is expected.
    let mut channel = channel();
    channel.send(at(0), message(PEER, 1)).unwrap();
    assert_eq!(sent(&mut channel, 0).len(), 1);
    reject(&mut channel, 50, 0, 0);
    let probe_at = channel.poll_timeout().unwrap().as_ns() / 1000;
    assert_eq!(sent(&mut channel, probe_at).len(), 1);
    channel.stop(at(probe_at + 10));
    assert!(!channel.is_stable());
    reject(&mut channel, probe_at + 50, 0, 1);
    assert!(channel.is_stable());
}
