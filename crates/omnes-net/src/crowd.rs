//! Which ranks share a machine, and whether they outnumber its cores.
//!
//! Network namespaces and containers look like hosts of their own but share the cores, so machines
//! are told apart by the kernel's boot id.

use serde::{Deserialize, Serialize};

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
    /// True if some machine of the job has more ranks than cores. The same on all ranks.
    pub(crate) is_crowded: bool,
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
        let is_crowded = machines.iter().any(|machine| ranks_on(machine) > machine.cores);
        Self { local_ranks: ranks_on(&own), is_crowded }
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
        assert_eq!(Crowd::of(&machines, small), Crowd { local_ranks: 2, is_crowded: false });
        assert_eq!(Crowd::of(&machines, large), Crowd { local_ranks: 3, is_crowded: false });
        let more = [small, small, small, large];
        assert_eq!(Crowd::of(&more, large), Crowd { local_ranks: 1, is_crowded: true });
    }

    #[test]
    fn all_processes_of_a_machine_name_it_alike() {
        assert_eq!(Machine::this(), Machine::this());
        assert!(Machine::this().cores > 0);
    }
}
