//! What every rank says, at every rank: what agreements are made of.
//!
//! Ranks that exchange by means of their own, such as those of an MPI, can become a communicator
//! ([`Communicator::from_exchange`]). A communicator exchanges by itself, for the library's own
//! agreements: gathered at rank 0 and broadcast down a tree, which works before anybody knows
//! whether multicast does.
//!
//! Cost of a communicator's: one message from every rank to rank 0, and a broadcast of all of them.

use crate::bcast::Bcast;
use crate::collective::Collective;
use crate::communicator::{Bytes, Communicator};
use crate::error::Error;
use crate::parts::Parts;
use crate::reduce::MEETING_RANK;
use omnes_topo::Tree;

/// Ranks that can tell each other something, all at once. Calls come in the same order on all of
/// them. A rank may wait for others that are still in the last call: where the means of the
/// exchange move on in calls alone, [`Config::while_waiting`](crate::Config) is to let them.
pub trait Exchange {
    /// This rank, from 0.
    fn rank(&self) -> u32;

    /// Number of ranks.
    fn size(&self) -> u32;

    /// Every rank's words, one after the other in order of ranks; all are as long as `own`, which
    /// is not empty. Collective.
    ///
    /// # Errors
    /// [`Error::ExchangeFailed`], or what else fits.
    fn allgather(&self, own: &[u8]) -> Result<Vec<u8>, Error>;
}

impl Exchange for Communicator {
    fn rank(&self) -> u32 {
        Self::rank(self)
    }

    fn size(&self) -> u32 {
        Self::size(self)
    }

    fn allgather(&self, own: &[u8]) -> Result<Vec<u8>, Error> {
        self.exchange(own)
    }
}

impl Communicator {
    /// Every rank's words, one after the other in order of ranks; all are as long as `own`, which
    /// is not empty. Nobody gets them before all have spoken.
    pub(crate) fn exchange(&self, own: &[u8]) -> Result<Vec<u8>, Error> {
        self.undertake(Collective::Agreement, || self.table_of(own))
    }

    /// As [`Self::exchange`], within a collective that is under way.
    pub(crate) fn table_of(&self, own: &[u8]) -> Result<Vec<u8>, Error> {
        let (me, each) = (self.rank(), own.len());
        let mut table = vec![0; self.size() as usize * each];
        table[me as usize * each..][..each].copy_from_slice(own);
        let rows = Bytes::of_mut(&mut table);
        let (row, parts) = (|rank| rows.part_of(rank, each), Parts::equal(each, self.size()));
        // SAFETY: rows are disjoint, and the table lives until this returns.
        unsafe { self.gather_known(MEETING_RANK, row(me), &parts, row)? };
        self.broadcast(MEETING_RANK, &mut table, Bcast::tree(Tree::Binomial))?;
        Ok(table)
    }
}
