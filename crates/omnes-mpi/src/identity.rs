//! Identifies a launcher's MPI by its `--version` output.
//!
//! | launcher | output |
//! |---|---|
//! | Open MPI | `mpirun (Open MPI) 4.1.4`; by its longer names `mpirun.openmpi (OpenRTE) 4.1.4` |
//! | MPICH | `HYDRA build details:`, then `Version:  4.0.2` |
//! | Intel MPI | `Intel(R) MPI Library for Linux* OS, Version 2021.8 ...` |
//!
//! Hydra's output continues with its build configuration. MVAPICH, which is based on Hydra, names
//! itself there; names of schedulers there have no significance.

use crate::mpi::{Mpi, Version};

/// Identity of a launcher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Identity {
    /// Launcher of a supported MPI, and the version, which may be too old.
    Known(Mpi, Version),
    /// Launcher of a known MPI or scheduler that is not supported.
    Unsupported(&'static str),
    /// Unknown launcher; the first line of its output.
    Unknown(String),
}

/// Lower-case words in the first line that identify unsupported launchers, and their names.
const OTHERS: [(&str, &str); 9] = [
    ("intel(r) mpi", "Intel MPI"),
    ("mvapich", "MVAPICH"),
    ("cray", "Cray MPICH"),
    ("parastation", "ParaStation MPI"),
    ("hpe mpi", "HPE MPI"),
    ("hpe mpt", "HPE MPT"),
    ("spectrum mpi", "IBM Spectrum MPI"),
    ("slurm", "Slurm"),
    ("prrte", "PRRTE"),
];
const HYDRA: &str = "HYDRA build details";

/// Identifies a launcher by its `--version` output.
pub fn identify(answer: &str) -> Identity {
    let mut lines = answer.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let lower = first.to_lowercase();
    if let Some((_, name)) = OTHERS.iter().find(|(word, _)| lower.contains(word)) {
        return Identity::Unsupported(name);
    }
    if first.starts_with(HYDRA) && answer.to_lowercase().contains("mvapich") {
        return Identity::Unsupported("MVAPICH");
    }
    if let Some(version) = version_of_open_mpi(first) {
        return Identity::Known(Mpi::OpenMpi, version);
    }
    if let Some(version) = version_of_hydra(answer) {
        return Identity::Known(Mpi::Mpich, version);
    }
    Identity::Unknown(first.to_owned())
}

fn version_of_open_mpi(line: &str) -> Option<Version> {
    let after = ["(Open MPI)", "(OpenRTE)"].iter().find_map(|name| line.split_once(name))?.1;
    after.split_whitespace().next()?.parse().ok()
}

fn version_of_hydra(answer: &str) -> Option<Version> {
    let details = answer.split_once(HYDRA)?.1;
    let version = details.lines().find_map(|line| line.trim().strip_prefix("Version:"))?;
    version.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(major: u32, minor: u32, patch: u32) -> Version {
        Version { major, minor, patch }
    }

    #[test]
    fn open_mpi_is_identified_by_either_name() {
        let known = |version| Identity::Known(Mpi::OpenMpi, version);
        let answer = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/\n";
        assert_eq!(identify(answer), known(version(4, 1, 4)));
        assert_eq!(identify("mpirun.openmpi (OpenRTE) 4.1.4\n"), known(version(4, 1, 4)));
        assert_eq!(identify("mpirun (Open MPI) 5.0.0rc12\n"), known(version(5, 0, 0)));
        assert_eq!(identify("mpirun (Open MPI) 3.1.6\n"), known(version(3, 1, 6)));
    }

    #[test]
    fn mpich_is_identified_by_hydra() {
        let answer = "HYDRA build details:\n    \
                      Version:                                 4.0.2\n    \
                      Release Date:                            Thu Apr  7 2022\n    \
                      Bootstrap servers available:   ssh rsh fork slurm ll lsf sge manual\n";
        assert_eq!(identify(answer), Identity::Known(Mpi::Mpich, version(4, 0, 2)));
    }

    #[test]
    fn unsupported_mpis_are_named() {
        let intel = "Intel(R) MPI Library for Linux* OS, Version 2021.8 Build 20221129";
        assert_eq!(identify(intel), Identity::Unsupported("Intel MPI"));
        let mvapich = "HYDRA build details:\n  Version: 3.4.3\n  \
                       Configure options: '--prefix=/opt/mvapich2' \n";
        assert_eq!(identify(mvapich), Identity::Unsupported("MVAPICH"));
        assert_eq!(identify("slurm 22.05.8"), Identity::Unsupported("Slurm"));
        assert_eq!(identify("prterun (PRRTE) 3.0.2"), Identity::Unsupported("PRRTE"));
        let spectrum = "mpirun (IBM Spectrum MPI) 10.4.0";
        assert_eq!(identify(spectrum), Identity::Unsupported("IBM Spectrum MPI"));
    }

    #[test]
    fn first_line_of_an_unknown_launcher_is_quoted() {
        let unknown = |line: &str| Identity::Unknown(line.to_owned());
        assert_eq!(identify("\n  fancy-run 1.0\nmore"), unknown("fancy-run 1.0"));
        assert_eq!(identify(""), unknown(""));
        assert_eq!(identify("mpirun (Open MPI) new"), unknown("mpirun (Open MPI) new"));
    }
}
