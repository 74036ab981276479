//! Runs: packets of the bulk lane that continue one another, taken in or handed out as one.

use super::peer::Lane;
use super::send_lane::Item;
use super::{Channel, Checked, Phase};
use crate::limits::BURST_PACKETS;
use crate::packet::{Placement, Target};
use omnes_wire::{Flags, Header, Instant, Kind, PACKET_OVERHEAD_BYTES, Rank};

/// True for a packet of the bulk lane that asks for nothing and ends nothing.
fn is_plain(header: &Header) -> bool {
    header.kind == Kind::Data && header.flags == Flags::BULK
}

impl Channel {
    // ---- in -------------------------------------------------------------------------------

    /// How many packets of `packet_bytes` bytes from the one with `header` on may be taken in as a
    /// run, if that many follow: packets of one granted message, in order, with all the data that a
    /// packet holds, after which nothing is missing or over.
    pub(crate) fn run_max(&self, header: &Header, packet_bytes: usize) -> u32 {
        self.run_room(header, packet_bytes).unwrap_or(0)
    }

    fn run_room(&self, header: &Header, packet_bytes: usize) -> Option<u32> {
        let payload = usize::from(self.config.payload_bytes);
        if self.failed.contains(&header.source) || !is_plain(header) {
            return None;
        }
        if packet_bytes != PACKET_OVERHEAD_BYTES + payload {
            return None;
        }
        let receive = &self.peers.get(header.source)?.receive[Lane::Bulk];
        if header.seq != receive.expects() || receive.has_gap() {
            return None;
        }
        let (part, offset, _) = self.bulk_place(header)?;
        let capacity = self.matching.receives[part.receive.0 as usize].capacity;
        let end = capacity.min(part.base + part.bytes);
        u32::try_from(end.checked_sub(offset)? / payload as u64).ok()
    }

    /// Takes in a run of so many authentic packets, of which the first has `header`; as many calls
    /// of [`Channel::handle_packet`] would. Returns where the data of all go.
    ///
    /// There may be no more of them than [`Self::run_max`] says.
    pub(crate) fn handle_run(
        &mut self,
        now: Instant,
        header: &Header,
        packets: u32,
    ) -> Option<Placement> {
        let from = header.source;
        self.on_answer(now, header, &[]);
        let (part, offset, _) = self.bulk_place(header)?;
        let receive = &mut self.peer(from).receive[Lane::Bulk];
        receive.on_packet(now, header.epoch);
        receive.on_run(now, packets);
        self.finish_bulk_parts(from);
        self.acknowledge_as_asked(now, header, false);
        self.recount(from);
        self.schedule(now, from);
        self.check_stable();
        Some(Placement {
            channel: self.index,
            target: Target::Receive(part.receive),
            offset,
            packet_offset: PACKET_OVERHEAD_BYTES,
            bytes: packets as usize * usize::from(self.config.payload_bytes),
        })
    }

    // ---- out ------------------------------------------------------------------------------

    /// Hands out packets that continue the one that was handed out last, to `to` and with `header`:
    /// as many calls of [`Channel::poll_transmit`] would give them next. How many, at most `most`;
    /// the data of each lie behind those of the packet before.
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
        peer.flight_bytes += packets * charge;
        peer.unasked_bytes += packets * charge;
        self.outgoing[message.0 as usize].bulk_next += packets;
        self.burst += packets;
        self.counters.data_packets += u64::from(packets);
        packets
    }

    /// How many packets may follow that are whole, ask for nothing and leave room for another.
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
        let in_flight = peer.flight_bytes + charge;
        let room = peer.window_bytes().checked_sub(in_flight)? / charge;
        let unasked = (peer.window_bytes() / 2).checked_sub(peer.unasked_bytes + 1)? / charge;
        let turn = match self.ready.len() {
            1 => u32::MAX,
            _ => (BURST_PACKETS - 1).checked_sub(self.burst)?,
        };
        Some(ready.min(window).min(room).min(unasked).min(turn))
    }
}
