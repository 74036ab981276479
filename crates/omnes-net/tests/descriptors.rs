//! A rank of a node with many ranks raises its limit of descriptors, and a rank 0 whose limit does
//! not allow a connection to each of the others reports that immediately. A separate program,
//! because the limit applies to the process.
#![allow(clippy::unwrap_used, missing_docs)]

mod hosts;
mod ranks;

use omnes_net::ring::{Neighbours, NodeConfig};
use omnes_net::{Engine, descriptors, free_port};
use omnes_wire::{JobId, JobKey, Rank};
use std::time::{Duration, Instant};

#[test]
fn descriptor_limit_is_raised_if_possible_and_named_if_too_low() {
    // SAFETY: the kernel reads and writes one limit, which lives as long as the calls.
    let set = |limit: libc::rlimit| unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    };
    set(libc::rlimit { rlim_cur: 100, rlim_max: 2000 });
    let ranks: Vec<Rank> = (0..300).map(Rank).collect();
    let node = NodeConfig {
        job: JobId(1),
        key: &JobKey::new([7; 16]),
        me: Rank(0),
        ranks: &ranks,
        packet_bytes_max: 9000,
        timeout: Duration::ZERO,
    };
    assert_eq!(Neighbours::meet(node).unwrap().reached().count(), 0);
    assert!(descriptors::allow(0) >= 3 * 299);
    set(libc::rlimit { rlim_cur: 100, rlim_max: 200 });
    assert_eq!(descriptors::allow(50), 100);
    assert_eq!(descriptors::allow(150), 150);
    let port = free_port(std::net::Ipv4Addr::LOCALHOST.into()).unwrap();
    let config = ranks::config(0, 300, &format!("127.0.0.1:{port}"));
    let start = Instant::now();
    let error = Engine::join(config).map(drop).unwrap_err().to_string();
    assert!(start.elapsed() < ranks::PATIENCE);
    assert!(error.contains("may only have 200") && error.contains("ulimit -n"), "{error}");
}
