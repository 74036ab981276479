//! Ranks that enter and leave the library all the time and hardly ever wait: consumers that always
//! find the next message, producers that only send, callers that only test. They nevertheless
//! respond to others, and receive from them.
#![allow(clippy::unwrap_used)]

mod ranks;

use omnes::{BcastAlgorithm, Config, Error, Tree};
use ranks::{crash, with_ranks};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Long enough for a silent rank to be declared failed meanwhile.
const STREAM: Duration = Duration::from_millis(2000);
const PEER_TIMEOUT: Duration = Duration::from_millis(800);
/// A limit for events that take milliseconds; reached only in case of failure.
const PATIENCE: Duration = Duration::from_secs(20);
/// Calls at this pace leave no tick of the progress thread without one.
const PACE: Duration = Duration::from_micros(500);

/// The sender cannot get far ahead.
fn impatient(config: &mut Config) {
    (config.peer_timeout, config.pool_packets) = (PEER_TIMEOUT, 256);
}

fn compute(time: Duration) {
    let since = Instant::now();
    while since.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[test]
fn busy_consumer_still_hears_all_other_ranks() {
    with_ranks(3, impatient, |comm| {
        let mut data = vec![0; 1000];
        match comm.rank() {
            0 => loop {
                comm.recv(1, 7, &mut data).unwrap();
                if data[0] == 1 {
                    break;
                }
                compute(PACE / 2);
            },
            1 => {
                let since = Instant::now();
                while data[0] == 0 {
                    data[0] = u8::from(since.elapsed() > STREAM);
                    comm.send(0, 7, &data).unwrap();
                }
            }
            _ => {}
        }
        comm.finalize().unwrap();
    });
}

#[test]
fn busy_broadcast_receiver_still_hears_all_other_ranks() {
    with_ranks(3, impatient, |comm| {
        let mut data = vec![0; 1000];
        let since = Instant::now();
        while data[0] == 0 {
            if comm.rank() == 1 {
                data[0] = u8::from(since.elapsed() > STREAM);
            }
            comm.bcast_with(1, &mut data, BcastAlgorithm::tree(Tree::Binomial)).unwrap();
            if comm.rank() != 1 {
                std::thread::sleep(PACE);
            }
        }
        comm.finalize().unwrap();
    });
}

#[test]
fn rank_that_only_sends_still_reads_answers_and_stays_alive() {
    for shared_memory in [false, true] {
        let adjust = |config: &mut Config| {
            impatient(config);
            (config.shared_memory, config.eager_bytes) = (shared_memory, 1024);
        };
        with_ranks(2, adjust, |comm| {
            let mut data = [0; 8];
            if comm.rank() == 1 {
                let since = Instant::now();
                while data[0] == 0 {
                    data[0] = u8::from(since.elapsed() > STREAM);
                    comm.send(0, 7, &data).unwrap();
                    std::thread::sleep(PACE);
                }
            } else {
                while data[0] == 0 {
                    comm.recv(1, 7, &mut data).unwrap();
                }
            }
            comm.finalize().unwrap();
        });
    }
}

#[test]
fn rank_that_only_probes_detects_a_failed_peer_promptly() {
    let patient = |config: &mut Config| config.peer_timeout = 10 * PATIENCE;
    let started = Barrier::new(2);
    with_ranks(2, patient, |comm| {
        if comm.rank() == 1 {
            started.wait();
            return crash(comm);
        }
        started.wait();
        let since = Instant::now();
        let error = loop {
            match comm.iprobe(1, 7) {
                Ok(found) => assert!(found.is_none(), "nobody can have sent it"),
                Err(error) => break error,
            }
            assert!(since.elapsed() < PATIENCE, "the end of rank 1 is not known");
            compute(PACE / 5);
        };
        assert!(matches!(error, Error::PeerFailed { rank: 1 }), "{error}");
    });
}
