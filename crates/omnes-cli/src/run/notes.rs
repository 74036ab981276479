//! What the launcher tells on standard error while a job runs.
//!
//! Nobody may be reading there, and the main thread must not wait for a reader: it has ranks to end
//! and signals to heed. So a thread of its own writes, in order, while the main thread goes on. It
//! is not that of the ranks' output, or notes would wait for whoever does not read standard output,
//! as a pager that is not scrolled.

use super::output::await_end;
use crate::stderr::notice;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::time::Instant;

/// Notes that wait for a reader. A job has a handful, and one for each signal to the launcher;
/// those beyond are lost.
const WAITING_MAX: usize = 64;

/// The thread that writes.
pub struct Notes {
    lines: SyncSender<String>,
    ended: Receiver<()>,
}

impl Notes {
    /// Errors if no thread can be made.
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

    /// Has `line` written, and returns at once.
    pub fn add(&self, line: String) {
        let _ = self.lines.try_send(line);
    }

    /// Returns when all notes are written, at the latest at `until`.
    pub fn finish(self, until: Option<Instant>) {
        drop(self.lines);
        await_end(&self.ended, until);
    }
}
