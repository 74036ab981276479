//! Data of all ranks at one of them, or at all; data of one rank or of all, a part to each.
//!
//! Cost for N ranks with B bytes each: gather and scatter N - 1 messages of B bytes, or, of short
//! parts in jobs of many ranks, of several parts on their way over a tree (`rows`); allgather of
//! few bytes, or of short parts, these and a broadcast, of more a broadcast of B bytes by each rank
//! where there is multicast, so that every byte leaves its rank once, else, and of long parts over
//! slow links, N - 1 steps around a ring; all-to-all N (N - 1) messages.

use crate::bcast::Bcast;
use crate::collective::Collective;
use crate::communicator::{Bytes, Communicator, Purpose};
use crate::compare::Call;
use crate::error::Error;
use crate::pairwise::steps_at_once;
use crate::reduce::MEETING_RANK;
use crate::ring::Around;
use crate::rows::{FLAT_RANKS_MAX, PART_BYTES_MAX};
use crate::under_way::UnderWay;
use std::ops::Range;

/// Up to so many bytes of all ranks together, an allgather meets at one rank; up to more where
/// cores are what is waited for, which have to pass fewer packets on then; and, whatever they come
/// to, that of parts so short that they cost messages rather than bytes.
const MEETING_BYTES_MAX: usize = 64 << 10;
const CROWDED_MEETING_BYTES_MAX: usize = 512 << 10;
/// Broadcasts of an allgather under way at once: as many as come to so many bytes, within bounds.
/// All of them meet at every receiver's link and socket, whose queues take about so much.
const BROADCASTS_MIN: usize = 2;
const BROADCASTS_MAX: usize = 64;
const BROADCAST_BYTES_MAX: usize = 512 << 10;

/// Refuses memory that is not one part of `each` bytes per rank.
fn check_memory(name: &'static str, bytes: usize, ranks: u32, each: usize) -> Result<(), Error> {
    match each.saturating_mul(ranks as usize) {
        expected if expected == bytes => Ok(()),
        expected => Err(Error::Length { name, bytes, expected }),
    }
}

/// Bytes of each of the equal parts of memory, one per rank.
fn part_bytes(name: &'static str, bytes: usize, ranks: u32) -> Result<usize, Error> {
    match bytes.is_multiple_of(ranks as usize) {
        true => Ok(bytes / ranks as usize),
        false => Err(Error::UnequalParts { name, bytes, ranks }),
    }
}

impl Communicator {
    /// Brings every rank's `own` to `root`, into `all`, one after the other in order of ranks. All
    /// `own` are equally long. `all` is not looked at on other ranks, and may be empty there.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`], [`Error::Length`] if `all` of the root is not as long as all
    /// together, of which the others hear nothing, [`Error::PeerFailed`], [`Error::PeerLeft`],
    /// [`Error::CollectiveGivenUp`]. If the lengths of `own` differ, [`Error::Truncated`] or
    /// [`Error::LengthDiffers`] at one rank at least, which so gives it up.
    pub fn gather(&self, root: u32, own: &[u8], all: &mut [u8]) -> Result<(), Error> {
        self.check_rank(root)?;
        self.begin(Call::of(Collective::Gather).with_bytes(own.len()).with_root(root))?;
        self.undertake(Collective::Gather, || self.gather_at(root, own, all))
    }

    fn gather_at(&self, root: u32, own: &[u8], all: &mut [u8]) -> Result<(), Error> {
        let each = own.len();
        if self.rank() == root {
            if let Err(error) = check_memory("all", all.len(), self.size(), each) {
                // What the others send must not be taken for that of the next call.
                let mut room = vec![0; self.size() as usize * each];
                return self.gather_at(root, own, &mut room).and(Err(error));
            }
            all[self.rank() as usize * each..][..each].copy_from_slice(own);
        }
        let all = Bytes::of_mut(all);
        // SAFETY: parts are disjoint, and only the root's are looked at.
        unsafe { self.gather_equal(root, Bytes::of(own), |rank| all.part_of(rank, each)) }
    }

    /// Brings every rank's `own`, all equally long, to all, into `all`, one after the other in
    /// order of ranks.
    ///
    /// # Errors
    /// As [`Self::gather`]; a rank whose `all` has a wrong length leaves the others waiting until
    /// it calls again, or leaves.
    pub fn allgather(&self, own: &[u8], all: &mut [u8]) -> Result<(), Error> {
        check_memory("all", all.len(), self.size(), own.len())?;
        all[self.rank() as usize * own.len()..][..own.len()].copy_from_slice(own);
        self.allgather_in_place(all)
    }

    /// As [`Self::allgather`], of parts that are in their places in `all` already.
    ///
    /// # Errors
    /// As [`Self::allgather`], with [`Error::UnequalParts`] in place of [`Error::Length`].
    pub fn allgather_in_place(&self, all: &mut [u8]) -> Result<(), Error> {
        let each = part_bytes("all", all.len(), self.size())?;
        self.begin(Call::of(Collective::Allgather).with_bytes(each))?;
        self.undertake(Collective::Allgather, || self.allgather_parts(all, each))
    }

    /// Brings each rank's part of `all`, of so many bytes, to all.
    fn allgather_parts(&self, all: &mut [u8], each: usize) -> Result<(), Error> {
        let meeting_bytes_max = match self.waits_for_cores() {
            true => CROWDED_MEETING_BYTES_MAX,
            false => MEETING_BYTES_MAX,
        };
        let parts = Bytes::of_mut(all);
        if parts.length <= meeting_bytes_max || each <= PART_BYTES_MAX {
            let own = parts.part_of(self.rank(), each);
            // SAFETY: parts are disjoint, and the caller's until this returns.
            unsafe { self.gather_equal(MEETING_RANK, own, |rank| parts.part_of(rank, each))? };
            return self.broadcast(MEETING_RANK, all, self.usual_bcast(all.len()));
        }
        let range = |rank: u32| rank as usize * each..(rank as usize + 1) * each;
        // SAFETY: waited for, or given up, before the memory goes back.
        unsafe { self.begin_allgather(parts, range)? }.wait_until_left(0)
    }

    /// Brings to every rank its part of the `root`'s `all`, where they lie one after the other in
    /// order of ranks. All `own` are equally long. `all` is not looked at on other ranks, and may
    /// be empty there.
    ///
    /// # Errors
    /// As [`Self::gather`]; if `all` has a wrong length, [`Error::LengthDiffers`] at the others.
    pub fn scatter(&self, root: u32, all: &[u8], own: &mut [u8]) -> Result<(), Error> {
        self.check_rank(root)?;
        self.begin(Call::of(Collective::Scatter).with_bytes(own.len()).with_root(root))?;
        self.undertake(Collective::Scatter, || self.scatter_from(root, all, own))
    }

    fn scatter_from(&self, root: u32, all: &[u8], own: &mut [u8]) -> Result<(), Error> {
        let each = own.len();
        if self.has_rows(each) {
            let checked = match self.rank() == root {
                true => check_memory("all", all.len(), self.size(), each),
                false => Ok(()),
            };
            let (all, own) = (checked.map(|()| Bytes::of(all)), Bytes::of_mut(own));
            // SAFETY: both are the caller's until this returns.
            return unsafe { self.scatter_rows(root, all, own) };
        }
        if self.rank() != root {
            let mut receive = UnderWay::new(self);
            let room = Bytes::of_mut(own);
            // SAFETY: waited for at once.
            unsafe { receive.receive(root, Purpose::Scatter, room)? };
            return receive.wait_for(each);
        }
        let checked = check_memory("all", all.len(), self.size(), each);
        // Without its parts the others get nothing, so that nobody waits.
        let (all, each) = match checked {
            Ok(()) => (Bytes::of(all), each),
            Err(_) => (Bytes::of(&[]), 0),
        };
        let mut sends = UnderWay::new(self);
        for rank in (0..self.size()).filter(|rank| *rank != root) {
            // SAFETY: waited for, or given up, before this returns.
            unsafe { sends.send(rank, Purpose::Scatter, all.part_of(rank, each))? };
        }
        if checked.is_ok() {
            // SAFETY: only read.
            own.copy_from_slice(unsafe { all.part_of(root, each).as_slice() });
        }
        sends.wait_until_left(0).and(checked)
    }

    /// Brings part r of every rank's `data` to rank r, into `buffer`, one after the other in order
    /// of the ranks that sent them. All parts are equally long.
    ///
    /// # Errors
    /// [`Error::UnequalParts`] if `data` cannot be parted, [`Error::Length`] if `buffer` is not as
    /// long; else as [`Self::gather`].
    pub fn alltoall(&self, data: &[u8], buffer: &mut [u8]) -> Result<(), Error> {
        let each = part_bytes("data", data.len(), self.size())?;
        check_memory("buffer", buffer.len(), self.size(), each)?;
        self.begin(Call::of(Collective::Alltoall).with_bytes(data.len()))?;
        let own = self.rank() as usize * each..(self.rank() as usize + 1) * each;
        buffer[own.clone()].copy_from_slice(&data[own]);
        let (data, buffer) = (Bytes::of(data), Bytes::of_mut(buffer));
        let at_once = steps_at_once(each.max(1));
        let (outgoing, room) = (|to| data.part_of(to, each), |_, from| buffer.part_of(from, each));
        self.undertake(Collective::Alltoall, || {
            // SAFETY: parts are disjoint, and the caller's until this returns.
            unsafe { self.exchange_pairwise(Purpose::AllToAll, at_once, outgoing, room, |_| {}) }
        })
    }

    /// As [`Self::gather_parts`], of parts that are all equally long.
    ///
    /// # Safety
    /// As for [`Self::gather_parts`].
    pub(crate) unsafe fn gather_equal(
        &self,
        root: u32,
        own: Bytes,
        part: impl Fn(u32) -> Bytes,
    ) -> Result<(), Error> {
        // SAFETY: promised by the caller.
        unsafe {
            match self.has_rows(own.length) {
                true => self.gather_rows(root, own, part),
                false => self.gather_parts(root, own, part),
            }
        }
    }

    /// Brings `own` of each rank but the root to `part(rank)` at the root.
    ///
    /// # Safety
    /// `own` must not change, and the parts be valid at the root, disjoint, and used by nobody
    /// else, until this returns.
    pub(crate) unsafe fn gather_parts(
        &self,
        root: u32,
        own: Bytes,
        part: impl Fn(u32) -> Bytes,
    ) -> Result<(), Error> {
        // All of many at once would overrun the root: each sends when it is called.
        let is_called = self.size() > FLAT_RANKS_MAX;
        let nothing = Bytes::of(&[]);
        let mut under_way = UnderWay::new(self);
        if self.rank() != root {
            if is_called {
                // SAFETY: there is no memory.
                unsafe { under_way.receive(root, Purpose::Gather, nothing)? };
                under_way.wait_for(0)?;
            }
            // SAFETY: promised by the caller; waited for at once.
            unsafe { under_way.send(root, Purpose::Gather, own)? };
            return under_way.wait_until_left(0);
        }
        let others = || (0..self.size()).filter(|rank| *rank != root);
        let mut calls = UnderWay::new(self);
        let mut next = others();
        for rank in others() {
            // Long messages wait for their receives: not all may come at once.
            let at_once = steps_at_once(part(rank).length.max(1));
            for coming in next.by_ref().take(at_once - under_way.len().min(at_once)) {
                // SAFETY: promised by the caller; waited for, or given up, before this returns.
                unsafe { under_way.receive(coming, Purpose::Gather, part(coming))? };
                if is_called {
                    // SAFETY: there is no memory.
                    unsafe { calls.send(coming, Purpose::Gather, nothing)? };
                }
            }
            under_way.wait_for(part(rank).length)?;
        }
        calls.wait_until_left(0)
    }

    /// Brings the range of each rank, which that rank has, to all; what is not over yet.
    ///
    /// # Safety
    /// Nobody else may use the ranges of `data` until what is returned has ended or was dropped.
    pub(crate) unsafe fn begin_allgather(
        &self,
        data: Bytes,
        range: impl Fn(u32) -> Range<usize>,
    ) -> Result<UnderWay<'_>, Error> {
        let part = |rank| data.part(range(rank));
        let mut under_way = UnderWay::new(self);
        let longest = (0..self.size()).map(|rank| part(rank).length).max().unwrap_or(0);
        let algorithm = self.usual_bcast(longest);
        let has_no_group = !self.has_multicast() || !matches!(algorithm, Bcast::Multicast(_));
        if has_no_group || self.passes_around(longest) {
            // SAFETY: promised by the caller.
            unsafe { self.pass_around(data, range, Around::Gather)? };
            return Ok(under_way);
        }
        for root in (0..self.size()).filter(|root| part(*root).length > 0) {
            let fitting = BROADCAST_BYTES_MAX / part(root).length;
            let at_once = fitting.clamp(BROADCASTS_MIN, BROADCASTS_MAX);
            under_way.wait_until_left(at_once - 1)?;
            // SAFETY: promised by the caller.
            under_way.push_begun(unsafe { self.begin_bcast(root, part(root), algorithm)? });
        }
        Ok(under_way)
    }
}
