//! Who waits for a message asks for it once it is overdue.
//!
//! Nothing follows a lone message that is lost, so no gap shows it, and its sender would find out
//! by its timer alone, which allows for the longest time that answers are held back. Its receiver
//! knows sooner how long such messages usually take ([`Overdue`](crate::lane::Overdue)), and asks:
//! an answer to all before `expects` that says so. The sender repeats what it has sent so long ago
//! that it must have got there; if there is no such packet, the message is late rather than lost,
//! and nothing happens.
//!
//! Source: part of what a network that loses packets needs beyond PM [PM-R18].
//!
//! Only what one rank alone can send is waited for in this sense: for a receive from any source all
//! would have to be asked.

use super::matching::Pattern;
use super::peer::{Destination, LANES, Lane, Peer};
use super::{Channel, Phase};
use omnes_wire::{Header, Instant, Rank};

impl Peer {
    /// True if the rest of a message is waited for of which the ordered lane has brought a part.
    fn lacks_ordered_rest(&self) -> bool {
        let destination = self.assembling.map(|assembling| assembling.destination);
        matches!(destination, Some(Destination::Receive(_)))
    }

    /// True if the rest of a message that has begun to arrive is waited for.
    fn lacks_rest(&self) -> bool {
        !self.bulk_parts.is_empty() || self.lacks_ordered_rest()
    }

    /// True if something is waited for on this lane, and nothing is known to be missing: gaps are
    /// reported anyway, and what was rejected will come.
    fn may_ask(&self, lane: Lane) -> bool {
        let is_awaited = match lane {
            Lane::Ordered => self.awaited > 0 || self.lacks_ordered_rest(),
            Lane::Bulk => !self.bulk_parts.is_empty(),
            Lane::Grants => false,
        };
        let receive = &self.receive[lane];
        is_awaited && !receive.has_gap() && !receive.is_rejecting()
    }
}

impl Channel {
    /// Begins to wait for `rank`, goes on, or ends it, as what is awaited says. With `has_news`
    /// something that is new has come from there.
    pub(super) fn watch(&mut self, now: Instant, rank: Rank, has_news: bool) {
        let least = self.config.ask_min;
        let peer = self.peer(rank);
        if has_news {
            peer.asks = [false; LANES];
            peer.overdue.end_unsure(now);
        }
        if peer.lacks_rest() {
            if has_news || peer.overdue.deadline().is_none() {
                let wait = peer.overdue.usual_wait(least);
                peer.overdue.begin_rest(now, wait);
            }
        } else if peer.awaited > 0 {
            peer.overdue.begin(now, least);
        } else {
            peer.overdue.stop();
        }
    }

    /// A receive that nothing has come for is posted.
    pub(super) fn on_posted(&mut self, now: Instant, pattern: &Pattern) {
        let Some(rank) = pattern.source.filter(|rank| self.is_other(*rank)) else { return };
        self.peer(rank).awaited += 1;
        self.watch(now, rank, false);
        self.note_deadline(rank);
    }

    /// A message has come for it.
    pub(super) fn on_matched(&mut self, pattern: &Pattern) {
        if let Some(peer) = pattern.source.and_then(|rank| self.peers.get_mut(rank)) {
            peer.awaited -= 1;
        }
    }

    /// It has been taken back.
    pub(super) fn on_cancelled(&mut self, pattern: &Pattern) {
        self.on_matched(pattern);
        let peer = pattern.source.and_then(|rank| self.peers.get_mut(rank));
        if let Some(peer) = peer.filter(|peer| peer.awaited == 0 && !peer.lacks_rest()) {
            peer.overdue.stop();
        }
    }

    /// True if what is awaited of a peer is overdue, and it is to be asked.
    pub(super) fn is_overdue(&mut self, now: Instant, rank: Rank) -> bool {
        let is_running = self.phase == Phase::Running;
        let peer = self.peer(rank);
        if !peer.overdue.on_deadline(now) || !is_running {
            return false;
        }
        peer.asks = Lane::ALL.map(|lane| peer.may_ask(lane));
        peer.asks.contains(&true)
    }

    /// A peer asks for what it expects: what went out a round trip ago or earlier has had its time.
    pub(super) fn on_question(&mut self, now: Instant, header: &Header) {
        let (allowance, least) = (self.config.allowance(), self.config.ask_min);
        let peer = self.peer(header.source);
        let guard = peer.rtt.shortest().unwrap_or(least);
        let timeout = peer.rtt.retransmit_timeout(allowance, 0);
        let lost = peer.send[Lane::of(header)].on_question(now, guard, timeout);
        peer.loss_window.on_lost(lost);
    }
}
