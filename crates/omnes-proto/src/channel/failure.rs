//! A rank has failed: whatever waits for it ends with an error, nothing else changes.

use super::peer::Peer;
use super::{Channel, Event};
use crate::packet::{ReceiveId, SendId};
use omnes_wire::{Instant, Rank};

impl Channel {
    /// Ends all messages and receives that depend on `rank`, each with its event. Receives from
    /// any source end too, as the message that they wait for may have been its.
    pub fn fail_peer(&mut self, _now: Instant, rank: Rank) {
        if self.failed.contains(&rank) || rank == self.me {
            return;
        }
        self.failed.push(rank);
        self.rejecting.retain(|rejected| *rejected != rank);
        self.ready.retain(|ready| *ready != rank);
        if let Some(peer) = self.peers.remove(&rank) {
            self.drop_peer(peer);
        }
        self.fail_sends(rank);
        self.fail_receives(rank);
        while let Some(mut message) = self.matching.take_unexpected_of(rank) {
            while let Some((slot, _)) = self.pool.pop(&mut message.chain) {
                self.pool.give_back(slot);
            }
        }
        self.check_stable();
    }

    fn drop_peer(&mut self, mut peer: Peer) {
        for lane in &mut peer.send {
            lane.drain().for_each(drop);
        }
        for stashed in peer.stash.into_values() {
            self.stashed -= 1;
            if let Some(slot) = stashed.slot {
                self.pool.give_back(slot);
            }
        }
        if peer.is_counted {
            self.senders -= 1;
        }
    }

    fn fail_sends(&mut self, to: Rank) {
        for key in self.sends_to(to) {
            self.outgoing.remove(key);
            self.events.push_back(Event::SendFailed { id: SendId(key as u32), to });
        }
    }

    fn fail_receives(&mut self, from: Rank) {
        let concerned: Vec<ReceiveId> = self
            .matching
            .receives
            .iter()
            .filter(|(_, receive)| match receive.matched {
                Some(matched) => matched.from == from,
                None => receive.pattern.source.is_none_or(|source| source == from),
            })
            .map(|(key, _)| ReceiveId(key as u32))
            .collect();
        for id in concerned {
            self.matching.unpost(id);
            self.matching.receives.remove(id.0 as usize);
            self.events.push_back(Event::ReceiveFailed { id, from });
        }
    }

    fn sends_to(&self, to: Rank) -> Vec<usize> {
        let is_to = |outgoing: &super::Outgoing| outgoing.message.to == to;
        self.outgoing.iter().filter(|(_, out)| is_to(out)).map(|(key, _)| key).collect()
    }

    /// A rank has left in good order: it has all that it wanted, so messages to it count as
    /// arrived. Receives that only it could fill end with an error.
    pub fn depart_peer(&mut self, now: Instant, rank: Rank) {
        for key in self.sends_to(rank) {
            self.outgoing.remove(key);
            self.events.push_back(Event::Sent { id: SendId(key as u32) });
        }
        self.fail_peer(now, rank);
    }
}
