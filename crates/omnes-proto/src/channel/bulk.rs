//! The bulk lane: granted data, packet by packet, and runs of consecutive packets that are accepted
//! or handed out as one.

use super::arrive::{Numbered, Source};
use super::peer::{BulkPart, Lane};
use super::send_lane::Item;
use super::{Channel, Checked, Phase};
use crate::lane::Arrival;
use crate::limits::BURST_PACKETS;
use crate::packet::{Placement, Preview, Target};
use omnes_wire::{Flags, Header, Instant, Kind, Rank};

/// True for a packet of the bulk lane that requests no answer and ends nothing.
fn is_plain(header: &Header) -> bool {
    header.kind == Kind::Data && header.flags == Flags::BULK
}

impl Channel {
    // ---- in -------------------------------------------------------------------------------

    pub(super) fn on_bulk(
        &mut self,
        now: Instant,
        packet: Numbered,
        arrival: Arrival,
    ) -> Option<Placement> {
        let Numbered { header, source: Source::Packet(packet_offset), bytes, .. } = packet else {
            return None;
        };
        let nack_delay = self.config.nack_delay;
        let Some((part, offset, part_bytes)) = self.bulk_place(&header) else {
            self.counters.malformed += 1;
            return None;
        };
        let fits = if header.flags.has(Flags::CUT) {
            self.cut_bulk(&packet, &part)
        } else {
            part_bytes == bytes as u64
        };
        if !fits || header.kind != Kind::Data {
            self.counters.malformed += 1;
            return None;
        }
        let capacity = self.matching.receives[part.receive.0 as usize].capacity;
        let receive = &mut self.peer(header.source).receive[Lane::Bulk];
        let had_gap = receive.has_gap();
        if arrival == Arrival::InOrder {
            receive.on_in_order(now);
            while receive.next_is_here() {
                receive.on_in_order(now);
            }
        } else {
            receive.on_ahead(now, header.seq, nack_delay);
        }
        self.finish_bulk_parts(header.source);
        self.acknowledge_as_asked(now, &header, had_gap);
        let bytes = bytes.min(capacity.saturating_sub(offset) as usize);
        let target = Target::Receive(part.receive);
        (bytes > 0).then_some(Placement {
            channel: self.index,
            target,
            offset,
            packet_offset,
            bytes,
        })
    }

    /// Granted part that a bulk packet belongs to, with the packet's offset in the message and its
    /// length.
    pub(super) fn bulk_place(&self, header: &Header) -> Option<(BulkPart, u64, u64)> {
        let peer = self.peers.get(header.source)?;
        let part = peer.bulk_parts.iter().find(|part| part.contains(header.seq))?;
        let index = header.seq.since(part.first);
        if header.argument != index {
            return None;
        }
        let payload = u64::from(self.config.payload_bytes);
        let start = u64::from(index) * payload;
        Some((*part, part.base + start, (part.bytes - start).min(payload)))
    }

    fn finish_bulk_parts(&mut self, from: Rank) {
        loop {
            let peer = self.peer(from);
            let expects = peer.receive[Lane::Bulk].expects();
            let Some(part) = peer.bulk_parts.front().copied() else { return };
            if expects.precedes(part.end()) {
                return;
            }
            peer.bulk_parts.pop_front();
            if let Some(matched) = &mut self.matching.receives[part.receive.0 as usize].matched {
                matched.is_bulk_done = true;
            }
            self.complete_if_done(part.receive);
        }
    }

    /// Returns where the data of this packet and of the run that it may begin would go: packets of
    /// one granted message, in order, each with a full payload.
    pub(crate) fn preview_run(&self, header: &Header, data_bytes: usize) -> Option<Preview> {
        let is_whole = data_bytes == usize::from(self.config.payload_bytes);
        if self.failed.contains(&header.source) || !is_plain(header) || !is_whole {
            return None;
        }
        let receive = &self.peers.get(header.source)?.receive[Lane::Bulk];
        let is_next = header.seq == receive.expects() && !receive.has_gap();
        is_next.then(|| self.preview(header, &[])).flatten()
    }

    /// Accepts a run of `packets` authentic packets, the first of which has `header`, as that many
    /// calls of [`Channel::handle_packet`] would. [`Self::preview_run`] has returned where their
    /// data go.
    pub(crate) fn handle_run(&mut self, now: Instant, header: &Header, packets: u32) {
        let from = header.source;
        self.on_answer(now, header, &[]);
        let receive = &mut self.peer(from).receive[Lane::Bulk];
        receive.on_packet(now, header.epoch);
        receive.on_run(now, packets);
        self.finish_bulk_parts(from);
        self.watch(now, from);
        self.acknowledge_as_asked(now, header, false);
        self.recount(from);
        self.schedule(from);
        self.check_stable();
    }

    // ---- out ------------------------------------------------------------------------------

    /// Hands out packets that continue the packet handed out last, which was sent to `to` with
    /// `header`: the same packets that [`Channel::poll_transmit`] would return next. Returns their
    /// number, at most `most`; the data of all packets are contiguous.
    pub(crate) fn continue_run(
        &mut self,
        now: Instant,
        to: Rank,
        header: &Header,
        most: u32,
    ) -> u32 {
        let packets = self.run_left(to, header).unwrap_or(0).min(most);
        if packets == 0 {
            return 0;
        }
        let charge = Checked::charge(u32::from(self.config.payload_bytes));
        let peer = self.peer(to);
        let message = peer.granted[0];
        for index in header.argument + 1..=header.argument + packets {
            let item = Item::Data { message, index };
            peer.send[Lane::Bulk].push_next(now, item, charge);
        }
        peer.flow.on_sent(packets * charge);
        self.outgoing[message.0 as usize].bulk_next += packets;
        self.burst += packets;
        self.counters.data_packets += u64::from(packets);
        packets
    }

    /// Number of full packets that may follow, request no answer and leave space for another
    /// packet.
    fn run_left(&self, to: Rank, header: &Header) -> Option<u32> {
        let is_its_turn = self.phase == Phase::Running && self.ready.front() == Some(&to);
        let peer = self.peers.get(to).filter(|peer| peer.has_only_data)?;
        let send = &peer.send[Lane::Bulk];
        if !is_its_turn || !is_plain(header) || send.next() != header.seq.plus(1) {
            return None;
        }
        let outgoing = &self.outgoing[peer.granted.front()?.0 as usize];
        let index = outgoing.bulk_next;
        if header.argument.checked_add(1) != Some(index) {
            return None;
        }
        let payload = u64::from(self.config.payload_bytes);
        let charge = Checked::charge(u32::from(self.config.payload_bytes));
        let last = outgoing.bulk_packets.checked_sub(1)?;
        let available = outgoing.message.available.checked_sub(outgoing.ordered)? / payload;
        let ready = u32::try_from(available).unwrap_or(u32::MAX).min(last).checked_sub(index)?;
        let window = (self.config.window_packets - 1).checked_sub(send.in_flight())?;
        let in_flight = peer.flight_bytes(Lane::Bulk) + charge;
        let room = peer.flow.window_bytes().checked_sub(in_flight)? / charge;
        let unasked =
            (peer.flow.window_bytes() / 2).checked_sub(peer.flow.unasked_bytes + 1)? / charge;
        let burst_left = match self.ready.len() {
            1 => u32::MAX,
            _ => (BURST_PACKETS - 1).checked_sub(self.burst)?,
        };
        Some(ready.min(window).min(room).min(unasked).min(burst_left))
    }
}
