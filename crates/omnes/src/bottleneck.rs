//! The bottleneck of long data if ranks share cores or links are slow: cores or links.

use crate::communicator::Communicator;

/// If a byte takes at least this time, in picoseconds, the bottleneck is a link and not a core.
const SLOW_BYTE_PS: u64 = 5_000;
/// Time, in picoseconds, that the core of a rank takes to receive a byte and forward it. In labs on
/// two cores, 16 ranks forwarded 16 x 15 MiB in 186 ms.
const PASSED_BYTE_PS: u64 = 1_500;

/// True if a link that takes this time per byte is slower than the forwarding of the ranks that
/// share a core.
fn links_are_slower(byte_ps: u64, ranks_per_core: u32) -> bool {
    byte_ps >= SLOW_BYTE_PS.max(PASSED_BYTE_PS * u64::from(ranks_per_core))
}

impl Communicator {
    /// True if cores are the bottleneck: some machine has more ranks than cores, and links are
    /// fast. The same on all ranks.
    pub(crate) fn waits_for_cores(&self) -> bool {
        let is_slow = self.link_byte_ps().is_some_and(|byte_ps| byte_ps >= SLOW_BYTE_PS);
        self.job().engine.is_oversubscribed() && !is_slow
    }

    /// True if links are the bottleneck, even if every rank forwards all data; false if they have
    /// not been measured. The same on all ranks.
    pub(crate) fn waits_for_links(&self) -> bool {
        let ranks_per_core = self.job().engine.ranks_per_core();
        self.link_byte_ps().is_some_and(|byte_ps| links_are_slower(byte_ps, ranks_per_core))
    }

    /// Time per byte of long data, in picoseconds, if the network has been measured.
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
