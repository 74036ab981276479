//! Outgoing packets: reports first, then repairs, then new data and copies for co-roots, in runs
//! that a driver can send as trains.

use super::incoming::Stashed;
use super::policy::{AckRule, Asking, Hold};
use super::sending::{Outgoing, Sending};
use super::stream::Stream;
use super::{Broadcast, Common};
use crate::channel::Reply;
use crate::lane::Report;
use crate::limits::BURST_PACKETS;
use crate::packet::{Destination, Head, Segment, Source};
use omnes_wire::{
    CastReport, ChannelId, CodedSet, Envelope, Flags, Header, Instant, Kind, Rank, Seq,
};

/// Number of messages after which all ranks acknowledge a lone one, to measure the round trip.
const MEASURE_MESSAGES: u32 = 63;

/// Packet about to be handed out, before the endpoint adds job and tag.
pub(crate) struct Outbound {
    pub(crate) to: Destination,
    pub(crate) header: Header,
    pub(crate) segment: Option<Segment>,
}

impl Broadcast {
    /// Hands out the next packet, as `poll_transmit` of a channel does.
    pub(crate) fn poll_transmit(&mut self, now: Instant, head: &mut Head) -> Option<Outbound> {
        if self.hellos > 0 {
            self.hellos -= 1;
            head.set_body(&[]);
            let mut header = Header::blank(Kind::Hello, self.me);
            header.flags = Flags::GROUP;
            header.argument = self.heard.len() as u32;
            return Some(Outbound { to: Destination::Group, header, segment: None });
        }
        if let Some(answer) = self.next_answer(head) {
            return Some(answer);
        }
        while let Some(at) = self.ready.front().copied() {
            let outbound = self.streams[at].next_packet(now, &mut self.common, head);
            self.recount(at); // This may have freed copies.
            let stream = &mut self.streams[at];
            if let Some(outbound) = outbound {
                if stream.fresh_run >= BURST_PACKETS && self.ready.len() > 1 {
                    stream.fresh_run = 0;
                    self.ready.rotate_left(1);
                }
                return Some(outbound);
            }
            stream.is_ready = false;
            stream.fresh_run = 0;
            self.ready.pop_front();
            if !self.make_dormant(at) {
                self.note_deadline(at);
            }
        }
        None
    }

    /// Hands out packets that continue the packet handed out last, which was sent to all with
    /// `header`: the same packets that [`Self::poll_transmit`] would return next. Returns their
    /// number, at most `most`; the data of all packets are contiguous.
    pub(crate) fn continue_run(&mut self, now: Instant, header: &Header, most: u32) -> u32 {
        let Some(at) = self.ready.front().copied() else { return 0 };
        let stream = &mut self.streams[at];
        let burst_left = match self.ready.len() {
            1 => most,
            _ => (BURST_PACKETS - 1).saturating_sub(stream.fresh_run).min(most),
        };
        let packets = stream.run_left(now, &self.common, header).unwrap_or(0).min(burst_left);
        stream.continue_run(now, packets);
        self.common.counters.casts_sent += u64::from(packets);
        packets
    }
}

impl Broadcast {
    /// Takes an acknowledgement that is owed to `to` but not due yet, for a message that is sent
    /// there [BC-R15].
    pub(crate) fn take_carried(&mut self, to: Rank) -> Option<CastReport> {
        self.wake_at?;
        // A stream without a timer owes nothing. There may be as many streams as ranks.
        let timed = self.wakes.iter().enumerate().filter(|(_, wake)| wake.is_some());
        let owes = |at: &usize| self.streams.get(*at).is_some_and(|it| it.owes_lazily(to));
        let at = timed.map(|(at, _)| at).find(owes)?;
        let stream = &mut self.streams[at];
        let incoming = stream.incoming.as_mut()?;
        incoming.arrivals.on_piggyback();
        let report = CastReport {
            communicator: stream.key.group.communicator,
            group: stream.key.group.number,
            root: stream.key.root,
            expects: incoming.arrivals.expects(),
            credits: incoming.credits(&self.common),
        };
        if !self.make_dormant(at) {
            self.note_deadline(at);
        }
        Some(report)
    }
}

impl Stream {
    /// True if an acknowledgement for `to` is waiting for a message to travel with.
    fn owes_lazily(&self, to: Rank) -> bool {
        self.roles.collector == Some(to)
            && !self.roles.speaks_for_others
            && self.incoming.as_ref().is_some_and(|incoming| incoming.arrivals.owes_lazily())
    }

    fn next_packet(
        &mut self,
        now: Instant,
        common: &mut Common,
        head: &mut Head,
    ) -> Option<Outbound> {
        if let Some(outbound) = self.next_report(now, common, head) {
            return Some(outbound);
        }
        if let Some(outbound) = self.next_question(common, head) {
            return Some(outbound);
        }
        if !self.holds_repairs(now)
            && let Some(outbound) = self.next_repair(now, common, head)
        {
            return Some(outbound);
        }
        let has_copies = self.copied.iter().any(|(_, next)| next.precedes(self.end()));
        if !has_copies && !self.copied.is_empty() && self.fresh_run >= BURST_PACKETS {
            self.fresh_run = 0; // Starts the next run, whose copies are sent in a row too.
        }
        if (!has_copies || self.fresh_run < BURST_PACKETS)
            && let Some(outbound) = self.next_fresh(now, common, head)
        {
            self.fresh_run += 1;
            return Some(outbound);
        }
        self.next_copy(now, common, head).or_else(|| {
            self.fresh_run = 0;
            if has_copies { self.next_fresh(now, common, head) } else { None }
        })
    }

    fn header(&self, common: &Common, kind: Kind) -> Header {
        let group = self.key.group;
        Header {
            communicator: group.communicator,
            channel: ChannelId(group.number),
            ..Header::blank(kind, common.me)
        }
    }

    // ---- reports --------------------------------------------------------------------------

    fn next_report(
        &mut self,
        now: Instant,
        common: &mut Common,
        head: &mut Head,
    ) -> Option<Outbound> {
        let report = self.take_report(now)?;
        let addressee = self.addressee(report)?;
        let acknowledges = self.acknowledges();
        let incoming = self.incoming.as_mut()?;
        let lacks_rest = std::mem::take(&mut incoming.lacks_rest);
        let is_nack = report == Report::Nack;
        let has_refused = is_nack && incoming.refused.take() == Some(incoming.arrivals.expects());
        // The rank that repairs records which ranks hear multicast; in a tree this is not the rank
        // that acknowledgements go to.
        let is_told = self.roles.repairer == Some(addressee);
        let hears = is_told && std::mem::take(&mut incoming.hears);
        let incoming = self.incoming.as_ref()?;
        // The time of the ranks below is part of a branch's round trip.
        let held_back = if self.roles.speaks_for_others {
            0
        } else {
            incoming.arrivals.held_back(now).as_micros().min(u128::from(u32::MAX))
        };
        let mut header = self.header(common, Kind::CastAck);
        header.expects = acknowledges;
        header.seq = Seq(held_back as u32);
        header.epoch = incoming.arrivals.epoch();
        header.argument = self.key.root.0;
        header.flags = Flags::NONE.with_if(Flags::HEARS, hears);
        head.set_body(&[]);
        if is_nack {
            header.kind = Kind::CastNack;
            header.expects = incoming.arrivals.expects();
            header.credits = incoming.credits(common);
            header.flags = header
                .flags
                .with_if(Flags::REJECT, has_refused)
                .with_if(Flags::MISSING_REST, lacks_rest)
                .with_if(Flags::REPEATED, incoming.is_idle(now, common));
            head.set_body(incoming.gap_map().as_bytes());
            common.counters.nacks_sent += 1;
        } else {
            header.credits = self.room(common, acknowledges)?;
            common.counters.acks_sent += 1;
        }
        let to = Destination::Rank(addressee);
        Some(Outbound { to, header, segment: None })
    }

    /// Asks a rank for an acknowledgement that it owes, and reports how much has been sent.
    fn next_question(&mut self, common: &Common, head: &mut Head) -> Option<Outbound> {
        let to = Destination::Rank(self.collector.next_to_ask()?);
        let mut header = self.header(common, Kind::CastAck);
        header.flags = Flags::QUERY;
        header.expects = self.end();
        header.argument = self.key.root.0;
        head.set_body(&[]);
        Some(Outbound { to, header, segment: None })
    }

    // ---- data -----------------------------------------------------------------------------

    fn next_repair(
        &mut self,
        now: Instant,
        common: &mut Common,
        head: &mut Head,
    ) -> Option<Outbound> {
        while self.roles.is_repairer && self.collector.has_repairs() {
            let ranks = common.config.multicast_repair_ranks;
            let codes = self.policy.codes_repairs();
            let may_follow = |seq| match (codes, &mut self.sending) {
                (true, Some(sending)) => sending.may_be_coded(seq),
                _ => 0,
            };
            let repair = self.collector.next_repair(ranks, may_follow)?;
            let outbound = match repair.coded {
                Some(set) => self.coded(common, set, head),
                None => self.data(common, repair.seq, head),
            };
            let Some(mut outbound) = outbound else { continue };
            match repair.to.rank() {
                None => common.counters.repairs_by_multicast += 1,
                Some(_) => common.counters.repairs_by_unicast += 1,
            }
            common.counters.repairs_coded += u64::from(repair.coded.is_some());
            self.collector.on_repaired(now, &repair, self.end());
            address(&mut outbound, repair.to);
            outbound.header.flags = outbound.header.flags.with_if(Flags::ACK_NOW, repair.asks);
            outbound.header.epoch = self.epoch();
            if repair.asks && repair.to == Destination::Group {
                self.collector.answers.on_asked_all(now);
            }
            if repair.asks && !self.collector.answers.knows_round_trip() {
                self.collector.answers.on_asked(now, repair.seq);
            }
            self.arm(now, common);
            return Some(outbound);
        }
        None
    }

    /// Number of the latest repair, if repairs are numbered.
    fn epoch(&self) -> u16 {
        if self.policy.numbers_repairs() { self.collector.history.repairs() } else { 0 }
    }

    /// True if repairs wait for others, so that they fit into fewer packets: for a short time, and
    /// only in the middle of a long message.
    fn holds_repairs(&self, now: Instant) -> bool {
        let left = self.sending.as_ref().map_or(0, Sending::rest_of_message);
        left >= BURST_PACKETS && self.collector.holds_repairs(now)
    }

    /// Number of packets that may be in flight at present.
    fn open_packets(&self, common: &Common) -> u32 {
        let Some(sending) = &self.sending else { return 0 };
        let config = &common.config;
        let window =
            config.credit_packets(self.collector.window_bytes()).min(config.window_packets);
        let limit = self.collector.limit().unwrap_or(sending.next.plus(window));
        limit.since(sending.base).min(window)
    }

    /// True if the window has space for a packet that is to be sent; at the start of a run, for
    /// enough packets to make a train, since otherwise each acknowledgement would cause a few short
    /// trains.
    fn may_send_fresh(&self, open: u32) -> bool {
        let Some(sending) = &self.sending else { return false };
        let under_way = sending.next.since(sending.base);
        let room = open.saturating_sub(under_way);
        let run = BURST_PACKETS.min(sending.fresh()).min(open / 2).max(1);
        let is_run = self.fresh_run > 0 || under_way == 0 || room >= run;
        sending.has_fresh() && room > 0 && is_run
    }

    /// True if a lone message is to be acknowledged immediately: if no receiver asks for it when it
    /// is overdue, if acknowledgements are few compared to its packets, or if the round trip is not
    /// well known or has not been measured for a long time.
    fn is_worth_asking(&self, message: &Outgoing) -> bool {
        !self.policy.takers_ask(self.roles.takers)
            || message.packets > 1
            || !self.collector.answers.knows_round_trip_well()
            || self.unmeasured >= MEASURE_MESSAGES
    }

    fn next_fresh(
        &mut self,
        now: Instant,
        common: &mut Common,
        head: &mut Head,
    ) -> Option<Outbound> {
        let open = self.open_packets(common);
        if !self.may_send_fresh(open) {
            return None;
        }
        let sending = self.sending.as_mut()?;
        let seq = sending.next;
        let message = sending.message_of(seq)?;
        let is_lone = !sending.base.precedes(message.first);
        sending.next = seq.plus(1);
        let mut outbound = self.data(common, seq, head)?;
        let is_lone_asked = self.policy.asking == Asking::WhenIdle && is_lone;
        let is_awaited = self.policy.hold == Hold::Basic
            || message.reply == Reply::Soon
            || is_lone_asked && self.is_worth_asking(&message);
        // Receivers acknowledge a long message several times per window by themselves; if less than
        // that may be in flight, they must be asked, or the window would run empty.
        let is_last = outbound.header.flags.has(Flags::LAST);
        self.unasked += 1;
        let is_short = open < common.config.window_packets && self.unasked >= asking_interval(open);
        let asks = if is_last { is_awaited } else { is_short };
        if asks {
            self.unasked = 0;
        }
        if is_last {
            self.unmeasured = if asks { 0 } else { self.unmeasured.saturating_add(1) };
        }
        address(&mut outbound, Destination::Group);
        outbound.header.flags = outbound.header.flags.with_if(Flags::ACK_NOW, asks);
        outbound.header.epoch = self.epoch();
        common.counters.casts_sent += 1;
        self.collector.history.on_sent(now, seq);
        let is_answered = is_last && self.policy.acks == AckRule::Every;
        if asks || is_answered {
            self.collector.answers.on_asked(now, seq);
        }
        if asks {
            self.collector.answers.on_asked_all(now);
        }
        self.has_asked = asks || is_answered;
        self.arm(now, common);
        if self.collector.slowest().is_none() {
            self.free(common);
        }
        Some(outbound)
    }

    /// Number of packets that may directly follow the one with `header` in a run: full packets that
    /// ask for nothing and fit into the window.
    fn run_left(&mut self, now: Instant, common: &Common, header: &Header) -> Option<u32> {
        let is_plain = header.kind == Kind::Cast && header.flags == Flags::GROUP;
        let group = (header.communicator, header.channel.0);
        let is_here = group == (self.key.group.communicator, self.key.group.number);
        let has_repairs = self.collector.has_repairs();
        if has_repairs && !self.holds_repairs(now) {
            return None;
        }
        // Without reporters, a packet is complete as soon as it is sent.
        self.collector.slowest()?;
        let open = self.open_packets(common);
        let sending = self.sending.as_mut()?;
        let is_next = self.fresh_run > 0 && header.seq.plus(1) == sending.next;
        if !is_plain || !is_here || !self.copied.is_empty() || !is_next {
            return None;
        }
        let message = sending.message_of(sending.next)?;
        let index = header.argument.checked_add(1)?;
        let whole = (message.packets - 1).checked_sub(index)?;
        let room = open.checked_sub(sending.next.since(sending.base))?;
        let unasked = if open < common.config.window_packets {
            asking_interval(open).checked_sub(self.unasked + 1)?
        } else {
            u32::MAX
        };
        let unmended = if has_repairs {
            sending.rest_of_message().checked_sub(BURST_PACKETS - 1)?
        } else {
            u32::MAX
        };
        Some(whole.min(room).min(unasked).min(unmended))
    }

    /// Sends `packets` more packets, a number returned by [`Self::run_left`].
    fn continue_run(&mut self, now: Instant, packets: u32) {
        let Some(sending) = &mut self.sending else { return };
        let first = sending.next;
        sending.next = first.plus(packets);
        (0..packets).for_each(|index| self.collector.history.on_sent(now, first.plus(index)));
        self.unasked += packets;
        self.fresh_run += packets;
        self.has_asked &= packets == 0;
    }

    /// Returns a packet for a co-root, which may also have received it by multicast [BC-R11], or
    /// for a rank that multicast does not reach, which answers the last packet of each message and
    /// of each part.
    fn next_copy(
        &mut self,
        now: Instant,
        common: &mut Common,
        head: &mut Head,
    ) -> Option<Outbound> {
        if self.copied.is_empty() {
            return None;
        }
        // Once for all packets that are sent now: there may be many such ranks.
        let is_judged = self.copies_judged_at.replace(now) == Some(now);
        if !is_judged && self.end_copies(now) && self.sending.is_none() {
            self.free(common); // Packets that were kept only for these ranks.
        }
        let end = self.end();
        let open = match self.sending {
            Some(_) => self.open_packets(common),
            None => common.config.window_packets,
        };
        let interval = asking_interval(open);
        for at in 0..self.copied.len() {
            let (rank, mut seq) = self.copied[at];
            let mut outbound = None;
            while outbound.is_none() && seq.precedes(end) {
                if !self.collector.has(rank, seq) {
                    outbound = self.data(common, seq, head);
                }
                seq = seq.plus(1);
            }
            self.copied[at].1 = seq;
            if self.sending.is_none() {
                self.free(common);
            }
            if let Some(mut outbound) = outbound {
                address(&mut outbound, Destination::Rank(rank));
                if self.collector.is_deaf(rank) {
                    let Header { seq, flags, .. } = outbound.header;
                    let asks = flags.has(Flags::LAST) || seq.0.is_multiple_of(interval);
                    outbound.header.flags = flags.with_if(Flags::ACK_NOW, asks);
                    self.collector.history.on_copied(now, seq, rank);
                }
                common.counters.unicast_copies += 1;
                return Some(outbound);
            }
        }
        None
    }

    /// Returns the data of several packets combined in one.
    fn coded(&mut self, common: &mut Common, set: CodedSet, head: &mut Head) -> Option<Outbound> {
        let sending = self.sending.as_mut()?;
        common.coded_parts.clear();
        for seq in set.packets() {
            common.coded_parts.extend(sending.shape(&common.config, seq)?.segment);
        }
        head.set_body(&[]);
        let mut header = set.name_in(self.header(common, Kind::CastCoded));
        header.expects = Seq(self.key.root.0);
        let bytes = u32::from(common.config.payload_bytes);
        let segment = Some(Segment { source: Source::Coded, offset: 0, bytes });
        Some(Outbound { to: Destination::Group, header, segment })
    }

    /// Packet `seq` as it was or will be sent; `None` if this rank does not have it any more.
    fn data(&mut self, common: &Common, seq: Seq, head: &mut Head) -> Option<Outbound> {
        let (index, flags, envelope, segment) = match (&mut self.sending, &self.incoming) {
            (Some(sending), _) => {
                let shape = sending.shape(&common.config, seq)?;
                (shape.index, shape.flags, shape.envelope, shape.segment)
            }
            (None, Some(incoming)) => parts(incoming.stashed(seq)?),
            (None, None) => return None,
        };
        head.set_body(&[]);
        if let Some(envelope) = envelope {
            head.set_body(&envelope.emit());
        }
        let mut header = self.header(common, Kind::Cast);
        header.seq = seq;
        header.flags = flags;
        header.argument = index;
        header.expects = Seq(self.key.root.0);
        Some(Outbound { to: Destination::Group, header, segment })
    }
}

/// Interval, in packets of a long message, at which answers are requested if `open` packets may be
/// in flight.
fn asking_interval(open: u32) -> u32 {
    (open / 4).max(1)
}

/// Splits a stashed packet into the fields for sending it again.
fn parts(stashed: &Stashed) -> (u32, Flags, Option<Envelope>, Option<Segment>) {
    let packet = &stashed.packet;
    let flags = Flags::NONE
        .with_if(Flags::FIRST, packet.flags.has(Flags::FIRST))
        .with_if(Flags::LAST, packet.flags.has(Flags::LAST));
    let source = Source::Slot(stashed.slot);
    let segment = Segment { source, offset: 0, bytes: packet.bytes as u32 };
    (packet.index, flags, packet.envelope, (packet.bytes > 0).then_some(segment))
}

fn address(outbound: &mut Outbound, to: Destination) {
    outbound.to = to;
    if to == Destination::Group {
        outbound.header.flags = outbound.header.flags.with(Flags::GROUP);
    }
}
