//! Decides when ranks are signalled and with which status the job ends; no clock, no I/O.
//!
//! ```text
//!            rank fails                  grace over             grace over
//!  Running ─────────────► others may end ──────────► TERM sent ───────────► KILL sent
//!     │                                                 ▲                       ▲
//!     ├── time limit ───────────────────────────────────┘                       │
//!     └── INT, TERM or HUP: forwarded ──── grace over, or an INT after it ──────┘
//! ```
//!
//! The time limit applies in each of these states until a KILL is scheduled.
//!
//! The job is over when every rank has ended. Its status: 0 if none failed; 124 if the time limit
//! expired before a failure or a signal; else that of the first rank that failed, or of one that
//! crashed at the same time. If no rank failed by itself, but a forwarded signal had to be followed
//! by KILL, the ranks' own status is meaningless, so it is 128 + the forwarded signal.

use super::process::End;
use std::time::{Duration, Instant};

/// Status of a job that reached its time limit, as for `timeout(1)`.
const TIMEOUT_STATUS: u8 = 124;
/// Time from the first rank's end without failure to the check whether other ranks wait for it.
const LOOK_WAIT: Duration = Duration::from_secs(3);

/// A signal that arrives again within this time is the same one: `timeout` signals its child and
/// then the child's process group, and wrappers pass on what the terminal has sent to all.
const SAME_SIGNAL: Duration = Duration::from_millis(50);

/// Decision of the supervisor, to be applied to all live ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Signal to send, if any.
    pub signal: Option<i32>,
    /// Message to the user, if any.
    pub note: Option<Note>,
}

/// Messages to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// This rank failed first; `others` are still live and have the grace period.
    Failed {
        /// `0..size`.
        rank: usize,
        /// How the rank ended.
        end: End,
        /// Number of live ranks.
        others: usize,
    },
    /// Some ranks ended without failure a while ago, and others are live.
    Ended,
    /// This signal was forwarded to the ranks.
    Forwarded(i32),
    /// The time limit has expired.
    TimedOut,
    /// Live ranks were sent TERM.
    Terminated(usize),
    /// Live ranks were sent KILL.
    Killed(usize),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Terminate,
    Kill,
}

#[derive(Clone, Copy)]
enum Cause {
    Failure,
    Signal(i32),
    Timeout,
}

/// State of a running job.
pub struct Supervisor {
    grace: Duration,
    live: usize,
    cause: Option<Cause>,
    first_failure: Option<End>,
    next: Option<(Instant, Step)>,
    /// Expiry of the time limit.
    limit: Option<Instant>,
    /// Time of the check whether other ranks wait for those that have ended.
    look: Option<Instant>,
    has_ended: bool,
    /// Latest signal to the launcher that was not the one before it again.
    signalled: Option<(Instant, i32)>,
    is_killed: bool,
}

impl Supervisor {
    /// A job of `live` ranks that starts at `now`, with at most `timeout` to run.
    pub fn new(now: Instant, live: usize, grace: Duration, timeout: Option<Duration>) -> Self {
        Self {
            grace,
            live,
            cause: None,
            first_failure: None,
            next: None,
            // A limit beyond the range of the clock is no limit.
            limit: timeout.and_then(|timeout| now.checked_add(timeout)),
            look: None,
            has_ended: false,
            signalled: None,
            is_killed: false,
        }
    }

    /// True when every rank has ended.
    pub fn is_over(&self) -> bool {
        self.live == 0
    }

    /// Time at which [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let next = self.next.map(|(at, _)| at);
        next.into_iter().chain(self.limit).chain(self.look).min()
    }

    /// A rank ended; to be called once per rank.
    pub fn handle_end(&mut self, now: Instant, rank: usize, end: End) -> Option<Order> {
        self.live = self.live.checked_sub(1).expect("a rank ends once");
        if !end.is_failure() && !std::mem::replace(&mut self.has_ended, true) {
            self.look = now.checked_add(LOOK_WAIT);
        }
        // After KILL the ranks end because of us.
        if !end.is_failure() || self.is_killed {
            return None;
        }
        if let Some(first) = self.first_failure {
            // Other ranks may end because a rank was killed before the end of the killed rank is
            // seen.
            let is_own = matches!(self.next, Some((_, Step::Terminate)));
            let is_crash = matches!(end, End::Signalled(signal) if signal != libc::SIGTERM);
            if is_own && is_crash && matches!(first, End::Exited(_)) {
                self.first_failure = Some(end);
            }
            return None;
        }
        self.first_failure = Some(end);
        if self.cause.is_some() {
            return None;
        }
        self.cause = Some(Cause::Failure);
        self.schedule(now, Step::Terminate);
        Some(Order { signal: None, note: Some(Note::Failed { rank, end, others: self.live }) })
    }

    /// This many ranks have not been started and will not be.
    pub fn handle_unstarted(&mut self, ranks: usize) {
        self.live = self.live.checked_sub(ranks).expect("ranks that were not started live on");
    }

    /// The launcher received INT, TERM or HUP; any INT after the first signal kills, unless it is
    /// the same key press or call again.
    pub fn handle_signal(&mut self, now: Instant, signal: i32) -> Order {
        let is_same = |(at, earlier)| earlier == signal && now - at < SAME_SIGNAL;
        if self.signalled.is_some_and(is_same) {
            return Order { signal: None, note: None };
        }
        let earlier = self.signalled.replace((now, signal));
        self.cause.get_or_insert(Cause::Signal(signal));
        if earlier.is_some() && signal == libc::SIGINT {
            return self.kill();
        }
        // A further signal must not postpone a KILL that is already scheduled.
        if !self.is_killed && !self.is_kill_to_come() {
            self.schedule(now, Step::Kill);
        }
        Order { signal: Some(signal), note: Some(Note::Forwarded(signal)) }
    }

    /// The time of [`Self::poll_timeout`] has arrived; spurious calls do nothing.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<Order> {
        if self.look.take_if(|at| *at <= now).is_some() && self.cause.is_none() && self.live > 0 {
            return Some(Order { signal: None, note: Some(Note::Ended) });
        }
        if self.limit.take_if(|at| *at <= now).is_some() && !self.is_kill_to_come() {
            self.cause.get_or_insert(Cause::Timeout);
            self.schedule(now, Step::Kill);
            return Some(Order { signal: Some(libc::SIGTERM), note: Some(Note::TimedOut) });
        }
        let (_, step) = self.next.filter(|(at, _)| *at <= now)?;
        match step {
            Step::Terminate => {
                self.schedule(now, Step::Kill);
                let note = Some(Note::Terminated(self.live));
                Some(Order { signal: Some(libc::SIGTERM), note })
            }
            Step::Kill => Some(self.kill()),
        }
    }

    /// Exit status of the launcher, once the job is over.
    pub fn status(&self) -> u8 {
        match (self.cause, self.first_failure) {
            (Some(Cause::Timeout), _) => TIMEOUT_STATUS,
            (_, Some(end)) => end.status(),
            (Some(Cause::Signal(signal)), None) if self.is_killed => {
                End::Signalled(signal).status()
            }
            _ => 0,
        }
    }

    /// Forwarded signal that ended the job, once it is over.
    pub fn ended_by(&self) -> Option<i32> {
        match self.cause {
            Some(Cause::Signal(signal)) if self.status() == End::Signalled(signal).status() => {
                Some(signal)
            }
            _ => None,
        }
    }

    fn is_kill_to_come(&self) -> bool {
        matches!(self.next, Some((_, Step::Kill)))
    }

    fn kill(&mut self) -> Order {
        self.is_killed = true;
        self.next = None;
        self.limit = None;
        Order { signal: Some(libc::SIGKILL), note: Some(Note::Killed(self.live)) }
    }

    fn schedule(&mut self, now: Instant, step: Step) {
        self.next = now.checked_add(self.grace).map(|at| (at, step));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use libc::{SIGINT, SIGKILL, SIGTERM};

    const GRACE: Duration = Duration::from_secs(5);
    const FAILED: End = End::Exited(7);

    fn job(live: usize) -> (Instant, Supervisor) {
        let start = Instant::now();
        (start, Supervisor::new(start, live, GRACE, None))
    }

    fn sent(order: Option<Order>) -> Option<i32> {
        order.and_then(|order| order.signal)
    }

    #[test]
    fn successful_job_has_no_deadline_and_status_0() {
        let (now, mut job) = job(2);
        assert_eq!(job.poll_timeout(), None);
        for rank in 0..2 {
            assert_eq!(job.handle_end(now, rank, End::Exited(0)), None);
        }
        assert_eq!(job.handle_timeout(now + LOOK_WAIT), None, "nobody is left");
        assert!(job.is_over());
        assert_eq!(job.status(), 0);
    }

    #[test]
    fn failure_leads_to_sigterm_and_sigkill_after_one_grace_period_each() {
        let (now, mut job) = job(3);
        let order = job.handle_end(now, 1, FAILED).unwrap();
        let note = Some(Note::Failed { rank: 1, end: FAILED, others: 2 });
        assert_eq!(order, Order { signal: None, note });
        assert_eq!(job.handle_timeout(now + GRACE - Duration::from_nanos(1)), None);
        assert_eq!(sent(job.handle_timeout(now + GRACE)), Some(SIGTERM));
        assert_eq!(job.handle_timeout(now + GRACE), None);
        assert_eq!(sent(job.handle_timeout(now + 2 * GRACE)), Some(SIGKILL));
        assert_eq!(job.poll_timeout(), None);
    }

    #[test]
    fn ranks_that_outlive_another_are_checked_once() {
        let (now, mut job) = job(3);
        job.handle_end(now, 1, End::Exited(0));
        job.handle_end(now + LOOK_WAIT / 2, 2, End::Exited(0));
        assert_eq!(job.poll_timeout(), Some(now + LOOK_WAIT));
        let order = Some(Order { signal: None, note: Some(Note::Ended) });
        assert_eq!(job.handle_timeout(now + LOOK_WAIT), order);
        assert_eq!((job.poll_timeout(), job.handle_timeout(now + 2 * LOOK_WAIT)), (None, None));
    }

    #[test]
    fn first_failure_decides_the_status() {
        let (now, mut job) = job(3);
        job.handle_end(now, 1, FAILED);
        assert_eq!(job.handle_end(now, 0, End::Signalled(SIGTERM)), None);
        job.handle_end(now, 2, End::Exited(0));
        assert_eq!(job.status(), 7);
    }

    #[test]
    fn killed_rank_overrides_earlier_failures_in_the_status() {
        let (now, mut job) = job(4);
        job.handle_end(now, 1, FAILED);
        job.handle_end(now, 0, End::Signalled(SIGKILL));
        assert_eq!(job.status(), 128 + 9);
        // Failures after our own signal explain nothing.
        job.handle_timeout(now + GRACE);
        job.handle_end(now + GRACE, 2, End::Signalled(SIGTERM));
        assert_eq!(job.status(), 128 + 9);
    }

    #[test]
    fn repeated_signal_does_not_postpone_the_kill() {
        let (now, mut job) = job(1);
        job.handle_signal(now, SIGTERM);
        job.handle_signal(now + GRACE / 2, SIGTERM);
        assert_eq!(job.poll_timeout(), Some(now + GRACE));
    }

    #[test]
    fn sigint_after_any_other_signal_kills_immediately() {
        for first in [SIGINT, SIGTERM, libc::SIGHUP] {
            let (now, mut job) = job(1);
            assert_eq!(job.handle_signal(now, first).signal, Some(first));
            let (then, later) = (now + SAME_SIGNAL, now + 2 * SAME_SIGNAL);
            assert_eq!(job.handle_signal(then, SIGTERM).signal, Some(SIGTERM));
            assert_eq!(job.handle_signal(later, SIGINT).signal, Some(SIGKILL));
            job.handle_end(now, 0, End::Signalled(SIGKILL));
            assert_eq!((i32::from(job.status()), job.ended_by()), (128 + first, Some(first)));
        }
    }

    #[test]
    fn sigint_that_arrives_twice_at_once_does_not_kill() {
        let (now, mut job) = job(1);
        assert_eq!(job.handle_signal(now, SIGINT).signal, Some(SIGINT));
        let again = job.handle_signal(now + SAME_SIGNAL / 2, SIGINT);
        assert_eq!(again, Order { signal: None, note: None });
        // A key that is held down kills: the time counts from the first.
        assert_eq!(job.handle_signal(now + SAME_SIGNAL, SIGINT).signal, Some(SIGKILL));
    }

    #[test]
    fn unstarted_ranks_are_not_waited_for() {
        let (now, mut job) = job(9);
        job.handle_unstarted(7);
        let order = job.handle_end(now, 0, FAILED).unwrap();
        assert_eq!(order.note, Some(Note::Failed { rank: 0, end: FAILED, others: 1 }));
        job.handle_end(now, 1, FAILED);
        assert!(job.is_over());
    }

    #[test]
    fn job_succeeds_if_its_ranks_exit_cleanly_after_a_signal() {
        let (now, mut job) = job(1);
        job.handle_signal(now, SIGTERM);
        job.handle_end(now, 0, End::Exited(0));
        assert_eq!((job.status(), job.ended_by()), (0, None));
    }

    #[test]
    fn job_killed_by_a_forwarded_signal_reports_that_signal() {
        let (now, mut job) = job(1);
        job.handle_end(now, 0, End::Signalled(SIGINT));
        assert_eq!(job.ended_by(), None, "nobody has forwarded it");
        for (end, by) in [(End::Signalled(SIGTERM), Some(SIGTERM)), (FAILED, None)] {
            let (now, mut job) = self::job(1);
            job.handle_signal(now, SIGTERM);
            job.handle_end(now, 0, end);
            assert_eq!(job.ended_by(), by);
        }
    }

    #[test]
    fn timeout_status_overrides_the_status_of_ranks() {
        let now = Instant::now();
        let mut job = Supervisor::new(now, 1, GRACE, Some(GRACE));
        assert_eq!(sent(job.handle_timeout(now + GRACE)), Some(SIGTERM));
        job.handle_end(now, 0, FAILED);
        assert_eq!(job.status(), TIMEOUT_STATUS);
    }

    #[test]
    fn time_limit_still_applies_after_a_failure_that_keeps_its_status() {
        let now = Instant::now();
        let mut job = Supervisor::new(now, 2, GRACE, Some(GRACE / 2));
        job.handle_end(now, 0, FAILED);
        assert_eq!(job.poll_timeout(), Some(now + GRACE / 2));
        let order = Some(Order { signal: Some(SIGTERM), note: Some(Note::TimedOut) });
        assert_eq!(job.handle_timeout(now + GRACE / 2), order);
        assert_eq!(job.handle_timeout(now + GRACE), None, "TERM was sent already");
        assert_eq!(sent(job.handle_timeout(now + GRACE / 2 + GRACE)), Some(SIGKILL));
        assert_eq!((job.poll_timeout(), job.status()), (None, 7));
    }

    #[test]
    fn time_limit_does_not_postpone_the_kill() {
        let now = Instant::now();
        let mut job = Supervisor::new(now, 1, GRACE, Some(GRACE / 2));
        job.handle_signal(now, SIGINT);
        assert_eq!(job.handle_timeout(now + GRACE / 2), None);
        assert_eq!(job.poll_timeout(), Some(now + GRACE));
        assert_eq!(sent(job.handle_timeout(now + GRACE)), Some(SIGKILL));
        assert_eq!((job.poll_timeout(), job.status()), (None, 128 + 2));
    }
}
