//! Output of an endpoint: data to move, events, packets. The machines are polled in turn, and a
//! machine that had nothing is not polled again until it has received an input.

use super::departures::failed_in;
use super::due::Machines;
use super::gate::is_to_all;
use super::{Endpoint, Event, SIGN_OF_LIFE};
use crate::broadcast::{Broadcast, Suspicion};
use crate::channel::Event as ChannelEvent;
use crate::collective::Outbound;
use crate::limits::truesize;
use crate::liveness::WatchMessage;
use crate::packet::{Destination, Head, Move, Segment, Transmit};
use omnes_wire::{
    CAST_REPORT_BYTES, ENVELOPE_BYTES, Flags, Header, Instant, Kind, PACKET_OVERHEAD_BYTES, Rank,
    Seq,
};

/// Most data bytes of a message that carries a report; packets of longer messages are full.
const CARRIER_BYTES_MAX: u32 = 1024;

/// Rank that the tag of a packet covers as its receiver.
fn tagged(to: Destination, header: &Header) -> Rank {
    to.rank().filter(|_| !is_to_all(header)).unwrap_or(Rank::ALL)
}

impl Endpoint {
    pub(super) fn collect_events(&mut self, now: Instant) {
        let due = std::mem::replace(&mut self.due.events, Machines::NONE);
        let mut silent = Vec::new();
        let mut quiet = Vec::new();
        let mut mtu_black_holes = Vec::new();
        for (index, channel) in self.channels.iter_mut().enumerate() {
            if !due.has(Machines::channel(index)) {
                continue;
            }
            while let Some(event) = channel.poll_event() {
                match event {
                    ChannelEvent::PeerSilent { rank } => silent.push(rank),
                    ChannelEvent::PeerQuiet { rank } => quiet.push(rank),
                    ChannelEvent::MtuBlackHole { rank } => mtu_black_holes.push(rank),
                    event => self.events.push_back(Event::Channel(index, event)),
                }
            }
        }
        if let Some(broadcast) = &mut self.broadcast
            && due.has(Machines::BROADCAST)
        {
            while let Some(event) = broadcast.poll_event() {
                self.events.push_back(Event::Broadcast(event));
            }
            while let Some(suspicion) = broadcast.poll_suspicion() {
                match suspicion {
                    Suspicion::Silent(rank) => silent.push(rank),
                    Suspicion::Quiet(rank) => quiet.push(rank),
                    Suspicion::MtuBlackHole(rank) => mtu_black_holes.push(rank),
                }
            }
        }
        if due.has(Machines::COLLECTIVE) {
            while let Some(event) = self.collective.poll_event() {
                self.events.push_back(Event::Collective(event));
            }
        }
        for rank in quiet {
            self.answer(rank, Kind::Ping, SIGN_OF_LIFE);
        }
        if self.liveness.is_starting(now) {
            silent.drain(..).for_each(|rank| self.forgive_silence(now, rank));
        }
        for rank in silent {
            self.fail_rank(now, rank);
        }
        mtu_black_holes.retain(|rank| !self.is_gone(*rank));
        for rank in mtu_black_holes {
            self.mtu_black_holes.insert(rank);
            self.fail_rank(now, rank);
            // The rank is alive, and must learn that it has been excluded.
            self.answer(rank, Kind::Failed, rank.0);
        }
    }

    /// `rank` may not have started: the answers that it owes are owed only from now on.
    fn forgive_silence(&mut self, now: Instant, rank: Rank) {
        self.channels.iter_mut().for_each(|channel| channel.forgive_silence(now, rank));
        if let Some(broadcast) = &mut self.broadcast {
            broadcast.forgive_silence(now, rank);
        }
    }

    /// Next data to move, before anything else is handled, with the index of the channel; the index
    /// after the last channel stands for broadcasts.
    pub fn poll_move(&mut self) -> Option<(usize, Move)> {
        if self.due.moves == Machines::NONE {
            return None;
        }
        for (index, channel) in self.channels.iter_mut().enumerate() {
            if self.due.moves.has(Machines::channel(index))
                && let Some(step) = channel.poll_move()
            {
                return Some((index, step));
            }
        }
        let broadcast = self.broadcast.as_mut().filter(|_| self.due.moves.has(Machines::BROADCAST));
        let step = broadcast.and_then(Broadcast::poll_move);
        if step.is_none() {
            self.due.moves = Machines::NONE;
        }
        step.map(|step| (self.channels.len(), step))
    }

    /// Returns the next event.
    pub fn poll_event(&mut self, now: Instant) -> Option<Event> {
        if self.events.is_empty() && self.due.events != Machines::NONE {
            self.collect_events(now);
        }
        self.events.pop_front()
    }

    /// False if there is nothing to send before the next input or timeout.
    pub fn may_transmit(&self) -> bool {
        self.due.transmits != Machines::NONE
    }

    /// Hands out the next packet, which counts as sent from now on, and writes its head to `head`.
    /// `None` means that there is nothing to send before the next input or timeout.
    pub fn poll_transmit(&mut self, now: Instant, head: &mut Head) -> Option<Transmit> {
        if !self.may_transmit() {
            return None;
        }
        // Sending the last packet of an operation may complete it, which makes an event.
        self.due.events.insert(self.due.transmits);
        let transmit = self.next_transmit(now, head);
        if transmit.is_none() {
            self.due.transmits = Machines::NONE;
        }
        transmit
    }

    /// Parts whose exclusive or is the data of the packet handed out last, if its source is
    /// [`Source::Coded`](crate::packet::Source::Coded); shorter parts are padded with zeros to the
    /// length of its segment.
    pub fn coded_parts(&self) -> &[Segment] {
        self.broadcast.as_ref().map_or(&[], Broadcast::coded_parts)
    }

    fn next_transmit(&mut self, now: Instant, head: &mut Head) -> Option<Transmit> {
        if self.due.transmits.has(Machines::COLLECTIVE) {
            if let Some(Outbound { to, header, words }) = self.collective.poll_transmit(now) {
                head.set_body(&[]);
                words.behind().iter().for_each(|word| head.extend_body(&word.to_be_bytes()));
                self.gate.seal(header, tagged(to, &header), head);
                return Some(Transmit { to, channel: 0, segment: None });
            }
            self.due.transmits.remove(Machines::COLLECTIVE);
        }
        if self.due.transmits.has(Machines::WATCH) {
            if let Some(transmit) = self.next_control(head) {
                return Some(transmit);
            }
            self.due.transmits.remove(Machines::WATCH);
        }
        if self.due.transmits.has(Machines::BROADCAST) {
            let outbound = self.broadcast.as_mut().and_then(|it| it.poll_transmit(now, head));
            if let Some(outbound) = outbound {
                let crate::broadcast::Outbound { to, header, segment } = outbound;
                self.gate.seal(header, tagged(to, &header), head);
                return Some(Transmit { to, channel: self.channels.len(), segment });
            }
            self.due.transmits.remove(Machines::BROADCAST);
        }
        self.next_of_channels(now, head)
    }

    /// Hands out the next packet of the channels, which take turns.
    fn next_of_channels(&mut self, now: Instant, head: &mut Head) -> Option<Transmit> {
        for _ in 0..self.channels.len() {
            let index = self.next_channel;
            if self.due.transmits.has(Machines::channel(index)) {
                if let Some(mut outbound) = self.channels[index].poll_transmit(now, head) {
                    self.load_report(index, &mut outbound, head);
                    let crate::channel::Outbound { to, header, segment } = outbound;
                    self.gate.seal(header, to, head);
                    return Some(Transmit { to: Destination::Rank(to), channel: index, segment });
                }
                self.due.transmits.remove(Machines::channel(index));
            }
            self.next_channel = (index + 1) % self.channels.len();
        }
        None
    }

    fn next_control(&mut self, head: &mut Head) -> Option<Transmit> {
        let mut seq = Seq(0);
        let (to, kind, argument) = match self.control.pop_front() {
            Some(answer) => answer,
            None => match self.liveness.poll_message()? {
                WatchMessage::Ping { to, question } => (to, Kind::Ping, question),
                WatchMessage::Failed { to, failed } => (to, Kind::Failed, failed.0),
                WatchMessage::Departed { to, departed } => {
                    seq = Seq(departed.0 + 1);
                    (to, Kind::Bye, self.cause())
                }
            },
        };
        let failed = failed_in(kind, argument);
        let is_mtu_black_hole = failed.is_some_and(|failed| self.mtu_black_holes.contains(&failed));
        let flags = Flags::NONE.with_if(Flags::MTU_BLACK_HOLE, is_mtu_black_hole);
        let expects = match kind {
            Kind::Ping | Kind::Pong => Seq(self.liveness.digest()),
            _ => Seq(0),
        };
        let header = Header { flags, seq, expects, argument, ..Header::blank(kind, self.gate.me) };
        head.set_body(&[]);
        self.gate.seal(header, to, head);
        Some(Transmit { to: Destination::Rank(to), channel: 0, segment: None })
    }

    /// Adds a pending acknowledgement of broadcasts to a small message, unless this would increase
    /// the packet's truesize: the receiver's space has already been charged for the packet without
    /// it.
    fn load_report(
        &mut self,
        index: usize,
        outbound: &mut crate::channel::Outbound,
        head: &mut Head,
    ) {
        let payload = u32::from(self.channels[index].config().payload_bytes);
        let room = payload - (ENVELOPE_BYTES + CAST_REPORT_BYTES) as u32;
        let most = room.min(CARRIER_BYTES_MAX);
        let data = outbound.segment.map_or(0, |segment| segment.bytes);
        let bytes = (PACKET_OVERHEAD_BYTES + head.body().len()) as u32 + data;
        let is_charged = truesize(bytes + CAST_REPORT_BYTES as u32) == truesize(bytes);
        let is_small = data <= most && is_charged;
        let is_carrier = outbound.header.kind == Kind::Data
            && outbound.header.flags.has(Flags::FIRST)
            && outbound.header.flags.has(Flags::LAST);
        let broadcast = self.broadcast.as_mut().filter(|_| is_small && is_carrier);
        if let Some(report) = broadcast.and_then(|it| it.take_carried(outbound.to)) {
            outbound.header.flags = outbound.header.flags.with(Flags::CARRIES_REPORT);
            head.extend_body(&report.emit());
        }
    }
}
