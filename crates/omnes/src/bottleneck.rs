//! What long data wait for, where ranks share cores or links are slow: one or the other.

use crate::communicator::Communicator;

/// A byte that takes so long, in picoseconds, is waited for at a link and not at a core.
const SLOW_BYTE_PS: u64 = 5_000;
/// What a byte costs the core of a rank that receives it and passes it on, in picoseconds. In labs
/// on two cores, 16 ranks passed on 16 x 15 MiB in 186 ms.
const PASSED_BYTE_PS: u64 = 1_500;

/// True if bytes that take a link so long come later than the ranks that share a core could pass
/// them on.
fn links_are_slower(byte_ps: u64, ranks_per_core: u32) -> bool {
    byte_ps >= SLOW_BYTE_PS.max(PASSED_BYTE_PS * u64::from(ranks_per_core))
}

impl Communicator {
    /// True if cores are what is waited for: some machine has more ranks, and links are fast. The
    /// same on all ranks.
    pub(crate) fn waits_for_cores(&self) -> bool {
        let is_slow = self.link_byte_ps().is_some_and(|byte_ps| byte_ps >= SLOW_BYTE_PS);
        self.job().engine.is_oversubscribed() && !is_slow
    }

    /// True if links are what is waited for, also where every rank passes all data on; false where
    /// nobody has measured them. The same on all ranks.
    pub(crate) fn waits_for_links(&self) -> bool {
        let ranks_per_core = self.job().engine.ranks_per_core();
        self.link_byte_ps().is_some_and(|byte_ps| links_are_slower(byte_ps, ranks_per_core))
    }

    /// Picoseconds of a byte of long data, where the network's figures tell.
    fn link_byte_ps(&self) -> Option<u64> {
        Some(self.job().figures()?.binomial.stream_byte_ps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_slower_than_cores_unless_many_ranks_share_one() {
        let gigabit_ps = 8_600;
        assert!(links_are_slower(gigabit_ps, 1) && links_are_slower(gigabit_ps, 4));
        assert!(!links_are_slower(gigabit_ps, 8) && !links_are_slower(900, 1));
    }
}
