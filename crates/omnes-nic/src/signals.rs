//! Threads that receive none of the program's signals: a signal that all the program's threads
//! block stays pending for one of them, instead of ending the process on a thread that the program
//! does not know of.

use std::mem::MaybeUninit;

/// Runs `body` with all signals blocked, as they then are for the threads that it starts.
pub fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: both sets are ours; the first is filled before it is used, and the second is read
    // only if the call that fills it has succeeded.
    let restored = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        let result = libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        (result == 0).then(|| before.assume_init())
    };
    let result = body();
    if let Some(before) = restored {
        // SAFETY: a set that the kernel has filled.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut())
        };
    }
    result
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn is_blocked(signal: libc::c_int) -> bool {
        let mut now = MaybeUninit::uninit();
        // SAFETY: the call only fills the set.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), now.as_mut_ptr());
            libc::sigismember(now.as_ptr(), signal) == 1
        }
    }

    #[test]
    fn only_threads_spawned_in_the_closure_block_signals() {
        let thread = without_signals(|| std::thread::spawn(|| is_blocked(libc::SIGUSR1)));
        assert!(thread.join().unwrap());
        assert!(!is_blocked(libc::SIGUSR1));
    }
}
