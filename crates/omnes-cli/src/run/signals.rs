//! Signals that the launcher receives, as a stream of numbers.
//!
//! A thread waits for them and forwards them through a channel, so that the main thread waits in
//! one place for signals, the ends of ranks (CHLD) and deadlines. A signal that was ignored when
//! the launcher started stays ignored: `nohup omnes run` outlives the terminal. A blocked signal
//! does not stay blocked, neither here nor in the ranks, which inherit the mask: a program that
//! waits for signals itself blocks them, and its children inherit this by mistake.

use anyhow::{Context, Result};
use libc::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::sync::mpsc::{Receiver, channel};

/// Signals that end a job; forwarded to the ranks.
pub const FORWARDED: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Signals to which programs give their own meaning, such as "write a checkpoint" or "show
/// progress"; passed on to the ranks.
pub const PASSED_ON: [i32; 3] = [SIGUSR1, SIGUSR2, SIGQUIT];

/// Starts listening; call it before the first rank is started, so that no end is missed.
pub fn listen() -> Result<Receiver<i32>> {
    // TSTP is a terminal's Ctrl-Z: the ranks stop and continue with the launcher.
    let wanted = FORWARDED.into_iter().chain(PASSED_ON).chain([SIGTSTP]);
    let wanted = wanted.filter(|&signal| !is_ignored(signal)).chain([SIGCHLD]);
    let wanted: Vec<i32> = wanted.collect();
    let mut signals = Signals::new(&wanted).context("cannot listen for signals")?;
    unblock(wanted);
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

/// Lets signals through to this thread, and to those that it starts.
fn unblock(signals: impl IntoIterator<Item = i32>) {
    // SAFETY: an all-zero set is a valid value of that plain C type, and empty.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    for signal in signals {
        // SAFETY: `set` is valid.
        unsafe { libc::sigaddset(&mut set, signal) };
    }
    // SAFETY: `set` is valid, and the former mask is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut()) };
}

/// Signals that end a program that gives them no other meaning, except those that this process was
/// started to ignore, such as HUP under `nohup`.
pub fn ending() -> impl Iterator<Item = i32> {
    FORWARDED.into_iter().chain(PASSED_ON).filter(|&signal| !is_ignored(signal))
}

/// Calls `last` before one of [`ending`] ends this process, on a thread that sleeps until a signal
/// arrives. The process ends by the signal, so that its parent sees which one; the value that
/// `last` returns lives until then.
pub fn before_end<T>(last: impl FnOnce() -> T + Send + 'static) -> Result<()> {
    let mut signals = Signals::new(ending()).context("cannot hear signals")?;
    unblock(ending());
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        let held = last();
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        drop(held);
    })?;
    Ok(())
}

/// Restores the default action of the signals that end a program: nothing of the job is left that
/// would have to be ended first.
pub fn release() {
    for signal in ending().filter(|signal| ![SIGUSR1, SIGUSR2].contains(signal)) {
        // SAFETY: sets a default action; no handler code of ours is involved.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Ends this process by a signal that [`release`] has restored: a shell that waits for it then
/// knows that its loop or script was interrupted, which an exit status cannot tell.
pub fn end_by(signal: i32) {
    // SAFETY: the signal ends this process, or is ignored.
    unsafe { libc::raise(signal) };
}

/// Stops the launcher as Ctrl-Z would, until somebody continues it. Returns immediately if the
/// kernel knows that nobody would: in a process group that no shell has started (an orphaned one),
/// and as process 1 of a container.
pub fn stop_self() {
    // SAFETY: all-zero is a valid value of that plain C struct: the default action.
    let [default, mut handler]: [libc::sigaction; 2] = unsafe { std::mem::zeroed() };
    // SAFETY: both actions are valid, and the second one is restored unchanged; raising the signal
    // stops this process at most.
    unsafe {
        libc::sigaction(SIGTSTP, &default, &mut handler);
        libc::raise(SIGTSTP);
        libc::sigaction(SIGTSTP, &handler, std::ptr::null_mut());
    }
}

/// True if this process was started to ignore `signal`, or has ignored it since.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: an all-zero sigaction is a valid value of that plain C struct.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `action` is valid for writing; a null new action only queries.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
    result == 0 && action.sa_sigaction == libc::SIG_IGN
}
