//! Exchanges: every rank gets a few bytes from every rank, as the basis of agreements.
//!
//! Ranks that can exchange data by means of their own, such as those of an MPI job, can form a
//! communicator ([`Communicator::from_exchange`]). A communicator is an exchange, too, for the
//! library's own agreements: the data are gathered at rank 0 and broadcast down a tree, because
//! that works before it is known whether multicast does.
//!
//! Cost on a communicator: one message from every rank to rank 0, and a broadcast of all of them.

use crate::bcast::BcastAlgorithm;
use crate::collective::Collective;
use crate::communicator::{Bytes, Communicator};
use crate::error::Error;
use crate::parts::Parts;
use crate::reduce::MEETING_RANK;
use omnes_topo::Tree;

/// Ranks that can exchange data with each other by means of their own, such as those of an MPI job.
/// All ranks make their calls in the same order. A rank may wait for others that are still in the
/// previous call: if the exchange only makes progress in calls of its own, call it from
/// [`Config::while_waiting`](crate::Config).
pub trait Exchange {
    /// This rank, from 0.
    fn rank(&self) -> u32;

    /// Number of ranks.
    fn size(&self) -> u32;

    /// Gathers the `own` of every rank, concatenated in order of ranks, on all ranks. `own` has the
    /// same length on all ranks, and is not empty. Collective.
    ///
    /// # Errors
    /// [`Error::ExchangeFailed`], or another error that describes the failure.
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
    /// Gathers the `own` of every rank, concatenated in order of ranks; all have the same length,
    /// and none is empty. No rank returns before all have contributed.
    pub(crate) fn exchange(&self, own: &[u8]) -> Result<Vec<u8>, Error> {
        self.run_collective(Collective::Agreement, || self.table_of(own))
    }

    /// As [`Self::exchange`], within a collective in progress.
    pub(crate) fn table_of(&self, own: &[u8]) -> Result<Vec<u8>, Error> {
        let (me, each) = (self.rank(), own.len());
        let mut table = vec![0; self.size() as usize * each];
        table[me as usize * each..][..each].copy_from_slice(own);
        let rows = Bytes::of_mut(&mut table);
        let (row, parts) = (|rank| rows.part_of(rank, each), Parts::equal(each, self.size()));
        // SAFETY: rows are disjoint, and the table lives until this returns.
        unsafe { self.gather_known(MEETING_RANK, row(me), &parts, row)? };
        self.broadcast(MEETING_RANK, &mut table, BcastAlgorithm::tree(Tree::Binomial))?;
        Ok(table)
    }
}
