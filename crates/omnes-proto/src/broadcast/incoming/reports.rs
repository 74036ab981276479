//! When a receiver reports what it has and what it lacks: by the policy's rule, when it is asked,
//! when it detects a gap, and when nothing arrives.

use super::{Incoming, Packet};
use crate::broadcast::policy::{AckRule, GapReports};
use crate::broadcast::slots::Common;
use crate::lane::{AckWhen, Report, earliest};
use crate::limits::{RANKS_AT_ONCE, STAGGER, WINDOW_PACKETS_MAX};
use omnes_wire::{Flags, GapMap, Instant, Seq};
use std::time::Duration;

/// Least idle time, in shortest waits for an answer.
const IDLE_WAITS: u32 = 4;

/// Time over which `ranks` that are asked together spread their answers.
pub(in crate::broadcast) fn answer_spread(ranks: u32) -> Duration {
    if ranks > RANKS_AT_ONCE { STAGGER * ranks } else { Duration::ZERO }
}

impl Incoming {
    /// A packet has arrived: while packets arrive, those that have been reported as missing, and
    /// the remaining packets of a message, may arrive too.
    pub(super) fn on_heard(&mut self, now: Instant, common: &Common) {
        self.heard_at = now;
        let stagger = if self.takers > RANKS_AT_ONCE {
            self.spread(self.arrivals.expects().0, self.takers)
        } else {
            Duration::ZERO
        };
        self.arrivals.put_off_repeat(now + self.idle_wait(common) + stagger);
        self.watch(now, common);
    }

    /// A coded packet has arrived that this rank cannot decode, though it lacks some of its parts:
    /// the root, which assumes otherwise, is told immediately.
    pub(in crate::broadcast) fn on_undecodable(&mut self, now: Instant, common: &Common) {
        self.on_heard(now, common);
        self.lacks_rest |= !self.arrivals.has_gap();
        self.arrivals.answer();
        self.take_turn(now, self.arrivals.expects());
    }

    /// Idle time after which nothing is assumed to be in flight.
    fn idle_wait(&self, common: &Common) -> Duration {
        self.arrivals.repair_wait().max(common.config.timeout_min * IDLE_WAITS)
    }

    /// True if nothing has arrived for that time.
    pub(in crate::broadcast) fn is_idle(&self, now: Instant, common: &Common) -> bool {
        now.since(self.heard_at) >= self.idle_wait(common)
    }

    /// Answers a packet that asks for it; returns true if it does. A rank that speaks for others
    /// answers a new packet when they have it too.
    pub(super) fn answer_if_asked(&mut self, now: Instant, packet: &Packet) -> bool {
        if !packet.flags.has(Flags::ACK_NOW) {
            return false;
        }
        self.note_awaited(packet.seq.plus(1));
        self.answers = self.answers.wrapping_add(1);
        if self.is_one_of_many(packet) {
            self.arrivals.answer_at(now, now + self.spread(self.answers, self.peers))
        } else {
            self.arrivals.answer()
        }
        true
    }

    /// True if the packet asks so many ranks that they answer one after the other.
    pub(super) fn is_one_of_many(&self, packet: &Packet) -> bool {
        packet.flags.has(Flags::GROUP.with(Flags::ACK_NOW)) && self.peers > RANKS_AT_ONCE
    }

    /// Answers a rank that waits for the acknowledgement of every packet before `end`, all of which
    /// have been sent.
    pub(in crate::broadcast) fn answer_question(&mut self, end: Seq) {
        self.is_asked = true;
        // A gap is reported as a gap: its repairs show what else is missing.
        self.lacks_rest |= self.note_awaited(end) && !self.arrivals.has_gap();
        self.arrivals.answer();
    }

    /// Returns true if a packet before `end` is missing; the awaited acknowledgement is then sent
    /// as soon as all of them have arrived.
    fn note_awaited(&mut self, end: Seq) -> bool {
        let lacks = self.arrivals.expects().precedes(end);
        if lacks {
            self.awaited.get_or_insert(end);
        }
        lacks
    }

    /// Staggers the reports of `seq` if many ranks may lack it.
    pub(super) fn take_turn(&mut self, now: Instant, seq: Seq) {
        if self.takers > RANKS_AT_ONCE {
            self.arrivals.defer_gaps(now + self.spread(seq.0, self.takers));
        }
    }

    /// The next expected packet has advanced: an acknowledgement may be due.
    pub(super) fn on_advance(&mut self, now: Instant, common: &Common) {
        if self.awaited.take_if(|end| !self.arrivals.expects().precedes(*end)).is_some() {
            self.arrivals.owe(now, AckWhen::Now, common.config.ack_delay);
        }
        self.acknowledge_run(now, common);
    }

    /// A delay that differs by rank and by `number`, so that `ranks` ranks do not all report at the
    /// same time: the first report of a gap brings a repair that makes the other reports
    /// unnecessary.
    fn spread(&self, number: u32, ranks: u32) -> Duration {
        let mixed = (u64::from(self.position) << 32 | u64::from(number))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            >> 32;
        STAGGER * (mixed as u32 % ranks)
    }

    /// A message has been completed in order: the policy's rule determines whether it is
    /// acknowledged now. If all ranks are asked and take turns, a rule by which some would answer
    /// earlier is suspended.
    pub(super) fn on_message(&mut self, now: Instant, common: &Common, takes_turn: bool) {
        let number = self.messages;
        self.messages = number.wrapping_add(1);
        let is_due = match self.policy.acks {
            AckRule::Every => true,
            AckRule::EveryNth(messages) => self.messages.is_multiple_of(messages), // [BC-R16]
            AckRule::Skewed(messages) => number % messages == self.position % messages, // [BC-R17]
        };
        let is_rare = self.policy.acks != AckRule::Every;
        let when = if is_due && !(takes_turn && is_rare) {
            AckWhen::Now
        } else {
            AckWhen::After(u32::MAX)
        };
        self.arrivals.owe(now, when, common.config.ack_delay);
    }

    /// A long run is acknowledged several times per window, by each rank at a different packet.
    fn acknowledge_run(&mut self, now: Instant, common: &Common) {
        let config = &common.config;
        let room = config.credit_packets(config.receive_truesize_bytes).min(config.window_packets);
        let interval = (room / 4).max(1);
        let earlier = self.position % (interval / 4 + 1);
        let when = AckWhen::After(interval - earlier);
        self.arrivals.owe(now, when, config.ack_delay);
    }

    /// Starts to wait for a message, or for its remaining packets, if there is one that this rank
    /// may ask for. Known gaps are reported in any case.
    pub(super) fn watch(&mut self, now: Instant, common: &Common) {
        let is_waiting = !self.posted.is_empty() && !self.arrivals.has_gap();
        if !is_waiting || !self.policy.takers_ask(self.takers) {
            self.overdue.stop();
        } else if self.arrivals.expects() == self.front {
            self.overdue.begin(now, common.config.timeout_min);
        } else {
            self.overdue.begin_rest(now, self.idle_wait(common));
        }
    }

    /// Time at which [`Self::on_deadline`] is to be called next.
    pub(in crate::broadcast) fn deadline(&self) -> Option<Instant> {
        earliest([self.arrivals.deadline(), self.overdue.deadline()])
    }

    /// Fires the timers that are due. Returns true if something is to be reported.
    pub(in crate::broadcast) fn on_deadline(&mut self, now: Instant) -> bool {
        if self.overdue.on_deadline(now) {
            self.lacks_rest = true;
            // In a tree the question bypasses the rank to which an acknowledgement may be owed.
            self.is_asked = true;
            self.arrivals.answer();
        }
        self.arrivals.on_deadline(now)
    }

    /// Space advertised by a report, in units of the header's credits field.
    pub(in crate::broadcast) fn credits(&self, common: &Common) -> u16 {
        let config = &common.config;
        let sharers = common.active.max(1);
        let socket = config.receive_truesize_bytes / sharers;
        let expects = self.arrivals.expects();
        let posted = match (self.keeps, self.posted.back()) {
            (false, Some(last)) if expects.precedes(last.end()) => last.end().since(expects),
            _ => 0,
        };
        let used = if self.stash.count() == 0 { 0 } else { expects.since(self.stashed_from) };
        let ring = WINDOW_PACKETS_MAX.saturating_sub(used);
        let buffers = (common.slots.free_slots() / sharers).min(ring);
        let packets = posted.saturating_add(buffers).min(WINDOW_PACKETS_MAX);
        config.credits((packets * config.charge()).min(socket))
    }

    /// Takes the pending report, if there is one.
    pub(in crate::broadcast) fn take_report(&mut self, now: Instant) -> Option<Report> {
        let report = self.arrivals.take_report(now);
        let report = if self.lacks_rest { report.and(Some(Report::Nack)) } else { report };
        if self.policy.gaps == GapReports::Never {
            self.arrivals.cancel_gap_reports();
        }
        report
    }

    pub(in crate::broadcast) fn gap_map(&self) -> GapMap {
        self.arrivals.gap_map()
    }
}
