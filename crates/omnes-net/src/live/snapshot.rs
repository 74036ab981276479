//! Reading the files of all ranks of a node, including those of ranks that were killed.
//!
//! A file is read, not mapped: whatever happens to it meanwhile is an error, not a signal. Any
//! process may have written it, so its whole content is checked ([`layout::parse`]), and a reader
//! never waits for it.

use super::LiveError;
use super::directory::{self, Directory, StatsPlace};
use super::layout::{self, Content};
use super::process::Liveness;
use super::sequence;
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A rank publishes ten times per second; one that has not for this long is stopped or starved.
const SILENT_AFTER: Duration = Duration::from_secs(5);
/// Age from which a rank that starts removes the files of dead ranks, and from which a rank whose
/// process cannot be seen from here counts as dead.
const OLD_AFTER: Duration = Duration::from_secs(3600);

/// State of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// The rank has published recently.
    Running,
    /// Its process exists, or cannot be seen from here, but has not published for 5 s.
    Silent,
    /// Its process does not exist any more, or has dropped the rank without farewell.
    Dead,
}

/// Counters that a rank has published.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The file that was read.
    pub file: PathBuf,
    /// Number of the job; the same for all its ranks.
    pub job: u32,
    /// Rank in the job, from 0.
    pub rank: u32,
    /// Number of ranks of the job.
    pub size: u32,
    /// Process number, in the pid namespace of the rank.
    pub pid: u32,
    /// Name of the machine.
    pub host: String,
    /// Name of the program.
    pub command: String,
    /// Time at which the rank joined its job, in ns since 1970.
    pub started_ns: u64,
    /// Time at which the values were published, in ns since 1970.
    pub updated_ns: u64,
    /// True if all values are of one moment; false only if the rank was killed or stopped while it
    /// published.
    pub is_whole: bool,
    /// Name and value of each counter, in the order of the rank's version.
    pub counters: Vec<(String, u64)>,
    /// State of the rank when the file was read.
    pub life: Life,
}

impl Snapshot {
    /// Value of a counter, if the rank has it.
    pub fn counter(&self, name: &str) -> Option<u64> {
        let mut counters = self.counters.iter();
        counters.find(|(other, _)| other == name).map(|(_, value)| *value)
    }

    /// Time since the values were published.
    pub fn age(&self, now: SystemTime) -> Duration {
        since(self.updated_ns, now)
    }

    fn new(file: PathBuf, content: Content, is_whole: bool, now: SystemTime) -> Self {
        let life = life(&content, now);
        let Content { identity, updated_ns, counters, .. } = content;
        Self {
            file,
            job: identity.job,
            rank: identity.rank,
            size: identity.size,
            pid: identity.process.pid,
            host: identity.host,
            command: identity.command,
            started_ns: identity.started_ns,
            updated_ns,
            is_whole,
            counters,
            life,
        }
    }
}

fn moment(ns_since_1970: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(ns_since_1970)
}

/// Time since a moment in ns since 1970; zero if it is in the future.
fn since(moment_ns: u64, now: SystemTime) -> Duration {
    now.duration_since(moment(moment_ns)).unwrap_or_default()
}

/// True if `moment` is an hour ago or longer, or as far in the future: the clock was wrong, then or
/// now.
fn is_long_ago(moment: SystemTime, now: SystemTime) -> bool {
    let distance = now.duration_since(moment).unwrap_or_else(|early| early.duration());
    distance > OLD_AFTER
}

fn life(content: &Content, now: SystemTime) -> Life {
    let age = since(content.updated_ns, now);
    match content.identity.process.liveness() {
        _ if content.ended_ns != 0 => Life::Dead,
        Liveness::Gone => Life::Dead,
        Liveness::OutOfSight if is_long_ago(moment(content.updated_ns), now) => Life::Dead,
        _ if age > SILENT_AFTER => Life::Silent,
        Liveness::Runs | Liveness::OutOfSight => Life::Running,
    }
}

/// A file or directory that was rejected, and the reason; a sentence when displayed.
#[derive(Debug)]
pub struct Refusal {
    /// The file or directory.
    pub path: PathBuf,
    /// The reason.
    pub error: LiveError,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, error } = self;
        match error {
            // These errors name the directory themselves.
            LiveError::Directory { .. }
            | LiveError::DirectoryOwner { .. }
            | LiveError::DirectoryMode { .. } => write!(f, "{error}"),
            LiveError::File(error) => write!(f, "{}: {error}", path.display()),
            _ => write!(f, "{} {error}", path.display()),
        }
    }
}

/// Result of reading or cleaning the directories.
#[derive(Debug, Default)]
pub struct Survey {
    /// Directories that were read.
    pub directories: Vec<PathBuf>,
    /// Ranks, by start time of the job's first rank seen, then by rank.
    pub ranks: Vec<Snapshot>,
    /// Files and directories that were rejected.
    pub refused: Vec<Refusal>,
}

impl Survey {
    /// Reads the files of all ranks of this node that this user may see.
    ///
    /// Errors of files and directories are in [`Self::refused`].
    pub fn take(place: &StatsPlace) -> Self {
        let mut survey = Self::default();
        survey.visit(place, |survey, directory| {
            for name in directory.names()? {
                match read(directory, &name, SystemTime::now()) {
                    Ok(snapshot) => survey.ranks.push(snapshot),
                    // It existed when the directory was listed.
                    Err(LiveError::File(error)) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => survey.refuse(directory.path.join(name), error),
                }
            }
            Ok(())
        });
        survey.sort();
        survey
    }

    /// Removes the files of dead ranks for which `is_meant` is true, and returns their contents.
    ///
    /// Also removes incomplete files of ranks that were killed while they created them, and files
    /// that have been empty for an hour.
    pub fn clean(place: &StatsPlace, is_meant: impl Fn(&Snapshot) -> bool) -> Self {
        let mut survey = Self::default();
        survey.visit(place, |survey, directory| {
            for name in directory.names()? {
                let removed = match read(directory, &name, SystemTime::now()) {
                    Ok(rank) if rank.life == Life::Dead && is_meant(&rank) => {
                        survey.ranks.push(rank);
                        directory.remove(&name)
                    }
                    Err(LiveError::Empty) if is_old(directory, &name) => directory.remove(&name),
                    _ => Ok(()),
                };
                if let Err(error) = removed {
                    survey.refuse(directory.path.join(name), error.into());
                }
            }
            directory.remove_given_up()
        });
        survey.sort();
        survey
    }

    fn visit(
        &mut self,
        place: &StatsPlace,
        mut each: impl FnMut(&mut Self, &Directory) -> Result<(), LiveError>,
    ) {
        for (path, owner) in directory::to_read(place) {
            self.directories.push(path.clone());
            let opened = Directory::open(path.clone(), owner);
            if let Err(error) = opened.and_then(|directory| each(self, &directory)) {
                self.refuse(path, error);
            }
        }
    }

    fn refuse(&mut self, path: PathBuf, error: LiveError) {
        self.refused.push(Refusal { path, error });
    }

    /// Oldest job first.
    fn sort(&mut self) {
        let mut starts = std::collections::BTreeMap::new();
        for rank in &self.ranks {
            let start = starts.entry(rank.job).or_insert(rank.started_ns);
            *start = rank.started_ns.min(*start);
        }
        self.ranks.sort_by_key(|rank| (starts[&rank.job], rank.job, rank.rank));
    }
}

/// Removes the files of ranks that have been dead for an hour, and of ranks that were killed while
/// they created them; files that cannot be read remain.
pub(super) fn remove_old(directory: &Directory) {
    // There is nobody to report an error to.
    let _ = directory.remove_given_up();
    let now = SystemTime::now();
    let mut names = directory.names().unwrap_or_default();
    // If ranks die often, most files are young; these need not be read.
    names.retain(|name| is_old(directory, name));
    for name in names {
        let is_meant = match read(directory, &name, now) {
            Ok(rank) => rank.life == Life::Dead && is_long_ago(moment(rank.updated_ns), now),
            Err(LiveError::Empty) => true,
            Err(_) => false,
        };
        if is_meant {
            // Another rank that starts may have removed it already.
            let _ = directory.remove(&name);
        }
    }
}

/// True if a file was created and last written at least an hour ago, not counting its values:
/// whether changing them counts as writing depends on the file system.
fn is_old(directory: &Directory, name: &OsStr) -> bool {
    directory.modified(name).is_some_and(|modified| is_long_ago(modified, SystemTime::now()))
}

fn read(directory: &Directory, name: &OsStr, now: SystemTime) -> Result<Snapshot, LiveError> {
    let (file, bytes) = directory.open_file(name)?;
    let bytes_max = layout::FILE_BYTES_MAX as u64;
    if bytes > bytes_max {
        return Err(LiveError::TooLong { bytes, bytes_max });
    }
    let content = || layout::parse(&read_up_to(&file, bytes as usize)?);
    let sequence_at = layout::values_at(content()?.counters.len()) as u64;
    let (content, is_whole) = sequence::look(|| word(&file, sequence_at), content)?;
    Ok(Snapshot::new(directory.path.join(name), content, is_whole, now))
}

fn word(file: &File, at: u64) -> Result<u64, LiveError> {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, at)?;
    Ok(u64::from_ne_bytes(word))
}

/// The first `bytes` bytes, or as many as the file still has.
fn read_up_to(file: &File, bytes: usize) -> Result<Vec<u8>, LiveError> {
    let mut content = vec![0; bytes];
    let mut done = 0;
    while done < bytes {
        match file.read_at(&mut content[done..], done as u64)? {
            0 => break,
            more => done += more,
        }
    }
    content.truncate(done);
    Ok(content)
}
