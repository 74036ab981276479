//! Failure of a rank: everything that waits for it ends with an error; nothing else changes.

use super::matching::Unexpected;
use super::peer::{Destination, Peer};
use super::{Channel, Event};
use crate::packet::{ReceiveId, SendId};
use omnes_wire::Rank;

impl Channel {
    /// Ends all messages and receives that depend on `rank`, each with its event. Unmatched
    /// receives from any source remain: their owner knows which ranks may fill them.
    pub fn fail_peer(&mut self, rank: Rank) {
        if !self.forget_peer(rank) {
            return;
        }
        for id in self.sends_to(rank) {
            self.events.push_back(Event::SendFailed { id, to: rank });
        }
        self.fail_receives(rank);
        let messages = self.matching.take_unexpected_where(|message| message.from == rank);
        self.free_chains(messages);
        self.check_stable();
    }

    fn free_chains(&mut self, messages: Vec<Unexpected>) {
        for mut message in messages {
            while let Some((slot, _)) = self.pool.pop(&mut message.chain) {
                self.pool.give_back(slot);
            }
        }
    }

    /// Handles the departure of a rank in good order: it has received everything it wanted, so
    /// messages to it count as arrived, and messages from it are kept. Receives that only it could
    /// fill end with an error.
    pub fn depart_peer(&mut self, rank: Rank) {
        self.forget_halves(rank);
        if !self.forget_peer(rank) {
            return;
        }
        for id in self.sends_to(rank) {
            self.events.push_back(Event::Sent { id });
        }
        self.fail_receives(rank);
        self.check_stable();
    }

    /// Drops messages whose remaining data will not arrive any more.
    fn forget_halves(&mut self, rank: Rank) {
        let assembling = self.peers.get(rank).and_then(|peer| peer.assembling);
        let arriving = assembling.and_then(|assembling| match assembling.destination {
            Destination::Unexpected(key) => Some(key),
            Destination::Receive(_) => None,
        });
        let config = &self.config;
        let halves = self.matching.take_unexpected_where(|message| {
            let bytes = message.envelope.bytes;
            let is_half = Some(message.key) == arriving || bytes > config.ordered_bytes(bytes);
            message.from == rank && is_half
        });
        self.free_chains(halves);
    }

    /// Drops all state of a peer's lanes; returns false if it was gone already.
    fn forget_peer(&mut self, rank: Rank) -> bool {
        if rank == self.me || !self.failed.insert(rank) {
            return false;
        }
        self.rejecting.retain(|rejected| *rejected != rank);
        self.ready.retain(|ready| *ready != rank);
        if let Some(peer) = self.peers.remove(rank) {
            self.drop_peer(peer);
        }
        true
    }

    fn drop_peer(&mut self, peer: Peer) {
        for stashed in peer.stash.into_values() {
            self.stashed -= 1;
            self.free_slot(stashed.slot);
        }
        if peer.is_counted {
            self.senders -= 1;
            self.credits = Self::credits(&self.config, self.senders);
        }
    }

    /// Removes all messages to `to`.
    fn sends_to(&mut self, to: Rank) -> Vec<SendId> {
        let outgoing = self.outgoing.iter();
        let keys = outgoing.filter(|(_, out)| out.message.to == to).map(|(key, _)| key);
        let keys: Vec<usize> = keys.collect();
        for key in &keys {
            self.outgoing.remove(*key);
        }
        keys.into_iter().map(|key| SendId(key as u32)).collect()
    }

    fn fail_receives(&mut self, from: Rank) {
        let is_concerned = |receive: &super::matching::Receive| {
            let matched = receive.matched.map(|matched| matched.from);
            matched.or(receive.pattern.source) == Some(from)
        };
        let receives = self.matching.receives.iter();
        let concerned = receives.filter(|(_, receive)| is_concerned(receive));
        let concerned: Vec<ReceiveId> = concerned.map(|(key, _)| ReceiveId(key as u32)).collect();
        for id in concerned {
            self.matching.unpost(id);
            if !self.matching.receives.remove(id.0 as usize).discards {
                self.events.push_back(Event::ReceiveFailed { id, from });
            }
        }
    }
}
