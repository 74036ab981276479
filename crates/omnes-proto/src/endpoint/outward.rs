//! What an endpoint hands out: data to move, events, packets. Each machine is asked in turn, and
//! none of them again before something has gone in.

use super::{Endpoint, Event, is_to_all};
use crate::broadcast::Broadcast;
use crate::channel::Event as ChannelEvent;
use crate::collective::Outbound;
use crate::liveness::Notice;
use crate::packet::{Destination, Head, Move, Segment, Transmit};
use omnes_wire::{
    CAST_REPORT_BYTES, ChannelId, CommunicatorId, ENVELOPE_BYTES, Flags, Header, Instant, Kind,
    Rank, Seq,
};

/// Messages of more bytes carry no report: their packets are full.
const CARRIER_BYTES_MAX: u32 = 1024;

/// What the machines may have to hand out. To ask all of them in vain, several times for each
/// packet, would take as long as the packet.
pub(super) struct Due {
    pub(super) moves: bool,
    pub(super) events: bool,
    pub(super) transmits: bool,
}

impl Due {
    pub(super) const ALL: Self = Self { moves: true, events: true, transmits: true };
}

/// The rank that the tag of a packet names.
fn tagged(to: Destination, header: &Header) -> Rank {
    match to {
        Destination::Rank(rank) | Destination::Nic { to: rank, .. } if !is_to_all(header) => rank,
        _ => Rank::ALL,
    }
}

impl Endpoint {
    pub(super) fn collect_events(&mut self, now: Instant) {
        let mut silent = Vec::new();
        for (index, channel) in self.channels.iter_mut().enumerate() {
            while let Some(event) = channel.poll_event() {
                if let ChannelEvent::PeerSilent { rank } = event {
                    silent.push(rank);
                } else {
                    self.events.push_back(Event::Channel(index, event));
                }
            }
        }
        while let Some(event) = self.broadcast.as_mut().and_then(Broadcast::poll_event) {
            self.events.push_back(Event::Broadcast(event));
        }
        while let Some(event) = self.collective.poll_event() {
            self.events.push_back(Event::Collective(event));
        }
        if let Some(broadcast) = &mut self.broadcast {
            silent.extend(std::iter::from_fn(|| broadcast.poll_silent(now)));
        }
        for rank in silent {
            self.fail_rank(now, rank);
        }
    }

    /// Next data to move, before anything else is handled, with the index of the channel; that of
    /// broadcasts is the one after the last channel.
    pub fn poll_move(&mut self) -> Option<(usize, Move)> {
        if !self.due.moves {
            return None;
        }
        for (index, channel) in self.channels.iter_mut().enumerate() {
            if let Some(step) = channel.poll_move() {
                return Some((index, step));
            }
        }
        let step = self.broadcast.as_mut().and_then(Broadcast::poll_move);
        self.due.moves = step.is_some();
        step.map(|step| (self.channels.len(), step))
    }

    /// Next thing that happened.
    pub fn poll_event(&mut self, now: Instant) -> Option<Event> {
        if self.events.is_empty() && std::mem::take(&mut self.due.events) {
            self.collect_events(now);
        }
        self.events.pop_front()
    }

    /// False if nothing is to be sent before the next input or timeout.
    pub fn may_transmit(&self) -> bool {
        self.due.transmits
    }

    /// Hands out the next packet, which counts as sent from now on; its head goes into `head`.
    /// `None` means that nothing is to be sent before the next input or timeout.
    pub fn poll_transmit(&mut self, now: Instant, head: &mut Head) -> Option<Transmit> {
        if !self.due.transmits {
            return None;
        }
        let transmit = self.next_transmit(now, head);
        self.due.transmits = transmit.is_some();
        // The last packet of something may be its end.
        self.due.events = true;
        transmit
    }

    /// The parts that make up the data of the packet that was handed out last, if its source is
    /// [`Source::Coded`](crate::packet::Source::Coded): their exclusive or, shorter ones filled up
    /// with zeros to the length of its segment.
    pub fn coded_parts(&self) -> &[Segment] {
        self.broadcast.as_ref().map_or(&[], Broadcast::coded_parts)
    }

    fn next_transmit(&mut self, now: Instant, head: &mut Head) -> Option<Transmit> {
        if let Some(Outbound { to, header }) = self.collective.poll_transmit(now) {
            head.set_body(&[]);
            self.seal(header, tagged(to, &header), head);
            return Some(Transmit { to, channel: 0, segment: None });
        }
        if let Some(transmit) = self.next_control(head) {
            return Some(transmit);
        }
        if let Some(outbound) = self.broadcast.as_mut().and_then(|it| it.poll_transmit(now, head)) {
            let crate::broadcast::Outbound { to, header, segment } = outbound;
            self.seal(header, tagged(to, &header), head);
            return Some(Transmit { to, channel: self.channels.len(), segment });
        }
        for _ in 0..self.channels.len() {
            let index = self.next_channel;
            if let Some(mut outbound) = self.channels[index].poll_transmit(now, head) {
                self.load_report(index, &mut outbound, head);
                let crate::channel::Outbound { to, header, segment } = outbound;
                self.seal(header, to, head);
                return Some(Transmit { to: Destination::Rank(to), channel: index, segment });
            }
            self.next_channel = (index + 1) % self.channels.len();
        }
        None
    }

    fn next_control(&mut self, head: &mut Head) -> Option<Transmit> {
        let (to, kind, argument) = match self.control.pop_front() {
            Some(answer) => answer,
            None => match self.liveness.poll_notice()? {
                Notice::Ping { to } => (to, Kind::Ping, self.size),
                Notice::Failed { to, failed } => (to, Kind::Failed, failed.0),
            },
        };
        let header = Header {
            kind,
            job: self.job,
            communicator: CommunicatorId(0),
            channel: ChannelId(0),
            flags: Flags::NONE,
            source: self.me,
            seq: Seq(0),
            expects: Seq(0),
            epoch: 0,
            credits: 0,
            argument,
        };
        head.set_body(&[]);
        self.seal(header, to, head);
        Some(Transmit { to: Destination::Rank(to), channel: 0, segment: None })
    }

    /// Writes header and tag in front of the control body.
    fn seal(&self, mut header: Header, to: Rank, head: &mut Head) {
        header.job = self.job;
        let bytes = header.emit();
        let tag = self.own_key.tag(&bytes, to, head.body());
        head.seal(&bytes, tag);
    }

    /// Gives a small message an acknowledgement of broadcasts to carry, if one is owed.
    fn load_report(
        &mut self,
        index: usize,
        outbound: &mut crate::channel::Outbound,
        head: &mut Head,
    ) {
        let payload = u32::from(self.channels[index].config().payload_bytes);
        let room = payload - (ENVELOPE_BYTES + CAST_REPORT_BYTES) as u32;
        let most = room.min(CARRIER_BYTES_MAX);
        let is_small = outbound.segment.is_none_or(|segment| segment.bytes <= most);
        let is_carrier = outbound.header.kind == Kind::Data
            && outbound.header.flags.has(Flags::FIRST)
            && outbound.header.flags.has(Flags::LAST);
        let Some(broadcast) = &mut self.broadcast else { return };
        if let (true, Some(report)) = (is_small && is_carrier, broadcast.take_carried(outbound.to))
        {
            outbound.header.flags = outbound.header.flags.with(Flags::CARRIES_REPORT);
            head.extend_body(&report.emit());
        }
    }
}
