//! A copy, written from chunks.
//!
//! Frames are applied one by one; which ones are valid depends on the previous ones:
//!
//! ```text
//! Top ── file "" ── data, end ──────────────────────────────► After ── finish ──► Finished
//!  └──── enter "" ──► Inside ── file, link, enter, leave ─────► │
//! ```
//!
//! Nothing is ever opened through a path from a stream: every directory on the path was created
//! here, under a name of one component, and every file is a new one. So a stream cannot write
//! outside of its staging place, not even through links that it contains.
//!
//! Owners are those of the writing process. Of a mode the permission and sticky bits are kept;
//! set-user-ID and set-group-ID are not, because they would grant the new owner's rights.

use super::checksum::{Checksum, Sums};
use super::frame::{Frame, FrameError, Frames, Meta, Totals};
use super::staging::{Staging, StagingError};
use super::sys;
use std::ffi::OsStr;
use std::fs::{self, File, FileTimes, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Bits of a mode that are copied.
const MODE_BITS: u32 = 0o1777;
/// Size of one read when a file is read back.
const READ_BACK_BYTES: usize = 1 << 20;

/// Whether written data are read again and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadBack {
    /// From the disk, if the system lets us bypass its cache.
    EveryFile,
    /// The checksum of the received data is enough.
    Off,
}

/// Reason why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// Bytes that are not valid frames.
    #[error("the stream is damaged: {0}")]
    Frame(#[from] FrameError),
    /// A frame that is not valid after the previous ones.
    #[error("the stream is damaged: {0} out of place")]
    OutOfPlace(&'static str),
    /// The stream ended too early.
    #[error("the stream is damaged: its end is missing")]
    Unfinished,
    /// Something was damaged on its way.
    #[error("{}: the {part} arrived damaged: the checksum differs", .path.display())]
    Checksum {
        /// The destination.
        path: PathBuf,
        /// The part that differs.
        part: &'static str,
    },
    /// The disk returns data other than those written.
    #[error("{}: what was read back is not what was written", .0.display())]
    ReadBack(PathBuf),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] StagingError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Top,
    Inside,
    After,
    Finished,
}

/// A copy in progress.
pub struct Sink {
    staging: Staging,
    phase: Phase,
    /// Directories entered and not left, outermost first.
    directories: Vec<PathBuf>,
    file: Option<OpenFile>,
    read_back: ReadBack,
    checksum: Checksum,
    totals: Totals,
}

impl Sink {
    /// Writes to `staging`.
    pub fn new(staging: Staging, read_back: ReadBack) -> Self {
        Self {
            staging,
            phase: Phase::Top,
            directories: Vec::new(),
            file: None,
            read_back,
            checksum: Checksum::default(),
            totals: Totals::default(),
        }
    }

    /// Applies all frames of a chunk. After an error the copy is lost.
    pub fn apply(&mut self, chunk: &[u8]) -> Result<(), SinkError> {
        for frame in Frames::of(chunk) {
            let frame = frame?;
            self.checksum.update(&frame);
            self.apply_frame(frame)?;
        }
        Ok(())
    }

    /// Returns the copy, ready to appear, if it is complete and `sums` are those of its frames.
    pub fn finish(self, sums: &Sums) -> Result<Staging, SinkError> {
        if let Some(part) = self.checksum.sums().difference(sums) {
            return Err(SinkError::Checksum { path: self.staging.dest().to_owned(), part });
        }
        if self.phase != Phase::Finished {
            return Err(SinkError::Unfinished);
        }
        Ok(self.staging)
    }

    fn apply_frame(&mut self, frame: Frame<'_>) -> Result<(), SinkError> {
        match (frame, &mut self.file) {
            (Frame::Data { offset, bytes }, Some(file)) => {
                self.totals.bytes += bytes.len() as u64;
                file.write(offset, bytes)
            }
            (Frame::End, Some(_)) => self.end_file(),
            (Frame::File { meta, size, name }, None) => self.start_file(meta, size, name),
            (Frame::Link { meta, name, target }, None) => self.make_link(meta, name, target),
            (Frame::Enter { name }, None) => self.enter(name),
            (Frame::Leave { meta }, None) => self.leave(meta),
            (Frame::Finish(totals), None) if self.phase == Phase::After => {
                self.phase = Phase::Finished;
                if totals == self.totals { Ok(()) } else { Err(SinkError::Unfinished) }
            }
            (Frame::Data { .. }, None) => Err(SinkError::OutOfPlace("data")),
            _ => Err(SinkError::OutOfPlace("a frame")),
        }
    }

    fn start_file(&mut self, meta: Meta, size: u64, name: &[u8]) -> Result<(), SinkError> {
        let (path, file) = match (self.phase, self.staging.file(), name) {
            (Phase::Top, Some(file), b"") => {
                let path = self.staging.dest().to_owned();
                let file = file.try_clone().map_err(StagingError::io("open", &path))?;
                (path, file)
            }
            _ => {
                let path = self.entry(name)?;
                let mut options = File::options();
                options.read(true).write(true).create_new(true).mode(0o600);
                let file = options.custom_flags(libc::O_NOFOLLOW).open(&path);
                let shown = self.shown(&path);
                (shown.clone(), file.map_err(StagingError::io("make", &shown))?)
            }
        };
        // The whole file is a hole at first.
        file.set_len(size).map_err(StagingError::io("write", &path))?;
        let written = (self.read_back == ReadBack::EveryFile).then(Written::default);
        self.file = Some(OpenFile { file, path, meta, size, written });
        Ok(())
    }

    fn end_file(&mut self) -> Result<(), SinkError> {
        let Some(file) = self.file.take() else { return Err(SinkError::OutOfPlace("an end")) };
        if self.phase == Phase::Top {
            self.phase = Phase::After;
        }
        self.totals.files += 1;
        file.end()
    }

    fn make_link(&mut self, meta: Meta, name: &[u8], target: &[u8]) -> Result<(), SinkError> {
        let path = self.entry(name)?;
        std::os::unix::fs::symlink(OsStr::from_bytes(target), &path)
            .and_then(|()| sys::set_link_mtime(&path, meta.mtime_s, meta.mtime_ns))
            .map_err(StagingError::io("make the link", &self.shown(&path)))?;
        Ok(())
    }

    fn enter(&mut self, name: &[u8]) -> Result<(), SinkError> {
        let path = match (self.phase, self.staging.directory(), name) {
            (Phase::Top, Some(directory), b"") => {
                self.phase = Phase::Inside;
                directory.to_owned()
            }
            _ => {
                let path = self.entry(name)?;
                sys::make_private_directory(&path)
                    .map_err(StagingError::io("make the directory", &self.shown(&path)))?;
                path
            }
        };
        self.directories.push(path);
        Ok(())
    }

    fn leave(&mut self, meta: Meta) -> Result<(), SinkError> {
        let path = self.directories.pop().ok_or(SinkError::OutOfPlace("a way out"))?;
        if self.directories.is_empty() {
            self.phase = Phase::After;
        }
        File::open(&path)
            .and_then(|directory| set_meta(&directory, meta))
            .map_err(StagingError::io("set mode and time of", &self.shown(&path)))?;
        Ok(())
    }

    /// Path of a new entry of the innermost directory.
    fn entry(&self, name: &[u8]) -> Result<PathBuf, SinkError> {
        match self.directories.last() {
            Some(directory) if !name.is_empty() => Ok(directory.join(OsStr::from_bytes(name))),
            _ => Err(SinkError::OutOfPlace("an entry")),
        }
    }

    /// The final path that corresponds to a hidden one.
    fn shown(&self, path: &Path) -> PathBuf {
        let inside = self.staging.directory().and_then(|hidden| path.strip_prefix(hidden).ok());
        inside.map_or_else(|| path.to_owned(), |inside| self.staging.dest().join(inside))
    }
}

/// The file that data are written to.
struct OpenFile {
    file: File,
    /// As shown in messages.
    path: PathBuf,
    meta: Meta,
    size: u64,
    /// Data expected when the file is read back.
    written: Option<Written>,
}

#[derive(Default)]
struct Written {
    hasher: blake3::Hasher,
    /// Start and end; adjacent extents are merged.
    extents: Vec<(u64, u64)>,
}

impl OpenFile {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), SinkError> {
        let end = offset.saturating_add(bytes.len() as u64);
        if end > self.size {
            return Err(SinkError::OutOfPlace("data behind the end"));
        }
        self.file.write_all_at(bytes, offset).map_err(StagingError::io("write", &self.path))?;
        if let Some(written) = &mut self.written {
            written.hasher.update(bytes);
            match written.extents.last_mut() {
                Some((_, last_end)) if *last_end == offset => *last_end = end,
                _ => written.extents.push((offset, end)),
            }
        }
        Ok(())
    }

    fn end(self) -> Result<(), SinkError> {
        if let Some(written) = &self.written {
            let is_same =
                self.read_back(written).map_err(StagingError::io("read back", &self.path))?;
            if !is_same {
                return Err(SinkError::ReadBack(self.path));
            }
        }
        set_meta(&self.file, self.meta)
            .map_err(StagingError::io("set mode and time of", &self.path))?;
        // Also while the staging holds the file open: each close reports errors.
        sys::close(self.file).map_err(StagingError::io("write", &self.path))?;
        Ok(())
    }

    fn read_back(&self, written: &Written) -> io::Result<bool> {
        // Only pages that are on disk can be dropped from the cache.
        self.file.sync_data()?;
        sys::forget_cached(&self.file);
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; READ_BACK_BYTES];
        for &(start, end) in &written.extents {
            let mut offset = start;
            while offset < end {
                let left = usize::try_from(end - offset).unwrap_or(usize::MAX);
                let part = &mut buffer[..left.min(READ_BACK_BYTES)];
                self.file.read_exact_at(part, offset)?;
                hasher.update(part);
                offset += part.len() as u64;
            }
        }
        Ok(hasher.finalize() == written.hasher.finalize())
    }
}

fn set_meta(file: &File, meta: Meta) -> io::Result<()> {
    fs::File::set_permissions(file, Permissions::from_mode(meta.mode & MODE_BITS))?;
    let whole = Duration::from_secs(meta.mtime_s.unsigned_abs());
    let moment = if meta.mtime_s < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(whole)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(whole)
    };
    let moment =
        moment.and_then(|moment| moment.checked_add(Duration::from_nanos(meta.mtime_ns.into())));
    let moment = moment.ok_or(io::ErrorKind::InvalidInput)?;
    file.set_times(FileTimes::new().set_modified(moment))
}
