//! A slot's page, mapped into the member's process.

use crate::NicError;
use crate::mapping::Mapping;
use omnes_firmware::KERNEL_GROUP_MAX;
use omnes_firmware::slot::{Counters, Page as Layout};
use omnes_wire::CARRIED_MAX;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// What the firmware shows of a slot, and what the process requests of the firmware; see
/// [`omnes_firmware::slot::Page`].
pub struct Page(Mapping<Layout>);

// SAFETY: shared memory that is only accessed atomically.
unsafe impl Sync for Page {}

impl Page {
    /// Maps the page that a slot's map holds.
    ///
    /// # Errors
    /// [`NicError::System`] if the kernel refuses.
    pub fn map(map: BorrowedFd<'_>) -> Result<Self, NicError> {
        Mapping::of(map, "cannot map a slot's page").map(Self)
    }

    /// Newest barrier that is done.
    pub fn done(&self) -> u32 {
        // SAFETY: a field of the mapping.
        self.0.word(unsafe { &raw mut (*self.0.base()).done }).load(Ordering::Acquire)
    }

    /// The words of all members combined in barrier [`Self::done`], until the next one is entered;
    /// words beyond those that the members contributed are 0.
    pub fn results(&self) -> [u64; CARRIED_MAX] {
        // SAFETY: a field of the mapping.
        let words = unsafe { (&raw mut (*self.0.base()).results).cast::<u64>() };
        std::array::from_fn(|at| {
            // SAFETY: one of the array's words.
            unsafe { AtomicU64::from_ptr(words.add(at)) }.load(Ordering::Relaxed)
        })
    }

    /// Newest barrier that the firmware has seen this member enter.
    pub fn entered(&self) -> u32 {
        // SAFETY: as above.
        self.0.word(unsafe { &raw mut (*self.0.base()).entered }).load(Ordering::Acquire)
    }

    /// The waiting step while a barrier is in progress.
    pub fn at(&self) -> u32 {
        // SAFETY: as above.
        self.0.word(unsafe { &raw mut (*self.0.base()).at }).load(Ordering::Acquire)
    }

    /// Members that have arrived in barrier [`Self::entered`], if this member waits for everybody:
    /// a bit for each index of the group, from the lowest bit of the first word on. Otherwise
    /// zeros.
    pub fn arrived(&self) -> [u64; KERNEL_GROUP_MAX / 64] {
        // SAFETY: as above.
        let words = unsafe { (&raw mut (*self.0.base()).arrived).cast::<u64>() };
        std::array::from_fn(|at| {
            // SAFETY: one of the array's words.
            unsafe { AtomicU64::from_ptr(words.add(at)) }.load(Ordering::Relaxed)
        })
    }

    /// Number of members that have arrived, as [`Self::arrived`]; read at another time than the
    /// bits.
    pub fn arrived_count(&self) -> u32 {
        // SAFETY: a field of the mapping.
        self.0.word(unsafe { &raw mut (*self.0.base()).arrived_count }).load(Ordering::Relaxed)
    }

    /// Requests that the packet that ends a barrier be passed on, or no longer. The caller must
    /// check afterwards for a barrier that was done before the request is seen.
    pub fn set_sleeping(&self, sleeps: bool) {
        // SAFETY: as above.
        let word = self.0.word(unsafe { &raw mut (*self.0.base()).is_sleeping });
        word.store(sleeps.into(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// True if the lender has taken the slot back: no packet finds it any more.
    pub fn is_lost(&self) -> bool {
        self.lost().load(Ordering::Acquire) != 0
    }

    /// Marks the slot as taken back.
    pub(crate) fn set_lost(&self) {
        self.lost().store(1, Ordering::Release);
    }

    fn lost(&self) -> &AtomicU32 {
        // SAFETY: a field of the mapping.
        self.0.word(unsafe { &raw mut (*self.0.base()).is_lost })
    }

    /// Number of trains to all that the firmware has seen leave.
    pub fn sent_to_all(&self) -> u64 {
        // SAFETY: a field of the mapping.
        let field = unsafe { AtomicU64::from_ptr(&raw mut (*self.0.base()).sent_to_all) };
        field.load(Ordering::Relaxed)
    }

    /// Number of arriving trains that the firmware has seen, of those that this member forwards.
    pub fn arrived_for_all(&self) -> u64 {
        // SAFETY: as above.
        let field = unsafe { AtomicU64::from_ptr(&raw mut (*self.0.base()).arrived_for_all) };
        field.load(Ordering::Relaxed)
    }

    /// The firmware's counters.
    pub fn counters(&self) -> Counters {
        // SAFETY: as above.
        let field = |field: *mut u64| unsafe { AtomicU64::from_ptr(field) }.load(Ordering::Relaxed);
        let base = self.0.base();
        // SAFETY: fields of the mapping.
        unsafe {
            Counters {
                packets_in: field(&raw mut (*base).counters.packets_in),
                packets_out: field(&raw mut (*base).counters.packets_out),
                repeated: field(&raw mut (*base).counters.repeated),
                duplicates: field(&raw mut (*base).counters.duplicates),
                ignored: field(&raw mut (*base).counters.ignored),
                nonsense: field(&raw mut (*base).counters.nonsense),
                bad_tags: field(&raw mut (*base).counters.bad_tags),
                wakes: field(&raw mut (*base).counters.wakes),
                clones: field(&raw mut (*base).counters.clones),
                clone_failures: field(&raw mut (*base).counters.clone_failures),
            }
        }
    }
}
