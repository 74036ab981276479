//! Incoming packets. All are authentic, that is, from a rank of the job, but their contents may be
//! wrong.

use super::Collective;
use super::emit::header;
use super::group::{Common, Group, Phase};
use super::interface::{Outbound, STEP_JOIN, STEP_RELEASE};
use crate::group::Place;
use crate::limits::{ANSWERS_MAX, BARRIERS_OUTSTANDING_MAX};
use crate::packet::Destination;
use omnes_firmware::barrier::Verdict;
use omnes_wire::{Header, Instant, Kind, Seq, Words};

impl Collective {
    /// Handles an authentic packet: [`Kind::Step`], [`Kind::StepNack`], [`Kind::StepAsk`] or
    /// [`Kind::StepTell`], with its control body, if it has one. Any other packet is counted as
    /// nonsense.
    pub fn handle_packet(&mut self, now: Instant, header: &Header, body: &[u8]) {
        let common = &mut self.common;
        common.counters.nacks_received += u64::from(header.kind == Kind::StepNack);
        common.counters.asks_received += u64::from(header.kind == Kind::StepAsk);
        let Some(at) = self.find(header.communicator) else {
            self.on_unknown_group(header);
            return;
        };
        let (group, common) = (&mut self.groups[at], &mut self.common);
        let Some(from) = group.members.place(header.source).filter(|it| *it != group.members.own())
        else {
            common.counters.nonsense += 1;
            return;
        };
        let words = match header.kind {
            Kind::Step | Kind::StepTell => Words::parse(header, body),
            _ => Some(Words::NONE),
        };
        let Some(words) = words else {
            common.counters.nonsense += 1;
            return;
        };
        match header.kind {
            Kind::Step => {
                let verdict = group.on_step(now, common, (header, words), from);
                common.count(verdict);
            }
            Kind::StepNack => {
                let verdict = group.on_nack(common, header, from);
                if verdict != Verdict::Taken {
                    common.count(verdict);
                }
            }
            Kind::StepAsk => group.on_ask(common, header),
            Kind::StepTell => group.on_tell(now, common, (header, words), from),
            _ => common.counters.nonsense += 1,
        }
        group.go_on(now, common);
        self.settle(at);
    }

    /// A rank that has not opened a group has not entered its barrier, and answers so if asked.
    fn on_unknown_group(&mut self, asked: &Header) {
        if let Some(dormant) = self.dormant.get(&asked.communicator).copied() {
            return self.answer_dormant(asked, dormant);
        }
        self.common.counters.unknown_group += 1;
        if asked.kind == Kind::StepAsk {
            let before = asked.seq.0.wrapping_sub(1);
            self.common.tell(asked, (before, before), Words::NONE);
        }
    }
}

impl Common {
    fn count(&mut self, verdict: Verdict) {
        let counters = &mut self.counters;
        match verdict {
            Verdict::Taken => counters.steps_received += 1,
            Verdict::Duplicate => counters.duplicates += 1,
            Verdict::Ignored => counters.ignored += 1,
            Verdict::Nonsense => counters.nonsense += 1,
        }
    }

    pub(super) fn answer(&mut self, answer: Outbound) {
        if self.answers.len() < ANSWERS_MAX {
            self.answers.push_back(answer);
        } else {
            self.counters.answers_dropped += 1;
        }
    }

    /// Tells the asking rank which barriers this rank has entered and completed, with the results.
    pub(super) fn tell(&mut self, asked: &Header, (entered, done): (u32, u32), results: Words) {
        let header = header(self.me, asked.communicator, Kind::StepTell, entered, done);
        self.answer(Outbound::carrying(Destination::Rank(asked.source), header, results));
    }
}

impl Group {
    /// True if the member at `place` leads this rank's node.
    fn is_led_by(&self, place: Place) -> bool {
        place.node == self.members.own().node && self.members.is_leader(place)
    }

    /// True if this rank leads the member at `place`.
    fn leads_member(&self, place: Place) -> bool {
        place.node == self.members.own().node && self.leads()
    }

    /// True if the member at `place` leads another node, so that its node and this one may have
    /// steps with each other.
    fn is_other_leader(&self, place: Place) -> bool {
        place.node != self.members.own().node && self.members.is_leader(place)
    }

    // ---- steps ------------------------------------------------------------------------------

    fn on_step(
        &mut self,
        now: Instant,
        common: &mut Common,
        step: (&Header, Words),
        from: Place,
    ) -> Verdict {
        match step.0.argument {
            _ if self.broken_by.is_some() => Verdict::Ignored,
            STEP_JOIN if self.leads_member(from) => self.on_join(now, common, step, from),
            STEP_RELEASE if self.is_led_by(from) => self.on_release(now, common, step),
            STEP_JOIN | STEP_RELEASE => Verdict::Nonsense,
            _ if self.is_other_leader(from) => self.on_arrival(now, common, step, from),
            // A release by multicast reaches all ranks.
            _ if self.is_led_by(from) => Verdict::Ignored,
            _ => Verdict::Nonsense,
        }
    }

    fn on_join(
        &mut self,
        now: Instant,
        common: &mut Common,
        (header, words): (&Header, Words),
        from: Place,
    ) -> Verdict {
        let epoch = header.seq.0;
        match epoch.wrapping_sub(self.done) {
            1 => {
                if self.on_joined(now, common, from.seat, words) {
                    Verdict::Taken
                } else {
                    Verdict::Duplicate
                }
            }
            // The sender knows by hearsay that the barrier in progress here is complete.
            2 if self.phase != Phase::Idle => Verdict::Ignored,
            _ if !Seq(self.done).precedes(Seq(epoch)) => Verdict::Duplicate,
            _ => Verdict::Nonsense,
        }
    }

    fn on_release(
        &mut self,
        now: Instant,
        common: &mut Common,
        (header, words): (&Header, Words),
    ) -> Verdict {
        let epoch = header.seq.0;
        if Some(epoch) == self.under_way() {
            self.finish(now, common, words);
            return Verdict::Taken;
        }
        // A leader that releases this rank from a barrier it has not entered sends nonsense.
        if Seq(self.done).precedes(Seq(epoch)) { Verdict::Nonsense } else { Verdict::Duplicate }
    }

    fn on_arrival(
        &mut self,
        now: Instant,
        common: &mut Common,
        (header, words): (&Header, Words),
        from: Place,
    ) -> Verdict {
        let Some(network) = &mut self.network else {
            // As above: a rank that leads no node is released by its leader.
            return Verdict::Ignored;
        };
        if network.is_nic() {
            common.counters.wakes += 1;
            return Verdict::Ignored;
        }
        let (verdict, action, goes_on) =
            network.arrive((header.seq.0, header.argument), from.node, words);
        if goes_on && !action.is_done() {
            self.waiting.on_step(now);
        }
        self.apply(now, common, action);
        verdict
    }

    // ---- who misses something -----------------------------------------------------------------

    /// A member lacks a message of this rank: it is repeated, if it has been sent [CB-R6].
    fn on_nack(&mut self, common: &mut Common, asked: &Header, from: Place) -> Verdict {
        let (epoch, step) = (asked.seq.0, asked.argument);
        let verdict = match step {
            STEP_JOIN if self.is_led_by(from) => self.repeats_join(epoch),
            STEP_RELEASE if self.leads_member(from) => {
                if epoch == self.done {
                    Verdict::Taken
                } else {
                    Verdict::Ignored
                }
            }
            STEP_JOIN | STEP_RELEASE => Verdict::Nonsense,
            _ if !self.is_other_leader(from) => Verdict::Nonsense,
            _ => self.repeats_step(epoch, step, from),
        };
        if verdict == Verdict::Taken {
            let (to, communicator) = (asked.source, self.communicator);
            let to = if self.is_nic() && step < STEP_JOIN {
                Destination::Nic { to, communicator }
            } else {
                Destination::Rank(to)
            };
            let step = self.step(common, to, epoch, step);
            common.answer(step);
        }
        verdict
    }

    /// Words of a message of barrier `epoch` that is sent now, for the first time or again. A
    /// member that lacks a message of a completed barrier is waiting for the results.
    pub(super) fn carries(&self, epoch: u32, step: u32) -> Words {
        match (step, &self.network) {
            (STEP_JOIN, _) => self.brought(epoch),
            (step, Some(network)) if step != STEP_RELEASE && epoch != self.done => {
                network.carries(epoch, step)
            }
            _ => self.results,
        }
    }

    fn repeats_join(&self, epoch: u32) -> Verdict {
        // The leader can be behind only if this rank completed the barrier by hearsay.
        if Some(epoch) == self.under_way() || epoch == self.done {
            Verdict::Taken
        } else {
            Verdict::Ignored
        }
    }

    fn repeats_step(&self, epoch: u32, step: u32, from: Place) -> Verdict {
        match &self.network {
            None => Verdict::Nonsense,
            Some(network) if !network.is_nic() => network.repeats(epoch, step, from.node),
            // The kernel NIC has no slot for the group any more, so the packet is sent without its
            // help.
            Some(network) if self.is_closed && epoch == self.done => {
                if network.sends_to(step, from.node) { Verdict::Taken } else { Verdict::Nonsense }
            }
            // The kernel NIC answers.
            Some(_) => Verdict::Ignored,
        }
    }

    // ---- who has entered ----------------------------------------------------------------------

    fn on_ask(&mut self, common: &mut Common, asked: &Header) {
        common.tell(asked, (self.entered, self.done), self.results);
    }

    fn on_tell(
        &mut self,
        now: Instant,
        common: &mut Common,
        (header, results): (&Header, Words),
        from: Place,
    ) {
        let (entered, done) = (header.seq.0, header.argument);
        let Some(epoch) = self.under_way() else {
            common.counters.ignored += 1;
            return;
        };
        // A member is at most one barrier behind this rank, its answer may be two; and it may be
        // ahead by as many barriers as may be outstanding.
        let ahead = entered.wrapping_sub(epoch.wrapping_sub(2));
        if ahead > BARRIERS_OUTSTANDING_MAX + 2 {
            common.counters.nonsense += 1;
            return;
        }
        self.on_told(from.seat, entered);
        if let Some(question) = &mut self.question {
            question.on_answer(from.seat);
        }
        if self.has_departed && done == epoch {
            self.end_by_hearsay(now, common, results);
        }
    }

    /// Another member has completed the barrier in progress, so all have entered it; the message
    /// that this rank lacks may have been lost with the member that sent it. Steps that this rank
    /// has not sent for lack of the message are sent now.
    fn end_by_hearsay(&mut self, now: Instant, common: &mut Common, results: Words) {
        let epoch = self.done.wrapping_add(1);
        if let Some(network) = &mut self.network {
            let rest = network.end(epoch, results);
            self.outbox.add_steps(epoch, rest);
        }
        common.counters.ended_by_hearsay += 1;
        self.finish(now, common, results);
    }
}
