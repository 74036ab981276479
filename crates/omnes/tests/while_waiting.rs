//! What a program does beside while it waits: on the thread that waits, in all stages of waiting,
//! and free to enter the library again.
#![allow(clippy::unwrap_used)]

mod ranks;

use omnes::{Config, Error, WhileWaiting};
use ranks::with_ranks;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// A limit for what happens within milliseconds; reached only by a failure.
const PATIENCE: Duration = Duration::from_secs(20);
/// Calls that a wait must see to count as one that is called now and then.
const CALLS: u32 = 10;

/// Calls of a hook by thread, with the thread's name.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<BTreeMap<String, u32>>>);

fn name_of(thread: ThreadId) -> String {
    format!("{thread:?}")
}

impl Calls {
    fn hook(&self) -> WhileWaiting {
        let calls = self.clone();
        WhileWaiting::new(move || {
            let thread = name_of(std::thread::current().id());
            *calls.0.lock().unwrap().entry(thread).or_default() += 1;
        })
    }

    fn of(&self, thread: &str) -> u32 {
        self.0.lock().unwrap().get(thread).copied().unwrap_or_default()
    }

    /// Hooks rank 1, which waits as `stage` says.
    fn listen(&self, config: &mut Config, (spin, give_way): (Duration, Duration)) {
        if config.rank == 1 {
            config.while_waiting = Some(self.hook());
            (config.spin, config.give_way) = (Some(spin), Some(give_way));
        }
    }

    /// Returns when the hook has been called often enough on `count` threads.
    fn await_on(&self, count: usize) {
        let until = Instant::now() + PATIENCE;
        while self.0.lock().unwrap().values().filter(|calls| **calls >= CALLS).count() < count {
            assert!(Instant::now() < until, "called on too few threads: {:?}", self.0);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Waits like this: spinning, giving way, blocking.
const STAGES: [(Duration, Duration); 3] =
    [(PATIENCE, Duration::ZERO), (Duration::ZERO, PATIENCE), (Duration::ZERO, Duration::ZERO)];

#[test]
fn hook_is_called_on_the_waiting_thread_in_every_stage() {
    for stage in STAGES {
        let calls = Calls::default();
        let adjust = |config: &mut Config| calls.listen(config, stage);
        with_ranks(2, adjust, |comm| {
            if comm.rank() == 1 {
                let me = name_of(std::thread::current().id());
                comm.recv(0, 1, &mut [0]).unwrap();
                assert!(calls.of(&me) >= CALLS);
                // Joining calls it too, but no other thread does.
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
fn hook_is_called_on_all_threads_that_wait_whoever_of_them_drives() {
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
fn a_hook_ends_the_wait_and_what_was_waited_for_is_given_up() {
    for stage in STAGES {
        let ends = Arc::new(AtomicBool::new(false));
        let adjust = |config: &mut Config| {
            if config.rank == 1 {
                let ends = ends.clone();
                config.while_waiting =
                    Some(WhileWaiting::every(Duration::from_millis(1), move || {
                        match ends.swap(false, Ordering::Relaxed) {
                            true => ControlFlow::Break(()),
                            false => ControlFlow::Continue(()),
                        }
                    }));
                (config.spin, config.give_way) = (Some(stage.0), Some(stage.1));
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
                // The message of the receive that was given up is the next one's.
                comm.recv(0, 1, &mut data).unwrap();
                assert_eq!(data, [7]);
            } else {
                comm.recv(1, 2, &mut []).unwrap();
                comm.send(1, 1, &[7]).unwrap();
                // The other one has entered, though it has not waited.
                comm.barrier().unwrap();
            }
            comm.barrier().unwrap();
            comm.finalize().unwrap();
        });
    }
}
