//! Checker of delivery: the operations requested, their results, and whether the two agree.
//!
//! It sees commands and events only. Messages of one *stream* (sender, receiver, channel,
//! communicator, tag) must be matched in sending order: taken in posting order, the completed
//! receives hold the stream's messages, each once, byte for byte. Empty messages have no content to
//! compare, so only their number is checked. Nor may a message overtake one with another tag
//! ([`order`]).
//!
//! [`broadcasts`] does the same for broadcasts, [`barriers`] checks barriers.

mod barriers;
mod broadcasts;
mod order;

pub(crate) use broadcasts::CastStream;

use barriers::{Crossing, Standings};
use broadcasts::Cast;
use omnes_proto::channel::Pattern;
use omnes_wire::{CommunicatorId, Instant, Rank};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The rig's identifier of a send or receive, or of one rank's part in a barrier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Operation(pub usize);

/// Messages that must stay in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Stream {
    /// The sender.
    pub from: Rank,
    /// The receiver.
    pub to: Rank,
    /// Index of the channel.
    pub channel: usize,
    /// The communicator.
    pub communicator: CommunicatorId,
    /// The tag.
    pub tag: u32,
}

/// State of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// In progress.
    Pending,
    /// Complete.
    Done(Instant),
    /// Ended with an error because a rank has failed.
    Failed(Instant),
    /// A receive that was cancelled, or a barrier that no rank waits for any more.
    Cancelled,
}

#[derive(Debug)]
enum Sort {
    /// `is_ready`: all of the message was in memory from the start.
    Send {
        stream: Stream,
        content: Rc<[u8]>,
        is_ready: bool,
        is_cut: bool,
    },
    Receive {
        rank: Rank,
        channel: usize,
        pattern: Pattern,
        capacity: u64,
        got: Option<Got>,
    },
    Cast(Cast),
    Barrier(Crossing),
}

#[derive(Debug)]
struct Got {
    stream: Stream,
    bytes: u64,
    content: Vec<u8>,
    /// The sender has given the message up; the message has no content.
    is_cut: bool,
}

#[derive(Debug)]
struct Entry {
    sort: Sort,
    state: State,
}

impl Entry {
    /// The rank whose operation it is.
    fn rank(&self) -> Rank {
        match &self.sort {
            Sort::Send { stream, .. } => stream.from,
            Sort::Receive { rank, .. } => *rank,
            Sort::Cast(cast) => cast.rank(),
            Sort::Barrier(crossing) => crossing.rank(),
        }
    }
}

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: Vec<Entry>,
    pending: BTreeSet<Operation>,
    standings: Standings,
    /// Operations that have ended so far.
    pub(crate) settled: u64,
}

impl Ledger {
    fn add(&mut self, sort: Sort) -> Operation {
        let operation = Operation(self.entries.len());
        self.entries.push(Entry { sort, state: State::Pending });
        self.pending.insert(operation);
        operation
    }

    pub(crate) fn add_send(
        &mut self,
        stream: Stream,
        content: Rc<[u8]>,
        is_ready: bool,
    ) -> Operation {
        self.add(Sort::Send { stream, content, is_ready, is_cut: false })
    }

    pub(crate) fn add_receive(
        &mut self,
        rank: Rank,
        channel: usize,
        pattern: Pattern,
        capacity: u64,
    ) -> Operation {
        self.add(Sort::Receive { rank, channel, pattern, capacity, got: None })
    }

    pub(crate) fn settle(&mut self, operation: Operation, state: State) {
        self.pending.remove(&operation);
        self.settled += 1;
        self.entries[operation.0].state = state;
    }

    /// The sender gives a message up before all of it is available.
    pub(crate) fn cut(&mut self, send: Operation) {
        if let Sort::Send { is_cut, .. } = &mut self.entries[send.0].sort {
            *is_cut = true;
        }
    }

    /// A receive has ended without its message, which was given up.
    pub(crate) fn on_cut(
        &mut self,
        now: Instant,
        operation: Operation,
        stream: Stream,
    ) -> Result<(), String> {
        self.on_received(now, operation, stream, 0, Vec::new())?;
        if let Sort::Receive { got: Some(got), .. } = &mut self.entries[operation.0].sort {
            got.is_cut = true;
        }
        Ok(())
    }

    /// A receive is complete; the error describes what is wrong with its content.
    pub(crate) fn on_received(
        &mut self,
        now: Instant,
        operation: Operation,
        stream: Stream,
        bytes: u64,
        content: Vec<u8>,
    ) -> Result<(), String> {
        let entry = &mut self.entries[operation.0];
        let Sort::Receive { pattern, got, .. } = &mut entry.sort else {
            return Err(format!("{operation:?} is not a receive"));
        };
        if entry.state != State::Pending {
            return Err(format!("{operation:?} completes twice"));
        }
        let fits = pattern.communicator == stream.communicator
            && pattern.source.is_none_or(|source| source == stream.from)
            && pattern.tag.is_none_or(|tag| tag == stream.tag);
        if !fits {
            return Err(format!("{pattern:?} got a message of {stream:?}"));
        }
        *got = Some(Got { stream, bytes, content, is_cut: false });
        self.settle(operation, State::Done(now));
        Ok(())
    }

    /// A notice has arrived, which needs no receive.
    pub(crate) fn on_notice(&mut self, now: Instant, stream: Stream) -> Result<(), String> {
        let Stream { from, to, channel, communicator, tag } = stream;
        let pattern = Pattern { communicator, source: Some(from), tag: Some(tag) };
        let operation = self.add_receive(to, channel, pattern, 0);
        self.on_received(now, operation, stream, 0, Vec::new())
    }

    /// The communicator of a receive.
    pub(crate) fn communicator(&self, operation: Operation) -> CommunicatorId {
        match &self.entries[operation.0].sort {
            Sort::Send { stream, .. } => stream.communicator,
            Sort::Receive { pattern, .. } => pattern.communicator,
            Sort::Cast(cast) => cast.stream().group.id.communicator,
            Sort::Barrier(crossing) => crossing.communicator(),
        }
    }

    pub(crate) fn state(&self, operation: Operation) -> State {
        self.entries[operation.0].state
    }

    /// Content of a completed receive.
    pub(crate) fn content(&self, operation: Operation) -> Option<(&Stream, &[u8])> {
        match &self.entries[operation.0].sort {
            Sort::Receive { got: Some(got), .. } => Some((&got.stream, &got.content)),
            _ => None,
        }
    }

    pub(crate) fn pending(&self) -> impl Iterator<Item = Operation> + '_ {
        self.pending.iter().copied()
    }

    fn is_pending(&self, operation: Operation) -> bool {
        self.pending.contains(&operation)
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Description of an operation, for reports.
    pub(crate) fn describe(&self, operation: Operation) -> String {
        match &self.entries[operation.0].sort {
            Sort::Send { stream, content, .. } => {
                let Stream { from, to, channel, communicator, tag } = stream;
                let bytes = content.len();
                let communicator = communicator.0;
                format!("send {from}>{to} ch={channel} comm={communicator} tag={tag} {bytes} B")
            }
            Sort::Receive { rank, channel, pattern, capacity, .. } => {
                format!("receive at {rank} ch={channel} {pattern:?} capacity {capacity} B")
            }
            Sort::Cast(cast) => cast.describe(),
            Sort::Barrier(crossing) => crossing.describe(),
        }
    }

    /// Forgets the operations of a dead rank.
    pub(crate) fn bury(&mut self, rank: Rank) {
        let entries = &self.entries;
        self.pending.retain(|operation| entries[operation.0].rank() != rank);
    }

    /// True if an operation of a rank is in progress.
    pub(crate) fn has_pending_of(&self, rank: Rank) -> bool {
        self.pending().any(|operation| self.entries[operation.0].rank() == rank)
    }

    /// Compares what was received with what was sent. Messages of the ranks in `dead`, and messages
    /// that the receiver never asked for, may be missing, but only as a whole.
    pub(crate) fn check_delivery(&self, dead: &BTreeSet<Rank>) -> Result<(), String> {
        let mut sent: BTreeMap<Stream, Vec<Option<&[u8]>>> = BTreeMap::new();
        let mut received: BTreeMap<Stream, Vec<(&Got, u64)>> = BTreeMap::new();
        for entry in &self.entries {
            match &entry.sort {
                Sort::Send { stream, content, is_cut, .. } => {
                    let whole = (!is_cut).then_some(&content[..]);
                    sent.entry(*stream).or_default().push(whole);
                }
                Sort::Receive { got: Some(got), capacity, .. } => {
                    received.entry(got.stream).or_default().push((got, *capacity));
                }
                Sort::Receive { got: None, .. } | Sort::Cast(_) | Sort::Barrier(_) => {}
            }
        }
        for (stream, got) in &received {
            let messages = sent.get(stream).map_or(&[][..], Vec::as_slice);
            let has_holes = dead.contains(&stream.from) || dead.contains(&stream.to);
            check_stream(messages, got, has_holes).map_err(|text| format!("{stream:?}: {text}"))?;
        }
        order::check(&self.entries, dead)
    }

    /// Names an operation that failed although none of the ranks in `dead` was part of it. A
    /// receive from any source may fail as soon as one rank has died.
    pub(crate) fn check_failures(&self, dead: &BTreeSet<Rank>) -> Result<(), String> {
        let is_wrong = |entry: &Entry| {
            let may_fail = match &entry.sort {
                Sort::Send { stream, .. } => {
                    dead.contains(&stream.to) || dead.contains(&stream.from)
                }
                Sort::Receive { rank, pattern, .. } => {
                    let source = pattern.source;
                    dead.contains(rank)
                        || source.map_or(!dead.is_empty(), |source| dead.contains(&source))
                }
                Sort::Cast(_) | Sort::Barrier(_) => true,
            };
            matches!(entry.state, State::Failed(_)) && !may_fail
        };
        match self.entries.iter().position(is_wrong) {
            Some(index) => Err(format!("fails: {}", self.describe(Operation(index)))),
            None => Ok(()),
        }
    }

    /// Receives from any source, with their ranks.
    pub(crate) fn receives_from_any(&self) -> Vec<(Operation, u32, usize, Pattern, u64)> {
        let of = |(index, entry): (usize, &Entry)| match &entry.sort {
            Sort::Receive { rank, channel, pattern, capacity, .. } if pattern.source.is_none() => {
                Some((Operation(index), rank.0, *channel, *pattern, *capacity))
            }
            _ => None,
        };
        self.entries.iter().enumerate().filter_map(of).collect()
    }

    /// Messages to ranks not in `dead` that no receive has got, as streams with counts; messages
    /// from ranks in `dead` count only if the sender is in `delivered`.
    pub(crate) fn missing(
        &self,
        dead: &BTreeSet<Rank>,
        delivered: &BTreeSet<Rank>,
    ) -> BTreeMap<Stream, i64> {
        let mut count: BTreeMap<Stream, i64> = BTreeMap::new();
        for entry in &self.entries {
            match &entry.sort {
                Sort::Send { stream, .. } => *count.entry(*stream).or_default() += 1,
                Sort::Receive { got: Some(got), .. } => {
                    *count.entry(got.stream).or_default() -= 1;
                }
                Sort::Receive { got: None, .. } | Sort::Cast(_) | Sort::Barrier(_) => {}
            }
        }
        count.retain(|stream, count| {
            let has_arrived = !dead.contains(&stream.from) || delivered.contains(&stream.from);
            *count != 0 && has_arrived && !dead.contains(&stream.to)
        });
        count
    }
}

/// Compares the receives of one stream, in posting order, with its messages, in sending order;
/// messages that were given up are `None`.
fn check_stream(
    messages: &[Option<&[u8]>],
    received: &[(&Got, u64)],
    has_holes: bool,
) -> Result<(), String> {
    if received.len() > messages.len() {
        return Err(format!("{} sent, {} received", messages.len(), received.len()));
    }
    let mut next = 0;
    for (index, (got, capacity)) in received.iter().enumerate() {
        let is_it = |message: &Option<&[u8]>| {
            let Some(message) = message else { return got.is_cut };
            let kept = message.len().min(*capacity as usize);
            let is_same = got.bytes == message.len() as u64 && got.content[..] == message[..kept];
            is_same && !got.is_cut
        };
        let most = if has_holes { messages.len() } else { (next + 1).min(messages.len()) };
        let Some(found) = messages[next..most].iter().position(is_it) else {
            let at = messages.iter().position(is_it);
            let (bytes, length) = (got.bytes, got.content.len());
            return Err(format!(
                "receive {index} holds {length} of {bytes} bytes that are message {at:?}"
            ));
        };
        next += found + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const STREAM: Stream =
        Stream { from: Rank(0), to: Rank(1), channel: 0, communicator: CommunicatorId(1), tag: 2 };

    fn exchange(sent: &[&str], received: &[&str]) -> Ledger {
        let mut ledger = Ledger::default();
        for content in sent {
            ledger.add_send(STREAM, content.as_bytes().into(), true);
        }
        let pattern = Pattern { communicator: CommunicatorId(1), source: None, tag: Some(2) };
        for content in received {
            let receive = ledger.add_receive(Rank(1), 0, pattern, 100);
            let bytes = content.len() as u64;
            let content = content.as_bytes().to_vec();
            ledger.on_received(Instant::ZERO, receive, STREAM, bytes, content).unwrap();
        }
        ledger
    }

    #[test]
    fn messages_in_order_pass() {
        let ledger = exchange(&["a", "b", "c"], &["a", "b"]);
        assert_eq!(ledger.check_delivery(&BTreeSet::new()), Ok(()));
        let (none, sender) = (BTreeSet::new(), BTreeSet::from([STREAM.from]));
        assert_eq!(ledger.missing(&none, &none), BTreeMap::from([(STREAM, 1)]));
        assert_eq!(ledger.missing(&sender, &none), BTreeMap::new());
        assert_eq!(ledger.missing(&sender, &sender), BTreeMap::from([(STREAM, 1)]));
    }

    #[test]
    fn reordered_repeated_and_altered_messages_are_detected() {
        let none = BTreeSet::new();
        assert!(exchange(&["a", "b"], &["b", "a"]).check_delivery(&none).is_err());
        assert!(exchange(&["a", "b"], &["a", "a"]).check_delivery(&none).is_err());
        assert!(exchange(&["a"], &["a", "a"]).check_delivery(&none).is_err());
        assert!(exchange(&["a"], &["x"]).check_delivery(&none).is_err());
        assert!(exchange(&["a", "b"], &["b"]).check_delivery(&none).is_err());
    }

    #[test]
    fn streams_of_dead_ranks_may_have_gaps_but_no_reordering() {
        let dead = BTreeSet::from([Rank(0)]);
        assert!(exchange(&["a", "b", "c"], &["a", "c"]).check_delivery(&dead).is_ok());
        assert!(exchange(&["a", "b", "c"], &["c", "a"]).check_delivery(&dead).is_err());
    }
}
