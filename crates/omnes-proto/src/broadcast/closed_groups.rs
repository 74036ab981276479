//! Groups of communicators that have been dropped, and what is left of their streams.
//!
//! A rank closes a group when its own part in all of its broadcasts is over. Others may not know
//! yet: its last acknowledgement may be lost, and the rank that collects it asks again. So a stream
//! goes on until nothing is under way in it, and then rests: all that is kept is how far it has
//! come, for ranks that ask. A rank that sends more there, though this rank is through, gets the
//! same answer each time. What a root has sent that has left since is not waited for, so those that
//! keep it for this rank are told that it has come. So are all in a communicator that was abandoned,
//! because a collective was given up there: what others still send for that has no receiver.
//!
//! Groups that are not open here yet are answered in the same way, with nothing: others may open
//! them long before, and a rank that is silent is taken for dead.
//!
//! Cost: 4 bytes for each communicator that was closed, about 40 for each stream that rests.

use super::emit::Outbound;
use super::stream::{Stream, StreamKey};
use super::{Broadcast, GroupId};
use crate::limits::CREDIT_UNIT_BYTES;
use crate::packet::{Destination, Head};
use omnes_wire::{ChannelId, CommunicatorId, Flags, Header, Kind, Rank, Seq};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// Answers that wait to go out.
pub(super) const ASKED_MAX: usize = 4096;

/// What is left of a stream that this rank has taken in.
#[derive(Clone, Copy, Debug)]
struct Resting {
    /// Everything before has arrived, also at those that this rank speaks for.
    expects: Seq,
    /// Who is told so.
    collector: Rank,
}

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct Rest {
    closed: BTreeSet<CommunicatorId>,
    /// Those of them that were closed by [`Broadcast::abandon`].
    abandoned: BTreeSet<CommunicatorId>,
    streams: BTreeMap<StreamKey, Resting>,
    /// What is told once more.
    asked: BTreeMap<StreamKey, Resting>,
}

/// The streams of all groups of a communicator.
fn streams_of(communicator: CommunicatorId) -> RangeInclusive<StreamKey> {
    let key = |number, root| StreamKey { group: GroupId { communicator, number }, root };
    key(0, Rank(0))..=key(u8::MAX, Rank(u32::MAX))
}

impl Rest {
    pub(super) fn is_closed(&self, communicator: CommunicatorId) -> bool {
        self.closed.contains(&communicator)
    }

    /// Somebody wants an answer about a stream of which nothing else is left: `from`, if it has
    /// asked this rank alone. Of a stream that it has had no part in this rank has nothing; but it
    /// is there. It does without what comes before `needless`.
    pub(super) fn on_question(
        &mut self,
        key: StreamKey,
        from: Option<Rank>,
        needless: Option<Seq>,
    ) {
        let nothing = from.map(|collector| Resting { expects: Seq::FIRST, collector });
        let Some(mut answer) = self.streams.get(&key).copied().or(nothing) else { return };
        if let Some(end) = needless.filter(|end| answer.expects.precedes(*end)) {
            answer.expects = end;
        }
        if self.asked.len() < ASKED_MAX {
            self.asked.insert(key, answer);
        }
    }

    fn take_in(&mut self, stream: &Stream) {
        if let Some(collector) = stream.roles.collector {
            let expects = stream.acknowledges();
            self.streams.insert(stream.key, Resting { expects, collector });
        }
    }
}

impl Broadcast {
    /// Closes the groups of a communicator, as far as the caller is concerned: it sends and posts
    /// no more there. What is under way goes on, and so do answers.
    pub fn close(&mut self, communicator: CommunicatorId) {
        self.rest.closed.insert(communicator);
        self.knocks.retain(|key| key.group.communicator != communicator);
        let streams = self.by_key.range(streams_of(communicator));
        let streams: Vec<usize> = streams.map(|(_, at)| *at).collect();
        for at in streams {
            let stream = &mut self.streams[at];
            stream.is_closed = true;
            if self.rest.abandoned.contains(&communicator) {
                stream.fail_receives(&mut self.common, stream.key.root);
                stream.let_pass(&mut self.common);
            } else if self.departed.contains(&stream.key.root) {
                stream.let_pass(&mut self.common);
            }
            self.recount(at);
            self.put_to_rest(at);
        }
        self.forget_groups(communicator);
    }

    /// As [`Self::close`], for a communicator whose collectives were given up half-way: receives
    /// that are posted there fail, and broadcasts that still arrive are acknowledged and discarded.
    /// Otherwise their buffers, and the memory of their roots, would be in use forever.
    pub fn abandon(&mut self, communicator: CommunicatorId) {
        self.rest.abandoned.insert(communicator);
        self.close(communicator);
    }

    /// True if nothing is under way in a communicator's groups, which are closed.
    pub fn is_over(&self, communicator: CommunicatorId) -> bool {
        self.rest.is_closed(communicator)
            && self.by_key.range(streams_of(communicator)).next().is_none()
    }

    /// True if nothing is left of a stream but what is kept here.
    pub(super) fn is_at_rest(&self, key: StreamKey) -> bool {
        self.find(key).is_none() && self.rest.is_closed(key.group.communicator)
    }

    /// Forgets a stream of a closed group if nothing is under way in it any more; true if so.
    pub(super) fn put_to_rest(&mut self, at: usize) -> bool {
        let stream = &self.streams[at];
        if !stream.is_closed || stream.is_ready || !stream.is_over() {
            return false;
        }
        let stream = self.streams.remove(at);
        self.wakes[at] = None;
        self.by_key.remove(&stream.key);
        // In a group that is broken nobody knows what those below have.
        if self.group(stream.key.group).is_ok() {
            self.rest.take_in(&stream);
        }
        self.forget_groups(stream.key.group.communicator);
        true
    }

    /// Forgets the groups of a communicator that is closed, once all of their streams rest.
    fn forget_groups(&mut self, communicator: CommunicatorId) {
        if self.is_over(communicator) {
            let id = |number| GroupId { communicator, number };
            let groups = self.groups.range(id(0)..=id(u8::MAX));
            let groups: Vec<GroupId> = groups.map(|(id, _)| *id).collect();
            for id in groups {
                self.groups.remove(&id);
            }
        }
    }

    /// Somebody wants an answer about a stream that [is at rest](Self::is_at_rest), as of all
    /// before `end`. What a root has sent that has left since, nobody here waits for any more:
    /// others that keep it for this rank need not.
    pub(super) fn answer_at_rest(&mut self, key: StreamKey, from: Option<Rank>, end: Seq) {
        let is_unwanted = self.departed.contains(&key.root)
            || self.rest.abandoned.contains(&key.group.communicator);
        let needless = is_unwanted.then_some(end);
        self.rest.on_question(key, from, needless);
    }

    /// The next acknowledgement that is given once more.
    pub(super) fn next_answer(&mut self, head: &mut Head) -> Option<Outbound> {
        let (key, Resting { expects, collector }) = self.rest.asked.pop_first()?;
        let config = &self.common.config;
        let header = Header {
            communicator: key.group.communicator,
            channel: ChannelId(key.group.number),
            expects,
            credits: (config.initial_credit_bytes / CREDIT_UNIT_BYTES).clamp(1, 0xffff) as u16,
            argument: key.root.0,
            flags: Flags::HEARS, // It needs no copies, whether it hears or not.
            ..Header::blank(Kind::CastAck, self.me)
        };
        head.set_body(&[]);
        self.common.counters.acks_sent += 1;
        Some(Outbound { to: Destination::Rank(collector), header, segment: None })
    }
}
