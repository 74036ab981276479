//! Checker of broadcasts, judged from commands, packets and events alone.
//!
//! For each *cast stream* (group and root):
//! - the root numbers its packets without gaps, one number per packet of a message;
//! - whoever retransmits a packet sends what the root sent first;
//! - only the root repairs, or a co-root if there are any;
//! - no receiver claims to have a packet that it has not received;
//! - the packets that the root has handed out, less those acknowledged to it, never exceed the
//!   window, nor the room offered by the receivers that acknowledge to it [BC-R23];
//! - when the root is notified that a message is sent, all receivers have acknowledged it, or, with
//!   co-roots, all whose acknowledgements go to the root: its subgroup, and the co-roots that it
//!   copies to, which answer for the other receivers.

use crate::rig::ledger::CastStream;
use crate::rig::network::receiver;
use omnes_proto::broadcast::{Collection, GroupId};
use omnes_proto::limits::{CREDIT_UNIT_BYTES, truesize};
use omnes_proto::packet::Destination;
use omnes_wire::{
    CastReport, CodedSet, ENVELOPE_BYTES, Flags, Header, Kind, PACKET_OVERHEAD_BYTES, Rank, Seq,
};
use std::collections::{BTreeMap, BTreeSet};

/// Packets of one kind from one rank to another, or to [`Rank::ALL`].
type Tally = BTreeMap<(u8, Rank, Rank), u64>;

/// State and claims of one receiver of a stream.
#[derive(Debug, Default)]
struct Receiver {
    /// Packets received without gap from the first on.
    taken: u64,
    /// Packets received beyond a gap.
    ahead: BTreeSet<u64>,
    /// Number of packets that the receiver claims to have.
    claimed: u64,
    /// Number of packets that the receiver itself has acknowledged to the root.
    heard: u64,
    /// Room that the receiver has offered beyond those, in packets.
    room: u64,
    /// The receiver acknowledges to the root, not to another co-root.
    is_direct: bool,
}

impl Receiver {
    fn take(&mut self, seq: u64) {
        if seq >= self.taken {
            self.ahead.insert(seq);
        }
        while self.ahead.remove(&self.taken) {
            self.taken += 1;
        }
    }

    /// Decodes the missing one of several combined packets, if exactly one is missing.
    fn take_coded(&mut self, set: CodedSet) {
        let packets = set.packets().map(|seq| u64::from(seq.index()));
        let mut lacking = packets.filter(|seq| *seq >= self.taken && !self.ahead.contains(seq));
        if let (Some(seq), None) = (lacking.next(), lacking.next()) {
            self.take(seq);
        }
    }
}

#[derive(Debug)]
struct Stream {
    cast: CastStream,
    /// For each message, one past the number of its last packet.
    ends: Vec<u64>,
    /// For each packet handed out, a hash of the parts that must not change when it is
    /// retransmitted.
    prints: Vec<u64>,
    receivers: BTreeMap<Rank, Receiver>,
}

/// Settings that the checker needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CastLimits {
    pub(crate) payload_bytes: u64,
    pub(crate) window_packets: u64,
    /// Credit before the first report, in bytes of truesize.
    pub(crate) initial_credit_bytes: u32,
}

/// See the module header.
#[derive(Debug)]
pub(crate) struct Casts {
    limits: Option<CastLimits>,
    streams: BTreeMap<(GroupId, Rank), Stream>,
    /// Room in packets that receivers have offered to roots that have not broadcast yet: a waiting
    /// rank sends requests.
    early: BTreeMap<((GroupId, Rank), Rank), u64>,
    gone: BTreeSet<Rank>,
    tally: Tally,
    /// Most packets that any root has had unacknowledged.
    pub(crate) window_packets_seen: u64,
}

/// FNV-1a hash of the part of a packet that the root decides.
fn print_of(header: &Header, packet: &[u8]) -> u64 {
    let marks = header.flags.0 & Flags::FIRST.with(Flags::LAST).0;
    let fixed = header.argument.to_be_bytes();
    let body = packet.get(PACKET_OVERHEAD_BYTES..).unwrap_or_default();
    let all = fixed.iter().chain(std::iter::once(&marks)).chain(body);
    all.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn group_of(header: &Header) -> GroupId {
    GroupId { communicator: header.communicator, number: header.channel.0 }
}

/// A receiver's claim about a stream: in a packet of its own, or in a packet of a message [BC-R15].
struct Claim {
    stream: (GroupId, Rank),
    expects: u64,
    credits: u16,
}

impl Claim {
    fn of(header: &Header, packet: &[u8]) -> Option<Self> {
        let carries = Flags::FIRST.with(Flags::CARRIES_REPORT);
        match header.kind {
            Kind::CastAck | Kind::CastNack => Some(Self {
                stream: (group_of(header), Rank(header.argument)),
                expects: u64::from(header.expects.index()),
                credits: header.credits,
            }),
            Kind::Data if header.flags.has(carries) => {
                let body = packet.get(PACKET_OVERHEAD_BYTES + ENVELOPE_BYTES..)?;
                let report = CastReport::parse(body)?;
                let CastReport { communicator, group: number, root, expects, credits } = report;
                let stream = (GroupId { communicator, number }, root);
                Some(Self { stream, expects: u64::from(expects.index()), credits })
            }
            _ => None,
        }
    }
}

impl CastLimits {
    fn packets(&self, bytes: u64) -> u64 {
        let first = self.payload_bytes - ENVELOPE_BYTES as u64;
        1 + bytes.saturating_sub(first).div_ceil(self.payload_bytes)
    }

    /// Full packets that fit into `bytes` of truesize; one packet is always allowed.
    fn room(&self, bytes: u32) -> u64 {
        let charge = truesize(PACKET_OVERHEAD_BYTES as u32 + self.payload_bytes as u32);
        u64::from((bytes / charge).max(1))
    }
}

impl Casts {
    /// `None` if there are no broadcasts.
    pub(crate) fn new(limits: Option<CastLimits>) -> Self {
        Self {
            limits,
            streams: BTreeMap::new(),
            early: BTreeMap::new(),
            gone: BTreeSet::new(),
            tally: Tally::new(),
            window_packets_seen: 0,
        }
    }

    // ---- commands -------------------------------------------------------------------------

    /// A rank opens a group; it has not understood any offers received before.
    pub(crate) fn on_open(&mut self, group: GroupId, rank: Rank) {
        self.early.retain(|(stream, _), _| *stream != (group, rank));
    }

    /// A root begins to broadcast a message of `bytes`.
    pub(crate) fn on_broadcast(&mut self, cast: &CastStream, bytes: u64) {
        let Some(limits) = self.limits else { return };
        let room = limits.room(limits.initial_credit_bytes);
        let new = || {
            let mut stream = Stream::new(cast.clone(), room);
            for (rank, receiver) in &mut stream.receivers {
                receiver.room = self.early.remove(&(cast.key(), *rank)).unwrap_or(room);
            }
            stream
        };
        let stream = self.streams.entry(cast.key()).or_insert_with(new);
        let begin = stream.ends.last().copied().unwrap_or(0);
        stream.ends.push(begin + limits.packets(bytes));
    }

    /// A rank has died or left: it no longer acknowledges.
    pub(crate) fn bury(&mut self, rank: Rank) {
        self.gone.insert(rank);
    }

    // ---- packets --------------------------------------------------------------------------

    /// A rank hands out a packet. The error names the rule that the packet breaks.
    pub(crate) fn on_sent(
        &mut self,
        from: Rank,
        to: Destination,
        packet: &[u8],
    ) -> Result<(), String> {
        let Ok((header, _)) = Header::parse(packet) else { return Ok(()) };
        *self.tally.entry((header.kind as u8, from, receiver(to))).or_default() += 1;
        if let Some(claim) = Claim::of(&header, packet) {
            return match self.streams.get_mut(&claim.stream) {
                Some(stream) => stream.check_claim(from, claim.expects),
                None => Ok(()),
            };
        }
        if !matches!(header.kind, Kind::Cast | Kind::CastCoded) {
            return Ok(());
        }
        let (group, root) = (group_of(&header), Rank(header.expects.0));
        let Some(stream) = self.streams.get_mut(&(group, root)) else {
            return Err(format!("{from} sends what {root} has not broadcast"));
        };
        if header.kind == Kind::CastCoded {
            return stream.check_coded(from, CodedSet::of(&header));
        }
        let handed_out = stream.prints.len();
        stream.check_cast(from, u64::from(header.seq.index()), print_of(&header, packet))?;
        if stream.prints.len() > handed_out { self.check_window(group, root) } else { Ok(()) }
    }

    /// A rank accepts an authentic packet.
    pub(crate) fn on_taken(&mut self, from: Rank, to: Rank, packet: &[u8]) {
        let Ok((header, _)) = Header::parse(packet) else { return };
        if matches!(header.kind, Kind::Cast | Kind::CastCoded) {
            let stream = self.streams.get_mut(&(group_of(&header), Rank(header.expects.0)));
            let receiver = stream.and_then(|stream| stream.receivers.get_mut(&to));
            if let Some(receiver) = receiver {
                match header.kind {
                    Kind::CastCoded => receiver.take_coded(CodedSet::of(&header)),
                    _ => receiver.take(u64::from(header.seq.index())),
                }
            }
            return;
        }
        let Some(claim) = Claim::of(&header, packet).filter(|claim| claim.stream.1 == to) else {
            return;
        };
        let Some(limits) = &self.limits else { return };
        let room = limits.room(u32::from(claim.credits) * CREDIT_UNIT_BYTES);
        let Some(stream) = self.streams.get_mut(&claim.stream) else {
            self.early.insert((claim.stream, from), room);
            return;
        };
        if let Some(receiver) = stream.receivers.get_mut(&from)
            && claim.expects >= receiver.heard
        {
            receiver.heard = claim.expects;
            receiver.room = room;
        }
    }

    fn check_window(&mut self, group: GroupId, root: Rank) -> Result<(), String> {
        let (Some(limits), Some(stream)) = (self.limits, self.streams.get(&(group, root))) else {
            return Ok(());
        };
        let next = stream.prints.len() as u64;
        let living = stream.receivers.iter().filter(|(rank, _)| !self.gone.contains(rank));
        let base = living.filter_map(|(_, receiver)| stream.acknowledged_by(receiver)).min();
        let in_flight = next - base.unwrap_or(next).min(next);
        self.window_packets_seen = self.window_packets_seen.max(in_flight);
        if in_flight > limits.window_packets {
            let window = limits.window_packets;
            return Err(format!("root {root} has {in_flight} packets in flight, window {window}"));
        }
        let mut living = stream.receivers.iter().filter(|(rank, _)| !self.gone.contains(rank));
        match living.find(|(_, receiver)| stream.is_overrun(receiver, next)) {
            Some((rank, receiver)) => {
                let (heard, room) = (receiver.heard, receiver.room);
                Err(format!("{root} hands out {next} packets, {rank} has {heard} and room {room}"))
            }
            None => Ok(()),
        }
    }

    // ---- events ---------------------------------------------------------------------------

    /// The root is notified that the message with this number in its stream is sent.
    pub(crate) fn on_done(&self, cast: &CastStream, number: usize) -> Result<(), String> {
        let Some(stream) = self.streams.get(&cast.key()) else { return Ok(()) };
        let end = stream.ends.get(number).copied().unwrap_or(0);
        if stream.prints.len() < end as usize && !stream.receivers.is_empty() {
            return Err(format!("message {number} is sent before all of it was handed out"));
        }
        let mut living = stream.receivers.iter().filter(|(rank, _)| !self.gone.contains(rank));
        let is_behind =
            |receiver: &Receiver| stream.acknowledged_by(receiver).is_some_and(|to| to < end);
        match living.find(|(_, receiver)| is_behind(receiver)) {
            Some((rank, _)) => {
                Err(format!("message {number} is sent, says the root, but {rank} says nothing"))
            }
            None => Ok(()),
        }
    }

    // ---- inspection -----------------------------------------------------------------------

    /// Number of packets of a kind that a rank has handed out to another, or to all.
    pub(crate) fn count(&self, kind: Kind, from: Rank, to: Rank) -> u64 {
        self.tally.get(&(kind as u8, from, to)).copied().unwrap_or(0)
    }

    /// Number of packets that all messages of all roots take, each counted once.
    pub(crate) fn packets_of_messages(&self) -> u64 {
        self.streams.values().filter_map(|stream| stream.ends.last()).sum()
    }
}

impl Stream {
    /// A stream whose receivers have room for `room` packets.
    fn new(cast: CastStream, room: u64) -> Self {
        let direct = cast.direct_receivers();
        let receiver =
            |rank| (rank, Receiver { room, is_direct: direct.contains(&rank), ..<_>::default() });
        let receivers = cast.receivers().into_iter().map(receiver).collect();
        Self { cast, ends: Vec::new(), prints: Vec::new(), receivers }
    }

    /// Number of packets that a receiver has acknowledged, as far as the root can know; `None` if a
    /// co-root answers for the receiver.
    fn acknowledged_by(&self, receiver: &Receiver) -> Option<u64> {
        match self.cast.group.policy.collection {
            // Acknowledgements up the tree aggregate the claims of the ranks below.
            Collection::Tree { .. } => Some(receiver.claimed),
            _ => receiver.is_direct.then_some(receiver.heard),
        }
    }

    /// True if a receiver was sent more than it has offered room for. With a tree, the root
    /// receives what the inner ranks offer, so the check does not apply.
    fn is_overrun(&self, receiver: &Receiver, next: u64) -> bool {
        let is_tree = matches!(self.cast.group.policy.collection, Collection::Tree { .. });
        receiver.is_direct && !is_tree && next > receiver.heard + receiver.room
    }

    fn check_cast(&mut self, from: Rank, seq: u64, print: u64) -> Result<(), String> {
        let root = self.cast.root;
        let next = self.prints.len() as u64;
        let has_co_roots = matches!(self.cast.group.policy.collection, Collection::CoRoots { .. });
        if from != root && !(has_co_roots && self.receivers.contains_key(&from)) {
            return Err(format!("{from} sends for root {root}"));
        }
        if seq < next {
            return if self.prints[seq as usize] == print {
                Ok(())
            } else {
                Err(format!("{from} sends packet {seq} of root {root} with other data"))
            };
        }
        if from != root || seq > next {
            return Err(format!("{from} skips from {next} to {seq} of root {root}"));
        }
        if self.ends.last().is_none_or(|end| seq >= *end) {
            return Err(format!("root {root} sends packet {seq} of no message"));
        }
        self.prints.push(print);
        Ok(())
    }

    /// Only the root combines packets, and only packets that it has sent.
    fn check_coded(&self, from: Rank, set: CodedSet) -> Result<(), String> {
        let root = self.cast.root;
        let is_sent = |seq: Seq| (seq.index() as usize) < self.prints.len();
        if from == root && set.packets().all(is_sent) {
            Ok(())
        } else {
            Err(format!("{from} combines {set:?} of root {root}"))
        }
    }

    fn check_claim(&mut self, from: Rank, expects: u64) -> Result<(), String> {
        let root = self.cast.root;
        let Some(receiver) = self.receivers.get_mut(&from) else {
            return Err(format!("{from} answers root {root}, of which it receives nothing"));
        };
        if expects > receiver.taken {
            let taken = receiver.taken;
            return Err(format!("{from} claims {expects} packets of {root}, {taken} have come"));
        }
        receiver.claimed = receiver.claimed.max(expects);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use omnes_proto::broadcast::{CastGroupConfig, Policy};
    use omnes_proto::group::Nodes;
    use omnes_wire::{ChannelId, CommunicatorId, JobId};
    use std::rc::Rc;

    fn cast() -> CastStream {
        let id = GroupId { communicator: CommunicatorId(1), number: 2 };
        let nodes = Nodes::one_each(3);
        let group = Rc::new(CastGroupConfig { id, nodes, policy: Policy::WINDOW });
        CastStream { group, root: Rank(0) }
    }

    fn packet(kind: Kind, seq: u32, expects: u32, argument: u32) -> Vec<u8> {
        let header = Header {
            job: JobId(1),
            communicator: CommunicatorId(1),
            channel: ChannelId(2),
            seq: Seq::nth(seq),
            // In data, the root.
            expects: if kind == Kind::CastAck { Seq::nth(expects) } else { Seq(expects) },
            argument,
            ..Header::blank(kind, Rank(0))
        };
        let mut packet = header.emit().to_vec();
        packet.extend_from_slice(&[0; 8]);
        packet
    }

    fn data(seq: u32) -> Vec<u8> {
        packet(Kind::Cast, seq, 0, seq)
    }

    fn limits(window_packets: u64) -> CastLimits {
        CastLimits { payload_bytes: 1000, window_packets, initial_credit_bytes: 20_000 }
    }

    fn casts() -> Casts {
        let limits = limits(2);
        let mut casts = Casts::new(Some(limits));
        casts.on_broadcast(&cast(), 5000);
        casts
    }

    #[test]
    fn skipped_packets_and_altered_contents_are_detected() {
        let mut casts = casts();
        assert!(casts.on_sent(Rank(0), Destination::Group, &data(1)).is_err());
        assert_eq!(casts.on_sent(Rank(0), Destination::Group, &data(0)), Ok(()));
        assert_eq!(casts.on_sent(Rank(0), Destination::Rank(Rank(2)), &data(0)), Ok(()));
        assert!(casts.on_sent(Rank(1), Destination::Rank(Rank(2)), &data(0)).is_err());
        let other = packet(Kind::Cast, 0, 0, 7);
        assert!(casts.on_sent(Rank(0), Destination::Group, &other).is_err());
        assert_eq!(casts.count(Kind::Cast, Rank(0), Rank(2)), 1);
        assert_eq!(casts.packets_of_messages(), 6);
    }

    #[test]
    fn window_counts_only_acknowledgements_received_by_the_root() {
        let mut casts = casts();
        for seq in 0..2 {
            assert_eq!(casts.on_sent(Rank(0), Destination::Group, &data(seq)), Ok(()));
            casts.on_taken(Rank(0), Rank(1), &data(seq));
            casts.on_taken(Rank(0), Rank(2), &data(seq));
        }
        let answer = packet(Kind::CastAck, 0, 1, 0);
        assert_eq!(casts.on_sent(Rank(1), Destination::Rank(Rank(0)), &answer), Ok(()));
        casts.on_taken(Rank(1), Rank(0), &answer);
        assert!(casts.on_sent(Rank(0), Destination::Group, &data(2)).is_err());
        assert_eq!(casts.window_packets_seen, 3);
    }

    #[test]
    fn sending_beyond_a_receivers_credits_is_detected() {
        let mut casts = casts();
        casts.limits = Some(CastLimits { initial_credit_bytes: 3 * 2304, ..limits(9) });
        casts.streams.clear();
        casts.on_broadcast(&cast(), 5000);
        let offer = |credits: u16| {
            let (mut header, _) = Header::parse(&packet(Kind::CastAck, 0, 1, 0)).unwrap();
            header.credits = credits;
            [&header.emit()[..], &[0; 8]].concat()
        };
        for seq in 0..3 {
            assert_eq!(casts.on_sent(Rank(0), Destination::Group, &data(seq)), Ok(()));
        }
        casts.on_taken(Rank(1), Rank(0), &offer(100));
        assert!(casts.on_sent(Rank(0), Destination::Group, &data(3)).is_err());
        casts.on_taken(Rank(2), Rank(0), &offer(100));
        assert_eq!(casts.on_sent(Rank(0), Destination::Group, &data(4)), Ok(()));
    }

    #[test]
    fn acknowledging_a_packet_before_its_arrival_is_detected() {
        let mut casts = casts();
        assert_eq!(casts.on_sent(Rank(0), Destination::Group, &data(0)), Ok(()));
        let answer = packet(Kind::CastAck, 0, 1, 0);
        assert!(casts.on_sent(Rank(1), Destination::Rank(Rank(0)), &answer).is_err());
        casts.on_taken(Rank(0), Rank(1), &data(0));
        assert_eq!(casts.on_sent(Rank(1), Destination::Rank(Rank(0)), &answer), Ok(()));
    }

    #[test]
    fn message_completes_only_when_all_living_receivers_have_acknowledged() {
        let mut casts = casts();
        casts.limits = Some(limits(9));
        for seq in 0..6 {
            assert_eq!(casts.on_sent(Rank(0), Destination::Group, &data(seq)), Ok(()));
            casts.on_taken(Rank(0), Rank(1), &data(seq));
        }
        let answer = packet(Kind::CastAck, 0, 6, 0);
        casts.on_taken(Rank(1), Rank(0), &answer);
        assert!(casts.on_done(&cast(), 0).is_err());
        casts.bury(Rank(2));
        assert_eq!(casts.on_done(&cast(), 0), Ok(()));
    }
}
