//! Which ranks share a machine, and whether they outnumber its cores.
//!
//! Network namespaces and containers look like hosts of their own but share the cores, so machines
//! are told apart by the kernel's boot id.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a rank that has something to do keeps its core.
const TURN: Duration = Duration::from_micros(5);
/// Patience at least: amply what a packet takes to its reader and back, where nobody waits for a
/// core.
const PATIENCE_MIN: Duration = Duration::from_micros(20);
/// How long a message may be waited for where ranks outnumber the cores before it is asked for, in
/// times of their patience: several messages may be waited for at once, each from a rank that needs
/// a turn, and the question costs one more.
const ASK_CROWDED: u32 = 2;
/// How long answers are held back.
const HOLD: Duration = Duration::from_micros(40);
/// The same for each rank of a core that ranks share.
const HOLD_CROWDED: Duration = Duration::from_micros(120);

/// A machine, as one of its ranks describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Hash of the boot id.
    id: u64,
    cores: u32,
}

/// What a rank must know of its neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Crowd {
    /// Ranks on this rank's machine.
    pub(crate) local_ranks: u32,
    /// Ranks per core, rounded up, on the machine of the job where they are most. The same on all
    /// ranks.
    pub(crate) ranks_per_core: u32,
}

/// How many ranks each machine has.
pub(crate) struct Census {
    /// By the machine's id.
    ranks: BTreeMap<u64, u32>,
    ranks_per_core: u32,
}

impl Machine {
    /// The machine that this process runs on.
    pub(crate) fn this() -> Self {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let digits = boot_id.unwrap_or_default().replace('-', "");
        let id = u128::from_str_radix(digits.trim(), 16).unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        Self { id: (id >> 64) as u64 ^ id as u64, cores }
    }
}

impl Census {
    /// Of the ranks on `machines`, one for each rank.
    pub(crate) fn of(machines: &[Machine]) -> Self {
        let mut ranks = BTreeMap::new();
        for machine in machines {
            *ranks.entry(machine.id).or_default() += 1;
        }
        let mut census = Self { ranks, ranks_per_core: 0 };
        let per_core = |machine: &Machine| census.ranks_on(machine).div_ceil(machine.cores.max(1));
        census.ranks_per_core = machines.iter().map(per_core).max().unwrap_or_default();
        census
    }

    fn ranks_on(&self, machine: &Machine) -> u32 {
        self.ranks.get(&machine.id).copied().unwrap_or_default()
    }

    /// The neighbours of a rank on machine `own`.
    pub(crate) fn crowd_on(&self, own: Machine) -> Crowd {
        Crowd { local_ranks: self.ranks_on(&own), ranks_per_core: self.ranks_per_core }
    }
}

impl Crowd {
    /// True if some machine of the job has more ranks than cores. The same on all ranks.
    pub(crate) fn is_crowded(&self) -> bool {
        self.ranks_per_core > 1
    }

    /// How long something may be missing that takes its sender a turn on its core, before it is
    /// worth asking for.
    pub(crate) fn patience(&self) -> Duration {
        (TURN * self.ranks_per_core).max(PATIENCE_MIN)
    }

    /// How long a message may be waited for, at least, before it is asked for.
    pub(crate) fn ask_after(&self) -> Duration {
        self.patience() * if self.is_crowded() { ASK_CROWDED } else { 1 }
    }

    /// How long answers may be held back to travel with what goes the same way: a lost packet that
    /// nothing follows is found only after that. Where ranks wait for cores, each answer by itself
    /// costs one of them its turn.
    pub(crate) fn hold(&self) -> Duration {
        if self.is_crowded() { HOLD_CROWDED * self.ranks_per_core } else { HOLD }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_counted_by_machine() {
        let small = Machine { id: 1, cores: 2 };
        let large = Machine { id: 2, cores: 8 };
        let census = Census::of(&[small, large, large, small, large]);
        assert_eq!(census.crowd_on(small), Crowd { local_ranks: 2, ranks_per_core: 1 });
        assert_eq!(census.crowd_on(large), Crowd { local_ranks: 3, ranks_per_core: 1 });
        let crowd = Census::of(&[small, small, small, large]).crowd_on(large);
        assert_eq!(crowd, Crowd { local_ranks: 1, ranks_per_core: 2 });
        assert!(crowd.is_crowded() && !census.crowd_on(small).is_crowded());
    }

    #[test]
    fn all_processes_of_a_machine_name_it_alike() {
        assert_eq!(Machine::this(), Machine::this());
        assert!(Machine::this().cores > 0);
    }
}
