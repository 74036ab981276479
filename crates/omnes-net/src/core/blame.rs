//! Decides whether the kernel NIC is to blame for not seeing doorbells.
//!
//! The NIC sees a doorbell when it leaves this host. It cannot see a doorbell that does not leave
//! because the link is down or the other host's Ethernet address is not known; how long that may
//! last is up to the peer timeout. So at each doubt, the rank to which doorbells are addressed is
//! asked for a sign of life, and the NIC is to blame if it has seen no doorbell from one answer
//! until after the next: the first shows that packets leave for that host, the second that they
//! still did.

/// Doubts about the NIC of one group, for one barrier.
#[derive(Default)]
pub(super) struct Blame {
    /// Number of answers at the last doubt.
    answers: Option<u32>,
    /// A new answer had arrived by then.
    has_answered: bool,
}

impl Blame {
    /// Called when the NIC has seen none of many doorbells and `answers` answers have arrived so
    /// far: true if the NIC is to blame. Otherwise the rank must be asked again.
    pub(super) fn is_for_nic(&mut self, answers: u32) -> bool {
        let before = self.answers.replace(answers);
        let has_answered = before.is_some_and(|before| before != answers);
        std::mem::replace(&mut self.has_answered, has_answered) && has_answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Result of each doubt, given the number of answers by then.
    fn found(answers: &[u32]) -> Vec<bool> {
        let mut blame = Blame::default();
        answers.iter().map(|answers| blame.is_for_nic(*answers)).collect()
    }

    #[test]
    fn nic_is_blamed_for_packets_missed_between_two_answers() {
        assert_eq!(found(&[5, 6, 7]), [false, false, true]);
        assert_eq!(found(&[5, 5, 5, 6, 9]), [false, false, false, false, true]);
    }

    #[test]
    fn nic_is_not_blamed_without_answers_or_losses_between_them() {
        assert_eq!(found(&[5; 30]), [false; 30]);
        assert_eq!(found(&[5, 6, 6, 7, 7, 8, 8]), [false; 7]);
    }
}
