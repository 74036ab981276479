//! One root's broadcasts to one group, as one rank sees them: the root sends, the others receive,
//! and a rank that others report to collects.

use super::collector::Collector;
use super::config::CheckedBroadcast;
use super::incoming::{Incoming, Packet};
use super::interface::{CastGroupConfig, Event, GroupId};
use super::policy::{AckRule, Collection, Policy};
use super::roles::Roles;
use super::sending::Sending;
use super::slots::Common;
use crate::lane::{Allowance, Report, earliest};
use omnes_wire::{Flags, Instant, Rank, Seq};
use std::time::Duration;

/// Identifies a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct StreamKey {
    pub(super) group: GroupId,
    pub(super) root: Rank,
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) key: StreamKey,
    pub(super) policy: Policy,
    pub(super) roles: Roles,
    /// At the root.
    pub(super) sending: Option<Sending>,
    /// At all other ranks.
    pub(super) incoming: Option<Incoming>,
    pub(super) collector: Collector,
    /// Next packet for each co-root below, and for each rank that multicast does not reach.
    pub(super) copied: Vec<(Rank, Seq)>,
    /// When the ranks that still need copies were last determined.
    pub(super) copies_judged_at: Option<Instant>,
    /// First packet not covered by the last acknowledgement. If `owes_upward`, more is owed for the
    /// ranks below [BC-R14].
    acknowledged: Seq,
    owes_upward: bool,
    /// Number of packets sent in a row for the first time.
    pub(super) fresh_run: u32,
    /// Number of packets sent for the first time since answers were last requested.
    pub(super) unasked: u32,
    /// Number of messages sent since one was acknowledged on request.
    pub(super) unmeasured: u32,
    pub(super) is_ready: bool,
    /// The group is closed: the stream becomes dormant when it is over.
    pub(super) is_closed: bool,
    /// The last packet sent asks for an answer.
    pub(super) has_asked: bool,
}

impl Stream {
    /// Creates the stream of `root` at `me`; `None` if this rank has no part in it.
    pub(super) fn new(
        group: &CastGroupConfig,
        root: Rank,
        me: Rank,
        config: &CheckedBroadcast,
    ) -> Option<Self> {
        let credit_bytes = config.initial_credit_bytes;
        let credit_packets = config.credit_packets(credit_bytes);
        let mut roles = Roles::of(group, root, me)?;
        let reporters = std::mem::take(&mut roles.reporters);
        let policy = group.policy;
        let incoming = Incoming::new(policy, &roles);
        let mut collector = Collector::new(reporters, credit_packets, credit_bytes);
        collector.hold.is_allowed = policy.codes_repairs() && roles.takers > 2;
        let copied = roles.copies_to.iter().map(|rank| (*rank, Seq::FIRST)).collect();
        Some(Self {
            key: StreamKey { group: group.id, root },
            policy,
            sending: (root == me).then(Sending::default),
            incoming: (root != me).then_some(incoming),
            collector,
            copied,
            copies_judged_at: None,
            roles,
            acknowledged: Seq::FIRST,
            owes_upward: false,
            fresh_run: 0,
            unasked: 0,
            unmeasured: 0,
            is_ready: false,
            is_closed: false,
            has_asked: false,
        })
    }

    /// One past the last packet that this rank can repair.
    pub(super) fn end(&self) -> Seq {
        match (&self.sending, &self.incoming) {
            (Some(sending), _) => sending.next,
            (None, Some(incoming)) => incoming.arrivals.expects(),
            (None, None) => Seq::FIRST,
        }
    }

    /// True if packets that were sent, or that this rank is responsible for, are unacknowledged.
    fn is_outstanding(&self) -> bool {
        self.collector.slowest().is_some_and(|slowest| slowest.precedes(self.end()))
    }

    /// True if nothing is queued, unacknowledged or owed.
    pub(super) fn is_idle(&self) -> bool {
        let has_sent = self.sending.as_ref().is_none_or(|sending| sending.messages() == 0);
        let owes = self.incoming.as_ref().is_some_and(|incoming| !incoming.arrivals.is_stable());
        has_sent
            && !owes
            && !self.owes_upward
            && (!self.roles.is_repairer || !self.is_outstanding())
    }

    /// True if nothing is in progress at this rank or at the ranks that report here.
    pub(super) fn is_over(&self) -> bool {
        let is_copied = self.copied.iter().all(|(_, next)| !next.precedes(self.end()));
        let is_taken = self.incoming.as_ref().is_none_or(|incoming| !incoming.is_active());
        self.is_idle() && !self.is_outstanding() && is_copied && is_taken
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let reports = self.incoming.as_ref().and_then(Incoming::deadline);
        earliest([reports, self.collector.answers.deadline(), self.collector.held_until()])
    }

    /// Starts to wait for answers if any are outstanding.
    pub(super) fn arm(&mut self, now: Instant, common: &Common) {
        if !self.roles.collects() {
            return;
        }
        if !self.is_outstanding() {
            self.collector.answers.disarm();
            return;
        }
        let held_back = if self.has_asked { Duration::ZERO } else { common.config.ack_delay };
        self.collector.answers.arm(now, Allowance { least: common.config.timeout_min, held_back });
    }

    /// A packet has arrived that the ranks reporting here received, or lost, at about the same
    /// time.
    pub(super) fn expect_answers(&mut self, now: Instant, packet: &Packet, common: &Common) {
        let flags = packet.flags;
        if self.roles.is_repairer {
            self.collector.history.on_sent(now, packet.seq);
        }
        // A packet to this rank alone is answered by no other rank.
        if flags.has(Flags::GROUP) {
            let asks = flags.has(Flags::ACK_NOW);
            let is_answered = flags.has(Flags::LAST) && self.policy.acks == AckRule::Every;
            self.has_asked = asks || is_answered;
            if self.has_asked {
                self.collector.answers.on_asked(now, packet.seq);
            }
            if asks {
                self.collector.answers.on_asked_all(now);
            }
        }
        self.arm(now, common);
    }

    /// Fires the timers that are due. Returns true if something is to be sent.
    pub(super) fn on_deadline(&mut self, now: Instant, common: &mut Common) -> bool {
        let mut is_due = false;
        if let Some(incoming) = &mut self.incoming {
            is_due |= incoming.on_deadline(now);
        }
        is_due |= self.collector.end_hold(now);
        if self.roles.collects() {
            let end = self.end();
            let is_late = if self.roles.is_repairer {
                self.collector.on_timeout(now, end)
            } else {
                self.collector.ask_again(now, end)
            };
            common.counters.timeouts += u64::from(is_late);
            is_due |= is_late;
        }
        self.arm(now, common);
        is_due
    }

    /// Frees the packets that all ranks reporting here have.
    pub(super) fn free(&mut self, common: &mut Common) {
        let slowest = self.collector.slowest();
        if let Some(sending) = &mut self.sending {
            let base = slowest.unwrap_or(sending.next);
            let bytes_max = common.config.window_packets * common.config.charge();
            self.collector.on_freed(base.since(sending.base), bytes_max);
            while let Some(id) = sending.free_one(base) {
                common.events.push_back(Event::Sent { id });
            }
        }
        if let Some(incoming) = &mut self.incoming
            && (self.roles.is_repairer || !self.copied.is_empty())
        {
            let copied = self.copied.iter().map(|(_, next)| *next);
            let lowest = copied
                .chain(slowest)
                .reduce(|least, other| if other.precedes(least) { other } else { least });
            let end = lowest.unwrap_or(incoming.arrivals.expects());
            incoming.free_until(common, end);
        }
    }

    /// First packet not covered by this rank's acknowledgement: the packets before it have arrived
    /// here and, in a tree, at the ranks below.
    pub(super) fn acknowledges(&self) -> Seq {
        let own = self.incoming.as_ref().map_or(Seq::FIRST, |incoming| incoming.arrivals.expects());
        match self.collector.slowest() {
            Some(slowest) if self.roles.speaks_for_others && slowest.precedes(own) => slowest,
            _ => own,
        }
    }

    /// Space to advertise after the acknowledged packets: this rank's own and, in a tree, that of
    /// the ranks below; `None` if this rank receives nothing.
    pub(super) fn room(&self, common: &Common, acknowledges: Seq) -> Option<u16> {
        let own = self.incoming.as_ref()?.credits(common);
        match self.collector.limit() {
            Some(limit) if self.roles.speaks_for_others => {
                let packets = limit.since(acknowledges);
                Some(own.min(common.config.credits(packets * common.config.charge())))
            }
            _ => Some(own),
        }
    }

    /// The ranks below have made progress: an acknowledgement owed upward may be due.
    pub(super) fn on_progress_below(&mut self) {
        let acknowledges = self.acknowledges();
        if let Some(incoming) = &mut self.incoming
            && self.owes_upward
            && self.acknowledged.precedes(acknowledges)
        {
            incoming.arrivals.answer_if_whole();
        }
    }

    /// Takes the pending report, if there is one.
    pub(super) fn take_report(&mut self, now: Instant) -> Option<Report> {
        let incoming = self.incoming.as_mut()?;
        let report = incoming.take_report(now)?;
        let is_asked = std::mem::take(&mut incoming.is_asked);
        if report == Report::Nack && is_asked && self.roles.collector != self.roles.repairer {
            // The rank that asked does not get the gap report, and must learn that this rank is
            // alive.
            incoming.is_asked = true;
            incoming.arrivals.answer_if_whole();
        }
        if report != Report::Ack || !self.roles.speaks_for_others {
            return Some(report);
        }
        let acknowledges = self.acknowledges();
        let own = self.incoming.as_ref().map_or(acknowledges, |own| own.arrivals.expects());
        self.owes_upward = acknowledges != own;
        if self.owes_upward && !is_asked && !self.acknowledged.precedes(acknowledges) {
            return None; // Nothing new to report.
        }
        self.acknowledged = acknowledges;
        Some(report)
    }

    /// Rank that gets a report.
    pub(super) fn addressee(&self, report: Report) -> Option<Rank> {
        match report {
            Report::Nack => self.roles.repairer,
            _ => self.roles.collector,
        }
    }

    /// True if a gap report also acknowledges, because the reporter speaks only for itself.
    pub(super) fn gap_reports_acknowledge(&self) -> bool {
        !matches!(self.policy.collection, Collection::Tree { .. })
    }

    /// Starts copies to `rank`, which has every packet before `expects`, if multicast does not
    /// reach it.
    pub(super) fn copy_if_deaf(&mut self, rank: Rank, expects: Seq) {
        let is_copied = self.copied.iter().any(|(to, _)| *to == rank);
        if !is_copied && self.collector.is_deaf(rank) {
            self.copied.push((rank, expects));
        }
    }

    /// Ends the copies to ranks that multicast now reaches, or may reach by now. Returns true if
    /// this ends any.
    pub(super) fn end_copies(&mut self, now: Instant) -> bool {
        self.collector.retry_deaf(now);
        let Self { copied, collector, roles, .. } = self;
        let before = copied.len();
        copied.retain(|(rank, _)| collector.is_deaf(*rank) || roles.copies_to.contains(rank));
        copied.len() < before
    }

    /// A rank has left: it reports nothing and needs nothing more.
    pub(super) fn forget(&mut self, rank: Rank) {
        self.collector.forget(rank);
        self.copied.retain(|(to, _)| *to != rank);
    }

    /// Ends all operations, as member `rank` has failed.
    pub(super) fn break_off(&mut self, common: &mut Common, rank: Rank) {
        if let Some(sending) = &mut self.sending {
            for id in sending.abandon() {
                common.events.push_back(Event::SendFailed { id, rank });
            }
        }
        if let Some(incoming) = &mut self.incoming {
            for id in incoming.abandon(common) {
                common.events.push_back(Event::ReceiveFailed { id, rank });
            }
        }
        self.collector.forget_all();
        self.owes_upward = false;
        self.copied.clear();
    }

    /// No receive will be posted for the rest of this stream.
    pub(super) fn discard_rest(&mut self, common: &mut Common) {
        if let Some(incoming) = &mut self.incoming {
            incoming.discard_rest(common);
            self.free(common);
        }
    }

    /// The communicator was abandoned here: posted receives fail, and packets that still arrive are
    /// discarded. Those beyond a gap do not count as arrived, so that no gap remains: the rank that
    /// would repair it may have abandoned the communicator, too.
    pub(super) fn abandon(&mut self, common: &mut Common) {
        self.fail_receives(common, self.key.root);
        if let Some(incoming) = &mut self.incoming {
            incoming.end(common, true);
        }
        self.discard_rest(common);
    }

    /// The root sends and repairs nothing more. Messages that have arrived completely can still be
    /// received.
    pub(super) fn end_receives(&mut self, common: &mut Common, rank: Rank) {
        let has_failed = self.fail_receives(common, rank);
        if let Some(incoming) = &mut self.incoming
            && self.roles.repairer == Some(self.key.root)
        {
            incoming.end(common, has_failed);
        }
    }

    /// Posted receives fail, because of `rank`; true if there are any.
    pub(super) fn fail_receives(&mut self, common: &mut Common, rank: Rank) -> bool {
        let Some(incoming) = &mut self.incoming else { return false };
        let failed = incoming.take_posted();
        let events = failed.iter().map(|id| Event::ReceiveFailed { id: *id, rank });
        common.events.extend(events);
        !failed.is_empty()
    }
}
