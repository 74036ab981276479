//! One rank's end of the network: the gate that every packet passes, and the machines behind it:
//! channels, broadcasts, barriers, and the watch over the other ranks (`liveness`).
//!
//! A packet is parsed, its job compared and its tag checked before anything else looks at it;
//! each way to be refused has its own counter. Nothing a stranger sends can move state or panic.
//! Outgoing packets get job and tag here, so the machines behind never see a key.
//!
//! Cost: one SipHash of about 40 bytes per packet each way.

mod due;
mod outward;
mod run;

pub use run::Run;

use self::due::{Due, Machines};
use crate::broadcast::{Broadcast, CheckedBroadcast, Event as BroadcastEvent};
use crate::channel::{Channel, Checked, Event as ChannelEvent};
use crate::collective::{Collective, CollectiveConfig, Event as CollectiveEvent};
use crate::group::Nodes;
use crate::lane::earliest;
use crate::limits::{CHANNELS_MAX, CONTROL_QUEUE_MAX};
use crate::liveness::{Liveness, LivenessConfig};
use crate::packet::{Placement, Preview, SendId};
use omnes_wire::{
    CAST_REPORT_BYTES, CastReport, ChannelId, ENVELOPE_BYTES, Flags, GAP_MAP_BYTES, HEADER_BYTES,
    Header, HeaderError, Instant, JobId, JobKey, Kind, PACKET_OVERHEAD_BYTES, Rank, SenderKey,
    Words, carries_data,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Number of a question whether a rank lives of which a channel or a broadcast has heard nothing;
/// the watch asks under others.
const SIGN_OF_LIFE: u32 = u32::MAX;

/// Settings of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// This rank.
    pub me: Rank,
    /// Ranks of the job.
    pub size: u32,
    /// The job.
    pub job: JobId,
    /// The job's secret.
    pub key: JobKey,
    /// Settings of each channel, in order of their numbers.
    pub channels: Vec<Checked>,
    /// Settings of broadcasts over multicast; none where there is no multicast.
    pub broadcast: Option<CheckedBroadcast>,
    /// Settings of barriers.
    pub collective: CollectiveConfig,
    /// Settings of the watch.
    pub liveness: LivenessConfig,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// On a channel, by index.
    Channel(usize, ChannelEvent),
    /// Of a broadcast over multicast.
    Broadcast(BroadcastEvent),
    /// Of a barrier.
    Collective(CollectiveEvent),
    /// A rank has failed; events of what depended on it have come before this one.
    PeerFailed(Rank),
    /// A rank has left in good order.
    PeerDeparted(Rank),
    /// Another rank says that this one has failed: the job goes on without it.
    Excluded {
        /// Who says so.
        by: Rank,
    },
}

/// Packets that came in, by what became of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GateCounters {
    /// Authentic packets.
    pub accepted: u64,
    /// Not a packet of ours, or one that makes no sense.
    pub malformed: u64,
    /// Another version of the wire format.
    pub unknown_version: u64,
    /// Another job's.
    pub foreign_job: u64,
    /// No such sender, or the tag is wrong.
    pub bad_tag: u64,
    /// No such channel.
    pub unknown_channel: u64,
    /// From a rank that has failed or left.
    pub from_gone: u64,
    /// Authentic but for their data, in a job that encrypts them.
    pub bad_data: u64,
}

/// See the module header.
pub struct Endpoint {
    me: Rank,
    size: u32,
    job: JobId,
    key: JobKey,
    own_key: SenderKey,
    sender_keys: BTreeMap<Rank, SenderKey>,
    latest_key: (Rank, SenderKey),
    channels: Vec<Channel>,
    broadcast: Option<Broadcast>,
    collective: Collective,
    next_channel: usize,
    liveness: Liveness,
    /// Ranks that have failed as long packets do not get to them.
    mtu_black_holes: BTreeSet<Rank>,
    control: VecDeque<(Rank, Kind, u32)>,
    events: VecDeque<Event>,
    due: Due,
    counters: GateCounters,
}

/// True if a message's first packet carries an acknowledgement of broadcasts.
fn carries_report(header: &Header) -> bool {
    header.kind == Kind::Data
        && header.flags.has(Flags::FIRST)
        && header.flags.has(Flags::CARRIES_REPORT)
}

/// The rank that a notice or a farewell names as failed, if it names one.
fn failed_in(kind: Kind, argument: u32) -> Option<Rank> {
    match kind {
        Kind::Failed => Some(Rank(argument)),
        Kind::Bye => argument.checked_sub(1).map(Rank),
        _ => None,
    }
}

/// True for a packet whose tag names all ranks.
fn is_to_all(header: &Header) -> bool {
    let may_be = matches!(header.kind, Kind::Cast | Kind::CastCoded | Kind::Hello | Kind::Step);
    may_be && header.flags.has(Flags::GROUP)
}

/// True for a packet that says what its sender has entered.
fn is_of_entered(header: &Header) -> bool {
    matches!(header.kind, Kind::Step | Kind::StepTell)
}

/// Bytes after the tag that the tag covers, by kind.
fn control_body_bytes(header: &Header) -> usize {
    match header.kind {
        Kind::Data if carries_report(header) => ENVELOPE_BYTES + CAST_REPORT_BYTES,
        Kind::Data if header.flags.has(Flags::FIRST) => ENVELOPE_BYTES,
        Kind::Cast if header.flags.has(Flags::FIRST) => ENVELOPE_BYTES,
        Kind::Nack | Kind::CastNack => GAP_MAP_BYTES,
        Kind::Step | Kind::StepTell => Words::bytes_behind(header),
        _ => 0,
    }
}

/// What follows the tag, of a packet without user data.
fn control_body(head: &[u8]) -> &[u8] {
    head.get(PACKET_OVERHEAD_BYTES..).unwrap_or_default()
}

impl Endpoint {
    /// An endpoint that has neither sent nor received anything.
    ///
    /// # Panics
    /// With more than [`CHANNELS_MAX`] channels.
    pub fn new(now: Instant, config: EndpointConfig) -> Self {
        let EndpointConfig { me, size, job, key, channels, broadcast, collective, liveness } =
            config;
        assert!(channels.len() <= CHANNELS_MAX, "more channels than an endpoint can have");
        let broadcast = broadcast.map(|checked| Broadcast::new(channels.len(), me, size, checked));
        let channels = channels.into_iter().enumerate();
        let channel =
            |(index, checked)| Channel::new(ChannelId(index as u8), index, me, size, checked);
        Self {
            me,
            size,
            job,
            own_key: key.sender(me),
            sender_keys: BTreeMap::new(),
            latest_key: (me, key.sender(me)),
            key,
            channels: channels.map(channel).collect(),
            broadcast,
            collective: Collective::new(me, size, collective),
            next_channel: 0,
            liveness: Liveness::new(now, me, size, liveness),
            mtu_black_holes: BTreeSet::new(),
            control: VecDeque::new(),
            events: VecDeque::new(),
            due: Due::ALL,
            counters: GateCounters::default(),
        }
    }

    /// A channel by index.
    ///
    /// # Panics
    /// If there is no such channel.
    pub fn channel_mut(&mut self, index: usize) -> &mut Channel {
        self.due.touch(Machines::channel(index));
        &mut self.channels[index]
    }

    /// All channels.
    pub fn channels(&self) -> &[Channel] {
        &self.channels
    }

    /// Broadcasts over multicast, where there are any. In transmits, placements and moves their
    /// index is the one after the last channel.
    pub fn broadcast_mut(&mut self) -> Option<&mut Broadcast> {
        self.due.touch(Machines::BROADCAST);
        self.broadcast.as_mut()
    }

    /// As [`Self::broadcast_mut`], for looking at it.
    pub fn broadcast(&self) -> Option<&Broadcast> {
        self.broadcast.as_ref()
    }

    /// Barriers.
    pub fn collective_mut(&mut self) -> &mut Collective {
        self.due.touch(Machines::COLLECTIVE);
        &mut self.collective
    }

    /// As [`Self::collective_mut`], for looking at it.
    pub fn collective(&self) -> &Collective {
        &self.collective
    }

    /// What came in so far.
    pub fn counters(&self) -> &GateCounters {
        &self.counters
    }

    /// True if `rank` has failed or left.
    pub fn is_gone(&self, rank: Rank) -> bool {
        self.liveness.is_gone(rank)
    }

    /// True if `rank`, which has failed, was given up as long packets do not get to it, though it
    /// answers short ones; of this rank, once the others have said so.
    pub fn is_mtu_black_hole(&self, rank: Rank) -> bool {
        self.mtu_black_holes.contains(&rank)
    }

    // ---- in -------------------------------------------------------------------------------

    /// The header of an authentic packet of this job, or `None` with the reason counted.
    fn admit(&mut self, head: &[u8]) -> Option<Header> {
        let (header, tag) = match Header::parse(head) {
            Ok(parsed) => parsed,
            Err(HeaderError::UnknownVersion(_)) => {
                self.counters.unknown_version += 1;
                return None;
            }
            Err(_) => {
                self.counters.malformed += 1;
                return None;
            }
        };
        if header.job != self.job {
            self.counters.foreign_job += 1;
            return None;
        }
        if header.source.0 >= self.size || header.source == self.me {
            self.counters.bad_tag += 1;
            return None;
        }
        let body = control_body(head);
        let body = &body[..body.len().min(control_body_bytes(&header))];
        let bytes = head.first_chunk::<HEADER_BYTES>()?;
        let key = self.sender_key(header.source);
        if !key.verify(tag, bytes, if is_to_all(&header) { Rank::ALL } else { self.me }, body) {
            self.counters.bad_tag += 1;
            return None;
        }
        Some(header)
    }

    /// As [`Self::admit`]; the packet itself is counted when it is handled.
    fn admit_uncounted(&mut self, head: &[u8]) -> Option<Header> {
        let counters = self.counters;
        let admitted = self.admit(head);
        self.counters = counters;
        admitted
    }

    /// Of a packet whose kind carries user data and whose head is authentic: its sender, and how
    /// many bytes stand before the data. `None` for all others, which [`Self::handle_packet`]
    /// judges.
    pub fn data_head(&mut self, packet: &[u8]) -> Option<(Rank, usize)> {
        if !carries_data(packet) {
            return None;
        }
        let header = self.admit_uncounted(packet)?;
        Some((header.source, PACKET_OVERHEAD_BYTES + control_body_bytes(&header)))
    }

    /// Counts a packet of [`Self::data_head`] whose data are not what its sender has sent.
    pub fn refuse_data(&mut self) {
        self.counters.bad_data += 1;
    }

    /// The key of a sender; packets come in runs, so mostly the one used last.
    fn sender_key(&mut self, source: Rank) -> SenderKey {
        if self.latest_key.0 != source {
            let job_key = &self.key;
            let key = self.sender_keys.entry(source).or_insert_with(|| job_key.sender(source));
            self.latest_key = (source, *key);
        }
        self.latest_key.1
    }

    /// Handles a packet of `packet_bytes` whose first bytes are `head`: the whole packet, or at
    /// least [`crate::packet::HEAD_BYTES_MAX`] bytes of it. Returns where its data go.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        head: &[u8],
        packet_bytes: usize,
    ) -> Option<Placement> {
        let header = self.admit(head)?;
        let from = header.source;
        if self.liveness.is_gone(from) {
            self.handle_from_gone(now, &header, head);
            return None;
        }
        self.counters.accepted += 1;
        self.liveness.on_heard(now, from);
        match header.kind {
            Kind::Data | Kind::Grant | Kind::Ack | Kind::Nack => {
                return self.handle_on_channel(now, &header, head, packet_bytes);
            }
            Kind::Cast | Kind::CastCoded | Kind::CastAck | Kind::CastNack | Kind::Hello => {
                let Some(broadcast) = &mut self.broadcast else {
                    self.counters.unknown_channel += 1;
                    return None;
                };
                self.due.touch(Machines::BROADCAST);
                return broadcast.handle_packet(now, &header, head, packet_bytes);
            }
            Kind::Step | Kind::StepNack | Kind::StepAsk | Kind::StepTell => {
                self.collective_mut().handle_packet(now, &header, control_body(head));
            }
            Kind::Ping => {
                self.answer(from, Kind::Pong, header.argument);
                self.hear_of_gone(now, &header);
            }
            Kind::Pong => {
                if header.argument == SIGN_OF_LIFE {
                    self.channels.iter_mut().for_each(|it| it.on_sign_of_life(now, from));
                    if let Some(broadcast) = &mut self.broadcast {
                        broadcast.on_sign_of_life(from);
                    }
                }
                self.liveness.on_answer(now, from, header.argument);
                self.hear_of_gone(now, &header);
            }
            Kind::Failed => {
                self.note_mtu_black_hole(&header);
                self.on_notice(now, from, Rank(header.argument));
            }
            Kind::Bye => {
                self.note_mtu_black_hole(&header);
                let departed = header.seq.0.checked_sub(1).map_or(from, Rank);
                self.depart_rank(now, departed, failed_in(Kind::Bye, header.argument));
            }
        }
        None
    }

    /// Handles an authentic packet of a rank that has failed or left.
    fn handle_from_gone(&mut self, now: Instant, header: &Header, head: &[u8]) {
        if self.liveness.has_departed(header.source) && is_of_entered(header) {
            // It was sent before the farewell, which has overtaken it.
            self.counters.accepted += 1;
            self.collective_mut().handle_packet(now, header, control_body(head));
            return;
        }
        self.counters.from_gone += 1;
        self.tell_excluded(header.source);
    }

    fn handle_on_channel(
        &mut self,
        now: Instant,
        header: &Header,
        head: &[u8],
        packet_bytes: usize,
    ) -> Option<Placement> {
        let index = usize::from(header.channel.0);
        let Some(channel) = self.channels.get_mut(index) else {
            self.counters.unknown_channel += 1;
            return None;
        };
        self.due.touch(Machines::channel(index));
        if !carries_report(header) {
            return channel.handle_packet(now, header, head, packet_bytes);
        }
        // The channel knows nothing of the report, which stands before the data.
        let rest = packet_bytes.checked_sub(CAST_REPORT_BYTES)?;
        let placement = channel.handle_packet(now, header, head, rest);
        self.take_carried(now, header.source, head);
        placement.map(|placement| {
            let packet_offset = placement.packet_offset + CAST_REPORT_BYTES;
            Placement { packet_offset, ..placement }
        })
    }

    /// True if a packet to all is authentic, as far as its head tells: then it may be passed on.
    pub fn vouches(&mut self, head: &[u8]) -> bool {
        self.admit_uncounted(head).is_some_and(|header| {
            let is_data = matches!(header.kind, Kind::Cast | Kind::CastCoded | Kind::Hello);
            is_data && header.flags.has(Flags::GROUP)
        })
    }

    /// Where the data of this packet would go; see [`Channel::preview`].
    pub fn preview(&mut self, head: &[u8]) -> Option<Preview> {
        let (header, _) = Header::parse(head).ok()?;
        if !matches!(header.kind, Kind::Data | Kind::Cast) || carries_report(&header) {
            return None;
        }
        let header = self.admit_uncounted(head)?;
        match header.kind {
            Kind::Cast => self.broadcast.as_ref()?.preview(&header, head),
            _ => self.channels.get(usize::from(header.channel.0))?.preview(&header, head),
        }
    }

    fn take_carried(&mut self, now: Instant, from: Rank, head: &[u8]) {
        let body = head.get(PACKET_OVERHEAD_BYTES + ENVELOPE_BYTES..).unwrap_or_default();
        if let (Some(report), Some(broadcast)) = (CastReport::parse(body), self.broadcast_mut()) {
            broadcast.handle_carried(now, from, &report);
        }
    }

    fn answer(&mut self, to: Rank, kind: Kind, argument: u32) {
        if self.control.len() < CONTROL_QUEUE_MAX {
            self.due.touch(Machines::WATCH);
            self.control.push_back((to, kind, argument));
        }
    }

    /// A rank that was given up on is still there: it must know that it is out.
    fn tell_excluded(&mut self, rank: Rank) {
        if self.control.is_empty() {
            self.answer(rank, Kind::Failed, rank.0);
        }
    }

    /// A question or an answer says whom its sender knows to be gone.
    fn hear_of_gone(&mut self, now: Instant, header: &Header) {
        self.due.touch(Machines::WATCH);
        self.liveness.on_digest(now, header.source, header.expects.0);
    }

    /// A notice may say why the rank that it names was given up.
    fn note_mtu_black_hole(&mut self, header: &Header) {
        let failed = failed_in(header.kind, header.argument);
        let is_told =
            |failed: &Rank| header.flags.has(Flags::MTU_BLACK_HOLE) && !self.is_gone(*failed);
        self.mtu_black_holes.extend(failed.filter(is_told));
    }

    fn on_notice(&mut self, now: Instant, from: Rank, failed: Rank) {
        if failed != self.me {
            self.answer(from, Kind::Pong, failed.0);
        }
        self.hear_of_failure(now, from, failed);
    }

    fn hear_of_failure(&mut self, now: Instant, from: Rank, failed: Rank) {
        if failed == self.me {
            self.liveness.on_excluded();
            self.events.push_back(Event::Excluded { by: from });
        } else {
            self.lose_rank(now, failed);
        }
    }

    fn lose_rank(&mut self, now: Instant, rank: Rank) -> bool {
        self.due.touch(Machines::ALL);
        if !self.liveness.on_failed(now, rank) {
            return false;
        }
        for channel in &mut self.channels {
            channel.fail_peer(rank);
        }
        if let Some(broadcast) = &mut self.broadcast {
            broadcast.fail_peer(rank);
        }
        self.collective.fail_peer(rank);
        self.collect_events(now);
        self.events.push_back(Event::PeerFailed(rank));
        true
    }

    /// `rank` has failed, as this rank has found out by itself: all others are told.
    pub fn fail_rank(&mut self, now: Instant, rank: Rank) {
        if self.lose_rank(now, rank) {
            self.due.touch(Machines::WATCH);
            self.liveness.tell_all(now, rank);
        }
    }

    /// As [`Channel::cut`]. If it is because of a failure, the receiver hears of that first.
    pub fn cut(&mut self, channel: usize, id: SendId) {
        let Some(to) = self.channel_mut(channel).cut(id) else { return };
        if let Some(failed) = self.first_failed().filter(|failed| *failed != to) {
            self.answer(to, Kind::Failed, failed.0);
        }
    }

    /// `rank` has left in good order; if it did because another one had failed, that is `cause`.
    /// So whoever waits for `rank` learns why it has left, also where the notice was lost.
    pub fn depart_rank(&mut self, now: Instant, rank: Rank, cause: Option<Rank>) {
        if self.liveness.is_gone(rank) {
            return;
        }
        if let Some(failed) = cause {
            self.hear_of_failure(now, rank, failed);
        }
        if !self.liveness.on_departed(now, rank) {
            return;
        }
        // Now, as the events of the failure have been collected.
        self.due.touch(Machines::ALL);
        for channel in &mut self.channels {
            channel.depart_peer(rank);
        }
        if let Some(broadcast) = &mut self.broadcast {
            broadcast.depart_peer(now, rank);
        }
        self.collective.depart_peer(rank);
        self.collect_events(now);
        self.events.push_back(Event::PeerDeparted(rank));
    }

    /// Ranks of one node are watched from other nodes, so that all of them are missed at once when
    /// it fails: to be called with all ranks of the job, the same on each, before anything else.
    ///
    /// # Panics
    /// If this rank is on no node.
    pub fn watch_across(&mut self, now: Instant, nodes: Nodes) {
        self.due.touch(Machines::WATCH);
        self.liveness.use_nodes(now, nodes);
    }

    /// True if `rank` has left in good order.
    pub fn has_departed(&self, rank: Rank) -> bool {
        self.liveness.has_departed(rank)
    }

    /// The rank whose failure this one knew of first, which is why it leaves if it does now; its
    /// own where the others have given up on it.
    pub fn first_failed(&self) -> Option<Rank> {
        self.liveness.first_failed()
    }

    /// What a farewell says of it: its number plus one, or 0.
    fn cause(&self) -> u32 {
        self.first_failed().map_or(0, |failed| failed.0 + 1)
    }

    /// True while others have not confirmed what this rank has told them of a failure.
    pub fn is_telling(&self) -> bool {
        self.liveness.is_telling()
    }

    /// Says farewell to all others: this rank leaves in good order. Those who watch it are told
    /// first, as its silence would be its failure to them.
    pub fn leave(&mut self) {
        self.due.touch(Machines::ALL);
        let cause = self.cause();
        self.control.extend(self.liveness.watchers().map(|rank| (rank, Kind::Bye, cause)));
    }

    // ---- time -----------------------------------------------------------------------------

    /// Lets timers run out that are due at `now`; harmless if none is.
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        for (index, channel) in self.channels.iter_mut().enumerate() {
            if is_due(channel.poll_timeout()) {
                self.due.touch(Machines::channel(index));
                channel.handle_timeout(now);
            }
        }
        if is_due(self.broadcast.as_ref().and_then(Broadcast::poll_timeout))
            && let Some(broadcast) = self.broadcast_mut()
        {
            broadcast.handle_timeout(now);
        }
        if is_due(self.collective.poll_timeout()) {
            self.collective_mut().handle_timeout(now);
        }
        self.collect_events(now);
        if is_due(self.liveness.poll_timeout()) {
            self.due.touch(Machines::WATCH);
            while let Some(rank) = self.liveness.handle_timeout(now) {
                self.fail_rank(now, rank);
            }
        }
    }

    /// This rank has not run for a while before `now`, stopped with all others perhaps: what has
    /// not been heard in that time is no silence. It counts from now on, and who is watched is
    /// asked for a sign of life; a rank that answers within the timeout has not failed. To be
    /// called before [`Self::handle_timeout`] with the same time.
    #[cold]
    pub fn on_pause(&mut self, now: Instant) {
        self.due.touch(Machines::WATCH);
        self.liveness.on_pause(now);
        self.channels.iter_mut().for_each(|channel| channel.on_pause(now));
        if let Some(broadcast) = &mut self.broadcast {
            broadcast.on_pause(now);
        }
    }

    /// When [`Self::handle_timeout`] is wanted next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let broadcast = self.broadcast.as_ref().and_then(Broadcast::poll_timeout);
        let rest =
            earliest([broadcast, self.collective.poll_timeout(), self.liveness.poll_timeout()]);
        self.channels.iter().fold(rest, |at, channel| earliest([at, channel.poll_timeout()]))
    }
}
