//! Removal of the files and directories that a signal would leave behind.
//!
//! A signal such as INT or QUIT ends a rank immediately, wherever it waits; its hidden files and
//! directories, and the directories it created above its destination, are removed first. Creating
//! hidden files and directories and publishing copies are steps that no signal interrupts: the
//! removal waits for the end of the step in progress, and no step starts after it. So a copy that
//! has appeared is never removed. The writer may still be running then, so removal is repeated a
//! few times until nothing is left.

use super::staging::remove_tree;
use crate::run::signals;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// A concurrent writer has created something new after at most this many removals.
const REMOVALS_MAX: u32 = 8;

static LEFTOVERS: Mutex<Leftovers> =
    Mutex::new(Leftovers { hidden: Vec::new(), above: Vec::new() });

/// Paths to remove if this process ends early.
pub struct Leftovers {
    hidden: Vec<PathBuf>,
    /// Outermost first.
    above: Vec<PathBuf>,
}

impl Leftovers {
    /// Adds a hidden file or directory.
    pub fn add(&mut self, path: &Path) {
        self.hidden.push(path.to_owned());
    }

    /// Adds a directory above the destination, which is removed if it is empty in the end.
    pub fn add_above(&mut self, path: &Path) {
        self.above.push(path.to_owned());
    }

    /// Forgets a path that no longer exists, or that is to stay.
    pub fn forget(&mut self, path: &Path) {
        self.hidden.retain(|other| other != path);
        self.above.retain(|other| other != path);
    }

    fn remove(&self) {
        for path in &self.hidden {
            for _ in 0..REMOVALS_MAX {
                let is_gone =
                    std::fs::remove_file(path).is_ok() || path.symlink_metadata().is_err();
                if is_gone {
                    break;
                }
                remove_tree(path);
            }
        }
        self.above.iter().rev().for_each(|path| drop(std::fs::remove_dir(path)));
    }
}

/// Set by the handler itself: if a signal interrupts a thread in a long system call, that thread
/// sees the flag before it continues, even though the listening thread has yet to wake.
static SIGNALLED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

fn leftovers() -> MutexGuard<'static, Leftovers> {
    // The lists of paths are always consistent, even after a panic elsewhere.
    LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Performs `step` completely, or not at all if a signal has arrived: then this process ends here.
///
/// A nested step would wait forever.
pub fn undisturbed<T>(step: impl FnOnce(&mut Leftovers) -> T) -> T {
    let mut leftovers = leftovers();
    if SIGNALLED.load(Ordering::SeqCst) {
        drop(leftovers);
        loop {
            std::thread::park();
        }
    }
    step(&mut leftovers)
}

/// Returns unless a signal has arrived; then this process ends here.
///
/// A rank that is about to end must not report that its copy may appear.
pub fn end_if_signalled() {
    undisturbed(|_| ());
}

/// Starts to listen for signals.
pub fn remove_on_signal() -> Result<()> {
    signals::before_end(|| {
        // Held to the end, so that no further step starts.
        let leftovers = leftovers();
        leftovers.remove();
        leftovers
    })?;
    for signal in signals::ending() {
        signal_hook::flag::register(signal, Arc::clone(&SIGNALLED))
            .context("cannot hear signals")?;
    }
    Ok(())
}
