//! Scripts: one end of a channel, with the exact packets in and out, their times, and no others.
//!
//! Output is compared as text, one line per packet: kind, number, epoch, position of its data,
//! flags. Settings are small: 256 data bytes per packet, a window of 8 packets, 4 slots.

#![allow(clippy::unwrap_used)]

mod abandoned;
mod asking;
mod cut;
mod full_pool;
mod gone;
mod notice;
mod receive;
mod reject;
mod round_trip;
mod send;
mod silence;
mod stop;

use super::*;
use crate::packet::{Head, Origin, Placement, Target};
use omnes_wire::{
    CommunicatorId, Envelope, Flags, GapMap, Header, Kind, PACKET_OVERHEAD_BYTES, Seq, TAG_BYTES,
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

fn config() -> ChannelConfig {
    ChannelConfig {
        payload_bytes: 256,
        eager_bytes: 2048,
        eager_head_bytes: 496,
        pool_slots: 4,
        window_packets: 8,
        ack_packets: 3,
        ..ChannelConfig::default()
    }
}

fn channel() -> Channel {
    Channel::new(ChannelId(0), 0, ME, 3, config().build().unwrap())
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
        communicator: COMMUNICATOR,
        seq: Seq::nth(seq),
        expects: Seq::nth(expects),
        ..Header::blank(kind, source)
    }
}

/// Passes in a packet with this control body and `data` bytes of data.
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

/// Passes in the first packet of a message of `bytes` bytes, with `data` of them.
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
        map.insert(Seq::nth(expects), Seq::nth(*seq));
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

/// All packets that the channel sends at this time.
fn sent(channel: &mut Channel, us: u64) -> Vec<String> {
    channel.handle_timeout(at(us));
    let mut head = Head::default();
    let mut lines = Vec::new();
    while let Some(outbound) = channel.poll_transmit(at(us), &mut head) {
        let Header { kind, seq, expects, epoch, flags, .. } = outbound.header;
        let mut line = format!("{kind:?}").to_lowercase();
        match kind {
            Kind::Data | Kind::Grant => line += &format!(" {}", seq.index()),
            _ => line += &format!(" expects {}", expects.index()),
        }
        line += &format!(" e{epoch}");
        if let Some(segment) = outbound.segment {
            line += &format!(" @{}+{}", segment.offset, segment.bytes);
        }
        let marks = [
            (Flags::BULK, "bulk"),
            (Flags::ACK_NOW, "ack_now"),
            (Flags::REJECT, if kind == Kind::Data { "cut" } else { "reject" }),
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
