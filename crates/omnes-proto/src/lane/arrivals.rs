//! The receiving half of a lane: what has arrived, and what must be said about it.
//!
//! Source: [PM-R15, R16]: a run of packets is answered by one ACK; a packet without buffer is
//! answered by NACK with reject, and then everything but that packet is discarded silently until
//! it comes again and fits. For a lossy network [PM-R18]: a gap is reported with a map of all that
//! arrived beyond it, at once when enough later packets prove it, else after a short wait, and
//! again until it closes.

#[cfg(test)]
mod tests;

use super::bits::SeqBits;
use super::earliest;
use crate::limits::{REORDER_PACKETS, WINDOW_PACKETS_MAX};
use omnes_wire::{GapMap, Instant, Seq};
use std::time::Duration;

/// How a numbered packet relates to the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// Seen before; the answer got lost.
    Duplicate,
    /// Beyond what any honest sender may send.
    BeyondWindow,
    /// The one that was expected.
    InOrder,
    /// Later than expected, new.
    Ahead,
}

/// What is to be said next.
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
    /// One past the highest number that arrived.
    end: Seq,
    ahead: SeqBits,
    ahead_count: u32,
    /// One past the highest number that was found missing.
    gap_end: Seq,
    /// The arrival that the next report answers: the newest, or that of the latest question.
    newest: Instant,
    epoch: u16,
    owed: u32,
    due: Option<Report>,
    ack_at: Option<Instant>,
    nack_at: Option<Instant>,
    /// When gaps that have been reported are reported again.
    repeat_at: Option<Instant>,
    /// `end` when the gaps were last reported, and when that was.
    reported: Option<(Seq, Instant)>,
    repeat_wait: Duration,
    /// See [`Self::repair_wait`].
    repair_wait: Duration,
    /// What is due has been reported before, and nothing came of it.
    is_repeat: bool,
    /// What is due at `ack_at` was asked for.
    is_answer_planned: bool,
    rejecting: bool,
}

/// Wait before a gap is reported again, until the first repair has shown how long one takes.
const REPEAT_WAIT_INITIAL: Duration = Duration::from_millis(1);
const REPEAT_WAIT_MIN: Duration = Duration::from_micros(100);
const REPEAT_WAIT_MAX: Duration = Duration::from_millis(20);

impl Default for Arrivals {
    fn default() -> Self {
        Self::UNUSED
    }
}

impl Arrivals {
    /// Before the first packet.
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

    /// True if a report is to be handed out now.
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

    /// Pure: where `seq` stands.
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

    /// Packets from `seq` on, at most `most`, none of which has arrived.
    pub(crate) fn untouched(&self, seq: Seq, most: u32) -> u32 {
        if !self.has_gap() {
            // Behind a duplicate lie packets that have been placed, whatever follows it.
            return if seq.precedes(self.expects) { 0 } else { most };
        }
        // Of a long message most is not under way.
        let seen = if seq.precedes(self.end) { self.end.since(seq).min(most) } else { 0 };
        let has_come = |index: &u32| self.classify(seq.plus(*index)) == Arrival::Duplicate;
        (0..seen).find(has_come).unwrap_or(most)
    }

    /// An authentic numbered packet came, whatever becomes of it.
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

    /// The next `packets` packets were accepted, none of which had come before.
    pub(crate) fn on_run(&mut self, now: Instant, packets: u32) {
        self.rejecting = false;
        self.expects = self.expects.plus(packets);
        self.owed += packets;
        if self.end.precedes(self.expects) {
            self.end = self.expects;
        }
        self.on_gap_moved(now);
    }

    /// True if the packet that is expected now has come before.
    pub(crate) fn next_is_here(&self) -> bool {
        self.ahead_count > 0 && self.ahead.contains(self.expects)
    }

    /// A later packet was accepted before its turn.
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

    /// True if a report has told of the latest gap.
    fn is_told(&self) -> bool {
        self.reported.is_some_and(|(end, _)| !end.precedes(self.gap_end))
    }

    /// True if a gap that no report has told of yet is certain enough: what follows a gap without
    /// another one needs no second report.
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
            // The repair shows how long a report takes to work.
            let took = now.since(at) * 2;
            let wait = (self.repeat_wait * 3 + took) / 4;
            self.repeat_wait = wait.clamp(REPEAT_WAIT_MIN, REPEAT_WAIT_MAX);
            // Forgotten slowly, as paths change.
            self.repair_wait = (self.repair_wait * 17 / 16).min(took).min(REPEAT_WAIT_MAX);
        }
        self.nack_at = None;
        self.repeat_at = None;
        self.is_repeat = false;
        if self.due == Some(Report::Nack) {
            self.due = Some(Report::Ack);
        }
    }

    /// No buffer for the expected packet [PM-R15]. What came ahead of it is discarded, and the
    /// sender will send it again.
    pub(crate) fn on_rejected(&mut self) {
        self.rejecting = true;
        self.discard_ahead();
        self.due = Some(Report::Reject);
    }

    /// What came ahead of the expected packet is discarded, so there is no gap to report.
    pub(crate) fn discard_ahead(&mut self) {
        self.ahead.clear();
        self.ahead_count = 0;
        self.end = self.expects;
        self.reported = None;
        self.hush();
    }

    /// Buffers are free again.
    pub(crate) fn on_buffers(&mut self) {
        if self.rejecting {
            self.due = Some(Report::Resume);
        }
    }

    /// Decides whether an acknowledgement is due now or may wait to travel with data.
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

    /// The sender asks: it is told what is missing, or that nothing is.
    pub(crate) fn answer(&mut self) {
        self.due = Some(if self.has_gap() { Report::Nack } else { Report::Ack });
    }

    /// As [`Self::answer`] to what comes now, but not before `at`: an acknowledgement that is owed
    /// already waits too, an answer that is planned does not.
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

    /// An acknowledgement is due, unless something else is.
    pub(crate) fn answer_if_whole(&mut self) {
        self.due.get_or_insert(Report::Ack);
    }

    /// One past the highest number that has arrived.
    pub(crate) fn end(&self) -> Seq {
        self.end
    }

    /// The sender seems not to know what has arrived: it is told again, soon.
    pub(crate) fn owe_again(&mut self, now: Instant, ack_delay: Duration) {
        if self.due.is_none() {
            self.ack_at.get_or_insert(now + ack_delay);
        }
    }

    /// Gaps are not reported unasked.
    pub(crate) fn hush(&mut self) {
        self.nack_at = None;
        self.repeat_at = None;
        if self.due == Some(Report::Nack) {
            self.due = None;
        }
    }

    /// Gaps that have been reported are so again at `at`, as something has come meanwhile.
    pub(crate) fn put_off_repeat(&mut self, at: Instant) {
        self.repeat_at = self.repeat_at.map(|_| at);
    }

    /// Twice the time that the fastest repair took.
    pub(crate) fn repair_wait(&self) -> Duration {
        self.repair_wait
    }

    /// A report of gaps that is due waits until `at`, so that others may be first.
    pub(crate) fn defer_gaps(&mut self, at: Instant) {
        if self.due == Some(Report::Nack) {
            self.due = None;
            self.nack_at.get_or_insert(at);
        }
    }

    /// Nothing is to be acknowledged later any more.
    fn settle_ack(&mut self) {
        self.ack_at = None;
        self.is_answer_planned = false;
    }

    /// True if a timer made something due.
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

    /// Hands out what is due. A gap that stays is reported again, less and less often.
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

    /// Data that go out now carry the acknowledgement.
    pub(crate) fn on_piggyback(&mut self) {
        self.owed = 0;
        self.settle_ack();
        if self.due == Some(Report::Ack) {
            self.due = None;
        }
    }

    /// What arrived beyond the gap.
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

    /// How long the answer was held back.
    pub(crate) fn held_back(&self, now: Instant) -> Duration {
        now.since(self.newest)
    }
}

/// When an arrival must be acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AckWhen {
    /// The sender waits, or has lost our answer.
    Now,
    /// When this many packets are owed, or after the delay.
    After(u32),
}
