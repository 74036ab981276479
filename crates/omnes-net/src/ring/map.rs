//! Parts of a segment in this process's memory: the board, and rings whose records never wrap.
//!
//! The records of a ring are mapped twice, contiguously, as in the kernel's own BPF ring buffer: a
//! record that extends beyond the end continues at the beginning by itself, so packets are
//! contiguous and no branch has to check for the end.
//!
//! All `unsafe` on shared memory is here, in `writer` and in `reader`. It is sound because the
//! segment is sealed against shrinking, so mapped memory remains valid; positions and lengths are
//! atomics, read once and checked before they are used; and the bytes of packets are only copied.
//!
//! The memory ordering between the two ends of a ring is checked by Miri on memory without a file
//! (`order_tests`).

#[cfg(test)]
use super::layout::page_bytes;
use super::layout::{HEAD_OFFSET, Layout, SLEEPING_OFFSET, TAIL_OFFSET};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A range of this process's memory. Clones share the range, which is unmapped with the last.
#[derive(Clone)]
struct Mapping {
    base: NonNull<u8>,
    room: Arc<Room>,
}

struct Room {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: shared memory belongs to no thread; it is accessed only as atomics, and as bytes that
// `writer` and `reader` give out under the borrow rules.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}
// SAFETY: as above.
unsafe impl Send for Room {}
// SAFETY: as above.
unsafe impl Sync for Room {}

/// Read and write access, as all parts are mapped.
fn access() -> ProtFlags {
    ProtFlags::READ | ProtFlags::WRITE
}

impl Mapping {
    /// Reserves `bytes` bytes of address space, without memory behind it.
    fn reserve(bytes: usize) -> io::Result<Self> {
        Self::anonymous(bytes, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)
    }

    fn anonymous(bytes: usize, access: ProtFlags, flags: MapFlags) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { mmap_anonymous(null_mut(), bytes, access, flags)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, room: Arc::new(Room { base, bytes }) })
    }

    /// Maps `bytes` bytes of the file, from `offset`, at distance `at` from the start.
    fn place(&self, at: usize, bytes: usize, fd: BorrowedFd<'_>, offset: u64) -> io::Result<()> {
        assert!(at + bytes <= self.room.bytes, "a part beyond the room that was reserved");
        // SAFETY: inside the range reserved by this value, which no other code uses yet.
        unsafe {
            let address = self.base.as_ptr().add(at).cast();
            mmap(address, bytes, access(), MapFlags::SHARED | MapFlags::FIXED, fd, offset)?;
        }
        Ok(())
    }

    /// Excludes the memory from forked child processes, which would keep it after this process
    /// ends.
    fn keep_from_children(self) -> Self {
        // SAFETY: the range is this value's own; only the effect of `fork` on it changes. If an old
        // kernel refuses, nothing is lost.
        let _ =
            unsafe { madvise(self.base.as_ptr().cast(), self.room.bytes, Advice::LinuxDontFork) };
        self
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: the range is this value's own, and all borrows of it have ended.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The part of a segment by which its owner informs all its senders.
#[cfg_attr(test, derive(Clone))]
pub(super) struct BoardMap(Mapping);

impl BoardMap {
    pub(super) fn open(fd: BorrowedFd<'_>, layout: &Layout) -> io::Result<Self> {
        let mapping = Mapping::reserve(layout.page_bytes())?;
        mapping.place(0, layout.page_bytes(), fd, 0)?;
        Ok(Self(mapping.keep_from_children()))
    }

    /// A board without a file, for threads that share clones of it.
    #[cfg(test)]
    pub(super) fn private() -> io::Result<Self> {
        Mapping::anonymous(page_bytes(), access(), MapFlags::PRIVATE).map(Self)
    }

    /// 1 while the owner sleeps and wants to be woken.
    pub(super) fn sleeping(&self) -> &AtomicU32 {
        // SAFETY: inside the page, aligned, and never accessed except as an atomic.
        unsafe { &*self.0.base.as_ptr().add(SLEEPING_OFFSET).cast::<AtomicU32>() }
    }
}

/// One ring, its records mapped twice.
#[cfg_attr(test, derive(Clone))]
pub(super) struct RingMap {
    mapping: Mapping,
    page_bytes: usize,
    capacity_bytes: usize,
}

impl RingMap {
    /// Maps ring `index` of a segment that has been checked to be as large as `layout` says.
    pub(super) fn open(fd: BorrowedFd<'_>, layout: &Layout, index: u32) -> io::Result<Self> {
        assert!(index < layout.rings(), "a ring that the segment does not have");
        let (page_bytes, capacity_bytes) = (layout.page_bytes(), layout.capacity_bytes());
        let offset = layout.ring_offset(index);
        let mapping = Mapping::reserve(page_bytes + 2 * capacity_bytes)?;
        mapping.place(0, page_bytes + capacity_bytes, fd, offset)?;
        let records = offset + page_bytes as u64;
        mapping.place(page_bytes + capacity_bytes, capacity_bytes, fd, records)?;
        Ok(Self { mapping: mapping.keep_from_children(), page_bytes, capacity_bytes })
    }

    /// A ring without a file, for threads that share clones of it. Data beyond the end are stored
    /// after the end, and not at the beginning as well: both ends find them there, by the position
    /// at which their record begins.
    #[cfg(test)]
    pub(super) fn private(capacity_bytes: usize) -> io::Result<Self> {
        let page_bytes = page_bytes();
        let bytes = page_bytes + 2 * capacity_bytes;
        let mapping = Mapping::anonymous(bytes, access(), MapFlags::PRIVATE)?;
        Ok(Self { mapping, page_bytes, capacity_bytes })
    }

    pub(super) fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    /// Position of the writer: bytes published so far.
    pub(super) fn tail(&self) -> &AtomicU64 {
        // SAFETY: inside the first page, aligned, and never accessed except as an atomic.
        unsafe { &*self.mapping.base.as_ptr().add(TAIL_OFFSET).cast::<AtomicU64>() }
    }

    /// Position of the reader: bytes freed so far.
    pub(super) fn head(&self) -> &AtomicU64 {
        // SAFETY: inside the first page, aligned, and never accessed except as an atomic.
        unsafe { &*self.mapping.base.as_ptr().add(HEAD_OFFSET).cast::<AtomicU64>() }
    }

    /// The first word of the record at `position`, a multiple of the records' alignment.
    pub(super) fn word(&self, position: u64) -> &AtomicU64 {
        // SAFETY: aligned, because positions are and records begin on a page; `at` is in the ring.
        unsafe { &*self.at(position).cast::<AtomicU64>().as_ptr() }
    }

    /// Address of `position`: `capacity_bytes` bytes from there may be accessed, for any position.
    pub(super) fn at(&self, position: u64) -> NonNull<u8> {
        let inside = position as usize & (self.capacity_bytes - 1);
        // SAFETY: below the capacity, after the page, in a mapping of a page and two capacities.
        unsafe { self.mapping.base.add(self.page_bytes + inside) }
    }
}
