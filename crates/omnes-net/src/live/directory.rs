//! Private directories of live files: their paths, their required owners, and their contents.
//!
//! A rank uses the first of these that it can: `$XDG_RUNTIME_DIR/omnes`, `/run/omnes-<uid>`,
//! `/tmp/omnes-<uid>`; a reader reads all of them, and the superuser those of all users.
//!
//! Guarantees: a directory that belongs to another user, or that others may enter, is rejected;
//! files are opened, created and removed relative to the open directory, so that nobody can replace
//! it by another one meanwhile; links are not followed, and no open waits for a pipe's other end.

use super::LiveError;
use crate::peer_user::own_user;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

/// Suffix of files of live counters.
const ENDING: &str = ".live";
/// Suffix after the name of a file until the file is complete.
const INCOMPLETE: &str = ".new";
/// Age from which an incomplete file belongs to a rank that was killed while it created the file.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(60);
/// Most names read in one directory.
const NAMES_MAX: usize = 1 << 16;

/// Where a rank publishes its live counters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum StatsPlace {
    /// The first usable one of the default directories; see the module header of [`live`](super).
    #[default]
    Usual,
    /// This directory; it is created if it does not exist.
    In(PathBuf),
    /// Nowhere.
    Off,
}

impl FromStr for StatsPlace {
    type Err = LiveError;

    fn from_str(text: &str) -> Result<Self, LiveError> {
        match text {
            "on" => Ok(Self::Usual),
            "off" => Ok(Self::Off),
            path if path.starts_with('/') => Ok(Self::In(path.into())),
            _ => Err(LiveError::Place),
        }
    }
}

/// See the module header.
pub(super) struct Directory {
    pub(super) path: PathBuf,
    fd: OwnedFd,
    owner: u32,
}

/// Directories that a rank of this user may use, best first.
fn usual() -> Vec<PathBuf> {
    let user = own_user();
    let is_own = |path: &Path| path.metadata().is_ok_and(|data| data.uid() == user);
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // A process that has changed its user still has the variable of the previous one.
    let runtime = runtime.filter(|path| path.is_absolute() && is_own(path));
    let fixed = ["run", "tmp"].map(|parent| PathBuf::from(format!("/{parent}/omnes-{user}")));
    runtime.map(|path| path.join("omnes")).into_iter().chain(fixed).collect()
}

/// Directories that a reader reads, with the user to whom each must belong.
pub(super) fn to_read(place: &StatsPlace) -> BTreeMap<PathBuf, u32> {
    let user = own_user();
    if let StatsPlace::In(path) = place {
        // The superuser also reads directories of other users.
        let others = || path.metadata().map_or(user, |data| data.uid());
        return BTreeMap::from([(path.clone(), if user == 0 { others() } else { user })]);
    }
    let mut found: BTreeMap<_, _> = usual().into_iter().map(|path| (path, user)).collect();
    if user == 0 {
        found.extend(of_all_users());
    }
    found.retain(|path, _| path.symlink_metadata().is_ok());
    found
}

fn of_all_users() -> Vec<(PathBuf, u32)> {
    let entries = |parent: &'static str| {
        std::fs::read_dir(parent)
            .into_iter()
            .flatten()
            .take(NAMES_MAX)
            .flatten()
            .filter_map(|entry| Some((entry.path(), entry.file_name().into_string().ok()?)))
    };
    let fixed = ["/run", "/tmp"]
        .into_iter()
        .flat_map(entries)
        .filter_map(|(path, name)| Some((path, name.strip_prefix("omnes-")?.parse().ok()?)));
    let runtime = entries("/run/user")
        .filter_map(|(path, name)| Some((path.join("omnes"), name.parse().ok()?)));
    fixed.chain(runtime).collect()
}

impl Directory {
    /// Opens the directory for the files of this process's ranks; creates it if it does not exist.
    ///
    /// # Errors
    /// [`LiveError`] for the last directory that was tried.
    pub(super) fn for_writing(place: &StatsPlace) -> Result<Self, LiveError> {
        let candidates = match place {
            StatsPlace::In(path) => vec![path.clone()],
            StatsPlace::Usual | StatsPlace::Off => usual(),
        };
        let mut result = Err(LiveError::Place);
        for path in candidates {
            result = Self::make(path);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn make(path: PathBuf) -> Result<Self, LiveError> {
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Self::open(path, own_user()),
            Err(error) => Err(LiveError::Directory { path, source: error.into() }),
        }
    }

    /// Opens a directory that must be private and belong to `owner`.
    ///
    /// # Errors
    /// [`LiveError::Directory`], [`LiveError::DirectoryOwner`], [`LiveError::DirectoryMode`].
    pub(super) fn open(path: PathBuf, owner: u32) -> Result<Self, LiveError> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, Mode::empty())
            .and_then(|fd| rustix::fs::fstat(&fd).map(|data| (fd, data)));
        let (fd, data) = match opened {
            Ok(opened) => opened,
            Err(error) => return Err(LiveError::Directory { path, source: error.into() }),
        };
        let mode = data.st_mode & 0o777;
        if data.st_uid != owner {
            return Err(LiveError::DirectoryOwner { path, owner: data.st_uid, wanted: owner });
        }
        if mode & 0o077 != 0 {
            return Err(LiveError::DirectoryMode { path, mode });
        }
        Ok(Self { path, fd, owner })
    }

    /// Names of the live files, sorted.
    pub(super) fn names(&self) -> Result<Vec<OsString>, LiveError> {
        self.names_with(ENDING)
    }

    fn names_with(&self, ending: &str) -> Result<Vec<OsString>, LiveError> {
        let list = || -> rustix::io::Result<Vec<OsString>> {
            let mut names = Vec::new();
            for entry in rustix::fs::Dir::read_from(&self.fd)?.take(NAMES_MAX) {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name.ends_with(ending.as_bytes()) {
                    names.push(OsStr::from_bytes(name).to_owned());
                }
            }
            Ok(names)
        };
        let path = self.path.clone();
        let mut names =
            list().map_err(|error| LiveError::Directory { path, source: error.into() })?;
        names.sort();
        Ok(names)
    }

    /// Creates a file that only its owner may read, replacing a file of the same name. The file
    /// gets its name, and readers see it, once it holds `content`.
    ///
    /// # Errors
    /// The kernel's error; no file remains then.
    pub(super) fn create(&self, name: &OsStr, content: &[u8]) -> io::Result<File> {
        let mut incomplete = name.to_owned();
        incomplete.push(INCOMPLETE);
        self.remove(&incomplete)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = rustix::fs::openat(&self.fd, &incomplete, flags | OFlags::CLOEXEC, mode)?;
        let file = File::from(file);
        let written = file
            .write_all_at(content, 0)
            .and_then(|()| Ok(rustix::fs::renameat(&self.fd, &incomplete, &self.fd, name)?));
        if let Err(error) = written {
            // A file that cannot be removed now is removed later, like that of a killed rank.
            let _ = self.remove(&incomplete);
            return Err(error);
        }
        Ok(file)
    }

    /// Removes incomplete files of ranks that were killed while they created them.
    ///
    /// # Errors
    /// [`LiveError::Directory`] if the directory cannot be listed, [`LiveError::File`] if a file
    /// cannot be removed.
    pub(super) fn remove_given_up(&self) -> Result<(), LiveError> {
        for name in self.names_with(&format!("{ENDING}{INCOMPLETE}"))? {
            let Some(modified) = self.modified(&name) else { continue };
            // A time in the future counts, too: the clock was wrong, then or now.
            let distance = modified.elapsed().unwrap_or_else(|early| early.duration());
            if distance > GIVEN_UP_AFTER {
                self.remove(&name)?;
            }
        }
        Ok(())
    }

    /// Opens a file for reading; also returns its size.
    ///
    /// # Errors
    /// [`LiveError::NoRegularFile`], [`LiveError::FileOwner`], [`LiveError::File`].
    pub(super) fn open_file(&self, name: &OsStr) -> Result<(File, u64), LiveError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd =
            rustix::fs::openat(&self.fd, name, flags, Mode::empty()).map_err(
                |error| match error {
                    rustix::io::Errno::LOOP => LiveError::NoRegularFile,
                    error => LiveError::File(error.into()),
                },
            )?;
        let data = rustix::fs::fstat(&fd).map_err(io::Error::from)?;
        if FileType::from_raw_mode(data.st_mode) != FileType::RegularFile {
            return Err(LiveError::NoRegularFile);
        }
        if data.st_uid != self.owner {
            return Err(LiveError::FileOwner { owner: data.st_uid, wanted: self.owner });
        }
        Ok((File::from(fd), u64::try_from(data.st_size).unwrap_or(u64::MAX)))
    }

    /// Time at which a file was last written, if it exists.
    pub(super) fn modified(&self, name: &OsStr) -> Option<SystemTime> {
        let data = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let since_1970 = Duration::from_secs(u64::try_from(data.st_mtime).ok()?);
        SystemTime::UNIX_EPOCH.checked_add(since_1970)
    }

    /// Removes a file; a file that does not exist is not an error.
    pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn new_live_directory_and_its_files_are_private() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("live");
        let directory = Directory::for_writing(&StatsPlace::In(path.clone())).unwrap();
        directory.create("1-0.live".as_ref(), b"").unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&path.join("1-0.live"))), (0o700, 0o600));
        // The same directory serves the next rank.
        Directory::for_writing(&StatsPlace::In(path)).unwrap();
    }

    #[test]
    fn directory_accessible_to_others_is_rejected() {
        let parent = tempfile::tempdir().unwrap();
        set_mode(parent.path(), 0o750);
        let place = StatsPlace::In(parent.path().to_owned());
        let error = Directory::for_writing(&place).err().unwrap();
        assert!(matches!(error, LiveError::DirectoryMode { mode: 0o750, .. }), "{error}");
        assert!(error.to_string().contains("chmod 700"));
    }

    #[test]
    fn directory_of_another_user_is_rejected() {
        let parent = tempfile::tempdir().unwrap();
        let error = Directory::open(parent.path().to_owned(), own_user() + 1).err().unwrap();
        assert!(matches!(error, LiveError::DirectoryOwner { .. }), "{error}");
    }

    #[test]
    fn symbolic_links_are_not_followed() {
        let parent = tempfile::tempdir().unwrap();
        let (real, link) = (parent.path().join("real"), parent.path().join("link"));
        let directory = Directory::make(real.clone()).unwrap();
        symlink(&real, &link).unwrap();
        assert!(matches!(Directory::make(link), Err(LiveError::Directory { .. })));
        std::fs::write(real.join("file"), b"text").unwrap();
        symlink("file", real.join("1-0.live")).unwrap();
        let error = directory.open_file("1-0.live".as_ref()).unwrap_err();
        assert!(matches!(error, LiveError::NoRegularFile), "{error}");
    }

    #[test]
    fn named_pipe_is_rejected_without_blocking() {
        let parent = tempfile::tempdir().unwrap();
        let directory = Directory::make(parent.path().join("live")).unwrap();
        let path = directory.path.join("1-0.live");
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let error = directory.open_file("1-0.live".as_ref()).unwrap_err();
        assert!(matches!(error, LiveError::NoRegularFile), "{error}");
        assert_eq!(directory.names().unwrap(), ["1-0.live"]);
    }

    #[test]
    fn stats_places_are_parsed() {
        assert_eq!("on".parse::<StatsPlace>().unwrap(), StatsPlace::Usual);
        assert_eq!("off".parse::<StatsPlace>().unwrap(), StatsPlace::Off);
        assert_eq!("/a/b".parse::<StatsPlace>().unwrap(), StatsPlace::In("/a/b".into()));
        assert!("no".parse::<StatsPlace>().is_err());
    }
}
