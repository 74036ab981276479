//! Programs that start ranks, and the variables in which each passes a rank its number.

/// The program that has started this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Launcher {
    /// Name of the launcher.
    pub name: &'static str,
    /// The variable with the rank.
    pub rank: &'static str,
    /// The variable with the number of ranks.
    pub size: &'static str,
    /// The variable with the number of ranks on this machine, which may be unset.
    pub local_size: &'static str,
}

/// Only torchrun sets this; its other variables have such general names that anything could have
/// set them.
const TORCHRUN_MARK: &str = "TORCHELASTIC_RUN_ID";

impl Launcher {
    /// All known launchers, each before those that may have started it.
    const ALL: [Self; 5] = [
        Self {
            name: "omnes run",
            rank: "OMNES_RANK",
            size: "OMNES_SIZE",
            local_size: "OMNES_LOCAL_SIZE",
        },
        Self {
            name: "Open MPI",
            rank: "OMPI_COMM_WORLD_RANK",
            size: "OMPI_COMM_WORLD_SIZE",
            local_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
        },
        Self {
            name: "PMI (MPICH, Intel MPI)",
            rank: "PMI_RANK",
            size: "PMI_SIZE",
            local_size: "MPI_LOCALNRANKS",
        },
        Self {
            name: "Slurm",
            rank: "SLURM_PROCID",
            size: "SLURM_NTASKS",
            local_size: "SLURM_NTASKS_PER_NODE",
        },
        Self { name: "torchrun", rank: "RANK", size: "WORLD_SIZE", local_size: "LOCAL_WORLD_SIZE" },
    ];

    /// All known launchers, the one nearest to a process with these variables first: `omnes run`,
    /// then torchrun if it is certainly present, because the others only start it, then those that
    /// set their variables for each process, and last the names that anything could have set.
    pub fn nearest_first(variable: impl Fn(&str) -> Option<String>) -> [Self; 5] {
        let mut all = Self::ALL;
        if variable(TORCHRUN_MARK).is_some() {
            all[1..].rotate_right(1);
        }
        all
    }
}
