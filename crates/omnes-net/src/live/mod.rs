//! Live counters: counters of each rank of a node, for other processes to read while the rank runs
//! and after it was killed. After Aeron's counters file.
//!
//! A rank that joins creates a small file in a private directory, maps it, and its progress thread
//! copies the counters into it ten times per second. [`Survey`] reads the files of all ranks;
//! `omnes stat` shows them.
//!
//! - The directory is `$XDG_RUNTIME_DIR/omnes`, `/run/omnes-<uid>` or `/tmp/omnes-<uid>`, the first
//!   of them that can be used; it must belong to the user and be closed to others. The file is
//!   `<job>-<rank>.live`, followed by `.new` until it is complete; its bytes are drawn in `layout`.
//! - A rank that leaves in good order removes its file. The file of a killed rank remains, with
//!   values of at most about 0.1 s before its end, until `omnes stat --clean`, or until a rank that
//!   starts finds it an hour old. Nothing else is left behind.
//! - A rank that cannot publish continues without; [`LiveState`] gives the reason.
//! - The published counters are given as a list of names and a function ([`LiveConfig`]), so a new
//!   counter appears automatically. [`Engine::publish`](crate::Engine::publish) starts publishing.
//!
//! Guarantees: no caller ever waits for publishing; a reader never disturbs a rank, reads values of
//! one moment, and rejects files of other users and invalid files with an error.
//!
//! Cost: about 2 KiB of memory file system and one descriptor per rank; ten times per second the
//! engine's lock for about a microsecond, and only if it is free.

mod directory;
mod error;
mod file;
mod layout;
mod process;
mod publisher;
mod sequence;
mod snapshot;
#[cfg(test)]
mod tests;

pub use directory::StatsPlace;
pub use error::LiveError;
pub use publisher::{LiveConfig, LiveState, Values};
pub(crate) use publisher::{Publisher, Who};
pub use snapshot::{Life, Refusal, Snapshot, Survey};
