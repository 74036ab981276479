//! Packets of strangers: noise, other versions, other jobs, wrong keys, and replays; sent to one
//! rank, or to the multicast group and so to every rank.

use crate::engine::random::Random;
use crate::rig::builder::{JOB, KEY};
use crate::rig::cluster::Cluster;
use crate::rig::network::InFlight;
use crate::rig::rule::Way;
use omnes_proto::collective::{STEP_JOIN, STEP_RELEASE};
use omnes_proto::packet::Destination;
use omnes_wire::{
    ChannelId, CommunicatorId, Flags, Header, JobId, JobKey, Kind, Rank, Seq, VERSION,
};

/// What a stranger sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forgery {
    /// Random bytes.
    Noise,
    /// The first part of a valid packet.
    Truncated,
    /// A packet of another version of the wire format.
    WrongVersion,
    /// A packet of another job, with that job's key.
    ForeignJob,
    /// A packet of our job under another key.
    WrongKey,
    /// A copy of an authentic packet that was sent before. The only forgery that a rank accepts.
    Replay,
}

impl Forgery {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Noise,
        Self::Truncated,
        Self::WrongVersion,
        Self::ForeignJob,
        Self::WrongKey,
        Self::Replay,
    ];
}

const CHANNEL_KINDS: [Kind; 8] = [
    Kind::Data,
    Kind::Grant,
    Kind::Ack,
    Kind::Nack,
    Kind::Ping,
    Kind::Pong,
    Kind::Failed,
    Kind::Bye,
];

const STEP_KINDS: [Kind; 5] =
    [Kind::Step, Kind::Step, Kind::StepNack, Kind::StepAsk, Kind::StepTell];

const BROADCAST_KINDS: [Kind; 5] =
    [Kind::Cast, Kind::CastCoded, Kind::CastAck, Kind::CastNack, Kind::Hello];

/// Header, tag and `body` of a packet from `header.source` to `to` under a job's key.
pub(crate) fn sealed(key: &JobKey, header: &Header, to: Rank, body: &[u8]) -> Vec<u8> {
    let head = header.emit();
    let tag = key.sender(header.source).tag(&head, to, body);
    let mut packet = head.to_vec();
    packet.extend_from_slice(&tag.0.to_be_bytes());
    packet.extend_from_slice(body);
    packet
}

impl Cluster {
    /// A stranger sends a packet to a rank; false if there was nothing to replay.
    pub fn forge(&mut self, forgery: Forgery, to: u32) -> bool {
        let to = Rank(to);
        let (from, bytes) = if forgery == Forgery::Replay {
            let Some(old) = self.old_packet(Destination::Rank(to)) else { return false };
            old
        } else if forgery == Forgery::Noise {
            (None, noise(&mut self.strangers))
        } else {
            let header = plausible_header(&mut self.strangers, self.config.ranks, to);
            (None, forged_bytes(&mut self.strangers, forgery, header, to))
        };
        self.inject(from, to, Way::Unicast, bytes);
        true
    }

    /// A stranger sends a packet to the multicast group, so every living rank receives it; false if
    /// there was nothing to replay.
    pub fn forge_to_group(&mut self, forgery: Forgery) -> bool {
        let (from, bytes) = if forgery == Forgery::Replay {
            let Some(old) = self.old_packet(Destination::Group) else { return false };
            old
        } else if forgery == Forgery::Noise {
            (None, noise(&mut self.strangers))
        } else {
            let to = Rank(self.strangers.below(u64::from(self.config.ranks)) as u32);
            let header = plausible_header(&mut self.strangers, self.config.ranks, to);
            let random = &mut self.strangers;
            let flags = Flags(random.below(64) as u8).with(Flags::GROUP);
            let header = Header { kind: random.pick(&BROADCAST_KINDS), flags, ..header };
            (None, forged_bytes(random, forgery, header, Rank::ALL))
        };
        let dead = self.dead();
        for to in (0..self.config.ranks).map(Rank).filter(|rank| !dead.contains(rank)) {
            self.inject(from, to, Way::Multicast, bytes.clone());
        }
        true
    }

    /// A stranger sends a packet about a group's barriers to a rank, to the NIC of its node, or to
    /// all ranks; false if there was nothing to replay.
    pub fn forge_step(&mut self, forgery: Forgery, to: u32, communicator: CommunicatorId) -> bool {
        let to = Rank(to);
        let way = self.strangers.pick(&[Way::Unicast, Way::Nic, Way::Nic, Way::Multicast]);
        let (from, bytes) = if forgery == Forgery::Replay {
            let destination = match way {
                Way::Unicast => Destination::Rank(to),
                Way::Nic => Destination::Nic { to, communicator },
                Way::Multicast => Destination::Group,
            };
            let Some(old) = self.old_packet(destination) else { return false };
            old
        } else if forgery == Forgery::Noise {
            (None, noise(&mut self.strangers))
        } else {
            let header = plausible_header(&mut self.strangers, self.config.ranks, to);
            let random = &mut self.strangers;
            let steps = [0, 0, 1, 2, 3, STEP_JOIN, STEP_RELEASE];
            let flags = if way == Way::Multicast { Flags::GROUP } else { Flags::NONE };
            let header = Header {
                kind: random.pick(&STEP_KINDS),
                communicator,
                channel: ChannelId(0),
                flags,
                argument: random.pick(&steps),
                ..header
            };
            let tagged = if way == Way::Multicast { Rank::ALL } else { to };
            (None, forged_bytes(random, forgery, header, tagged))
        };
        let dead = self.dead();
        let others = (0..self.config.ranks).map(Rank).filter(|rank| !dead.contains(rank));
        let receivers = if way == Way::Multicast { others.collect() } else { vec![to] };
        for to in receivers {
            self.inject(from, to, way, bytes.clone());
        }
        true
    }

    /// A packet that was sent before, with its sender.
    fn old_packet(&mut self, to: Destination) -> Option<(Option<Rank>, Vec<u8>)> {
        let history: Vec<_> =
            self.network.history.iter().filter(|packet| packet.to == to).collect();
        let index = self.strangers.below(history.len() as u64) as usize;
        history.get(index).map(|old| (Some(old.from), old.bytes.clone()))
    }

    fn inject(&mut self, from: Option<Rank>, to: Rank, way: Way, bytes: Vec<u8>) {
        let head_bytes = bytes.len();
        let now = self.now();
        let packet = InFlight { from, to, way, bytes, head_bytes, is_corrupt: false };
        self.network.inject(now, packet);
    }
}

fn noise(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0; random.below(200) as usize];
    random.fill(&mut bytes);
    bytes
}

fn forged_bytes(random: &mut Random, forgery: Forgery, mut header: Header, to: Rank) -> Vec<u8> {
    let key = match forgery {
        Forgery::WrongKey | Forgery::ForeignJob => JobKey::new([9; 16]),
        _ => KEY,
    };
    if forgery == Forgery::ForeignJob {
        header.job = JobId(JOB.0 ^ 1);
    }
    let mut bytes = sealed(&key, &header, to, &[]);
    match forgery {
        Forgery::Truncated => bytes.truncate(random.below(40) as usize),
        Forgery::WrongVersion => bytes[2] = VERSION + 1,
        _ => {}
    }
    bytes
}

fn plausible_header(random: &mut Random, size: u32, to: Rank) -> Header {
    let source = (to.0 + 1 + random.below(u64::from(size) - 1) as u32) % size;
    Header {
        kind: random.pick(&CHANNEL_KINDS),
        job: JOB,
        communicator: CommunicatorId(1),
        channel: ChannelId(random.below(2) as u8),
        flags: Flags(random.below(64) as u8),
        source: Rank(source),
        seq: Seq::nth(random.below(64) as u32),
        expects: Seq::nth(random.below(64) as u32),
        epoch: random.below(4) as u16,
        credits: random.below(64) as u16,
        argument: random.below(64) as u32,
    }
}
