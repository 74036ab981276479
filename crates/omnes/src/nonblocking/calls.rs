//! The calls: held by a [`Scope`], or raw, as another language has them.

use crate::communicator::{Bytes, Communicator};
use crate::error::Error;
use crate::reduce::{Element, ElementType, ReduceOp};
use crate::request::OwnedRequest;
use crate::scope::{Request, Scope};
use std::ptr::NonNull;

impl<'env> Scope<'_, 'env> {
    /// Starts what [`Communicator::allreduce`] does. Several nonblocking collectives may be under
    /// way at once, started in the same order on all ranks, also among other collectives; all
    /// ranks start it by this call. Its status names this rank.
    ///
    /// One that ends with an error is given up: no other collective of the communicator succeeds
    /// from then on ([`Error::CollectiveGivenUp`]), unless it was one of one number, which goes in
    /// the packets of a barrier. A rank whose call is refused here, for the
    /// lengths it gives or its root, takes no part, and leaves the others waiting for it until it
    /// leaves.
    ///
    /// ```no_run
    /// # // Needs a launcher.
    /// # fn main() -> Result<(), omnes::Error> {
    /// # let world = omnes::Communicator::from_env()?;
    /// let mut norms = [1.5f64, 2.5];
    /// world.scope(|scope| {
    ///     let sums = scope.iallreduce(&mut norms, omnes::ReduceOp::Sum)?;
    ///     // Something else meanwhile.
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

    /// As [`Self::iallreduce`], of elements whose type is known only when the program runs. What
    /// does not fill an element at the end of `data` is left as it is.
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

    /// Starts what [`Communicator::reduce`] does, otherwise as [`Self::iallreduce`]. Its status
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

    /// As [`Self::ireduce`], of elements whose type is known only when the program runs.
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

    /// Starts what [`Communicator::gather`] does, otherwise as [`Self::iallreduce`]. Its status
    /// names the root.
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
        Ok(self.request(unsafe { self.communicator.begin_gather(root, own, all)? }))
    }

    /// Starts what [`Communicator::allgather`] does, otherwise as [`Self::iallreduce`].
    ///
    /// # Errors
    /// As [`Communicator::allgather`].
    pub fn iallgather(&self, own: &'env [u8], all: &'env mut [u8]) -> Result<Request<'_>, Error> {
        let (own, all) = (Bytes::of(own), Bytes::of_mut(all));
        // SAFETY: as for `iallreduce_as`.
        Ok(self.request(unsafe { self.communicator.begin_gather_at_all(own, all)? }))
    }

    /// Starts what [`Communicator::scatter`] does, otherwise as [`Self::iallreduce`]. Its status
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
        Ok(self.request(unsafe { self.communicator.begin_scatter(root, all, own)? }))
    }

    /// Starts what [`Communicator::alltoall`] does, otherwise as [`Self::iallreduce`].
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
        Ok(self.request(unsafe { self.communicator.begin_alltoall(data, buffer)? }))
    }
}

impl Communicator {
    /// As [`Scope::iallreduce`], of the elements in the `bytes` bytes at `base`.
    ///
    /// # Safety
    /// The memory must be valid for reading and writing, and used by nobody else, until the request
    /// has ended or was dropped.
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
        // SAFETY: promised by the caller; whoever drops the request releases the work.
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
        // SAFETY: promised by the caller; whoever drops the request releases the work.
        let begun = unsafe { self.begin_reduce(root, data, element, op)? };
        Ok(OwnedRequest::new(self.clone(), begun))
    }

    /// As [`Scope::igather`].
    ///
    /// # Safety
    /// The memory of `own` must be valid for reading and that of `all`, at the root, for reading
    /// and writing, and used by nobody else, until the request has ended or was dropped. They must
    /// not overlap.
    ///
    /// # Errors
    /// As [`Self::gather`].
    pub unsafe fn igather_raw(
        &self,
        root: u32,
        own: NonNull<[u8]>,
        all: NonNull<[u8]>,
    ) -> Result<OwnedRequest, Error> {
        // SAFETY: promised by the caller; whoever drops the request releases the work.
        let begun = unsafe { self.begin_gather(root, own.into(), all.into())? };
        Ok(OwnedRequest::new(self.clone(), begun))
    }

    /// As [`Scope::iallgather`].
    ///
    /// # Safety
    /// As for [`Self::igather_raw`], where every rank is a root; but `own` may be its place in
    /// `all`.
    ///
    /// # Errors
    /// As [`Self::allgather`].
    pub unsafe fn iallgather_raw(
        &self,
        own: NonNull<[u8]>,
        all: NonNull<[u8]>,
    ) -> Result<OwnedRequest, Error> {
        // SAFETY: promised by the caller; whoever drops the request releases the work.
        let begun = unsafe { self.begin_gather_at_all(own.into(), all.into())? };
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
        // SAFETY: promised by the caller; whoever drops the request releases the work.
        let begun = unsafe { self.begin_scatter(root, all.into(), own.into())? };
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
        // SAFETY: promised by the caller; whoever drops the request releases the work.
        let begun = unsafe { self.begin_alltoall(data.into(), buffer.into())? };
        Ok(OwnedRequest::new(self.clone(), begun))
    }
}
