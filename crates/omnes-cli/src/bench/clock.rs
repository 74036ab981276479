//! One clock for all ranks of a machine, and a synchronised start by it.
//!
//! Ranks leave a barrier one by one, which hides a part of the broadcast that follows. So rank 0
//! announces a time shortly ahead (the *window*) and every rank waits for it. That needs one clock:
//! `CLOCK_MONOTONIC` is the same for all processes of a running kernel, in all its network
//! namespaces.

use super::rank;
use anyhow::Result;
use omnes::Communicator;

/// First window tried.
const WINDOW_NS_MIN: u64 = 100_000;
/// Number of windows tried, each twice as long as the previous one.
const WINDOWS_TRIED: u32 = 8;
/// Starts per window tried.
const STARTS_TRIED: u64 = 10;
/// How many of these must find every rank ready.
const STARTS_IN_TIME: u64 = 9;

/// Nanoseconds on the machine's clock.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, into one that lives here.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    assert_eq!(status, 0, "every Linux has this clock");
    u64::try_from(time.tv_sec).expect("counts from boot") * 1_000_000_000
        + u64::try_from(time.tv_nsec).expect("below a second")
}

/// Whether a rank was ready at the start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Ready; the start time.
    At(u64),
    /// This rank learned of the time too late.
    Late,
}

/// Announces a start time for all ranks, `window_ns` after rank 0's present time. Collective.
pub fn announce(comm: &Communicator, window_ns: u64) -> Result<u64> {
    comm.barrier()?;
    rank::share_number(comm, now_ns() + window_ns)
}

/// Waits for a point in time.
///
/// Spins: a sleep would miss the time by more than a small broadcast takes.
pub fn wait_until(at: u64) -> Start {
    let is_late = now_ns() >= at;
    while now_ns() < at {
        // Ranks may share a core, and one of them may not have received the time yet.
        std::thread::yield_now();
    }
    if is_late { Start::Late } else { Start::At(at) }
}

/// Window with which nearly every start finds all ranks ready, with `call` after each start.
pub fn fitting_window_ns(comm: &Communicator, mut call: impl FnMut() -> Result<()>) -> Result<u64> {
    let mut window_ns = WINDOW_NS_MIN;
    for _ in 1..WINDOWS_TRIED {
        let mut in_time = 0;
        for _ in 0..STARTS_TRIED {
            in_time += u64::from(wait_until(announce(comm, window_ns)?) != Start::Late);
            call()?;
        }
        let least = rank::combine(comm, &[in_time], u64::min)?;
        if rank::share_number(comm, least[0])? >= STARTS_IN_TIME {
            break;
        }
        window_ns *= 2;
    }
    Ok(window_ns)
}

/// True at every rank if all ranks run under one kernel. Collective.
pub fn is_common(comm: &Communicator) -> Result<bool> {
    let own = omnes::boot_id();
    let boot = own.unwrap_or_default();
    let mut is_common = own.is_some();
    rank::gather(comm, &boot, |_, theirs| is_common &= theirs == boot)?;
    Ok(rank::share(comm, [u8::from(is_common)])? == [1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_is_monotonic() {
        let times: Vec<u64> = (0..100).map(|_| now_ns()).collect();
        assert!(times.is_sorted());
    }
}
