//! Whether the kernel's NIC is to blame that it does not see doorbells.
//!
//! It sees one when it leaves this host. One that does not leave, as the link is down or another
//! host's Ethernet address is not known, it cannot see; how long that may last is the peer
//! timeout's matter. So the NIC is to blame only if nothing has been refused, and packets have come
//! from other hosts for so long that their addresses must be known again: [`ADDRESS_TIME`].

use omnes_wire::Instant;
use std::time::Duration;

/// Longer than it takes Linux, which asks for an address once a second, to learn it when the other
/// host can answer again.
const ADDRESS_TIME: Duration = Duration::from_millis(1500);
/// Doubts in a row come closer together than this.
const DOUBTS_APART_MAX: Duration = Duration::from_secs(3);

/// What the host's sockets have counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Traffic {
    /// Packets that could not be sent.
    pub(super) refused: u64,
    /// Packets from other hosts.
    pub(super) received: u64,
}

/// See the module header.
#[derive(Default)]
pub(super) struct Blame {
    doubted_at: Option<Instant>,
    traffic: Traffic,
    /// Since when packets have come, as far as is known.
    come_since: Option<Instant>,
}

impl Blame {
    /// The NIC has seen no doorbell for about a second: true if it is to blame. Else the next
    /// second is to be waited for.
    pub(super) fn is_for_nic(&mut self, now: Instant, traffic: Traffic) -> bool {
        let before = std::mem::replace(&mut self.traffic, traffic);
        let doubted_at = self.doubted_at.replace(now);
        let is_first = doubted_at.is_none_or(|at| now.since(at) > DOUBTS_APART_MAX);
        if is_first || traffic.refused != before.refused {
            self.come_since = None;
            return false;
        }
        let has_come = traffic.received != before.received;
        match self.come_since {
            Some(since) => has_come && now.since(since) >= ADDRESS_TIME,
            None => {
                self.come_since = has_come.then_some(now);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found second by second, with so many packets refused and received by then.
    fn found(seconds: &[(u64, u64)]) -> Vec<bool> {
        let mut blame = Blame::default();
        let doubts = (1..).zip(seconds);
        let doubts = doubts.map(|(second, &(refused, received))| {
            let now = Instant::from_ns(second * 1_000_000_000);
            blame.is_for_nic(now, Traffic { refused, received })
        });
        doubts.collect()
    }

    #[test]
    fn nic_is_to_blame_once_packets_have_come_for_long_enough() {
        assert_eq!(found(&[(7, 5), (7, 6), (7, 7), (7, 8)]), [false, false, false, true]);
    }

    #[test]
    fn nothing_that_leaves_or_comes_excuses_it() {
        assert_eq!(found(&[(7, 5); 30]), [false; 30]);
        let refused: Vec<_> = (0..30).map(|at| (at, at)).collect();
        assert_eq!(found(&refused), [false; 30]);
    }

    #[test]
    fn addresses_have_time_to_be_learnt_when_packets_come_again() {
        assert_eq!(found(&[(0, 5), (0, 5), (0, 6), (0, 7), (0, 8)])[..4], [false; 4]);
    }

    #[test]
    fn packets_that_come_seldom_prove_it_as_well() {
        assert_eq!(found(&[(0, 5), (0, 6), (0, 6), (0, 6), (0, 6), (0, 7)])[4..], [false, true]);
    }
}
