//! Ranks that fail or leave: what the machines and the other ranks are told.

use super::due::Machines;
use super::gate::control_body;
use super::{Endpoint, Event};
use crate::group::Nodes;
use crate::limits::CONTROL_QUEUE_MAX;
use crate::packet::SendId;
use omnes_wire::{Flags, Header, Instant, Kind, Rank};

/// Rank that a failure report or a farewell names as failed, if any.
pub(super) fn failed_in(kind: Kind, argument: u32) -> Option<Rank> {
    match kind {
        Kind::Failed => Some(Rank(argument)),
        Kind::Bye => argument.checked_sub(1).map(Rank),
        _ => None,
    }
}

/// True for a packet that reports which barriers its sender has entered.
fn is_of_entered(header: &Header) -> bool {
    matches!(header.kind, Kind::Step | Kind::StepTell)
}

impl Endpoint {
    /// True if `rank` has failed or left.
    pub fn is_gone(&self, rank: Rank) -> bool {
        self.liveness.is_gone(rank)
    }

    /// True if `rank` has failed because long packets do not reach it, though it answers short
    /// ones; true for this rank once others have reported so.
    pub fn is_mtu_black_hole(&self, rank: Rank) -> bool {
        self.mtu_black_holes.contains(&rank)
    }

    /// Handles an authentic packet from a rank that has failed or left.
    pub(super) fn handle_from_gone(&mut self, now: Instant, header: &Header, head: &[u8]) {
        if self.liveness.has_departed(header.source) && is_of_entered(header) {
            // The packet was sent before the farewell, but arrived after it.
            self.gate.counters.accepted += 1;
            self.collective_mut().handle_packet(now, header, control_body(head));
            return;
        }
        self.gate.counters.from_gone += 1;
        self.tell_excluded(header.source);
    }

    pub(super) fn answer(&mut self, to: Rank, kind: Kind, argument: u32) {
        if self.control.len() < CONTROL_QUEUE_MAX {
            self.due.touch(Machines::WATCH);
            self.control.push_back((to, kind, argument));
        }
    }

    /// Tells a rank that was declared failed, but is still alive, that it has been excluded.
    fn tell_excluded(&mut self, rank: Rank) {
        if self.control.is_empty() {
            self.answer(rank, Kind::Failed, rank.0);
        }
    }

    /// Handles the digest of gone ranks in a ping or its answer.
    pub(super) fn on_departed_digest(&mut self, now: Instant, header: &Header) {
        self.due.touch(Machines::WATCH);
        self.liveness.on_digest(now, header.source, header.expects.0);
    }

    /// Records that a report names an MTU black hole as the reason of a failure.
    pub(super) fn note_mtu_black_hole(&mut self, header: &Header) {
        let failed = failed_in(header.kind, header.argument);
        let is_told =
            |failed: &Rank| header.flags.has(Flags::MTU_BLACK_HOLE) && !self.is_gone(*failed);
        self.mtu_black_holes.extend(failed.filter(is_told));
    }

    pub(super) fn on_failure_report(&mut self, now: Instant, from: Rank, failed: Rank) {
        if failed != self.gate.me {
            self.answer(from, Kind::Pong, failed.0);
        }
        self.hear_of_failure(now, from, failed);
    }

    fn hear_of_failure(&mut self, now: Instant, from: Rank, failed: Rank) {
        if failed == self.gate.me {
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

    /// Declares `rank` failed, as detected by this rank itself: all other ranks are told.
    pub fn fail_rank(&mut self, now: Instant, rank: Rank) {
        if self.lose_rank(now, rank) {
            self.due.touch(Machines::WATCH);
            self.liveness.tell_all(now, rank);
        }
    }

    /// As [`Channel::cut`](crate::channel::Channel::cut). If the cause is a failure, the receiver
    /// is told of the failure first.
    pub fn cut(&mut self, channel: usize, id: SendId, rest_max: u64) {
        let Some(to) = self.channel_mut(channel).cut(id, rest_max) else { return };
        if let Some(failed) = self.first_failed().filter(|failed| *failed != to) {
            self.answer(to, Kind::Failed, failed.0);
        }
    }

    /// Handles the departure of `rank` in good order; `cause` is the failed rank that made it
    /// leave, if any. So every rank that waits for `rank` learns why it left, even if the failure
    /// report was lost.
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
        // Only now, because the events of the failure have been collected.
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

    /// Lets ranks of one node be watched from other nodes, so that all of them are found missing at
    /// the same time when the node fails. Must be called with all ranks of the job, the same on
    /// each rank, before anything else.
    ///
    /// # Panics
    /// If this rank is on none of the nodes.
    pub fn watch_across(&mut self, now: Instant, nodes: Nodes) {
        self.due.touch(Machines::WATCH);
        self.liveness.use_nodes(now, nodes);
    }

    /// True if `rank` has left in good order.
    pub fn has_departed(&self, rank: Rank) -> bool {
        self.liveness.has_departed(rank)
    }

    /// The first failed rank that this rank learned of, which is its reason if it leaves now; this
    /// rank itself if the others have excluded it.
    pub fn first_failed(&self) -> Option<Rank> {
        self.liveness.first_failed()
    }

    /// Encodes the first failed rank for a farewell: its number plus one, or 0.
    pub(super) fn cause(&self) -> u32 {
        self.first_failed().map_or(0, |failed| failed.0 + 1)
    }

    /// True while other ranks have not confirmed this rank's failure reports.
    pub fn is_telling(&self) -> bool {
        self.liveness.is_telling()
    }

    /// Sends a farewell to all other ranks: this rank leaves in good order. The ranks that watch it
    /// are told first, as they would take its silence for a failure.
    pub fn leave(&mut self) {
        self.due.touch(Machines::ALL);
        let cause = self.cause();
        self.control.extend(self.liveness.watchers().map(|rank| (rank, Kind::Bye, cause)));
    }
}
