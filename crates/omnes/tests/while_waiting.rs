//! Callbacks of a program while it waits: on the waiting thread, in all stages of waiting, and with
//! permission to enter the library again.
#![allow(clippy::unwrap_used)]

mod ranks;

use omnes::{Config, Error, ReduceOp, WhileWaiting};
use ranks::with_ranks;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// A limit for events that take milliseconds; reached only in case of failure.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of calls that a wait must see to count as calling periodically.
const CALLS: u32 = 10;

/// Calls of a callback by thread, with the thread's name.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<BTreeMap<String, u32>>>);

fn name_of(thread: ThreadId) -> String {
    format!("{thread:?}")
}

impl Calls {
    fn callback(&self) -> WhileWaiting {
        let calls = self.clone();
        WhileWaiting::new(move || {
            let thread = name_of(std::thread::current().id());
            *calls.0.lock().unwrap().entry(thread).or_default() += 1;
        })
    }

    fn of(&self, thread: &str) -> u32 {
        self.0.lock().unwrap().get(thread).copied().unwrap_or_default()
    }

    /// Lets rank 1, which waits as `stage` says, call the callback.
    fn listen(&self, config: &mut Config, (spin, yield_time): (Duration, Duration)) {
        if config.rank == 1 {
            config.while_waiting = Some(self.callback());
            (config.spin, config.yield_time) = (Some(spin), Some(yield_time));
        }
    }

    /// Returns when the callback has been called often enough on `count` threads.
    fn await_on(&self, count: usize) {
        let until = Instant::now() + PATIENCE;
        while self.0.lock().unwrap().values().filter(|calls| **calls >= CALLS).count() < count {
            assert!(Instant::now() < until, "called on too few threads: {:?}", self.0);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Spin and yield times of the stages: spinning, yielding, blocking.
const STAGES: [(Duration, Duration); 3] =
    [(PATIENCE, Duration::ZERO), (Duration::ZERO, PATIENCE), (Duration::ZERO, Duration::ZERO)];

#[test]
fn callback_is_called_on_the_waiting_thread_in_every_stage() {
    for stage in STAGES {
        let calls = Calls::default();
        let adjust = |config: &mut Config| calls.listen(config, stage);
        with_ranks(2, adjust, |comm| {
            if comm.rank() == 1 {
                let me = name_of(std::thread::current().id());
                comm.recv(0, 1, &mut [0]).unwrap();
                assert!(calls.of(&me) >= CALLS);
                // Joining calls it, too, but no other thread does.
                assert_eq!(calls.0.lock().unwrap().len(), 1, "{:?}", calls.0);
            } else {
                calls.await_on(1);
                comm.send(1, 1, &[7]).unwrap();
            }
            comm.finalize().unwrap();
        });
    }
}

#[test]
fn callback_is_called_on_every_waiting_thread() {
    for stage in STAGES {
        let calls = Calls::default();
        let adjust = |config: &mut Config| calls.listen(config, stage);
        with_ranks(2, adjust, |comm| {
            if comm.rank() == 1 {
                calls.0.lock().unwrap().clear();
                comm.send(0, 9, &[]).unwrap();
                std::thread::scope(|scope| {
                    for tag in 1..=3 {
                        let comm = comm.clone();
                        scope.spawn(move || comm.recv(0, tag, &mut [0]).unwrap());
                    }
                });
            } else {
                comm.recv(1, 9, &mut []).unwrap();
                calls.await_on(3);
                (1..=3).for_each(|tag| comm.send(1, tag, &[7]).unwrap());
            }
            comm.finalize().unwrap();
        });
    }
}

#[test]
fn callback_can_end_the_wait_and_abandon_the_operation() {
    for stage in STAGES {
        let ends = Arc::new(AtomicBool::new(false));
        let adjust = |config: &mut Config| {
            if config.rank == 1 {
                let ends = ends.clone();
                config.while_waiting =
                    Some(WhileWaiting::every(Duration::from_millis(1), move || {
                        if ends.swap(false, Ordering::Relaxed) {
                            ControlFlow::Break(())
                        } else {
                            ControlFlow::Continue(())
                        }
                    }));
                (config.spin, config.yield_time) = (Some(stage.0), Some(stage.1));
            }
        };
        with_ranks(2, adjust, |comm| {
            if comm.rank() == 1 {
                ends.store(true, Ordering::Relaxed);
                let mut data = [0];
                assert!(matches!(comm.recv(0, 1, &mut data), Err(Error::Interrupted)));
                ends.store(true, Ordering::Relaxed);
                assert!(matches!(comm.barrier(), Err(Error::Interrupted)));
                comm.send(0, 2, &[]).unwrap();
                // The message of the receive that was abandoned goes to the next receive.
                comm.recv(0, 1, &mut data).unwrap();
                assert_eq!(data, [7]);
            } else {
                comm.recv(1, 2, &mut []).unwrap();
                comm.send(1, 1, &[7]).unwrap();
                // The other rank has entered, although it has not waited.
                comm.barrier().unwrap();
            }
            comm.barrier().unwrap();
            comm.finalize().unwrap();
        });
    }
}

#[test]
fn message_received_during_an_interrupting_callback_is_not_lost() {
    let (armed, is_called) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let adjust = |config: &mut Config| {
        if config.rank == 1 {
            let (armed, is_called) = (armed.clone(), is_called.clone());
            config.while_waiting = Some(WhileWaiting::every(Duration::from_millis(1), move || {
                if !armed.swap(false, Ordering::Relaxed) {
                    return ControlFlow::Continue(());
                }
                is_called.store(true, Ordering::Relaxed);
                // Long enough for the progress thread, which takes over, to receive it.
                std::thread::sleep(Duration::from_millis(500));
                ControlFlow::Break(())
            }));
        }
    };
    with_ranks(2, adjust, |comm| {
        if comm.rank() == 1 {
            armed.store(true, Ordering::Relaxed);
            let mut data = [0];
            let first = comm.recv(0, 1, &mut data);
            // If the machine was too slow for that, the next receive gets it.
            if matches!(first, Err(Error::Interrupted)) {
                comm.recv(0, 1, &mut data).unwrap();
            }
            assert_eq!(data, [7]);
            comm.recv(0, 1, &mut data).unwrap();
            assert_eq!(data, [8]);
        } else {
            let until = Instant::now() + PATIENCE;
            while !is_called.load(Ordering::Relaxed) {
                assert!(Instant::now() < until, "no callback was called");
                std::thread::yield_now();
            }
            comm.send(1, 1, &[7]).unwrap();
            comm.send(1, 1, &[8]).unwrap();
        }
        comm.finalize().unwrap();
    });
}

#[test]
fn callback_longer_than_the_peer_timeout_does_not_fail_the_rank() {
    let armed = Arc::new(AtomicBool::new(false));
    let peer_timeout = Duration::from_secs(2);
    let adjust = |config: &mut Config| {
        config.peer_timeout = peer_timeout;
        if config.rank == 1 {
            let armed = armed.clone();
            config.while_waiting = Some(WhileWaiting::new(move || {
                if armed.swap(false, Ordering::Relaxed) {
                    std::thread::sleep(2 * peer_timeout);
                }
            }));
        }
    };
    with_ranks(2, adjust, |comm| {
        if comm.rank() == 1 {
            armed.store(true, Ordering::Relaxed);
            // Operations that others wait for also progress meanwhile: this exceeds the size of an
            // eager message.
            let mut data = vec![0; 1_000_000];
            comm.recv(0, 1, &mut data).unwrap();
            assert_eq!(data, vec![7; 1_000_000]);
        } else {
            comm.send(1, 1, &vec![7; 1_000_000]).unwrap();
        }
        comm.finalize().unwrap();
    });
}

/// A callback for rank 1 that panics once it is armed.
fn panicking(armed: &Arc<AtomicBool>) -> impl Fn(&mut Config) + Sync {
    let armed = armed.clone();
    move |config| {
        if config.rank == 1 {
            let armed = armed.clone();
            config.while_waiting = Some(WhileWaiting::new(move || {
                // Without a panic message, which would be confused with those of failing tests.
                if armed.swap(false, Ordering::Relaxed) {
                    std::panic::resume_unwind(Box::new("the callback"));
                }
            }));
        }
    }
}

fn ends_by_a_panic<T>(call: impl FnOnce() -> T) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err()
}

#[test]
fn panicking_callback_releases_memory_and_leaves_the_engine() {
    let (armed, has_arrived) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    let long = vec![9; 20_000];
    with_ranks(2, panicking(&armed), |comm| {
        if comm.rank() == 1 {
            armed.store(true, Ordering::Relaxed);
            assert!(ends_by_a_panic(|| comm.recv(0, 1, &mut vec![0; long.len()])));
            comm.send(0, 2, &[]).unwrap();
            // Outside of all calls, this rank's progress thread acknowledges.
            let until = Instant::now() + PATIENCE;
            while !has_arrived.load(Ordering::Relaxed) {
                assert!(Instant::now() < until, "the message has no answer");
                std::thread::sleep(Duration::from_millis(1));
            }
            let mut data = vec![0; long.len()];
            comm.recv(0, 1, &mut data).unwrap();
            assert_eq!(data, long);
        } else {
            comm.recv(1, 2, &mut []).unwrap();
            comm.send(1, 1, &long).unwrap();
            has_arrived.store(true, Ordering::Relaxed);
        }
        comm.finalize().unwrap();
    });
}

#[test]
fn scope_with_a_panicking_wait_abandons_all_its_requests() {
    let armed = Arc::new(AtomicBool::new(false));
    with_ranks(2, panicking(&armed), |comm| {
        if comm.rank() == 1 {
            let (mut first, mut second) = ([0], [0]);
            assert!(ends_by_a_panic(|| comm.scope(|scope| {
                let _ = scope.irecv(0, 1, &mut first).unwrap();
                let _ = scope.irecv(0, 2, &mut second).unwrap();
                armed.store(true, Ordering::Relaxed);
            })));
            comm.send(0, 3, &[]).unwrap();
            comm.recv(0, 2, &mut second).unwrap();
            comm.recv(0, 1, &mut first).unwrap();
            assert_eq!((first, second), ([1], [2]));
        } else {
            comm.recv(1, 3, &mut []).unwrap();
            comm.send(1, 1, &[1]).unwrap();
            comm.send(1, 2, &[2]).unwrap();
        }
        comm.finalize().unwrap();
    });
}

#[test]
fn panicking_wait_for_a_collective_is_reported_to_other_ranks() {
    let armed = Arc::new(AtomicBool::new(false));
    with_ranks(2, panicking(&armed), |comm| {
        let other = comm.dup().unwrap();
        let mut data = [u64::from(comm.rank())];
        if comm.rank() == 1 {
            assert!(ends_by_a_panic(|| other.scope(|scope| {
                let request = scope.iallreduce(&mut data, ReduceOp::Sum).unwrap();
                armed.store(true, Ordering::Relaxed);
                request.wait()
            })));
            comm.send(0, 3, &[]).unwrap();
        } else {
            // Wait until the other rank is inside.
            comm.recv(1, 3, &mut []).unwrap();
            let outcome =
                other.scope(|scope| scope.iallreduce(&mut data, ReduceOp::Sum)?.wait().map(drop));
            let outcome = outcome.and_then(|()| other.barrier());
            assert!(
                matches!(outcome, Err(Error::CollectivesBroken { rank: 1, .. })),
                "{outcome:?}"
            );
        }
        comm.finalize().unwrap();
    });
}
