//! Whether the kernel NIC is to blame that it does not see doorbells.
//!
//! It sees one when it leaves this host. One that does not leave, as the link is down or the other
//! host's Ethernet address is not known, it cannot see; how long that may last is the peer
//! timeout's matter. So at each doubt the rank that doorbells lead to is asked for a sign of life,
//! and the NIC is to blame if it has seen no doorbell from one answer until after the next: the
//! first shows that packets leave for that host, the second that they still did.

/// Doubts about the NIC of one group, for one barrier.
#[derive(Default)]
pub(super) struct Blame {
    /// Answers before the last doubt.
    answers: Option<u32>,
    /// One had come by then.
    has_answered: bool,
}

impl Blame {
    /// The NIC has seen none of many doorbells, and so many answers have come so far: true if it is
    /// to blame. Else the rank is to be asked again.
    pub(super) fn is_for_nic(&mut self, answers: u32) -> bool {
        let before = self.answers.replace(answers);
        let has_answered = before.is_some_and(|before| before != answers);
        std::mem::replace(&mut self.has_answered, has_answered) && has_answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found doubt by doubt, with so many answers by then.
    fn found(answers: &[u32]) -> Vec<bool> {
        let mut blame = Blame::default();
        answers.iter().map(|answers| blame.is_for_nic(*answers)).collect()
    }

    #[test]
    fn nic_is_to_blame_for_what_it_has_not_seen_between_two_answers() {
        assert_eq!(found(&[5, 6, 7]), [false, false, true]);
        assert_eq!(found(&[5, 5, 5, 6, 9]), [false, false, false, false, true]);
    }

    #[test]
    fn while_nothing_comes_back_it_is_not() {
        assert_eq!(found(&[5; 30]), [false; 30]);
        assert_eq!(found(&[5, 6, 6, 7, 7, 8, 8]), [false; 7]);
    }
}
