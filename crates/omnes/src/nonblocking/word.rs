//! One number of every rank, combined in the packets of a barrier that nobody waits in: where the
//! kernel's NIC makes the steps it goes on while all ranks compute.
//!
//! Guarantees: dropped, or ended by an error, it ends nothing else; the others get their result.

use crate::communicator::{Bytes, Communicator};
use crate::error::Error;
use crate::point_to_point::Status;
use crate::reduce::Word;
use crate::work::{Begun, Work};
use omnes_net::Operation;

/// One under way.
pub(crate) struct Combining {
    pub(crate) operation: Operation,
    /// How the result becomes a number.
    word: Word,
    number: Bytes,
    status: Status,
}

// SAFETY: the memory is used by nobody else until the work has ended, as whoever began it has
// promised, and here only by [`Combining::end`], which takes the work by value or alone.
unsafe impl Send for Combining {}
// SAFETY: as above.
unsafe impl Sync for Combining {}

impl Combining {
    /// Puts what the words of all have made where the number was.
    pub(crate) fn end(&mut self, word: u64) -> Status {
        // SAFETY: promised when it began.
        self.word.unpack(word, unsafe { self.number.as_mut_slice() });
        self.status
    }
}

impl Communicator {
    /// Starts to combine the one number of every rank; the status names `source`.
    ///
    /// # Safety
    /// `number` must be valid, and used by nobody else, until the work has ended or was released.
    pub(super) unsafe fn begin_combining(
        &self,
        word: Word,
        number: Bytes,
        source: u32,
    ) -> Result<Begun, Error> {
        // SAFETY: promised by the caller.
        let operation = self.start_combining(word.pack(unsafe { number.as_slice() }))?;
        let status = Status { source, tag: 0, bytes: number.length };
        Ok(Begun::UnderWay(Work::Combining(Combining { operation, word, number, status })))
    }
}
