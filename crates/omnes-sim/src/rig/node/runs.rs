//! Runs of packets, sent and received as one, as socket drivers do.

use super::{Node, World};
use crate::rig::network::InFlight;
use crate::rig::trace::What;
use omnes_proto::packet::{Segment, Transmit};
use omnes_wire::PACKET_OVERHEAD_BYTES;

/// Most packets that are sent or received as one run.
pub(super) const RUN_PACKETS: usize = 20;

/// Whether a rank handles consecutive packets as one run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Runs {
    /// Each packet separately.
    Off,
    /// As many as possible together.
    On,
}

impl Node {
    /// Hands out the packets that continue `first`, whose head is the first one: `first` and these
    /// packets, at most `most` in all, the n-th of them with the n-th head.
    pub(super) fn run_of(&mut self, world: &World, first: Transmit, most: u32) -> Vec<Transmit> {
        let mut run = vec![first];
        if world.runs == Runs::On && most > 1 {
            let heads = &mut self.heads[..RUN_PACKETS.min(most as usize)];
            let more = self.endpoint.continue_run(world.now, &first, heads);
            run.extend((1..=more).map(|index| {
                let segment = first.segment.map(|segment| {
                    let offset = segment.offset + index as u64 * u64::from(segment.bytes);
                    Segment { offset, ..segment }
                });
                Transmit { segment, ..first }
            }));
        }
        run
    }

    /// Receives the first packets of the socket as one, if they form a run.
    pub(super) fn take_in_run(&mut self, world: &mut World) -> Option<Vec<InFlight>> {
        let first = self.socket.front().filter(|_| world.runs == Runs::On)?;
        let key = |packet: &InFlight| (packet.from, packet.way, packet.bytes.len());
        let fits = |packet: &&InFlight| {
            key(packet) == key(first) && packet.head_bytes == PACKET_OVERHEAD_BYTES
        };
        let train = self.socket.iter().take(RUN_PACKETS).take_while(fits);
        let heads = train.map(|packet| &packet.bytes[..PACKET_OVERHEAD_BYTES]);
        let run = self.endpoint.handle_run(world.now, heads, first.bytes.len())?;
        let packets: Vec<InFlight> = self.socket.drain(..run.packets as usize).collect();
        for (packet, placement) in packets.iter().zip(run.placements()) {
            let (now, sender) = (world.now, packet.from.unwrap_or(self.rank));
            world.network.trace.packet(now, What::Taken, sender, self.rank, &packet.bytes);
            self.note_accepted(world, packet);
            let placed = self.place(&placement, &packet.bytes);
            world.check(self.rank, placed);
        }
        self.drain(world);
        if let Some(last) = run.placements().last() {
            self.check_received(world, &last);
        }
        Some(packets)
    }
}
