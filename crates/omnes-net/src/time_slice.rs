//! Short time slices, for threads that wait where other programs compute.
//!
//! A thread that a packet wakes has to let the one on its core use up its time slice, which lasts
//! milliseconds, unless its own is the shorter one (Linux 6.12 and later). A short slice does not
//! change a thread's share of the core, and children inherit it.
//!
//! The progress thread asks for one when it starts. A caller does once it has been kept from its
//! core for long: on machines that the job has to itself, callers are left as they are. Where ranks
//! outnumber cores none asks, unless settings say so: they would take the core from each other.
//!
//! Cost: two system calls per thread, once; none of them needs a privilege, and a kernel that
//! refuses them, or knows no such slices, is no error.

use std::cell::Cell;
use std::time::Duration;

/// What is asked for unless settings say otherwise: the shortest that the kernel grants.
pub(crate) const USUAL: Duration = Duration::from_micros(100);
/// Who gives the core away and has it back only after such a time has given it to a program that
/// computes: ranks that wait for each other take a twentieth of that.
pub(crate) const LATE_TURN: Duration = Duration::from_millis(1);

thread_local! {
    static HAS_ASKED: Cell<bool> = const { Cell::new(false) };
}

/// Asks for slices of `slice` for the calling thread, once; zero asks for nothing.
pub(crate) fn shorten(slice: Duration) {
    if slice.is_zero() || HAS_ASKED.replace(true) {
        return;
    }
    // What cannot be known or had is done without.
    if let Some(own) = attributes().filter(|own| is_longer(own, slice)) {
        let wanted = slice.as_nanos().try_into().unwrap_or(u64::MAX);
        set_attributes(libc::sched_attr { sched_runtime: wanted, ..own });
    }
}

/// True of a thread that the scheduler treats as any other, with slices longer than `slice`.
fn is_longer(own: &libc::sched_attr, slice: Duration) -> bool {
    let is_usual = i32::try_from(own.sched_policy) == Ok(libc::SCHED_OTHER);
    is_usual && u128::from(own.sched_runtime) > slice.as_nanos()
}

/// Those of the calling thread.
fn attributes() -> Option<libc::sched_attr> {
    // SAFETY: a structure of numbers, for which zero is a value.
    let mut own: libc::sched_attr = unsafe { std::mem::zeroed() };
    let bytes = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes so many bytes at most, all of which are there.
    let status = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut own, bytes, 0) };
    (status == 0).then_some(own)
}

/// Changes those of the calling thread, if it may.
fn set_attributes(wanted: libc::sched_attr) {
    // SAFETY: the kernel reads the structure, whose length it says itself.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_thread_gets_shorter_slices_once_and_keeps_everything_else() {
        std::thread::spawn(|| {
            let before = attributes().unwrap();
            // A kernel before 6.12 has none to tell of.
            if before.sched_runtime == 0 {
                return;
            }
            shorten(Duration::ZERO);
            assert_eq!(attributes().unwrap().sched_runtime, before.sched_runtime);
            shorten(Duration::from_micros(300));
            shorten(USUAL);
            let after = attributes().unwrap();
            assert_eq!(after.sched_runtime, before.sched_runtime.min(300_000));
            assert_eq!(after.sched_nice, before.sched_nice);
            assert_eq!(after.sched_policy, before.sched_policy);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn threads_of_other_policies_and_shorter_slices_are_left_alone() {
        let own = attributes().unwrap();
        let is_longer = |policy: i32, runtime| {
            let of =
                libc::sched_attr { sched_policy: policy as u32, sched_runtime: runtime, ..own };
            is_longer(&of, USUAL)
        };
        assert!(is_longer(libc::SCHED_OTHER, 2_800_000));
        assert!(!is_longer(libc::SCHED_OTHER, 100_000));
        assert!(!is_longer(libc::SCHED_OTHER, 0), "of a kernel that tells of none");
        assert!(!is_longer(libc::SCHED_FIFO, 2_800_000));
        assert!(!is_longer(libc::SCHED_BATCH, 2_800_000));
    }
}
