//! One root's messages at a receiver: which packets have arrived, where their data go, and when a
//! message is complete.
//!
//! Packets are numbered through all messages of the root to the group, and receives are posted in
//! the order of its messages, so the number of a packet determines where it goes: into the posted
//! memory, or into a buffer until a receive is posted [BC-R21]. A rank that repairs keeps a copy of
//! every packet until its subgroup has it [BC-R12].

mod decode;
mod reports;

pub(super) use reports::answer_spread;

use super::config::CheckedBroadcast;
use super::interface::Event;
use super::policy::{GapReports, Policy};
use super::roles::Roles;
use super::slots::Common;
use super::stash::Stash;
use crate::lane::{Arrival, Arrivals, Overdue, SeqBits};
use crate::limits::WINDOW_PACKETS_MAX;
use crate::packet::{Move, NoBuffer, Origin, ReceiveId, SlotId, Target};
use omnes_wire::{Envelope, Flags, Instant, Seq};
use std::collections::VecDeque;

/// Parsed packet of a broadcast.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) seq: Seq,
    /// Index in its message.
    pub(super) index: u32,
    pub(super) flags: Flags,
    /// Number of the newest repair at the time it was sent.
    pub(super) epoch: u16,
    pub(super) envelope: Option<Envelope>,
    pub(super) bytes: usize,
}

impl Packet {
    /// Number of the first packet of its message.
    fn first(&self) -> Seq {
        Seq(self.seq.0.wrapping_sub(self.index))
    }
}

/// A posted receive.
#[derive(Clone, Copy, Debug)]
struct Posted {
    id: ReceiveId,
    capacity: u64,
    first: Seq,
    packets: u32,
    /// Length of the message, once known.
    bytes: Option<u64>,
}

impl Posted {
    fn end(&self) -> Seq {
        self.first.plus(self.packets)
    }
}

/// Packet in a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stashed {
    pub(super) packet: Packet,
    pub(super) slot: SlotId,
    /// Its data have been moved to the receive.
    is_delivered: bool,
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Incoming {
    policy: Policy,
    position: u32,
    takers: u32,
    /// Number of ranks that answer to the same rank as this one.
    peers: u32,
    /// Copies are kept for other ranks.
    keeps: bool,
    pub(super) arrivals: Arrivals,
    overdue: Overdue,
    /// Time at which a packet last arrived.
    heard_at: Instant,
    posted: VecDeque<Posted>,
    /// First packet of the next message to be received.
    front: Seq,
    stash: Stash,
    /// No earlier packet is in the stash.
    stashed_from: Seq,
    /// A packet in the stash has been delivered since the stash was last thinned out.
    is_thinnable: bool,
    /// Last packets of messages that have arrived out of order.
    lasts: SeqBits,
    messages: u32,
    /// A packet sent to all has arrived since the last report to the rank that repairs.
    pub(super) hears: bool,
    /// A report has been requested, whatever its contents.
    pub(super) is_asked: bool,
    /// End of the packets whose acknowledgement another rank is waiting for, if one is.
    awaited: Option<Seq>,
    /// Number of times that all ranks were asked.
    answers: u32,
    /// Every packet sent is missing from the next expected one on: packets arrived before the group
    /// was known, or other ranks have more.
    pub(super) lacks_rest: bool,
    /// The latest expected packet that arrived but found no buffer.
    pub(super) refused: Option<Seq>,
    pub(super) is_counted: bool,
    /// The rank that repairs has left: missing packets will not arrive any more.
    is_ended: bool,
    /// No receive will be posted here any more: arriving packets count as delivered.
    is_unwanted: bool,
}

impl Incoming {
    pub(super) fn new(policy: Policy, roles: &Roles) -> Self {
        Self {
            policy,
            position: roles.position,
            takers: roles.takers,
            peers: roles.peers,
            keeps: roles.is_repairer || !roles.copies_to.is_empty(),
            arrivals: Arrivals::default(),
            overdue: Overdue::new(),
            heard_at: Instant::ZERO,
            posted: VecDeque::new(),
            front: Seq::FIRST,
            stash: Stash::default(),
            stashed_from: Seq::FIRST,
            is_thinnable: false,
            lasts: SeqBits::default(),
            messages: 0,
            hears: false,
            is_asked: false,
            awaited: None,
            answers: 0,
            lacks_rest: false,
            refused: None,
            is_counted: false,
            is_ended: false,
            is_unwanted: false,
        }
    }

    /// True if this rank expects or is receiving packets.
    pub(super) fn is_active(&self) -> bool {
        !self.posted.is_empty() || self.stash.count() > 0 || self.arrivals.has_gap()
    }

    pub(super) fn stashed(&self, seq: Seq) -> Option<&Stashed> {
        self.stash.get(seq)
    }

    // ---- packets --------------------------------------------------------------------------

    /// Accepts a packet. Returns where its data go, with offset and length, if they are needed.
    pub(super) fn take(
        &mut self,
        now: Instant,
        common: &mut Common,
        packet: Packet,
    ) -> Option<(Target, u64, usize)> {
        self.hears |= packet.flags.has(Flags::GROUP);
        self.arrivals.on_packet(now, packet.epoch);
        match self.arrivals.classify(packet.seq) {
            Arrival::Duplicate => {
                common.counters.duplicates += 1;
                // Its acknowledgement may have been lost [BC-R21].
                self.arrivals.owe_again(now, common.config.ack_delay);
                self.is_asked |= self.answer_if_asked(now, &packet);
                return None;
            }
            Arrival::BeyondWindow => {
                common.counters.beyond_window += 1;
                return None;
            }
            Arrival::Ahead if self.is_ended => {
                common.counters.discarded += 1;
                return None;
            }
            Arrival::InOrder | Arrival::Ahead => {}
        }
        let Ok(place) = self.place(common, packet) else {
            common.counters.discarded += 1;
            if packet.seq == self.arrivals.expects() {
                self.refused = Some(packet.seq);
            }
            self.is_asked |= self.answer_if_asked(now, &packet);
            return None;
        };
        self.note_arrival(now, common, &packet);
        if let Some(envelope) = packet.envelope {
            self.learn_length(common, packet.seq, envelope.bytes);
        }
        self.complete(common);
        self.overdue.end(now, packet.flags.has(Flags::GROUP));
        self.on_heard(now, common);
        let _ = self.answer_if_asked(now, &packet);
        self.thin_out(common);
        place
    }

    /// Accepts the next `packets` packets, which ask for nothing, end no message and go into the
    /// memory of a receive.
    pub(super) fn take_run(&mut self, now: Instant, common: &mut Common, epoch: u16, packets: u32) {
        self.hears = true;
        self.arrivals.on_packet(now, epoch);
        self.arrivals.on_run(now, packets);
        self.on_advance(now, common);
        self.complete(common);
        self.on_heard(now, common);
        self.thin_out(common);
    }

    /// Finds a place for the data of a packet, if they are needed.
    fn place(
        &mut self,
        common: &mut Common,
        packet: Packet,
    ) -> Result<Option<(Target, u64, usize)>, NoBuffer> {
        let posted = self.find(packet.first()).map(|at| self.posted[at]);
        let offset = common.config.offset(packet.index);
        let fits = |capacity: u64| packet.bytes.min(capacity.saturating_sub(offset) as usize);
        if let (Some(posted), false) = (posted, self.keeps) {
            let bytes = fits(posted.capacity);
            return Ok((bytes > 0).then_some((Target::Receive(posted.id), offset, bytes)));
        }
        if self.is_unwanted && !self.keeps {
            return Ok(None);
        }
        self.note_empty();
        if packet.seq.since(self.stashed_from) >= WINDOW_PACKETS_MAX {
            return Err(NoBuffer);
        }
        // Every active stream must make progress: a packet that is not needed for progress leaves
        // one buffer to each stream.
        let is_needed = posted.is_some() && packet.seq == self.arrivals.expects();
        let spared = if is_needed && !self.holds_for_others() { 0 } else { common.active.max(1) };
        let slot = common.slots.take_above(spared).ok_or(NoBuffer)?;
        let is_delivered = posted.is_some() || self.is_unwanted;
        let stashed = Stashed { packet, slot, is_delivered };
        self.stash.insert(self.stashed_from, stashed);
        if let Some(posted) = posted {
            let bytes = fits(posted.capacity);
            common.moves.push_back(Move {
                origin: Origin::Slot(slot),
                receive: posted.id,
                offset,
                bytes,
            });
        }
        Ok(Some((Target::Slot(slot), 0, packet.bytes)))
    }

    /// True if a packet that has arrived in order is still in the stash, which the ranks below will
    /// free.
    fn holds_for_others(&self) -> bool {
        let count = self.arrivals.expects().since(self.stashed_from).min(WINDOW_PACKETS_MAX);
        (0..count).any(|index| self.stashed(self.stashed_from.plus(index)).is_some())
    }

    /// Returns the index of the posted receive of the message that starts at `first`. The start of
    /// a receive's message is certain only if the lengths of all earlier messages are known.
    fn find(&self, first: Seq) -> Option<usize> {
        let at = self.posted.iter().position(|posted| posted.first == first)?;
        self.is_certain(at).then_some(at)
    }

    fn is_certain(&self, at: usize) -> bool {
        self.posted.iter().take(at).all(|earlier| earlier.bytes.is_some())
    }

    fn note_arrival(&mut self, now: Instant, common: &Common, packet: &Packet) {
        let seq = packet.seq;
        let mut is_last = packet.flags.has(Flags::LAST);
        if self.arrivals.classify(seq) == Arrival::Ahead {
            if is_last {
                self.lasts.insert(seq);
            }
            self.arrivals.on_ahead(now, seq, common.config.nack_delay);
            if self.policy.gaps == GapReports::Never {
                self.arrivals.cancel_gap_reports();
            } else {
                self.take_turn(now, seq);
            }
            return;
        }
        loop {
            self.arrivals.on_in_order(now);
            if is_last {
                self.on_message(now, common, self.is_one_of_many(packet));
            }
            if !self.arrivals.next_is_here() {
                break;
            }
            is_last = self.lasts.take(self.arrivals.expects());
        }
        self.on_advance(now, common);
    }

    // ---- receives -------------------------------------------------------------------------

    /// Posts the receive of the next message for which none is posted.
    pub(super) fn post(&mut self, now: Instant, common: &mut Common, id: ReceiveId, capacity: u64) {
        let first = self.posted.back().map_or(self.front, Posted::end);
        let packets = common.config.packets(capacity) as u32;
        self.posted.push_back(Posted { id, capacity, first, packets, bytes: None });
        let before = self.stash.count();
        self.adopt_all(common, self.posted.len() - 1);
        self.complete(common);
        self.watch(now, common);
        self.thin_out(common);
        if self.stash.count() < before {
            // The root may be waiting for this space.
            self.arrivals.owe_again(now, common.config.ack_delay);
        }
    }

    /// Moves the data in buffers to the receives from index `from` on.
    fn adopt_all(&mut self, common: &mut Common, from: usize) {
        if self.stash.count() == 0 {
            return;
        }
        let mut at = from;
        while at < self.posted.len() && self.is_certain(at) {
            if let Some(bytes) = self.stashed_length(self.posted[at].first) {
                self.set_length(common, at, bytes);
            }
            self.adopt(common, self.posted[at]);
            at += 1;
        }
    }

    fn stashed_length(&self, first: Seq) -> Option<u64> {
        let stashed = self.stashed(first).filter(|stashed| stashed.packet.index == 0)?;
        stashed.packet.envelope.map(|envelope| envelope.bytes)
    }

    fn adopt(&mut self, common: &mut Common, posted: Posted) {
        if self.stash.count() == 0 {
            return;
        }
        for index in 0..posted.packets.min(WINDOW_PACKETS_MAX) {
            let seq = posted.first.plus(index);
            let Some(stashed) = self.stash.get_mut(seq) else { continue };
            if stashed.is_delivered || stashed.packet.first() != posted.first {
                continue;
            }
            stashed.is_delivered = true;
            self.is_thinnable = true;
            let offset = common.config.offset(stashed.packet.index);
            let room = posted.capacity.saturating_sub(offset) as usize;
            let bytes = stashed.packet.bytes.min(room);
            let slot = stashed.slot;
            common.moves.push_back(Move {
                origin: Origin::Slot(slot),
                receive: posted.id,
                offset,
                bytes,
            });
        }
    }

    /// The message that starts at `first` has `bytes` bytes.
    fn learn_length(&mut self, common: &mut Common, first: Seq, bytes: u64) {
        if let Some(at) = self.find(first) {
            self.set_length(common, at, bytes);
            self.adopt_all(common, at);
        }
    }

    /// Records the length of a posted message; if it differs from the expected one, the receives
    /// after it move.
    fn set_length(&mut self, common: &Common, at: usize, bytes: u64) {
        let packets = common.config.packets(bytes) as u32;
        let posted = &mut self.posted[at];
        posted.bytes = Some(bytes);
        posted.packets = packets;
        for index in at + 1..self.posted.len() {
            self.posted[index].first = self.posted[index - 1].end();
        }
    }

    /// Reports the receives that are complete.
    fn complete(&mut self, common: &mut Common) {
        while let Some(posted) = self.posted.front().copied() {
            let (Some(bytes), false) =
                (posted.bytes, self.arrivals.expects().precedes(posted.end()))
            else {
                return;
            };
            self.posted.pop_front();
            self.front = posted.end();
            common.counters.messages_received += 1;
            common.events.push_back(Event::Received { id: posted.id, bytes });
        }
    }

    /// Number of bytes from the start of the message of `id` that are in place without a gap.
    pub(super) fn received_bytes(&self, config: &CheckedBroadcast, id: ReceiveId) -> u64 {
        let posted = self.posted.iter().find(|posted| posted.id == id);
        let Some(posted) = posted.filter(|posted| posted.bytes.is_some()) else { return 0 };
        let expects = self.arrivals.expects();
        if !posted.first.precedes(expects) {
            return 0;
        }
        let packets = expects.since(posted.first).min(posted.packets);
        let bytes = posted.bytes.unwrap_or_default();
        if packets == posted.packets { bytes } else { config.offset(packets).min(bytes) }
    }

    /// Takes back all receives that are not complete: no more packets will arrive.
    pub(super) fn take_posted(&mut self) -> Vec<ReceiveId> {
        self.overdue = Overdue::new();
        self.posted.drain(..).map(|posted| posted.id).collect()
    }

    /// As [`Self::take_posted`], and discards everything that has arrived.
    pub(super) fn abandon(&mut self, common: &mut Common) -> Vec<ReceiveId> {
        self.empty_stash(common);
        self.arrivals = Arrivals::default();
        self.take_posted()
    }

    fn empty_stash(&mut self, common: &mut Common) {
        for stashed in self.stash.take_all() {
            common.slots.give_back(stashed.slot);
        }
    }

    /// The rank that repairs has left: packets after a gap are useless, and if the next message is
    /// incomplete, this rank needs none at all.
    pub(super) fn end(&mut self, common: &mut Common, is_next_partial: bool) {
        self.is_ended = true;
        self.lacks_rest = false;
        self.lasts = SeqBits::default();
        let (expects, end) = (self.arrivals.expects(), self.arrivals.end());
        for seq in (0..end.since(expects)).map(|ahead| expects.plus(ahead)) {
            if let Some(slot) = self.stashed(seq).map(|stashed| stashed.slot) {
                self.stash.remove(seq);
                common.slots.give_back(slot);
            }
        }
        self.arrivals.discard_ahead();
        if is_next_partial && !self.keeps {
            self.empty_stash(common);
        }
        self.note_empty();
    }

    /// The group is closed here, and the root has left: a rank that keeps nothing of the stream for
    /// others accepts the remaining packets without storing them, so that no rank keeps them for
    /// it.
    pub(super) fn discard_rest(&mut self, common: &mut Common) {
        self.is_unwanted = true;
        if !self.keeps {
            self.empty_stash(common);
        }
        self.stash.iter_mut().for_each(|stashed| stashed.is_delivered = true);
        self.note_empty();
    }

    // ---- buffers --------------------------------------------------------------------------

    /// Frees the buffers of packets that are neither awaited here nor kept for other ranks.
    fn thin_out(&mut self, common: &mut Common) {
        if !self.keeps && self.is_thinnable {
            self.free_until(common, self.arrivals.end());
        }
    }

    /// Frees the delivered packets before `end`, which all other ranks have.
    pub(super) fn free_until(&mut self, common: &mut Common, end: Seq) {
        self.is_thinnable = false;
        if self.stash.is_unused() {
            return self.note_empty(); // The ranks that report here may be ahead of this rank.
        }
        let mut is_prefix = true;
        let mut seq = self.stashed_from;
        while seq.precedes(end) {
            match self.stash.get(seq).copied() {
                Some(stashed) if stashed.is_delivered => {
                    self.stash.remove(seq);
                    common.slots.give_back(stashed.slot);
                }
                Some(_) => is_prefix = false,
                None => is_prefix &= seq.precedes(self.arrivals.expects()),
            }
            seq = seq.plus(1);
            if is_prefix {
                self.stashed_from = seq;
            }
        }
        self.note_empty();
    }

    /// An empty stash starts at the next expected packet.
    fn note_empty(&mut self) {
        if self.stash.count() == 0 {
            self.stashed_from = self.arrivals.expects();
        }
    }

    /// Returns where the data of a packet and of the packets after it would go: the receive, the
    /// offset, and the number of bytes of the message from there on in which nothing has been
    /// placed.
    pub(super) fn preview(
        &self,
        common: &Common,
        packet: &Packet,
    ) -> Option<(ReceiveId, u64, u64)> {
        let seq = packet.seq;
        if self.keeps || !matches!(self.arrivals.classify(seq), Arrival::InOrder | Arrival::Ahead) {
            return None;
        }
        let posted = &self.posted[self.find(packet.first())?];
        let offset = common.config.offset(packet.index);
        let rest = posted.end().since(seq).min(WINDOW_PACKETS_MAX);
        let untouched = self.arrivals.untouched(seq, rest);
        // The first packet has less space, because of its envelope; a forged index may have any
        // value.
        let beyond = packet.index.checked_add(untouched)?;
        let most = common.config.offset(beyond) - offset;
        let bytes = posted.bytes.or(packet.envelope.map(|envelope| envelope.bytes))?;
        let end = bytes.min(posted.capacity);
        Some((posted.id, offset, most.min(end.checked_sub(offset)?)))
    }
}
