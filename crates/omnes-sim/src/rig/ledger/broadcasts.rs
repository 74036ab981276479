//! Checker of delivery, for broadcasts.
//!
//! In one *cast stream* (group and root), the n-th receive that a rank has posted holds the n-th
//! message, byte for byte and at full length: so each message arrives once and in order.

use super::{Entry, Ledger, Operation, Sort, State};
use omnes_proto::broadcast::{CastGroupConfig, Collection, GroupId};
use omnes_topo::{CoRoots, Tree};
use omnes_wire::{CommunicatorId, Instant, Rank};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Broadcasts that must stay in order: all of one root in one group.
#[derive(Clone, Debug)]
pub(crate) struct CastStream {
    pub(crate) group: Rc<CastGroupConfig>,
    pub(crate) root: Rank,
}

impl CastStream {
    pub(crate) fn key(&self) -> (GroupId, Rank) {
        (self.group.id, self.root)
    }

    /// Ranks that receive this stream from the network: the leaders of the other nodes, beginning
    /// after the root's node. Empty if the root is not a member.
    pub(crate) fn receivers(&self) -> Vec<Rank> {
        let nodes = &self.group.nodes;
        let Some(own) = nodes.place(self.root).map(|place| place.node) else {
            return Vec::new();
        };
        (own + 1..nodes.count()).chain(0..own).map(|node| nodes.leader(node)).collect()
    }

    /// The receivers that acknowledge directly to the root.
    pub(crate) fn direct_receivers(&self) -> Vec<Rank> {
        let receivers = self.receivers();
        let Collection::CoRoots { count } = self.group.policy.collection else { return receivers };
        let co_roots = CoRoots::new(receivers.len() as u32 + 1, count);
        let copies = Tree::Binomial.children(Rank(0), Rank(0), co_roots.count());
        let copies = copies.expect("there is a collector, the root");
        let is_direct = |at: u32| {
            let subgroup = co_roots.subgroup_of(at);
            let is_copied_to = || copies.contains(&Rank(subgroup));
            subgroup == 0 || co_roots.collector(subgroup) == at && is_copied_to()
        };
        let numbered = (1..).zip(receivers);
        numbered.filter(|(at, _)| is_direct(*at)).map(|(_, rank)| rank).collect()
    }

    /// True if the root completes a message only when all ranks have it.
    fn is_acknowledged_by_all(&self) -> bool {
        !matches!(self.group.policy.collection, Collection::CoRoots { .. })
    }

    fn has_member_in(&self, ranks: &BTreeSet<Rank>) -> bool {
        self.group.nodes.ranks().any(|rank| ranks.contains(&rank))
    }
}

/// A broadcast operation.
#[derive(Debug)]
pub(super) enum Cast {
    /// The root's operation.
    Send { stream: CastStream, content: Rc<[u8]> },
    /// A receiver's operation, with length and content of the message once complete.
    Receive { rank: Rank, stream: CastStream, capacity: u64, got: Option<(u64, Vec<u8>)> },
    /// An operation that the machine refused.
    Refused { rank: Rank, stream: CastStream },
}

impl Cast {
    /// The rank whose operation it is.
    pub(super) fn rank(&self) -> Rank {
        match self {
            Self::Send { stream, .. } => stream.root,
            Self::Receive { rank, .. } | Self::Refused { rank, .. } => *rank,
        }
    }

    pub(super) fn stream(&self) -> &CastStream {
        let (Self::Send { stream, .. }
        | Self::Receive { stream, .. }
        | Self::Refused { stream, .. }) = self;
        stream
    }

    pub(super) fn describe(&self) -> String {
        let (GroupId { communicator, number }, root) = self.stream().key();
        let what = match self {
            Self::Send { content, .. } => format!("broadcast, {} B", content.len()),
            Self::Receive { rank, capacity, .. } => {
                format!("receive of a broadcast at {rank}, capacity {capacity} B")
            }
            Self::Refused { rank, .. } => format!("refused broadcast at {rank}"),
        };
        let communicator = communicator.0;
        format!("{what}, root {root}, comm={communicator} group={number}")
    }
}

impl Ledger {
    /// Adds the root's operation; returns it and the number of earlier broadcasts of the stream.
    pub(crate) fn add_broadcast(
        &mut self,
        stream: CastStream,
        content: Rc<[u8]>,
    ) -> (Operation, usize) {
        let is_same = |entry: &&Entry| match &entry.sort {
            Sort::Cast(Cast::Send { stream: other, .. }) => other.key() == stream.key(),
            _ => false,
        };
        let number = self.entries.iter().filter(is_same).count();
        (self.add(Sort::Cast(Cast::Send { stream, content })), number)
    }

    pub(crate) fn add_broadcast_receive(
        &mut self,
        rank: Rank,
        stream: CastStream,
        capacity: u64,
    ) -> Operation {
        self.add(Sort::Cast(Cast::Receive { rank, stream, capacity, got: None }))
    }

    /// Adds an operation that the machine of `rank` refused; it has failed.
    pub(crate) fn add_refused(
        &mut self,
        now: Instant,
        rank: Rank,
        stream: CastStream,
    ) -> Operation {
        let operation = self.add(Sort::Cast(Cast::Refused { rank, stream }));
        self.settle(operation, State::Failed(now));
        operation
    }

    /// A receive is complete.
    pub(crate) fn on_broadcast_received(
        &mut self,
        now: Instant,
        operation: Operation,
        bytes: u64,
        content: Vec<u8>,
    ) -> Result<(), String> {
        let entry = &mut self.entries[operation.0];
        let Sort::Cast(Cast::Receive { got, .. }) = &mut entry.sort else {
            return Err(format!("{operation:?} is not the receive of a broadcast"));
        };
        if entry.state != State::Pending {
            return Err(format!("{operation:?} completes twice"));
        }
        *got = Some((bytes, content));
        self.settle(operation, State::Done(now));
        Ok(())
    }

    /// The stream of a broadcast operation.
    pub(crate) fn cast_stream(&self, operation: Operation) -> Option<&CastStream> {
        match &self.entries[operation.0].sort {
            Sort::Cast(cast) => Some(cast.stream()),
            _ => None,
        }
    }

    /// True if a rank waits for a broadcast in a group of a communicator.
    pub(crate) fn awaits_broadcast(&self, rank: Rank, communicator: CommunicatorId) -> bool {
        self.pending().any(|operation| match &self.entries[operation.0].sort {
            Sort::Cast(Cast::Receive { rank: waits, stream, .. }) => {
                *waits == rank && stream.group.id.communicator == communicator
            }
            _ => false,
        })
    }

    fn casts(&self) -> impl Iterator<Item = (usize, &Cast, State)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| match &entry.sort {
            Sort::Cast(cast) => Some((index, cast, entry.state)),
            _ => None,
        })
    }

    fn sent_casts(&self) -> BTreeMap<(GroupId, Rank), Vec<&Rc<[u8]>>> {
        let mut sent: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (_, cast, _) in self.casts() {
            if let Cast::Send { stream, content } = cast {
                sent.entry(stream.key()).or_default().push(content);
            }
        }
        sent
    }

    /// Compares the received broadcasts with those sent.
    pub(crate) fn check_broadcasts(&self) -> Result<(), String> {
        let sent = self.sent_casts();
        let mut posted: BTreeMap<(GroupId, Rank, Rank), usize> = BTreeMap::new();
        for (_, cast, _) in self.casts() {
            let Cast::Receive { rank, stream, capacity, got } = cast else { continue };
            let (group, root) = stream.key();
            let number = posted.entry((group, root, *rank)).or_default();
            let message = sent.get(&stream.key()).and_then(|messages| messages.get(*number));
            if let Some((bytes, content)) = got {
                let text = || format!("{}: message {number} is wrong", cast.describe());
                let message = message.ok_or_else(text)?;
                let kept = message.len().min(*capacity as usize);
                if *bytes != message.len() as u64 || content[..] != message[..kept] {
                    return Err(text());
                }
            }
            *number += 1;
        }
        Ok(())
    }

    /// For each stream, the number of messages, from the first on, that have completed at their
    /// root without error, so that all ranks have them: also if the root has left since.
    fn kept_casts(&self) -> BTreeMap<(GroupId, Rank), usize> {
        let mut kept = BTreeMap::new();
        let mut ended = BTreeSet::new();
        for (_, cast, state) in self.casts() {
            let Cast::Send { stream, .. } = cast else { continue };
            let key = stream.key();
            let is_done = matches!(state, State::Done(_)) && stream.is_acknowledged_by_all();
            if is_done && !ended.contains(&key) {
                *kept.entry(key).or_default() += 1;
            } else {
                ended.insert(key);
            }
        }
        kept
    }

    /// Names a broadcast operation that failed although none of the ranks in `failed` is in its
    /// group, and although its root is not in `left`, or left only after all ranks had the message.
    pub(crate) fn check_broadcast_failures(
        &self,
        failed: &BTreeSet<Rank>,
        left: &BTreeSet<Rank>,
    ) -> Result<(), String> {
        let kept = self.kept_casts();
        let mut numbers: BTreeMap<(GroupId, Rank, Rank), usize> = BTreeMap::new();
        for (_, cast, state) in self.casts() {
            let stream = cast.stream();
            let (group, root) = stream.key();
            let number = numbers.entry((group, root, cast.rank())).or_default();
            let is_kept = kept.get(&stream.key()).is_some_and(|kept| *number < *kept);
            *number += 1;
            let may_fail = stream.has_member_in(failed) || left.contains(&root) && !is_kept;
            if matches!(state, State::Failed(_)) && !may_fail {
                return Err(format!("fails: {}", cast.describe()));
            }
        }
        Ok(())
    }

    /// Describes a message that a living receiver has not got, in a group without a rank of
    /// `failed`: of a living root, or one that all ranks had when the root, of `dead`, left.
    pub(crate) fn missing_broadcast(
        &self,
        failed: &BTreeSet<Rank>,
        dead: &BTreeSet<Rank>,
    ) -> Option<String> {
        let kept = self.kept_casts();
        let mut missing: BTreeMap<(GroupId, Rank, Rank), i64> = BTreeMap::new();
        let mut numbers: BTreeMap<(GroupId, Rank), usize> = BTreeMap::new();
        for (_, cast, _) in self.casts() {
            let stream = cast.stream();
            let (group, root) = stream.key();
            if stream.has_member_in(failed) {
                continue;
            }
            match cast {
                Cast::Send { .. } => {
                    let number = numbers.entry((group, root)).or_default();
                    let is_kept = kept.get(&(group, root)).is_some_and(|kept| *number < *kept);
                    *number += 1;
                    for rank in stream.receivers() {
                        let is_due = is_kept || !dead.contains(&root);
                        *missing.entry((group, root, rank)).or_default() += i64::from(is_due);
                    }
                }
                Cast::Receive { rank, got: Some(_), .. } => {
                    *missing.entry((group, root, *rank)).or_default() -= 1;
                }
                Cast::Receive { .. } | Cast::Refused { .. } => {}
            }
        }
        // Messages whose arrival a root had not seen when it left may have arrived all the same.
        missing.retain(|(_, root, rank), count| {
            let is_wrong = if dead.contains(root) { *count > 0 } else { *count != 0 };
            is_wrong && !dead.contains(rank)
        });
        missing.first_key_value().map(|((group, root, rank), count)| {
            format!("{count} broadcasts of root {root} in {group:?} at rank {rank}")
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use omnes_proto::broadcast::Policy;

    fn stream(nodes: &[&[u32]]) -> CastStream {
        let nodes = nodes.iter().map(|node| node.iter().copied().map(Rank).collect()).collect();
        let id = GroupId { communicator: CommunicatorId(1), number: 0 };
        CastStream {
            group: Rc::new(CastGroupConfig { id, nodes, policy: Policy::WINDOW }),
            root: Rank(0),
        }
    }

    fn exchange(sent: &[&str], received: &[&str]) -> Ledger {
        let mut ledger = Ledger::default();
        let stream = stream(&[&[0], &[1]]);
        for content in sent {
            ledger.add_broadcast(stream.clone(), content.as_bytes().into());
        }
        for content in received {
            let receive = ledger.add_broadcast_receive(Rank(1), stream.clone(), 3);
            let kept = content.as_bytes()[..content.len().min(3)].to_vec();
            let bytes = content.len() as u64;
            ledger.on_broadcast_received(Instant::ZERO, receive, bytes, kept).unwrap();
        }
        ledger
    }

    #[test]
    fn broadcasts_in_order_pass_and_missing_ones_are_reported() {
        let (none, ledger) = (BTreeSet::new(), exchange(&["a", "bcde", "f"], &["a", "bcde"]));
        assert_eq!(ledger.check_broadcasts(), Ok(()));
        assert!(ledger.missing_broadcast(&none, &none).unwrap().starts_with("1 broadcasts"));
        let dead = BTreeSet::from([Rank(1)]);
        assert_eq!(ledger.missing_broadcast(&none, &dead), None);
    }

    #[test]
    fn reordered_repeated_and_altered_broadcasts_are_detected() {
        assert!(exchange(&["a", "b"], &["b"]).check_broadcasts().is_err());
        assert!(exchange(&["a", "b"], &["a", "a"]).check_broadcasts().is_err());
        assert!(exchange(&["a"], &["a", "a"]).check_broadcasts().is_err());
        assert!(exchange(&["a"], &["x"]).check_broadcasts().is_err());
    }

    #[test]
    fn only_leaders_of_other_nodes_receive() {
        assert_eq!(stream(&[&[1, 0], &[2, 3], &[4]]).receivers(), [Rank(2), Rank(4)]);
        assert_eq!(stream(&[&[4], &[0], &[2, 3]]).receivers(), [Rank(2), Rank(4)]);
        assert_eq!(stream(&[&[1], &[2]]).receivers(), []);
    }

    #[test]
    fn root_hears_directly_only_from_its_subgroup_and_its_own_co_roots() {
        let mut stream = stream(&[&[3], &[4], &[0], &[1], &[2]]);
        let mut group = CastGroupConfig::clone(&stream.group);
        group.policy.collection = Collection::CoRoots { count: 2 };
        stream.group = Rc::new(group.clone());
        assert_eq!(stream.direct_receivers(), [Rank(1), Rank(2), Rank(3)]);
        group.policy.collection = Collection::CoRoots { count: 5 };
        stream.group = Rc::new(group);
        // Down the binomial tree the third gets its copy from the second.
        assert_eq!(stream.direct_receivers(), [Rank(1), Rank(2), Rank(4)]);
    }

    #[test]
    fn broadcast_completed_before_its_root_left_is_due_and_must_not_fail() {
        let mut ledger = Ledger::default();
        let stream = stream(&[&[0], &[1]]);
        for content in ["a", "b"] {
            let (send, _) = ledger.add_broadcast(stream.clone(), content.as_bytes().into());
            let state = if content == "a" { State::Done } else { State::Failed };
            ledger.settle(send, state(Instant::ZERO));
        }
        let (none, left) = (BTreeSet::new(), BTreeSet::from([Rank(0)]));
        assert!(ledger.missing_broadcast(&none, &left).unwrap().starts_with("1 broadcasts"));
        let receive = ledger.add_broadcast_receive(Rank(1), stream.clone(), 3);
        ledger.on_broadcast_received(Instant::ZERO, receive, 1, b"a".to_vec()).unwrap();
        assert_eq!(ledger.missing_broadcast(&none, &left), None);
        ledger.add_refused(Instant::ZERO, Rank(1), stream.clone());
        assert_eq!(ledger.check_broadcast_failures(&none, &left), Ok(()), "the second");
        ledger.settle(receive, State::Failed(Instant::ZERO));
        assert!(ledger.check_broadcast_failures(&none, &left).is_err());
    }

    #[test]
    fn broadcast_may_fail_only_in_groups_with_a_failed_rank() {
        let mut ledger = Ledger::default();
        ledger.add_refused(Instant::ZERO, Rank(1), stream(&[&[0], &[1]]));
        let set = |ranks: &[u32]| ranks.iter().copied().map(Rank).collect::<BTreeSet<_>>();
        assert!(ledger.check_broadcast_failures(&set(&[2]), &set(&[1])).is_err());
        assert!(ledger.check_broadcast_failures(&set(&[1]), &set(&[])).is_ok());
        assert!(ledger.check_broadcast_failures(&set(&[]), &set(&[0])).is_ok());
    }
}
