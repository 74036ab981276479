//! What a signal would leave behind, and its removal.
//!
//! INT, TERM and HUP end a rank at once, wherever it waits; its hidden files and directories are
//! removed first. The writer may still be at work then, so removal is tried until nothing is left,
//! a few times.

use super::staging::remove_tree;
use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A writer that goes on meanwhile has made something new after at most this many removals.
const REMOVALS_MAX: u32 = 8;

static HIDDEN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn hidden() -> MutexGuard<'static, Vec<PathBuf>> {
    // A list of paths is right at any time, also after a panic elsewhere.
    HIDDEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes a file or directory that must go if this process ends before its time.
pub fn add(path: &Path) {
    hidden().push(path.to_owned());
}

/// The path is gone, or has become the copy.
pub fn forget(path: &Path) {
    hidden().retain(|other| other != path);
}

/// Starts to listen for signals, with a thread that sleeps until one comes.
pub fn remove_on_signal() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot hear signals")?;
    let listen = move || {
        let Some(signal) = signals.forever().next() else { return };
        // The lock is held to the end, so that nothing is added any more.
        for path in hidden().iter() {
            for _ in 0..REMOVALS_MAX {
                let is_gone =
                    std::fs::remove_file(path).is_ok() || path.symlink_metadata().is_err();
                if is_gone {
                    break;
                }
                remove_tree(path);
            }
        }
        // Ends this process by the signal, so that whoever waits for it sees which.
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(listen)?;
    Ok(())
}
