//! Test bodies that every driver must pass: the rig and the socket drivers use the same functions.
//!
//! A driver implements [`Arm`]: it runs one script per rank on channel 0 and returns the outcomes.
//! Bodies assert; a driver calls them from its own tests. A driver that does not support
//! [`Step::Broadcast`](crate::rig::script::Step::Broadcast) or
//! [`Step::Barrier`](crate::rig::script::Step::Barrier) leaves out the bodies that use it.

mod barriers;
mod broadcasts;

pub use barriers::{
    barriers_of_a_group_may_overlap, barriers_of_two_groups_do_not_mix, divisions, groups,
    nobody_leaves_a_barrier_of_a_group_early,
};
pub use broadcasts::{
    BROADCAST_LENGTHS, broadcasts_back_to_back_keep_their_order,
    broadcasts_of_all_roots_at_once_arrive, broadcasts_of_every_length_arrive,
    late_rank_gets_every_broadcast, roots_take_turns,
};

use crate::collective;
use crate::rig::cluster::Cluster;
use crate::rig::payload::content;
use crate::rig::script::{Outcome, Script};
use omnes_topo::{BarrierAlgorithm, Tree};
use omnes_wire::{Instant, Rank};
use std::time::Duration;

/// A driver that can run scripts.
pub trait Arm {
    /// Number of ranks of the job, at least 2.
    fn size(&self) -> u32;

    /// Runs one script per rank until all are complete; returns the outcome of each.
    fn run(&mut self, scripts: Vec<Script>) -> Vec<Outcome>;
}

impl Arm for Cluster {
    fn size(&self) -> u32 {
        Cluster::size(self)
    }

    fn run(&mut self, scripts: Vec<Script>) -> Vec<Outcome> {
        self.run_scripts(scripts)
    }
}

/// Every published design of a broadcast [BC-R25], and combinations [BC-R19].
pub const POLICIES: [&str; 12] = [
    "basic",
    "window",
    "tree-ack=2",
    "tree-ack=4+nack",
    "co-root=2",
    "co-root=3+combined",
    "co-root=4+skewed=8",
    "ack-every=10",
    "skewed=10",
    "nack",
    "combined",
    "nack+window",
];

/// Lengths around every boundary of the wire format, in bytes.
pub const LENGTHS: [usize; 10] = [0, 1, 15, 16, 255, 1416, 1417, 1432, 4096, 70_000];

fn run(arm: &mut impl Arm, scripts: Vec<Script>) -> Vec<Outcome> {
    let outcomes = arm.run(scripts);
    assert_eq!(outcomes.len() as u32, arm.size());
    for (rank, outcome) in outcomes.iter().enumerate() {
        assert!(outcome.is_complete, "rank {rank} is not done");
        assert_eq!(outcome.failures, 0, "rank {rank} has failures");
    }
    outcomes
}

/// Identity of the message with this tag from rank 0 or 1.
fn identity(tag: u32, from: usize) -> u64 {
    2 * u64::from(tag) + from as u64
}

/// Messages of every length from rank 0 to 1 and back arrive complete.
pub fn messages_of_every_length_arrive(arm: &mut impl Arm) {
    let mut scripts = vec![Script::default(); arm.size() as usize];
    for (index, bytes) in LENGTHS.into_iter().enumerate() {
        let tag = index as u32;
        for (from, to) in [(0, 1), (1, 0)] {
            let sent = content(identity(tag, from), bytes).to_vec();
            let buffer = scripts[from].buffer(sent);
            scripts[from].send(Rank(to as u32), tag, buffer);
            let buffer = scripts[to].buffer(vec![0; bytes]);
            scripts[to].receive(Rank(from as u32), tag, buffer);
        }
    }
    for script in &mut scripts {
        script.wait();
    }
    let outcomes = run(arm, scripts);
    for (rank, outcome) in outcomes.iter().enumerate().take(2) {
        assert_eq!(outcome.receipts.len(), LENGTHS.len());
        for receipt in &outcome.receipts {
            let bytes = LENGTHS[receipt.tag as usize];
            let sent = content(identity(receipt.tag, 1 - rank), bytes);
            assert_eq!(receipt.bytes, bytes as u64);
            assert_eq!(outcome.buffers[receipt.buffer], sent[..], "{bytes} bytes");
        }
    }
}

/// Messages with one tag are received in sending order.
pub fn equal_tags_keep_their_order(arm: &mut impl Arm) {
    const MESSAGES: u32 = 50;
    let mut scripts = vec![Script::default(); arm.size() as usize];
    for number in 0..MESSAGES {
        let bytes = (number * 37 % 3000) as usize;
        let sent = scripts[0].buffer(content(u64::from(number), bytes).to_vec());
        scripts[0].send(Rank(1), 5, sent);
        let received = scripts[1].buffer(vec![0; 3000]);
        scripts[1].receive(Rank(0), 5, received);
    }
    for script in &mut scripts {
        script.wait();
    }
    let outcomes = run(arm, scripts);
    for receipt in &outcomes[1].receipts {
        let number = receipt.buffer as u32;
        let bytes = (number * 37 % 3000) as usize;
        assert_eq!(receipt.bytes, bytes as u64);
        let sent = content(u64::from(number), bytes);
        assert_eq!(outcomes[1].buffers[receipt.buffer][..bytes], sent[..]);
    }
}

/// Receives from any source with any tag take each message once.
pub fn any_source_takes_each_message_once(arm: &mut impl Arm) {
    let size = arm.size();
    let mut scripts = vec![Script::default(); size as usize];
    for from in 1..size {
        let script = &mut scripts[from as usize];
        let buffer = script.buffer(content(u64::from(from), 100).to_vec());
        script.send(Rank(0), from, buffer).wait();
        let buffer = scripts[0].buffer(vec![0; 100]);
        scripts[0].receive_any(None, buffer);
    }
    scripts[0].wait();
    let outcomes = run(arm, scripts);
    let mut senders: Vec<u32> = Vec::new();
    for receipt in &outcomes[0].receipts {
        assert_eq!(receipt.tag, receipt.from.0);
        let sent = content(u64::from(receipt.from.0), 100);
        assert_eq!(outcomes[0].buffers[receipt.buffer], sent[..]);
        senders.push(receipt.from.0);
    }
    senders.sort_unstable();
    assert_eq!(senders, (1..size).collect::<Vec<_>>());
}

/// A broadcast along a tree delivers the root's bytes to all ranks.
pub fn broadcast_reaches_everybody(
    arm: &mut impl Arm,
    tree: Tree,
    root: Rank,
    bytes: usize,
    chunk_bytes: usize,
) {
    let sent = content(77, bytes);
    let scripts = collective::broadcast(tree, root, arm.size(), &sent, chunk_bytes);
    let Ok(scripts) = scripts else { panic!("no tree {tree} from {root}") };
    for (rank, outcome) in run(arm, scripts).iter().enumerate() {
        assert_eq!(outcome.buffers.concat(), sent[..], "rank {rank}");
    }
}

/// No rank leaves a barrier before all have arrived, whichever rank is late.
pub fn nobody_leaves_a_barrier_early(arm: &mut impl Arm, algorithm: BarrierAlgorithm) {
    const BARRIERS: u32 = 6;
    let size = arm.size();
    // A different rank is late each time, some are not late at all.
    let compute = |rank: u32, index: u32| {
        let lateness = (rank * 7 + index * 3) % size;
        Duration::from_micros(u64::from(lateness) * 90)
    };
    let scripts = collective::barriers(algorithm, size, BARRIERS, compute);
    let Ok(scripts) = scripts else { panic!("no barrier {algorithm} of {size}") };
    let outcomes = run(arm, scripts);
    let times = |mark: u32| {
        let of = move |outcome: &Outcome| {
            outcome.marks.iter().find(|(number, _)| *number == mark).map(|(_, at)| *at)
        };
        outcomes.iter().filter_map(of).collect::<Vec<Instant>>()
    };
    for index in 0..BARRIERS {
        let (come, left) = (times(2 * index), times(2 * index + 1));
        assert_eq!((come.len(), left.len()), (outcomes.len(), outcomes.len()));
        let (last, first) = (come.iter().max(), left.iter().min());
        assert!(last <= first, "barrier {index}: last came {last:?}, first left {first:?}");
    }
}
