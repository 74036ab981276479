//! A rank's segment: shared memory for all packets that its neighbours send to it.
//!
//! It is an anonymous file in memory (`memfd`), so it has no name and vanishes with the last
//! process that holds it, however that process ends. It is sealed against changes of its length: a
//! neighbour that maps it after checking the seals can never access a page that has been removed.

use super::layout::Layout;
use super::map::RingMap;
use crate::file_size;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat};
use rustix::fs::{ftruncate, memfd_create};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The segment that this rank reads from, or another rank's that it writes to.
pub(super) struct Segment {
    fd: OwnedFd,
    layout: Layout,
}

impl Segment {
    /// Creates an empty segment. Pages cost nothing before they are written to.
    pub(super) fn create(layout: Layout) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = match memfd_create("omnes-ring", flags | MemfdFlags::NOEXEC_SEAL) {
            // A kernel before 6.3 does not know the last flag.
            Err(Errno::INVAL) => memfd_create("omnes-ring", flags)?,
            other => other?,
        };
        file_size::check(layout.segment_bytes())?;
        ftruncate(&fd, layout.segment_bytes())?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Self { fd, layout })
    }

    /// Opens another rank's segment, if it is as its owner says.
    ///
    /// # Errors
    /// `InvalidData` if it may shrink, or is shorter than `layout` requires.
    pub(super) fn adopt(fd: OwnedFd, layout: Layout) -> io::Result<Self> {
        let is_fixed = fcntl_get_seals(&fd)?.contains(SealFlags::SHRINK);
        let bytes = u64::try_from(fstat(&fd)?.st_size).unwrap_or(0);
        if is_fixed && bytes >= layout.segment_bytes() {
            Ok(Self { fd, layout })
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn ring(&self, index: u32) -> io::Result<RingMap> {
        RingMap::open(self.fd(), &self.layout, index)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn layout() -> Layout {
        Layout::new(1 << 16, 2).unwrap()
    }

    #[test]
    fn segment_cannot_be_resized() {
        let segment = Segment::create(layout()).unwrap();
        assert_eq!(ftruncate(segment.fd(), 0), Err(Errno::PERM));
        assert_eq!(ftruncate(segment.fd(), 1 << 30), Err(Errno::PERM));
    }

    #[test]
    fn segment_that_is_unsealed_or_too_short_is_rejected() {
        let loose = memfd_create("loose", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&loose, layout().segment_bytes()).unwrap();
        assert!(Segment::adopt(loose, layout()).is_err());
        let short = Segment::create(layout()).unwrap();
        let longer = Layout::new(1 << 16, 3).unwrap();
        assert!(Segment::adopt(short.fd, longer).is_err());
        let whole = Segment::create(layout()).unwrap();
        assert!(Segment::adopt(whole.fd, layout()).is_ok());
        assert!(
            Segment::adopt(std::fs::File::open("Cargo.toml").unwrap().into(), layout()).is_err()
        );
    }
}
