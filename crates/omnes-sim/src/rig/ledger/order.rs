//! Order between tags: messages from one rank to another in one channel and communicator match in
//! sending order. Among the received messages, a receive that matches several holds the first of
//! them. A message that was not all in memory, and those queued behind it with its tag, may be
//! overtaken (D-10).
//!
//! The message of a receive can be identified only in streams without holes: there the receives
//! hold the messages in sequence.

use super::{Entry, Sort, Stream};
use omnes_proto::channel::Pattern;
use omnes_wire::{CommunicatorId, Rank};
use std::collections::{BTreeMap, BTreeSet};

/// Sender, receiver, channel and communicator.
type Path = (Rank, Rank, usize, CommunicatorId);

/// A message and the receive that holds it, by their indices among the operations.
struct Match {
    sent: usize,
    is_ready: bool,
    posted: usize,
    pattern: Pattern,
    tag: u32,
}

/// Names two messages of which the later one took a receive that the earlier one matches.
pub(super) fn check(entries: &[Entry], dead: &BTreeSet<Rank>) -> Result<(), String> {
    for (path, matches) in matches(entries, dead) {
        let overtakes = |later: &&Match, earlier: &Match| {
            earlier.sent < later.sent
                && later.posted < earlier.posted
                && earlier.is_ready
                && later.pattern.tag.is_none_or(|tag| tag == earlier.tag)
        };
        for earlier in &matches {
            if let Some(later) = matches.iter().find(|later| overtakes(later, earlier)) {
                let (first, second) = (earlier.tag, later.tag);
                return Err(format!("{path:?}: tag {second} has overtaken tag {first}"));
            }
        }
    }
    Ok(())
}

fn matches(entries: &[Entry], dead: &BTreeSet<Rank>) -> BTreeMap<Path, Vec<Match>> {
    let mut sends: BTreeMap<Stream, Vec<(usize, bool)>> = BTreeMap::new();
    let mut received: BTreeMap<Stream, Vec<(usize, Pattern)>> = BTreeMap::new();
    for (index, entry) in entries.iter().enumerate() {
        match &entry.sort {
            Sort::Send { stream, is_ready, .. } => {
                let sent = sends.entry(*stream).or_default();
                let waits = sent.last().is_some_and(|(_, was_ready)| !was_ready);
                sent.push((index, *is_ready && !waits));
            }
            Sort::Receive { got: Some(got), pattern, .. } => {
                received.entry(got.stream).or_default().push((index, *pattern));
            }
            Sort::Receive { got: None, .. } | Sort::Cast(_) | Sort::Barrier(_) => {}
        }
    }
    let mut matches: BTreeMap<Path, Vec<Match>> = BTreeMap::new();
    for (stream, received) in received {
        let Stream { from, to, channel, communicator, tag } = stream;
        if dead.contains(&from) || dead.contains(&to) {
            continue;
        }
        let pairs = sends.get(&stream).into_iter().flatten().zip(received);
        let pairs = pairs.map(|((sent, is_ready), (posted, pattern))| {
            let (sent, is_ready) = (*sent, *is_ready);
            Match { sent, is_ready, posted, pattern, tag }
        });
        matches.entry((from, to, channel, communicator)).or_default().extend(pairs);
    }
    matches
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Ledger;
    use super::*;
    use omnes_wire::Instant;

    const COMMUNICATOR: CommunicatorId = CommunicatorId(1);

    fn stream(tag: u32) -> Stream {
        let communicator = COMMUNICATOR;
        Stream { from: Rank(0), to: Rank(1), channel: 0, communicator, tag }
    }

    /// Messages of tags 0 and 1 are sent in this order, the first one all in memory or not;
    /// receives of these tags, or of any, hold the messages with the given tags.
    fn exchange(is_ready: bool, receives: [(Option<u32>, u32); 2]) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.add_send(stream(0), [].into(), is_ready);
        ledger.add_send(stream(1), [].into(), true);
        for (tag, held) in receives {
            let pattern = Pattern { communicator: COMMUNICATOR, source: Some(Rank(0)), tag };
            let receive = ledger.add_receive(Rank(1), 0, pattern, 0);
            ledger.on_received(Instant::ZERO, receive, stream(held), 0, Vec::new()).unwrap();
        }
        ledger
    }

    #[test]
    fn any_tag_receive_must_take_the_first_message() {
        let none = BTreeSet::new();
        assert_eq!(exchange(true, [(None, 0), (None, 1)]).check_delivery(&none), Ok(()));
        let overtaken = exchange(true, [(None, 1), (None, 0)]);
        let told = overtaken.check_delivery(&none).unwrap_err();
        assert!(told.contains("tag 1 has overtaken tag 0"), "{told}");
    }

    #[test]
    fn tagged_receives_and_unready_messages_have_no_required_order() {
        let none = BTreeSet::new();
        assert_eq!(exchange(true, [(Some(1), 1), (None, 0)]).check_delivery(&none), Ok(()));
        assert_eq!(exchange(false, [(None, 1), (None, 0)]).check_delivery(&none), Ok(()));
    }

    #[test]
    fn messages_behind_an_unready_one_have_no_required_order() {
        let mut ledger = Ledger::default();
        for (tag, is_ready) in [(0, false), (0, true), (1, true)] {
            ledger.add_send(stream(tag), [].into(), is_ready);
        }
        for held in [1, 0, 0] {
            let (communicator, source) = (COMMUNICATOR, Some(Rank(0)));
            let pattern = Pattern { communicator, source, tag: None };
            let receive = ledger.add_receive(Rank(1), 0, pattern, 0);
            ledger.on_received(Instant::ZERO, receive, stream(held), 0, Vec::new()).unwrap();
        }
        assert_eq!(ledger.check_delivery(&BTreeSet::new()), Ok(()));
    }
}
