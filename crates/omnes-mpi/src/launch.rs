//! Command line of a launcher whose ranks load the preload library.
//!
//! | launcher | words inserted before its arguments |
//! |---|---|
//! | Open MPI | `-x LD_PRELOAD=LIBRARY`, and `-x NAME` for each `OMNES_*` that is set |
//! | Hydra | `-genv LD_PRELOAD LIBRARY`; it passes the environment by itself |
//!
//! Open MPI's `-x` applies to one program of several (`mpirun -n 1 a : -n 1 b`), so it is repeated
//! after each `:`. Open MPI itself takes every `:` for the end of a program, too. Open MPI rejects
//! `-x` if variables are set by a list for all programs ([`env_list`](crate::env_list)); then ours
//! are added to this list.
//!
//! The launcher itself is not preloaded, nor are its daemons.

use crate::env_list::EnvList;
use crate::error::Error;
use crate::launcher::Launcher;
use crate::library::Library;
use crate::mpi::Mpi;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

const PRELOAD: &str = "LD_PRELOAD";
const REPORT: &str = "OMNES_MPI_REPORT";
/// Argument that separates two programs.
const NEXT_PROGRAM: &str = ":";

/// Whether ranks report which calls were taken, as requested by the launcher's caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// As set in the environment.
    AsSet,
    /// Enabled, regardless of the environment.
    On,
}

/// Environment to pass to all ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setup {
    /// Value of `LD_PRELOAD`: the library, after the previous value.
    preload: OsString,
    /// Names of the `OMNES_*` variables that are set, sorted.
    variables: Vec<OsString>,
    report: Report,
    /// Open MPI's list of variables, from the environment.
    env_list: EnvList,
}

impl Setup {
    /// Creates a setup from this process's environment.
    pub fn from_env(library: &Library) -> Self {
        Self::new(library, std::env::vars_os())
    }

    /// Creates a setup from an environment.
    pub fn new(
        library: &Library,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        let mut preload = OsString::new();
        let mut variables = Vec::new();
        let mut env_list = EnvList::default();
        for (name, value) in environment {
            env_list.note(&name, &value);
            if name == PRELOAD {
                preload = value;
            } else if name.as_bytes().starts_with(b"OMNES_") {
                variables.push(name);
            }
        }
        variables.sort();
        Self { preload: preloads(&preload, library), variables, report: Report::AsSet, env_list }
    }

    /// Sets whether ranks report.
    pub fn with_report(mut self, report: Report) -> Self {
        self.report = report;
        self
    }

    /// Arguments that pass this setup to a launcher of `mpi`, unless variables are set by a list.
    pub fn words(&self, mpi: Mpi) -> Vec<OsString> {
        match mpi {
            Mpi::OpenMpi => {
                self.assignments().into_iter().flat_map(|it| ["-x".into(), it]).collect()
            }
            Mpi::Mpich => {
                let values = self.values().into_iter();
                values
                    .flat_map(|(name, value)| ["-genv".into(), name.into(), value.into()])
                    .collect()
            }
        }
    }

    /// Variables with values set here.
    fn values(&self) -> Vec<(&str, &OsStr)> {
        let mut set = vec![(PRELOAD, self.preload.as_os_str())];
        if self.report == Report::On {
            set.push((REPORT, OsStr::new("on")));
        }
        set
    }

    /// `NAME=VALUE` of these variables, then the names of those passed unchanged.
    fn assignments(&self) -> Vec<OsString> {
        let values = self.values().into_iter().map(|(name, value)| assignment(name, value));
        let is_set_above = |name: &OsStr| self.report == Report::On && name == REPORT;
        let others = self.variables.iter().filter(|name| !is_set_above(name)).cloned();
        values.chain(others).collect()
    }
}

fn assignment(name: &str, value: &OsStr) -> OsString {
    let mut text = OsString::from(name);
    text.push("=");
    text.push(value);
    text
}

/// Value of `LD_PRELOAD`: `set`, with `library` added.
///
/// The library comes last, since a sanitizer's library must be the first. Preload libraries of ours
/// that are already in `set` are removed: one for another MPI must not be loaded.
fn preloads(set: &OsStr, library: &Library) -> OsString {
    let parts = set.as_bytes().split(|byte| matches!(byte, b' ' | b':'));
    let others = parts.filter(|part| !part.is_empty() && !Library::is_name_of_one(part));
    let all: Vec<&[u8]> = others.chain([library.path.as_os_str().as_bytes()]).collect();
    OsString::from_vec(all.join(&b':'))
}

/// A launcher with all its arguments, ready to be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launch {
    launcher: PathBuf,
    /// The launcher as it was named, then its arguments.
    words: Vec<OsString>,
}

impl Launch {
    /// Inserts the words of `setup` before, and for Open MPI also between, the launcher's
    /// `arguments`.
    ///
    /// Errors if `arguments` set `LD_PRELOAD` themselves.
    pub fn new(
        launcher: &Launcher,
        setup: &Setup,
        arguments: Vec<OsString>,
    ) -> Result<Self, Error> {
        if let Some(option) = preload_option(launcher.mpi, &arguments) {
            return Err(Error::PreloadTwice(option));
        }
        let mut words = vec![launcher.name.clone()];
        if launcher.mpi == Mpi::OpenMpi {
            let end = arguments.iter().position(|argument| argument == NEXT_PROGRAM);
            let (first, others) = arguments.split_at(end.unwrap_or(arguments.len()));
            if let Some(listed) = setup.env_list.with(&setup.assignments(), first)? {
                words.extend(listed.into_iter().chain(others.iter().cloned()));
                return Ok(Self { launcher: launcher.path.clone(), words });
            }
        }
        let added = setup.words(launcher.mpi);
        words.extend(added.iter().cloned());
        for argument in arguments {
            let is_next = launcher.mpi == Mpi::OpenMpi && argument == NEXT_PROGRAM;
            words.push(argument);
            if is_next {
                words.extend(added.iter().cloned());
            }
        }
        Ok(Self { launcher: launcher.path.clone(), words })
    }

    /// The launcher and its arguments.
    pub fn words(&self) -> &[OsString] {
        &self.words
    }

    /// Replaces this process with the launcher, and does not return on success. The launcher gets
    /// this process's terminal and signals, and its status becomes this process's.
    pub fn replace_process(&self) -> Result<std::convert::Infallible, Error> {
        let source = self.command().exec();
        Err(Error::LauncherFails { launcher: self.launcher.clone(), source })
    }

    /// The launcher as a command, to be run as a child process.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.launcher);
        command.arg0(&self.words[0]).args(&self.words[1..]);
        command
    }
}

/// Returns the option with which `arguments` set `LD_PRELOAD`, if they do.
fn preload_option(mpi: Mpi, arguments: &[OsString]) -> Option<&'static str> {
    let options: &[&'static str] = match mpi {
        Mpi::OpenMpi => &["-x"],
        Mpi::Mpich => &["-genv", "-env"],
    };
    arguments.windows(2).find_map(|pair| {
        let value = pair[1].as_bytes();
        let is_preload = value == PRELOAD.as_bytes() || value.starts_with(b"LD_PRELOAD=");
        options.iter().copied().find(|option| pair[0] == *option && is_preload)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::mpi::Version;

    fn library(mpi: Mpi) -> Library {
        Library { mpi, path: format!("/opt/{}", mpi.library_name()).into() }
    }

    fn setup(mpi: Mpi, environment: &[(&str, &str)]) -> Setup {
        let pairs = environment.iter().map(|(name, value)| (name.into(), value.into()));
        Setup::new(&library(mpi), pairs)
    }

    fn launch(setup: &Setup, mpi: Mpi, arguments: &str) -> Result<String, Error> {
        let version = Version { major: 9, minor: 0, patch: 0 };
        let (name, path) = ("mpirun".into(), "/bin/mpirun".into());
        let launcher = Launcher { name, path, mpi, version };
        let arguments = arguments.split(' ').map(OsString::from).collect();
        let words = Launch::new(&launcher, setup, arguments)?.words;
        Ok(words.join(OsStr::new(" ")).into_string().unwrap())
    }

    #[test]
    fn open_mpi_gets_the_library_and_every_setting() {
        let environment = [("OMNES_SHM", "off"), ("HOME", "/"), ("OMNES_MPI", "bcast")];
        let line = launch(&setup(Mpi::OpenMpi, &environment), Mpi::OpenMpi, "-n 2 ./a -x").unwrap();
        let added = "-x LD_PRELOAD=/opt/libomnes-mpi-openmpi.so -x OMNES_MPI -x OMNES_SHM";
        assert_eq!(line, format!("mpirun {added} -n 2 ./a -x"));
    }

    #[test]
    fn hydra_gets_only_the_library() {
        let environment = [("OMNES_SHM", "off")];
        let line = launch(&setup(Mpi::Mpich, &environment), Mpi::Mpich, "-n 1 a : -n 1 b").unwrap();
        let added = "-genv LD_PRELOAD /opt/libomnes-mpi-mpich.so";
        assert_eq!(line, format!("mpirun {added} -n 1 a : -n 1 b"));
    }

    #[test]
    fn open_mpi_passes_the_library_to_each_of_several_programs() {
        let line = launch(&setup(Mpi::OpenMpi, &[]), Mpi::OpenMpi, "-n 1 a : -n 1 b").unwrap();
        let added = "-x LD_PRELOAD=/opt/libomnes-mpi-openmpi.so";
        assert_eq!(line, format!("mpirun {added} -n 1 a : {added} -n 1 b"));
    }

    #[test]
    fn open_mpi_list_variables_are_merged_once_for_all_programs() {
        let environment = [("OMNES_SHM", "off"), ("OMPI_MCA_mca_base_env_list", "A;B")];
        let setup = setup(Mpi::OpenMpi, &environment).with_report(Report::On);
        let line = launch(&setup, Mpi::OpenMpi, "-n 1 a : -n 1 b").unwrap();
        let library = "LD_PRELOAD=/opt/libomnes-mpi-openmpi.so";
        let list = format!("--mca mca_base_env_list {library};OMNES_MPI_REPORT=on;OMNES_SHM;A;B");
        assert_eq!(line, format!("mpirun {list} -n 1 a : -n 1 b"));
        let line = launch(&setup, Mpi::Mpich, "a").unwrap();
        assert!(line.starts_with("mpirun -genv LD_PRELOAD "), "{line}");
    }

    #[test]
    fn variable_lists_after_the_first_program_are_ignored() {
        let arguments = "-n 1 a : --mca mca_base_env_list A -n 1 b";
        let line = launch(&setup(Mpi::OpenMpi, &[]), Mpi::OpenMpi, arguments).unwrap();
        assert!(line.starts_with("mpirun -x LD_PRELOAD=") && line.contains(": -x"), "{line}");
    }

    #[test]
    fn existing_preloads_are_kept_and_precede_the_library() {
        let preload = |set: &str| {
            let setup = setup(Mpi::Mpich, &[("LD_PRELOAD", set)]);
            setup.preload.into_string().unwrap()
        };
        let own = "/opt/libomnes-mpi-mpich.so";
        assert_eq!(preload("libasan.so.8 b.so"), format!("libasan.so.8:b.so:{own}"));
        assert_eq!(preload("/a.so:"), format!("/a.so:{own}"));
        assert_eq!(preload(own), own);
        assert_eq!(preload("/old/libomnes-mpi-openmpi.so:/a.so"), format!("/a.so:{own}"));
    }

    #[test]
    fn requested_report_overrides_the_environment() {
        let environment = [("OMNES_MPI_REPORT", "off"), ("OMNES_NIC", "user")];
        let set = |mpi| setup(mpi, &environment).with_report(Report::On);
        let line = launch(&set(Mpi::OpenMpi), Mpi::OpenMpi, "a").unwrap();
        assert!(line.ends_with(".so -x OMNES_MPI_REPORT=on -x OMNES_NIC a"), "{line}");
        let line = launch(&set(Mpi::Mpich), Mpi::Mpich, "a").unwrap();
        assert!(line.ends_with(".so -genv OMNES_MPI_REPORT on a"), "{line}");
    }

    #[test]
    fn arguments_that_would_replace_the_library_are_rejected() {
        for (mpi, arguments, option) in [
            (Mpi::OpenMpi, "-x LD_PRELOAD=/a.so ./a", "-x"),
            (Mpi::OpenMpi, "-n 1 a : -x LD_PRELOAD b", "-x"),
            (Mpi::Mpich, "-env LD_PRELOAD /a.so ./a", "-env"),
            (Mpi::Mpich, "-genv LD_PRELOAD /a.so ./a", "-genv"),
        ] {
            let error = launch(&setup(mpi, &[]), mpi, arguments).unwrap_err();
            assert!(matches!(error, Error::PreloadTwice(found) if found == option), "{error}");
        }
        assert!(launch(&setup(Mpi::OpenMpi, &[]), Mpi::OpenMpi, "-x LD_PRELOADED ./a").is_ok());
        assert!(launch(&setup(Mpi::Mpich, &[]), Mpi::Mpich, "env LD_PRELOAD=/a.so ./a").is_ok());
    }
}
