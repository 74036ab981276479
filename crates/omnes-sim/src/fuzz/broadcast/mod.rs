//! Fuzzing of broadcasts: bytes are a list of operations on two honest ranks and on a third that
//! has the right key and sends whatever the bytes say.
//!
//! One group has all three ranks, one only the honest two. Nothing may panic, no data may be placed
//! outside of posted memory, nothing may be sent from memory that was given back, and the state of
//! a rank stays bounded. At the end the honest ranks are left alone: unless a rank was declared
//! dead or gone or the third rank's data were passed off as theirs, all that they have sent in
//! their own group must arrive, whatever was acknowledged or reported in their names.

mod honest;

use super::bytes::Bytes;
use super::wire::Wire;
use super::{HONEST, PACKETS_MAX, RANKS, check_bounded, must, place};
use crate::rig::builder::{JOB, KEY};
use crate::rig::ledger::Operation;
use crate::rig::payload::content;
use crate::rig::stranger::sealed;
use honest::{Expected, Honest};
use omnes_proto::broadcast::{
    AckRule, Asking, CastGroupConfig, CastMessage, Collection, GapReports, GroupId, Hold, Policy,
};
use omnes_proto::channel::{Message, Pattern, Reply};
use omnes_proto::group::Nodes;
use omnes_proto::limits::PAYLOAD_BYTES_MIN;
use omnes_proto::packet::{Destination, HEAD_BYTES_MAX, Head};
use omnes_wire::{
    CastReport, ChannelId, CommunicatorId, Flags, Header, Instant, Kind, PACKET_OVERHEAD_BYTES,
    Rank, Seq,
};
use std::time::Duration;

/// Group of all three ranks.
const ALL: GroupId = GroupId { communicator: CommunicatorId(1), number: 0 };
/// Group of the honest ranks.
const OWN: GroupId = GroupId { communicator: CommunicatorId(1), number: 1 };
/// Longest message, in bytes.
const BYTES_MAX: u32 = 20_000;

/// Group and root.
type Stream = (GroupId, Rank);

struct Rig {
    now: Instant,
    ranks: Vec<Honest>,
    wire: Wire<u32>,
    /// Data of the third rank may have entered the honest ranks' own group.
    is_tampered: bool,
}

/// Runs a list of operations on broadcasts: two honest ranks, and one that has the right key and
/// sends whatever the bytes say.
pub fn broadcast(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let mut rig = Rig::new(&mut bytes);
    bytes.run(|bytes| rig.operate(bytes));
    rig.finish();
}

fn policy(bytes: &mut Bytes) -> Policy {
    let every = u32::from(bytes.byte() % 12) + 1;
    Policy {
        hold: if bytes.byte().is_multiple_of(2) { Hold::Window } else { Hold::Basic },
        collection: match bytes.byte() % 3 {
            0 => Collection::Root,
            1 => Collection::Tree { radix: 2 },
            _ => Collection::CoRoots { count: 2 },
        },
        acks: match bytes.byte() % 3 {
            0 => AckRule::Every,
            1 => AckRule::EveryNth(every),
            _ => AckRule::Skewed(every),
        },
        gaps: match bytes.byte() % 2 {
            0 => GapReports::Prompt,
            _ => GapReports::Never,
        },
        asking: match bytes.byte() % 2 {
            0 => Asking::WhenIdle,
            _ => Asking::IfNeeded,
        },
    }
}

/// Identity of a message to the honest ranks' group, from which its content is derived.
fn identity(root: Rank, number: usize) -> u64 {
    u64::from(root.0) << 32 | number as u64
}

fn nodes(ranks: u32) -> Nodes {
    (0..ranks).map(|rank| vec![Rank(rank)]).collect()
}

impl Rig {
    fn new(bytes: &mut Bytes) -> Self {
        let groups = [
            CastGroupConfig { id: ALL, nodes: nodes(RANKS), policy: policy(bytes) },
            CastGroupConfig { id: OWN, nodes: nodes(HONEST), policy: policy(bytes) },
        ];
        let is_late = bytes.byte().is_multiple_of(8);
        let ranks = (0..HONEST).map(Honest::new).collect();
        let mut rig = Self { now: Instant::ZERO, ranks, wire: Wire::new(), is_tampered: false };
        rig.ranks[0].open(&groups);
        if is_late {
            // Packets that arrive before a group is open must not be lost forever.
            rig.send(0, bytes);
            rig.drain_all();
            while let Some((to, packet)) = rig.wire.pop() {
                rig.hand_over(to, &packet);
            }
        }
        rig.ranks[1].open(&groups);
        if is_late {
            rig.drain_all();
        }
        rig
    }

    fn operate(&mut self, bytes: &mut Bytes) {
        let operation = bytes.byte();
        let rank = u32::from(bytes.byte()) % HONEST;
        match operation % 16 {
            0 | 1 => self.send(rank, bytes),
            2 | 3 => self.receive(rank, bytes),
            4..=6 => {
                if let Some((to, packet)) = self.wire.pop() {
                    self.hand_over(to, &packet);
                }
            }
            7 => drop(self.wire.pop()),
            8 => {
                if let Some((to, packet)) = self.wire.replay(bytes) {
                    self.hand_over(to, &packet);
                }
            }
            9 => self.wire.mutate(bytes),
            10..=13 => self.craft(rank, bytes),
            14 if bytes.byte().is_multiple_of(4) => self.ranks[rank as usize].machine().announce(),
            14 => self.talk(rank, bytes),
            _ => self.pass_time(bytes.time()),
        }
        self.drain_all();
    }

    // ---- operations -----------------------------------------------------------------------

    fn send(&mut self, rank: u32, bytes: &mut Bytes) {
        let length = bytes.number() % BYTES_MAX;
        let group = if bytes.byte().is_multiple_of(2) { OWN } else { ALL };
        let reply = if bytes.byte().is_multiple_of(2) { Reply::Soon } else { Reply::Lazy };
        let message = CastMessage { group, bytes: length.into(), reply };
        let own = &mut self.ranks[rank as usize];
        if let Ok(id) = own.machine().send(message) {
            let content = content(identity(Rank(rank), own.sent.len()), length as usize);
            own.memory.add_send(id, Operation(id.0 as usize), content, length.into());
            own.sends.insert(id, group);
            if group == OWN {
                own.sent.push(length as usize);
            }
        }
    }

    fn receive(&mut self, rank: u32, bytes: &mut Bytes) {
        let (group, root) = match bytes.byte() % 4 {
            0 => (ALL, Rank(2)),
            1 => (ALL, Rank(1 - rank)),
            _ => (OWN, Rank(1 - rank)),
        };
        self.post(rank, group, root, u64::from(bytes.number() % BYTES_MAX));
    }

    fn post(&mut self, rank: u32, group: GroupId, root: Rank, capacity: u64) {
        let now = self.now;
        let own = &mut self.ranks[rank as usize];
        if let Ok(id) = own.machine().receive(now, group, root, capacity) {
            own.memory.add_receive(id, Operation(id.0 as usize), capacity);
            let posted = own.posted.entry((group, root)).or_default();
            own.receives.insert(id, Expected { group, root, number: *posted });
            *posted += 1;
        }
    }

    /// Sends a small message on the channel, from one honest rank to the other.
    fn talk(&mut self, rank: u32, bytes: &mut Bytes) {
        let (from, to) = (Rank(rank), Rank(1 - rank));
        let length = u64::from(bytes.byte());
        let pattern = Pattern { communicator: CommunicatorId(1), source: Some(from), tag: Some(0) };
        let now = self.now;
        let other = &mut self.ranks[to.index()];
        if let Ok(id) = other.endpoint.channel_mut(0).receive(now, pattern, length) {
            other.channel_memory.add_receive(id, Operation(id.0 as usize), length);
        }
        let message = Message {
            to,
            communicator: CommunicatorId(1),
            tag: 0,
            bytes: length,
            available: length,
            reply: Reply::Lazy,
        };
        let own = &mut self.ranks[rank as usize];
        if let Ok(id) = own.endpoint.channel_mut(0).send(message) {
            let content = content(length, length as usize);
            own.channel_memory.add_send(id, Operation(id.0 as usize), content, length);
        }
    }

    /// The third rank sends an arbitrary packet with a valid tag, to one rank or to all.
    fn craft(&mut self, to: u32, bytes: &mut Bytes) {
        let (header, (group, root)) = self.made_up_header(to, bytes);
        let kind = header.kind;
        self.is_tampered |= is_data(kind) && group == OWN;
        let covered = covered_body(&header, bytes);
        let may_be_to_all = is_data(kind) || kind == Kind::Hello;
        let is_to_all = may_be_to_all && header.flags.has(Flags::GROUP);
        let tagged = if is_to_all { Rank::ALL } else { Rank(to) };
        let mut packet = sealed(&KEY, &header, tagged, &covered);
        if kind == Kind::CastCoded {
            packet.resize(PACKET_OVERHEAD_BYTES + usize::from(PAYLOAD_BYTES_MIN), 0xcd);
        }
        if kind == Kind::Cast {
            bytes.fill(&mut packet);
            let heard = self.ranks[to as usize].heard.entry((group, root)).or_default();
            if header.seq == heard.expects {
                // Probably accepted; acknowledgements will show.
                heard.expects = heard.expects.plus(1);
            }
        }
        self.hand_over(to, &packet);
        if is_to_all {
            self.hand_over(1 - to, &packet);
        }
    }

    /// A header made up by the third rank, with the stream that it claims.
    fn made_up_header(&self, to: u32, bytes: &mut Bytes) -> (Header, Stream) {
        let usual =
            [Kind::Cast, Kind::CastCoded, Kind::CastAck, Kind::CastNack, Kind::Data, Kind::Pong];
        let rare = [Kind::Ping, Kind::Failed, Kind::Bye, Kind::Hello];
        let kind = bytes.kind(&usual, &rare);
        let (group, root) = stream(kind, bytes);
        let heard = self.ranks[to as usize].heard.get(&(group, root)).copied().unwrap_or_default();
        let number = bytes.number();
        let mut header = Header {
            kind,
            job: JOB,
            communicator: group.communicator,
            channel: ChannelId(group.number),
            flags: Flags(bytes.byte()),
            source: Rank(2),
            seq: bytes.near(heard.expects),
            expects: Seq(root.0),
            epoch: 0,
            credits: bytes.number() as u16,
            argument: number,
        };
        if matches!(kind, Kind::CastAck | Kind::CastNack) {
            header.expects = bytes.near(heard.next);
            header.argument = root.0;
        }
        if kind == Kind::Data {
            header.channel = ChannelId(0);
            header.flags = header.flags.with(Flags::FIRST).with(Flags::CARRIES_REPORT);
            header.argument = 0;
        }
        (header, (group, root))
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
        if let Some(preview) = &preview {
            must(own.memory(preview.channel).check_preview(preview));
        }
        if let Some(placement) = own.endpoint.handle_packet(self.now, head, packet.len()) {
            place(own.memory(placement.channel), packet, &placement, preview);
        }
        self.drain(to);
    }

    fn drain_all(&mut self) {
        (0..HONEST).for_each(|rank| self.drain(rank));
    }

    fn drain(&mut self, rank: u32) {
        let own = &mut self.ranks[rank as usize];
        while let Some((index, step)) = own.endpoint.poll_move() {
            must(own.memory(index).apply_move(&step));
        }
        let mut head = Head::default();
        for count in 0.. {
            let Some(transmit) = own.endpoint.poll_transmit(self.now, &mut head) else { break };
            assert!(count < PACKETS_MAX, "rank {rank} never stops sending");
            let mut packet = head.as_bytes().to_vec();
            if let Some(segment) = &transmit.segment {
                let parts = own.endpoint.coded_parts().to_vec();
                let memory = own.memory(transmit.channel);
                packet.extend_from_slice(&must(memory.gather(segment, &parts)));
            }
            own.overhear(&packet, transmit.to);
            if transmit.to == Destination::Rank(Rank(2)) {
                self.wire.keep(1 - rank, packet)
            } else {
                self.wire.push(1 - rank, packet)
            }
        }
        let mut done = Vec::new();
        while let Some(event) = own.endpoint.poll_event(self.now) {
            done.extend(own.take(event));
        }
        for (expected, bytes, content) in done {
            self.compare(expected, bytes, &content);
        }
    }

    /// Checks that the message received in the honest ranks' own group is the one that was sent.
    fn compare(&self, expected: Expected, bytes: u64, received: &[u8]) {
        if expected.group != OWN || self.is_tampered {
            return;
        }
        let Expected { root, number, .. } = expected;
        let sent = &self.ranks[root.index()].sent;
        let Some(length) = sent.get(number) else { panic!("message {number} was never sent") };
        assert_eq!(bytes, *length as u64, "length of message {number} of {root}");
        let sent = content(identity(root, number), *length);
        assert!(sent.starts_with(received), "bytes of message {number} of {root}");
    }

    // ---- the end --------------------------------------------------------------------------

    /// Leaves the honest ranks alone until all that they sent to each other has arrived.
    fn finish(&mut self) {
        for own in &mut self.ranks {
            check_bounded(own.machine());
        }
        for rank in 0..HONEST {
            let root = Rank(1 - rank);
            let sent = self.ranks[root.index()].sent.len();
            let posted = self.ranks[rank as usize].posted.get(&(OWN, root)).copied();
            for _ in posted.unwrap_or(0)..sent {
                self.post(rank, OWN, root, BYTES_MAX.into());
            }
        }
        self.drain_all();
        for _ in 0..10_000 {
            let is_done = |own: &Honest| own.has_lost || !own.sends.values().any(|it| *it == OWN);
            if self.is_tampered || self.ranks.iter().all(is_done) {
                return;
            }
            while let Some((to, packet)) = self.wire.pop() {
                self.hand_over(to, &packet);
            }
            self.pass_time(Duration::from_millis(1));
        }
        panic!("messages between honest ranks do not arrive");
    }
}

/// True for packets that bring data of broadcasts.
fn is_data(kind: Kind) -> bool {
    matches!(kind, Kind::Cast | Kind::CastCoded)
}

/// The stream that the third rank claims for its packet.
fn stream(kind: Kind, bytes: &mut Bytes) -> Stream {
    let group = match bytes.byte() {
        255 => GroupId { communicator: CommunicatorId(9), number: bytes.byte() },
        // Data passed off as the honest ranks' own prevent the comparison at the end.
        254 => OWN,
        group if group.is_multiple_of(4) && !is_data(kind) => OWN,
        _ => ALL,
    };
    let root = match bytes.byte() {
        255 => Rank(bytes.word()),
        root => Rank(u32::from(root) % RANKS),
    };
    (group, root)
}

/// Envelope or gap map, made up by the third rank.
fn covered_body(header: &Header, bytes: &mut Bytes) -> Vec<u8> {
    match header.kind {
        Kind::Cast | Kind::Data if header.flags.has(Flags::FIRST) => {
            let mut body = bytes.envelope().emit().to_vec();
            if header.kind == Kind::Data && header.flags.has(Flags::CARRIES_REPORT) {
                body.extend_from_slice(&report(bytes).emit());
            }
            body
        }
        Kind::CastNack => bytes.gap_map(),
        _ => Vec::new(),
    }
}

/// An acknowledgement that a message carries, made up by the third rank.
fn report(bytes: &mut Bytes) -> CastReport {
    let group = if bytes.byte().is_multiple_of(2) { OWN } else { ALL };
    CastReport {
        communicator: group.communicator,
        group: group.number,
        root: Rank(u32::from(bytes.byte()) % RANKS),
        expects: Seq::nth(bytes.number()),
        credits: bytes.number() as u16,
    }
}
