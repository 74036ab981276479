//! Checker of barriers, judged from commands, events and packets alone.
//!
//! - *Safety*: no member leaves a barrier before every member has entered it.
//! - Barriers of a group end at each member in entering order, each once.
//! - A barrier ends with an error only if a member has failed, and the error names a failed member.
//! - If barriers combine words, each member gets the combined words of all.
//! - No member claims, by a packet or through its NIC, to have entered a barrier that it has not,
//!   or that a barrier is done that some member has not entered.
//!
//! A communicator has one group of barriers in a run.

use super::{Ledger, Operation, Sort, State};
use crate::rig::words;
use omnes_proto::collective::{BarrierGroupConfig, STEP_RELEASE};
use omnes_wire::{CommunicatorId, Header, Instant, Kind, Rank, Words};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// One member's part in one barrier.
#[derive(Debug)]
pub(super) struct Crossing {
    rank: Rank,
    group: Rc<BarrierGroupConfig>,
    /// `None` if the machine has refused it.
    epoch: Option<u32>,
    /// The rank named as the cause, if the barrier has failed.
    culprit: Option<Rank>,
}

impl Crossing {
    pub(super) fn rank(&self) -> Rank {
        self.rank
    }

    pub(super) fn communicator(&self) -> CommunicatorId {
        self.group.communicator
    }

    pub(super) fn describe(&self) -> String {
        let (rank, communicator) = (self.rank, self.group.communicator.0);
        let (algorithm, runner) = (self.group.algorithm, self.group.runner);
        let what = match self.epoch {
            Some(epoch) => format!("barrier {epoch}"),
            None => "refused barrier".to_owned(),
        };
        format!("{what} at {rank}, comm={communicator} {algorithm} by {runner:?}")
    }

    fn has_member_in(&self, ranks: &BTreeSet<Rank>) -> bool {
        self.group.nodes.ranks().any(|rank| ranks.contains(&rank))
    }
}

/// Number of barriers of a group that a member has entered, and number that it has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) entered: u32,
    pub(crate) done: u32,
}

/// Members of all groups, and their progress.
#[derive(Debug, Default)]
pub(super) struct Standings {
    progress: BTreeMap<(CommunicatorId, Rank), Progress>,
    groups: BTreeMap<CommunicatorId, Rc<BarrierGroupConfig>>,
}

impl Ledger {
    /// A rank has entered the barrier that the machine calls `epoch`; an error if that is not the
    /// next one.
    pub(crate) fn add_barrier(
        &mut self,
        rank: Rank,
        group: Rc<BarrierGroupConfig>,
        epoch: u32,
    ) -> (Operation, Result<(), String>) {
        let communicator = group.communicator;
        let Standings { progress, groups } = &mut self.standings;
        groups.entry(communicator).or_insert_with(|| group.clone());
        let progress = progress.entry((communicator, rank)).or_default();
        progress.entered += 1;
        let numbered = if progress.entered == epoch {
            Ok(())
        } else {
            Err(format!("calls barrier {} {epoch}", progress.entered))
        };
        let crossing = Crossing { rank, group, epoch: Some(epoch), culprit: None };
        (self.add(Sort::Barrier(crossing)), numbered)
    }

    /// Adds a barrier that the machine of `rank` refused, with the member that it blames.
    pub(crate) fn add_refused_barrier(
        &mut self,
        now: Instant,
        rank: Rank,
        group: Rc<BarrierGroupConfig>,
        culprit: Option<Rank>,
    ) -> Operation {
        let operation = self.add(Sort::Barrier(Crossing { rank, group, epoch: None, culprit }));
        self.settle(operation, State::Failed(now));
        operation
    }

    /// A rank leaves a barrier.
    pub(crate) fn on_barrier_done(
        &mut self,
        now: Instant,
        operation: Operation,
        words: Words,
    ) -> Result<(), String> {
        let entry = &self.entries[operation.0];
        let Sort::Barrier(Crossing { rank, group, epoch: Some(epoch), .. }) = &entry.sort else {
            return Err(format!("{operation:?} is not a barrier"));
        };
        if entry.state != State::Pending {
            return Err(format!("{operation:?} ends twice"));
        }
        let (rank, epoch) = (*rank, *epoch);
        let made = words::makes(group, epoch);
        if words != made {
            let (words, made) = (words.as_slice(), made.as_slice());
            return Err(format!("barrier {epoch} makes {words:x?} of the words, not {made:x?}"));
        }
        self.check_all_entered(group.communicator, epoch)
            .map_err(|text| format!("leaves barrier {epoch}, but {text}"))?;
        let progress = self.standings.progress.entry((group.communicator, rank)).or_default();
        progress.done += 1;
        if progress.done != epoch {
            return Err(format!("leaves barrier {epoch} as number {}", progress.done));
        }
        self.settle(operation, State::Done(now));
        Ok(())
    }

    /// A barrier ends at a rank with an error that names `culprit`.
    pub(crate) fn on_barrier_failed(&mut self, now: Instant, operation: Operation, culprit: Rank) {
        if let Sort::Barrier(crossing) = &mut self.entries[operation.0].sort {
            crossing.culprit = Some(culprit);
        }
        self.settle(operation, State::Failed(now));
    }

    /// Progress of a member of a group.
    pub(crate) fn progress(&self, communicator: CommunicatorId, rank: Rank) -> Progress {
        self.standings.progress.get(&(communicator, rank)).copied().unwrap_or_default()
    }

    fn check_all_entered(&self, communicator: CommunicatorId, epoch: u32) -> Result<(), String> {
        let Some(group) = self.standings.groups.get(&communicator) else {
            return match epoch {
                0 => Ok(()),
                _ => Err("nobody has entered it".to_owned()),
            };
        };
        let has_not = |rank: &Rank| self.progress(communicator, *rank).entered < epoch;
        match group.nodes.ranks().find(has_not) {
            Some(late) => Err(format!("{late} has not entered it")),
            None => Ok(()),
        }
    }

    /// A packet of `rank` leaves its node; the error names a false claim in it.
    pub(crate) fn check_claim(&self, rank: Rank, packet: &[u8]) -> Result<(), String> {
        let Ok((header, _)) = Header::parse(packet) else { return Ok(()) };
        if !matches!(header.kind, Kind::Step | Kind::StepNack | Kind::StepAsk | Kind::StepTell) {
            return Ok(());
        }
        let (communicator, claimed) = (header.communicator, header.seq.0);
        let Progress { entered, .. } = self.progress(communicator, rank);
        if claimed > entered {
            let kind = header.kind;
            return Err(format!("sends {kind:?} of barrier {claimed} but has entered {entered}"));
        }
        let done = match header.kind {
            Kind::StepTell => header.argument,
            Kind::Step if header.argument == STEP_RELEASE => claimed,
            _ => 0,
        };
        self.check_all_entered(communicator, done)
            .map_err(|text| format!("says that barrier {done} is done, but {text}"))
    }

    /// `missing` is what the machine of `rank` reports for the barrier in progress there; the error
    /// names a rank that has not entered it and is left out, or one that is not a member.
    pub(crate) fn check_missing(
        &self,
        communicator: CommunicatorId,
        rank: Rank,
        missing: &[Rank],
    ) -> Result<(), String> {
        let Some(group) = self.standings.groups.get(&communicator) else { return Ok(()) };
        let Progress { done, .. } = self.progress(communicator, rank);
        let members: BTreeSet<Rank> = group.nodes.ranks().collect();
        if let Some(stranger) = missing.iter().find(|rank| !members.contains(rank)) {
            return Err(format!("rank {rank} misses {stranger}, which is not a member"));
        }
        let has_entered = |member: &Rank| self.progress(communicator, *member).entered > done;
        match members.iter().find(|it| !has_entered(it) && !missing.contains(it)) {
            Some(late) => Err(format!(
                "rank {rank} takes {late} to have entered barrier {} of {}",
                done + 1,
                communicator.0
            )),
            None => Ok(()),
        }
    }

    fn crossings(&self) -> impl Iterator<Item = (Operation, &Crossing, State)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| match &entry.sort {
            Sort::Barrier(crossing) => Some((Operation(index), crossing, entry.state)),
            _ => None,
        })
    }

    /// Names a barrier that failed although none of the ranks in `failed` is in its group, or that
    /// blames another.
    pub(crate) fn check_barrier_failures(&self, failed: &BTreeSet<Rank>) -> Result<(), String> {
        for (_, crossing, state) in self.crossings() {
            let is_right = match crossing.culprit {
                Some(culprit) => {
                    failed.contains(&culprit) && crossing.has_member_in(&BTreeSet::from([culprit]))
                }
                None => false,
            };
            if matches!(state, State::Failed(_)) && !is_right {
                let culprit = crossing.culprit;
                return Err(format!("fails because of {culprit:?}: {}", crossing.describe()));
            }
        }
        Ok(())
    }

    /// Describes a barrier that is pending at a living rank.
    pub(crate) fn missing_barrier(&self) -> Option<String> {
        let mut pending = self.crossings().filter(|(operation, ..)| self.is_pending(*operation));
        pending.next().map(|(_, crossing, _)| crossing.describe())
    }

    /// Barriers under way at living ranks that no rank of `living` has left although all members
    /// have entered them, in groups with a member that is in `left`: their messages may have gone
    /// with it. Rank and communicator.
    pub(crate) fn stranded_barriers(
        &self,
        living: &BTreeSet<Rank>,
        left: &BTreeSet<Rank>,
    ) -> Vec<(Rank, CommunicatorId)> {
        let is_stranded = |crossing: &Crossing| {
            let Some(epoch) = crossing.epoch else { return false };
            let communicator = crossing.communicator();
            let mut members = crossing.group.nodes.ranks();
            let is_over = |rank: Rank| {
                living.contains(&rank) && self.progress(communicator, rank).done >= epoch
            };
            crossing.has_member_in(left) && !members.any(is_over)
        };
        let pending = self.crossings().filter(|(operation, ..)| self.is_pending(*operation));
        let stranded = pending.filter(|(_, crossing, _)| is_stranded(crossing));
        stranded.map(|(_, crossing, _)| (crossing.rank, crossing.communicator())).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use omnes_proto::collective::{Runner, STEP_JOIN};
    use omnes_topo::BarrierAlgorithm;
    use omnes_wire::{JobId, Seq, TAG_BYTES};

    const GROUP: CommunicatorId = CommunicatorId(4);

    fn group(ranks: u32) -> Rc<BarrierGroupConfig> {
        Rc::new(BarrierGroupConfig {
            communicator: GROUP,
            nodes: (0..ranks).map(|rank| vec![Rank(rank)]).collect(),
            algorithm: BarrierAlgorithm::Dissemination,
            runner: Runner::Host,
            is_multicast: false,
        })
    }

    /// Two ranks have entered barrier 1; the third has entered `third` barriers.
    fn entered(third: u32) -> (Ledger, [Operation; 2]) {
        let mut ledger = Ledger::default();
        let operations = [0, 1].map(|rank| {
            let (operation, numbered) = ledger.add_barrier(Rank(rank), group(3), 1);
            assert_eq!(numbered, Ok(()));
            operation
        });
        for epoch in 1..=third {
            assert_eq!(ledger.add_barrier(Rank(2), group(3), epoch).1, Ok(()));
        }
        (ledger, operations)
    }

    fn packet(kind: Kind, seq: u32, argument: u32) -> Vec<u8> {
        let header = Header {
            job: JobId(1),
            communicator: GROUP,
            seq: Seq(seq),
            argument,
            ..Header::blank(kind, Rank(0))
        };
        [&header.emit()[..], &[0; TAG_BYTES]].concat()
    }

    #[test]
    fn leaving_a_barrier_before_all_have_entered_is_detected() {
        let (mut early, [first, _]) = entered(0);
        assert!(
            early
                .on_barrier_done(Instant::ZERO, first, Words::NONE)
                .unwrap_err()
                .contains("2 has not")
        );
        let (mut timely, [first, second]) = entered(1);
        assert_eq!(timely.on_barrier_done(Instant::ZERO, first, Words::NONE), Ok(()));
        assert!(timely.on_barrier_done(Instant::ZERO, first, Words::NONE).is_err());
        assert_eq!(timely.on_barrier_done(Instant::ZERO, second, Words::NONE), Ok(()));
        assert!(timely.missing_barrier().unwrap().contains("barrier 1 at 2"));
    }

    #[test]
    fn misnumbered_and_out_of_order_barriers_are_detected() {
        let (mut ledger, _) = entered(1);
        assert!(ledger.add_barrier(Rank(0), group(3), 3).1.is_err());
        let (mut ledger, _) = entered(1);
        let (second, numbered) = ledger.add_barrier(Rank(0), group(3), 2);
        assert_eq!(numbered, Ok(()));
        ledger.add_barrier(Rank(1), group(3), 2).1.unwrap();
        ledger.add_barrier(Rank(2), group(3), 2).1.unwrap();
        assert!(ledger.on_barrier_done(Instant::ZERO, second, Words::NONE).is_err());
    }

    #[test]
    fn false_claims_in_barrier_packets_are_detected() {
        let (ledger, _) = entered(0);
        let check = |rank, packet: &[u8]| ledger.check_claim(Rank(rank), packet);
        assert_eq!(check(0, &packet(Kind::Step, 1, 0)), Ok(()));
        assert!(check(0, &packet(Kind::Step, 2, 0)).is_err());
        assert!(check(2, &packet(Kind::Step, 1, STEP_JOIN)).is_err());
        assert_eq!(check(0, &packet(Kind::StepTell, 1, 0)), Ok(()));
        assert!(check(0, &packet(Kind::StepTell, 1, 1)).is_err());
        assert!(check(0, &packet(Kind::Step, 1, STEP_RELEASE)).is_err());
        assert_eq!(check(2, &packet(Kind::StepTell, 0, 0)), Ok(()));
        assert_eq!(check(2, &packet(Kind::Data, 9, 0)), Ok(()));
    }

    #[test]
    fn late_members_must_be_reported_missing() {
        let (ledger, _) = entered(0);
        let check = |missing: &[Rank]| ledger.check_missing(GROUP, Rank(0), missing);
        assert_eq!(check(&[Rank(2)]), Ok(()));
        assert_eq!(check(&[Rank(1), Rank(2)]), Ok(()));
        assert!(check(&[Rank(1)]).unwrap_err().contains("takes 2 to have entered"));
        assert!(check(&[Rank(2), Rank(7)]).unwrap_err().contains("not a member"));
    }

    #[test]
    fn barrier_failure_must_name_a_failed_member() {
        let set = |ranks: &[u32]| ranks.iter().copied().map(Rank).collect::<BTreeSet<_>>();
        let (mut ledger, [first, _]) = entered(0);
        ledger.on_barrier_failed(Instant::ZERO, first, Rank(2));
        assert_eq!(ledger.check_barrier_failures(&set(&[2])), Ok(()));
        assert!(ledger.check_barrier_failures(&set(&[1])).is_err());
        let (mut ledger, _) = entered(0);
        ledger.add_refused_barrier(Instant::ZERO, Rank(0), group(3), Some(Rank(5)));
        assert!(ledger.check_barrier_failures(&set(&[5])).is_err());
        let (mut ledger, _) = entered(0);
        ledger.add_refused_barrier(Instant::ZERO, Rank(0), group(3), None);
        assert!(ledger.check_barrier_failures(&set(&[2])).is_err());
    }

    #[test]
    fn barrier_is_stranded_only_if_all_living_members_are_still_inside() {
        let set = |ranks: &[u32]| ranks.iter().copied().map(Rank).collect::<BTreeSet<_>>();
        let (mut ledger, [first, _]) = entered(1);
        let stranded = |ledger: &Ledger| ledger.stranded_barriers(&set(&[0, 1]), &set(&[2]));
        ledger.bury(Rank(2));
        assert_eq!(stranded(&ledger), [(Rank(0), GROUP), (Rank(1), GROUP)]);
        ledger.on_barrier_done(Instant::ZERO, first, Words::NONE).unwrap();
        assert_eq!(stranded(&ledger), []);
        assert_eq!(ledger.stranded_barriers(&set(&[0, 1, 2]), &set(&[])), []);
    }
}
