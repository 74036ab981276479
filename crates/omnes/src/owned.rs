//! Broadcasts that own their memory: for streams, where a [`Scope`](crate::Scope) would have to
//! end before a buffer can be used again.

use crate::bcast::Bcast;
use crate::communicator::{Bytes, Communicator};
use crate::error::Error;
use crate::request::OwnedRequest;
use std::fmt;

/// A broadcast under way, with its buffer; see [`Communicator::bcast_owned`]. Dropped without
/// having been waited for, it is given up: what has come to this rank may still arrive elsewhere,
/// and whoever was to get the rest through this rank gets [`Error::GivenUp`]. What the root has
/// sent is not taken for a later broadcast. A root that gives up has sent nevertheless.
#[must_use = "a broadcast that is dropped is given up"]
pub struct OwnedBcast {
    /// Dropped first: the buffer is in use until then.
    request: OwnedRequest,
    buffer: Vec<u8>,
}

/// Why an [`OwnedBcast`] has failed, with its buffer; `?` makes an [`Error`] of it.
pub struct OwnedBcastError {
    /// Why.
    pub error: Error,
    /// The buffer, which may hold a part of what the root has sent.
    pub buffer: Vec<u8>,
}

impl Communicator {
    /// Starts a broadcast of the root's `buffer`, of the same length on all ranks, and holds the
    /// buffer until [`OwnedBcast::wait`] gives it back. As [`Scope::ibcast`](crate::Scope::ibcast)
    /// otherwise.
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

    /// As [`Self::bcast_owned`], by an algorithm of choice, the same on all ranks.
    ///
    /// # Errors
    /// As [`Self::bcast_with`].
    pub fn bcast_owned_with(
        &self,
        root: u32,
        mut buffer: Vec<u8>,
        algorithm: Bcast,
    ) -> Result<OwnedBcast, Error> {
        let data = Bytes::of_mut(&mut buffer);
        // SAFETY: the bytes stay where they are while the vector moves, nobody else has it, and it
        // is given back or freed only after the operations have ended or were released.
        let begun = unsafe { self.begin_bcast(root, data, algorithm)? };
        Ok(OwnedBcast { request: OwnedRequest::new(self.clone(), begun), buffer })
    }
}

impl OwnedBcast {
    /// Whether the broadcast has ended, so that [`Self::wait`] does not wait; moves all operations
    /// on, and waits for nobody.
    ///
    /// # Errors
    /// As [`Communicator::bcast`]; the buffer then comes back from [`Self::wait`].
    pub fn test(&mut self) -> Result<bool, Error> {
        self.request.test().map(|status| status.is_some())
    }

    /// Waits for the end of the broadcast; the buffer.
    ///
    /// # Errors
    /// As [`Communicator::bcast`], with the buffer; [`Error::RequestOver`] if [`Self::test`] has
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
