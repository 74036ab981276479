//! Ranks that do not answer: ranks that are gone, and ranks that long packets do not reach.
//!
//! A link or a switch on the path may be configured for shorter packets than the hosts' links, and
//! silently drop longer ones. Short packets are then exchanged normally, while a long one is
//! retransmitted forever. An answer to a short question distinguishes such a rank from a failed
//! one; its reports, from one without buffer space; the number of retransmissions, during which no
//! other packet of that length arrived, from one whose path loses packets by chance.

use super::emit::shape;
use super::peer::Lane;
use super::send_lane::Item;
use super::{Channel, Event};
use crate::limits::{QUIET_SHARE, SHORT_BYTES_MAX};
use omnes_wire::{Instant, Rank};
use std::time::Duration;

impl Channel {
    /// Judges a rank, some of whose timers have expired, by what it has answered.
    pub(super) fn judge_silence(&mut self, now: Instant, rank: Rank) {
        let limit = self.config.peer_timeout;
        let peer = self.peer(rank);
        let since = peer.unanswered_since();
        let silence = since.map_or(Duration::ZERO, |at| now.since(at));
        let lives = peer.lived_at.is_some_and(|lived| since.is_some_and(|at| lived > at));
        let is_silent = silence >= limit;
        let is_known = std::mem::replace(&mut peer.is_reported_silent, is_silent);
        let is_quiet = !is_silent && !lives && silence >= limit / QUIET_SHARE;
        // Silence of that length implies that the time has passed.
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

    /// True if the oldest packet on a lane to `rank` is a long one, and its retransmissions have
    /// failed for `limit`.
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

    /// Answers that `rank` owes are owed only from now on.
    pub(crate) fn forgive_silence(&mut self, now: Instant, rank: Rank) {
        if let Some(peer) = self.peers.get_mut(rank) {
            peer.is_reported_silent = false;
            peer.send.iter_mut().for_each(|lane| lane.forgive_silence(now));
        }
    }

    /// `rank` has answered a liveness probe.
    pub fn on_sign_of_life(&mut self, now: Instant, rank: Rank) {
        if let Some(peer) = self.peers.get_mut(rank) {
            peer.lived_at = Some(now);
        }
    }
}
