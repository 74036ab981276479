//! What a signal would leave behind, and its removal.
//!
//! INT, TERM and HUP end a rank at once, wherever it waits; its hidden files and directories, and
//! the directories it made above its destination, are removed first. Hidden places are made and
//! copies appear in steps that no signal interrupts: it waits for the end of the step under way,
//! and no step begins after it. So what is removed is never a copy that has appeared. The writer
//! may still be at work then, so removal is tried until nothing is left, a few times.

use super::staging::remove_tree;
use crate::run::signals;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// A writer that goes on meanwhile has made something new after at most this many removals.
const REMOVALS_MAX: u32 = 8;

static LEFTOVERS: Mutex<Leftovers> =
    Mutex::new(Leftovers { hidden: Vec::new(), above: Vec::new() });

/// What must go if this process ends before its time.
pub struct Leftovers {
    hidden: Vec<PathBuf>,
    /// Outermost first.
    above: Vec<PathBuf>,
}

impl Leftovers {
    /// Notes a hidden file or directory.
    pub fn add(&mut self, path: &Path) {
        self.hidden.push(path.to_owned());
    }

    /// Notes a directory above the destination, which goes if it is empty in the end.
    pub fn add_above(&mut self, path: &Path) {
        self.above.push(path.to_owned());
    }

    /// The path is free, or of use.
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

/// Set by the handler itself: a signal that met a thread in a long system call is known before that
/// thread goes on, though the one that listens has yet to wake.
static SIGNALLED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

fn leftovers() -> MutexGuard<'static, Leftovers> {
    // Lists of paths are right at any time, also after a panic elsewhere.
    LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does `step` as a whole, or not at all if a signal has come: then this process ends here.
///
/// A step within a step would wait for ever.
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

/// Returns unless a signal has come; then this process ends here.
///
/// A rank that is to end does not say that its copy may appear.
pub fn end_if_signalled() {
    undisturbed(|_| ());
}

/// Starts to listen for signals.
pub fn remove_on_signal() -> Result<()> {
    signals::before_end(|| {
        // Held to the end, so that no step begins any more.
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
