//! A walk through the source by descriptors.
//!
//! Every entry is examined and opened below the descriptor of its directory, and links are not
//! followed. So a user with write access to the source cannot lead the walk out of it, whatever is
//! renamed meanwhile: an entry that has become a link is an error.
//!
//! Entries are taken in the order of their names. Of a deep tree only the innermost directories are
//! held open; on the way back the others are opened as `..`, and must be the same as before.

use super::source::SourceError;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir};
use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr};
use std::fs::{File, Metadata};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum number of directories held open, far below the usual limit of 1024 descriptors.
const HELD_MAX: usize = 128;
/// Buffer for the names that the kernel returns in one call.
const NAMES_BYTES: usize = 32 << 10;

/// Opens the source itself, which may be a link; a pipe does not block the reader.
pub fn open_top(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?.into())
}

/// Position of the walk: a directory, with some of its names remaining.
pub struct Walk {
    /// Path of the innermost directory, for messages.
    path: PathBuf,
    /// Directories held open, innermost last; never empty.
    held: VecDeque<File>,
    /// For each directory on the path, innermost last; never empty.
    levels: Vec<Level>,
}

struct Level {
    /// Device and inode.
    identity: (u64, u64),
    /// Remaining names, in reverse order.
    names: Vec<CString>,
}

impl Walk {
    /// Starts in `top`, which was opened at `path`.
    pub fn start(path: &Path, top: File) -> Result<Self, SourceError> {
        let level = Level::of(&top).map_err(SourceError::io(path))?;
        Ok(Self { path: path.to_owned(), held: VecDeque::from([top]), levels: vec![level] })
    }

    /// Name of the next entry of this directory.
    pub fn next_name(&mut self) -> Option<CString> {
        self.levels.last_mut().and_then(|level| level.names.pop())
    }

    /// Metadata of this directory.
    pub fn metadata(&self) -> Result<Metadata, SourceError> {
        self.here().metadata().map_err(SourceError::io(&self.path))
    }

    /// Path of an entry, for messages.
    pub fn path_of(&self, name: &CStr) -> PathBuf {
        self.path.join(OsStr::from_bytes(name.to_bytes()))
    }

    /// Current kind of an entry.
    pub fn kind_of(&self, name: &CStr) -> Result<FileType, SourceError> {
        let found = rustix::fs::statat(self.here(), name, AtFlags::SYMLINK_NOFOLLOW);
        let found = found.map_err(|error| self.error(name, error))?;
        Ok(FileType::from_raw_mode(found.st_mode))
    }

    /// Opens a file; an entry that has become a pipe does not block the reader.
    pub fn open_file(&self, name: &CStr) -> Result<File, SourceError> {
        self.open(name, OFlags::RDONLY | OFlags::NONBLOCK)
    }

    /// Metadata and target of a link.
    pub fn read_link(&self, name: &CStr) -> Result<(Metadata, CString), SourceError> {
        let link = self.open(name, OFlags::PATH)?;
        let target = rustix::fs::readlinkat(&link, c"", Vec::new());
        let target = target.map_err(|error| self.error(name, error))?;
        Ok((link.metadata().map_err(SourceError::io(&self.path_of(name)))?, target))
    }

    /// Enters a directory.
    pub fn enter(&mut self, name: &CStr) -> Result<(), SourceError> {
        let directory = self.open(name, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let path = self.path_of(name);
        self.levels.push(Level::of(&directory).map_err(SourceError::io(&path))?);
        self.path = path;
        self.held.push_back(directory);
        if self.held.len() > HELD_MAX {
            self.held.pop_front();
        }
        Ok(())
    }

    /// Returns to the directory above; false if this was the top and the walk ends.
    pub fn leave(&mut self) -> Result<bool, SourceError> {
        self.levels.pop();
        let Some(above) = self.levels.last() else { return Ok(false) };
        if self.held.len() == 1 {
            let identity = above.identity;
            let directory = self.open(c"..", OFlags::RDONLY | OFlags::DIRECTORY)?;
            let metadata = directory.metadata().map_err(SourceError::io(&self.path))?;
            if identity_of(&metadata) != identity {
                return Err(SourceError::Moved(self.path.clone()));
            }
            self.held.push_front(directory);
        }
        self.held.pop_back();
        self.path.pop();
        Ok(true)
    }

    fn open(&self, name: &CStr, flags: OFlags) -> Result<File, SourceError> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(self.here(), name, flags, Mode::empty());
        Ok(opened.map_err(|error| self.error(name, error))?.into())
    }

    fn here(&self) -> &File {
        self.held.back().expect("the innermost directory is held")
    }

    fn error(&self, name: &CStr, error: rustix::io::Errno) -> SourceError {
        SourceError::io(&self.path_of(name))(error.into())
    }
}

impl Level {
    fn of(directory: &File) -> io::Result<Self> {
        let identity = identity_of(&directory.metadata()?);
        let mut room = vec![MaybeUninit::uninit(); NAMES_BYTES];
        let mut entries = RawDir::new(directory, &mut room);
        let mut names = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry?;
            if ![c".", c".."].contains(&entry.file_name()) {
                names.push(entry.file_name().to_owned());
            }
        }
        names.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Self { identity, names })
    }
}

fn identity_of(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn walk(path: &Path) -> Walk {
        Walk::start(path, open_top(path).unwrap()).unwrap()
    }

    #[test]
    fn entry_replaced_by_a_symlink_during_the_walk_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (source, other) = (place.path().join("source"), place.path().join("other"));
        fs::create_dir_all(source.join("d")).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(source.join("f"), "").unwrap();
        let mut walk = walk(&source);
        assert_eq!(walk.next_name().as_deref(), Some(c"d"));
        assert_eq!(walk.kind_of(c"d").unwrap(), FileType::Directory);
        assert_eq!(walk.kind_of(c"f").unwrap(), FileType::RegularFile);
        for (name, target) in [("d", "../other"), ("f", "/etc/passwd")] {
            fs::rename(source.join(name), place.path().join(name)).unwrap();
            symlink(target, source.join(name)).unwrap();
        }
        let refused = walk.enter(c"d").unwrap_err().to_string();
        assert!(refused.contains("source/d: Not a directory"), "{refused}");
        let refused = walk.open_file(c"f").unwrap_err().to_string();
        assert!(refused.contains("source/f: Too many levels of symbolic links"), "{refused}");
        assert_eq!(walk.read_link(c"d").unwrap().1.as_c_str(), c"../other");
    }

    #[test]
    fn opening_a_fifo_in_place_of_a_file_does_not_block() {
        let place = tempfile::tempdir().unwrap();
        let pipe = place.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let opened = walk(place.path()).open_file(c"pipe").unwrap();
        assert!(!opened.metadata().unwrap().is_file());
    }

    #[test]
    fn walk_returns_from_deep_trees_and_fails_at_a_moved_directory() {
        let place = tempfile::tempdir().unwrap();
        let depth = 2 * HELD_MAX;
        let mut path = place.path().join("top");
        for _ in 0..depth {
            path.push("d");
        }
        fs::create_dir_all(&path).unwrap();
        for is_moved in [false, true] {
            let mut walk = walk(&place.path().join("top"));
            while let Some(name) = walk.next_name() {
                walk.enter(&name).unwrap();
            }
            assert!(walk.held.len() <= HELD_MAX);
            let (whole, away) = (place.path().join("top/d/d"), place.path().join("away"));
            if is_moved {
                fs::rename(&whole, &away).unwrap();
            }
            let mut left = 0;
            let end = loop {
                match walk.leave() {
                    Ok(true) => left += 1,
                    end => break end,
                }
            };
            match end {
                Ok(_) => assert!(!is_moved && left == depth && walk.path.ends_with("top")),
                Err(error) => assert!(is_moved && matches!(error, SourceError::Moved(_))),
            }
        }
    }
}
