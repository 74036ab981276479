//! Fuzzing of channels: bytes are a list of operations on two honest ranks and on a third that has
//! the right key and sends whatever the bytes say.
//!
//! Nothing may panic, no data may be placed outside of posted memory, nothing may be sent from
//! memory that was given back, and the state of a rank stays bounded. At the end the two honest
//! ranks are left alone: unless a rank was declared dead or gone, all that they have sent to each
//! other must arrive.

use super::bytes::Bytes;
use super::wire::Wire;
use super::{HONEST, PACKETS_MAX, check_bounded, endpoint, must, place};
use crate::rig::bounds::{LANES, lane_of};
use crate::rig::builder::{JOB, KEY};
use crate::rig::ledger::Operation;
use crate::rig::memory::Memory;
use crate::rig::payload::content;
use crate::rig::stranger::sealed;
use omnes_proto::channel::{ChannelConfig, Event as ChannelEvent, Message, Pattern, Reply};
use omnes_proto::endpoint::{Endpoint, Event};
use omnes_proto::packet::{Destination, HEAD_BYTES_MAX, Head, ReceiveId, SendId};
use omnes_wire::{
    CAST_REPORT_BYTES, ChannelId, CommunicatorId, Flags, Header, Instant, Kind, Rank, Seq,
};
use std::collections::BTreeSet;
use std::time::Duration;

const POOL_SLOTS: u32 = 6;
const WINDOW_PACKETS: u32 = 16;
const COMMUNICATOR: CommunicatorId = CommunicatorId(1);

/// What the third rank has received from an honest one on a lane: enough to hit its windows.
#[derive(Clone, Copy, Default)]
struct Heard {
    expects: Seq,
    next: Seq,
    epoch: u16,
}

struct Honest {
    heard: [Heard; LANES],
    endpoint: Endpoint,
    memory: Memory,
    sends: BTreeSet<SendId>,
    receives: Vec<ReceiveId>,
    /// A rank was declared dead or gone, so that messages may be missing.
    has_lost: bool,
}

struct Rig {
    now: Instant,
    ranks: Vec<Honest>,
    wire: Wire<u32>,
}

/// Runs a list of operations on channels: two honest ranks, and one that has the right key and
/// sends whatever the bytes say.
pub fn channel(bytes: &[u8]) {
    let mut rig = Rig::new();
    Bytes(bytes).run(|bytes| rig.operate(bytes));
    rig.finish();
}

impl Rig {
    fn new() -> Self {
        let ranks = (0..HONEST).map(Honest::new).collect();
        Self { now: Instant::ZERO, ranks, wire: Wire::new() }
    }

    fn operate(&mut self, bytes: &mut Bytes) {
        let operation = bytes.byte();
        let rank = u32::from(bytes.byte()) % HONEST;
        match operation % 16 {
            0 | 1 => self.send(rank, bytes),
            2 => self.receive(rank, bytes),
            3 | 4 => {
                if let Some((to, packet)) = self.wire.pop() {
                    self.hand_over(to, &packet);
                }
            }
            5 => drop(self.wire.pop()),
            6 => {
                if let Some((to, packet)) = self.wire.replay(bytes) {
                    self.hand_over(to, &packet);
                }
            }
            7 => self.wire.mutate(bytes),
            8..=10 => self.craft(rank, bytes),
            11 => self.pass_time(bytes.time()),
            12 => self.extend(rank, bytes),
            13 => self.cancel(rank, bytes),
            14 => self.ranks[rank as usize].endpoint.channel_mut(0).stop(self.now),
            _ => self.ranks[rank as usize].endpoint.channel_mut(0).resume(self.now),
        }
        self.drain_all();
    }

    // ---- operations -----------------------------------------------------------------------

    fn send(&mut self, rank: u32, bytes: &mut Bytes) {
        let length = bytes.number() % 20_000;
        let to = match bytes.byte() % 4 {
            0 => Rank(2),
            _ => Rank(1 - rank),
        };
        let available = u64::from(length) * u64::from(bytes.byte()) / 255;
        let tag = u32::from(bytes.byte() % 2);
        let reply = if bytes.byte().is_multiple_of(2) { Reply::Soon } else { Reply::Lazy };
        let communicator = COMMUNICATOR;
        let message = Message { to, communicator, tag, bytes: length.into(), available, reply };
        let own = &mut self.ranks[rank as usize];
        if let Ok(id) = own.endpoint.channel_mut(0).send(message) {
            let content = content(u64::from(length), length as usize);
            own.memory.add_send(id, Operation(id.0 as usize), content, available);
            if to.0 < HONEST {
                own.sends.insert(id);
            }
        }
    }

    fn receive(&mut self, rank: u32, bytes: &mut Bytes) {
        let source = match bytes.byte() % 4 {
            0 => None,
            1 => Some(Rank(2)),
            _ => Some(Rank(1 - rank)),
        };
        let tag = (!bytes.byte().is_multiple_of(4)).then_some(u32::from(bytes.byte() % 2));
        let capacity = u64::from(bytes.number() % 20_000);
        self.post(rank, Pattern { communicator: COMMUNICATOR, source, tag }, capacity);
    }

    fn post(&mut self, rank: u32, pattern: Pattern, capacity: u64) {
        let own = &mut self.ranks[rank as usize];
        if let Ok(id) = own.endpoint.channel_mut(0).receive(self.now, pattern, capacity) {
            own.memory.add_receive(id, Operation(id.0 as usize), capacity);
            own.receives.push(id);
        }
    }

    /// The third rank sends an arbitrary packet with a valid tag.
    fn craft(&mut self, to: u32, bytes: &mut Bytes) {
        let usual = [Kind::Data, Kind::Grant, Kind::Ack, Kind::Nack, Kind::Data, Kind::Pong];
        let rare = [Kind::Ping, Kind::Failed, Kind::Bye];
        let kind = bytes.kind(&usual, &rare);
        let flags = Flags(bytes.byte());
        let heard = self.ranks[to as usize].heard[lane_of(flags)];
        let header = Header {
            kind,
            job: JOB,
            communicator: CommunicatorId(u32::from(bytes.byte() % 8 != 7)),
            channel: ChannelId(u8::from(bytes.byte() == 255)),
            flags,
            source: Rank(2),
            seq: bytes.near(heard.expects),
            expects: bytes.near(heard.next),
            epoch: heard.epoch.wrapping_add(bytes.number() as u16 / 128),
            credits: bytes.number() as u16,
            argument: bytes.number(),
        };
        let mut covered = Vec::new();
        if kind == Kind::Data && header.flags.has(Flags::FIRST) {
            covered = bytes.envelope().emit().to_vec();
            if header.flags.has(Flags::CARRIES_REPORT) {
                covered.extend((0..CAST_REPORT_BYTES).map(|_| bytes.byte()));
            }
        } else if kind == Kind::Nack {
            covered = bytes.gap_map();
        }
        let mut packet = sealed(&KEY, &header, Rank(to), &covered);
        if kind == Kind::Data {
            bytes.fill(&mut packet);
        }
        let heard = &mut self.ranks[to as usize].heard[lane_of(flags)];
        if matches!(kind, Kind::Data | Kind::Grant) && header.seq == heard.expects {
            // Probably accepted; acknowledgements will show.
            heard.expects = heard.expects.plus(1);
        }
        self.hand_over(to, &packet);
    }

    fn extend(&mut self, rank: u32, bytes: &mut Bytes) {
        let own = &mut self.ranks[rank as usize];
        let Some(id) = own.sends.iter().nth(bytes.byte() as usize % 8).copied() else { return };
        let available = own.memory.content_bytes(id);
        own.memory.extend(Operation(id.0 as usize), available);
        own.endpoint.channel_mut(0).extend(id, available);
    }

    fn cancel(&mut self, rank: u32, bytes: &mut Bytes) {
        let own = &mut self.ranks[rank as usize];
        let Some(id) = own.receives.get(bytes.byte() as usize % 8).copied() else { return };
        if own.endpoint.channel_mut(0).cancel(id) {
            own.receives.retain(|receive| *receive != id);
            must(own.memory.abandon_receive(id));
        }
    }

    fn pass_time(&mut self, time: Duration) {
        self.now = self.now + time;
        self.ranks.iter_mut().for_each(|own| own.endpoint.handle_timeout(self.now));
        self.drain_all();
    }

    // ---- driving --------------------------------------------------------------------------

    fn hand_over(&mut self, to: u32, packet: &[u8]) {
        let head = &packet[..packet.len().min(HEAD_BYTES_MAX)];
        let own = &mut self.ranks[to as usize];
        let preview = own.endpoint.preview(head);
        if let Some(placement) = own.endpoint.handle_packet(self.now, head, packet.len()) {
            place(&mut own.memory, packet, &placement, preview);
        }
        self.drain(to);
    }

    fn drain_all(&mut self) {
        (0..HONEST).for_each(|rank| self.drain(rank));
    }

    fn drain(&mut self, rank: u32) {
        let own = &mut self.ranks[rank as usize];
        while let Some((_, step)) = own.endpoint.poll_move() {
            must(own.memory.apply_move(&step));
        }
        let mut head = Head::default();
        for count in 0.. {
            let Some(transmit) = own.endpoint.poll_transmit(self.now, &mut head) else { break };
            assert!(count < PACKETS_MAX, "rank {rank} never stops sending");
            let mut packet = head.as_bytes().to_vec();
            if let Some(segment) = &transmit.segment {
                packet.extend_from_slice(&must(own.memory.gather(segment, &[])));
            }
            let Destination::Rank(to) = transmit.to else { panic!("no channel multicasts") };
            own.overhear(&packet, to);
            if to.0 < HONEST {
                self.wire.push(to.0, packet)
            } else {
                self.wire.keep(HONEST - 1, packet)
            }
        }
        while let Some(event) = own.endpoint.poll_event(self.now) {
            own.take(event);
        }
    }

    // ---- the end --------------------------------------------------------------------------

    /// Leaves the honest ranks alone until all that they sent to each other has arrived.
    fn finish(&mut self) {
        for rank in 0..HONEST {
            let own = &mut self.ranks[rank as usize];
            check_bounded(&own.endpoint.channels());
            own.endpoint.channel_mut(0).resume(self.now);
            for id in own.sends.clone() {
                let available = own.memory.content_bytes(id);
                own.memory.extend(Operation(id.0 as usize), available);
                own.endpoint.channel_mut(0).extend(id, available);
            }
        }
        self.drain_all();
        for _ in 0..20_000 {
            if self.ranks.iter().all(|own| own.sends.is_empty() || own.has_lost) {
                return;
            }
            while let Some((to, packet)) = self.wire.pop() {
                self.hand_over(to, &packet);
            }
            self.pass_time(Duration::from_millis(1));
            self.make_room();
        }
        if self.ranks.iter().all(|own| !own.has_lost) {
            panic!("messages between honest ranks do not arrive");
        }
    }

    /// Receives every message that waits for a receive.
    fn make_room(&mut self) {
        for rank in 0..HONEST {
            for communicator in [CommunicatorId(0), COMMUNICATOR] {
                let any = Pattern { communicator, source: None, tag: None };
                if self.ranks[rank as usize].endpoint.channels()[0].probe(&any).is_some() {
                    self.post(rank, any, 20_000);
                    self.drain(rank);
                }
            }
        }
    }
}

impl Honest {
    fn new(rank: u32) -> Self {
        let config = ChannelConfig {
            payload_bytes: 256,
            eager_bytes: 2000,
            eager_head_bytes: 600,
            pool_slots: POOL_SLOTS,
            window_packets: WINDOW_PACKETS,
            ..ChannelConfig::default()
        };
        Self {
            heard: Default::default(),
            endpoint: endpoint(rank, config, None),
            memory: Memory::of_channel(POOL_SLOTS),
            sends: BTreeSet::new(),
            receives: Vec::new(),
            has_lost: false,
        }
    }

    /// The third rank records a packet that is addressed to it.
    fn overhear(&mut self, packet: &[u8], to: Rank) {
        let Ok((header, _)) = Header::parse(packet) else { return };
        if to != Rank(2) {
            return;
        }
        let heard = &mut self.heard[lane_of(header.flags)];
        match header.kind {
            Kind::Data | Kind::Grant => {
                if !header.seq.precedes(heard.next) {
                    heard.next = header.seq.plus(1);
                }
                heard.epoch = header.epoch;
                heard.expects = header.expects;
            }
            Kind::Ack | Kind::Nack => heard.expects = header.expects,
            _ => {}
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Channel(_, ChannelEvent::Sent { id } | ChannelEvent::SendFailed { id, .. }) => {
                must(self.memory.finish_send(id));
                self.sends.remove(&id);
            }
            Event::Channel(_, ChannelEvent::Received { id, bytes, .. }) => {
                must(self.memory.finish_receive(id, bytes));
                self.receives.retain(|receive| *receive != id);
            }
            Event::Channel(
                _,
                ChannelEvent::ReceiveFailed { id, .. } | ChannelEvent::Cut { id, .. },
            ) => {
                must(self.memory.abandon_receive(id));
                self.receives.retain(|receive| *receive != id);
            }
            Event::Channel(..) | Event::Broadcast(_) => {}
            // The third rank never answers pings, so it is occasionally found to have failed.
            Event::PeerFailed(rank) | Event::PeerDeparted(rank) => {
                self.has_lost |= rank.0 < HONEST;
            }
            Event::Collective(event) => panic!("{event:?}, but no group has barriers"),
            Event::Excluded { .. } => {}
        }
    }
}
