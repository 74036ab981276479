//! Operations in progress of a collective, none of which may outlive the call that uses its memory.

use crate::communicator::{Bytes, Communicator, Purpose, check_length};
use crate::error::Error;
use crate::pending::{Begun, Pending};
use std::collections::VecDeque;

/// Operations in the order in which they were started. If this is dropped before they have ended,
/// as after an error or a panic, they are given up, so that their memory is free.
pub(crate) struct InFlight<'comm> {
    communicator: &'comm Communicator,
    operations: VecDeque<Pending>,
}

impl<'comm> InFlight<'comm> {
    pub(crate) fn new(communicator: &'comm Communicator) -> Self {
        Self::of(communicator, [])
    }

    /// Holds operations that have already been started.
    pub(crate) fn of(
        communicator: &'comm Communicator,
        operations: impl IntoIterator<Item = Pending>,
    ) -> Self {
        Self { communicator, operations: operations.into_iter().collect() }
    }

    /// Starts a message, whose data are all available.
    ///
    /// # Safety
    /// `data` must not change until the message has ended or this was dropped.
    pub(crate) unsafe fn send(
        &mut self,
        to: u32,
        purpose: Purpose,
        data: Bytes,
    ) -> Result<(), Error> {
        // SAFETY: promised by the caller; dropped operations are released.
        let send = unsafe { self.communicator.start_send(to, purpose, data, data.length)? };
        self.operations.extend(send.map(Pending::Collective));
        Ok(())
    }

    /// Starts a receive.
    ///
    /// # Safety
    /// `room` must be valid, and not accessed otherwise, until the receive has ended or this was
    /// dropped.
    pub(crate) unsafe fn receive(
        &mut self,
        from: u32,
        purpose: Purpose,
        room: Bytes,
    ) -> Result<(), Error> {
        // SAFETY: promised by the caller; dropped operations are released.
        let receive = unsafe { self.communicator.start_receive(from, purpose, room)? };
        self.operations.push_back(Pending::Collective(receive));
        Ok(())
    }

    /// Adds a collective, if it is still in progress.
    pub(crate) fn push_begun(&mut self, begun: Begun) {
        if let Begun::Pending(operation) = begun {
            self.operations.push_back(operation);
        }
    }

    /// Number of operations.
    pub(crate) fn len(&self) -> usize {
        self.operations.len()
    }

    /// Waits until the oldest operation, a receive, has ended, and rejects a message of another
    /// length.
    pub(crate) fn wait_for(&mut self, length: usize) -> Result<(), Error> {
        check_length(self.wait_for_oldest()?, length)
    }

    /// Waits until the oldest operation has ended, and returns its bytes. There must be one.
    fn wait_for_oldest(&mut self) -> Result<u64, Error> {
        match self.operations.pop_front().expect("something is under way") {
            // The sender is not needed, and converting its rank takes time.
            Pending::Collective(operation) => {
                self.communicator.wait_for(operation).map(|it| it.bytes)
            }
            operation => {
                self.communicator.wait_for_pending(operation).map(|status| status.bytes as u64)
            }
        }
    }

    /// Waits for all operations and ignores their outcomes: a caller that needs one waits for it
    /// alone.
    pub(crate) fn wait_for_each(&mut self) {
        while let Some(operation) = self.operations.pop_front() {
            let _ = self.communicator.wait_for_pending(operation);
        }
    }

    /// Waits until at most `left` operations are in progress.
    pub(crate) fn wait_until_left(&mut self, left: usize) -> Result<(), Error> {
        while self.operations.len() > left {
            self.wait_for_oldest()?;
        }
        Ok(())
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.operations.iter().for_each(|operation| self.communicator.release_pending(operation));
    }
}
