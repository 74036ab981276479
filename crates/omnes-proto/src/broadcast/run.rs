//! Runs: packets of a broadcast that continue one another, taken in as one.

use super::Broadcast;
use super::arrive::stream_of_data;
use super::incoming::Incoming;
use super::slots::Common;
use crate::packet::{Placement, ReceiveId, Target};
use omnes_wire::{Flags, Header, Instant, Kind, PACKET_OVERHEAD_BYTES, Seq};

impl Broadcast {
    /// How many packets of `packet_bytes` bytes from the one with `header` on may be taken in as a
    /// run, if that many follow: packets of one message to all, in order, with all the data that a
    /// packet holds, for a receive that is posted. None at ranks that others depend on.
    pub(crate) fn run_max(&self, header: &Header, packet_bytes: usize) -> u32 {
        self.run_room(header, packet_bytes).unwrap_or(0)
    }

    fn run_room(&self, header: &Header, packet_bytes: usize) -> Option<u32> {
        let payload = usize::from(self.common.config.payload_bytes);
        let is_plain = header.kind == Kind::Cast && header.flags == Flags::GROUP;
        let key = stream_of_data(header);
        let is_from_root = header.source == key.root && key.root != self.me;
        if !is_plain || !is_from_root || packet_bytes != PACKET_OVERHEAD_BYTES + payload {
            return None;
        }
        if self.groups.get(&key.group)?.broken_by.is_some() {
            return None;
        }
        let stream = &self.streams[self.find(key)?];
        if stream.roles.collects() {
            return None;
        }
        stream.incoming.as_ref()?.run_room(&self.common, header)
    }

    /// Takes in a run of so many authentic packets, of which the first has `header`; as many calls
    /// of [`Broadcast::handle_packet`] would. Returns where the data of all go.
    ///
    /// There may be no more of them than [`Self::run_max`] says.
    pub(crate) fn handle_run(
        &mut self,
        now: Instant,
        header: &Header,
        packets: u32,
    ) -> Option<Placement> {
        let at = self.find(stream_of_data(header))?;
        let incoming = self.streams[at].incoming.as_mut()?;
        let (receive, offset) = incoming.take_run(now, &mut self.common, header, packets)?;
        self.recount(at);
        self.schedule(at);
        Some(Placement {
            channel: self.index,
            target: Target::Receive(receive),
            offset,
            packet_offset: PACKET_OVERHEAD_BYTES,
            bytes: packets as usize * usize::from(self.common.config.payload_bytes),
        })
    }
}

impl Incoming {
    fn run_room(&self, common: &Common, header: &Header) -> Option<u32> {
        let is_next = header.seq == self.arrivals.expects() && !self.arrivals.has_gap();
        if self.keeps || !is_next || header.argument == 0 {
            return None;
        }
        let posted = &self.posted[self.find(first_of(header))?];
        let offset = common.config.offset(header.argument);
        let room = posted.capacity.checked_sub(offset)? / u64::from(common.config.payload_bytes);
        Some(posted.end().since(header.seq).min(room as u32))
    }

    fn take_run(
        &mut self,
        now: Instant,
        common: &mut Common,
        header: &Header,
        packets: u32,
    ) -> Option<(ReceiveId, u64)> {
        let receive = self.posted[self.find(first_of(header))?].id;
        self.arrivals.on_packet(now, 0);
        self.arrivals.on_run(now, packets);
        self.on_advance(now, common);
        self.complete(common);
        self.thin_out(common);
        Some((receive, common.config.offset(header.argument)))
    }
}

/// First packet of the message that a packet belongs to.
fn first_of(header: &Header) -> Seq {
    Seq(header.seq.0.wrapping_sub(header.argument))
}
