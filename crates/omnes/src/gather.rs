//! Data of all ranks, brought to one of them or to all; data of one rank or of all, a part to each.
//!
//! Cost for N ranks with B bytes each: gather and scatter N - 1 messages of B bytes, or, for short
//! parts in jobs of many ranks, messages of several parts over a tree (`tree_gather`); allgather of
//! few bytes, or of short parts, a gather and a broadcast; of more bytes a broadcast of B bytes by
//! each rank if multicast works, so that every byte leaves its rank once; otherwise, and for long
//! parts over slow links, N - 1 steps around a ring; all-to-all N (N - 1) messages.
//!
//! Parts may have different lengths, including 0, if each rank knows the lengths that concern it: a
//! root that gathers or scatters all of them, the other ranks their own; in an allgather every rank
//! all; in an all-to-all each rank those of the parts that it sends and receives. Parts of a root's
//! gather or scatter then travel separately, because no rank in between could separate them.

use crate::bcast::BcastAlgorithm;
use crate::collective::Collective;
use crate::communicator::{Bytes, Communicator, Purpose, check_length};
use crate::compare::Call;
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::pairwise::{may_be_at_once, steps_at_once};
use crate::parts::Parts;
use crate::reduce::MEETING_RANK;
use crate::ring::Around;
use crate::tree_gather::{FLAT_RANKS_MAX, PART_BYTES_MAX};
use std::ops::Range;

/// Up to this size of all ranks' data together, an allgather gathers at one rank; up to a larger
/// one if cores are the bottleneck, because cores then have to forward fewer packets; and at any
/// size if the parts are so short that messages cost more than bytes.
const MEETING_BYTES_MAX: usize = 64 << 10;
const CROWDED_MEETING_BYTES_MAX: usize = 512 << 10;
/// Broadcasts of an allgather in progress at the same time: as many as amount to this number of
/// bytes, within bounds. All of them meet at every receiver's link and socket, whose queues hold
/// about as much.
const BROADCASTS_MIN: usize = 2;
const BROADCASTS_MAX: usize = 64;
const BROADCAST_BYTES_MAX: usize = 512 << 10;

/// Parts are even if the longest is at most this many times the average.
const EVEN_MAX: usize = 2;

/// Equal parts of a buffer, one per rank.
pub(crate) fn equal_parts(name: &'static str, bytes: usize, ranks: u32) -> Result<Parts, Error> {
    if bytes.is_multiple_of(ranks as usize) {
        Ok(Parts::equal(bytes / ranks as usize, ranks))
    } else {
        Err(Error::NotDivisible { name, bytes, ranks })
    }
}

/// Empty memory: that of a message without bytes.
pub(crate) fn nothing() -> Bytes {
    Bytes::of(&[])
}

impl Communicator {
    /// The parts of `all` bytes according to the caller's `lengths`; this rank's own part must have
    /// `own` bytes.
    pub(crate) fn parts_of(
        &self,
        all: usize,
        lengths: &[usize],
        own: usize,
    ) -> Result<Parts, Error> {
        let parts = Parts::varied("lengths", lengths, self.size())?;
        parts.check_memory("all", all)?;
        check_length(own as u64, parts.length(self.rank()))?;
        Ok(parts)
    }

    /// Gathers every rank's `own` into the root's `all`, concatenated in order of ranks. `own` must
    /// have the same length on all ranks. `all` is ignored on other ranks, and may be empty there.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`]; [`Error::BufferLength`] if the root's `all` does not have the
    /// length of all parts together, which the other ranks do not notice; [`Error::PeerFailed`],
    /// [`Error::PeerLeft`], [`Error::CollectivesBroken`].
    ///
    /// If the lengths of `own` differ between ranks, usually at least one rank gets
    /// [`Error::Truncated`] or [`Error::LengthMismatch`], which ends the collectives of this
    /// communicator. But short and long parts use different algorithms, so ranks may also block
    /// until one leaves. With [`Config::compare_calls`](crate::Config::compare_calls) it is
    /// [`Error::CallMismatch`].
    pub fn gather(&self, root: u32, own: &[u8], all: &mut [u8]) -> Result<(), Error> {
        self.check_rank(root)?;
        self.begin(Call::of(Collective::Gather).with_bytes(own.len()).with_root(root))?;
        self.run_collective(Collective::Gather, || self.gather_at(root, own, all))
    }

    fn gather_at(&self, root: u32, own: &[u8], all: &mut [u8]) -> Result<(), Error> {
        let parts = Parts::equal(own.len(), self.size());
        if self.rank() == root {
            match parts.check_memory("all", all.len()) {
                Ok(()) => {}
                Err(refused) if !self.has_rows(own.len()) => {
                    return Err(self.gather_nothing(refused));
                }
                Err(refused) => {
                    // Rows are received as a whole; their parts are short.
                    let mut room = vec![0; parts.bytes()];
                    return self.gather_at(root, own, &mut room).and(Err(refused));
                }
            }
            all[parts.range(root)].copy_from_slice(own);
        }
        let all = Bytes::of_mut(all);
        let part = |rank| all.part(parts.range(rank));
        // SAFETY: parts are disjoint, and only accessed at the root.
        unsafe { self.gather_known(root, Bytes::of(own), &parts, part) }
    }

    /// As [`Self::gather`], but parts may have different lengths, including 0: `lengths` has those
    /// of all ranks in bytes, in order of ranks. `all` and `lengths` are ignored on ranks other
    /// than the root, and may be empty there.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`], [`Error::PeerFailed`], [`Error::PeerLeft`],
    /// [`Error::CollectivesBroken`].
    ///
    /// Only at the root, which the other ranks do not notice: [`Error::LengthsCount`];
    /// [`Error::BufferLength`] if `all` does not have the sum of the `lengths`;
    /// [`Error::Truncated`] or [`Error::LengthMismatch`] if an `own` does not have its length,
    /// after which the contents of `all` are undefined.
    pub fn gatherv(
        &self,
        root: u32,
        own: &[u8],
        all: &mut [u8],
        lengths: &[usize],
    ) -> Result<(), Error> {
        self.check_rank(root)?;
        self.begin(Call::of(Collective::Gatherv).with_root(root))?;
        self.run_collective(Collective::Gatherv, || {
            if self.rank() == root {
                self.gatherv_here(own, all, lengths)
            } else {
                // SAFETY: only the root receives anything.
                unsafe { self.gather_parts(root, Bytes::of(own), |_| nothing()) }
            }
        })
    }

    /// The root's part in [`Self::gatherv`].
    fn gatherv_here(&self, own: &[u8], all: &mut [u8], lengths: &[usize]) -> Result<(), Error> {
        let me = self.rank();
        match self.parts_of(all.len(), lengths, own.len()) {
            Ok(parts) => {
                all[parts.range(me)].copy_from_slice(own);
                let all = Bytes::of_mut(all);
                let part = |rank| all.part(parts.range(rank));
                // SAFETY: parts are disjoint, and belong to the caller until this returns.
                unsafe { self.gather_parts(me, Bytes::of(own), part) }
            }
            Err(refused) => Err(self.gather_nothing(refused)),
        }
    }

    /// The root's part in a gather of separate parts if it has rejected its own arguments: data
    /// that the others send must not be taken for those of the next call.
    fn gather_nothing(&self, refused: Error) -> Error {
        // SAFETY: no memory is accessed.
        match unsafe { self.gather_parts(self.rank(), nothing(), |_| nothing()) } {
            Err(error) if !error.is_of_length() => error,
            _ => refused,
        }
    }

    /// Gathers every rank's `own` into `all` on all ranks, concatenated in order of ranks. `own`
    /// must have the same length on all ranks.
    ///
    /// # Errors
    /// As [`Self::gather`]. If `all` of a rank has a wrong length, the others keep waiting until
    /// that rank calls again or leaves.
    pub fn allgather(&self, own: &[u8], all: &mut [u8]) -> Result<(), Error> {
        let parts = Parts::equal(own.len(), self.size());
        parts.check_memory("all", all.len())?;
        all[parts.range(self.rank())].copy_from_slice(own);
        self.allgather_in_place(all)
    }

    /// As [`Self::allgather`], but each rank's part is already in its place in `all`.
    ///
    /// # Errors
    /// As [`Self::allgather`], with [`Error::NotDivisible`] instead of [`Error::BufferLength`].
    pub fn allgather_in_place(&self, all: &mut [u8]) -> Result<(), Error> {
        let parts = equal_parts("all", all.len(), self.size())?;
        self.begin(Call::of(Collective::Allgather).with_bytes(parts.longest()))?;
        self.run_collective(Collective::Allgather, || self.allgather_parts(all, &parts))
    }

    /// As [`Self::allgather`], but parts may have different lengths, including 0: `lengths` has
    /// those of all ranks in bytes, in order of ranks, and is the same on all of them.
    ///
    /// # Errors
    /// As [`Self::allgather`], and [`Error::LengthsCount`]. A rank whose `own` is not as long as
    /// `lengths` says gets [`Error::LengthMismatch`], and the others keep waiting. If `lengths`
    /// differ between ranks: as with [`Self::allgather`] or, if their sums are equal, bytes in
    /// wrong places.
    pub fn allgatherv(&self, own: &[u8], all: &mut [u8], lengths: &[usize]) -> Result<(), Error> {
        let parts = self.parts_of(all.len(), lengths, own.len())?;
        all[parts.range(self.rank())].copy_from_slice(own);
        self.allgatherv_in_place(all, lengths)
    }

    /// As [`Self::allgatherv`], but each rank's part is already in its place in `all`.
    ///
    /// # Errors
    /// As [`Self::allgatherv`].
    pub fn allgatherv_in_place(&self, all: &mut [u8], lengths: &[usize]) -> Result<(), Error> {
        let parts = Parts::varied("lengths", lengths, self.size())?;
        parts.check_memory("all", all.len())?;
        self.begin(Call::of(Collective::Allgatherv).with_lengths(lengths))?;
        self.run_collective(Collective::Allgatherv, || self.allgather_parts(all, &parts))
    }

    /// Distributes each rank's part of `all` to all ranks.
    pub(crate) fn allgather_parts(&self, all: &mut [u8], parts: &Parts) -> Result<(), Error> {
        let meeting_bytes_max =
            if self.waits_for_cores() { CROWDED_MEETING_BYTES_MAX } else { MEETING_BYTES_MAX };
        let data = Bytes::of_mut(all);
        if data.length <= meeting_bytes_max || parts.longest() <= PART_BYTES_MAX {
            let part = |rank| data.part(parts.range(rank));
            // SAFETY: parts are disjoint, and belong to the caller until this returns.
            unsafe { self.gather_known(MEETING_RANK, part(self.rank()), parts, part)? };
            return self.broadcast(MEETING_RANK, all, self.usual_bcast(all.len()));
        }
        // SAFETY: waited for, or given up, before the caller regains the memory.
        unsafe { self.begin_allgather(data, |rank| parts.range(rank))? }.wait_until_left(0)
    }

    /// Sends each rank its part of the root's `all`, in which parts are contiguous in order of
    /// ranks, into `own`. `own` must have the same length on all ranks. `all` is ignored on other
    /// ranks, and may be empty there.
    ///
    /// # Errors
    /// As [`Self::gather`]; if `all` has a wrong length, the other ranks get
    /// [`Error::LengthMismatch`].
    pub fn scatter(&self, root: u32, all: &[u8], own: &mut [u8]) -> Result<(), Error> {
        self.check_rank(root)?;
        self.begin(Call::of(Collective::Scatter).with_bytes(own.len()).with_root(root))?;
        self.run_collective(Collective::Scatter, || self.scatter_from(root, all, own))
    }

    fn scatter_from(&self, root: u32, all: &[u8], own: &mut [u8]) -> Result<(), Error> {
        let parts = Parts::equal(own.len(), self.size());
        let (is_root, has_rows) = (self.rank() == root, self.has_rows(own.len()));
        let checked = if is_root { parts.check_memory("all", all.len()) } else { Ok(()) };
        match (has_rows, is_root) {
            (true, _) => {
                let (all, own) = (checked.map(|()| Bytes::of(all)), Bytes::of_mut(own));
                // SAFETY: both belong to the caller until this returns.
                unsafe { self.scatter_rows(root, all, own) }
            }
            (false, true) => self.scatter_parts(checked.map(|()| parts), all, own),
            (false, false) => self.receive_part(root, own),
        }
    }

    /// As [`Self::scatter`], but parts may have different lengths, including 0: `lengths` has those
    /// of all ranks in bytes, in order of ranks. `all` and `lengths` are ignored on ranks other
    /// than the root, and may be empty there.
    ///
    /// # Errors
    /// [`Error::RankOutOfRange`], [`Error::PeerFailed`], [`Error::PeerLeft`],
    /// [`Error::CollectivesBroken`].
    ///
    /// At the root: [`Error::LengthsCount`]; [`Error::BufferLength`] if `all`, or
    /// [`Error::LengthMismatch`] if its `own`, is not as long as `lengths` says; the others then
    /// receive no data. At a rank whose `own` is not as long as the part that it receives:
    /// [`Error::Truncated`] or [`Error::LengthMismatch`], which the other ranks do not notice.
    pub fn scatterv(
        &self,
        root: u32,
        all: &[u8],
        lengths: &[usize],
        own: &mut [u8],
    ) -> Result<(), Error> {
        self.check_rank(root)?;
        self.begin(Call::of(Collective::Scatterv).with_root(root))?;
        self.run_collective(Collective::Scatterv, || {
            if self.rank() == root {
                self.scatter_parts(self.parts_of(all.len(), lengths, own.len()), all, own)
            } else {
                self.receive_part(root, own)
            }
        })
    }

    /// Sends the parts of `all` from this rank separately; without valid parts, sends an empty
    /// message to each rank, so that none waits.
    fn scatter_parts(
        &self,
        parts: Result<Parts, Error>,
        all: &[u8],
        own: &mut [u8],
    ) -> Result<(), Error> {
        let me = self.rank();
        let part = |rank| match &parts {
            Ok(parts) => Bytes::of(&all[parts.range(rank)]),
            Err(_) => nothing(),
        };
        let mut sends = InFlight::new(self);
        for rank in (0..self.size()).filter(|rank| *rank != me) {
            // SAFETY: waited for, or given up, before this returns.
            unsafe { sends.send(rank, Purpose::Scatter, part(rank))? };
        }
        if let Ok(parts) = &parts {
            own.copy_from_slice(&all[parts.range(me)]);
        }
        sends.wait_until_left(0).and(parts.map(|_| ()))
    }

    /// Receives this rank's part of a scatter from the root.
    fn receive_part(&self, root: u32, own: &mut [u8]) -> Result<(), Error> {
        let mut receive = InFlight::new(self);
        // SAFETY: waited for immediately.
        unsafe { receive.receive(root, Purpose::Scatter, Bytes::of_mut(own))? };
        receive.wait_for(own.len())
    }

    /// Sends part r of every rank's `data` to rank r, which gets these parts in `buffer`, in order
    /// of the ranks that sent them. All parts have the same length.
    ///
    /// # Errors
    /// [`Error::NotDivisible`] if `data` cannot be divided into equal parts,
    /// [`Error::BufferLength`] if `buffer` is not as long as `data`; otherwise as [`Self::gather`].
    pub fn alltoall(&self, data: &[u8], buffer: &mut [u8]) -> Result<(), Error> {
        let parts = equal_parts("data", data.len(), self.size())?;
        parts.check_memory("buffer", buffer.len())?;
        self.begin(Call::of(Collective::Alltoall).with_bytes(data.len()))?;
        self.run_collective(Collective::Alltoall, || {
            self.exchange_parts(data, &parts, buffer, &parts)
        })
    }

    /// As [`Self::alltoall`], but parts may have different lengths, including 0: `data_lengths` has
    /// those of this rank's data in bytes, in order of the ranks that they are for, and
    /// `buffer_lengths` those of the parts to receive, in order of the ranks that send them.
    ///
    /// # Errors
    /// [`Error::LengthsCount`], or [`Error::BufferLength`] if `data` or `buffer` is not as long as
    /// the lengths say: the others then keep waiting until this rank calls again or leaves.
    /// [`Error::PeerFailed`], [`Error::PeerLeft`], [`Error::CollectivesBroken`]. A rank that is
    /// sent more or less than it expects gets [`Error::Truncated`] or [`Error::LengthMismatch`],
    /// which ends the collectives of this communicator.
    pub fn alltoallv(
        &self,
        data: &[u8],
        data_lengths: &[usize],
        buffer: &mut [u8],
        buffer_lengths: &[usize],
    ) -> Result<(), Error> {
        let outgoing = Parts::varied("data_lengths", data_lengths, self.size())?;
        let incoming = Parts::varied("buffer_lengths", buffer_lengths, self.size())?;
        outgoing.check_memory("data", data.len())?;
        incoming.check_memory("buffer", buffer.len())?;
        self.begin(Call::of(Collective::Alltoallv))?;
        self.run_collective(Collective::Alltoallv, || {
            self.exchange_parts(data, &outgoing, buffer, &incoming)
        })
    }

    fn exchange_parts(
        &self,
        data: &[u8],
        outgoing: &Parts,
        buffer: &mut [u8],
        incoming: &Parts,
    ) -> Result<(), Error> {
        let me = self.rank();
        check_length(outgoing.length(me) as u64, incoming.length(me))?;
        buffer[incoming.range(me)].copy_from_slice(&data[outgoing.range(me)]);
        let at_once = steps_at_once(outgoing.longest().max(incoming.longest()).max(1));
        let (data, buffer) = (Bytes::of(data), Bytes::of_mut(buffer));
        let part = |to| data.part(outgoing.range(to));
        let room = |_, from| buffer.part(incoming.range(from));
        // SAFETY: parts are disjoint, and belong to the caller until this returns.
        unsafe { self.exchange_pairwise(Purpose::AllToAll, at_once, part, room, |_| {}) }
    }

    /// As [`Self::gather_parts`], if all ranks know the lengths of all `parts`.
    ///
    /// # Safety
    /// As for [`Self::gather_parts`].
    pub(crate) unsafe fn gather_known(
        &self,
        root: u32,
        own: Bytes,
        parts: &Parts,
        part: impl Fn(u32) -> Bytes,
    ) -> Result<(), Error> {
        // SAFETY: promised by the caller.
        unsafe {
            if self.has_rows(parts.longest()) {
                self.gather_rows(root, own, parts, part)
            } else {
                self.gather_parts(root, own, part)
            }
        }
    }

    /// Brings `own` of each rank except the root to `part(rank)` at the root. All parts are
    /// received, whatever their lengths.
    ///
    /// # Safety
    /// `own` must not change, and the parts must be valid at the root, disjoint, and not accessed
    /// otherwise, until this returns.
    pub(crate) unsafe fn gather_parts(
        &self,
        root: u32,
        own: Bytes,
        part: impl Fn(u32) -> Bytes,
    ) -> Result<(), Error> {
        // Many parts at the same time would overrun the root, so each rank sends when the root
        // calls it.
        let is_called = self.size() > FLAT_RANKS_MAX;
        let mut in_flight = InFlight::new(self);
        if self.rank() != root {
            if is_called {
                // SAFETY: no memory is accessed.
                unsafe { in_flight.receive(root, Purpose::Gather, nothing())? };
                in_flight.wait_for(0)?;
            }
            // SAFETY: promised by the caller; waited for immediately.
            unsafe { in_flight.send(root, Purpose::Gather, own)? };
            return in_flight.wait_until_left(0);
        }
        let others = || (0..self.size()).filter(|rank| *rank != root);
        let mut calls = InFlight::new(self);
        let (mut next, mut bytes) = (others().peekable(), 0);
        let mut lengths = Ok(());
        for rank in others() {
            // Long messages wait for their receives, so not all arrive at the same time.
            let may_come = |in_flight: usize, bytes: usize, coming: u32| {
                may_be_at_once(in_flight + 1, bytes + part(coming).length)
            };
            while let Some(coming) = next.next_if(|it| may_come(in_flight.len(), bytes, *it)) {
                bytes += part(coming).length;
                // SAFETY: promised by the caller; waited for, or given up, before this returns.
                unsafe { in_flight.receive(coming, Purpose::Gather, part(coming))? };
                if is_called {
                    // SAFETY: no memory is accessed.
                    unsafe { calls.send(coming, Purpose::Gather, nothing())? };
                }
            }
            match in_flight.wait_for(part(rank).length) {
                Err(error) if error.is_of_length() => lengths = lengths.and(Err(error)),
                outcome => outcome?,
            }
            bytes -= part(rank).length;
        }
        calls.wait_until_left(0).and(lengths)
    }

    /// Distributes the range of each rank, which that rank has, to all; returns the pending
    /// operations.
    ///
    /// # Safety
    /// No other code may use the ranges of `data` until the returned operations have ended or were
    /// dropped.
    pub(crate) unsafe fn begin_allgather(
        &self,
        data: Bytes,
        range: impl Fn(u32) -> Range<usize>,
    ) -> Result<InFlight<'_>, Error> {
        let part = |rank| data.part(range(rank));
        let mut in_flight = InFlight::new(self);
        let lengths = || (0..self.size()).map(|rank| part(rank).length);
        let longest = lengths().max().unwrap_or(0);
        // Every step around a ring takes as long as the longest part.
        let are_even = longest / EVEN_MAX <= lengths().sum::<usize>() / self.size() as usize;
        let algorithm = self.usual_bcast(longest);
        let has_no_group =
            !self.has_multicast() || !matches!(algorithm, BcastAlgorithm::Multicast(_));
        if has_no_group || are_even && self.passes_around(longest) {
            // SAFETY: promised by the caller.
            unsafe { self.pass_around(data, range, Around::Gather)? };
            return Ok(in_flight);
        }
        for root in (0..self.size()).filter(|root| part(*root).length > 0) {
            let fitting = BROADCAST_BYTES_MAX / part(root).length;
            let at_once = fitting.clamp(BROADCASTS_MIN, BROADCASTS_MAX);
            in_flight.wait_until_left(at_once - 1)?;
            // SAFETY: promised by the caller.
            in_flight.push_begun(unsafe { self.begin_bcast(root, part(root), algorithm)? });
        }
        Ok(in_flight)
    }
}
