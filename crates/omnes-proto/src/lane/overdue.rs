//! When a waiting receiver asks for packets that do not arrive.
//!
//! A message that is lost completely, or from some packet on, with no packets after it, leaves no
//! gap to report. The sender could ask for acknowledgements, but each costs both ends a packet, and
//! the slowest receiver may delay it; a receiver that waits for the message can equally notice that
//! it is overdue. If the sender is late instead, it has nothing to send again and does not answer.
//!
//! The usual time of a message is measured from the time that a receiver starts to wait, so a
//! sender that is always late is not always asked.
//!
//! Cost: nothing while packets arrive; one report per overdue message, repeated after waits that
//! double.

use super::rtt::Rtt;
use omnes_wire::Instant;
use std::time::Duration;

/// Longest wait before the next question.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// See the module header.
#[derive(Debug)]
pub(crate) struct Overdue {
    usual: Rtt,
    /// Time since which nothing of the awaited message has arrived.
    since: Option<Instant>,
    ask_at: Option<Instant>,
    wait: Duration,
    /// Arrival of its latest part, and the longest pause in it (`pause`), which decays quickly.
    came_at: Option<Instant>,
    pause: Duration,
    /// Time of the last question for it, and their number (`questions`).
    asked_at: Option<Instant>,
    questions: u32,
}

impl Overdue {
    pub(crate) fn new() -> Self {
        Self {
            usual: Rtt::new(),
            since: None,
            ask_at: None,
            wait: Duration::ZERO,
            came_at: None,
            pause: Duration::ZERO,
            asked_at: None,
            questions: 0,
        }
    }

    /// Starts to wait for a message of which nothing has arrived; it is asked for after at least
    /// `least`.
    pub(crate) fn begin(&mut self, now: Instant, least: Duration) {
        if self.since.is_some() {
            return;
        }
        self.wait = self.usual_wait(least);
        self.since = Some(now);
        self.ask_at = Some(now + self.wait);
        (self.asked_at, self.questions) = (None, 0);
        (self.came_at, self.pause) = (None, Duration::ZERO);
    }

    /// Time after which a message is overdue: the maximum of `least`, twice its usual time, and its
    /// usual time plus four deviations.
    fn usual_wait(&self, least: Duration) -> Duration {
        let (mean, spread) = (self.usual.smoothed(), self.usual.deviation());
        (mean + mean.max(4 * spread)).min(WAIT_MAX).max(least)
    }

    /// Part of the message has arrived, and it is not known whether because it was asked for. If it
    /// was, it counts as having arrived at the time of the question: a sender that is late is soon
    /// asked only after a longer time, and a loss makes the next wait hardly longer.
    pub(crate) fn end_unsure(&mut self, now: Instant) {
        let at = self.asked_at.unwrap_or(now);
        self.end(at, true);
    }

    /// Number of times that it has been asked for.
    pub(crate) fn questions(&self) -> u32 {
        self.questions
    }

    /// Continues to wait for it, but asks no more.
    pub(crate) fn give_up(&mut self) {
        self.ask_at = None;
    }

    /// Stops waiting.
    pub(crate) fn stop(&mut self) {
        self.since = None;
        self.ask_at = None;
        self.came_at = None;
        self.pause = Duration::ZERO;
    }

    /// Part of the message has arrived, by itself and not because it was asked for if `is_usual`.
    /// If this rank did not run and would otherwise have asked for it before, it counts as having
    /// arrived at that time.
    pub(crate) fn end(&mut self, now: Instant, is_usual: bool) {
        let due = self.ask_at.take().filter(|at| *at <= now && self.asked_at.is_none());
        if let (Some(since), true) = (self.since.take(), is_usual) {
            self.usual.add_sample(due.unwrap_or(now).since(since));
        }
    }

    /// Part of the message has arrived; the remaining data are asked for when nothing has arrived
    /// for `least`, or for twice the longest pause so far: they arrive at the pace of the network.
    pub(crate) fn begin_rest(&mut self, now: Instant, least: Duration) {
        // Packets that arrived together count as one.
        if let Some(came_at) = self.came_at.replace(now).filter(|came_at| *came_at != now) {
            self.pause = now.since(came_at).max(self.pause * 7 / 8);
        }
        self.wait = least.max(self.pause * 2).min(WAIT_MAX);
        self.ask_at = Some(now + self.wait);
        self.questions = 0;
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.ask_at
    }

    /// True if it is to be asked for now.
    pub(crate) fn on_deadline(&mut self, now: Instant) -> bool {
        if self.ask_at.is_none_or(|at| at > now) {
            return false;
        }
        self.wait = (self.wait * 2).min(WAIT_MAX.max(self.wait));
        self.ask_at = Some(now + self.wait);
        self.asked_at = Some(now);
        self.questions += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_micros(40);

    fn at(us: u64) -> Instant {
        Instant::from_ns(us * 1000)
    }

    /// Messages have arrived `us` after the wait for them began.
    fn after(us: u64) -> Overdue {
        let mut overdue = Overdue::new();
        for start in 0..50 {
            overdue.begin(at(start * 1000), LEAST);
            overdue.end(at(start * 1000 + us), true);
        }
        overdue.begin(at(100_000), LEAST);
        overdue
    }

    #[test]
    fn wait_starts_short_for_prompt_senders_and_then_doubles() {
        let mut overdue = after(10);
        assert_eq!(overdue.deadline(), Some(at(100_040)));
        assert!(!overdue.on_deadline(at(100_039)));
        assert!(overdue.on_deadline(at(100_040)));
        assert_eq!(overdue.deadline(), Some(at(100_120)));
        assert!(overdue.on_deadline(at(100_120)));
        assert_eq!(overdue.deadline(), Some(at(100_280)));
    }

    #[test]
    fn wait_is_twice_the_usual_delay_of_a_late_root() {
        let wait = after(10_000).deadline().map(|at_last| at_last.since(at(100_000)));
        assert!(wait.is_some_and(|wait| wait >= Duration::from_micros(19_900)), "{wait:?}");
    }

    #[test]
    fn uncertain_samples_hardly_lengthen_the_wait() {
        let mut overdue = after(10);
        overdue.end_unsure(at(1_100_000));
        overdue.begin(at(2_000_000), LEAST);
        let wait = overdue.deadline().map(|at_last| at_last.since(at(2_000_000)));
        assert!(wait.is_some_and(|wait| wait <= 2 * LEAST), "{wait:?}");
    }

    #[test]
    fn requested_arrivals_are_not_used_as_samples() {
        let mut overdue = after(10);
        overdue.end(at(200_000), false);
        overdue.begin(at(300_000), LEAST);
        assert_eq!(overdue.deadline(), Some(at(300_040)));
    }

    #[test]
    fn wait_for_the_rest_of_a_message_starts_at_its_last_packet() {
        let mut overdue = after(10);
        for us in [100_010, 100_020] {
            overdue.end(at(us), true);
            overdue.begin_rest(at(us), LEAST);
        }
        assert_eq!(overdue.deadline(), Some(at(100_060)));
        assert!(overdue.on_deadline(at(100_060)));
        assert_eq!(overdue.deadline(), Some(at(100_140)));
        overdue.end(at(100_070), true);
        assert_eq!(overdue.deadline(), None);
    }
}
