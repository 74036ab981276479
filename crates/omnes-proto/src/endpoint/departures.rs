//! Ranks that fail or leave: what the machines are told of them, and what others are.

use super::due::Machines;
use super::gate::control_body;
use super::{Endpoint, Event};
use crate::group::Nodes;
use crate::limits::CONTROL_QUEUE_MAX;
use crate::packet::SendId;
use omnes_wire::{Flags, Header, Instant, Kind, Rank};

/// The rank that a report or a farewell names as failed, if it names one.
pub(super) fn failed_in(kind: Kind, argument: u32) -> Option<Rank> {
    match kind {
        Kind::Failed => Some(Rank(argument)),
        Kind::Bye => argument.checked_sub(1).map(Rank),
        _ => None,
    }
}

/// True for a packet that says what its sender has entered.
fn is_of_entered(header: &Header) -> bool {
    matches!(header.kind, Kind::Step | Kind::StepTell)
}

impl Endpoint {
    /// True if `rank` has failed or left.
    pub fn is_gone(&self, rank: Rank) -> bool {
        self.liveness.is_gone(rank)
    }

    /// True if `rank`, which has failed, was given up as long packets do not get to it, though it
    /// answers short ones; of this rank, once the others have said so.
    pub fn is_mtu_black_hole(&self, rank: Rank) -> bool {
        self.mtu_black_holes.contains(&rank)
    }

    /// Handles an authentic packet of a rank that has failed or left.
    pub(super) fn handle_from_gone(&mut self, now: Instant, header: &Header, head: &[u8]) {
        if self.liveness.has_departed(header.source) && is_of_entered(header) {
            // It was sent before the farewell, which has overtaken it.
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

    /// A rank that was given up on is still there: it must know that it is out.
    fn tell_excluded(&mut self, rank: Rank) {
        if self.control.is_empty() {
            self.answer(rank, Kind::Failed, rank.0);
        }
    }

    /// A question or an answer says whom its sender knows to be gone.
    pub(super) fn hear_of_gone(&mut self, now: Instant, header: &Header) {
        self.due.touch(Machines::WATCH);
        self.liveness.on_digest(now, header.source, header.expects.0);
    }

    /// A report may say why the rank that it names was given up.
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

    /// `rank` has failed, as this rank has found out by itself: all others are told.
    pub fn fail_rank(&mut self, now: Instant, rank: Rank) {
        if self.lose_rank(now, rank) {
            self.due.touch(Machines::WATCH);
            self.liveness.tell_all(now, rank);
        }
    }

    /// As [`Channel::cut`](crate::channel::Channel::cut). If it is because of a failure, the
    /// receiver hears of that first.
    pub fn cut(&mut self, channel: usize, id: SendId, rest_max: u64) {
        let Some(to) = self.channel_mut(channel).cut(id, rest_max) else { return };
        if let Some(failed) = self.first_failed().filter(|failed| *failed != to) {
            self.answer(to, Kind::Failed, failed.0);
        }
    }

    /// `rank` has left in good order; if it did because another one had failed, that is `cause`.
    /// So whoever waits for `rank` learns why it has left, also where the report was lost.
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
    pub(super) fn cause(&self) -> u32 {
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
}
