//! Where a copy is written until it is complete, and how it then appears.
//!
//! A file is written without a name (`O_TMPFILE`), so nothing is left even if this process is
//! killed; if the file system does not support such files, and for directories, it is written under
//! a hidden name (`.omnes-…`) beside the destination. It appears in one step, by a link or a
//! rename, so an incomplete copy is never visible. Without `--force` that step fails if the
//! destination has been created meanwhile. A directory that is replaced is exchanged with its
//! successor, then removed; if the file system cannot exchange (NFS), for a moment neither exists.
//! Nothing is removed across a mount: a directory with mounts below it is not replaced.
//!
//! Missing directories above the destination are created, and removed again if the copy does not
//! appear. Whatever a signal would leave is removed by `leftovers`; after KILL a hidden directory
//! remains.

use super::leftovers::{self, Leftovers};
use super::sys;
use rustix::fs::{AtFlags, CWD, DirEntry, FileType, unlinkat};
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Prefix of hidden names.
const HIDDEN_PREFIX: &str = ".omnes-";
/// Hidden names tried before giving up; each is drawn from 2^64.
const HIDDEN_NAMES_TRIED: u32 = 8;
/// Hexadecimal digits of an [`identity`]: 128 bits.
pub const IDENTITY_DIGITS: usize = 32;

/// Kind of source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A directory and everything below it.
    Directory,
}

/// What to do with an existing destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Fail.
    Keep,
    /// Replace it by the copy.
    Replace,
}

/// Whether a copy must survive a power failure before it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The kernel writes it at its own pace.
    Lazy,
    /// On the disk before the command ends.
    Synced,
}

/// A failed step of making a copy.
#[derive(Debug, thiserror::Error)]
pub enum StagingError {
    /// `--force` was not given.
    #[error("{}: exists (--force replaces it)", .0.display())]
    Exists(PathBuf),
    /// A file in place of a directory or vice versa, or a device, FIFO or socket; never replaced.
    #[error("{}: is {found}; it is not replaced by {wanted}", .path.display())]
    OtherKind {
        /// The destination.
        path: PathBuf,
        /// Kind of the existing entry.
        found: &'static str,
        /// Kind of the copy.
        wanted: &'static str,
    },
    /// A mount point cannot be renamed.
    #[error("{}: is a mount point, which cannot be replaced", .0.display())]
    MountPoint(PathBuf),
    /// The mount would move with the directory, and its contents would not.
    #[error("{}: {} is mounted below it; unmount that first", .path.display(), .mount.display())]
    MountBelow {
        /// The destination.
        path: PathBuf,
        /// The first mount point found below it.
        mount: PathBuf,
    },
    /// An overlay renames only directories of its upper layer.
    #[error("{}: lies in a lower layer of an overlay and cannot be renamed; remove it first",
        .0.display())]
    LowerLayer(PathBuf),
    /// Not enough free space.
    #[error("{}: needs {needed} bytes, and {free} are free", .path.display())]
    NoSpace {
        /// Directory of the destination.
        path: PathBuf,
        /// Size of the data to be written.
        needed: u64,
        /// Bytes that this user may still write.
        free: u64,
    },
    /// A system call failed.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// The action that failed.
        action: &'static str,
        /// Path that it was applied to.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl StagingError {
    /// For `map_err`: the system failed to do `action` with `path`.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// Where a copy is to appear, and the missing directories above it.
///
/// All ranks of a machine look before any of them creates a directory. So each of them knows all
/// new ones, and whichever rank is the last to give up removes them.
#[derive(Clone, Debug)]
pub struct Destination {
    path: PathBuf,
    parent: PathBuf,
    /// Outermost first.
    missing: Vec<PathBuf>,
}

impl Destination {
    /// Inspects `path`, and changes nothing.
    pub fn look_at(path: PathBuf) -> Self {
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let mut missing: Vec<_> =
            parent.ancestors().take_while(is_missing).map(Path::to_owned).collect();
        missing.reverse();
        Self { path, parent, missing }
    }

    /// Path at which the copy will appear.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Temporary place of the copy.
#[derive(Debug)]
enum Hidden {
    /// A file without a name.
    Unnamed(File),
    /// A file with a hidden name.
    Named(File, PathBuf),
    /// A directory with a hidden name.
    Directory(PathBuf),
}

/// A copy that has not appeared yet; if dropped, it leaves no trace.
#[derive(Debug)]
pub struct Staging {
    dest: PathBuf,
    parent: PathBuf,
    made: MadeDirectories,
    hidden: Hidden,
    existing: Existing,
}

impl Staging {
    /// Opens a place beside the destination for a copy of `kind` with `bytes` of data.
    ///
    /// Errors: the destination exists and is to be kept, or is of another kind; it cannot be
    /// written; not enough space. Then nothing is left.
    pub fn open(
        dest: Destination,
        kind: Kind,
        bytes: u64,
        existing: Existing,
    ) -> Result<Self, StagingError> {
        let Destination { path: dest, parent, missing } = dest;
        check_existing(&dest, kind, existing)?;
        let made = MadeDirectories::make(missing)?;
        let free = sys::free_bytes(&parent).map_err(StagingError::io("look at", &parent))?;
        if let Some(free) = free.filter(|free| *free < bytes) {
            return Err(StagingError::NoSpace { path: parent, needed: bytes, free });
        }
        let hidden = match kind {
            Kind::File => open_file(&parent)?,
            Kind::Directory => {
                let ((), path) = noted_path(&parent, sys::make_private_directory)
                    .map_err(StagingError::io("make a directory in", &parent))?;
                Hidden::Directory(path)
            }
        };
        let staging = Self { dest, parent, made, hidden, existing };
        staging.check_layer()?;
        Ok(staging)
    }

    /// Rejects a directory that an overlay will not rename. Trying to rename it onto a nonempty
    /// directory changes nothing, and its error shows this.
    fn check_layer(&self) -> Result<(), StagingError> {
        let (Hidden::Directory(hidden), Existing::Replace) = (&self.hidden, self.existing) else {
            return Ok(());
        };
        if !self.dest.exists() || !sys::is_in_overlay(&self.dest) {
            return Ok(());
        }
        let entry = hidden.join("entry");
        // As one step: otherwise a signal's removal would make room for a directory that must stay.
        let refused = leftovers::undisturbed(|_| {
            sys::make_private_directory(&entry)?;
            let refused = match fs::rename(&self.dest, hidden) {
                Ok(()) => return fs::rename(hidden, &self.dest).map(|()| None),
                Err(error) => error.raw_os_error(),
            };
            fs::remove_dir(&entry).map(|()| refused)
        });
        match refused.map_err(StagingError::io("write in", &self.parent))? {
            Some(libc::EXDEV) => Err(StagingError::LowerLayer(self.dest.clone())),
            _ => Ok(()),
        }
    }

    /// Identifies this place: the same on all ranks of one machine, different on other machines.
    pub fn place(&self) -> Result<String, StagingError> {
        let directory =
            fs::metadata(&self.parent).map_err(StagingError::io("look at", &self.parent))?;
        let mut hasher = hasher_of(&directory);
        hasher.update(self.dest.file_name().unwrap_or_default().as_bytes());
        Ok(hasher.finalize().to_hex().to_string())
    }

    /// The [`identity`] of the entry to be replaced; `None` if the destination does not exist.
    pub fn replaced(&self) -> Option<String> {
        fs::symlink_metadata(&self.dest).ok().map(|found| identity(&found))
    }

    /// The file to write to; `None` for a directory.
    pub fn file(&self) -> Option<&File> {
        match &self.hidden {
            Hidden::Unnamed(file) | Hidden::Named(file, _) => Some(file),
            Hidden::Directory(_) => None,
        }
    }

    /// The directory to write into; `None` for a file.
    pub fn directory(&self) -> Option<&Path> {
        match &self.hidden {
            Hidden::Directory(path) => Some(path),
            _ => None,
        }
    }

    /// Path at which the copy will appear.
    pub fn dest(&self) -> &Path {
        &self.dest
    }

    /// Writes the contents to the disk if the copy must survive a power failure.
    ///
    /// This is slow, so it is done before all ranks agree that copies may appear.
    pub fn sync_contents(&self, durability: Durability) -> Result<(), StagingError> {
        let synced = match (durability, &self.hidden) {
            (Durability::Lazy, _) => Ok(()),
            (Durability::Synced, Hidden::Unnamed(file) | Hidden::Named(file, _)) => file.sync_all(),
            (Durability::Synced, Hidden::Directory(path)) => {
                File::open(path).and_then(|directory| sys::sync_file_system(&directory))
            }
        };
        synced.map_err(StagingError::io("sync", &self.dest))
    }

    /// Makes the copy appear, in a step that no signal interrupts.
    ///
    /// Errors: the destination has been created meanwhile, or the system call fails; then nothing
    /// is left.
    pub fn commit(mut self, durability: Durability) -> Result<(), StagingError> {
        let appeared = leftovers::undisturbed(|leftovers| {
            match &self.hidden {
                Hidden::Unnamed(file) => self.link(file)?,
                Hidden::Named(_, path) | Hidden::Directory(path) => self.rename(path)?,
            }
            self.made.keep(leftovers);
            Ok(())
        });
        appeared.map_err(|error: io::Error| match error.kind() {
            ErrorKind::AlreadyExists => StagingError::Exists(self.dest.clone()),
            _ => StagingError::io("make", &self.dest)(error),
        })?;
        if durability == Durability::Synced {
            let synced = File::open(&self.parent).and_then(|directory| directory.sync_all());
            synced.map_err(StagingError::io("sync", &self.parent))?;
        }
        Ok(())
    }

    fn link(&self, file: &File) -> io::Result<()> {
        match self.existing {
            Existing::Keep => sys::link_unnamed(file, &self.dest),
            // A link never replaces an entry, so the file gets a hidden name first.
            Existing::Replace => {
                let (_, path) = hidden_path(&self.parent, |path| sys::link_unnamed(file, path))?;
                fs::rename(&path, &self.dest).inspect_err(|_| {
                    let _ = fs::remove_file(&path);
                })
            }
        }
    }

    fn rename(&self, path: &Path) -> io::Result<()> {
        match self.existing {
            Existing::Keep => sys::rename_to_new(path, &self.dest),
            // A directory can be renamed only over an empty one.
            Existing::Replace if self.directory().is_some() && self.dest.exists() => {
                match sys::exchange(path, &self.dest)? {
                    Some(()) => Ok(()),
                    None => exchange_by_renames(path, &self.dest, &self.parent),
                }
            }
            Existing::Replace => fs::rename(path, &self.dest),
        }
    }
}

impl Drop for Staging {
    /// After a commit the hidden name is free, or holds the replaced entry.
    fn drop(&mut self) {
        match &self.hidden {
            Hidden::Unnamed(_) => {}
            Hidden::Named(_, path) => drop(fs::remove_file(path)),
            Hidden::Directory(path) => remove_tree(path),
        }
        if let Hidden::Named(_, path) | Hidden::Directory(path) = &self.hidden {
            leftovers::undisturbed(|leftovers| leftovers.forget(path));
        }
    }
}

/// Identifies a file or directory: the same on all ranks of one machine, different on other
/// machines.
pub fn identity(found: &Metadata) -> String {
    hasher_of(found).finalize().to_hex().as_str()[..IDENTITY_DIGITS].to_owned()
}

fn hasher_of(found: &Metadata) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    // Without the boot ID, equal numbers of two machines would look like one place.
    hasher.update(&omnes::boot_id().unwrap_or_default());
    hasher.update(&found.dev().to_be_bytes()).update(&found.ino().to_be_bytes());
    hasher
}

/// Rejects a destination that must stay, or that the copy cannot replace.
fn check_existing(dest: &Path, kind: Kind, existing: Existing) -> Result<(), StagingError> {
    let found = match fs::symlink_metadata(dest) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(StagingError::io("look at", dest)(error)),
    };
    let other_kind =
        |found, wanted| Err(StagingError::OtherKind { path: dest.to_owned(), found, wanted });
    match kind {
        Kind::File if found.is_dir() => {
            other_kind("a directory (with / at its end the copy goes into it)", "a file")
        }
        Kind::File if !found.is_file() && !found.is_symlink() => {
            other_kind("neither a file nor a link", "a file")
        }
        Kind::Directory if !found.is_dir() => other_kind("not a directory", "one"),
        _ if existing == Existing::Keep => Err(StagingError::Exists(dest.to_owned())),
        _ if sys::is_mount_point(dest) => Err(StagingError::MountPoint(dest.to_owned())),
        Kind::File => Ok(()),
        Kind::Directory => match sys::mount_below(dest) {
            Some(mount) => Err(StagingError::MountBelow { path: dest.to_owned(), mount }),
            None => Ok(()),
        },
    }
}

fn open_file(parent: &Path) -> Result<Hidden, StagingError> {
    match sys::open_unnamed(parent) {
        Ok(Some(file)) => Ok(Hidden::Unnamed(file)),
        Ok(None) => {
            let (file, path) = noted_path(parent, |path| {
                File::options().read(true).write(true).create_new(true).mode(0o600).open(path)
            })
            .map_err(StagingError::io("make a file in", parent))?;
            Ok(Hidden::Named(file, path))
        }
        Err(error) => Err(StagingError::io("make a file in", parent)(error)),
    }
}

/// Like [`hidden_path`], for a path that must be removed on a signal.
fn noted_path<T>(parent: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(T, PathBuf)> {
    leftovers::undisturbed(|leftovers| {
        hidden_path(parent, make).inspect(|(_, path)| leftovers.add(path))
    })
}

/// Exchanges the names of two paths in `parent`; after an error both are unchanged.
fn exchange_by_renames(one: &Path, other: &Path, parent: &Path) -> io::Result<()> {
    let ((), aside) = hidden_path(parent, |path| sys::rename_to_new(other, path))?;
    fs::rename(one, other).inspect_err(|_| {
        let _ = fs::rename(&aside, other);
    })?;
    // The replaced entry is to be removed, under whichever name.
    if fs::rename(&aside, one).is_err() {
        remove_tree(&aside);
    }
    Ok(())
}

/// Creates something under a new hidden name in `parent`.
fn hidden_path<T>(
    parent: &Path,
    make: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(T, PathBuf)> {
    let mut last = io::Error::from(ErrorKind::AlreadyExists);
    for _ in 0..HIDDEN_NAMES_TRIED {
        let drawn = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
        let path = parent.join(OsString::from(format!("{HIDDEN_PREFIX}{drawn:016x}")));
        match make(&path) {
            Ok(made) => return Ok((made, path)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Removes a tree, even if its directories are not writable, but nothing of file systems that are
/// mounted below it. Entries that cannot be removed stay: this happens after the copy has succeeded
/// or failed, and cannot change the result.
pub fn remove_tree(path: &Path) {
    let remove = || {
        remove_entries(sys::hold_directory(CWD, path)?.as_fd())?;
        fs::remove_dir(path)
    };
    if remove().is_err() {
        open_up(path);
        let _ = remove();
    }
}

/// Removes the entries of a directory, as far as possible; returns the first error. Directories are
/// held open, so another user with write access cannot replace one by a link.
fn remove_entries(directory: BorrowedFd<'_>) -> io::Result<()> {
    let mount = sys::mount_of(directory)?;
    let remove = |entry: &DirEntry| {
        let name = entry.file_name();
        if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
            match sys::hold_directory(directory, name) {
                Ok(below) if sys::mount_of(below.as_fd())? != mount => {
                    return Err(ErrorKind::CrossesDevices.into());
                }
                Ok(below) => {
                    remove_entries(below.as_fd())?;
                    return Ok(unlinkat(directory, name, AtFlags::REMOVEDIR)?);
                }
                Err(error) if error.kind() == ErrorKind::NotADirectory => {}
                Err(error) => return Err(error),
            }
        }
        Ok(unlinkat(directory, name, AtFlags::empty())?)
    };
    let mut all = Ok(());
    for entry in sys::entries(directory)? {
        let entry = entry?;
        if ![c".", c".."].contains(&entry.file_name()) {
            all = all.and(remove(&entry));
        }
    }
    all
}

/// Makes a directory and all below it on the same mount writable for this user. Each is held open
/// and named by its descriptor, so another user with write access cannot replace it by a link.
fn open_up(directory: &Path) {
    let Ok(held) = sys::hold_directory(CWD, directory) else { return };
    open_up_held(held.as_fd());
}

fn open_up_held(held: BorrowedFd<'_>) {
    let directory = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    let _ = fs::set_permissions(&directory, fs::Permissions::from_mode(0o700));
    let Ok(mount) = sys::mount_of(held) else { return };
    let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        let Ok(below) = sys::hold_directory(held, entry.file_name()) else { continue };
        if sys::mount_of(below.as_fd()).is_ok_and(|other| other == mount) {
            open_up_held(below.as_fd());
        }
    }
}

/// Directories above the destination that were missing; removed on drop unless kept.
#[derive(Debug)]
struct MadeDirectories(Vec<PathBuf>);

impl MadeDirectories {
    fn make(missing: Vec<PathBuf>) -> Result<Self, StagingError> {
        let made = Self(missing);
        leftovers::undisturbed(|leftovers| made.make_all(leftovers))?;
        Ok(made)
    }

    fn make_all(&self, leftovers: &mut Leftovers) -> Result<(), StagingError> {
        for path in &self.0 {
            leftovers.add_above(path);
            match fs::create_dir(path) {
                // Another rank of this machine may have been faster.
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(StagingError::io("make the directory", path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn keep(&mut self, leftovers: &mut Leftovers) {
        self.0.drain(..).for_each(|path| leftovers.forget(&path));
    }
}

impl Drop for MadeDirectories {
    fn drop(&mut self) {
        // Nonempty directories are in use by another rank; empty ones of other ranks are no longer
        // in use, because all ranks give up together.
        self.0.iter().rev().for_each(|path| drop(fs::remove_dir(path)));
        leftovers::undisturbed(|leftovers| self.keep(leftovers));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn trees_are_exchanged_by_renames_or_left_unchanged() {
        let place = tempfile::tempdir().unwrap();
        let [new, old] = ["new", "old"].map(|name| place.path().join(name));
        for tree in [&new, &old] {
            fs::create_dir(tree).unwrap();
            fs::write(tree.join(format!("of-{}", tree.file_name().unwrap().display())), "")
                .unwrap();
        }
        exchange_by_renames(&new, &old, place.path()).unwrap();
        assert!(old.join("of-new").exists() && new.join("of-old").exists());
        exchange_by_renames(&place.path().join("absent"), &old, place.path()).unwrap_err();
        assert!(old.join("of-new").exists());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2, "nothing is left aside");
    }

    #[test]
    fn tree_is_made_writable_recursively_without_following_links() {
        let place = tempfile::tempdir().unwrap();
        let [tree, other] = ["tree", "other"].map(|name| place.path().join(name));
        let depth = tree.join("a/b");
        fs::create_dir_all(&depth).unwrap();
        fs::create_dir(&other).unwrap();
        let link = tree.join("link");
        std::os::unix::fs::symlink(&other, &link).unwrap();
        for path in [&depth, &tree.join("a"), &tree, &other] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o500)).unwrap();
        }
        open_up(&tree);
        open_up(&link);
        assert_eq!([&tree, &depth, &other].map(|path| mode(path)), [0o700, 0o700, 0o500]);
        remove_tree(&tree);
        assert!(!tree.exists());
    }
}
