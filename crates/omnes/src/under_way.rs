//! Operations of a collective that are under way, so that none outlives the call that uses their
//! memory.

use crate::communicator::Communicator;
use crate::error::Error;
use crate::work::{Begun, Work};
use omnes_net::Operation;
use std::collections::VecDeque;

/// Operations in the order in which they were started. Dropped before they have ended, as after an
/// error, they are given up, so that their memory is free.
pub(crate) struct UnderWay<'comm> {
    communicator: &'comm Communicator,
    works: VecDeque<Work>,
}

impl<'comm> UnderWay<'comm> {
    pub(crate) fn new(communicator: &'comm Communicator) -> Self {
        Self { communicator, works: VecDeque::new() }
    }

    /// Adds a message of a collective.
    pub(crate) fn push(&mut self, operation: Operation) {
        self.works.push_back(Work::Collective(operation));
    }

    /// Adds a collective that may be under way.
    pub(crate) fn push_begun(&mut self, begun: Begun) {
        if let Begun::UnderWay(work) = begun {
            self.works.push_back(work);
        }
    }

    /// Number of them.
    pub(crate) fn len(&self) -> usize {
        self.works.len()
    }

    /// Waits until the oldest has ended; its bytes, or nothing if there is none.
    pub(crate) fn wait_for_oldest(&mut self) -> Result<Option<usize>, Error> {
        let oldest = self.works.pop_front();
        let status = oldest.map(|work| self.communicator.wait_for_work(work)).transpose()?;
        Ok(status.map(|status| status.bytes))
    }

    /// Waits until no more than so many are under way.
    pub(crate) fn wait_until_left(&mut self, left: usize) -> Result<(), Error> {
        while self.works.len() > left {
            self.wait_for_oldest()?;
        }
        Ok(())
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.works.iter().for_each(|work| self.communicator.release_work(work));
    }
}
