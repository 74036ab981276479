//! Why live counters cannot be published, or a file of them is refused.

use std::path::PathBuf;
use thiserror::Error;

/// See the variants; whoever shows one names the file before it.
#[derive(Debug, Error)]
pub enum LiveError {
    /// The setting of where to publish makes no sense.
    #[error("must be on, off, or a directory that starts with /")]
    Place,
    /// The directory cannot be made, opened or listed.
    #[error("cannot use the directory {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the kernel says.
        source: std::io::Error,
    },
    /// The directory belongs to somebody else, who could put anything into it.
    #[error("the directory {} belongs to user {owner}, not to user {wanted}", path.display())]
    DirectoryOwner {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Whose it should be.
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
    /// The file cannot be made, opened, read or mapped.
    #[error("{0}")]
    File(#[from] std::io::Error),
    /// A pipe, a device or a directory.
    #[error("is not a regular file")]
    NoRegularFile,
    /// The file belongs to somebody else than its directory.
    #[error("belongs to user {owner}, and its directory to user {wanted}")]
    FileOwner {
        /// Whose it is.
        owner: u32,
        /// Whose it should be.
        wanted: u32,
    },
    /// No file of live counters has this size.
    #[error("has {bytes} bytes; a file of live counters has at most {bytes_max}")]
    TooLong {
        /// Size of the file.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The file is cut off, or has more than it says.
    #[error("has {bytes} bytes in place of {needed}")]
    WrongSize {
        /// Size of the file.
        bytes: usize,
        /// What it should be.
        needed: usize,
    },
    /// Nothing is in it, as after a loss of power.
    #[error("is empty")]
    Empty,
    /// The first bytes are others.
    #[error("is not a file of live counters")]
    NoLiveFile,
    /// Another version of Omnes has written it.
    #[error("has layout {found}, this program knows {known}: use the omnes command of the ranks")]
    Version {
        /// Version of the file.
        found: u32,
        /// Version that is known here.
        known: u32,
    },
    /// No rank has so many.
    #[error("claims {counters} counters; there are at most {counters_max}")]
    TooManyCounters {
        /// What the file says.
        counters: u32,
        /// The limit.
        counters_max: u32,
    },
    /// There is no such rank in a job of that size.
    #[error("claims to be of rank {rank} of {size}")]
    RankOutOfRange {
        /// What the file says of the rank.
        rank: u32,
        /// What it says of the size.
        size: u32,
    },
    /// Counters are named as fields are.
    #[error("claims a counter named '{name}'")]
    CounterName {
        /// The name, without what a terminal would obey.
        name: String,
    },
}
