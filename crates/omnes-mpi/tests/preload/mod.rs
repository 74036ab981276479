//! Jobs of plain MPI programs, with and without the preload library.
//!
//! The programs (`programs/`) check their own results; the report shows which calls Omnes handled.
//! No job is timed: `timeout` ends a job that hangs.
#![allow(dead_code)] // Each test executable uses a part of it.

mod report;
mod site;

pub use report::Line;
pub use site::{Site, sites};

use omnes_mpi::{Library, Mpi, Report, Setup};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Time limit of a job, far more than it needs.
const LIMIT_SECONDS: &str = "100";
/// Exit status of `timeout` for a job that it has ended.
const ENDED: i32 = 124;
/// One job at a time: ranks of MPICH spin, so concurrent jobs take longer than sequential ones.
static TURN: Mutex<()> = Mutex::new(());

/// How to start ranks.
pub struct Job<'a> {
    site: &'a Site,
    /// Words before the launcher.
    before: Vec<OsString>,
    /// Launcher arguments for the number and placement of ranks.
    placement: Vec<String>,
    library: Option<Library>,
    variables: Vec<(OsString, OsString)>,
}

/// Result of a job.
#[derive(Debug)]
pub struct Outcome {
    /// Status of the launcher.
    pub status: ExitStatus,
    /// Standard output of all ranks.
    pub output: String,
    /// Standard error of all ranks and the launcher.
    pub errors: String,
}

impl<'a> Job<'a> {
    /// `ranks` ranks on this machine, without the library.
    pub fn plain(site: &'a Site, ranks: u32) -> Self {
        let ranks = ranks.to_string();
        let placement = crate::mpis::ranks(site.launcher.mpi, &ranks);
        let placement = placement.into_iter().map(str::to_owned).collect();
        Self { site, before: Vec::new(), placement, library: None, variables: Vec::new() }
    }

    /// `ranks` ranks on this machine, with the library.
    pub fn preloaded(site: &'a Site, ranks: u32) -> Self {
        Self::plain(site, ranks).with_library(&site.library)
    }

    /// Like [`Self::preloaded`], but one machine counts as several, the ranks communicate through
    /// sockets, and calls are taken on communicators with few calls, too.
    pub fn spread(site: &'a Site, ranks: u32) -> Self {
        let job = Self::plain(site, ranks).with_library(&site.eager);
        job.with("OMNES_MPI_ONE_NODE", "on").with("OMNES_SHM", "off")
    }

    /// Preloads this library.
    pub fn with_library(mut self, library: &Library) -> Self {
        self.library = Some(library.clone());
        self
    }

    /// Sets a variable in the environment of all ranks.
    pub fn with(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Starts the launcher with another command, and with this placement of ranks.
    pub fn placed(mut self, before: &[&OsStr], placement: Vec<String>) -> Self {
        self.before = before.iter().map(|&word| word.to_owned()).collect();
        self.placement = placement;
        self
    }

    /// Runs the job to completion; panics if it hangs.
    pub fn run(&self, program: &Path, arguments: &str) -> Outcome {
        let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut command = self.command();
        command.arg(program).args(arguments.split_whitespace());
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let outcome = Outcome {
            status: output.status,
            output: text(&output.stdout),
            errors: text(&output.stderr),
        };
        assert_ne!(outcome.status.code(), Some(ENDED), "{command:?} hangs: {outcome:?}");
        outcome
    }

    /// Like [`Self::run`], but panics unless the job succeeds.
    pub fn succeed(&self, program: &Path, arguments: &str) -> Outcome {
        let outcome = self.run(program, arguments);
        assert!(outcome.status.success(), "{} {arguments}: {outcome:?}", program.display());
        outcome
    }

    fn command(&self) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", LIMIT_SECONDS]).args(&self.before);
        command.arg(&self.site.launcher.name);
        command.env("LD_LIBRARY_PATH", self.site.library_path());
        if let Some(library) = &self.library {
            let setup = Setup::new(library, self.variables.clone()).with_report(Report::On);
            command.args(setup.words(self.site.launcher.mpi));
        }
        command.args(&self.placement).stdin(Stdio::null());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        if self.site.launcher.mpi == Mpi::OpenMpi {
            // By default, it refuses to run as root. There are more ranks than cores.
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            command.env("OMPI_MCA_mpi_yield_when_idle", "1");
            command.env("OMPI_MCA_hwloc_base_binding_policy", "none");
        }
        command
    }
}

impl Outcome {
    /// The library's report of all communicators.
    pub fn report(&self) -> Vec<Line> {
        Line::read_all(&self.errors)
    }

    /// The library's report of `MPI_COMM_WORLD`.
    pub fn world(&self) -> Line {
        let mut lines = self.report().into_iter();
        let world = lines.find(|line| line.name == "MPI_COMM_WORLD");
        world.unwrap_or_else(|| panic!("no report: {self:?}"))
    }

    /// The library's report of communicators that were not worth connecting: their number and
    /// calls.
    pub fn small(&self) -> Option<&str> {
        let mut lines = self.errors.lines().filter_map(|line| line.strip_prefix("omnes-mpi: "));
        lines.find(|line| Line::is_of_small(line))
    }

    /// The output line that begins with `beginning`.
    pub fn line(&self, beginning: &str) -> &str {
        let mut lines = self.output.lines();
        let line = lines.find(|line| line.starts_with(beginning));
        line.unwrap_or_else(|| panic!("no line {beginning}: {self:?}"))
    }
}

/// Waits until nothing is left, which happens immediately unless something has failed.
pub fn assert_gone(what: &str, left: impl Fn() -> Vec<String>) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !left().is_empty() {
        assert!(Instant::now() < deadline, "{what}: left behind: {:?}", left());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Command lines of the processes of this machine that contain `word`.
pub fn processes_with(word: &str) -> Vec<String> {
    let folders = std::fs::read_dir("/proc").unwrap().flatten();
    // Processes that exit in the meantime cannot be read; zombies have no command line.
    let lines = folders.filter_map(|folder| std::fs::read(folder.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(word)).collect()
}
