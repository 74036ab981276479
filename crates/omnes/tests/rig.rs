//! The simulator's conformance bodies, on real sockets: the same functions, the same scripts, ranks
//! as threads over loopback.
//!
//! The library's own bodies (`bodies`) cover what only it has: communicators, errors, scopes.
#![allow(clippy::unwrap_used)]

mod ranks;

use omnes::policy::Policy;
use omnes::{BarrierForm, BarrierKind, BcastAlgorithm, Communicator, Request, Scope, Status};
use omnes_proto::collective::Runner;
use omnes_sim::conformance::{self, Arm};
use omnes_sim::script::{BarrierGroup, Outcome, Receipt, Script, Step};
use omnes_topo::{BarrierAlgorithm, Tree};
use omnes_wire::{Instant, Rank};
use ranks::with_ranks;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

/// A job whose ranks wait for scripts.
struct Sockets {
    ranks: Vec<(Sender<Script>, Receiver<Outcome>)>,
}

impl Arm for Sockets {
    fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    fn run(&mut self, scripts: Vec<Script>) -> Vec<Outcome> {
        for ((give, _), script) in self.ranks.iter().zip(scripts) {
            give.send(script).unwrap();
        }
        self.ranks.iter().map(|(_, take)| take.recv().unwrap()).collect()
    }
}

/// Runs `body` with a job of `size` ranks.
fn on_sockets(size: u32, body: impl FnOnce(&mut Sockets) + Send) {
    let clock = std::time::Instant::now();
    let (near, far): (Vec<_>, Vec<_>) = (0..size)
        .map(|_| {
            let ((give, script), (outcome, take)) = (channel(), channel());
            ((give, take), Mutex::new(Some((script, outcome))))
        })
        .unzip();
    std::thread::scope(|scope| {
        scope.spawn(move || body(&mut Sockets { ranks: near }));
        with_ranks(
            size,
            |_| {},
            |comm| {
                // Scripts enter barriers without waiting, so their kinds must already be known.
                for algorithm in BarrierAlgorithm::ALL {
                    comm.barrier_with(user(algorithm)).unwrap();
                }
                let (scripts, outcomes) = far[comm.rank() as usize].lock().unwrap().take().unwrap();
                for script in scripts {
                    outcomes.send(Player::play(&comm, script, clock)).unwrap();
                }
                comm.finalize().unwrap();
            },
        );
    });
}

/// The form that runs the same machine as the simulator.
fn user(algorithm: BarrierAlgorithm) -> BarrierKind {
    BarrierKind { form: Some(BarrierForm::User), algorithm: Some(algorithm) }
}

/// One rank executing a script.
struct Player<'scope, 'env, 'request> {
    scope: &'request Scope<'scope, 'env>,
    /// Operations that have not been waited for, with their buffers.
    open: Vec<(usize, Kind, Request<'request>)>,
    outcome: Outcome,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Send,
    Receive,
    Barrier,
}

impl Player<'_, '_, '_> {
    fn play(comm: &Communicator, script: Script, clock: std::time::Instant) -> Outcome {
        let Script { steps, mut buffers } = script;
        let memory: Vec<_> = buffers.iter_mut().map(|it| (it.as_mut_ptr(), it.len())).collect();
        // SAFETY: all operations end before the buffers are accessed or moved, because the scope
        // ends first; a script never uses a buffer for two operations at a time.
        let bytes = |index: usize| unsafe {
            let (base, length) = memory[index];
            std::slice::from_raw_parts_mut(base, length)
        };
        let mut outcome = comm.scope(|scope| {
            let mut player = Player { scope, open: Vec::new(), outcome: Outcome::default() };
            for step in steps {
                match step {
                    Step::Compute(time) => std::thread::sleep(time),
                    Step::Mark(number) => {
                        let now = Instant::from_ns(clock.elapsed().as_nanos() as u64);
                        player.outcome.marks.push((number, now));
                    }
                    Step::WaitFor { buffer } => player.wait_for(|other| other == buffer),
                    Step::Wait => player.wait_for(|_| true),
                    Step::Send { to, tag, buffer } => {
                        let request = player.scope.isend(to.0, tag, bytes(buffer)).unwrap();
                        player.open.push((buffer, Kind::Send, request));
                    }
                    Step::Receive { from, tag, buffer } => {
                        let source = from.map_or(omnes::Source::Any, |from| from.0.into());
                        let tag = tag.map_or(omnes::Tag::Any, Into::into);
                        let request = player.scope.irecv(source, tag, bytes(buffer)).unwrap();
                        player.open.push((buffer, Kind::Receive, request));
                    }
                    Step::Broadcast { policy, root, buffer } => {
                        let scheme = BcastAlgorithm::Multicast(policy);
                        let data = bytes(buffer);
                        let request = player.scope.ibcast_with(root.0, data, scheme).unwrap();
                        let is_root = root.0 == comm.rank();
                        let kind = if is_root { Kind::Send } else { Kind::Receive };
                        player.open.push((buffer, kind, request));
                    }
                    Step::Barrier { group } => {
                        assert_eq!(group.nodes.len() as u32, comm.size(), "each rank is a node");
                        let request = player.scope.ibarrier_with(user(group.algorithm)).unwrap();
                        player.open.push((usize::MAX, Kind::Barrier, request));
                    }
                }
            }
            player.wait_for(|_| true);
            player.outcome
        });
        (outcome.buffers, outcome.is_complete) = (buffers, true);
        outcome
    }

    fn wait_for(&mut self, is_meant: impl Fn(usize) -> bool) {
        let (meant, others) =
            std::mem::take(&mut self.open).into_iter().partition(|(buffer, ..)| is_meant(*buffer));
        self.open = others;
        for (buffer, kind, request) in Vec::from_iter::<Vec<_>>(meant) {
            match request.wait() {
                Ok(Status { source, tag, bytes }) if kind == Kind::Receive => {
                    let (from, bytes) = (Rank(source), bytes as u64);
                    self.outcome.receipts.push(Receipt { from, tag, bytes, buffer });
                }
                Ok(_) => {}
                Err(_) => self.outcome.failures += 1,
            }
        }
    }
}

/// Runs a body for each policy.
fn by_every_policy(size: u32, body: fn(&mut Sockets, Policy)) {
    on_sockets(size, move |arm| {
        for text in conformance::POLICIES {
            body(arm, text.parse().unwrap());
        }
    });
}

/// Runs a body for each algorithm, with every rank as a node of its own.
fn by_every_barrier(size: u32, body: fn(&mut Sockets, &BarrierGroup)) {
    on_sockets(size, move |arm| {
        for algorithm in BarrierAlgorithm::ALL {
            let mut groups = conformance::groups(size, algorithm, Runner::Host, true);
            body(arm, &groups.next().unwrap());
        }
    });
}

#[test]
fn messages_of_every_length_arrive() {
    on_sockets(3, conformance::messages_of_every_length_arrive);
}

#[test]
fn equal_tags_keep_their_order() {
    on_sockets(2, conformance::equal_tags_keep_their_order);
}

#[test]
fn any_source_takes_each_message_once() {
    on_sockets(6, conformance::any_source_takes_each_message_once);
}

#[test]
fn trees_reach_everybody() {
    on_sockets(5, |arm| {
        for text in ["binomial", "chain", "flat", "knomial=3", "kary=2", "postal=2.5", "postal=6/2"]
        {
            let tree: Tree = text.parse().unwrap();
            conformance::broadcast_reaches_everybody(arm, tree, Rank(3), 100_000, 20_000);
        }
    });
}

#[test]
fn nobody_leaves_a_barrier_early() {
    on_sockets(5, |arm| {
        for algorithm in BarrierAlgorithm::ALL {
            conformance::nobody_leaves_a_barrier_early(arm, algorithm);
        }
    });
}

#[test]
fn broadcasts_of_every_length_arrive() {
    by_every_policy(2, conformance::broadcasts_of_every_length_arrive);
    by_every_policy(5, conformance::broadcasts_of_every_length_arrive);
}

#[test]
fn broadcasts_back_to_back_keep_their_order() {
    by_every_policy(7, conformance::broadcasts_back_to_back_keep_their_order);
}

#[test]
fn broadcasts_of_all_roots_at_once_arrive() {
    by_every_policy(6, conformance::broadcasts_of_all_roots_at_once_arrive);
}

#[test]
fn late_rank_gets_every_broadcast() {
    for late in [0, 5] {
        on_sockets(6, move |arm| {
            for text in conformance::POLICIES {
                let policy = text.parse().unwrap();
                conformance::late_rank_gets_every_broadcast(arm, policy, Rank(late));
            }
        });
    }
}

#[test]
fn roots_take_turns() {
    by_every_policy(4, conformance::roots_take_turns);
}

#[test]
fn nobody_leaves_a_barrier_of_a_group_early() {
    for size in [2, 5] {
        by_every_barrier(size, conformance::nobody_leaves_a_barrier_of_a_group_early);
    }
}

#[test]
fn barriers_of_a_group_may_overlap() {
    by_every_barrier(5, conformance::barriers_of_a_group_may_overlap);
}

#[test]
fn barriers_of_two_groups_do_not_mix() {
    on_sockets(4, |arm| {
        let group =
            |algorithm| conformance::groups(4, algorithm, Runner::Host, true).next().unwrap();
        let (first, second) =
            (group(BarrierAlgorithm::Counter), group(BarrierAlgorithm::Dissemination));
        conformance::barriers_of_two_groups_do_not_mix(arm, &first, &second);
    });
}
