//! Runs: consecutive packets of a train pass the gate one by one, but the machine behind it as one.
//!
//! A large message is thousands of packets that differ only in their numbers. Each packet is tagged
//! and checked by itself; everything else is done once per run.

use super::Endpoint;
use crate::packet::{Destination, Head, Placement, Preview, Target, Transmit};
use omnes_wire::{Header, Instant, Kind, PACKET_OVERHEAD_BYTES, Rank};

/// Packets that were handled as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Number of packets.
    pub packets: u32,
    /// Where their data go; the data of consecutive packets are contiguous.
    pub placement: Placement,
}

impl Run {
    /// Where the data of each packet go, in order.
    pub fn placements(&self) -> impl Iterator<Item = Placement> + use<> {
        let Self { packets, placement } = *self;
        let bytes = placement.bytes / packets as usize;
        let of = move |index| Placement {
            offset: placement.offset + u64::from(index) * bytes as u64,
            bytes,
            ..placement
        };
        (0..packets).map(of)
    }
}

impl Endpoint {
    /// Handles the first packets of a train as [`Endpoint::handle_packet`] would one by one, as far
    /// as they are authentic and continue one another. All packets have `packet_bytes` bytes;
    /// `heads` are their heads. Returns `None`, without effect, if fewer than two do.
    pub fn handle_run<'a>(
        &mut self,
        now: Instant,
        heads: impl Iterator<Item = &'a [u8]> + Clone,
        packet_bytes: usize,
    ) -> Option<Run> {
        let (first, _) = Header::parse(heads.clone().next()?).ok()?;
        if !self.gate.is_from_job(&first) || self.liveness.is_gone(first.source) {
            return None;
        }
        let data_bytes = packet_bytes.checked_sub(PACKET_OVERHEAD_BYTES)?;
        let channel = usize::from(first.channel.0);
        let preview = match first.kind {
            Kind::Data => self.channels.get(channel)?.preview_run(&first, data_bytes)?,
            Kind::Cast => self.broadcast.as_ref()?.preview_run(&first, data_bytes)?,
            _ => return None,
        };
        let most = preview.bytes_max as usize / data_bytes;
        let packets = self.gate.count_run(&first, heads.take(most));
        if packets < 2 {
            return None;
        }
        self.gate.counters.accepted += u64::from(packets);
        self.liveness.on_heard(now, first.source);
        match first.kind {
            Kind::Cast => self.broadcast_mut()?.handle_run(now, &first, packets),
            _ => self.channel_mut(channel).handle_run(now, &first, packets),
        }
        let Preview { channel, receive, offset, head_bytes, .. } = preview;
        let target = Target::Receive(receive);
        let bytes = packets as usize * data_bytes;
        let placement = Placement { channel, target, offset, packet_offset: head_bytes, bytes };
        Some(Run { packets, placement })
    }

    /// Hands out packets that continue `transmit`, the packet handed out last, whose head is the
    /// first of `heads`: the same packets that [`Endpoint::poll_transmit`] would return one by one.
    /// Writes their heads after the first one and returns their number; the data of all packets are
    /// contiguous.
    pub fn continue_run(&mut self, now: Instant, transmit: &Transmit, heads: &mut [Head]) -> usize {
        let Some((head, rest)) = heads.split_first_mut() else { return 0 };
        let Ok((header, _)) = Header::parse(head.as_bytes()) else { return 0 };
        let most = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let (to, packets) = match (transmit.to, &mut self.broadcast) {
            (Destination::Rank(to), _) => match self.channels.get_mut(transmit.channel) {
                Some(channel) => (to, channel.continue_run(now, to, &header, most)),
                None => return 0,
            },
            (Destination::Group, Some(it)) => (Rank::ALL, it.continue_run(now, &header, most)),
            _ => return 0,
        };
        if packets == 0 {
            return 0;
        }
        let run = self.gate.run(header, to).skip(1);
        for ((bytes, tag), head) in run.zip(rest).take(packets as usize) {
            head.set_body(&[]);
            head.seal(&bytes, tag);
        }
        packets as usize
    }
}
