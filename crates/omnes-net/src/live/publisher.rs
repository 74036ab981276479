//! When a rank publishes which values.

use super::LiveError;
use super::directory::{Directory, StatsPlace};
use super::file::{LiveFile, now_ns};
use super::layout::Identity;
use super::process::{self, Process};
use super::snapshot;
use crate::job::EngineCounters;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time between two updates.
const INTERVAL: Duration = Duration::from_millis(100);

/// Selects the published values from the engine's counters.
pub type Values = Box<dyn Fn(&EngineCounters) -> Vec<u64> + Send + Sync>;

/// Values that a rank publishes, and the place.
pub struct LiveConfig {
    /// The directory, or off.
    pub place: StatsPlace,
    /// Names of the counters: lower-case letters, digits and `_`, at most 47, all different.
    pub names: &'static [&'static str],
    /// Their values, in the same order.
    pub values: Values,
}

/// Whether a rank publishes its counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LiveState {
    /// The rank publishes.
    On {
        /// The file.
        file: PathBuf,
    },
    /// The rank does not publish.
    Off {
        /// The reason.
        reason: String,
    },
}

/// The rank that publishes.
pub(crate) struct Who {
    pub(crate) job: u32,
    pub(crate) rank: u32,
    pub(crate) size: u32,
}

/// Publishes one rank's counters until it leaves.
pub(crate) struct Publisher {
    open: Mutex<Option<Open>>,
    values: Values,
    state: LiveState,
}

struct Open {
    file: LiveFile,
    due: Instant,
}

impl Publisher {
    /// Creates the file, and removes files of ranks that died long ago from its directory.
    pub(crate) fn start(config: LiveConfig, who: &Who) -> Self {
        let off = |reason: String| (None, LiveState::Off { reason });
        let (file, state) = match config.place {
            StatsPlace::Off => off("switched off".to_owned()),
            _ => match create(&config, who) {
                Ok(file) => {
                    let state = LiveState::On { file: file.path() };
                    (Some(file), state)
                }
                Err(error) => off(error.to_string()),
            },
        };
        let open = file.map(|file| Open { file, due: Instant::now() });
        Self { open: Mutex::new(open), values: config.values, state }
    }

    pub(crate) fn state(&self) -> &LiveState {
        &self.state
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        // Numbers in a file are as valid after a panic elsewhere as before.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the last values are old enough for an update.
    pub(crate) fn is_due(&self) -> bool {
        self.lock().as_ref().is_some_and(|open| Instant::now() >= open.due)
    }

    /// Publishes the values of `counters`.
    pub(crate) fn publish(&self, counters: &EngineCounters) {
        let values = (self.values)(counters);
        if let Some(open) = self.lock().as_mut() {
            open.due = Instant::now() + INTERVAL;
            open.file.publish(&values);
        }
    }

    /// Removes the file of a rank that leaves in good order.
    pub(crate) fn leave(&self) {
        if let Some(open) = self.lock().take() {
            open.file.remove();
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        // A rank that was dropped without farewell counts as failed, even if its process continues.
        if let Some(open) = self.lock().as_mut() {
            open.file.end();
        }
    }
}

fn create(config: &LiveConfig, who: &Who) -> Result<LiveFile, LiveError> {
    let directory = Directory::for_writing(&config.place)?;
    snapshot::remove_old(&directory);
    let identity = Identity {
        process: Process::this(),
        rank: who.rank,
        size: who.size,
        job: who.job,
        started_ns: now_ns(),
        host: process::host_name(),
        command: process::command_name(),
    };
    LiveFile::create(directory, &identity, config.names)
}
