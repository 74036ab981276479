//! Test bodies for broadcasts, for any policy: reliability mechanisms differ, the results must not.

use super::{Arm, run};
use crate::rig::payload::content;
use crate::rig::script::{Outcome, Script, Step};
use omnes_proto::broadcast::Policy;
use omnes_wire::Rank;
use std::time::Duration;

/// Lengths around every boundary of the wire format and of the window, in bytes.
pub const BROADCAST_LENGTHS: [usize; 10] =
    [0, 1, 255, 1415, 1416, 1417, 2848, 2849, 70_000, 300_000];
/// How long a late rank computes before it posts its receives.
const LATENESS: Duration = Duration::from_millis(50);

/// Broadcasts of one script per rank, all with one policy.
struct Plan {
    policy: Policy,
    scripts: Vec<Script>,
    /// Root and content of each broadcast; its buffer has the same number at all ranks.
    broadcasts: Vec<(Rank, Vec<u8>)>,
}

impl Plan {
    fn new(arm: &impl Arm, policy: Policy) -> Self {
        let scripts = vec![Script::default(); arm.size() as usize];
        Self { policy, scripts, broadcasts: Vec::new() }
    }

    /// Every rank begins the next broadcast, of `bytes` bytes.
    fn broadcast(&mut self, root: u32, bytes: usize) {
        let sent = content(self.broadcasts.len() as u64, bytes).to_vec();
        for (rank, script) in (0..).zip(&mut self.scripts) {
            let buffer = if rank == root { sent.clone() } else { vec![0; bytes] };
            let buffer = script.buffer(buffer);
            script.broadcast(self.policy, Rank(root), buffer);
        }
        self.broadcasts.push((Rank(root), sent));
    }

    /// Every rank waits for all its pending operations.
    fn wait(&mut self) {
        for script in &mut self.scripts {
            script.wait();
        }
    }

    /// Runs the plan; every rank must have received everything.
    fn run(mut self, arm: &mut impl Arm) -> Vec<Outcome> {
        self.wait();
        let policy = self.policy;
        let outcomes = run(arm, self.scripts);
        for (rank, outcome) in outcomes.iter().enumerate() {
            for (buffer, (root, sent)) in self.broadcasts.iter().enumerate() {
                let is_right = outcome.buffers[buffer] == *sent;
                let bytes = sent.len();
                assert!(
                    is_right,
                    "{policy}: broadcast {buffer} of {bytes} bytes from {root} at {rank}"
                );
            }
        }
        outcomes
    }
}

/// Broadcasts of every length from every root arrive complete, in sequence.
pub fn broadcasts_of_every_length_arrive(arm: &mut impl Arm, policy: Policy) {
    for bytes in BROADCAST_LENGTHS {
        let mut plan = Plan::new(arm, policy);
        for root in 0..arm.size() {
            plan.broadcast(root, bytes);
            plan.wait();
        }
        plan.run(arm);
    }
}

/// Broadcasts of one root arrive in sending order, without a wait between them.
pub fn broadcasts_back_to_back_keep_their_order(arm: &mut impl Arm, policy: Policy) {
    const BROADCASTS: usize = 200;
    let mut plan = Plan::new(arm, policy);
    let root = arm.size() - 1;
    for number in 0..BROADCASTS {
        plan.broadcast(root, number * 37 % 3000);
    }
    let outcomes = plan.run(arm);
    let of_receivers = outcomes.iter().take(root as usize);
    for outcome in of_receivers {
        let order = outcome.receipts.iter().map(|receipt| receipt.buffer);
        assert!(order.eq(0..BROADCASTS), "{policy}: not in order");
        assert!(outcome.receipts.iter().all(|receipt| receipt.from == Rank(root)));
    }
}

/// Every rank broadcasts concurrently, and all ranks receive everything.
pub fn broadcasts_of_all_roots_at_once_arrive(arm: &mut impl Arm, policy: Policy) {
    let mut plan = Plan::new(arm, policy);
    for bytes in [20, 0, 5000, 40_000] {
        for root in 0..arm.size() {
            plan.broadcast(root, bytes);
        }
    }
    plan.run(arm);
}

/// A rank that computes before it posts its receives receives everything, and so do all others.
pub fn late_rank_gets_every_broadcast(arm: &mut impl Arm, policy: Policy, late: Rank) {
    let mut plan = Plan::new(arm, policy);
    plan.scripts[late.index()].step(Step::Compute(LATENESS));
    let root = (late.0 + 1) % arm.size();
    for bytes in [8, 0, 1416, 8, 30_000, 5] {
        plan.broadcast(root, bytes);
    }
    plan.run(arm);
}

/// The root changes with every broadcast, and each rank waits only for its own part.
pub fn roots_take_turns(arm: &mut impl Arm, policy: Policy) {
    const ROUNDS: u32 = 4;
    let mut plan = Plan::new(arm, policy);
    for number in 0..ROUNDS * arm.size() {
        plan.broadcast(number % arm.size(), 8 + 600 * number as usize % 4000);
        plan.wait();
    }
    plan.run(arm);
}
