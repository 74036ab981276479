//! Signals that the launcher gets, as a stream of numbers.
//!
//! A thread waits for them and passes them on, so that the main thread waits in one place for
//! signals, the ends of ranks (CHLD) and deadlines. A signal that was ignored when the launcher
//! started stays ignored: `nohup omnes run` outlives the terminal.

use anyhow::{Context, Result};
use libc::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use std::sync::mpsc::{Receiver, channel};

/// What ends a job; forwarded to the ranks.
pub const FORWARDED: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// From a terminal's Ctrl-Z, and from `fg`; the ranks stop and go on with the launcher.
const JOB_CONTROL: [i32; 2] = [SIGTSTP, SIGCONT];

/// Starts to listen; call it before the first rank is started, so that no end is missed.
pub fn listen() -> Result<Receiver<i32>> {
    let wanted = FORWARDED.into_iter().chain(JOB_CONTROL).filter(|&signal| !is_ignored(signal));
    let mut signals = Signals::new(wanted.chain([SIGCHLD])).context("cannot listen for signals")?;
    let (sender, receiver) = channel();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if sender.send(signal).is_err() {
                break;
            }
        }
    })?;
    Ok(receiver)
}

/// Gives the forwarded signals their default action back: nothing of the job is left that would
/// have to be ended first.
pub fn release() {
    for signal in FORWARDED.into_iter().filter(|&signal| !is_ignored(signal)) {
        // SAFETY: sets a default action; no handler code of ours is involved.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Stops the launcher as Ctrl-Z would, until somebody continues it.
pub fn stop_self() {
    // SAFETY: plain system call that stops this process.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// True if this process was started not to hear `signal`, or has been told so since.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: an all-zero sigaction is a valid value of that plain C struct.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `action` is valid for writing; a null new action only asks.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
    result == 0 && action.sa_sigaction == libc::SIG_IGN
}
