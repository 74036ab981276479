//! Which ranks share a machine, and whether they outnumber its cores.
//!
//! Network namespaces and containers look like hosts of their own but share the cores, so machines
//! are distinguished by the kernel's boot id.
//!
//! A rank reports the processors on which it may run. Launchers bind ranks to cores of their own,
//! and such ranks share none: a machine has the processors of all its ranks together. Ranks that
//! are bound to the same processors are oversubscribed by themselves, and so are those of a
//! container that may use fewer processors at a time than it has, because of a quota of its own.

use crate::boot::boot_id;
use rustix::thread::{CpuSet, sched_getaffinity};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// How long a rank with work to do keeps its core.
const TURN: Duration = Duration::from_micros(5);
/// Minimum patience: amply the time that a packet takes to its reader and back if no rank waits for
/// a core.
const PATIENCE_MIN: Duration = Duration::from_micros(20);
/// How long a message is awaited before it is asked for, as a multiple of the patience, if ranks
/// outnumber the cores: several messages may be awaited concurrently, each from a rank that needs a
/// turn, and the question costs another one.
const ASK_OVERSUBSCRIBED: u32 = 2;
/// How long acknowledgements are delayed.
const ACK_DELAY: Duration = Duration::from_micros(40);
/// The same for each rank of a core that ranks share.
const ACK_DELAY_OVERSUBSCRIBED: Duration = Duration::from_micros(120);

/// A machine, as one of its ranks describes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Hash of the boot id.
    id: u64,
    /// Inode of the cgroup namespace, because every container has its own.
    container: u64,
    /// Processors on which the rank may run.
    processors: Processors,
    /// How many of them its container may use at a time.
    cores: u32,
}

/// One bit each, from the lowest of the first word on; empty if they are not known.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
struct Processors(Vec<u64>);

impl Processors {
    /// Processors of this thread; empty if the machine has more than the kernel's call can name.
    fn own() -> Self {
        let Ok(allowed) = sched_getaffinity(None) else { return Self::default() };
        let allowed = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
        allowed.fold(Self::default(), |set, processor| set.with(processor))
    }

    fn with(mut self, processor: usize) -> Self {
        self.0.resize(self.0.len().max(processor / 64 + 1), 0);
        self.0[processor / 64] |= 1 << (processor % 64);
        self
    }

    fn add(&mut self, others: &Self) {
        self.0.resize(self.0.len().max(others.0.len()), 0);
        self.0.iter_mut().zip(&others.0).for_each(|(word, other)| *word |= other);
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

/// What a rank must know about sharing cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CoreSharing {
    /// Ranks on this rank's machine; if the ranks that share its cores outnumber these, only those.
    pub(crate) local_ranks: u32,
    /// Cores that they share.
    pub(crate) local_cores: u32,
    /// Ranks per core, rounded up, on the most crowded machine of the job. The same on all ranks.
    pub(crate) ranks_per_core: u32,
}

/// The ranks of each machine.
pub(crate) struct Census {
    /// By the machine's id.
    machines: BTreeMap<u64, Counted>,
    ranks_per_core: u32,
}

/// The ranks of a machine.
#[derive(Default)]
struct Counted {
    ranks: u32,
    /// Processors of all ranks together.
    processors: Processors,
    /// Number of ranks by the processors on which they may run.
    bound: BTreeMap<Processors, u32>,
    /// Containers with a quota: number of ranks, and cores.
    limited: BTreeMap<u64, (u32, u32)>,
}

impl Counted {
    fn add(&mut self, machine: &Machine) {
        self.ranks += 1;
        self.processors.add(&machine.processors);
        *self.bound.entry(machine.processors.clone()).or_default() += 1;
        if machine.is_limited() {
            let (ranks, cores) = self.limited.entry(machine.container).or_default();
            *ranks += 1;
            *cores = machine.cores.max(*cores);
        }
    }

    /// Cores that all ranks of the machine share; at least 1.
    fn cores(&self) -> u32 {
        let limited: u32 = self.limited.values().map(|(ranks, _)| ranks).sum();
        let allowed: u32 = self.limited.values().map(|(_, cores)| cores).sum();
        let cores = match self.processors.count() {
            0 => allowed,
            count if limited == self.ranks => count.min(allowed),
            count => count,
        };
        cores.max(1)
    }

    /// All ranks of the machine, and the cores that they share.
    fn all(&self) -> Sharing {
        Sharing { ranks: self.ranks, cores: self.cores() }
    }

    /// Ranks per core, on the most crowded cores.
    fn ranks_per_core(&self) -> u32 {
        let bound = self.bound.iter().map(|(processors, ranks)| (*ranks, processors.count()));
        let fewer = bound.chain(self.limited.values().copied());
        let fewer = fewer.map(|(ranks, cores)| Sharing { ranks, cores });
        let sharing = fewer.filter(|it| it.cores > 0).chain([self.all()]);
        sharing.map(Sharing::ranks_per_core).max().unwrap_or(1)
    }

    /// The cores on which a rank on `machine` waits for others most: all of the machine or, if the
    /// ranks that are bound alike or have the same quota outnumber their cores, those cores.
    fn fullest(&self, machine: &Machine) -> Sharing {
        let cores = machine.processors.count();
        let bound = self.bound.get(&machine.processors).map(|ranks| (*ranks, cores));
        let limited = self.limited.get(&machine.container).filter(|_| machine.is_limited());
        let fewer = bound.into_iter().chain(limited.copied());
        let fewer = fewer.map(|(ranks, cores)| Sharing { ranks, cores });
        let fewer = fewer.filter(|it| it.cores > 0 && it.ranks > it.cores);
        let fuller = |one: Sharing, other: Sharing| if other.is_fuller(one) { other } else { one };
        fewer.fold(self.all(), fuller)
    }
}

/// Ranks that share some cores; there is at least one core.
#[derive(Clone, Copy, Debug)]
struct Sharing {
    ranks: u32,
    cores: u32,
}

impl Sharing {
    fn ranks_per_core(self) -> u32 {
        self.ranks.div_ceil(self.cores)
    }

    fn is_fuller(self, other: Self) -> bool {
        u64::from(self.ranks) * u64::from(other.cores)
            > u64::from(other.ranks) * u64::from(self.cores)
    }
}

impl Machine {
    /// The machine that this process runs on.
    pub(crate) fn this() -> Self {
        let id = boot_id().map_or(0, u128::from_be_bytes);
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        let container = std::fs::metadata("/proc/self/ns/cgroup").map_or(0, |file| file.ino());
        let id = (id >> 64) as u64 ^ id as u64;
        Self { id, container, processors: Processors::own(), cores }
    }

    /// True if the rank may not use all its processors at a time, or they are not known.
    fn is_limited(&self) -> bool {
        self.processors.count() == 0 || self.cores < self.processors.count()
    }
}

impl Census {
    /// Counts the ranks on `machines`, which has one entry for each rank.
    pub(crate) fn of(machines: &[Machine]) -> Self {
        let mut counted: BTreeMap<u64, Counted> = BTreeMap::new();
        for machine in machines {
            counted.entry(machine.id).or_default().add(machine);
        }
        let ranks_per_core = counted.values().map(Counted::ranks_per_core).max();
        let ranks_per_core = ranks_per_core.unwrap_or_default();
        Self { machines: counted, ranks_per_core }
    }

    /// Core sharing of a rank on machine `own`.
    pub(crate) fn core_sharing_on(&self, own: &Machine) -> CoreSharing {
        let alone = Sharing { ranks: 1, cores: own.cores };
        let Sharing { ranks, cores } =
            self.machines.get(&own.id).map_or(alone, |counted| counted.fullest(own));
        let ranks_per_core = self.ranks_per_core;
        CoreSharing { local_ranks: ranks, local_cores: cores, ranks_per_core }
    }
}

impl CoreSharing {
    /// True if any machine of the job has more ranks than cores. The same on all ranks.
    pub(crate) fn is_oversubscribed(&self) -> bool {
        self.ranks_per_core > 1
    }

    /// How long a packet may be missing, whose sender needs a turn on its core, before it is worth
    /// asking for.
    pub(crate) fn patience(&self) -> Duration {
        (TURN * self.ranks_per_core).max(PATIENCE_MIN)
    }

    /// Minimum time that a message is awaited before it is asked for.
    pub(crate) fn ask_after(&self) -> Duration {
        self.patience() * if self.is_oversubscribed() { ASK_OVERSUBSCRIBED } else { 1 }
    }

    /// How long acknowledgements may be delayed so that packets in the same direction can carry
    /// them: a lost packet that no other packet follows is found only after that. If ranks wait for
    /// cores, each separate acknowledgement costs one of them its turn.
    pub(crate) fn ack_delay(&self) -> Duration {
        if self.is_oversubscribed() {
            ACK_DELAY_OVERSUBSCRIBED * self.ranks_per_core
        } else {
            ACK_DELAY
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waiting::WaitPolicy;

    #[test]
    fn ranks_are_counted_by_machine() {
        let small = || bound(1, 0..2);
        let large = || bound(2, 0..8);
        let census = Census::of(&[small(), large(), large(), small(), large()]);
        assert_eq!(census.core_sharing_on(&small()), core_sharing(2, 2, 1));
        assert_eq!(census.core_sharing_on(&large()), core_sharing(3, 8, 1));
        let of_large = Census::of(&[small(), small(), small(), large()]).core_sharing_on(&large());
        assert_eq!(of_large, core_sharing(1, 8, 2));
        assert!(
            of_large.is_oversubscribed() && !census.core_sharing_on(&small()).is_oversubscribed()
        );
    }

    fn core_sharing(local_ranks: u32, local_cores: u32, ranks_per_core: u32) -> CoreSharing {
        CoreSharing { local_ranks, local_cores, ranks_per_core }
    }

    /// The machine of a rank that may run on these processors.
    fn bound(id: u64, processors: std::ops::Range<usize>) -> Machine {
        let cores = processors.len() as u32;
        let processors = processors.fold(Processors::default(), Processors::with);
        Machine { id, container: 1, processors, cores }
    }

    #[test]
    fn ranks_bound_to_separate_cores_share_none() {
        let ranks: Vec<Machine> = (0..128).map(|core| bound(1, core..core + 1)).collect();
        let census = Census::of(&ranks);
        assert_eq!(census.core_sharing_on(&ranks[77]), core_sharing(128, 128, 1));
        // Bound to halves of the machine, with as many ranks as each half has cores.
        let ranks: Vec<Machine> =
            (0..128).map(|rank| bound(1, rank / 64 * 64..64 + rank / 64 * 64)).collect();
        assert_eq!(Census::of(&ranks).core_sharing_on(&ranks[0]), core_sharing(128, 128, 1));
    }

    #[test]
    fn ranks_bound_to_the_same_core_are_oversubscribed() {
        let ranks = [bound(1, 0..1), bound(1, 0..1), bound(1, 0..1), bound(1, 8..16)];
        let census = Census::of(&ranks);
        assert_eq!(census.core_sharing_on(&ranks[0]), core_sharing(3, 1, 3));
        assert_eq!(census.core_sharing_on(&ranks[3]), core_sharing(4, 9, 3));
        let spins = |rank: usize| {
            let CoreSharing { local_ranks, local_cores, .. } = census.core_sharing_on(&ranks[rank]);
            !WaitPolicy::for_ranks(local_ranks, local_cores).spin.is_zero()
        };
        assert_eq!([0, 1, 2, 3].map(spins), [false, false, false, true]);
        // A rank that has its only core to itself counts by the machine, as launchers count ranks.
        let ranks = [bound(1, 0..1), bound(1, 8..16)];
        assert_eq!(Census::of(&ranks).core_sharing_on(&ranks[0]), core_sharing(2, 9, 1));
        // More ranks than cores, no two bound alike.
        let ranks = [bound(1, 0..2), bound(1, 1..2), bound(1, 0..1)];
        assert_eq!(Census::of(&ranks).core_sharing_on(&ranks[0]), core_sharing(3, 2, 2));
    }

    #[test]
    fn cpu_quota_limits_the_cores_that_are_counted() {
        let limited = |container| Machine { cores: 2, container, ..bound(1, 0..64) };
        let census = Census::of(&[limited(1), limited(1), limited(1)]);
        assert_eq!(census.core_sharing_on(&limited(1)), core_sharing(3, 2, 2));
        // In separate containers each has its quota; a container with two ranks is oversubscribed.
        let census = Census::of(&[limited(1), limited(2), limited(3)]);
        assert_eq!(census.core_sharing_on(&limited(1)), core_sharing(3, 6, 1));
        let census = Census::of(&[limited(1), limited(1), limited(1), limited(2)]);
        assert_eq!(census.core_sharing_on(&limited(1)), core_sharing(3, 2, 2));
        assert_eq!(census.core_sharing_on(&limited(2)), core_sharing(4, 4, 2));
        // If processors are not known, only the number of cores decides.
        let unknown = || Machine { cores: 2, ..bound(1, 0..0) };
        let census = Census::of(&[unknown(), unknown(), unknown()]);
        assert_eq!(census.core_sharing_on(&unknown()), core_sharing(3, 2, 2));
    }

    #[test]
    fn machine_identity_is_stable() {
        let this = Machine::this();
        assert_eq!(this, Machine::this());
        assert!(this.cores > 0 && this.cores <= this.processors.count());
    }
}
