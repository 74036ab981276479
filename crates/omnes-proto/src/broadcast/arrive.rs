//! Incoming packets: data are placed, and reports advance what was sent.

use super::history::Witness;
use super::incoming::Packet;
use super::stream::{Stream, StreamKey};
use super::{Broadcast, GroupId, KNOCKS_MAX};
use crate::limits::{CREDIT_UNIT_BYTES, WINDOW_PACKETS_MAX};
use crate::packet::{Move, Origin, Placement, Preview, Target};
use omnes_wire::{
    CastReport, CodedSet, ENVELOPE_BYTES, Envelope, Flags, GapMap, Header, Instant, Kind,
    PACKET_OVERHEAD_BYTES, Rank, Seq,
};
use std::ops::Range;
use std::time::Duration;

/// Contents of a report about a stream.
struct News {
    from: Rank,
    key: StreamKey,
    /// First missing number: every packet before it has arrived.
    expects: Seq,
    /// Space from there on, in units of the header's credits field.
    credits: u16,
    /// Time by which the report was delayed, if that is known.
    held_back: Option<Duration>,
    /// Number of the newest repair that the rank has seen.
    newest_repair: u16,
    /// The report is repeated, as nothing has arrived for some time.
    is_idle: bool,
    /// Packet `expects` has arrived, but found no buffer.
    is_full: bool,
    /// Whether a packet sent to all has arrived there since its last report, if that is known.
    hears: Option<bool>,
}

/// Stream that a data packet belongs to.
fn stream_of_data(header: &Header) -> StreamKey {
    StreamKey { group: group_of(header), root: Rank(header.expects.0) }
}

fn group_of(header: &Header) -> GroupId {
    GroupId { communicator: header.communicator, number: header.channel.0 }
}

/// Parses a data packet, and returns the offset of its data too; `None` if it is invalid.
fn take_apart(header: &Header, head: &[u8], packet_bytes: usize) -> Option<(Packet, usize)> {
    let is_first = header.flags.has(Flags::FIRST);
    if is_first != (header.argument == 0) {
        return None;
    }
    let envelope =
        if is_first { Some(Envelope::parse(head.get(PACKET_OVERHEAD_BYTES..)?)?) } else { None };
    let start = PACKET_OVERHEAD_BYTES + if is_first { ENVELOPE_BYTES } else { 0 };
    let bytes = packet_bytes.checked_sub(start)?;
    let Header { seq, argument: index, flags, epoch, .. } = *header;
    Some((Packet { seq, index, flags, epoch, envelope, bytes }, start))
}

impl Broadcast {
    /// Handles an authentic packet of this machine's kinds; see
    /// [`Channel::handle_packet`](crate::channel::Channel::handle_packet).
    pub(crate) fn handle_packet(
        &mut self,
        now: Instant,
        header: &Header,
        head: &[u8],
        packet_bytes: usize,
    ) -> Option<Placement> {
        match header.kind {
            Kind::Cast => return self.on_data(now, header, head, packet_bytes),
            Kind::CastCoded => return self.on_coded(now, header, packet_bytes),
            Kind::Hello => {
                self.heard.insert(header.source);
            }
            _ => self.on_report_packet(now, header, head),
        }
        None
    }

    /// True if the group of a data packet is open and not broken; otherwise the packet is counted,
    /// and remembered if the group may still be opened.
    fn is_open(&mut self, key: StreamKey, header: &Header) -> bool {
        if self.is_dormant(key) {
            self.common.counters.duplicates += 1;
            // The sender of a packet to this rank alone did not know that it had arrived.
            let is_to_all = header.flags.has(Flags::GROUP);
            if header.flags.has(Flags::ACK_NOW) || !is_to_all {
                let from = (!is_to_all).then_some(header.source);
                self.answer_dormant(key, from, header.seq.plus(1));
            }
            return false;
        }
        match self.groups.get(&key.group) {
            Some(group) => group.broken_by.is_none(),
            None => {
                self.common.counters.unknown_group += 1;
                self.knocks.insert(key);
                if self.knocks.len() > KNOCKS_MAX {
                    // The entry of the oldest communicator, which may not be one of this rank's.
                    self.knocks.pop_first();
                }
                // If no rank answers, a packet to all is soon sent to each rank alone.
                if header.flags.has(Flags::ACK_NOW) && !header.flags.has(Flags::GROUP) {
                    self.dormant.on_question(key, Some(header.source), None);
                }
                false
            }
        }
    }

    fn is_member(&self, group: GroupId, rank: Rank) -> bool {
        let group = self.groups.get(&group);
        group.is_some_and(|group| group.config.nodes.contains(rank))
    }

    // ---- data -----------------------------------------------------------------------------

    fn on_data(
        &mut self,
        now: Instant,
        header: &Header,
        head: &[u8],
        packet_bytes: usize,
    ) -> Option<Placement> {
        let key = self.key_of_data(header)?;
        let config = &self.common.config;
        let taken = take_apart(header, head, packet_bytes).filter(|(packet, _)| {
            let length = packet.envelope.map_or(0, |envelope| envelope.bytes);
            packet.bytes <= usize::from(config.payload_bytes)
                && length <= config.message_bytes_max()
        });
        let Some((packet, start)) = taken else {
            self.common.counters.malformed += 1;
            return None;
        };
        let at = self.stream(key)?;
        let (target, offset, bytes) = self.take(now, at, packet)?;
        Some(Placement { channel: self.index, target, offset, packet_offset: start, bytes })
    }

    /// Handles several packets combined in one: recovers the data if this rank lacks exactly one of
    /// them.
    fn on_coded(
        &mut self,
        now: Instant,
        header: &Header,
        packet_bytes: usize,
    ) -> Option<Placement> {
        let key = self.key_of_data(header)?;
        let payload_bytes = usize::from(self.common.config.payload_bytes);
        if header.source != key.root || packet_bytes != PACKET_OVERHEAD_BYTES + payload_bytes {
            self.common.counters.malformed += 1;
            return None;
        }
        let at = self.stream(key)?;
        let incoming = self.streams[at].incoming.as_mut()?;
        incoming.hears = true;
        incoming.arrivals.on_packet(now, header.epoch);
        let set = CodedSet::of(header);
        let Some(coded) = incoming.decode(&self.common.config, set) else {
            if incoming.lacks_any(set) {
                incoming.on_undecodable(now, &self.common);
            }
            self.schedule(at);
            return None;
        };
        let (target, offset, bytes) = self.take(now, at, coded.packet)?;
        self.common.counters.decoded += 1;
        let Target::Receive(receive) = target else { return None };
        for (known, known_bytes) in coded.known {
            let bytes = bytes.min(known_bytes as usize);
            let origin = Origin::Known(known);
            self.common.moves.push_back(Move { origin, receive, offset, bytes });
        }
        let packet_offset = PACKET_OVERHEAD_BYTES;
        Some(Placement { channel: self.index, target, offset, packet_offset, bytes })
    }

    /// Returns the stream of a data packet if its group is open and its sender is allowed to send
    /// it; otherwise counts the packet.
    fn key_of_data(&mut self, header: &Header) -> Option<StreamKey> {
        let key = stream_of_data(header);
        if key.root.0 >= self.size || key.root == self.me {
            self.common.counters.malformed += 1;
            return None;
        }
        if !self.is_open(key, header) {
            return None;
        }
        if header.source != key.root && !self.is_member(key.group, header.source) {
            self.common.counters.malformed += 1;
            return None;
        }
        Some(key)
    }

    /// Accepts a packet, and schedules what follows from it. Returns where its data go.
    fn take(&mut self, now: Instant, at: usize, packet: Packet) -> Option<(Target, u64, usize)> {
        let stream = &mut self.streams[at];
        let incoming = stream.incoming.as_mut()?;
        let before = incoming.arrivals.expects();
        let place = incoming.take(now, &mut self.common, packet);
        if stream.roles.collects() {
            stream.expect_answers(now, &packet, &self.common);
        }
        let expects = stream.incoming.as_ref().map_or(before, |own| own.arrivals.expects());
        if before != expects {
            stream.free(&mut self.common); // The ranks that report here may have it already.
        }
        self.recount(at);
        self.schedule(at);
        place
    }

    /// Returns where the data of this packet and of the packets that follow it would go.
    pub(crate) fn preview(&self, header: &Header, head: &[u8]) -> Option<Preview> {
        let key = stream_of_data(header);
        if self.groups.get(&key.group)?.broken_by.is_some() {
            return None;
        }
        let incoming = self.streams[self.find(key)?].incoming.as_ref()?;
        let (packet, head_bytes) = take_apart(header, head, usize::MAX)?;
        let (receive, offset, bytes_max) = incoming.preview(&self.common, &packet)?;
        Some(Preview { channel: self.index, receive, offset, bytes_max, head_bytes })
    }

    /// As [`Self::preview`] for a packet and the run that it may begin: packets of one message from
    /// its root, in order, each with a full payload. `None` at ranks that others depend on.
    pub(crate) fn preview_run(&self, header: &Header, data_bytes: usize) -> Option<Preview> {
        let is_plain = header.kind == Kind::Cast && header.flags == Flags::GROUP;
        let is_whole = data_bytes == usize::from(self.common.config.payload_bytes);
        let key = stream_of_data(header);
        if !is_plain || !is_whole || header.source != key.root {
            return None;
        }
        let stream = &self.streams[self.find(key)?];
        let arrivals = &stream.incoming.as_ref()?.arrivals;
        let is_next = header.seq == arrivals.expects() && !arrivals.has_gap();
        let is_leaf = !stream.roles.collects();
        (is_next && is_leaf).then(|| self.preview(header, &[])).flatten()
    }

    /// Accepts a run of `packets` authentic packets, the first of which has `header`, as that many
    /// calls of [`Broadcast::handle_packet`] would. [`Self::preview_run`] has returned where their
    /// data go.
    pub(crate) fn handle_run(&mut self, now: Instant, header: &Header, packets: u32) {
        let Some(at) = self.find(stream_of_data(header)) else { return };
        if let Some(incoming) = &mut self.streams[at].incoming {
            incoming.take_run(now, &mut self.common, header.epoch, packets);
        }
        self.recount(at);
        self.schedule(at);
    }

    // ---- reports --------------------------------------------------------------------------

    /// Handles an acknowledgement that arrived with a message of `from` [BC-R15].
    pub(crate) fn handle_carried(&mut self, now: Instant, from: Rank, report: &CastReport) {
        let CastReport { communicator, group, root, expects, credits } = *report;
        let key = StreamKey { group: GroupId { communicator, number: group }, root };
        self.common.counters.acks_carried += 1;
        // It was delayed until there was a message to travel with.
        let news = News {
            from,
            key,
            expects,
            credits,
            held_back: None,
            newest_repair: 0,
            is_idle: false,
            is_full: false,
            hears: None,
        };
        self.on_report(now, news, None);
    }

    fn on_report_packet(&mut self, now: Instant, header: &Header, head: &[u8]) {
        let is_nack = header.kind == Kind::CastNack;
        let news = News {
            from: header.source,
            key: StreamKey { group: group_of(header), root: Rank(header.argument) },
            expects: header.expects,
            credits: header.credits,
            held_back: Some(Duration::from_micros(u64::from(header.seq.0))),
            newest_repair: header.epoch,
            is_idle: is_nack && header.flags.has(Flags::REPEATED),
            is_full: header.flags.has(Flags::REJECT),
            hears: Some(header.flags.has(Flags::HEARS)),
        };
        if !is_nack && header.flags.has(Flags::QUERY) {
            return self.on_question(news);
        }
        if !is_nack {
            self.common.counters.acks_received += 1;
            return self.on_report(now, news, None);
        }
        self.common.counters.nacks_received += 1;
        let gaps = GapMap::parse(head.get(PACKET_OVERHEAD_BYTES..).unwrap_or_default());
        self.on_report(now, news, Some((gaps, header.flags.has(Flags::MISSING_REST))));
    }

    /// Returns the stream that a report or a question concerns, if it exists and its group is not
    /// broken; otherwise counts the packet.
    fn find_told(&mut self, key: StreamKey) -> Option<usize> {
        if self.is_dormant(key) {
            return None; // It needs no more reports; a question is answered by the caller.
        }
        if self.groups.get(&key.group).is_none_or(|group| group.broken_by.is_some()) {
            self.common.counters.unknown_group += 1;
            return None;
        }
        let found = self.stream(key);
        self.common.counters.malformed += u64::from(found.is_none());
        found
    }

    /// The collector of this rank's acknowledgements is waiting for that of every packet before
    /// `expects`.
    fn on_question(&mut self, news: News) {
        let Some(at) = self.find_told(news.key) else {
            let News { from, key, expects, .. } = news;
            if self.is_dormant(key) {
                self.answer_dormant(key, Some(from), expects);
            } else if !self.groups.contains_key(&key.group) {
                self.dormant.on_question(key, Some(from), None);
            }
            return;
        };
        let stream = &mut self.streams[at];
        let is_collector = stream.roles.collector == Some(news.from);
        let Some(incoming) = stream.incoming.as_mut().filter(|_| is_collector) else {
            self.common.counters.malformed += 1;
            return;
        };
        if incoming.arrivals.expects().plus(WINDOW_PACKETS_MAX).precedes(news.expects) {
            self.common.counters.beyond_window += 1;
            return;
        }
        incoming.answer_question(news.expects);
        self.schedule(at);
    }

    /// Handles a report; `gaps` is the gap map of a gap report, and whether everything after it is
    /// missing too.
    fn on_report(&mut self, now: Instant, news: News, gaps: Option<(GapMap, bool)>) {
        let News { from, key, expects, credits, held_back, .. } = news;
        let Some(at) = self.find_told(key) else { return };
        let stream = &mut self.streams[at];
        if !stream.collector.covers(from) {
            self.common.counters.malformed += 1;
            return;
        }
        let end = stream.end();
        // The ranks below an inner rank may be ahead of it.
        let most = if stream.sending.is_some() { end } else { end.plus(WINDOW_PACKETS_MAX) };
        if most.precedes(expects) {
            self.common.counters.beyond_window += 1;
            return;
        }
        if let (Some(hears), true) = (news.hears, stream.roles.is_repairer) {
            stream.collector.note_hearing(now, from, hears, end);
            stream.copy_if_deaf(from, expects);
        }
        let credit_bytes = u32::from(credits) * CREDIT_UNIT_BYTES;
        if gaps.is_none() || stream.gap_reports_acknowledge() {
            let credit = self.common.config.credit_packets(credit_bytes).min(WINDOW_PACKETS_MAX);
            if stream.collector.on_report(now, from, (expects, credit), held_back) {
                stream.free(&mut self.common);
                stream.on_progress_below();
            }
        }
        if let (Some((map, lacks_all)), true) = (gaps, stream.roles.is_repairer) {
            let repair = stream.policy.numbers_repairs().then_some(news.newest_repair);
            let News { is_idle, is_full, .. } = news;
            let from = Witness { rank: from, repair, is_idle, is_full };
            stream.collector.on_gaps(now, from, (expects, &map), end);
            if lacks_all {
                let room = self.common.config.credit_packets(credit_bytes);
                self.resend_rest(now, at, from, expects..end, room);
            }
            self.judge_report(now, at, from.rank);
        }
        self.streams[at].arm(now, &self.common);
        self.recount(at);
        self.schedule(at);
    }

    /// `from` lacks everything from `expects` on: it did not know the group when the packets were
    /// sent, or is waiting for a message that is overdue. A rank that asks by itself may meanwhile
    /// have received the packets sent recently, so it gets the first and the last: these show which
    /// gaps are left. Other ranks get as many packets as they have space for; if the first one
    /// found none, further ones would not either.
    fn resend_rest(
        &mut self,
        now: Instant,
        at: usize,
        from: Witness,
        lacks: Range<Seq>,
        room: u32,
    ) {
        let Stream { collector, policy, roles, .. } = &mut self.streams[at];
        let Some(slowest) = collector.slowest() else { return };
        let Range { start: expects, end } = lacks;
        let first = if expects.precedes(slowest) { slowest } else { expects };
        if !first.precedes(end) {
            return;
        }
        let count = end.since(first).min(WINDOW_PACKETS_MAX);
        if policy.takers_ask(roles.takers) {
            for seq in [first, first.plus(count - 1)] {
                if !collector.is_under_way(now, from, seq) {
                    collector.want(from.rank, seq, false);
                }
            }
        } else {
            let room = if from.is_full { 1 } else { room.max(1) };
            let wanted = (0..count.min(room)).map(|index| first.plus(index));
            wanted.for_each(|seq| collector.want(from.rank, seq, false));
        }
    }
}
