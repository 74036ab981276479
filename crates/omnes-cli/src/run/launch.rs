//! The life of a job: start every rank, watch them, end all of them.
//!
//! Runs on the main thread and starts the ranks there (see `process`). Three further threads sleep:
//! one for output, started when all ranks are, one for notes, and one for signals. While ranks
//! live, the main thread writes nothing: a reader that does not read our output does not keep us
//! from ending them. A rank that cannot be started ends those that were.

use super::job::{Job, KEY_NAME};
use super::joining;
use super::notes::Notes;
use super::output::{Pump, Streams, Wait, poll_readable};
use super::placement::{Host, Place, Site};
use super::process::{Process, signal_name, tie_to_launcher};
use super::published::{self, Published};
use super::start::Waiting;
use super::supervise::{Note, Order, Supervisor};
use super::warden::Warden;
use super::{signals, ssh};
use crate::units::short_time;
use anyhow::{Context, Result};
use libc::{SIGCONT, SIGINT, SIGTSTP, SIGTTIN, SIGTTOU};
use std::fs::File;
use std::io::{ErrorKind, IsTerminal};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Exit statuses that shells use for commands that cannot be started.
const NOT_EXECUTABLE_STATUS: u8 = 126;
const NOT_FOUND_STATUS: u8 = 127;
/// Descriptors per rank, two for output and one for control, and those of the launcher itself.
const DESCRIPTORS_PER_RANK: u64 = 3;
const OWN_DESCRIPTORS: u64 = 64;
/// Interval of the checks whether waiting ranks may be started.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Destination of the ranks' output.
pub enum Output {
    /// Whole lines prefixed with the rank.
    Prefixed,
    /// The launcher's own standard output and error.
    Raw,
    /// `rank.N.out` and `rank.N.err` in this directory.
    Files(PathBuf),
}

/// Whether the launcher reports failures and signals.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Voice {
    /// No reports.
    Quiet,
    /// Reports on standard error.
    Stderr,
}

/// Parameters of running a job.
pub struct Options {
    /// Rank that gets the launcher's standard input.
    pub stdin: Option<usize>,
    /// Destination of the output.
    pub output: Output,
    /// Grace period for ranks to end by themselves, and between TERM and KILL.
    pub grace: Duration,
    /// Maximum run time.
    pub timeout: Option<Duration>,
    /// Whether notes are written to standard error.
    pub voice: Voice,
}

/// How a job ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The launcher's exit status.
    pub status: u8,
    /// Signal to the launcher that ended the job, for [`signals::end_by`].
    pub signal: Option<i32>,
}

/// Runs the job to its end.
///
/// Returns when all output is written; after a signal that ended the job, it waits at most the
/// grace period for a reader, and output that is not read by then is lost.
///
/// Errors: the environment does not allow it (threads, pipes, output directory, lab), or output of
/// ranks is lost because ours cannot be written. A command that cannot be started is reported on
/// standard error and returns 126 or 127.
pub fn launch(job: &Job, site: &Site, places: &[Place], options: &Options) -> Result<Outcome> {
    if let Output::Files(directory) = &options.output {
        prepare_directory(directory, job.size)
            .with_context(|| format!("--output-dir {}", directory.display()))?;
    }
    let heard = signals::listen()?;
    // As far as the system allows; too few descriptors are reported when a rank cannot be started.
    omnes::descriptors::allow(DESCRIPTORS_PER_RANK * places.len() as u64 + OWN_DESCRIPTORS);
    let warden = Warden::start()?;
    let mut watched = Watched {
        ranks: Vec::with_capacity(places.len()),
        waiting: Waiting::new(places),
        streams: Streams::new(job.size),
        pump: None,
        notes: Notes::start()?,
        is_signalled: false,
        warden,
        job,
        site,
        options,
        by_user: Published::default(),
    };
    let status = watched.supervise(&heard, places.len());
    let written = watched.end();
    status.and_then(|status| written.map(|()| status))
}

/// Creates the directory for the ranks' output, and removes files that a job with more ranks has
/// left there.
fn prepare_directory(directory: &Path, ranks: usize) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    for entry in directory.read_dir()? {
        let name = entry?.file_name();
        let rank = name.to_str().and_then(|name| {
            let rest = name.strip_prefix("rank.")?;
            rest.strip_suffix(".out").or_else(|| rest.strip_suffix(".err"))?.parse().ok()
        });
        if rank.is_some_and(|rank: usize| rank >= ranks) {
            std::fs::remove_file(directory.join(name))?;
        }
    }
    Ok(())
}

/// Local command of one rank.
fn prepare(job: &Job, site: &Site, place: &Place, options: &Options) -> Result<Command> {
    let mut command = match (&place.host, site) {
        (Host::Ssh(name), Site::Ssh { ssh, .. }) => {
            ssh::command(ssh, name, job, place, &ssh::working_directory()?)
        }
        (host, site) => {
            let mut command = local_command(job, place, options);
            if let (Host::Lab(index), Site::Lab(site)) = (host, site) {
                let lab = site.lab.as_ref().expect("Site::build made the lab");
                lab.enter_in(*index, &mut command)?;
            }
            command
        }
    };
    match &options.output {
        Output::Prefixed => command.stdout(Stdio::piped()).stderr(Stdio::piped()),
        Output::Raw => command.stdout(Stdio::inherit()).stderr(Stdio::inherit()),
        Output::Files(directory) => {
            let create = |ending: &str| {
                let path = directory.join(format!("rank.{}.{ending}", place.rank));
                File::create(&path).with_context(|| format!("cannot write {}", path.display()))
            };
            command.stdout(create("out")?).stderr(create("err")?)
        }
    };
    Ok(command)
}

fn local_command(job: &Job, place: &Place, options: &Options) -> Command {
    let (program, arguments) = job.command.split_first().expect("clap requires CMD");
    let mut command = Command::new(program);
    command.args(arguments).envs(job.environment(place)).env(KEY_NAME, job.key());
    command.stdin(if options.stdin != Some(place.rank) {
        Stdio::null()
    } else if std::io::stdin().is_terminal() {
        // A background process group would be stopped when it reads from the terminal.
        Stdio::piped()
    } else {
        Stdio::inherit()
    });
    command
}

/// Connects the pipes of a process that has just been started.
fn connect(process: &mut Process, job: &Job, place: &Place, streams: &mut Streams) -> Result<()> {
    if let (Some(stdout), Some(stderr)) = process.take_outputs() {
        streams.push(place.rank, OwnedFd::from(stdout), OwnedFd::from(stderr));
    }
    if matches!(place.host, Host::Ssh(_)) {
        process.open_control(&ssh::key_line(job));
    } else if let Some(stdin) = process.take_stdin() {
        feed_from_terminal(stdin)?;
    }
    Ok(())
}

/// Copies the terminal's lines to a rank, until either ends; the thread ends with the launcher.
fn feed_from_terminal(mut stdin: ChildStdin) -> Result<()> {
    let copy = move || {
        let mut terminal = std::io::stdin().lock();
        loop {
            match std::io::copy(&mut terminal, &mut stdin) {
                // Some parents pass a nonblocking terminal.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    poll_readable(&[terminal.as_raw_fd()], Wait::Forever);
                }
                // A rank that has ended no longer reads; that is not an error of the launcher.
                _ => return,
            }
        }
    };
    std::thread::Builder::new().name("stdin".to_owned()).spawn(copy)?;
    Ok(())
}

/// Reports why a command cannot be started; started ranks end when the caller drops them.
fn refuse(program: &str, place: &Place, error: &std::io::Error, notes: &Notes) -> Result<u8> {
    let way_out = match (&place.host, error.kind()) {
        (Host::Ssh(_), ErrorKind::NotFound) => "not found; install ssh or name another with --ssh",
        (_, ErrorKind::NotFound) => "not found; give its path, or put it into a PATH directory",
        (_, ErrorKind::PermissionDenied) => "not executable; see its mode with `ls -l`",
        (_, ErrorKind::ExecutableFileBusy) => "somebody is writing it; wait until it is whole",
        _ if error.raw_os_error() == Some(libc::ELOOP) => "its symbolic links lead in a circle",
        (_, ErrorKind::NotADirectory) => "what precedes its last `/` is not a directory",
        _ => {
            let rank = place.rank;
            let way_out = match error.raw_os_error() {
                Some(libc::EMFILE) => "; allow more open files: ulimit -n",
                Some(libc::EAGAIN) => "; allow more processes: ulimit -u",
                _ => "",
            };
            return Err(anyhow::anyhow!(
                "cannot start '{program}' as rank {rank}: {error}{way_out}"
            ));
        }
    };
    notes.add(format!("cannot start '{program}': {way_out}"));
    let is_missing = error.kind() == ErrorKind::NotFound;
    Ok(if is_missing { NOT_FOUND_STATUS } else { NOT_EXECUTABLE_STATUS })
}

/// A running job.
struct Watched<'a> {
    /// In rank order.
    ranks: Vec<Process>,
    waiting: Waiting<'a>,
    streams: Streams,
    /// Set once no rank waits to be started.
    pump: Option<Pump>,
    notes: Notes,
    /// True if a signal to the launcher has been forwarded to the ranks.
    is_signalled: bool,
    /// Dropped after the ranks: only then is the job over.
    warden: Warden,
    job: &'a Job,
    site: &'a Site,
    options: &'a Options,
    /// Files of ranks that were live when the user, or the time limit, ended the job.
    by_user: Published,
}

impl Watched<'_> {
    /// Starts the ranks, waits until every one has ended, and applies the supervisor's orders
    /// meanwhile; returns the outcome, also if a rank could not be started, which has been
    /// reported.
    fn supervise(&mut self, heard: &Receiver<i32>, size: usize) -> Result<Outcome> {
        let Options { grace, timeout, .. } = *self.options;
        let mut supervisor = Supervisor::new(Instant::now(), size, grace, timeout);
        loop {
            if let Some(status) = self.start_next()? {
                return Ok(Outcome { status, signal: None });
            }
            self.look_for_ends(&mut supervisor);
            self.look_for_stops();
            if self.waiting.is_empty() && self.pump.is_none() {
                self.pump = Some(self.streams.start().context("cannot start to copy output")?);
            }
            if supervisor.is_over() {
                let (status, signal) = (supervisor.status(), supervisor.ended_by());
                return Ok(Outcome { status, signal });
            }
            let look = (!self.waiting.is_empty()).then(|| Instant::now() + LOOK_INTERVAL);
            match next_signal(heard, supervisor.poll_timeout().into_iter().chain(look).min()) {
                Some(SIGTSTP) => {
                    self.signal(SIGTSTP);
                    signals::stop_self();
                    // Whether the launcher was stopped and continued, or was not stopped at all.
                    self.signal(SIGCONT);
                }
                Some(signal) if signals::PASSED_ON.contains(&signal) => self.signal(signal),
                Some(signal) if signals::FORWARDED.contains(&signal) => {
                    supervisor.handle_unstarted(self.waiting.give_up());
                    self.apply(Some(supervisor.handle_signal(Instant::now(), signal)));
                }
                Some(_) => {} // CHLD: the ends are looked at above
                None => {
                    let order = supervisor.handle_timeout(Instant::now());
                    if order.is_some_and(|order| order.note == Some(Note::TimedOut)) {
                        supervisor.handle_unstarted(self.waiting.give_up());
                    }
                    self.apply(order);
                }
            }
        }
    }

    /// Starts the ranks that may start now; returns a status if one cannot be started.
    fn start_next(&mut self) -> Result<Option<u8>> {
        for place in self.waiting.take_next(&self.ranks) {
            let mut command = prepare(self.job, self.site, place, self.options)?;
            tie_to_launcher(&mut command);
            self.warden.watch(&mut command);
            let program = command.get_program().to_owned();
            let mut process = match Process::start(place.rank, place.host.to_string(), command) {
                Ok(process) => process,
                Err(error) => {
                    let program = program.to_string_lossy();
                    return refuse(&program, place, &error, &self.notes).map(Some);
                }
            };
            let connected = connect(&mut process, self.job, place, &mut self.streams);
            self.ranks.push(process);
            connected?;
        }
        self.ranks.sort_by_key(|process| process.rank);
        Ok(None)
    }

    fn look_for_ends(&mut self, supervisor: &mut Supervisor) {
        for index in 0..self.ranks.len() {
            let Some(end) = self.ranks[index].poll_end() else { continue };
            if end.is_failure() {
                supervisor.handle_unstarted(self.waiting.give_up());
            }
            let rank = self.ranks[index].rank;
            self.apply(supervisor.handle_end(Instant::now(), rank, end));
        }
    }

    /// Reports ranks that the terminal has stopped: nobody else would, and the job waits for them.
    fn look_for_stops(&self) {
        for process in &self.ranks {
            let Some(signal @ (SIGTTIN | SIGTTOU)) = process.poll_stop() else { continue };
            if self.options.voice == Voice::Quiet {
                continue;
            }
            let way_out = if process.is_remote() {
                "ssh must ask for nothing: see ssh-agent(1)"
            } else {
                "--stdin gives it to one of them"
            };
            let (rank, host, name) = (process.rank, &process.host, signal_name(signal));
            self.notes.add(format!(
                "rank {rank} on {host} was stopped by {name}: ranks cannot use the terminal; \
                 {way_out}"
            ));
        }
    }

    fn signal(&mut self, signal: i32) {
        self.ranks.iter_mut().for_each(|process| process.signal(signal));
    }

    fn apply(&mut self, order: Option<Order>) {
        let Some(Order { signal, note }) = order else { return };
        if let (Some(Note::Forwarded(_) | Note::TimedOut), Some(place)) =
            (note, published::place(self.job))
        {
            self.by_user.add(Published::by(&self.ranks, &place));
        }
        self.is_signalled |= matches!(note, Some(Note::Forwarded(_)));
        if let Some(signal) = signal {
            self.signal(signal);
            // A stopped rank would not handle the signal before it is killed.
            self.signal(SIGCONT);
        }
        if note == Some(Note::Ended) && !joining::may_last(&self.ranks, self.job) {
            return;
        }
        if let (Some(note), Voice::Stderr) = (note, self.options.voice) {
            self.notes.add(self.describe(note));
        }
    }

    fn describe(&self, note: Note) -> String {
        let grace = short_time(self.options.grace);
        match note {
            Note::Failed { rank, end, others } => {
                let failed = self.ranks.iter().find(|process| process.rank == rank);
                let host = failed.map_or("", |process| &process.host);
                let rest = match others {
                    0 => String::new(),
                    others => format!("; {} to end", given(others, &grace)),
                };
                format!("rank {rank} on {host} {end}{rest}")
            }
            Note::Ended => self.describe_ended(),
            Note::Forwarded(signal) => {
                let live = self.ranks.iter().filter(|process| !process.is_ended()).count();
                format!(
                    "{} forwarded; {} to end ({} SIGINT kills)",
                    signal_name(signal),
                    given(live, &grace),
                    if signal == SIGINT { "a second" } else { "a" }
                )
            }
            Note::TimedOut => {
                let limit = short_time(self.options.timeout.unwrap_or_default());
                format!("the job has exceeded {limit} (--timeout); ranks got SIGTERM")
            }
            Note::Terminated(live) => format!("{live} still running after {grace}: SIGTERM"),
            Note::Killed(live) => format!("{live} still running: SIGKILL"),
        }
    }

    fn describe_ended(&self) -> String {
        let ended = self.ranks.iter().filter(|process| process.is_ended());
        let ended: Vec<usize> = ended.map(|process| process.rank).collect();
        format!(
            "{} ended with status 0; if the others wait for {}, they do until OMNES_JOIN_TIMEOUT \
             (default 60s)",
            joining::named(&ended),
            if ended.len() == 1 { "it" } else { "them" }
        )
    }

    /// Ends the processes that ranks left behind, then writes the last of their output, for which a
    /// slow reader may make us wait: by then their group numbers may have been reused, so the
    /// warden is ended first.
    fn end(self) -> Result<()> {
        drop(self.ranks);
        drop(self.warden);
        if let Some(place) = published::place(self.job) {
            self.by_user.remove(&place);
        }
        // Our output may be blocked by a slow reader. A signal that arrives now ends the wait
        // immediately; one that has arrived before bounds it.
        signals::release();
        let until = Instant::now().checked_add(self.options.grace).filter(|_| self.is_signalled);
        let written = self.pump.map_or(Ok(()), |pump| pump.finish(until));
        self.notes.finish(until);
        Ok(written?)
    }
}

/// Returns the next signal, or `None` at `deadline`.
fn next_signal(heard: &Receiver<i32>, deadline: Option<Instant>) -> Option<i32> {
    let result = match deadline {
        None => heard.recv().map_err(RecvTimeoutError::from),
        Some(at) => heard.recv_timeout(at.saturating_duration_since(Instant::now())),
    };
    match result {
        Ok(signal) => Some(signal),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => unreachable!("the signal thread never ends"),
    }
}

fn given(live: usize, grace: &str) -> String {
    match live {
        1 => format!("1 rank has {grace}"),
        live => format!("{live} ranks have {grace}"),
    }
}
