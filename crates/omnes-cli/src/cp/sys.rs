//! System calls that the standard library has no words for.

use crate::mounts::mount_points;
use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, StatxAttributes, StatxFlags, fstatfs, openat, statfs, statx,
};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a path holds a zero byte"))
}

fn checked(status: libc::c_int) -> io::Result<()> {
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A file in `directory` without a name; `None` where there is no such thing, or no `/proc` to
/// name it by later.
pub fn open_unnamed(directory: &Path) -> io::Result<Option<File>> {
    if !Path::new("/proc/self/fd").exists() {
        return Ok(None);
    }
    let mut options = File::options();
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE);
    match options.open(directory) {
        Ok(file) => Ok(Some(file)),
        Err(error) => match error.raw_os_error() {
            // EISDIR and ENOENT: kernels and file systems that do not know the flag.
            Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT | libc::EINVAL) => Ok(None),
            _ => Err(error),
        },
    }
}

/// Names a file of [`open_unnamed`]; errors with `AlreadyExists` if the name is taken.
pub fn link_unnamed(file: &File, path: &Path) -> io::Result<()> {
    let (from, to) = (CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?, c_path(path)?);
    // SAFETY: both are texts with a zero at their end, and live until the call returns.
    checked(unsafe {
        libc::linkat(
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            libc::AT_SYMLINK_FOLLOW,
        )
    })
}

/// A directory that only its owner may enter.
pub fn make_private_directory(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

/// Renames; errors with `AlreadyExists` if there is something at `to`.
pub fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match rename_with(from, to, libc::RENAME_NOREPLACE) {
        // The file system does not know the flag: then a moment lies between look and rename.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            if to.symlink_metadata().is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            std::fs::rename(from, to)
        }
        result => result,
    }
}

/// Gives each of two paths the other's name, in one step; `None` where the file system cannot.
pub fn exchange(one: &Path, other: &Path) -> io::Result<Option<()>> {
    match rename_with(one, other, libc::RENAME_EXCHANGE) {
        Ok(()) => Ok(Some(())),
        // EXDEV: an overlay's directory of a lower layer.
        Err(error) => match error.raw_os_error() {
            Some(libc::EINVAL | libc::ENOSYS | libc::EXDEV) => Ok(None),
            _ => Err(error),
        },
    }
}

fn rename_with(from: &Path, to: &Path, flags: libc::c_uint) -> io::Result<()> {
    let (from, to) = (c_path(from)?, c_path(to)?);
    // SAFETY: both are texts with a zero at their end, and live until the call returns.
    checked(unsafe {
        libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags)
    })
}

/// True if something is mounted at `path`, a file or a directory; false where the kernel is too old
/// (below 5.8) to tell.
pub fn is_mount_point(path: &Path) -> bool {
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty());
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// The first mount point strictly below `directory`; `None` if there is none, or if `/proc` does
/// not tell.
pub fn mount_below(directory: &Path) -> Option<PathBuf> {
    let directory = directory.canonicalize().ok()?;
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    mount_points(&mounts).find(|mount| *mount != directory && mount.starts_with(&directory))
}

/// Which mount something lies on. Kernels below 5.8 do not number mounts: there, two mounts of one
/// file system are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount {
    device: (u32, u32),
    number: Option<u64>,
}

/// The mount that `held` lies on.
pub fn mount_of(held: BorrowedFd<'_>) -> io::Result<Mount> {
    let found = statx(held, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    let is_numbered = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID);
    Ok(Mount {
        device: (found.stx_dev_major, found.stx_dev_minor),
        number: is_numbered.then_some(found.stx_mnt_id),
    })
}

/// Holds a directory open, so that it stays the same one; it may be one that cannot be read.
///
/// Errors: a symbolic link, or anything else that is none.
pub fn hold_directory(within: BorrowedFd<'_>, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(within, name, flags, Mode::empty())?)
}

/// What a directory of [`hold_directory`] holds.
pub fn entries(held: BorrowedFd<'_>) -> io::Result<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(Dir::new(openat(held, c".", flags, Mode::empty())?)?)
}

/// True if `path` lies in an overlay, as what comes with a container's image does.
pub fn is_in_overlay(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.f_type == libc::OVERLAYFS_SUPER_MAGIC)
}

/// Bytes that this user may still write to the file system of `path`; `None` where it does not
/// tell, as ramfs and some network file systems, which give their size as 0.
pub fn free_bytes(path: &Path) -> io::Result<Option<u64>> {
    let path = c_path(path)?;
    // SAFETY: a statvfs is plain numbers, so all zeros are one.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the text ends in a zero, and the kernel writes one statvfs into one that lives here.
    checked(unsafe { libc::statvfs(path.as_ptr(), &raw mut found) })?;
    Ok((found.f_blocks > 0).then(|| found.f_bavail.saturating_mul(found.f_frsize)))
}

/// Writes everything of the file system that `file` lies in to its disk.
pub fn sync_file_system(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `file`.
    checked(unsafe { libc::syncfs(file.as_raw_fd()) })
}

/// Sets the time of last change of a symbolic link itself.
pub fn set_link_mtime(path: &Path, mtime_s: i64, mtime_ns: u32) -> io::Result<()> {
    let path = c_path(path)?;
    let keep = libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT };
    let change = libc::timespec { tv_sec: mtime_s, tv_nsec: mtime_ns.into() };
    let times = [keep, change];
    // SAFETY: the text ends in a zero, and the kernel reads two timespecs.
    checked(unsafe {
        libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), libc::AT_SYMLINK_NOFOLLOW)
    })
}

/// Closes `file`.
///
/// Errors: something that was written through it is lost (a full disk, a quota), which network file
/// systems and FUSE may tell no sooner.
pub fn close(file: File) -> io::Result<()> {
    // An NFS client with a delegation writes after the close, when nobody is left to be told.
    if fstatfs(&file).is_ok_and(|found| found.f_type == libc::NFS_SUPER_MAGIC) {
        file.sync_data()?;
    }
    // SAFETY: the descriptor was the file's own, which has given it away.
    checked(unsafe { libc::close(file.into_raw_fd()) })
}

/// Drops what the page cache holds of `file`, as far as it is on disk, so that reading it again
/// reads the disk. A hint: where it is not taken, the cache is read.
pub fn forget_cached(file: &File) {
    // SAFETY: the descriptor is open as long as `file`; no memory is handed over.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// Start and end of the next data of `file` at or after `from`; `None` if only a hole follows.
///
/// A file system without holes says that all is data.
pub fn next_data(file: &File, from: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    let seek = |at: u64, whence| {
        let at = at.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: the descriptor is open as long as `file`; no memory is handed over.
        let found = unsafe { libc::lseek(file.as_raw_fd(), at, whence) };
        u64::try_from(found).map_err(|_| io::Error::last_os_error())
    };
    if from >= size {
        return Ok(None);
    }
    let start = match seek(from, libc::SEEK_DATA) {
        Ok(start) => start,
        Err(error) => {
            return match error.raw_os_error() {
                Some(libc::ENXIO) => Ok(None),
                Some(libc::EINVAL) => Ok(Some((from, size))),
                _ => Err(error),
            };
        }
    };
    let end = seek(start, libc::SEEK_HOLE)?.min(size);
    Ok((start < end).then_some((start, end)))
}
