//! One root's messages at a receiver: what has arrived, where it goes, and when it is complete.
//!
//! Packets are numbered through all messages of the root to the group, and receives are posted in
//! the order of its messages, so the place of a packet follows from its number: into the posted
//! memory, or into a buffer until a receive is posted [BC-R21]. A rank that repairs keeps a copy of
//! everything until its subgroup has it [BC-R12].

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
use crate::packet::{Move, Origin, ReceiveId, SlotId, Target};
use omnes_wire::{Envelope, Flags, Instant, Seq};
use std::collections::VecDeque;

/// A packet of a broadcast, taken apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) seq: Seq,
    /// Its place in its message.
    pub(super) index: u32,
    pub(super) flags: Flags,
    /// Number of the newest repair when it was sent.
    pub(super) epoch: u16,
    pub(super) envelope: Option<Envelope>,
    pub(super) bytes: usize,
}

impl Packet {
    /// The first packet of its message.
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
    /// The message's length, when it is known.
    bytes: Option<u64>,
}

impl Posted {
    fn end(&self) -> Seq {
        self.first.plus(self.packets)
    }
}

/// A packet in a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stashed {
    pub(super) packet: Packet,
    pub(super) slot: SlotId,
    /// It has been moved to its receive.
    is_delivered: bool,
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Incoming {
    policy: Policy,
    position: u32,
    takers: u32,
    /// Ranks that answer to whom this one answers.
    peers: u32,
    /// Copies are kept for others.
    keeps: bool,
    pub(super) arrivals: Arrivals,
    overdue: Overdue,
    /// When something has come last.
    heard_at: Instant,
    posted: VecDeque<Posted>,
    /// First packet of the next message to be received.
    front: Seq,
    stash: Stash,
    /// Nothing before is in the stash.
    stashed_from: Seq,
    /// Something in the stash has been delivered since it was thinned out.
    is_thinnable: bool,
    /// Last packets of messages, as far as they have arrived out of order.
    lasts: SeqBits,
    messages: u32,
    /// Something that went to all has come since the last report to the rank that repairs.
    pub(super) hears: bool,
    /// Somebody asks for a report, whatever it has to say.
    pub(super) is_asked: bool,
    /// Somebody waits for the acknowledgement of everything before.
    awaited: Option<Seq>,
    /// Times that everybody was asked.
    answers: u32,
    /// Everything from what is expected on is missing that was sent: packets came before the group
    /// was known, or others have more.
    pub(super) lacks_rest: bool,
    /// The packet that was expected last of those that have come and found no buffer.
    pub(super) refused: Option<Seq>,
    pub(super) is_counted: bool,
    /// Whoever repairs has left: what is missing does not come any more.
    is_ended: bool,
    /// Nobody receives anything more here: what comes counts as delivered.
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

    /// True if something is expected or under way.
    pub(super) fn is_active(&self) -> bool {
        !self.posted.is_empty() || self.stash.count() > 0 || self.arrivals.has_gap()
    }

    pub(super) fn stashed(&self, seq: Seq) -> Option<&Stashed> {
        self.stash.get(seq)
    }

    // ---- packets --------------------------------------------------------------------------

    /// Takes a packet in. Where its data go, with offset and length, if they are wanted.
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
                // Its acknowledgement may have got lost [BC-R21].
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
        let Some(place) = self.place(common, packet) else {
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

    /// Takes in the next `packets` packets, which ask for nothing, end no message and go into the
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

    /// Finds room for a packet; `None` if there is none. A place of nothing is one too.
    fn place(
        &mut self,
        common: &mut Common,
        packet: Packet,
    ) -> Option<Option<(Target, u64, usize)>> {
        let posted = self.find(packet.first()).map(|at| self.posted[at]);
        let offset = common.config.offset(packet.index);
        let fits = |capacity: u64| packet.bytes.min(capacity.saturating_sub(offset) as usize);
        if let (Some(posted), false) = (posted, self.keeps) {
            let bytes = fits(posted.capacity);
            return Some((bytes > 0).then_some((Target::Receive(posted.id), offset, bytes)));
        }
        if self.is_unwanted && !self.keeps {
            return Some(None);
        }
        self.note_empty();
        if packet.seq.since(self.stashed_from) >= WINDOW_PACKETS_MAX {
            return None;
        }
        // Every stream that is under way must get on: what is not needed to get on now leaves a
        // buffer to each.
        let is_needed = posted.is_some() && packet.seq == self.arrivals.expects();
        let spared = if is_needed && !self.holds_for_others() { 0 } else { common.active.max(1) };
        let slot = common.slots.take_above(spared)?;
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
        Some(Some((Target::Slot(slot), 0, packet.bytes)))
    }

    /// True if something that has come in order is still in the stash: those below will free it.
    fn holds_for_others(&self) -> bool {
        let count = self.arrivals.expects().since(self.stashed_from).min(WINDOW_PACKETS_MAX);
        (0..count).any(|index| self.stashed(self.stashed_from.plus(index)).is_some())
    }

    /// The posted receive of the message that starts at `first`. Where a receive's message starts
    /// is certain only when all earlier ones know the length of theirs.
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
                self.arrivals.hush();
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

    /// Posts the receive of the next message that none is posted for.
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
            // Room that the root may be waiting for.
            self.arrivals.owe_again(now, common.config.ack_delay);
        }
    }

    /// Moves what lies in buffers to the receives from number `from` on.
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

    /// Notes the length of a posted message; if it is another than was expected, the receives
    /// behind it move.
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

    /// Bytes from the start of the message of `id` that are in place without a gap.
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

    /// Takes back the receives that are not complete: nothing comes any more.
    pub(super) fn take_posted(&mut self) -> Vec<ReceiveId> {
        self.overdue = Overdue::new();
        self.posted.drain(..).map(|posted| posted.id).collect()
    }

    /// As [`Self::take_posted`], and forgets all that has come.
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

    /// Whoever repairs has left: nothing beyond a gap is of use, and nothing at all to this rank
    /// where the message that is next is not whole.
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

    /// The group is closed here, and the root has left: who needs nothing of it for others takes in
    /// the rest without room for it, so that nobody keeps that for this rank.
    pub(super) fn let_pass(&mut self, common: &mut Common) {
        self.is_unwanted = true;
        if !self.keeps {
            self.empty_stash(common);
        }
        self.stash.iter_mut().for_each(|stashed| stashed.is_delivered = true);
        self.note_empty();
    }

    // ---- buffers --------------------------------------------------------------------------

    /// Frees the buffers of what is neither awaited here nor kept for others.
    fn thin_out(&mut self, common: &mut Common) {
        if !self.keeps && self.is_thinnable {
            self.free_until(common, self.arrivals.end());
        }
    }

    /// Frees what has been delivered, before `end`: all others have it.
    pub(super) fn free_until(&mut self, common: &mut Common, end: Seq) {
        self.is_thinnable = false;
        if self.stash.is_unused() {
            return self.note_empty(); // Those who report here may be ahead of this rank.
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

    /// Where nothing is in the stash, it starts at what is expected.
    fn note_empty(&mut self) {
        if self.stash.count() == 0 {
            self.stashed_from = self.arrivals.expects();
        }
    }

    /// Where the data of a packet and of those behind it would go: receive, offset and bytes from
    /// there, of the message, that nothing has been placed in.
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
        // The first packet has less room, for its envelope; a liar's may claim any number.
        let beyond = packet.index.checked_add(untouched)?;
        let most = common.config.offset(beyond) - offset;
        let bytes = posted.bytes.or(packet.envelope.map(|envelope| envelope.bytes))?;
        let end = bytes.min(posted.capacity);
        Some((posted.id, offset, most.min(end.checked_sub(offset)?)))
    }
}
