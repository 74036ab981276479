//! Layout of a rank's segment: the board, then one ring per sender.
//!
//! ```text
//!   0              page           2 page                2 page + capacity
//!   board          ring 0         ring 0                ring 1
//!   sleeping word  tail │ head    `capacity` bytes      tail │ head          ...
//! ```
//!
//! Every part begins on a page, so that a sender maps the board and its own ring and nothing else.
//! A record in a ring is one word, the packet, and padding to a cache line:
//!
//! ```text
//!   stamp (32 bits)  length (32 bits)  packet ...  padding
//! ```
//!
//! The stamp is the number of the record's first cache line in the ring, counted from the start of
//! the job: a record with a different stamp was not written where the reader expects it.

/// Records begin on a cache line, so that writer and reader do not share one.
pub(super) const RECORD_ALIGN_BYTES: usize = 64;
/// Stamp and length.
pub(super) const RECORD_HEAD_BYTES: usize = 8;

/// Offset of the sleeping word from the start of the board.
pub(super) const SLEEPING_OFFSET: usize = 0;
/// Offset of the writer's position from the start of a ring.
pub(super) const TAIL_OFFSET: usize = 0;
/// Offset of the reader's position: far from the writer's, because processors fetch lines in pairs.
pub(super) const HEAD_OFFSET: usize = 128;

/// Size of the smallest ring, in bytes; a multiple of the page size of every machine.
pub const CAPACITY_BYTES_MIN: usize = 64 << 10;
/// Size of the largest ring, in bytes.
pub const CAPACITY_BYTES_MAX: usize = 16 << 20;
/// Maximum number of rings of one segment.
pub const RINGS_MAX: u32 = 4096;
// Sizes of segments fit the 64 bits of a file's size by far, and a ring's length its 32 bits.
const _: () = assert!(CAPACITY_BYTES_MAX as u64 * RINGS_MAX as u64 <= 1 << 40);
const _: () = assert!(CAPACITY_BYTES_MIN.is_multiple_of(RECORD_ALIGN_BYTES));

/// Bytes that a packet occupies in a ring.
pub(super) const fn record_bytes(packet_bytes: usize) -> usize {
    (RECORD_HEAD_BYTES + packet_bytes).next_multiple_of(RECORD_ALIGN_BYTES)
}

/// The stamp of a record at `position`.
pub(super) const fn stamp(position: u64) -> u32 {
    (position / RECORD_ALIGN_BYTES as u64) as u32
}

/// Size of a page in bytes, as libc knows it: valgrind hides the data that the kernel gives each
/// process, which rustix would ask.
pub(super) fn page_bytes() -> usize {
    // SAFETY: it reads a constant.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("every system has pages")
}

/// Sizes of a segment; checked, so that all arithmetic on them is safe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    page_bytes: usize,
    capacity_bytes: usize,
    rings: u32,
}

impl Layout {
    /// Layout of `rings` rings of `capacity_bytes` bytes each; `None` if the capacity is not a
    /// power of two in [`CAPACITY_BYTES_MIN`]`..=`[`CAPACITY_BYTES_MAX`] that consists of whole
    /// pages, or the number of rings is not in `1..=`[`RINGS_MAX`].
    pub fn new(capacity_bytes: usize, rings: u32) -> Option<Self> {
        let page_bytes = page_bytes();
        let is_valid = (CAPACITY_BYTES_MIN..=CAPACITY_BYTES_MAX).contains(&capacity_bytes)
            && capacity_bytes.is_power_of_two()
            && capacity_bytes.is_multiple_of(page_bytes)
            && (1..=RINGS_MAX).contains(&rings);
        is_valid.then_some(Self { page_bytes, capacity_bytes, rings })
    }

    /// Size in bytes of the board, and of the positions of a ring.
    pub(super) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Size in bytes of a ring's records.
    pub fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    /// Number of rings of the segment.
    pub fn rings(&self) -> u32 {
        self.rings
    }

    /// Size in bytes of the whole segment.
    pub(super) fn segment_bytes(&self) -> u64 {
        self.ring_offset(self.rings)
    }

    /// Offset of the first byte of ring `index`.
    pub(super) fn ring_offset(&self, index: u32) -> u64 {
        let ring = (self.page_bytes + self.capacity_bytes) as u64;
        self.page_bytes as u64 + u64::from(index) * ring
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn records_begin_on_cache_lines_and_hold_their_packet() {
        for (packet, record) in [(1, 64), (56, 64), (57, 128), (1480, 1536)] {
            assert_eq!(record_bytes(packet), record);
        }
    }

    #[test]
    fn invalid_layouts_are_rejected() {
        assert!(Layout::new(1 << 18, 3).is_some());
        for (capacity, rings) in
            [(0, 1), (4096, 1), (100_000, 1), (1 << 25, 1), (1 << 18, 0), (1 << 18, RINGS_MAX + 1)]
        {
            assert_eq!(Layout::new(capacity, rings), None, "{capacity} {rings}");
        }
    }

    #[test]
    fn rings_are_adjacent_and_page_aligned() {
        let layout = Layout::new(1 << 18, 3).unwrap();
        let page = layout.page_bytes() as u64;
        assert_eq!(layout.ring_offset(0), page);
        assert_eq!(layout.ring_offset(1), 2 * page + (1 << 18));
        assert_eq!(layout.segment_bytes(), 4 * page + 3 * (1 << 18));
        assert!((0..3).all(|index| layout.ring_offset(index).is_multiple_of(page)));
    }
}
