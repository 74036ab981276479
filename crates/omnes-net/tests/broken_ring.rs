//! A ring in shared memory that was overwritten, in a separate process, because the test overwrites
//! all rings of the process.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod hosts;
mod ranks;

use hosts::Host;
use omnes_net::OperationError;
use omnes_wire::Rank;
use ranks::{PATIENCE, with_ranks};
use std::fs::{File, read_to_string};
use std::os::unix::fs::FileExt;

/// Overwrites the positions of writers and readers of rings, and the beginning of the rings.
fn overwrite_rings() {
    let memory = File::options().write(true).open("/proc/self/mem").unwrap();
    for line in read_to_string("/proc/self/maps").unwrap().lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // At the start of a segment is the board, which no packet depends on.
        if !line.contains("/memfd:omnes-ring") || fields[2] == "00000000" {
            continue;
        }
        let start = u64::from_str_radix(fields[0].split('-').next().unwrap(), 16).unwrap();
        memory.write_all_at(&[0xa5; 256], start).unwrap();
    }
}

#[test]
fn corrupted_ring_is_reported_as_a_failure_of_its_writer() {
    let counters = with_ranks(
        &[Host::here([127, 0, 0, 1].into()), Host::here([127, 0, 0, 1].into())],
        // Silence would reveal the failure as well, later.
        |config| config.peer_timeout = 100 * PATIENCE,
        |member| {
            let (me, mut buffer) = (member.engine.rank(), [0; 8]);
            member.exchange(8);
            member.meet.wait();
            if me == 0 {
                overwrite_rings();
            }
            member.meet.wait();
            let receive = member.start_receive(1 - me, &mut buffer);
            let outcome = member.engine.wait_at_most(receive, PATIENCE, |_| true);
            assert_eq!(outcome, Some(Err(OperationError::PeerFailed { rank: Rank(1 - me) })));
        },
    );
    assert!(counters.iter().all(|counters| counters.ring.broken > 0));
}
