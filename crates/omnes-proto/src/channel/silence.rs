//! Ranks that give no answer: those that are gone, and those that long packets do not get to.
//!
//! A link or a switch on the way may be set to pass on shorter packets than the hosts' links are,
//! and drop the others without a word. Short packets then come and go as if all were well, while a
//! long one is sent again for ever. An answer to a short question tells such a rank from one that
//! has failed, its reports from one that has no room; how often the packet went, and that no other
//! one as long arrived meanwhile, tell the way to it from one that loses packets by chance.

use super::emit::shape;
use super::peer::Lane;
use super::send_lane::Item;
use super::{Channel, Event};
use crate::limits::{QUIET_SHARE, SHORT_BYTES_MAX};
use omnes_wire::{Instant, Rank};
use std::time::Duration;

impl Channel {
    /// Judges a rank, some of whose timers have run out, by what it has answered.
    pub(super) fn judge_silence(&mut self, now: Instant, rank: Rank) {
        let limit = self.config.peer_timeout;
        let peer = self.peer(rank);
        let since = peer.unanswered_since();
        let silence = since.map_or(Duration::ZERO, |at| now.since(at));
        let lives = peer.lived_at.is_some_and(|lived| since.is_some_and(|at| lived > at));
        let is_silent = silence >= limit;
        let is_known = std::mem::replace(&mut peer.is_reported_silent, is_silent);
        let is_quiet = !is_silent && !lives && silence >= limit / QUIET_SHARE;
        // In silence the time has passed.
        let in_vain = if is_silent { Duration::ZERO } else { limit };
        let event = if (lives || !is_silent) && self.loses_long(now, rank, in_vain) {
            Some(Event::MtuBlackHole { rank })
        } else if is_silent && !is_known {
            Some(Event::PeerSilent { rank })
        } else if is_quiet && self.loses_long(now, rank, Duration::ZERO) {
            Some(Event::PeerQuiet { rank })
        } else {
            None
        };
        self.events.extend(event);
    }

    /// True if the oldest packet on a lane to `rank` is a long one, and has gone again in vain for
    /// `limit`.
    fn loses_long(&self, now: Instant, rank: Rank, limit: Duration) -> bool {
        let Some(peer) = self.peers.get(rank) else { return false };
        let is_long = |lane: &Lane| match peer.send[*lane].in_vain(now, limit) {
            Some(Item::Data { message, index }) => {
                let outgoing = &self.outgoing[message.0 as usize];
                shape(&self.config, outgoing, *lane, index).bytes > SHORT_BYTES_MAX
            }
            Some(Item::Grant { .. }) | None => false,
        };
        peer.lanes().iter().any(is_long)
    }

    /// Whatever answers `rank` owes, it does since now.
    pub(crate) fn forgive_silence(&mut self, now: Instant, rank: Rank) {
        if let Some(peer) = self.peers.get_mut(rank) {
            peer.is_reported_silent = false;
            peer.send.iter_mut().for_each(|lane| lane.forgive_silence(now));
        }
    }

    /// `rank` has answered a question whether it lives.
    pub fn on_sign_of_life(&mut self, now: Instant, rank: Rank) {
        if let Some(peer) = self.peers.get_mut(rank) {
            peer.lived_at = Some(now);
        }
    }
}
