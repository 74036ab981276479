//! System calls that the standard library does not cover.

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

/// Opens a file without a name in `directory`; `None` if that is not supported, or there is no
/// `/proc` to name it by later.
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
    // SAFETY: both are zero-terminated strings that live until the call returns.
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

/// Creates a directory that only its owner may enter.
pub fn make_private_directory(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

/// Renames; errors with `AlreadyExists` if `to` exists.
pub fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match rename_with(from, to, libc::RENAME_NOREPLACE) {
        // The file system does not know the flag: check and rename are then two steps.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            if to.symlink_metadata().is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            std::fs::rename(from, to)
        }
        result => result,
    }
}

/// Exchanges the names of two paths, in one step; `None` if the file system cannot.
pub fn exchange(one: &Path, other: &Path) -> io::Result<Option<()>> {
    match rename_with(one, other, libc::RENAME_EXCHANGE) {
        Ok(()) => Ok(Some(())),
        // EXDEV: a directory in a lower layer of an overlay.
        Err(error) => match error.raw_os_error() {
            Some(libc::EINVAL | libc::ENOSYS | libc::EXDEV) => Ok(None),
            _ => Err(error),
        },
    }
}

fn rename_with(from: &Path, to: &Path, flags: libc::c_uint) -> io::Result<()> {
    let (from, to) = (c_path(from)?, c_path(to)?);
    // SAFETY: both are zero-terminated strings that live until the call returns.
    checked(unsafe {
        libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags)
    })
}

/// True if `path`, a file or a directory, is a mount point; false if the kernel is too old (below
/// 5.8) to report it.
pub fn is_mount_point(path: &Path) -> bool {
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty());
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// The first mount point strictly below `directory`; `None` if there is none, or if `/proc` does
/// not show mounts.
pub fn mount_below(directory: &Path) -> Option<PathBuf> {
    let directory = directory.canonicalize().ok()?;
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    mount_points(&mounts).find(|mount| *mount != directory && mount.starts_with(&directory))
}

/// Identity of a mount. Kernels below 5.8 do not number mounts: there, two mounts of one file
/// system are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount {
    device: (u32, u32),
    number: Option<u64>,
}

/// The mount of `held`.
pub fn mount_of(held: BorrowedFd<'_>) -> io::Result<Mount> {
    let found = statx(held, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    let is_numbered = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID);
    Ok(Mount {
        device: (found.stx_dev_major, found.stx_dev_minor),
        number: is_numbered.then_some(found.stx_mnt_id),
    })
}

/// Holds a directory open, so that it stays the same one; it may be unreadable.
///
/// Errors: a symbolic link, or anything else that is not a directory.
pub fn hold_directory(within: BorrowedFd<'_>, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(within, name, flags, Mode::empty())?)
}

/// Entries of a directory from [`hold_directory`].
pub fn entries(held: BorrowedFd<'_>) -> io::Result<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(Dir::new(openat(held, c".", flags, Mode::empty())?)?)
}

/// True if `path` is in an overlay, as the files of a container image are.
pub fn is_in_overlay(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.f_type == libc::OVERLAYFS_SUPER_MAGIC)
}

/// Bytes that this user may still write to the file system of `path`; `None` for file systems that
/// do not report it, such as ramfs and some network file systems, which give their size as 0.
pub fn free_bytes(path: &Path) -> io::Result<Option<u64>> {
    let path = c_path(path)?;
    // SAFETY: all fields of a statvfs are plain numbers, so all zeros are valid.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the string is zero-terminated, and the kernel writes one statvfs into one that lives
    // here.
    checked(unsafe { libc::statvfs(path.as_ptr(), &raw mut found) })?;
    Ok((found.f_blocks > 0).then(|| found.f_bavail.saturating_mul(found.f_frsize)))
}

/// Writes all data of the file system of `file` to its disk.
pub fn sync_file_system(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `file`.
    checked(unsafe { libc::syncfs(file.as_raw_fd()) })
}

/// Sets the modification time of a symbolic link itself.
pub fn set_link_mtime(path: &Path, mtime_s: i64, mtime_ns: u32) -> io::Result<()> {
    let path = c_path(path)?;
    let keep = libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT };
    let change = libc::timespec { tv_sec: mtime_s, tv_nsec: mtime_ns.into() };
    let times = [keep, change];
    // SAFETY: the string is zero-terminated, and the kernel reads two timespecs.
    checked(unsafe {
        libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), libc::AT_SYMLINK_NOFOLLOW)
    })
}

/// Closes `file`.
///
/// Errors: data written through it are lost (a full disk, a quota), which network file systems and
/// FUSE may report only now.
pub fn close(file: File) -> io::Result<()> {
    // An NFS client with a delegation writes after the close, when errors can no longer be
    // reported.
    if fstatfs(&file).is_ok_and(|found| found.f_type == libc::NFS_SUPER_MAGIC) {
        file.sync_data()?;
    }
    // SAFETY: the descriptor belonged to `file`, which has given it up.
    checked(unsafe { libc::close(file.into_raw_fd()) })
}

/// Drops the pages of `file` that are on disk from the page cache, so that reading it again reads
/// the disk. A hint: if it is ignored, the cache is read.
pub fn forget_cached(file: &File) {
    // SAFETY: the descriptor is open as long as `file`; no memory is passed.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

/// Start and end of the next data of `file` at or after `from`; `None` if only a hole follows.
///
/// A file system without holes reports everything as data.
pub fn next_data(file: &File, from: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    let seek = |at: u64, whence| {
        let at = at.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: the descriptor is open as long as `file`; no memory is passed.
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
