//! Outgoing packets: answers first, then repairs, then new data; one peer's run at a time, so that
//! a driver can send it as one train.

use super::peer::{Lane, Peer};
use super::send_lane::Item;
use super::{Channel, Checked, Message, Outgoing, Phase, Reply};
use crate::lane::{Arrivals, Report};
use crate::limits::BURST_PACKETS;
use crate::packet::{Head, Segment, SendId, Source};
use omnes_wire::{ENVELOPE_BYTES, Envelope, Flags, Header, Instant, Kind, Rank, Seq};
use slab::Slab;
use std::collections::VecDeque;

/// Most messages not yet in memory that another message may overtake.
const OVERTAKEN_MAX: usize = 1024;

/// Packet about to be handed out, before the endpoint adds job and tag.
pub(crate) struct Outbound {
    pub(crate) to: Rank,
    pub(crate) header: Header,
    pub(crate) segment: Option<Segment>,
}

/// Position and length of a packet of a message, determined by its index in the lane's part.
pub(super) struct Shape {
    offset: u64,
    pub(super) bytes: u32,
    is_last: bool,
    is_cut: bool,
}

impl Channel {
    /// Hands out the next packet, which counts as sent from now on, and writes its control body to
    /// `head`. `None` means that there is nothing to send before the next input or timeout.
    pub(crate) fn poll_transmit(&mut self, now: Instant, head: &mut Head) -> Option<Outbound> {
        while let Some(rank) = self.ready.front().copied() {
            if let Some(outbound) = self.next_packet(now, rank, head) {
                self.burst += 1;
                if !self.peer(rank).has_due() {
                    self.retire(rank);
                } else if self.burst >= BURST_PACKETS && self.ready.len() > 1 {
                    self.burst = 0;
                    self.ready.rotate_left(1);
                }
                return Some(outbound);
            }
            self.retire(rank);
        }
        self.check_stable();
        None
    }

    /// Removes the peer at the front, which has nothing to send before the next input.
    fn retire(&mut self, rank: Rank) {
        self.burst = 0;
        self.ready.pop_front();
        self.peer(rank).is_ready = false;
        self.note_deadline(rank);
    }

    fn next_packet(&mut self, now: Instant, rank: Rank, head: &mut Head) -> Option<Outbound> {
        if let Some(outbound) = self.next_answer_or_repair(now, rank, head) {
            return Some(outbound);
        }
        if self.phase != Phase::Running {
            return None; // [PM-R21 C1]
        }
        self.next_grant(now, rank, head)
            .or_else(|| self.next_ordered(now, rank, head))
            .or_else(|| self.next_bulk(now, rank, head))
    }

    /// Next packet with precedence over new data. Once there is none, there is none until the next
    /// input, so that the check is not repeated for each packet of a run.
    fn next_answer_or_repair(
        &mut self,
        now: Instant,
        rank: Rank,
        head: &mut Head,
    ) -> Option<Outbound> {
        if self.peer(rank).has_only_data {
            return None;
        }
        let lanes = self.peer(rank).lanes();
        for lane in lanes.iter().copied() {
            if let Some(outbound) = self.next_report(now, rank, lane, head) {
                return Some(outbound);
            }
        }
        for lane in lanes.iter().copied() {
            if let Some(outbound) = self.next_repair(now, rank, lane, head) {
                return Some(outbound);
            }
        }
        self.peer(rank).has_only_data = true;
        None
    }

    // ---- answers --------------------------------------------------------------------------

    fn next_report(
        &mut self,
        now: Instant,
        rank: Rank,
        lane: Lane,
        head: &mut Head,
    ) -> Option<Outbound> {
        let peer = self.peer(rank);
        if peer.watch.asks.take_if(|asked| *asked == lane).is_some() {
            return Some(self.question(now, rank, lane, head));
        }
        let receive = &mut peer.receive[lane];
        let report = receive.take_report(now)?;
        let held_back = held_back_us(receive, now);
        let epoch = receive.epoch();
        let mut flags = lane.flags();
        let mut kind = Kind::Ack;
        head.set_body(&[]);
        match report {
            Report::Ack => self.counters.acks_sent += 1,
            Report::Nack => {
                kind = Kind::Nack;
                head.set_body(receive.gap_map().as_bytes());
                self.counters.nacks_sent += 1;
            }
            Report::Reject => {
                kind = Kind::Nack;
                flags = flags.with(Flags::REJECT);
                self.counters.rejects_sent += 1;
            }
            Report::Resume => {
                flags = flags.with(Flags::RESUME);
                self.counters.acks_sent += 1;
            }
        }
        let mut header = self.header(rank, lane, kind);
        header.flags = flags;
        header.epoch = epoch;
        header.argument = held_back;
        Some(Outbound { to: rank, header, segment: None })
    }

    /// Builds a question for an overdue packet; it acknowledges all packets before that one.
    fn question(&mut self, now: Instant, rank: Rank, lane: Lane, head: &mut Head) -> Outbound {
        self.counters.nacks_sent += 1;
        head.set_body(&[]);
        let mut header = self.header(rank, lane, Kind::Nack);
        let receive = &mut self.peer(rank).receive[lane];
        header.flags = header.flags.with(Flags::ACK_NOW);
        header.epoch = receive.epoch();
        header.argument = held_back_us(receive, now);
        receive.on_piggyback();
        Outbound { to: rank, header, segment: None }
    }

    // ---- repairs --------------------------------------------------------------------------

    fn next_repair(
        &mut self,
        now: Instant,
        rank: Rank,
        lane: Lane,
        head: &mut Head,
    ) -> Option<Outbound> {
        let is_running = self.phase == Phase::Running;
        let peer = self.peers.get_mut(rank)?;
        let send = &mut peer.send[lane];
        // A stopped channel asks only for the answer to an outstanding probe [PM-R20].
        let may_probe = is_running || send.is_probed();
        let is_probe = send.is_blocked() && may_probe && peer.probe_due[lane as usize];
        peer.probe_due[lane as usize] &= send.is_blocked() && !is_probe;
        let (seq, item) = if is_probe {
            send.take_probe(now)?
        } else if send.is_blocked() {
            return None; // not-to-send [PM-R13]
        } else {
            let lost = send.take_lost(now)?;
            send.arm(now, &peer.rtt, self.config.allowance());
            lost
        };
        let is_end = is_probe || !send.has_lost();
        self.counters.retransmits += 1;
        let mut outbound = self.numbered(rank, lane, seq, item, head);
        outbound.header.flags = outbound.header.flags.with_if(Flags::ACK_NOW, is_end);
        Some(outbound)
    }

    // ---- new data -------------------------------------------------------------------------

    fn next_grant(&mut self, now: Instant, rank: Rank, head: &mut Head) -> Option<Outbound> {
        let window_packets = self.config.window_packets;
        let peer = self.peers.get_mut(rank)?;
        let token = peer.grants.front().copied()?;
        if !peer.has_room(Lane::Grants, Checked::charge(0), window_packets) {
            return None;
        }
        peer.grants.pop_front();
        Some(self.send_new(now, rank, Lane::Grants, Item::Grant { token }, 0, head))
    }

    fn next_ordered(&mut self, now: Instant, rank: Rank, head: &mut Head) -> Option<Outbound> {
        let window_packets = self.config.window_packets;
        let peer = self.peers.get_mut(rank)?;
        if peer.send[Lane::Ordered].is_blocked() {
            return None;
        }
        let (at, shape) = next_message(&self.config, &self.outgoing, &peer.messages)?;
        let message = peer.messages[at];
        let index = self.outgoing[message.0 as usize].ordered_next;
        let body = shape.bytes + if index == 0 { ENVELOPE_BYTES as u32 } else { 0 };
        if !peer.has_room(Lane::Ordered, Checked::charge(body), window_packets) {
            return None;
        }
        // A message in progress is at the front until it is complete: no other packets come in
        // between.
        if at > 0 {
            peer.messages.remove(at);
            peer.messages.push_front(message);
        }
        if shape.is_last {
            peer.messages.pop_front();
        }
        self.outgoing[message.0 as usize].ordered_next += 1;
        let item = Item::Data { message, index };
        Some(self.send_new(now, rank, Lane::Ordered, item, body, head))
    }

    fn next_bulk(&mut self, now: Instant, rank: Rank, head: &mut Head) -> Option<Outbound> {
        let window_packets = self.config.window_packets;
        let message = self.peers.get(rank)?.granted.front().copied()?;
        if !self.has_settled(rank) {
            return None;
        }
        let peer = self.peers.get_mut(rank)?;
        let outgoing = &self.outgoing[message.0 as usize];
        let index = outgoing.bulk_next;
        let shape = shape(&self.config, outgoing, Lane::Bulk, index);
        let is_here = shape.is_here(&outgoing.message);
        if !is_here || !peer.has_room(Lane::Bulk, Checked::charge(shape.bytes), window_packets) {
            return None;
        }
        if shape.is_last {
            peer.granted.pop_front();
        }
        peer.bulk_cut = shape.is_cut.then(|| peer.send[Lane::Bulk].next());
        self.outgoing[message.0 as usize].bulk_next += 1;
        let item = Item::Data { message, index };
        Some(self.send_new(now, rank, Lane::Bulk, item, shape.bytes, head))
    }

    /// Numbers a packet, charges it to the window, and requests an answer if the window would
    /// otherwise run empty.
    fn send_new(
        &mut self,
        now: Instant,
        rank: Rank,
        lane: Lane,
        item: Item,
        body_bytes: u32,
        head: &mut Head,
    ) -> Outbound {
        let charge = Checked::charge(body_bytes);
        let allowance = self.config.allowance();
        let full = Checked::charge(u32::from(self.config.payload_bytes));
        let window_packets = self.config.window_packets;
        let peer = self.peer(rank);
        let rtt = &peer.rtt;
        let timeout = || rtt.retransmit_timeout(allowance, 0);
        let seq = peer.send[lane].push(now, item, charge, timeout);
        peer.flow.on_sent(charge);
        let wants_answer = !peer.has_room(lane, full, window_packets)
            || peer.flow.unasked_bytes >= peer.flow.window_bytes() / 2;
        let mut outbound = self.numbered(rank, lane, seq, item, head);
        outbound.header.flags = outbound.header.flags.with_if(Flags::ACK_NOW, wants_answer);
        if outbound.header.flags.has(Flags::ACK_NOW) {
            self.peer(rank).flow.unasked_bytes = 0;
        }
        self.counters.data_packets += 1;
        outbound
    }

    // ---- headers --------------------------------------------------------------------------

    fn header(&mut self, rank: Rank, lane: Lane, kind: Kind) -> Header {
        let (channel, source, credits) = (self.id, self.me, self.credits);
        let peer: &mut Peer = self.peer(rank);
        Header {
            channel,
            flags: lane.flags(),
            expects: peer.receive[lane].expects(),
            epoch: peer.send[lane].epoch(),
            credits,
            ..Header::blank(kind, source)
        }
    }

    /// Builds a numbered packet; it carries the acknowledgement of the same lane in the opposite
    /// direction.
    fn numbered(
        &mut self,
        rank: Rank,
        lane: Lane,
        seq: Seq,
        item: Item,
        head: &mut Head,
    ) -> Outbound {
        let mut header = self.header(rank, lane, Kind::Data);
        self.peer(rank).receive[lane].on_piggyback();
        header.seq = seq;
        head.set_body(&[]);
        let (message, index) = match item {
            Item::Grant { token } => {
                header.kind = Kind::Grant;
                header.argument = token;
                return Outbound { to: rank, header, segment: None };
            }
            Item::Data { message, index } => (message, index),
        };
        let outgoing = &self.outgoing[message.0 as usize];
        let shape = shape(&self.config, outgoing, lane, index);
        let is_wanted = shape.is_cut || shape.is_last && outgoing.message.reply == Reply::Soon;
        header.communicator = outgoing.message.communicator;
        header.argument = index;
        header.flags = lane
            .flags()
            .with_if(Flags::LAST, shape.is_last)
            .with_if(Flags::CUT, shape.is_cut)
            .with_if(Flags::ACK_NOW, is_wanted);
        if lane == Lane::Ordered && index == 0 {
            header.flags = header.flags.with(Flags::FIRST);
            head.set_body(&envelope(outgoing, message).emit());
        }
        let Shape { offset, bytes, .. } = shape;
        let segment =
            (bytes > 0).then_some(Segment { source: Source::Message(message), offset, bytes });
        Outbound { to: rank, header, segment }
    }
}

/// Time by which the answer was delayed, in microseconds.
fn held_back_us(receive: &Arrivals, now: Instant) -> u32 {
    receive.held_back(now).as_micros().min(u128::from(u32::MAX)) as u32
}

fn envelope(outgoing: &Outgoing, id: SendId) -> Envelope {
    Envelope { tag: outgoing.message.tag, token: id.0, bytes: outgoing.message.bytes }
}

/// Index of the message to continue with, and its next packet: the first message whose data are in
/// memory. It may overtake messages that are not in memory yet, unless the receiver could confuse
/// it with one of them, by communicator and tag; otherwise a message that waits for other ranks
/// would block messages that those ranks wait for (D-10).
fn next_message(
    config: &Checked,
    outgoing: &Slab<Outgoing>,
    messages: &VecDeque<SendId>,
) -> Option<(usize, Shape)> {
    let kind = |id: &SendId| {
        let message = &outgoing[id.0 as usize].message;
        (message.communicator, message.tag)
    };
    for (at, id) in messages.iter().enumerate().take(OVERTAKEN_MAX + 1) {
        let message = &outgoing[id.0 as usize];
        let next = shape(config, message, Lane::Ordered, message.ordered_next);
        let is_here = next.is_here(&message.message);
        if is_here && messages.iter().take(at).all(|earlier| kind(earlier) != kind(id)) {
            return Some((at, next));
        }
        if message.ordered_next > 0 {
            return None;
        }
    }
    None
}

impl Shape {
    /// True if the packet may be sent. A packet without data, of a message that has data, waits for
    /// the first byte too: it causes the grant, and granted data are sent in the order of the
    /// grants.
    fn is_here(&self, message: &Message) -> bool {
        let end = (self.offset + u64::from(self.bytes)).max(1).min(message.bytes);
        self.is_cut || end <= message.available
    }
}

pub(super) fn shape(config: &Checked, outgoing: &Outgoing, lane: Lane, index: u32) -> Shape {
    let payload = u64::from(config.payload_bytes);
    let (offset, end, most, is_last) = match lane {
        Lane::Ordered => {
            let most = if index == 0 { config.first_bytes() } else { payload };
            let is_last = index + 1 == outgoing.ordered_packets;
            (config.ordered_offset(index), outgoing.ordered, most, is_last)
        }
        Lane::Bulk | Lane::Grants => {
            let offset = outgoing.ordered + u64::from(index) * payload;
            (offset, outgoing.message.bytes, payload, index + 1 == outgoing.bulk_packets)
        }
    };
    let is_cut = outgoing.is_cut_at(lane, index);
    let bytes = if is_cut { 0 } else { end.saturating_sub(offset).min(most) as u32 };
    Shape { offset, bytes, is_last, is_cut }
}
