//! Which ranks share a machine, and whether they outnumber its cores.
//!
//! Network namespaces and containers look like hosts of their own but share the cores, so machines
//! are told apart by the kernel's boot id.

use serde::{Deserialize, Serialize};
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

impl Crowd {
    /// The neighbours of a rank on machine `own`, given every rank's machine.
    pub(crate) fn of(machines: &[Machine], own: Machine) -> Self {
        let ranks_on = |machine: &Machine| {
            machines.iter().filter(|other| other.id == machine.id).count() as u32
        };
        let per_core = |machine: &Machine| ranks_on(machine).div_ceil(machine.cores.max(1));
        let ranks_per_core = machines.iter().map(per_core).max().unwrap_or_default();
        Self { local_ranks: ranks_on(&own), ranks_per_core }
    }

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
        let machines = [small, large, large, small, large];
        assert_eq!(Crowd::of(&machines, small), Crowd { local_ranks: 2, ranks_per_core: 1 });
        assert_eq!(Crowd::of(&machines, large), Crowd { local_ranks: 3, ranks_per_core: 1 });
        let more = [small, small, small, large];
        let crowd = Crowd::of(&more, large);
        assert_eq!(crowd, Crowd { local_ranks: 1, ranks_per_core: 2 });
        assert!(crowd.is_crowded() && !Crowd::of(&machines, small).is_crowded());
    }

    #[test]
    fn all_processes_of_a_machine_name_it_alike() {
        assert_eq!(Machine::this(), Machine::this());
        assert!(Machine::this().cores > 0);
    }
}
