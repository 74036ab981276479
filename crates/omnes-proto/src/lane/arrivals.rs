//! The receiving half of a lane: what has arrived, and which reports are due.
//!
//! Source: [PM-R15, R16]: a run of packets is answered by one ACK; a packet without buffer is
//! answered by NACK with reject, and then everything but that packet is silently discarded until it
//! arrives again and fits. For a lossy network [PM-R18]: a gap is reported with a map of all
//! packets after it that have arrived, immediately if enough later packets prove it, otherwise
//! after a short wait, and again until it closes.

#[cfg(test)]
mod tests;

use super::bits::SeqBits;
use super::earliest;
use crate::limits::{REORDER_PACKETS, WINDOW_PACKETS_MAX};
use omnes_wire::{GapMap, Instant, Seq};
use std::time::Duration;

/// Position of a numbered packet relative to the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// The packet arrived before; the answer was lost.
    Duplicate,
    /// Beyond any number that a correct sender may use.
    BeyondWindow,
    /// The expected packet.
    InOrder,
    /// A new packet after the expected one.
    Ahead,
}

/// Type of the next report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Report {
    Ack,
    Nack,
    Reject,
    Resume,
}

/// See the module header.
#[derive(Debug)]
pub(crate) struct Arrivals {
    expects: Seq,
    /// One past the highest number that has arrived.
    end: Seq,
    ahead: SeqBits,
    ahead_count: u32,
    /// One past the highest number that has been found missing.
    gap_end: Seq,
    /// Arrival that the next report answers: the latest, or that of the latest question.
    newest: Instant,
    epoch: u16,
    owed: u32,
    due: Option<Report>,
    ack_at: Option<Instant>,
    nack_at: Option<Instant>,
    /// Time at which reported gaps are reported again.
    repeat_at: Option<Instant>,
    /// Value of `end` when the gaps were last reported, and the time of that report.
    reported: Option<(Seq, Instant)>,
    repeat_wait: Duration,
    /// See [`Self::repair_wait`].
    repair_wait: Duration,
    /// The due report repeats an earlier one that had no effect.
    is_repeat: bool,
    /// The report due at `ack_at` was asked for.
    is_answer_planned: bool,
    rejecting: bool,
}

/// Wait before a gap is reported again, until the first repair has shown how long repairs take.
const REPEAT_WAIT_INITIAL: Duration = Duration::from_millis(1);
const REPEAT_WAIT_MIN: Duration = Duration::from_micros(100);
const REPEAT_WAIT_MAX: Duration = Duration::from_millis(20);

impl Default for Arrivals {
    fn default() -> Self {
        Self::UNUSED
    }
}

impl Arrivals {
    /// State before the first packet.
    pub(crate) const UNUSED: Self = Self {
        expects: Seq::FIRST,
        end: Seq::FIRST,
        ahead: SeqBits::NONE,
        ahead_count: 0,
        gap_end: Seq::FIRST,
        newest: Instant::ZERO,
        epoch: 0,
        owed: 0,
        due: None,
        ack_at: None,
        nack_at: None,
        repeat_at: None,
        reported: None,
        repeat_wait: REPEAT_WAIT_INITIAL,
        repair_wait: REPEAT_WAIT_INITIAL,
        is_repeat: false,
        is_answer_planned: false,
        rejecting: false,
    };

    pub(crate) fn expects(&self) -> Seq {
        self.expects
    }

    pub(crate) fn epoch(&self) -> u16 {
        self.epoch
    }

    /// True if a report is due now.
    pub(crate) fn is_due(&self) -> bool {
        self.due.is_some()
    }

    #[cfg(test)]
    fn due(&self) -> Option<Report> {
        self.due
    }

    pub(crate) fn is_rejecting(&self) -> bool {
        self.rejecting
    }

    pub(crate) fn has_gap(&self) -> bool {
        self.end != self.expects
    }

    /// True if no answer is owed [PM-R21 C3].
    pub(crate) fn is_stable(&self) -> bool {
        self.due.is_none() && self.owed == 0
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        earliest([self.ack_at, self.nack_at, self.repeat_at])
    }

    /// Pure: determines the position of `seq`.
    pub(crate) fn classify(&self, seq: Seq) -> Arrival {
        if seq == self.expects {
            Arrival::InOrder
        } else if seq.precedes(self.expects) {
            Arrival::Duplicate
        } else if seq.since(self.expects) >= WINDOW_PACKETS_MAX {
            Arrival::BeyondWindow
        } else if self.ahead.contains(seq) {
            Arrival::Duplicate
        } else {
            Arrival::Ahead
        }
    }

    /// Number of packets from `seq` on, at most `most`, before the first one that has arrived.
    pub(crate) fn untouched(&self, seq: Seq, most: u32) -> u32 {
        if !self.has_gap() {
            // The packets after a duplicate have been placed, whatever follows them.
            return if seq.precedes(self.expects) { 0 } else { most };
        }
        // Most packets of a long message have not been sent yet, so only those before `end` are
        // checked.
        let seen = if seq.precedes(self.end) { self.end.since(seq).min(most) } else { 0 };
        let has_come = |index: &u32| self.classify(seq.plus(*index)) == Arrival::Duplicate;
        (0..seen).find(has_come).unwrap_or(most)
    }

    /// An authentic numbered packet has arrived, whether it is accepted or not.
    pub(crate) fn on_packet(&mut self, now: Instant, epoch: u16) {
        if !self.is_answer_planned {
            self.newest = now;
        }
        if epoch.wrapping_sub(self.epoch) < 1 << 15 {
            self.epoch = epoch;
        }
    }

    /// The expected packet was accepted. Call again while [`Self::next_is_here`].
    pub(crate) fn on_in_order(&mut self, now: Instant) {
        if self.ahead_count > 0 && self.ahead.take(self.expects) {
            self.ahead_count -= 1;
        }
        self.on_run(now, 1);
    }

    /// The next `packets` packets were accepted, none of which had arrived before.
    pub(crate) fn on_run(&mut self, now: Instant, packets: u32) {
        self.rejecting = false;
        self.expects = self.expects.plus(packets);
        self.owed += packets;
        if self.end.precedes(self.expects) {
            self.end = self.expects;
        }
        self.on_gap_moved(now);
    }

    /// True if the packet that is now expected has arrived before.
    pub(crate) fn next_is_here(&self) -> bool {
        self.ahead_count > 0 && self.ahead.contains(self.expects)
    }

    /// A later packet was accepted out of order.
    pub(crate) fn on_ahead(&mut self, now: Instant, seq: Seq, nack_delay: Duration) {
        self.ahead.insert(seq);
        self.ahead_count += 1;
        if self.end.precedes(seq) {
            self.gap_end = seq;
        }
        if !seq.precedes(self.end) {
            self.end = seq.plus(1);
        }
        if self.has_unreported_gap() {
            self.due = Some(Report::Nack);
        } else if self.due != Some(Report::Nack) && !self.is_told() {
            self.nack_at.get_or_insert(now + nack_delay);
        }
    }

    /// True if the latest gap has been reported.
    fn is_told(&self) -> bool {
        self.reported.is_some_and(|(end, _)| !end.precedes(self.gap_end))
    }

    /// True if an unreported gap is certain enough: packets after a reported gap need no second
    /// report unless they reveal another one.
    fn has_unreported_gap(&self) -> bool {
        match self.reported {
            None => self.ahead_count >= REORDER_PACKETS,
            Some((end, _)) => {
                end.precedes(self.gap_end) && self.end.since(self.gap_end) >= REORDER_PACKETS
            }
        }
    }

    fn on_gap_moved(&mut self, now: Instant) {
        if self.has_gap() {
            return;
        }
        if let Some((_, at)) = self.reported.take() {
            // The repair shows how long a report takes to have effect.
            let took = now.since(at) * 2;
            let wait = (self.repeat_wait * 3 + took) / 4;
            self.repeat_wait = wait.clamp(REPEAT_WAIT_MIN, REPEAT_WAIT_MAX);
            // The minimum decays slowly, as paths change.
            self.repair_wait = (self.repair_wait * 17 / 16).min(took).min(REPEAT_WAIT_MAX);
        }
        self.nack_at = None;
        self.repeat_at = None;
        self.is_repeat = false;
        if self.due == Some(Report::Nack) {
            self.due = Some(Report::Ack);
        }
    }

    /// No buffer for the expected packet [PM-R15]. Packets that arrived ahead of it are discarded;
    /// the sender will send them again.
    pub(crate) fn on_rejected(&mut self) {
        self.rejecting = true;
        self.discard_ahead();
        self.due = Some(Report::Reject);
    }

    /// Discards the packets ahead of the expected one, so there is no gap to report.
    pub(crate) fn discard_ahead(&mut self) {
        self.ahead.clear();
        self.ahead_count = 0;
        self.end = self.expects;
        self.reported = None;
        self.cancel_gap_reports();
    }

    /// Buffers are free again.
    pub(crate) fn on_buffers(&mut self) {
        if self.rejecting {
            self.due = Some(Report::Resume);
        }
    }

    /// Determines whether an acknowledgement is due now or may wait to travel with data.
    pub(crate) fn owe(&mut self, now: Instant, at_once: AckWhen, ack_delay: Duration) {
        if self.due.is_some() {
            return;
        }
        match at_once {
            AckWhen::Now => self.due = Some(Report::Ack),
            AckWhen::After(packets) if self.owed >= packets => self.due = Some(Report::Ack),
            AckWhen::After(_) => {
                if self.owed > 0 {
                    self.ack_at.get_or_insert(now + ack_delay);
                }
            }
        }
    }

    /// Answers a question of the sender: reports what is missing, or that nothing is.
    pub(crate) fn answer(&mut self) {
        self.due = Some(if self.has_gap() { Report::Nack } else { Report::Ack });
    }

    /// As [`Self::answer`] to the packet arriving now, but not before `at`: an acknowledgement that
    /// is already owed waits too, a planned answer does not.
    pub(crate) fn answer_at(&mut self, now: Instant, at: Instant) {
        self.newest = now;
        if self.due.is_some() {
            return;
        }
        if self.has_gap() {
            self.nack_at = Some(self.nack_at.map_or(at, |planned| planned.min(at)));
            return;
        }
        let planned = self.ack_at.filter(|_| self.is_answer_planned);
        self.ack_at = Some(planned.map_or(at, |planned| planned.min(at)));
        self.is_answer_planned = true;
    }

    /// True if an acknowledgement is owed and not due yet.
    pub(crate) fn owes_lazily(&self) -> bool {
        self.ack_at.is_some() && self.due.is_none()
    }

    /// Makes an acknowledgement due, unless another report is.
    pub(crate) fn answer_if_whole(&mut self) {
        self.due.get_or_insert(Report::Ack);
    }

    /// One past the highest number that has arrived.
    pub(crate) fn end(&self) -> Seq {
        self.end
    }

    /// Schedules another acknowledgement: the sender seems not to know what has arrived.
    pub(crate) fn owe_again(&mut self, now: Instant, ack_delay: Duration) {
        if self.due.is_none() {
            self.ack_at.get_or_insert(now + ack_delay);
        }
    }

    /// Cancels gap reports, which are not sent unasked.
    pub(crate) fn cancel_gap_reports(&mut self) {
        self.nack_at = None;
        self.repeat_at = None;
        if self.due == Some(Report::Nack) {
            self.due = None;
        }
    }

    /// Postpones the repetition of gap reports to `at`, as packets have arrived meanwhile.
    pub(crate) fn put_off_repeat(&mut self, at: Instant) {
        self.repeat_at = self.repeat_at.map(|_| at);
    }

    /// Twice the duration of the fastest repair.
    pub(crate) fn repair_wait(&self) -> Duration {
        self.repair_wait
    }

    /// Postpones a due gap report to `at`, so that other ranks may be first.
    pub(crate) fn defer_gaps(&mut self, at: Instant) {
        if self.due == Some(Report::Nack) {
            self.due = None;
            self.nack_at.get_or_insert(at);
        }
    }

    /// Cancels the scheduled acknowledgement.
    fn settle_ack(&mut self) {
        self.ack_at = None;
        self.is_answer_planned = false;
    }

    /// Fires the timers that are due. Returns true if a report is due now.
    pub(crate) fn on_deadline(&mut self, now: Instant) -> bool {
        if self.ack_at.is_some_and(|at| at <= now) {
            self.settle_ack();
            self.due.get_or_insert(Report::Ack);
        }
        let nacks = [&mut self.nack_at, &mut self.repeat_at];
        let [is_new, is_repeat] = nacks.map(|nack_at| nack_at.take_if(|at| *at <= now).is_some());
        if (is_new || is_repeat) && self.has_gap() {
            self.due = Some(Report::Nack);
            self.is_repeat |= is_repeat;
        }
        self.due.is_some()
    }

    /// Takes the due report. A gap that remains is reported again, less and less often.
    pub(crate) fn take_report(&mut self, now: Instant) -> Option<Report> {
        let report = self.due.take()?;
        self.owed = 0;
        self.settle_ack();
        let is_repeat = std::mem::take(&mut self.is_repeat);
        if report == Report::Nack {
            if is_repeat {
                self.repeat_wait = (self.repeat_wait * 3 / 2).min(REPEAT_WAIT_MAX);
            }
            self.reported = Some((self.end, now));
            self.nack_at = None;
            self.repeat_at = Some(now + self.repeat_wait);
        }
        Some(report)
    }

    /// Data sent now carry the acknowledgement.
    pub(crate) fn on_piggyback(&mut self) {
        self.owed = 0;
        self.settle_ack();
        if self.due == Some(Report::Ack) {
            self.due = None;
        }
    }

    /// Map of the packets that have arrived after the gap.
    pub(crate) fn gap_map(&self) -> GapMap {
        let mut map = GapMap::default();
        for index in 1..self.end.since(self.expects) {
            let seq = self.expects.plus(index);
            if self.ahead.contains(seq) {
                map.insert(self.expects, seq);
            }
        }
        map
    }

    /// Time by which the answer was delayed.
    pub(crate) fn held_back(&self, now: Instant) -> Duration {
        now.since(self.newest)
    }
}

/// When an arrival must be acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AckWhen {
    /// Immediately: the sender is waiting, or has lost our answer.
    Now,
    /// Once this many packets are unacknowledged, or after the delay.
    After(u32),
}
