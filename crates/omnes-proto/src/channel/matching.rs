//! Matching of messages with receives: by communicator, source and tag, in order.

use super::pool::Chain;
use crate::packet::ReceiveId;
use omnes_wire::{CommunicatorId, Envelope, Rank};
use slab::Slab;
use std::collections::{BTreeMap, VecDeque};

/// Messages that a receive accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// Communicator of the message.
    pub communicator: CommunicatorId,
    /// Sender of the message; `None` for any.
    pub source: Option<Rank>,
    /// Tag of the message; `None` for any.
    pub tag: Option<u32>,
}

impl Pattern {
    fn accepts(&self, from: Rank, communicator: CommunicatorId, tag: u32) -> bool {
        self.communicator == communicator
            && self.source.is_none_or(|source| source == from)
            && self.tag.is_none_or(|wanted| wanted == tag)
    }
}

/// Message that a receive has been matched with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matched {
    pub(super) from: Rank,
    pub(super) envelope: Envelope,
    /// Number of bytes of the ordered part that are in place; `ordered` is its length.
    pub(super) ordered_done: u64,
    pub(super) ordered: u64,
    pub(super) is_bulk_done: bool,
    /// The sender has abandoned it.
    pub(super) is_cut: bool,
}

impl Matched {
    /// A message of which `ordered_done` bytes of its ordered part have arrived.
    pub(super) fn new(from: Rank, envelope: Envelope, ordered_done: u64, ordered: u64) -> Self {
        Self { from, envelope, ordered_done, ordered, is_bulk_done: false, is_cut: false }
    }
}

/// Receive that the application has posted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receive {
    /// Higher than the numbers of receives posted before.
    number: u64,
    pub(super) pattern: Pattern,
    pub(super) capacity: u64,
    pub(super) matched: Option<Matched>,
    /// It was not posted, and ends without an event; see [`Channel::abandon`](super::Channel).
    pub(super) discards: bool,
}

/// Message, or first part of one, that arrived before its receive.
#[derive(Debug)]
pub(super) struct Unexpected {
    pub(super) key: u64,
    pub(super) from: Rank,
    pub(super) communicator: CommunicatorId,
    pub(super) envelope: Envelope,
    pub(super) chain: Chain,
    /// The sender has abandoned it, and no more data of its ordered part will arrive.
    pub(super) is_cut: bool,
}

/// Posted receives and unexpected messages of a channel.
#[derive(Debug, Default)]
pub(super) struct Matching {
    pub(super) receives: Slab<Receive>,
    /// Unmatched receives, oldest first, by the source they accept.
    posted: BTreeMap<Option<Rank>, VecDeque<ReceiveId>>,
    next_number: u64,
    unexpected: VecDeque<Unexpected>,
    next_key: u64,
    /// A probe has sought a message of any rank in vain; cleared by the next unexpected message.
    pub(super) seeks_any: bool,
}

impl Matching {
    /// Registers a receive, which the caller then matches or posts.
    pub(super) fn add(&mut self, pattern: Pattern, capacity: u64) -> ReceiveId {
        let number = self.next_number;
        self.next_number += 1;
        let receive = Receive { number, pattern, capacity, matched: None, discards: false };
        ReceiveId(self.receives.insert(receive) as u32)
    }

    /// Registers a receive that discards the message with which the caller matches it.
    pub(super) fn add_discarding(&mut self, pattern: Pattern) -> ReceiveId {
        let id = self.add(pattern, 0);
        self.receives[id.0 as usize].discards = true;
        id
    }

    pub(super) fn post(&mut self, id: ReceiveId) {
        let source = self.receives[id.0 as usize].pattern.source;
        self.posted.entry(source).or_default().push_back(id);
    }

    /// Removes an unmatched receive; `None` if it has been matched, or if it is unknown.
    pub(super) fn cancel(&mut self, id: ReceiveId) -> Option<Receive> {
        self.unpost(id).then(|| self.receives.remove(id.0 as usize))
    }

    /// Removes the unmatched receives of a communicator, oldest first for each source.
    pub(super) fn cancel_all(&mut self, communicator: CommunicatorId) -> Vec<(ReceiveId, Pattern)> {
        let Self { receives, posted, .. } = self;
        let pattern = |id: &ReceiveId| receives[id.0 as usize].pattern;
        let mut cancelled = Vec::new();
        for queue in posted.values_mut() {
            queue.retain(|id| {
                let is_kept = pattern(id).communicator != communicator;
                if !is_kept {
                    cancelled.push((*id, pattern(id)));
                }
                is_kept
            });
        }
        for (id, _) in &cancelled {
            receives.remove(id.0 as usize);
        }
        cancelled
    }

    /// Oldest posted receive that accepts such a message.
    pub(super) fn find(
        &self,
        from: Rank,
        communicator: CommunicatorId,
        tag: u32,
    ) -> Option<ReceiveId> {
        let receive = |id: &ReceiveId| &self.receives[id.0 as usize];
        let oldest = |source: Option<Rank>| {
            let mut posted = self.posted.get(&source)?.iter();
            posted.find(|id| receive(id).pattern.accepts(from, communicator, tag)).copied()
        };
        let candidates = [oldest(Some(from)), oldest(None)];
        candidates.into_iter().flatten().min_by_key(|id| receive(id).number)
    }

    /// Removes a receive from the posted ones because its message has arrived; returns false if it
    /// was not posted.
    pub(super) fn unpost(&mut self, id: ReceiveId) -> bool {
        let Some(receive) = self.receives.get(id.0 as usize) else { return false };
        let Some(posted) = self.posted.get_mut(&receive.pattern.source) else { return false };
        let at = posted.iter().position(|posted| *posted == id);
        at.and_then(|at| posted.remove(at)).is_some()
    }

    /// True if a receive is posted that accepts messages of any rank, or a probe has sought one.
    pub(super) fn awaits_any(&self) -> bool {
        self.seeks_any || self.posted.get(&None).is_some_and(|posted| !posted.is_empty())
    }

    pub(super) fn unexpected_count(&self) -> usize {
        self.unexpected.len()
    }

    pub(super) fn add_unexpected(
        &mut self,
        from: Rank,
        communicator: CommunicatorId,
        envelope: Envelope,
    ) -> u64 {
        let key = self.next_key;
        self.next_key += 1;
        let (chain, is_cut) = (Chain::default(), false);
        self.unexpected.push_back(Unexpected { key, from, communicator, envelope, chain, is_cut });
        key
    }

    pub(super) fn unexpected_mut(&mut self, key: u64) -> Option<&mut Unexpected> {
        let at = self.unexpected.binary_search_by_key(&key, |unexpected| unexpected.key).ok()?;
        self.unexpected.get_mut(at)
    }

    /// Oldest unexpected message that matches, without removing it.
    pub(super) fn peek_unexpected(&self, pattern: &Pattern) -> Option<&Unexpected> {
        self.unexpected.iter().find(|message| {
            pattern.accepts(message.from, message.communicator, message.envelope.tag)
        })
    }

    pub(super) fn take_unexpected(&mut self, pattern: &Pattern) -> Option<Unexpected> {
        let key = self.peek_unexpected(pattern)?.key;
        let at = self.unexpected.binary_search_by_key(&key, |unexpected| unexpected.key).ok()?;
        self.unexpected.remove(at)
    }

    /// Removes the unexpected messages for which `is_wanted` holds, oldest first.
    pub(super) fn take_unexpected_where(
        &mut self,
        is_wanted: impl Fn(&Unexpected) -> bool,
    ) -> Vec<Unexpected> {
        let all = std::mem::take(&mut self.unexpected).into_iter();
        let (taken, kept): (Vec<_>, VecDeque<_>) = all.fold(Default::default(), |mut both, one| {
            if is_wanted(&one) {
                both.0.push(one)
            } else {
                both.1.push_back(one)
            }
            both
        });
        self.unexpected = kept;
        taken
    }
}
