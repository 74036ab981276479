//! Incoming packets: answers advance the sending lanes, numbered packets the receiving ones.
//!
//! All decisions are made by [`classify_answer`] and
//! [`Arrivals::classify`](crate::lane::Arrivals::classify); the rest of the module applies them.

use super::asking::is_question;
use super::matching::{Matched, Pattern};
use super::peer::{Assembling, Destination, Lane, Stashed};
use super::send_lane::{Item, Verdict, classify_answer};
use super::{Channel, Event, Phase};
use crate::lane::{AckWhen, Arrival};
use crate::limits::{CREDIT_UNIT_BYTES, POOL_GROWTH, PROBE_WAIT_MAX};
use crate::packet::{Move, NoBuffer, Origin, Placement, ReceiveId, SendId, SlotId, Target};
use omnes_wire::{
    CommunicatorId, ENVELOPE_BYTES, Envelope, Flags, GapMap, Header, Instant, Kind,
    PACKET_OVERHEAD_BYTES, Rank,
};
use std::time::Duration;

/// Shortest wait before a rejected packet is probed again.
const PROBE_WAIT_MIN: Duration = Duration::from_micros(500);

/// Location of the data of a numbered packet.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// In the packet, from this byte on.
    Packet(usize),
    /// In a slot of the pool, since the packet arrived out of order.
    Slot(Option<SlotId>),
}

/// Outcome for a packet of the ordered lane.
enum Accepted {
    Yes(Option<Placement>),
    NoBuffer,
    Malformed,
}

/// Parsed numbered packet.
#[derive(Clone, Copy)]
pub(super) struct Numbered {
    pub(super) header: Header,
    envelope: Option<Envelope>,
    pub(super) source: Source,
    pub(super) bytes: usize,
}

impl Channel {
    /// Handles an authentic packet of this channel. `head` holds at least the packet's head,
    /// `packet_bytes` is the length of the whole packet. Returns where its data go, if it has any
    /// that are needed.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        header: &Header,
        head: &[u8],
        packet_bytes: usize,
    ) -> Option<Placement> {
        let from = header.source;
        if self.failed.contains(&from) {
            return None;
        }
        self.on_answer(now, header, head);
        let placement = match header.kind {
            Kind::Data | Kind::Grant => self.on_numbered(now, header, head, packet_bytes),
            _ => None,
        };
        self.recount(from);
        self.schedule(from);
        self.check_stable();
        placement
    }

    // ---- answers --------------------------------------------------------------------------

    pub(super) fn on_answer(&mut self, now: Instant, header: &Header, head: &[u8]) {
        let lane = Lane::of(header);
        let allowance = self.config.allowance();
        let bytes_max = self.config.receive_truesize_bytes;
        let peer = self.peer(header.source);
        if header.credits > 0 {
            peer.flow.credit_bytes = u32::from(header.credits) * CREDIT_UNIT_BYTES;
        }
        peer.is_reported_silent = false;
        let send = &mut peer.send[lane];
        let is_data = matches!(header.kind, Kind::Data | Kind::Grant);
        if is_data && header.expects == send.base() {
            return; // A run of data that reports nothing new.
        }
        match classify_answer(send.base(), send.next(), header.expects) {
            Verdict::Stale => {
                self.counters.answers_stale += 1;
                return;
            }
            Verdict::BeyondWindow => {
                self.counters.beyond_window += 1;
                return;
            }
            Verdict::Valid => {}
        }
        let freed = self.free_answered(now, header, lane);
        let is_running = self.phase == Phase::Running;
        let peer = self.peer(header.source);
        let timeout = peer.rtt.retransmit_timeout(allowance, 0);
        let send = &mut peer.send[lane];
        // Data in the opposite direction, and questions, prove that the peer is alive, not that our
        // packets arrived.
        let is_report = matches!(header.kind, Kind::Ack | Kind::Nack);
        if freed > 0 || is_report && !is_question(header) {
            send.on_answer(now, freed > 0, timeout);
        }
        if is_report && let Some(round) = send.acknowledge_round(header.epoch) {
            if !is_question(header)
                && let Some(sample) = send.sample_round(round, now, held_back(header), timeout)
            {
                peer.rtt.add_sample(sample);
            }
            peer.flow.loss_window.on_lost(send.on_round_seen(round));
        }
        let resumes = header.flags.has(Flags::RESUME);
        if resumes && freed == 0 {
            send.on_resume_unblocked(header.epoch);
        }
        match (freed > 0, is_running) {
            (true, true) => send.on_unblocked(now, timeout),
            // There may be space for one packet only, or only for another rank's.
            (false, true) => peer.probe_due[lane as usize] |= resumes && send.is_blocked(),
            (_, false) if freed > 0 || resumes => send.on_unblocked_while_stopped(),
            (false, false) | (true, false) => {}
        }
        peer.flow.loss_window.on_answered(freed, bytes_max.max(peer.flow.credit_bytes));
        if header.kind == Kind::Nack {
            self.on_nack(now, header, head);
        }
    }

    /// Frees all packets before the one the peer expects [PM-R13]; returns their number.
    fn free_answered(&mut self, now: Instant, header: &Header, lane: Lane) -> u32 {
        let is_report = matches!(header.kind, Kind::Ack | Kind::Nack);
        let allowance = self.config.allowance();
        let (mut freed, mut charge) = (0, 0);
        let mut last = None;
        // An answer that a repair has released measures the repair, not the path.
        let mut has_repair = false;
        self.peer(header.source).send[lane].find_late(now);
        // Packets of one message are usually consecutive.
        let mut run: Option<(SendId, u32)> = None;
        while let Some(sent) = self.peer(header.source).send[lane].free_one(header.expects) {
            freed += 1;
            charge += sent.charge;
            has_repair |= !sent.went_straight();
            last = Some(sent);
            let Item::Data { message, .. } = sent.item else { continue };
            match &mut run {
                Some((same, packets)) if *same == message => *packets += 1,
                _ => self.on_answered(run.replace((message, 1))),
            }
        }
        self.on_answered(run);
        let peer = self.peer(header.source);
        peer.flow.flight_bytes -= charge;
        if let Some(last) = last.filter(|_| is_report && !has_repair) {
            let timeout = peer.rtt.retransmit_timeout(allowance, 0);
            let held_back = held_back(header);
            peer.rtt.add_sample(peer.send[lane].sample(&last, now, held_back, timeout));
        }
        if freed > 0 {
            peer.send[lane].find_discarded();
        }
        freed
    }

    /// `packets` more packets of a message have been answered.
    fn on_answered(&mut self, run: Option<(SendId, u32)>) {
        let Some((id, packets)) = run else { return };
        let outgoing = &mut self.outgoing[id.0 as usize];
        outgoing.answered += u64::from(packets);
        if outgoing.answered == outgoing.packets() {
            self.outgoing.remove(id.0 as usize);
            self.events.push_back(Event::Sent { id });
        }
    }

    fn on_nack(&mut self, now: Instant, header: &Header, head: &[u8]) {
        let lane = Lane::of(header);
        let peer = self.peer(header.source);
        let guard = peer.rtt.smoothed();
        if header.flags.has(Flags::REJECT) {
            let wait = guard.clamp(PROBE_WAIT_MIN, PROBE_WAIT_MAX);
            peer.send[lane].on_reject(now, header.epoch, wait);
        } else if is_question(header) {
            self.on_question(now, header);
        } else {
            let map = GapMap::parse(head.get(PACKET_OVERHEAD_BYTES..).unwrap_or_default());
            let lost = peer.send[lane].on_gap_map(now, header.expects, &map, guard);
            peer.flow.loss_window.on_lost(lost);
        }
    }

    // ---- numbered packets -----------------------------------------------------------------

    fn on_numbered(
        &mut self,
        now: Instant,
        header: &Header,
        head: &[u8],
        packet_bytes: usize,
    ) -> Option<Placement> {
        // No rank of this job sends more data in a packet than a slot of the pool holds.
        let payload_bytes = usize::from(self.config.payload_bytes);
        let packet = take_apart(header, head, packet_bytes);
        let Some(packet) = packet.filter(|packet| packet.bytes <= payload_bytes) else {
            self.counters.malformed += 1;
            return None;
        };
        let lane = Lane::of(header);
        let receive = &mut self.peer(header.source).receive[lane];
        receive.on_packet(now, header.epoch);
        let before = (receive.expects(), receive.end());
        let placement = match receive.classify(header.seq) {
            Arrival::Duplicate => {
                self.counters.duplicates += 1;
                self.acknowledge(now, header, AckWhen::Now);
                return None;
            }
            Arrival::BeyondWindow => {
                self.counters.beyond_window += 1;
                return None;
            }
            arrival if lane == Lane::Grants => {
                self.on_grant(now, header, arrival);
                return None;
            }
            arrival if lane == Lane::Bulk => self.on_bulk(now, packet, arrival),
            Arrival::InOrder => self.on_ordered(now, packet),
            Arrival::Ahead => self.stash(now, packet),
        };
        let receive = &self.peer(header.source).receive[lane];
        if lane == Lane::Ordered && (receive.expects(), receive.end()) != before {
            self.on_news(now, header.source);
        } else {
            self.watch(now, header.source);
        }
        placement
    }

    /// Handles a grant. Grants take effect in order, as the granted parts are numbered in that
    /// order.
    fn on_grant(&mut self, now: Instant, header: &Header, arrival: Arrival) {
        let nack_delay = self.config.nack_delay;
        let from = header.source;
        let peer = self.peer(from);
        let had_gap = peer.receive[Lane::Grants].has_gap();
        peer.grants_ahead.insert(header.seq.0, header.argument);
        if arrival == Arrival::Ahead {
            peer.receive[Lane::Grants].on_ahead(now, header.seq, nack_delay);
        }
        loop {
            let peer = self.peer(from);
            let receive = &mut peer.receive[Lane::Grants];
            let Some(token) = peer.grants_ahead.remove(&receive.expects().0) else { break };
            receive.on_in_order(now);
            if !self.accept_grant(from, token) {
                self.counters.malformed += 1;
            }
        }
        self.acknowledge_as_asked(now, header, had_gap);
    }

    /// Returns false if no message of this rank waits for this grant.
    fn accept_grant(&mut self, from: Rank, token: u32) -> bool {
        let Some(outgoing) = self.outgoing.get_mut(token as usize) else { return false };
        let is_due = outgoing.message.to == from && outgoing.bulk_packets > 0;
        if !is_due || outgoing.is_granted {
            return false;
        }
        outgoing.is_granted = true;
        self.peer(from).granted.push_back(SendId(token));
        true
    }

    fn acknowledge(&mut self, now: Instant, header: &Header, when: AckWhen) {
        let ack_delay = self.config.ack_delay;
        let lane = Lane::of(header);
        self.peer(header.source).receive[lane].owe(now, when, ack_delay);
    }

    pub(super) fn acknowledge_as_asked(&mut self, now: Instant, header: &Header, had_gap: bool) {
        let lane = Lane::of(header);
        let closed = had_gap && !self.peer(header.source).receive[lane].has_gap();
        let at_once = closed || header.flags.has(Flags::ACK_NOW);
        let packets = AckWhen::After(self.config.ack_packets);
        self.acknowledge(now, header, if at_once { AckWhen::Now } else { packets });
    }

    /// Accepts the expected packet of the ordered lane, and then the packets that arrived ahead of
    /// it.
    fn on_ordered(&mut self, now: Instant, packet: Numbered) -> Option<Placement> {
        let from = packet.header.source;
        let had_gap = self.peer(from).receive[Lane::Ordered].has_gap();
        let placement = match self.accept(packet) {
            Accepted::Yes(placement) => placement,
            Accepted::NoBuffer => {
                self.reject(from);
                return None;
            }
            Accepted::Malformed => {
                self.counters.malformed += 1;
                None
            }
        };
        self.peer(from).receive[Lane::Ordered].on_in_order(now);
        while self.peer(from).receive[Lane::Ordered].next_is_here() {
            let peer = self.peer(from);
            let expects = peer.receive[Lane::Ordered].expects();
            let Some(stashed) = peer.stash.remove(&expects.0) else { break };
            self.stashed -= 1;
            let Stashed { header, envelope, slot, bytes } = stashed;
            let source = Source::Slot(slot);
            match self.accept(Numbered { header, envelope, source, bytes }) {
                Accepted::Yes(_) => {}
                Accepted::NoBuffer => {
                    // Only messages without data get here: there are too many unexpected ones
                    // already.
                    self.free_slot(slot);
                    self.reject(from);
                    break;
                }
                Accepted::Malformed => {
                    self.counters.malformed += 1;
                    self.free_slot(slot);
                }
            }
            self.peer(from).receive[Lane::Ordered].on_in_order(now);
        }
        self.acknowledge_as_asked(now, &packet.header, had_gap);
        placement
    }

    /// No buffer [PM-R15]: tells the sender, and discards packets that arrived ahead.
    fn reject(&mut self, from: Rank) {
        let peer = self.peer(from);
        peer.receive[Lane::Ordered].on_rejected();
        for stashed in std::mem::take(&mut self.peer(from).stash).into_values() {
            self.stashed -= 1;
            self.free_slot(stashed.slot);
        }
        if !self.rejecting.contains(&from) {
            self.rejecting.push(from);
        }
    }

    pub(super) fn free_slot(&mut self, slot: Option<SlotId>) {
        if let Some(slot) = slot {
            self.pool.give_back(slot);
        }
    }

    /// Stashes a packet that arrived out of order, if there is space to spare.
    fn stash(&mut self, now: Instant, packet: Numbered) -> Option<Placement> {
        let Numbered { header, envelope, source, bytes } = packet;
        let nack_delay = self.config.nack_delay;
        let is_full = self.stashed >= self.pool.slots() / 2;
        let is_rejecting = self.peer(header.source).receive[Lane::Ordered].is_rejecting();
        if is_rejecting || is_full {
            self.counters.discarded += 1; // [PM-R16]
            return None;
        }
        let slots = self.pool.slots();
        let slot = if bytes == 0 { None } else { Some(self.pool.take(bytes, slots)) };
        if slot == Some(None) {
            self.counters.discarded += 1;
            return None;
        }
        let slot = slot.flatten();
        let index = self.index;
        self.stashed += 1;
        let peer = self.peer(header.source);
        peer.stash.insert(header.seq.0, Stashed { header, envelope, slot, bytes });
        peer.receive[Lane::Ordered].on_ahead(now, header.seq, nack_delay);
        let Source::Packet(packet_offset) = source else { return None };
        let target = Target::Slot(slot?);
        Some(Placement { channel: index, target, offset: 0, packet_offset, bytes })
    }

    // ---- the ordered lane, in order -------------------------------------------------------

    fn accept(&mut self, packet: Numbered) -> Accepted {
        match packet.envelope {
            Some(envelope) => self.accept_first(packet, envelope),
            None => self.accept_next(packet),
        }
    }

    /// Accepts the first packet of a message: it matches a receive or becomes unexpected; a notice
    /// is reported.
    fn accept_first(&mut self, packet: Numbered, envelope: Envelope) -> Accepted {
        let Header { source: from, communicator, .. } = packet.header;
        let ordered = self.config.ordered_bytes(envelope.bytes);
        // A length beyond the packet numbers' range would count as received immediately.
        let is_countable = envelope.bytes <= self.config.message_bytes_max();
        if self.peer(from).assembling.is_some() || packet.bytes as u64 > ordered || !is_countable {
            return Accepted::Malformed;
        }
        if communicator == CommunicatorId::NOTICES {
            if envelope.bytes > 0 {
                return Accepted::Malformed;
            }
            self.events.push_back(Event::Notice { from, tag: envelope.tag });
            return Accepted::Yes(None);
        }
        let destination = if let Some(id) = self.receive_for(from, communicator, envelope.tag) {
            let matched = Matched::new(from, envelope, 0, ordered);
            self.matching.receives[id.0 as usize].matched = Some(matched);
            self.grant_rest(id);
            Destination::Receive(id)
        } else {
            let needs_slot = packet.bytes > 0 && matches!(packet.source, Source::Packet(_));
            let slots = self.slots_for(from);
            let is_full = self.matching.unexpected_count() >= slots;
            if is_full || needs_slot && self.pool.used() >= slots {
                return Accepted::NoBuffer;
            }
            self.counters.unexpected += 1;
            if self.matching.seeks_any || self.peer(from).watch.is_sought {
                self.events.push_back(Event::Sought);
            }
            Destination::Unexpected(self.matching.add_unexpected(from, communicator, envelope))
        };
        self.peer(from).assembling = Some(Assembling { destination, offset: 0, ordered });
        self.accept_next(packet)
    }

    /// Receive that a message takes when its first packet arrives: the oldest posted one that
    /// accepts it, or one that discards it if its communicator was abandoned.
    fn receive_for(
        &mut self,
        from: Rank,
        communicator: CommunicatorId,
        tag: u32,
    ) -> Option<ReceiveId> {
        if let Some(id) = self.matching.find(from, communicator, tag) {
            self.matching.unpost(id);
            let pattern = self.matching.receives[id.0 as usize].pattern;
            self.on_matched(&pattern);
            return Some(id);
        }
        let pattern = Pattern { communicator, source: Some(from), tag: Some(tag) };
        let is_abandoned = self.abandoned.contains(&communicator);
        is_abandoned.then(|| self.matching.add_discarding(pattern))
    }

    /// Accepts more data of the message that is arriving.
    fn accept_next(&mut self, packet: Numbered) -> Accepted {
        let from = packet.header.source;
        let Some(assembling) = self.peer(from).assembling else { return Accepted::Malformed };
        let offset = assembling.offset;
        let is_cut = packet.header.flags.has(Flags::CUT);
        if offset + packet.bytes as u64 > assembling.ordered || is_cut && packet.bytes > 0 {
            return Accepted::Malformed;
        }
        let placement = match assembling.destination {
            Destination::Receive(id) => self.place_in_receive(id, offset, packet),
            Destination::Unexpected(key) => match self.place_in_pool(key, packet) {
                Ok(placement) => placement,
                Err(NoBuffer) => return Accepted::NoBuffer,
            },
        };
        let offset = offset + packet.bytes as u64;
        let is_over = offset == assembling.ordered || is_cut;
        self.peer(from).assembling = (!is_over).then_some(Assembling { offset, ..assembling });
        match assembling.destination {
            Destination::Receive(id) => {
                if let Some(matched) = &mut self.matching.receives[id.0 as usize].matched {
                    matched.ordered_done = offset;
                }
                if is_cut {
                    self.cut_ordered(id);
                }
                self.complete_if_done(id);
            }
            Destination::Unexpected(key) => {
                if let Some(message) = self.matching.unexpected_mut(key) {
                    message.is_cut = is_cut;
                }
                if is_over {
                    self.end_seeking(from);
                }
            }
        }
        Accepted::Yes(placement)
    }

    fn place_in_receive(
        &mut self,
        id: ReceiveId,
        offset: u64,
        packet: Numbered,
    ) -> Option<Placement> {
        let capacity = self.matching.receives[id.0 as usize].capacity;
        let bytes = packet.bytes.min(capacity.saturating_sub(offset) as usize);
        match packet.source {
            Source::Packet(_) if bytes == 0 => None,
            Source::Packet(packet_offset) => {
                let target = Target::Receive(id);
                Some(Placement { channel: self.index, target, offset, packet_offset, bytes })
            }
            Source::Slot(None) => None,
            Source::Slot(Some(slot)) => {
                self.moves.push_back(Move {
                    origin: Origin::Slot(slot),
                    receive: id,
                    offset,
                    bytes,
                });
                None
            }
        }
    }

    /// Most slots, and most unexpected messages, that may be in use when a packet of `from`
    /// arrives. If a receive or a probe waits for that rank, its message may follow others for
    /// which no receive is posted, and could never arrive if there were no space for them.
    fn slots_for(&mut self, from: Rank) -> usize {
        let slots = self.pool.slots();
        let is_full = self.pool.used() >= slots || self.matching.unexpected_count() >= slots;
        if is_full && (self.peer(from).watch.awaits_message() || self.matching.awaits_any()) {
            slots * POOL_GROWTH
        } else {
            slots
        }
    }

    /// A message of `from` that no receive waited for has arrived completely, or has a receive now:
    /// a caller that is seeking another message must seek again.
    pub(super) fn end_seeking(&mut self, from: Rank) {
        self.matching.seeks_any = false;
        self.peer(from).watch.is_sought = false;
    }

    /// Puts the data into a slot of the unexpected message; the caller places those that are still
    /// in the packet.
    fn place_in_pool(&mut self, key: u64, packet: Numbered) -> Result<Option<Placement>, NoBuffer> {
        if packet.bytes == 0 {
            return Ok(None);
        }
        let (slot, placement) = match packet.source {
            Source::Slot(slot) => (slot.ok_or(NoBuffer)?, None),
            Source::Packet(packet_offset) => {
                let slots = self.slots_for(packet.header.source);
                let slot = self.pool.take(packet.bytes, slots).ok_or(NoBuffer)?;
                let (channel, target) = (self.index, Target::Slot(slot));
                let bytes = packet.bytes;
                (slot, Some(Placement { channel, target, offset: 0, packet_offset, bytes }))
            }
        };
        if let Some(message) = self.matching.unexpected_mut(key) {
            self.pool.append(&mut message.chain, slot);
        }
        Ok(placement)
    }
}

/// Time by which the peer delayed a report.
fn held_back(report: &Header) -> Duration {
    Duration::from_micros(u64::from(report.argument))
}

/// Splits a numbered packet into envelope and data; `None` if it is shorter than its kind requires,
/// is on a lane that its kind does not use, or is a grant with data.
fn take_apart(header: &Header, head: &[u8], packet_bytes: usize) -> Option<Numbered> {
    let body = packet_bytes.checked_sub(PACKET_OVERHEAD_BYTES)?;
    let is_first = header.kind == Kind::Data && header.flags.has(Flags::FIRST);
    let (lane, is_grant) = (Lane::of(header), header.kind == Kind::Grant);
    let is_on_wrong_lane = is_grant != (lane == Lane::Grants) || is_first && lane == Lane::Bulk;
    if is_on_wrong_lane || is_grant && body > 0 {
        return None;
    }
    let envelope =
        if is_first { Some(Envelope::parse(head.get(PACKET_OVERHEAD_BYTES..)?)?) } else { None };
    let envelope_bytes = if is_first { ENVELOPE_BYTES } else { 0 };
    let bytes = body.checked_sub(envelope_bytes)?;
    let source = Source::Packet(PACKET_OVERHEAD_BYTES + envelope_bytes);
    Some(Numbered { header: *header, envelope, source, bytes })
}
