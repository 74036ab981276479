//! The public calls: held by a [`Scope`], or raw, for bindings of other languages.

use crate::communicator::{Bytes, Communicator};
use crate::error::Error;
use crate::reduce::{Element, ElementType, ReduceOp};
use crate::request::OwnedRequest;
use crate::scope::{Request, Scope};
use std::ops::Range;
use std::ptr::NonNull;

impl<'env> Scope<'_, 'env> {
    /// Nonblocking form of [`Communicator::allreduce`]. Several nonblocking collectives may be in
    /// progress at the same time; all collectives must be started in the same order on all ranks.
    /// All ranks must use the nonblocking form. The status names this rank.
    ///
    /// If it ends with an error, it is given up: no collective of the communicator succeeds from
    /// then on ([`Error::CollectivesBroken`]). A rank whose call is rejected here, because of its
    /// lengths or its root, does not take part, and the others wait for it until it leaves.
    ///
    /// ```no_run
    /// # // Needs a launcher.
    /// # fn main() -> Result<(), omnes::Error> {
    /// # let world = omnes::Communicator::from_env()?;
    /// let mut norms = [1.5f64, 2.5];
    /// world.scope(|scope| {
    ///     let sums = scope.iallreduce(&mut norms, omnes::ReduceOp::Sum)?;
    ///     // Other work meanwhile.
    ///     sums.wait()
    /// })?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::allreduce`].
    pub fn iallreduce<T: Element>(
        &self,
        data: &'env mut [T],
        op: ReduceOp,
    ) -> Result<Request<'_>, Error> {
        self.iallreduce_as(bytemuck::cast_slice_mut(data), T::TYPE, op)
    }

    /// As [`Self::iallreduce`], for elements whose type is only known at run time. Bytes at the
    /// end of `data` that do not fill an element are left unchanged.
    ///
    /// # Errors
    /// As [`Self::iallreduce`].
    pub fn iallreduce_as(
        &self,
        data: &'env mut [u8],
        element: ElementType,
        op: ReduceOp,
    ) -> Result<Request<'_>, Error> {
        let data = Bytes::of_mut(data);
        // SAFETY: `data` is borrowed for longer than the scope lives, which ends only after the
        // operation has.
        Ok(self.request(unsafe { self.communicator.begin_allreduce(data, element, op)? }))
    }

    /// Nonblocking form of [`Communicator::reduce`], otherwise as [`Self::iallreduce`]. The status
    /// names the root.
    ///
    /// # Errors
    /// As [`Communicator::reduce`].
    pub fn ireduce<T: Element>(
        &self,
        root: u32,
        data: &'env mut [T],
        op: ReduceOp,
    ) -> Result<Request<'_>, Error> {
        self.ireduce_as(root, bytemuck::cast_slice_mut(data), T::TYPE, op)
    }

    /// As [`Self::ireduce`], for elements whose type is only known at run time.
    ///
    /// # Errors
    /// As [`Self::ireduce`].
    pub fn ireduce_as(
        &self,
        root: u32,
        data: &'env mut [u8],
        element: ElementType,
        op: ReduceOp,
    ) -> Result<Request<'_>, Error> {
        let data = Bytes::of_mut(data);
        // SAFETY: as for `iallreduce_as`.
        Ok(self.request(unsafe { self.communicator.begin_reduce(root, data, element, op)? }))
    }

    /// Nonblocking form of [`Communicator::reduce_scatter`], otherwise as [`Self::iallreduce`]; the
    /// range is returned immediately.
    ///
    /// # Errors
    /// As [`Communicator::reduce_scatter`].
    pub fn ireduce_scatter<T: Element>(
        &self,
        data: &'env mut [T],
        op: ReduceOp,
    ) -> Result<(Request<'_>, Range<usize>), Error> {
        let data = bytemuck::cast_slice_mut(data);
        let (request, range) = self.ireduce_scatter_as(data, T::TYPE, op)?;
        Ok((request, range.start / T::TYPE.bytes()..range.end / T::TYPE.bytes()))
    }

    /// As [`Self::ireduce_scatter`], for elements whose type is only known at run time; the
    /// range is in bytes.
    ///
    /// # Errors
    /// As [`Self::ireduce_scatter`].
    pub fn ireduce_scatter_as(
        &self,
        data: &'env mut [u8],
        element: ElementType,
        op: ReduceOp,
    ) -> Result<(Request<'_>, Range<usize>), Error> {
        let data = Bytes::of_mut(data);
        // SAFETY: as for `iallreduce_as`.
        let (begun, range) = unsafe { self.communicator.begin_reduce_scatter(data, element, op)? };
        Ok((self.request(begun), range))
    }

    /// Nonblocking form of [`Communicator::gather`], otherwise as [`Self::iallreduce`], except that
    /// the others do not wait for a root whose call is rejected. The status names the root.
    ///
    /// # Errors
    /// As [`Communicator::gather`].
    pub fn igather(
        &self,
        root: u32,
        own: &'env [u8],
        all: &'env mut [u8],
    ) -> Result<Request<'_>, Error> {
        let (own, all) = (Bytes::of(own), Bytes::of_mut(all));
        // SAFETY: as for `iallreduce_as`.
        Ok(self.request(unsafe { self.communicator.begin_gather(root, own, all, None)? }))
    }

    /// Nonblocking form of [`Communicator::gatherv`], otherwise as [`Self::igather`]; but after
    /// an error about the length of a received part the communicator can still be used, as after
    /// `gatherv`. `lengths` are read before this returns. The status names the root.
    ///
    /// # Errors
    /// As [`Communicator::gatherv`].
    pub fn igatherv(
        &self,
        root: u32,
        own: &'env [u8],
        all: &'env mut [u8],
        lengths: &[usize],
    ) -> Result<Request<'_>, Error> {
        let (own, all, lengths) = (Bytes::of(own), Bytes::of_mut(all), Some(lengths));
        // SAFETY: as for `iallreduce_as`.
        Ok(self.request(unsafe { self.communicator.begin_gather(root, own, all, lengths)? }))
    }

    /// Nonblocking form of [`Communicator::allgather`], otherwise as [`Self::iallreduce`].
    ///
    /// # Errors
    /// As [`Communicator::allgather`].
    pub fn iallgather(&self, own: &'env [u8], all: &'env mut [u8]) -> Result<Request<'_>, Error> {
        let (own, all) = (Bytes::of(own), Bytes::of_mut(all));
        // SAFETY: as for `iallreduce_as`.
        Ok(self.request(unsafe { self.communicator.begin_gather_at_all(own, all, None)? }))
    }

    /// Nonblocking form of [`Communicator::allgatherv`], otherwise as [`Self::iallreduce`].
    /// `lengths` are read before this returns. If they differ between ranks, all may block until
    /// one leaves.
    ///
    /// # Errors
    /// As [`Communicator::allgatherv`].
    pub fn iallgatherv(
        &self,
        own: &'env [u8],
        all: &'env mut [u8],
        lengths: &[usize],
    ) -> Result<Request<'_>, Error> {
        let (own, all, lengths) = (Bytes::of(own), Bytes::of_mut(all), Some(lengths));
        // SAFETY: as for `iallreduce_as`.
        Ok(self.request(unsafe { self.communicator.begin_gather_at_all(own, all, lengths)? }))
    }

    /// Nonblocking form of [`Communicator::scatter`], otherwise as [`Self::iallreduce`], except
    /// that the others get [`Error::LengthMismatch`] if the root's call is rejected. The status
    /// names the root.
    ///
    /// # Errors
    /// As [`Communicator::scatter`].
    pub fn iscatter(
        &self,
        root: u32,
        all: &'env [u8],
        own: &'env mut [u8],
    ) -> Result<Request<'_>, Error> {
        let (all, own) = (Bytes::of(all), Bytes::of_mut(own));
        // SAFETY: as for `iallreduce_as`.
        Ok(self.request(unsafe { self.communicator.begin_scatter(root, all, None, own)? }))
    }

    /// Nonblocking form of [`Communicator::scatterv`], otherwise as [`Self::igatherv`] and, if the
    /// root's call is rejected, as [`Self::iscatter`].
    ///
    /// # Errors
    /// As [`Communicator::scatterv`].
    pub fn iscatterv(
        &self,
        root: u32,
        all: &'env [u8],
        lengths: &[usize],
        own: &'env mut [u8],
    ) -> Result<Request<'_>, Error> {
        let (all, lengths, own) = (Bytes::of(all), Some(lengths), Bytes::of_mut(own));
        // SAFETY: as for `iallreduce_as`.
        Ok(self.request(unsafe { self.communicator.begin_scatter(root, all, lengths, own)? }))
    }

    /// Nonblocking form of [`Communicator::alltoall`], otherwise as [`Self::iallreduce`].
    ///
    /// # Errors
    /// As [`Communicator::alltoall`].
    pub fn ialltoall(
        &self,
        data: &'env [u8],
        buffer: &'env mut [u8],
    ) -> Result<Request<'_>, Error> {
        let (data, buffer) = (Bytes::of(data), Bytes::of_mut(buffer));
        // SAFETY: as for `iallreduce_as`.
        Ok(self.request(unsafe { self.communicator.begin_alltoall(data, buffer, None)? }))
    }

    /// Nonblocking form of [`Communicator::alltoallv`], otherwise as [`Self::iallreduce`]. Lengths
    /// are read before this returns. If those of this rank's part to itself differ, this returns
    /// [`Error::LengthMismatch`], which ends the collectives of this communicator.
    ///
    /// # Errors
    /// As [`Communicator::alltoallv`].
    pub fn ialltoallv(
        &self,
        data: &'env [u8],
        data_lengths: &[usize],
        buffer: &'env mut [u8],
        buffer_lengths: &[usize],
    ) -> Result<Request<'_>, Error> {
        let (data, buffer) = (Bytes::of(data), Bytes::of_mut(buffer));
        let lengths = Some([data_lengths, buffer_lengths]);
        // SAFETY: as for `iallreduce_as`.
        Ok(self.request(unsafe { self.communicator.begin_alltoall(data, buffer, lengths)? }))
    }
}

impl Communicator {
    /// As [`Scope::iallreduce`], of the elements in the `bytes` bytes at `base`.
    ///
    /// # Safety
    /// The memory must be valid for reading and writing, and not accessed otherwise, until the
    /// request has ended or was dropped.
    ///
    /// # Errors
    /// As [`Self::allreduce`].
    pub unsafe fn iallreduce_raw(
        &self,
        base: NonNull<u8>,
        bytes: usize,
        element: ElementType,
        op: ReduceOp,
    ) -> Result<OwnedRequest, Error> {
        let data = Bytes { base, length: bytes };
        // SAFETY: promised by the caller; dropping the request releases the operation.
        let begun = unsafe { self.begin_allreduce(data, element, op)? };
        Ok(OwnedRequest::new(self.clone(), begun))
    }

    /// As [`Scope::ireduce`], of the elements in the `bytes` bytes at `base`.
    ///
    /// # Safety
    /// As for [`Self::iallreduce_raw`].
    ///
    /// # Errors
    /// As [`Self::reduce`].
    pub unsafe fn ireduce_raw(
        &self,
        root: u32,
        base: NonNull<u8>,
        bytes: usize,
        element: ElementType,
        op: ReduceOp,
    ) -> Result<OwnedRequest, Error> {
        let data = Bytes { base, length: bytes };
        // SAFETY: promised by the caller; dropping the request releases the operation.
        let begun = unsafe { self.begin_reduce(root, data, element, op)? };
        Ok(OwnedRequest::new(self.clone(), begun))
    }

    /// As [`Scope::ireduce_scatter_as`], of the elements in the `bytes` bytes at `base`.
    ///
    /// # Safety
    /// As for [`Self::iallreduce_raw`].
    ///
    /// # Errors
    /// As [`Self::reduce_scatter`].
    pub unsafe fn ireduce_scatter_raw(
        &self,
        base: NonNull<u8>,
        bytes: usize,
        element: ElementType,
        op: ReduceOp,
    ) -> Result<(OwnedRequest, Range<usize>), Error> {
        let data = Bytes { base, length: bytes };
        // SAFETY: promised by the caller; dropping the request releases the operation.
        let (begun, range) = unsafe { self.begin_reduce_scatter(data, element, op)? };
        Ok((OwnedRequest::new(self.clone(), begun), range))
    }

    /// As [`Scope::igather`].
    ///
    /// # Safety
    /// The memory of `own` must be valid for reading and that of `all`, at the root, for reading
    /// and writing, and not accessed otherwise, until the request has ended or was dropped. They
    /// must not overlap.
    ///
    /// # Errors
    /// As [`Self::gather`].
    pub unsafe fn igather_raw(
        &self,
        root: u32,
        own: NonNull<[u8]>,
        all: NonNull<[u8]>,
    ) -> Result<OwnedRequest, Error> {
        // SAFETY: promised by the caller; dropping the request releases the operation.
        let begun = unsafe { self.begin_gather(root, own.into(), all.into(), None)? };
        Ok(OwnedRequest::new(self.clone(), begun))
    }

    /// As [`Scope::igatherv`].
    ///
    /// # Safety
    /// As for [`Self::igather_raw`].
    ///
    /// # Errors
    /// As [`Self::gatherv`].
    pub unsafe fn igatherv_raw(
        &self,
        root: u32,
        own: NonNull<[u8]>,
        all: NonNull<[u8]>,
        lengths: &[usize],
    ) -> Result<OwnedRequest, Error> {
        // SAFETY: promised by the caller; dropping the request releases the operation.
        let begun = unsafe { self.begin_gather(root, own.into(), all.into(), Some(lengths))? };
        Ok(OwnedRequest::new(self.clone(), begun))
    }

    /// As [`Scope::iallgather`].
    ///
    /// # Safety
    /// As for [`Self::igather_raw`], as if every rank were the root; but `own` may be its place in
    /// `all`.
    ///
    /// # Errors
    /// As [`Self::allgather`].
    pub unsafe fn iallgather_raw(
        &self,
        own: NonNull<[u8]>,
        all: NonNull<[u8]>,
    ) -> Result<OwnedRequest, Error> {
        // SAFETY: promised by the caller; dropping the request releases the operation.
        let begun = unsafe { self.begin_gather_at_all(own.into(), all.into(), None)? };
        Ok(OwnedRequest::new(self.clone(), begun))
    }

    /// As [`Scope::iallgatherv`].
    ///
    /// # Safety
    /// As for [`Self::iallgather_raw`].
    ///
    /// # Errors
    /// As [`Self::allgatherv`].
    pub unsafe fn iallgatherv_raw(
        &self,
        own: NonNull<[u8]>,
        all: NonNull<[u8]>,
        lengths: &[usize],
    ) -> Result<OwnedRequest, Error> {
        // SAFETY: promised by the caller; dropping the request releases the operation.
        let begun = unsafe { self.begin_gather_at_all(own.into(), all.into(), Some(lengths))? };
        Ok(OwnedRequest::new(self.clone(), begun))
    }

    /// As [`Scope::iscatter`].
    ///
    /// # Safety
    /// As for [`Self::igather_raw`], with `all` read, at the root, and `own` written.
    ///
    /// # Errors
    /// As [`Self::scatter`].
    pub unsafe fn iscatter_raw(
        &self,
        root: u32,
        all: NonNull<[u8]>,
        own: NonNull<[u8]>,
    ) -> Result<OwnedRequest, Error> {
        // SAFETY: promised by the caller; dropping the request releases the operation.
        let begun = unsafe { self.begin_scatter(root, all.into(), None, own.into())? };
        Ok(OwnedRequest::new(self.clone(), begun))
    }

    /// As [`Scope::iscatterv`].
    ///
    /// # Safety
    /// As for [`Self::iscatter_raw`].
    ///
    /// # Errors
    /// As [`Self::scatterv`].
    pub unsafe fn iscatterv_raw(
        &self,
        root: u32,
        all: NonNull<[u8]>,
        lengths: &[usize],
        own: NonNull<[u8]>,
    ) -> Result<OwnedRequest, Error> {
        // SAFETY: promised by the caller; dropping the request releases the operation.
        let begun = unsafe { self.begin_scatter(root, all.into(), Some(lengths), own.into())? };
        Ok(OwnedRequest::new(self.clone(), begun))
    }

    /// As [`Scope::ialltoall`].
    ///
    /// # Safety
    /// As for [`Self::igather_raw`], with `data` read, and `buffer` written, at every rank.
    ///
    /// # Errors
    /// As [`Self::alltoall`].
    pub unsafe fn ialltoall_raw(
        &self,
        data: NonNull<[u8]>,
        buffer: NonNull<[u8]>,
    ) -> Result<OwnedRequest, Error> {
        // SAFETY: promised by the caller; dropping the request releases the operation.
        let begun = unsafe { self.begin_alltoall(data.into(), buffer.into(), None)? };
        Ok(OwnedRequest::new(self.clone(), begun))
    }

    /// As [`Scope::ialltoallv`].
    ///
    /// # Safety
    /// As for [`Self::ialltoall_raw`].
    ///
    /// # Errors
    /// As [`Self::alltoallv`].
    pub unsafe fn ialltoallv_raw(
        &self,
        data: NonNull<[u8]>,
        data_lengths: &[usize],
        buffer: NonNull<[u8]>,
        buffer_lengths: &[usize],
    ) -> Result<OwnedRequest, Error> {
        // SAFETY: promised by the caller; dropping the request releases the operation.
        let begun = unsafe {
            self.begin_alltoall(data.into(), buffer.into(), Some([data_lengths, buffer_lengths]))?
        };
        Ok(OwnedRequest::new(self.clone(), begun))
    }
}
