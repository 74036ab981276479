//! One root's messages at a receiver: what has arrived, where it goes, and when it is complete.
//!
//! Packets are numbered through all messages of the root to the group, and receives are posted in
//! the order of its messages, so the place of a packet follows from its number: into the posted
//! memory, or into a buffer until a receive is posted [BC-R21]. A rank that repairs keeps a copy of
//! everything until its subgroup has it [BC-R12].

mod decode;

use super::config::CheckedBroadcast;
use super::interface::Event;
use super::overdue::Overdue;
use super::policy::{AckRule, GapReports, PROMPT_TAKERS, Policy};
use super::roles::Roles;
use super::slots::Common;
use super::stash::Stash;
use crate::lane::{AckWhen, Arrival, Arrivals, Report, SeqBits};
use crate::limits::{CREDIT_UNIT_BYTES, WINDOW_PACKETS_MAX};
use crate::packet::{Move, Origin, ReceiveId, SlotId, Target};
use omnes_wire::{Envelope, Flags, GapMap, Instant, Seq};
use std::collections::VecDeque;
use std::time::Duration;

/// Time that a collector needs for a report.
const SPREAD_PER_TAKER: Duration = Duration::from_micros(2);

/// Shortest waits for an answer that make a time in which nothing comes, at least.
const IDLE_WAITS: u32 = 4;

/// Time over which `ranks` that are asked together spread their answers.
pub(super) fn answer_spread(ranks: u32) -> Duration {
    if ranks > PROMPT_TAKERS { SPREAD_PER_TAKER * ranks } else { Duration::ZERO }
}

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
    /// Somebody asks for a report, whatever it has to say.
    pub(super) is_asked: bool,
    /// Somebody waits for the acknowledgement of everything before.
    awaited: Option<Seq>,
    /// Times that everybody was asked.
    answers: u32,
    /// Everything from what is expected on is missing that was sent: packets came before the group
    /// was known, or others have more.
    pub(super) lacks_rest: bool,
    pub(super) is_counted: bool,
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
            front: Seq(0),
            stash: Stash::default(),
            stashed_from: Seq(0),
            is_thinnable: false,
            lasts: SeqBits::default(),
            messages: 0,
            is_asked: false,
            awaited: None,
            answers: 0,
            lacks_rest: false,
            is_counted: false,
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
            Arrival::InOrder | Arrival::Ahead => {}
        }
        let Some(place) = self.place(common, packet) else {
            common.counters.discarded += 1;
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

    /// Something has come: while it does, so may what has been reported as missing, and the rest of
    /// a message.
    pub(super) fn on_heard(&mut self, now: Instant, common: &Common) {
        self.heard_at = now;
        let turn = match self.takers > PROMPT_TAKERS {
            true => self.spread(self.arrivals.expects().0, self.takers),
            false => Duration::ZERO,
        };
        self.arrivals.put_off_repeat(now + self.idle_wait(common) + turn);
        self.watch(now, common);
    }

    /// Packets have come as one of which this rank lacks some, but cannot get them: the root, which
    /// thinks otherwise, is told at once.
    pub(super) fn on_undecodable(&mut self, now: Instant, common: &Common) {
        self.on_heard(now, common);
        self.lacks_rest |= !self.arrivals.has_gap();
        self.arrivals.answer();
        self.take_turn(now, self.arrivals.expects());
    }

    /// A wait in which nothing comes, after which nothing is taken to be under way.
    fn idle_wait(&self, common: &Common) -> Duration {
        self.arrivals.repair_wait().max(common.config.timeout_min * IDLE_WAITS)
    }

    /// True if nothing has come for a time.
    pub(super) fn is_idle(&self, now: Instant, common: &Common) -> bool {
        now.since(self.heard_at) >= self.idle_wait(common)
    }

    /// Takes in the next `packets` packets, which ask for nothing, end no message and go into the
    /// memory of a receive.
    pub(super) fn take_run(&mut self, now: Instant, common: &mut Common, epoch: u16, packets: u32) {
        self.arrivals.on_packet(now, epoch);
        self.arrivals.on_run(now, packets);
        self.on_advance(now, common);
        self.complete(common);
        self.on_heard(now, common);
        self.thin_out(common);
    }

    /// Answers a packet that asks for it; true if it does. Who speaks for others answers a new
    /// packet when they have it too.
    fn answer_if_asked(&mut self, now: Instant, packet: &Packet) -> bool {
        if !packet.flags.has(Flags::ACK_NOW) {
            return false;
        }
        self.note_awaited(packet.seq.plus(1));
        self.answers = self.answers.wrapping_add(1);
        match self.is_one_of_many(packet) {
            true => self.arrivals.answer_at(now, now + self.spread(self.answers, self.peers)),
            false => self.arrivals.answer(),
        }
        true
    }

    /// True if the packet asks so many that they answer one after the other.
    fn is_one_of_many(&self, packet: &Packet) -> bool {
        packet.flags.has(Flags::GROUP.with(Flags::ACK_NOW)) && self.peers > PROMPT_TAKERS
    }

    /// Answers who waits for the acknowledgement of everything before `end`, which was sent.
    pub(super) fn answer_question(&mut self, end: Seq) {
        self.is_asked = true;
        // A gap is reported as one: its repairs show what else is missing.
        self.lacks_rest |= self.note_awaited(end) && !self.arrivals.has_gap();
        self.arrivals.answer();
    }

    /// True if something is missing before `end`, whose acknowledgement somebody waits for: it goes
    /// out as soon as all is here.
    fn note_awaited(&mut self, end: Seq) -> bool {
        let lacks = self.arrivals.expects().precedes(end);
        if lacks {
            self.awaited.get_or_insert(end);
        }
        lacks
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
        self.note_empty();
        if packet.seq.since(self.stashed_from) >= WINDOW_PACKETS_MAX {
            return None;
        }
        // Every stream that is under way must get on: what is not needed to get on now leaves a
        // buffer to each.
        let is_needed = posted.is_some() && packet.seq == self.arrivals.expects();
        let spared = match is_needed && !self.holds_for_others() {
            true => 0,
            false => common.active.max(1),
        };
        let slot = common.slots.take_above(spared)?;
        let stashed = Stashed { packet, slot, is_delivered: posted.is_some() };
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

    /// Of many ranks that may lack the same, not all report `seq` at once.
    fn take_turn(&mut self, now: Instant, seq: Seq) {
        if self.takers > PROMPT_TAKERS {
            self.arrivals.defer_gaps(now + self.spread(seq.0, self.takers));
        }
    }

    /// What is expected next has moved on: an acknowledgement may be due.
    fn on_advance(&mut self, now: Instant, common: &Common) {
        if self.awaited.take_if(|end| !self.arrivals.expects().precedes(*end)).is_some() {
            self.arrivals.owe(now, AckWhen::Now, common.config.ack_delay);
        }
        self.acknowledge_run(now, common);
    }

    /// A wait that differs from rank to rank and from `number` to number, so that of `ranks` not
    /// all report at once: of a gap, who reports first gets a repair that spares the others their
    /// report.
    fn spread(&self, number: u32, ranks: u32) -> Duration {
        let mixed = (u64::from(self.position) << 32 | u64::from(number))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            >> 32;
        SPREAD_PER_TAKER * (mixed as u32 % ranks)
    }

    /// A message has come to its end in order: the rule says whether it is acknowledged now. Where
    /// all are asked and take turns, a rule that would let some answer earlier gives way.
    fn on_message(&mut self, now: Instant, common: &Common, takes_turn: bool) {
        let number = self.messages;
        self.messages = number.wrapping_add(1);
        let is_due = match self.policy.acks {
            AckRule::Every => true,
            AckRule::EveryNth(messages) => self.messages.is_multiple_of(messages), // [BC-R16]
            AckRule::Skewed(messages) => number % messages == self.position % messages, // [BC-R17]
        };
        let is_rare = self.policy.acks != AckRule::Every;
        let when = if is_due && !(takes_turn && is_rare) {
            AckWhen::Now
        } else {
            AckWhen::After(u32::MAX)
        };
        self.arrivals.owe(now, when, common.config.ack_delay);
    }

    /// A long run is acknowledged several times per window, by each rank at another place.
    fn acknowledge_run(&mut self, now: Instant, common: &Common) {
        let config = &common.config;
        let room = config.credit_packets(config.receive_truesize_bytes).min(config.window_packets);
        let interval = (room / 4).max(1);
        let earlier = self.position % (interval / 4 + 1);
        let when = AckWhen::After(interval - earlier);
        self.arrivals.owe(now, when, config.ack_delay);
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
        for stashed in self.stash.take_all() {
            common.slots.give_back(stashed.slot);
        }
        self.arrivals = Arrivals::default();
        self.take_posted()
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
    /// there that nothing has been placed in.
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
        let end = posted.bytes.map_or(posted.capacity, |bytes| bytes.min(posted.capacity));
        Some((posted.id, offset, most.min(end.checked_sub(offset)?)))
    }

    // ---- reports --------------------------------------------------------------------------

    /// Begins to wait for a message, or for its rest, if there is one that may be asked for. What
    /// is known to be missing is reported anyway.
    fn watch(&mut self, now: Instant, common: &Common) {
        let is_waiting = !self.posted.is_empty() && !self.arrivals.has_gap();
        if !is_waiting || !self.policy.takers_ask(self.takers) {
            return;
        }
        if self.arrivals.expects() == self.front {
            self.overdue.begin(now, common.config.timeout_min);
        } else {
            self.overdue.begin_rest(now, self.idle_wait(common));
        }
    }

    /// When [`Self::on_deadline`] is wanted next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.arrivals.deadline().into_iter().chain(self.overdue.deadline()).min()
    }

    /// Lets timers run out. True if something is to be reported.
    pub(super) fn on_deadline(&mut self, now: Instant) -> bool {
        if self.overdue.on_deadline(now) {
            self.lacks_rest = true;
            // In a tree the question goes past whom an acknowledgement may be owed to.
            self.is_asked = true;
            self.arrivals.answer();
        }
        self.arrivals.on_deadline(now)
    }

    /// The room that a report offers, in units of the header's credits field.
    pub(super) fn credits(&self, common: &Common) -> u16 {
        let config = &common.config;
        let sharers = common.active.max(1);
        let socket = config.receive_truesize_bytes / sharers;
        let expects = self.arrivals.expects();
        let posted = match (self.keeps, self.posted.back()) {
            (false, Some(last)) if expects.precedes(last.end()) => last.end().since(expects),
            _ => 0,
        };
        let used = if self.stash.count() == 0 { 0 } else { expects.since(self.stashed_from) };
        let ring = WINDOW_PACKETS_MAX.saturating_sub(used);
        let buffers = (common.slots.free_slots() / sharers).min(ring);
        let packets = posted.saturating_add(buffers).min(WINDOW_PACKETS_MAX);
        let bytes = (packets * config.charge()).min(socket) / CREDIT_UNIT_BYTES;
        bytes.clamp(1, u32::from(u16::MAX)) as u16
    }

    /// What is to be reported, if something is.
    pub(super) fn take_report(&mut self, now: Instant) -> Option<Report> {
        let report = self.arrivals.take_report(now);
        let report = if self.lacks_rest { report.and(Some(Report::Nack)) } else { report };
        if self.policy.gaps == GapReports::Never {
            self.arrivals.hush();
        }
        report
    }

    pub(super) fn gap_map(&self) -> GapMap {
        self.arrivals.gap_map()
    }
}
