//! Messages that the launcher writes to standard error while a job runs.
//!
//! Standard error may have no active reader, and the main thread must not wait for one: it has
//! ranks to end and signals to handle. So a separate thread writes, in order, while the main thread
//! continues. It is not the thread of the ranks' output, or notes would wait for a slow reader of
//! standard output, such as a pager that is not scrolled.

use super::output::await_end;
use crate::stderr::notice;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::time::Instant;

/// Maximum number of queued notes. A job has a handful, and one for each signal to the launcher;
/// further ones are lost.
const WAITING_MAX: usize = 64;

/// The writing thread.
pub struct Notes {
    lines: SyncSender<String>,
    ended: Receiver<()>,
}

impl Notes {
    /// Errors if no thread can be created.
    pub fn start() -> std::io::Result<Self> {
        let (lines, given) = sync_channel::<String>(WAITING_MAX);
        let (end, ended) = channel();
        let write = move || {
            given.iter().for_each(|line| notice(format_args!("{line}")));
            let _ = end.send(());
        };
        std::thread::Builder::new().name("notes".to_owned()).spawn(write)?;
        Ok(Self { lines, ended })
    }

    /// Queues `line`, and returns immediately.
    pub fn add(&self, line: String) {
        let _ = self.lines.try_send(line);
    }

    /// Returns when all notes are written, at the latest at `until`.
    pub fn finish(self, until: Option<Instant>) {
        drop(self.lines);
        await_end(&self.ended, until);
    }
}
