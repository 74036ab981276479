//! A process without descriptors left: its requests to the firmware fail with an error, and what it
//! has is returned. A program of its own, because the limit is the process's.
//!
//! Without root it prints `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a failure.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod common;

use common::group::barrier_plan;
use common::root::is_root;
use omnes_nic::{Kernel, NicError};

/// The loopback interface: no packet needs to arrive.
const INTERFACE: u32 = 1;

/// Prevents the process from opening anything more.
fn take_descriptors_away() {
    let limit = libc::rlimit { rlim_cur: 3, rlim_max: 1 << 10 };
    // SAFETY: the kernel reads one limit, which lives as long as the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    assert!(std::fs::File::open("/proc/self/stat").is_err());
}

#[test]
fn slots_can_be_closed_but_not_opened_without_free_descriptors() {
    if !is_root() {
        return;
    }
    let kernel = Kernel::load().unwrap();
    let slot = kernel.open(&barrier_plan(0, 2, "counter", false), INTERFACE, None).unwrap();
    take_descriptors_away();
    let refused = kernel.open(&barrier_plan(1, 2, "counter", false), INTERFACE, None);
    assert!(matches!(refused, Err(NicError::System { .. })), "{refused:?}");
    kernel.close(slot);
    assert!(kernel.page(slot).is_none());
}
