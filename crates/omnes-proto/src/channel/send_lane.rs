//! The sending half of a lane: numbered packets that are kept until they are answered.
//!
//! Source: [PM-R13, R14], with additions for a network that loses packets [PM-R18]: timers, an
//! epoch that distinguishes reports on this round of retransmission from older ones, and gap maps,
//! so that only missing packets are sent again (D-01: PM sends k..i again, as its network loses
//! nothing).
//!
//! ```text
//!   normal ──NACK(k) with reject──▶ not-to-send: probe k from time to time, nothing new;
//!     ▲                                  │       at once after RESUME(k)
//!     └── ACK beyond k ──────────────────┘  then k+1..i go again, which were discarded
//! ```

#[cfg(test)]
mod tests;

use crate::lane::{Allowance, Rtt};
use crate::limits::{FRUITLESS_MIN, PROBE_WAIT_MAX};
use crate::packet::SendId;
use omnes_wire::{GapMap, Instant, Seq};
use std::collections::VecDeque;
use std::time::Duration;

/// Limits of the round-trip sample of a late answer, which is not discarded because queues before a
/// link delay packets too, and such delays must be learnt immediately: a fixed time or, for the
/// first late answer after each timeout, this number of timeouts if that is longer.
const LATE_SAMPLE_MAX: Duration = Duration::from_millis(20);
const LATE_TIMEOUTS_MAX: u32 = 4;
/// Number of consecutive messages with late packets, retransmitted before they were answered, from
/// which on the path is assumed to be the cause, and not a pause of the peer.
const LATE_IN_A_ROW: u32 = 3;
/// Most rounds of retransmission that are remembered until a report shows that the peer has seen
/// one of their packets.
const ROUNDS_MAX: usize = 8;

/// Contents of a numbered packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Item {
    /// Packet `index` of the lane's part of a message.
    Data { message: SendId, index: u32 },
    /// A grant for the peer's message with this token.
    Grant { token: u32 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flight {
    Sent,
    Arrived,
    Lost,
}

/// Packet that has been handed out and has not been finally answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) item: Item,
    pub(super) charge: u32,
    sent_at: Instant,
    transmissions: u32,
    flight: Flight,
}

/// Not-to-send state [PM-R14].
#[derive(Clone, Copy, Debug)]
struct Blocked {
    probe_at: Instant,
    probe_wait: Duration,
    /// A probe has been sent and not been answered.
    is_probed: bool,
}

/// Validity of an answer on a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Stale,
    BeyondWindow,
    Valid,
}

/// Pure: compares what the peer expects with the window `base..next`.
pub(super) fn classify_answer(base: Seq, next: Seq, expects: Seq) -> Verdict {
    if expects.precedes(base) {
        Verdict::Stale
    } else if next.precedes(expects) {
        Verdict::BeyondWindow
    } else {
        Verdict::Valid
    }
}

/// See the module header.
#[derive(Debug)]
pub(super) struct SendLane {
    base: Seq,
    flight: VecDeque<Sent>,
    /// Total charge of these packets.
    flight_bytes: u32,
    lost: u32,
    arrived: u32,
    epoch: u16,
    blocked: Option<Blocked>,
    doublings: u32,
    retransmit_at: Option<Instant>,
    /// Rounds that no report has referred to yet, oldest first.
    rounds: VecDeque<Round>,
    /// Time at which the timer last expired, or should have: answers to packets sent before it are
    /// late. `awaits_late_sample` is set until the first of them arrives.
    late_before: Instant,
    awaits_late_sample: bool,
    /// Number of consecutive late answers; `late_at` is the oldest packet at the time of the last
    /// one.
    late_in_a_row: u32,
    late_at: Option<Seq>,
    /// Time since which the oldest packet has been waiting without any answer.
    pub(super) unanswered_since: Option<Instant>,
    fruitless: Fruitless,
}

/// Round of retransmission started by the timer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    epoch: u16,
    began_at: Instant,
    /// One past the last packet that had been sent before.
    next: Seq,
}

/// Number of times that the oldest packet has been retransmitted without a sign that it, or another
/// packet of that length, had arrived.
#[derive(Clone, Copy, Debug)]
struct Fruitless {
    times: u32,
    /// Time of the first retransmission; meaningless if there was none.
    since: Instant,
}

impl Fruitless {
    const NONE: Self = Self { times: 0, since: Instant::ZERO };

    fn add(&mut self, now: Instant) {
        if self.times == 0 {
            self.since = now;
        }
        self.times += 1;
    }
}

impl Default for SendLane {
    fn default() -> Self {
        Self::UNUSED
    }
}

impl SendLane {
    /// State before the first packet.
    pub(super) const UNUSED: Self = Self {
        base: Seq::FIRST,
        flight: VecDeque::new(),
        flight_bytes: 0,
        lost: 0,
        arrived: 0,
        epoch: 0,
        blocked: None,
        doublings: 0,
        retransmit_at: None,
        rounds: VecDeque::new(),
        late_before: Instant::ZERO,
        awaits_late_sample: false,
        late_in_a_row: 0,
        late_at: None,
        unanswered_since: None,
        fruitless: Fruitless::NONE,
    };

    pub(super) fn base(&self) -> Seq {
        self.base
    }

    pub(super) fn next(&self) -> Seq {
        self.base.plus(self.flight.len() as u32)
    }

    pub(super) fn epoch(&self) -> u16 {
        self.epoch
    }

    /// Index of the first packet of a message that has been handed out and is unanswered.
    pub(super) fn first_of(&self, id: SendId) -> Option<u32> {
        self.flight.iter().find_map(|sent| match sent.item {
            Item::Data { message, index } if message == id => Some(index),
            _ => None,
        })
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.flight.len() as u32
    }

    /// Truesize of the packets in flight that the peer does not hold, as it has rejected them; it
    /// may hold an outstanding probe.
    pub(super) fn rejected_bytes(&self) -> u32 {
        let probe = self.flight.front().filter(|_| self.is_probed());
        match self.blocked {
            Some(_) => self.flight_bytes - probe.map_or(0, |probe| probe.charge),
            None => 0,
        }
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    pub(super) fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// True if a probe of the rejected packet is outstanding.
    pub(super) fn is_probed(&self) -> bool {
        self.blocked.is_some_and(|blocked| blocked.is_probed)
    }

    /// True if every packet has been answered: it has arrived, or was rejected and is to be sent
    /// again [PM-R20].
    pub(super) fn is_stable(&self) -> bool {
        self.flight.is_empty() || self.blocked.is_some_and(|blocked| !blocked.is_probed)
    }

    /// Contents of the oldest packet, if its retransmissions have failed so often, and for so long,
    /// that this cannot be chance.
    pub(super) fn in_vain(&self, now: Instant, limit: Duration) -> Option<Item> {
        let Fruitless { times, since } = self.fruitless;
        let is_over = times >= FRUITLESS_MIN && now.since(since) >= limit;
        // A packet that was rejected has arrived.
        let oldest = self.flight.front().filter(|_| is_over && self.blocked.is_none());
        oldest.map(|oldest| oldest.item)
    }

    /// Next timer of the lane.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.blocked {
            _ if self.flight.is_empty() => None,
            Some(blocked) => Some(blocked.probe_at),
            None => self.retransmit_at,
        }
    }

    /// Numbers a packet that is handed out now, and arms the timer.
    pub(super) fn push(
        &mut self,
        now: Instant,
        item: Item,
        charge: u32,
        timeout: impl FnOnce() -> Duration,
    ) -> Seq {
        let seq = self.push_next(now, item, charge);
        self.retransmit_at.get_or_insert_with(|| now + timeout());
        self.unanswered_since.get_or_insert(now);
        seq
    }

    /// Numbers a packet that is handed out directly after another one.
    pub(super) fn push_next(&mut self, now: Instant, item: Item, charge: u32) -> Seq {
        let seq = self.next();
        let flight = Flight::Sent;
        self.flight_bytes += charge;
        self.flight.push_back(Sent { item, charge, sent_at: now, transmissions: 1, flight });
        seq
    }

    /// An answer has arrived: if the timer should have expired before, it counts as expired.
    pub(super) fn find_late(&mut self, now: Instant) {
        let is_armed = self.blocked.is_none() && !self.flight.is_empty();
        if is_armed && self.retransmit_at.is_some_and(|at| at <= now) {
            self.on_late(now);
        }
    }

    /// Answers to all packets in flight are late, because the path has become slow or one of the
    /// ranks did not run.
    fn on_late(&mut self, now: Instant) {
        self.late_before = now;
        self.awaits_late_sample = true;
    }

    /// Round-trip time measured by the answer to a packet that was sent once and arrived in order.
    /// If a rank did not run, all its answers are late, and say little about the path.
    pub(super) fn sample(
        &mut self,
        sent: &Sent,
        now: Instant,
        held_back: Duration,
        timeout: Duration,
    ) -> Duration {
        let sample = now.since(sent.sent_at).saturating_sub(held_back);
        if sent.sent_at >= self.late_before {
            return sample;
        }
        let is_first = std::mem::take(&mut self.awaits_late_sample);
        let most = if is_first { timeout * LATE_TIMEOUTS_MAX } else { Duration::ZERO };
        sample.min(LATE_SAMPLE_MAX.max(most))
    }

    /// Round-trip time measured by the first report on a round: unlike the answer to a
    /// retransmitted packet, it cannot refer to an earlier transmission, though it may refer to a
    /// later one. Repairs and pauses of the peer say little about the path, so there is a sample
    /// only if several consecutive messages were late.
    pub(super) fn sample_round(
        &mut self,
        round: Round,
        now: Instant,
        held_back: Duration,
        timeout: Duration,
    ) -> Option<Duration> {
        let is_later = round.next.precedes(self.base);
        if is_later || self.late_at.replace(self.base) == Some(self.base) {
            return None;
        }
        self.late_in_a_row += 1;
        let sample = now.since(round.began_at).saturating_sub(held_back);
        let most = LATE_SAMPLE_MAX.max(timeout * LATE_TIMEOUTS_MAX);
        (self.late_in_a_row >= LATE_IN_A_ROW).then(|| sample.min(most))
    }

    /// Removes the oldest packet if the peer has it; the owner has checked `expects`.
    pub(super) fn free_one(&mut self, expects: Seq) -> Option<Sent> {
        if !self.base.precedes(expects) {
            return None;
        }
        let sent = self.flight.pop_front()?;
        self.fruitless = Fruitless::NONE;
        if sent.transmissions == 1 && sent.sent_at >= self.late_before {
            self.late_in_a_row = 0;
        }
        self.flight_bytes -= sent.charge;
        match sent.flight {
            Flight::Lost => self.lost -= 1,
            Flight::Arrived => self.arrived -= 1,
            Flight::Sent => {}
        }
        self.base = self.base.plus(1);
        Some(sent)
    }

    /// Handles a peer that expects the oldest packet although it has reported it as arrived: the
    /// peer has discarded the packets that had arrived ahead, as one that rejects does, and needs
    /// all of them again.
    pub(super) fn find_discarded(&mut self) {
        if self.flight.front().is_none_or(|front| front.flight != Flight::Arrived) {
            return;
        }
        for sent in self.flight.iter_mut().filter(|sent| sent.flight == Flight::Arrived) {
            sent.flight = Flight::Lost;
        }
        self.lost += std::mem::take(&mut self.arrived);
    }

    /// Returns the round that a report with `epoch` refers to, if it is the first one to do so.
    pub(super) fn acknowledge_round(&mut self, epoch: u16) -> Option<Round> {
        let mut told = None;
        while let Some(round) = self.rounds.pop_front_if(|round| !is_before(epoch, round.epoch)) {
            told = Some(round);
        }
        told.filter(|round| round.epoch == epoch)
    }

    /// The peer has seen a packet of a round. If that is the current round, packets sent before it
    /// that have not been acknowledged by now are lost too. Returns their number.
    pub(super) fn on_round_seen(&mut self, round: Round) -> u32 {
        if round.epoch != self.epoch {
            return 0;
        }
        let mut found = 0;
        for sent in &mut self.flight {
            if sent.flight == Flight::Sent && sent.sent_at < round.began_at {
                sent.flight = Flight::Lost;
                found += 1;
            }
        }
        self.lost += found;
        found
    }

    /// An answer has arrived: the path works, so the timer starts anew.
    pub(super) fn on_answer(&mut self, now: Instant, has_progress: bool, timeout: Duration) {
        // A rejected packet has been answered, so silence after it means nothing.
        let is_owed = !self.flight.is_empty() && (self.blocked.is_none() || self.is_probed());
        self.unanswered_since = is_owed.then_some(now);
        if self.flight.is_empty() {
            self.retransmit_at = None;
            self.doublings = 0;
        } else if has_progress {
            self.doublings = 0;
            self.retransmit_at = Some(now + timeout);
        }
    }

    /// Applies a gap map. Packets below its end that it does not report are lost, unless they were
    /// retransmitted less than `guard` ago: the report cannot cover those. Returns the number of
    /// packets newly found lost.
    pub(super) fn on_gap_map(
        &mut self,
        now: Instant,
        expects: Seq,
        map: &GapMap,
        guard: Duration,
    ) -> u32 {
        let end = map.end(expects);
        let reported = end.since(self.base).min(self.in_flight());
        let oldest_charge = self.flight.front().map_or(0, |oldest| oldest.charge);
        let mut found = 0;
        for index in 0..reported {
            let seq = self.base.plus(index);
            let sent = &mut self.flight[index as usize];
            if map.contains(expects, seq) {
                match sent.flight {
                    Flight::Lost => self.lost -= 1,
                    Flight::Sent => {}
                    Flight::Arrived => continue,
                }
                sent.flight = Flight::Arrived;
                self.arrived += 1;
                if sent.charge >= oldest_charge {
                    self.fruitless = Fruitless::NONE;
                }
            } else if sent.flight == Flight::Sent
                && (sent.transmissions == 1 || now.since(sent.sent_at) >= guard)
            {
                sent.flight = Flight::Lost;
                self.lost += 1;
                found += 1;
            }
        }
        found
    }

    /// The peer waits for the packet it expects: the oldest packet is retransmitted if it was last
    /// sent `guard` ago or earlier.
    pub(super) fn on_question(&mut self, now: Instant, guard: Duration, timeout: Duration) {
        let Some(front) = self.flight.front() else { return };
        let is_unknown = front.flight == Flight::Sent && self.blocked.is_none();
        if is_unknown && now.since(front.sent_at) >= guard {
            self.mark_front_lost();
            self.retransmit_at = Some(now + timeout);
        }
    }

    /// The peer had no buffer for the oldest packet and discards what follows [PM-R13].
    pub(super) fn on_reject(&mut self, now: Instant, epoch: u16, first_wait: Duration) {
        if epoch != self.epoch || self.flight.is_empty() {
            return; // A report on an earlier round [PM-R18].
        }
        let probe_wait = match self.blocked {
            Some(blocked) => (blocked.probe_wait * 2).min(PROBE_WAIT_MAX),
            None => first_wait,
        };
        self.mark_all_lost();
        let probe_at = now + probe_wait;
        self.blocked = Some(Blocked { probe_at, probe_wait, is_probed: false });
        self.unanswered_since = None;
    }

    /// The peer has accepted the rejected packet or has buffers again, but the channel is stopped:
    /// packets to be sent again wait until it is resumed [PM-R20].
    pub(super) fn on_unblocked_while_stopped(&mut self) {
        if let Some(blocked) = &mut self.blocked {
            blocked.is_probed = false;
            self.unanswered_since = None;
        }
        if self.flight.is_empty() {
            self.blocked = None;
        }
    }

    /// The channel has been resumed. Returns true if a rejected packet is to be tried immediately.
    pub(super) fn on_resumed(&mut self) -> bool {
        if self.flight.is_empty() {
            self.blocked = None;
        }
        self.blocked.is_some()
    }

    /// The peer has accepted the rejected packet.
    pub(super) fn on_unblocked(&mut self, now: Instant, timeout: Duration) {
        if self.blocked.take().is_some() {
            self.retransmit_at = (!self.flight.is_empty()).then(|| now + timeout);
        }
    }

    /// Makes the oldest packet due again if its timer has expired: as a probe if the lane is
    /// blocked, as a retransmission if there was no answer. Returns true if so.
    pub(super) fn on_deadline(&mut self, now: Instant) -> bool {
        if self.flight.is_empty() || self.deadline().is_none_or(|deadline| deadline > now) {
            return false;
        }
        if let Some(blocked) = &mut self.blocked {
            blocked.probe_at = now + blocked.probe_wait;
        } else {
            self.retransmit_at = None;
            self.doublings += 1;
            self.epoch = self.epoch.wrapping_add(1);
            self.begin_round(now);
            self.on_late(now);
            self.mark_front_lost();
        }
        true
    }

    fn begin_round(&mut self, now: Instant) {
        if self.rounds.len() == ROUNDS_MAX {
            self.rounds.pop_front();
        }
        let (epoch, next) = (self.epoch, self.next());
        self.rounds.push_back(Round { epoch, began_at: now, next });
    }

    /// The peer has buffers again for the packet it rejected. If the reject itself was lost, this
    /// is the first notification of it: all packets in flight have been discarded.
    pub(super) fn on_resume_unblocked(&mut self, epoch: u16) {
        if self.blocked.is_some() || epoch != self.epoch || self.flight.is_empty() {
            return;
        }
        self.mark_all_lost();
    }

    fn mark_all_lost(&mut self) {
        for sent in &mut self.flight {
            sent.flight = Flight::Lost;
        }
        self.arrived = 0;
        self.lost = self.in_flight();
        self.fruitless = Fruitless::NONE; // The oldest packet arrived and found no buffer.
        self.rounds.clear();
        self.epoch = self.epoch.wrapping_add(1);
    }

    fn mark_front_lost(&mut self) {
        let front = &mut self.flight[0];
        if front.flight == Flight::Sent {
            front.flight = Flight::Lost;
            self.lost += 1;
        }
    }

    /// This rank did not run for some time before `now`.
    pub(super) fn on_pause(&mut self, now: Instant) {
        self.forgive_silence(now);
        self.fruitless = Fruitless::NONE;
    }

    /// If the peer owes an answer, it is owed only from now on.
    pub(super) fn forgive_silence(&mut self, now: Instant) {
        self.unanswered_since = self.unanswered_since.map(|_| now);
    }

    /// Arms the timer for the next wait, unless it is armed.
    pub(super) fn arm(&mut self, now: Instant, rtt: &Rtt, allowance: Allowance) {
        if self.blocked.is_none() && !self.flight.is_empty() {
            let timeout = rtt.retransmit_timeout(allowance, self.doublings);
            self.retransmit_at.get_or_insert(now + timeout);
        }
    }

    /// Hands out the oldest lost packet, if there is one. The caller has checked that it may be
    /// sent.
    pub(super) fn take_lost(&mut self, now: Instant) -> Option<(Seq, Item)> {
        if self.lost == 0 {
            return None;
        }
        let index = self.flight.iter().position(|sent| sent.flight == Flight::Lost)?;
        self.lost -= 1;
        Some(self.send_again(now, index))
    }

    /// Hands out the rejected packet as a probe; it stays marked for sending again.
    pub(super) fn take_probe(&mut self, now: Instant) -> Option<(Seq, Item)> {
        if self.flight.is_empty() {
            return None;
        }
        let probe = self.send_again(now, 0);
        self.flight[0].flight = Flight::Lost;
        self.unanswered_since.get_or_insert(now);
        if let Some(blocked) = &mut self.blocked {
            blocked.is_probed = true;
        }
        Some(probe)
    }

    fn send_again(&mut self, now: Instant, index: usize) -> (Seq, Item) {
        if index == 0 {
            self.fruitless.add(now);
        }
        let sent = &mut self.flight[index];
        sent.flight = Flight::Sent;
        sent.sent_at = now;
        sent.transmissions += 1;
        (self.base.plus(index as u32), sent.item)
    }
}

impl Sent {
    /// True if the packet was sent once and did not arrive after a gap.
    pub(super) fn went_straight(&self) -> bool {
        self.transmissions == 1 && self.flight == Flight::Sent
    }
}

fn is_before(epoch: u16, other: u16) -> bool {
    epoch.wrapping_sub(other) >= 1 << 15
}
