//! One rank's end of the network: the gate that every packet passes, and the machines behind it:
//! channels, broadcasts, barriers, and the watch over the other ranks (`liveness`).
//!
//! Packets of a stranger never change state or cause a panic, as they do not pass the gate
//! (`gate.rs`). Packets come in through this module and go out through `outward.rs`;
//! `departures.rs` handles ranks that fail or leave.
//!
//! Cost: one SipHash of about 40 bytes per packet each way.

mod departures;
mod due;
mod gate;
mod outward;
mod run;

pub use gate::GateCounters;
pub use run::Run;

use self::departures::failed_in;
use self::due::{Due, Machines};
use self::gate::{Gate, carries_report, control_body};
use crate::broadcast::{Broadcast, CheckedBroadcast, Event as BroadcastEvent};
use crate::channel::{Channel, Checked, Event as ChannelEvent};
use crate::collective::{Collective, CollectiveConfig, Event as CollectiveEvent};
use crate::lane::earliest;
use crate::limits::CHANNELS_MAX;
use crate::liveness::{Liveness, LivenessConfig};
use crate::packet::{Placement, Preview};
use omnes_wire::{
    CAST_REPORT_BYTES, CastReport, ChannelId, ENVELOPE_BYTES, Header, Instant, JobId, JobKey, Kind,
    PACKET_OVERHEAD_BYTES, Rank,
};
use std::collections::{BTreeSet, VecDeque};

/// Number of a ping to a rank that a channel or a broadcast has heard nothing from; the watch uses
/// other numbers for its own pings.
const SIGN_OF_LIFE: u32 = u32::MAX;

/// Settings of an endpoint.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// This rank.
    pub me: Rank,
    /// Number of ranks in the job.
    pub size: u32,
    /// The job.
    pub job: JobId,
    /// The job's secret.
    pub key: JobKey,
    /// Settings of each channel, in the order of the channels' numbers.
    pub channels: Vec<Checked>,
    /// Settings of broadcasts over multicast; `None` where multicast is not available.
    pub broadcast: Option<CheckedBroadcast>,
    /// Settings of barriers.
    pub collective: CollectiveConfig,
    /// Settings of the watch over other ranks.
    pub liveness: LivenessConfig,
}

/// Event of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Event of a channel, given by its index.
    Channel(usize, ChannelEvent),
    /// Event of a broadcast over multicast.
    Broadcast(BroadcastEvent),
    /// Event of a barrier.
    Collective(CollectiveEvent),
    /// A rank has failed; the events of all operations that depended on it precede this one.
    PeerFailed(Rank),
    /// A rank has left in good order.
    PeerDeparted(Rank),
    /// Another rank has reported this one as failed: the job continues without it.
    Excluded {
        /// Rank that sent the report.
        by: Rank,
    },
}

/// See the module header.
pub struct Endpoint {
    gate: Gate,
    channels: Vec<Channel>,
    broadcast: Option<Broadcast>,
    collective: Collective,
    next_channel: usize,
    liveness: Liveness,
    /// Ranks that have failed because long packets do not reach them.
    mtu_black_holes: BTreeSet<Rank>,
    control: VecDeque<(Rank, Kind, u32)>,
    /// Rank last asked for a sign of life; `signs_of_life` counts the answers of ranks so asked.
    asked: Option<Rank>,
    signs_of_life: u32,
    events: VecDeque<Event>,
    due: Due,
}

impl Endpoint {
    /// Creates an endpoint that has neither sent nor received anything.
    ///
    /// # Panics
    /// If there are more than [`CHANNELS_MAX`] channels.
    pub fn new(now: Instant, config: EndpointConfig) -> Self {
        let EndpointConfig { me, size, job, key, channels, broadcast, collective, liveness } =
            config;
        assert!(channels.len() <= CHANNELS_MAX, "more channels than an endpoint can have");
        let broadcast = broadcast.map(|checked| Broadcast::new(channels.len(), me, size, checked));
        let channels = channels.into_iter().enumerate();
        let channel =
            |(index, checked)| Channel::new(ChannelId(index as u8), index, me, size, checked);
        Self {
            gate: Gate::new(me, size, job, key),
            channels: channels.map(channel).collect(),
            broadcast,
            collective: Collective::new(me, size, collective),
            next_channel: 0,
            liveness: Liveness::new(now, me, size, liveness),
            mtu_black_holes: BTreeSet::new(),
            control: VecDeque::new(),
            asked: None,
            signs_of_life: 0,
            events: VecDeque::new(),
            due: Due::ALL,
        }
    }

    /// Channel by index.
    ///
    /// # Panics
    /// If the channel does not exist.
    pub fn channel_mut(&mut self, index: usize) -> &mut Channel {
        self.due.touch(Machines::channel(index));
        &mut self.channels[index]
    }

    /// All channels, by index.
    pub fn channels(&self) -> &[Channel] {
        &self.channels
    }

    /// The broadcast machine, if there is one. In transmits, placements and moves its index is the
    /// one after the last channel.
    pub fn broadcast_mut(&mut self) -> Option<&mut Broadcast> {
        self.due.touch(Machines::BROADCAST);
        self.broadcast.as_mut()
    }

    /// As [`Self::broadcast_mut`], for reading.
    pub fn broadcast(&self) -> Option<&Broadcast> {
        self.broadcast.as_ref()
    }

    /// The machine of the barriers.
    pub fn collective_mut(&mut self) -> &mut Collective {
        self.due.touch(Machines::COLLECTIVE);
        &mut self.collective
    }

    /// As [`Self::collective_mut`], for reading.
    pub fn collective(&self) -> &Collective {
        &self.collective
    }

    /// Counters of the packets received so far.
    pub fn counters(&self) -> &GateCounters {
        &self.gate.counters
    }

    // ---- in -------------------------------------------------------------------------------

    /// Handles a packet of `packet_bytes` bytes that starts with `head`: the whole packet, or at
    /// least [`crate::packet::HEAD_BYTES_MAX`] bytes of it. Returns where its data go.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        head: &[u8],
        packet_bytes: usize,
    ) -> Option<Placement> {
        let header = self.gate.admit(head)?;
        let from = header.source;
        if self.liveness.is_gone(from) {
            self.handle_from_gone(now, &header, head);
            return None;
        }
        self.gate.counters.accepted += 1;
        self.liveness.on_heard(now, from);
        match header.kind {
            Kind::Data | Kind::Grant | Kind::Ack | Kind::Nack => {
                return self.handle_on_channel(now, &header, head, packet_bytes);
            }
            Kind::Cast | Kind::CastCoded | Kind::CastAck | Kind::CastNack | Kind::Hello => {
                let Some(broadcast) = &mut self.broadcast else {
                    self.gate.counters.unknown_channel += 1;
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
                self.on_departed_digest(now, &header);
            }
            Kind::Pong => {
                if header.argument == SIGN_OF_LIFE {
                    let is_asked = self.asked == Some(from);
                    self.signs_of_life = self.signs_of_life.wrapping_add(is_asked.into());
                    self.channels.iter_mut().for_each(|it| it.on_sign_of_life(now, from));
                    if let Some(broadcast) = &mut self.broadcast {
                        broadcast.on_sign_of_life(from);
                    }
                }
                self.liveness.on_answer(now, from, header.argument);
                self.on_departed_digest(now, &header);
            }
            Kind::Failed => {
                self.note_mtu_black_hole(&header);
                self.on_failure_report(now, from, Rank(header.argument));
            }
            Kind::Bye => {
                self.note_mtu_black_hole(&header);
                let departed = header.seq.0.checked_sub(1).map_or(from, Rank);
                self.depart_rank(now, departed, failed_in(Kind::Bye, header.argument));
            }
        }
        None
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
            self.gate.counters.unknown_channel += 1;
            return None;
        };
        self.due.touch(Machines::channel(index));
        if !carries_report(header) {
            return channel.handle_packet(now, header, head, packet_bytes);
        }
        // The channel does not know about the report, which precedes the data.
        let rest = packet_bytes.checked_sub(CAST_REPORT_BYTES)?;
        let placement = channel.handle_packet(now, header, head, rest);
        self.take_carried(now, header.source, head);
        placement.map(|placement| {
            let packet_offset = placement.packet_offset + CAST_REPORT_BYTES;
            Placement { packet_offset, ..placement }
        })
    }

    /// Returns where the data of this packet would go; see [`Channel::preview`].
    pub fn preview(&mut self, head: &[u8]) -> Option<Preview> {
        let (header, _) = Header::parse(head).ok()?;
        if !matches!(header.kind, Kind::Data | Kind::Cast) || carries_report(&header) {
            return None;
        }
        let header = self.gate.admit_uncounted(head)?;
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

    /// Asks a rank for a sign of life: its answer shows that packets arrive in both directions.
    pub fn ask_for_sign_of_life(&mut self, rank: Rank) {
        self.asked = Some(rank);
        self.answer(rank, Kind::Ping, SIGN_OF_LIFE);
    }

    /// Number of answers from ranks that were asked for a sign of life, modulo 2^32.
    pub fn signs_of_life(&self) -> u32 {
        self.signs_of_life
    }

    // ---- time -----------------------------------------------------------------------------

    /// Fires all timers that are due at `now`; harmless if none is.
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

    /// Reports that this rank did not run for some time before `now`, possibly stopped together
    /// with all others, so silence during that time does not count. Silence is measured from now
    /// on, and watched ranks are asked for a sign of life; a rank that answers within the timeout
    /// has not failed. Must be called before [`Self::handle_timeout`] with the same time.
    #[cold]
    pub fn on_pause(&mut self, now: Instant) {
        self.due.touch(Machines::WATCH);
        self.liveness.on_pause(now);
        self.channels.iter_mut().for_each(|channel| channel.on_pause(now));
        if let Some(broadcast) = &mut self.broadcast {
            broadcast.on_pause(now);
        }
    }

    /// Time at which [`Self::handle_timeout`] is to be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let broadcast = self.broadcast.as_ref().and_then(Broadcast::poll_timeout);
        let rest =
            earliest([broadcast, self.collective.poll_timeout(), self.liveness.poll_timeout()]);
        self.channels.iter().fold(rest, |at, channel| earliest([at, channel.poll_timeout()]))
    }
}
