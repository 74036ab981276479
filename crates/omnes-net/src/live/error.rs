//! Why live counters cannot be published, or a file of them is refused.

use std::path::PathBuf;
use thiserror::Error;

/// See the variants; code that shows an error names the file before it.
#[derive(Debug, Error)]
pub enum LiveError {
    /// The setting for the place to publish is invalid.
    #[error("must be on, off, or a directory that starts with /")]
    Place,
    /// The directory cannot be created, opened or listed.
    #[error("cannot use the directory {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The directory belongs to another user, who could put anything into it.
    #[error("the directory {} belongs to user {owner}, not to user {wanted}", path.display())]
    DirectoryOwner {
        /// The directory.
        path: PathBuf,
        /// The user to whom it belongs.
        owner: u32,
        /// The user to whom it should belong.
        wanted: u32,
    },
    /// Others may enter the directory.
    #[error(
        "the directory {path} is open to others (mode {mode:o}): chmod 700 {path}",
        path = path.display()
    )]
    DirectoryMode {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file cannot be created, opened, read or mapped.
    #[error("{0}")]
    File(#[from] std::io::Error),
    /// The file is a pipe, a device or a directory.
    #[error("is not a regular file")]
    NoRegularFile,
    /// The file belongs to another user than its directory.
    #[error("belongs to user {owner}, and its directory to user {wanted}")]
    FileOwner {
        /// The user to whom it belongs.
        owner: u32,
        /// The user to whom it should belong.
        wanted: u32,
    },
    /// The file is larger than any file of live counters.
    #[error("has {bytes} bytes; a file of live counters has at most {bytes_max}")]
    TooLong {
        /// Size of the file.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The file is truncated, or longer than its header says.
    #[error("has {bytes} bytes in place of {needed}")]
    WrongSize {
        /// Size of the file.
        bytes: usize,
        /// The size that it should have.
        needed: usize,
    },
    /// The file contains nothing, as after a loss of power.
    #[error("is empty")]
    Empty,
    /// The magic number is wrong.
    #[error("is not a file of live counters")]
    NoLiveFile,
    /// Another version of Omnes has written the file.
    #[error("has layout {found}, this program knows {known}: use the omnes command of the ranks")]
    Version {
        /// Version of the file.
        found: u32,
        /// Version that this program knows.
        known: u32,
    },
    /// The file claims more counters than any rank has.
    #[error("claims {counters} counters; there are at most {counters_max}")]
    TooManyCounters {
        /// Number in the file.
        counters: u32,
        /// The limit.
        counters_max: u32,
    },
    /// A job of that size has no such rank.
    #[error("claims to be of rank {rank} of {size}")]
    RankOutOfRange {
        /// Rank in the file.
        rank: u32,
        /// Size of the job in the file.
        size: u32,
    },
    /// The name of a counter is not a valid field name.
    #[error("claims a counter named '{name}'")]
    CounterName {
        /// The name, without control characters that a terminal would obey.
        name: String,
    },
}
