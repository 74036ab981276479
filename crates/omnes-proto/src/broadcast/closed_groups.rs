//! Groups of communicators that have been dropped, and the remaining state of their streams.
//!
//! A rank closes a group when its own part in all of the group's broadcasts is over. Other ranks
//! may not know yet: the last acknowledgement may be lost, and the rank that collects it asks
//! again. So a stream continues until nothing in it is in progress, and then becomes dormant: only
//! its position is kept, for ranks that ask. A rank that sends more in it, though this rank is
//! done, gets the same answer each time. Packets of a root that has left are not waited for, so
//! ranks that keep them for this rank are told that they have arrived. So are all ranks in a
//! communicator that was abandoned because a collective was given up: what they still send for it
//! has no receiver.
//!
//! Questions about groups that are not open here yet are answered in the same way, with no
//! progress: other ranks may open a group long before, and take a silent rank for dead.
//!
//! Cost: about 12 bytes for each closed communicator and 40 for each dormant stream.

use super::emit::Outbound;
use super::stream::{Stream, StreamKey};
use super::{Broadcast, GroupId};
use crate::limits::CREDIT_UNIT_BYTES;
use crate::packet::{Destination, Head};
use omnes_wire::{ChannelId, CommunicatorId, Flags, Header, Kind, Rank, Seq};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// Most answers that may be queued for sending.
pub(super) const ASKED_MAX: usize = 4096;

/// Remaining state of a stream that this rank has received.
#[derive(Clone, Copy, Debug)]
struct Dormant {
    /// Every packet before this one has arrived, also at the ranks that this rank speaks for.
    expects: Seq,
    /// Rank that gets the acknowledgement.
    collector: Rank,
}

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct DormantStreams {
    closed: BTreeSet<CommunicatorId>,
    /// Those of them that were closed by [`Broadcast::abandon`].
    abandoned: BTreeSet<CommunicatorId>,
    streams: BTreeMap<StreamKey, Dormant>,
    /// Answers to be repeated.
    asked: BTreeMap<StreamKey, Dormant>,
}

/// Range of the streams of all groups of a communicator.
fn streams_of(communicator: CommunicatorId) -> RangeInclusive<StreamKey> {
    let key = |number, root| StreamKey { group: GroupId { communicator, number }, root };
    key(0, Rank(0))..=key(u8::MAX, Rank(u32::MAX))
}

impl DormantStreams {
    pub(super) fn is_closed(&self, communicator: CommunicatorId) -> bool {
        self.closed.contains(&communicator)
    }

    /// A rank needs an answer about a stream of which only the dormant state is left, or none:
    /// `from`, if it asked this rank alone. If this rank had no part in the stream, it has nothing
    /// of it, but the answer shows that it is alive. Packets before `needless` count as received.
    pub(super) fn on_question(
        &mut self,
        key: StreamKey,
        from: Option<Rank>,
        needless: Option<Seq>,
    ) {
        let nothing = from.map(|collector| Dormant { expects: Seq::FIRST, collector });
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
            self.streams.insert(stream.key, Dormant { expects, collector });
        }
    }
}

impl Broadcast {
    /// Closes the groups of a communicator for the caller, which sends and posts nothing more in
    /// them. Operations in progress continue, and so do answers.
    pub fn close(&mut self, communicator: CommunicatorId) {
        self.dormant.closed.insert(communicator);
        self.knocks.retain(|key| key.group.communicator != communicator);
        let streams = self.by_key.range(streams_of(communicator));
        let streams: Vec<usize> = streams.map(|(_, at)| *at).collect();
        for at in streams {
            let stream = &mut self.streams[at];
            stream.is_closed = true;
            if self.dormant.abandoned.contains(&communicator) {
                stream.abandon(&mut self.common);
            } else if self.departed.contains(&stream.key.root) {
                stream.discard_rest(&mut self.common);
            }
            self.recount(at);
            self.make_dormant(at);
        }
        self.forget_groups(communicator);
    }

    /// As [`Self::close`], for a communicator whose collectives were given up: posted receives
    /// fail, and broadcasts that still arrive are acknowledged and discarded. Otherwise they would
    /// occupy buffers here, and memory at their roots, forever.
    pub fn abandon(&mut self, communicator: CommunicatorId) {
        self.dormant.abandoned.insert(communicator);
        self.close(communicator);
    }

    /// True if nothing is in progress in the groups of a closed communicator.
    pub fn is_over(&self, communicator: CommunicatorId) -> bool {
        self.dormant.is_closed(communicator)
            && self.by_key.range(streams_of(communicator)).next().is_none()
    }

    /// True if only the dormant state of a stream is left.
    pub(super) fn is_dormant(&self, key: StreamKey) -> bool {
        self.find(key).is_none() && self.dormant.is_closed(key.group.communicator)
    }

    /// Replaces a stream of a closed group by its dormant state if nothing in it is in progress;
    /// returns true if so.
    pub(super) fn make_dormant(&mut self, at: usize) -> bool {
        let stream = &self.streams[at];
        if !stream.is_closed || stream.is_ready || !stream.is_over() {
            return false;
        }
        let stream = self.streams.remove(at);
        self.wakes[at] = None;
        self.by_key.remove(&stream.key);
        // In a broken group it is not known what the ranks below have.
        if self.group(stream.key.group).is_ok() {
            self.dormant.take_in(&stream);
        }
        self.forget_groups(stream.key.group.communicator);
        true
    }

    /// Removes the groups of a closed communicator once all of their streams are dormant.
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

    /// A rank needs an answer about a stream that [is dormant](Self::is_dormant), concerning all
    /// packets before `end`. If its root has left, no rank here waits for its packets any more:
    /// ranks that keep them for this rank need not do so.
    pub(super) fn answer_dormant(&mut self, key: StreamKey, from: Option<Rank>, end: Seq) {
        let is_unwanted = self.departed.contains(&key.root)
            || self.dormant.abandoned.contains(&key.group.communicator);
        let needless = is_unwanted.then_some(end);
        self.dormant.on_question(key, from, needless);
    }

    /// Next acknowledgement to repeat.
    pub(super) fn next_answer(&mut self, head: &mut Head) -> Option<Outbound> {
        let (key, Dormant { expects, collector }) = self.dormant.asked.pop_first()?;
        let config = &self.common.config;
        let header = Header {
            communicator: key.group.communicator,
            channel: ChannelId(key.group.number),
            expects,
            credits: (config.initial_credit_bytes / CREDIT_UNIT_BYTES).clamp(1, 0xffff) as u16,
            argument: key.root.0,
            flags: Flags::HEARS, // This rank needs no copies, whether multicast reaches it or not.
            ..Header::blank(Kind::CastAck, self.me)
        };
        head.set_body(&[]);
        self.common.counters.acks_sent += 1;
        Some(Outbound { to: Destination::Rank(collector), header, segment: None })
    }
}
