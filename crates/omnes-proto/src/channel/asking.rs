//! A rank that waits for a message, or for the remaining data of one, asks for it once it is
//! overdue.
//!
//! If the end of a lone message is lost, no later packet reveals a gap, and its sender would notice
//! only by its timer, which allows for the longest delay of answers. The receiver notices sooner,
//! as it knows how long such messages usually take ([`Overdue`](crate::lane::Overdue)), or sees
//! that the remaining data do not arrive, and asks: by an acknowledgement of all packets before
//! `expects` that is marked as a question. The sender repeats packet `expects` if it was sent long
//! enough ago to have arrived. If the sender is late instead, it has nothing to repeat and does
//! nothing.
//!
//! Source: part of the additions to PM for a network that loses packets [PM-R18].
//!
//! Guarantees: a question causes one packet at most, which does not count as lost, since it may be
//! in a queue; a gap then shows what else is missing. After [`QUESTIONS_MAX`] questions without
//! effect no more are asked: the sender's timer remains. A question does not count as an answer, so
//! a path that carries packets in one direction only is still detected.
//!
//! Not asked for: messages for a receive from any source, as every rank would have to be asked; the
//! remaining data of a message that no receive waits for. Not asked: ranks that are reached through
//! a ring in shared memory, which loses nothing.

use super::matching::Pattern;
use super::peer::{Assembling, Destination, Lane, Peer};
use super::{Channel, Phase};
use crate::limits::{RANKS_AT_ONCE, STAGGER};
use omnes_wire::{Flags, Header, Instant, Kind, Rank};
use std::time::Duration;

/// Questions for one message, and in one pause of it; the last is sent after 15 times the first
/// wait.
const QUESTIONS_MAX: u32 = 4;
/// Pause in a partly arrived message after which its remaining data are overdue, in multiples of
/// the shortest wait or of the round trip, whichever is longer.
const PAUSE: u32 = 2;

/// True for a packet that asks for a message.
pub(super) fn is_question(header: &Header) -> bool {
    header.kind == Kind::Nack
        && header.flags.has(Flags::ACK_NOW)
        && !header.flags.has(Flags::REJECT)
}

impl Peer {
    /// Lane on which something is awaited, unless a known gap exists or another arriving packet
    /// would reveal one.
    fn waits_on(&self) -> Option<Lane> {
        let is_by_network = self.flow.path_bytes == u32::MAX;
        let lane = match self.assembling {
            Some(Assembling { destination: Destination::Receive(_), .. }) => Lane::Ordered,
            Some(_) => return None,
            None if !self.bulk_parts.is_empty() => Lane::Bulk,
            None if self.watch.awaits_message() => Lane::Ordered,
            None => return None,
        };
        let receive = &self.receive[lane];
        (is_by_network && !receive.has_gap() && !receive.is_rejecting()).then_some(lane)
    }

    /// Stops asking.
    pub(super) fn ask_nothing(&mut self) {
        self.watch.asks = None;
        self.watch.overdue.stop();
    }

    /// Pause in a partly arrived message after which its remaining data are asked for.
    fn pause(&self, least: Duration) -> Duration {
        let round_trip = self.rtt.shortest().map_or(least, |_| self.rtt.smoothed());
        least.max(round_trip) * PAUSE
    }
}

impl Channel {
    /// Starts, continues or ends the wait for a message of `rank` or for more of it, depending on
    /// what is awaited.
    pub(super) fn watch(&mut self, now: Instant, rank: Rank) {
        let is_running = self.phase == Phase::Running;
        let least = self.config.ask_min + self.ask_spread(rank);
        let peer = self.peer(rank);
        if !is_running || peer.waits_on().is_none() {
            peer.ask_nothing();
        } else if peer.is_sending() {
            let pause = peer.pause(least);
            peer.watch.overdue.begin_rest(now, pause);
        } else {
            peer.watch.overdue.begin(now, least);
        }
    }

    /// A new packet of `rank` has arrived on the ordered lane.
    pub(super) fn on_news(&mut self, now: Instant, rank: Rank) {
        let peer = self.peer(rank);
        peer.watch.asks = None;
        peer.watch.overdue.end_unsure(now);
        self.watch(now, rank);
    }

    /// In large jobs the pairs ask at staggered times, since many ranks may wait for one.
    fn ask_spread(&self, rank: Rank) -> Duration {
        if self.size > RANKS_AT_ONCE {
            STAGGER * (self.me.0.wrapping_add(rank.0) % self.size)
        } else {
            Duration::ZERO
        }
    }

    /// A receive without a matching message has been posted.
    pub(super) fn on_posted(&mut self, now: Instant, pattern: &Pattern) {
        let Some(rank) = pattern.source.filter(|rank| self.is_other(*rank)) else { return };
        self.peer(rank).watch.awaited += 1;
        self.watch(now, rank);
        self.note_deadline(rank);
    }

    /// The receive has been matched with a message.
    pub(super) fn on_matched(&mut self, pattern: &Pattern) {
        if let Some(peer) = pattern.source.and_then(|rank| self.peers.get_mut(rank)) {
            peer.watch.awaited -= 1;
        }
    }

    /// The receive has been cancelled.
    pub(super) fn on_cancelled(&mut self, pattern: &Pattern) {
        self.on_matched(pattern);
        let peer = pattern.source.and_then(|rank| self.peers.get_mut(rank));
        if let Some(peer) = peer.filter(|peer| peer.waits_on().is_none()) {
            peer.ask_nothing();
        }
    }

    /// True if a message awaited from a peer is overdue, and the peer is to be asked.
    pub(super) fn is_overdue(&mut self, now: Instant, rank: Rank) -> bool {
        let peer = self.peer(rank);
        if !peer.watch.overdue.on_deadline(now) {
            return false;
        }
        if peer.watch.overdue.questions() >= QUESTIONS_MAX {
            peer.watch.overdue.give_up();
        }
        peer.watch.asks = peer.waits_on();
        peer.watch.asks.is_some()
    }

    /// A peer asks for the packet that it expects: that packet is retransmitted if it was sent long
    /// enough ago.
    pub(super) fn on_question(&mut self, now: Instant, header: &Header) {
        let (allowance, least) = (self.config.allowance(), self.config.ask_min);
        let peer = self.peer(header.source);
        let guard = peer.rtt.shortest().map_or(least, |_| peer.rtt.smoothed());
        let timeout = peer.rtt.retransmit_timeout(allowance, 0);
        peer.send[Lane::of(header)].on_question(now, guard, timeout);
    }
}
