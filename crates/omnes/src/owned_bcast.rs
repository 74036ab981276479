//! Broadcasts that own their memory: for streams, in which a [`Scope`](crate::Scope) would have to
//! end before a buffer can be reused.

use crate::bcast::BcastAlgorithm;
use crate::communicator::{Bytes, Communicator};
use crate::error::Error;
use crate::request::OwnedRequest;
use std::fmt;

/// A broadcast in progress, with its buffer; see [`Communicator::bcast_owned`]. If it is dropped
/// without having been waited for, it is abandoned: data that have reached this rank may still be
/// forwarded, and ranks that were to get the remaining data through this rank get
/// [`Error::PeerGaveUp`]. Later broadcasts never receive data of this one. At the root, the data
/// are sent nevertheless.
#[must_use = "a broadcast that is dropped is given up"]
pub struct OwnedBcast {
    /// Dropped first: the buffer is in use until then.
    request: OwnedRequest,
    buffer: Vec<u8>,
}

/// Why an [`OwnedBcast`] has failed, with its buffer; `?` converts it into an [`Error`].
pub struct OwnedBcastError {
    /// The reason.
    pub error: Error,
    /// The buffer, which may hold a part of the root's data.
    pub buffer: Vec<u8>,
}

impl Communicator {
    /// Starts a broadcast of the root's `buffer`, of the same length on all ranks, and owns the
    /// buffer until [`OwnedBcast::wait`] returns it. Otherwise as
    /// [`Scope::ibcast`](crate::Scope::ibcast).
    ///
    /// ```no_run
    /// # // Needs a launcher.
    /// # fn main() -> Result<(), omnes::Error> {
    /// # let world = omnes::Communicator::from_env()?;
    /// let first = world.bcast_owned(0, vec![0u8; 1 << 20])?;
    /// let second = world.bcast_owned(0, vec![0u8; 1 << 20])?;
    /// let buffer = first.wait()?; // the second is on its way meanwhile
    /// # drop((buffer, second));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Self::bcast`].
    pub fn bcast_owned(&self, root: u32, buffer: Vec<u8>) -> Result<OwnedBcast, Error> {
        let algorithm = self.usual_bcast(buffer.len());
        self.bcast_owned_with(root, buffer, algorithm)
    }

    /// As [`Self::bcast_owned`], with the given algorithm, which must be the same on all ranks.
    ///
    /// # Errors
    /// As [`Self::bcast_with`].
    pub fn bcast_owned_with(
        &self,
        root: u32,
        mut buffer: Vec<u8>,
        algorithm: BcastAlgorithm,
    ) -> Result<OwnedBcast, Error> {
        let data = Bytes::of_mut(&mut buffer);
        // SAFETY: the bytes stay where they are while the vector moves, no other code has access,
        // and it is returned or freed only after the operations have ended or were released.
        let begun = unsafe { self.begin_bcast(root, data, algorithm)? };
        Ok(OwnedBcast { request: OwnedRequest::new(self.clone(), begun), buffer })
    }
}

impl OwnedBcast {
    /// Whether the broadcast has ended, so that [`Self::wait`] will not block. Makes progress on
    /// all operations, without waiting.
    ///
    /// # Errors
    /// As [`Communicator::bcast`]; [`Self::wait`] then returns the buffer.
    pub fn test(&mut self) -> Result<bool, Error> {
        self.request.test().map(|status| status.is_some())
    }

    /// Waits until the broadcast has ended, and returns the buffer.
    ///
    /// # Errors
    /// As [`Communicator::bcast`], with the buffer; [`Error::RequestFailed`] if [`Self::test`] has
    /// returned an error before.
    pub fn wait(self) -> Result<Vec<u8>, OwnedBcastError> {
        let Self { request, buffer } = self;
        match request.wait() {
            Ok(_) => Ok(buffer),
            Err(error) => Err(OwnedBcastError { error, buffer }),
        }
    }
}

impl fmt::Debug for OwnedBcast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedBcast({:?}, {} bytes)", self.request, self.buffer.len())
    }
}

impl From<OwnedBcastError> for Error {
    fn from(failed: OwnedBcastError) -> Self {
        failed.error
    }
}

impl fmt::Debug for OwnedBcastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.buffer.len();
        write!(f, "OwnedBcastError({:?}, with a buffer of {bytes} bytes)", self.error)
    }
}

impl fmt::Display for OwnedBcastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for OwnedBcastError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}
