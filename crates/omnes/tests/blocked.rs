//! The cost of a rank that is blocked in a call, and that it responds when the call is over; alone
//! in its process, whose threads are counted.
#![allow(clippy::unwrap_used)]

mod ranks;

use ranks::with_ranks;
use std::fs::read_to_string;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time that rank 1 waits.
const WAIT: Duration = Duration::from_secs(1);
/// A limit for events that take milliseconds; reached only in case of failure.
const PATIENCE: Duration = Duration::from_secs(20);
/// Maximum number of wake-ups of the progress threads of both ranks together, per second.
const WAKE_UPS_MAX: f64 = 100.0;

/// Wake-ups of all progress threads so far.
fn wake_ups() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let progress = tasks.filter(|task| {
        read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("omnes-progress"))
    });
    let of_task = |task: std::path::PathBuf| -> u64 {
        let status = read_to_string(task.join("status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
        line.unwrap().split_whitespace().last().unwrap().parse().unwrap()
    };
    progress.map(of_task).sum()
}

#[test]
fn blocked_rank_sleeps_and_still_acknowledges_after_the_call() {
    let has_arrived = AtomicBool::new(false);
    with_ranks(
        2,
        |_| (),
        |comm| {
            comm.barrier().unwrap();
            if comm.rank() == 0 {
                // Lets both progress threads settle.
                std::thread::sleep(WAIT / 2);
                let (before, since) = (wake_ups(), Instant::now());
                std::thread::sleep(WAIT);
                let per_second = (wake_ups() - before) as f64 / since.elapsed().as_secs_f64();
                assert!(per_second < WAKE_UPS_MAX, "{per_second} wake-ups per second");
                comm.send(1, 1, &[]).unwrap();
                comm.send(1, 2, &[7; 20_000]).unwrap();
                has_arrived.store(true, Ordering::Relaxed);
            } else {
                comm.recv(0, 1, &mut []).unwrap();
                let until = Instant::now() + PATIENCE;
                while !has_arrived.load(Ordering::Relaxed) {
                    assert!(Instant::now() < until, "nobody answers");
                    std::thread::sleep(Duration::from_millis(1));
                }
                comm.recv(0, 2, &mut [0; 20_000]).unwrap();
            }
            comm.finalize().unwrap();
        },
    );
}
