//! An honest rank in broadcasts: its endpoint, its sent and expected messages, and what the third
//! rank has received from it.

use super::Stream;
use crate::fuzz::{HONEST, endpoint, must};
use crate::rig::memory::Memory;
use omnes_proto::broadcast::{
    Broadcast, BroadcastConfig, CastGroupConfig, Event as CastEvent, GroupId,
};
use omnes_proto::channel::{ChannelConfig, Event as ChannelEvent};
use omnes_proto::endpoint::{Endpoint, Event};
use omnes_proto::limits::PAYLOAD_BYTES_MIN;
use omnes_proto::packet::{Destination, ReceiveId, SendId};
use omnes_wire::{Header, Kind, Rank, Seq};
use std::collections::BTreeMap;

const POOL_SLOTS: u32 = 16;
const WINDOW_PACKETS: u32 = 16;

/// What the third rank has received of a stream: enough to hit its window.
#[derive(Clone, Copy, Default)]
pub(super) struct Heard {
    pub(super) expects: Seq,
    pub(super) next: Seq,
}

pub(super) struct Honest {
    pub(super) endpoint: Endpoint,
    pub(super) memory: Memory,
    /// Memory of the channel, whose messages may carry acknowledgements.
    pub(super) channel_memory: Memory,
    pub(super) heard: BTreeMap<Stream, Heard>,
    /// Messages in progress, with their group.
    pub(super) sends: BTreeMap<SendId, GroupId>,
    /// Receives in progress, with the expected message.
    pub(super) receives: BTreeMap<ReceiveId, Expected>,
    /// Number of receives posted for each stream, which is the number of the next message.
    pub(super) posted: BTreeMap<Stream, usize>,
    /// Messages of this rank to the honest ranks' group, by length.
    pub(super) sent: Vec<usize>,
    /// A rank was declared dead or gone, so that messages may be missing.
    pub(super) has_lost: bool,
}

#[derive(Clone, Copy)]
pub(super) struct Expected {
    pub(super) group: GroupId,
    pub(super) root: Rank,
    pub(super) number: usize,
}

impl Honest {
    pub(super) fn new(rank: u32) -> Self {
        let config = BroadcastConfig {
            payload_bytes: PAYLOAD_BYTES_MIN,
            pool_slots: POOL_SLOTS,
            window_packets: WINDOW_PACKETS,
            ..BroadcastConfig::default()
        };
        let channel = ChannelConfig {
            payload_bytes: PAYLOAD_BYTES_MIN,
            pool_slots: POOL_SLOTS,
            ..ChannelConfig::default()
        };
        Self {
            endpoint: endpoint(rank, channel, Some(config)),
            memory: Memory::of_broadcasts(POOL_SLOTS).among_liars(),
            channel_memory: Memory::of_channel(POOL_SLOTS).among_liars(),
            heard: BTreeMap::new(),
            sends: BTreeMap::new(),
            receives: BTreeMap::new(),
            posted: BTreeMap::new(),
            sent: Vec::new(),
            has_lost: false,
        }
    }

    pub(super) fn open(&mut self, groups: &[CastGroupConfig]) {
        groups.iter().for_each(|group| self.machine().open(group.clone()));
    }

    pub(super) fn machine(&mut self) -> &mut Broadcast {
        match self.endpoint.broadcast_mut() {
            Some(machine) => machine,
            None => panic!("every rank has a broadcast machine"),
        }
    }

    /// The memory that transmits, placements and previews refer to by this index.
    pub(super) fn memory(&mut self, channel: usize) -> &mut Memory {
        match channel {
            0 => &mut self.channel_memory,
            _ => &mut self.memory,
        }
    }

    /// The third rank records a packet that is addressed to it or to all.
    pub(super) fn overhear(&mut self, packet: &[u8], to: Destination) {
        let Ok((header, _)) = Header::parse(packet) else { return };
        if to == Destination::Rank(Rank(1 - header.source.0)) {
            return;
        }
        let group = GroupId { communicator: header.communicator, number: header.channel.0 };
        match header.kind {
            Kind::Cast => {
                let heard = self.heard.entry((group, Rank(header.expects.0))).or_default();
                if !header.seq.precedes(heard.next) {
                    heard.next = header.seq.plus(1);
                }
            }
            Kind::CastAck | Kind::CastNack => {
                let heard = self.heard.entry((group, Rank(header.argument))).or_default();
                heard.expects = header.expects;
            }
            _ => {}
        }
    }

    /// The receive that the event completes, if any, with the length of its message and its
    /// content.
    pub(super) fn take(&mut self, event: Event) -> Option<(Expected, u64, Vec<u8>)> {
        match event {
            Event::Broadcast(CastEvent::Sent { id } | CastEvent::SendFailed { id, .. }) => {
                must(self.memory.finish_send(id));
                self.sends.remove(&id);
            }
            Event::Broadcast(CastEvent::Received { id, bytes }) => {
                let (_, content) = must(self.memory.finish_receive(id, bytes));
                return Some((self.receives.remove(&id)?, bytes, content));
            }
            Event::Broadcast(CastEvent::ReceiveFailed { id, .. }) => {
                must(self.memory.abandon_receive(id));
                self.receives.remove(&id);
            }
            // The third rank never answers pings, so it is occasionally found to have failed.
            Event::PeerFailed(rank) | Event::PeerDeparted(rank) => {
                self.has_lost |= rank.0 < HONEST;
            }
            Event::Channel(_, event) => self.take_of_channel(event),
            Event::Collective(event) => panic!("{event:?}, but no group has barriers"),
            Event::Excluded { .. } => {}
        }
        None
    }

    fn take_of_channel(&mut self, event: ChannelEvent) {
        let memory = &mut self.channel_memory;
        match event {
            ChannelEvent::Sent { id } | ChannelEvent::SendFailed { id, .. } => {
                must(memory.finish_send(id));
            }
            ChannelEvent::Received { id, bytes, .. } => {
                must(memory.finish_receive(id, bytes));
            }
            ChannelEvent::ReceiveFailed { id, .. } | ChannelEvent::Cut { id, .. } => {
                must(memory.abandon_receive(id));
            }
            ChannelEvent::Notice { .. }
            | ChannelEvent::Sought
            | ChannelEvent::PeerSilent { .. }
            | ChannelEvent::PeerQuiet { .. }
            | ChannelEvent::MtuBlackHole { .. }
            | ChannelEvent::Stable => {}
        }
    }
}
