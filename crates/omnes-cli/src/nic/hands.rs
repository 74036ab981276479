//! `omnes nic attach` and `detach`.
//!
//! The agent attaches, so that there is one owner; without an agent, one is started if root asks
//! for it. Programs that no agent owns and no process holds, filters of a killed process on a
//! kernel without tcx, are removed here.

use super::survey::{Occupied, occupied};
use crate::lab::CannotRun;
use crate::print;
use crate::stderr::notice;
use anyhow::{Context, Result, bail};
use omnes_nic::agent::hooks::Way;
use omnes_nic::agent::{AgentError, Client, interfaces};
use omnes_nic::attach::sweep;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Log directory of agents that are started here.
const LOGS: &str = "/run/omnes";
/// Maximum time in which an agent starts.
const START: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(10);

/// Attaches interfaces through the agent, which is started if there is none.
pub fn attach(names: &[String]) -> Result<()> {
    match Client::connect() {
        Ok(client) => {
            require_root()?;
            for name in names {
                client.attach(name)?;
                print::line(format_args!("{name}: attached"))?;
            }
            Ok(())
        }
        Err(AgentError::Absent) => {
            require_root()?;
            start_agent(names)
        }
        Err(error) => Err(error.into()),
    }
}

fn require_root() -> Result<()> {
    // SAFETY: plain system call without arguments.
    if unsafe { libc::geteuid() } == 0 {
        return Ok(());
    }
    let reason = "attaching and detaching is for root: sudo omnes nic, or omnesd at the start of \
                  the machine";
    Err(CannotRun(reason.to_owned()).into())
}

fn start_agent(names: &[String]) -> Result<()> {
    // The agent would wait for an interface that does not exist.
    if let Some(unknown) = names.iter().find(|name| interfaces::index_of(name).is_none()) {
        bail!("no such interface: {unknown}");
    }
    let program = std::env::current_exe().context("cannot locate the omnes executable")?;
    let program = program.with_file_name("omnesd");
    let (path, mut log) = open_log()?;
    let end_before = log.seek(SeekFrom::End(0)).context("cannot look into the log")?;
    let mut command = Command::new(&program);
    command.args(names.iter().flat_map(|name| ["--interface", name]));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.try_clone()?);
    command.current_dir("/");
    // SAFETY: a system call of the child alone: it detaches the child from the terminal's signals.
    // It fails for the leader of a process group, which the child is not.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        })
    };
    let mut agent =
        command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
    wait_for(&mut agent, || {
        log.seek(SeekFrom::Start(end_before))?;
        let mut said = String::new();
        log.read_to_string(&mut said)?;
        Ok(said)
    })?;
    print::line(format_args!("omnesd started, pid {}; its log is {}", agent.id(), path.display()))?;
    for name in names {
        print::line(format_args!("{name}: attached"))?;
    }
    Ok(())
}

/// Waits until the agent serves; if it ends instead, the error is its output.
fn wait_for(agent: &mut Child, mut said: impl FnMut() -> std::io::Result<String>) -> Result<()> {
    let deadline = Instant::now() + START;
    loop {
        if let Some(status) = agent.try_wait().context("cannot wait for omnesd")? {
            let said = said().unwrap_or_default();
            let said = said.trim_end().trim_start_matches("omnesd: ");
            if status.code() == Some(77) {
                return Err(CannotRun(said.to_owned()).into());
            }
            bail!("omnesd has ended ({status}): {said}");
        }
        match Client::connect() {
            Ok(_) => return Ok(()),
            Err(_) if Instant::now() < deadline => std::thread::sleep(LOOK),
            Err(error) => {
                let _ = agent.kill();
                let _ = agent.wait();
                return Err(error).context("omnesd does not serve");
            }
        }
    }
}

/// The log of this network namespace's agent, opened for appending.
fn open_log() -> Result<(PathBuf, File)> {
    let made = DirBuilder::new().mode(0o755).recursive(true).create(LOGS);
    made.with_context(|| format!("cannot make {LOGS}"))?;
    let space = std::fs::metadata("/proc/self/ns/net").context("which network namespace?")?;
    let path = PathBuf::from(LOGS).join(format!("omnesd-{}.log", space.ino()));
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o644).custom_flags(libc::O_NOFOLLOW);
    let log = options.open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok((path, log))
}

/// What to detach.
pub struct Wanted {
    /// Names of interfaces.
    pub interfaces: Vec<String>,
    /// All interfaces.
    pub is_all: bool,
    /// Even if slots are lent there.
    pub by_force: bool,
    /// Also end the agent.
    pub ends: bool,
}

/// Detaches interfaces.
pub fn detach(wanted: &Wanted) -> Result<()> {
    require_root()?;
    let agent = match Client::connect() {
        Ok(client) => Some(client),
        Err(AgentError::Absent) => None,
        // An agent that is not root's has attached nothing.
        Err(error) => {
            notice(format_args!("{error}"));
            None
        }
    };
    let names = if wanted.is_all { everything(agent.as_ref())? } else { wanted.interfaces.clone() };
    for name in &names {
        one(name, wanted.by_force, agent.as_ref())?;
    }
    if names.is_empty() {
        print::line(format_args!("attached to no interface"))?;
    }
    match agent {
        Some(agent) if wanted.ends => {
            agent.end()?;
            print::line(format_args!("omnesd: ended"))?;
        }
        None if wanted.ends => drop(print::line("omnesd: there is none")?),
        _ => {}
    }
    Ok(())
}

/// Names of all interfaces to which a program of ours is attached.
fn everything(agent: Option<&Client>) -> Result<Vec<String>> {
    let mut names: Vec<String> = match agent {
        Some(agent) => {
            let there = agent.report()?.interfaces.into_iter();
            let there = there.filter(|it| interfaces::name_of(it.index).is_some());
            there.map(|it| it.name).collect()
        }
        None => Vec::new(),
    };
    names.extend(occupied()?.into_iter().flatten().map(|it| it.name));
    names.sort();
    names.dedup();
    Ok(names)
}

fn one(name: &str, by_force: bool, agent: Option<&Client>) -> Result<()> {
    let index = interfaces::index_of(name);
    match agent {
        // The agent may still know an interface that is gone.
        Some(agent) => agent.detach(name, by_force)?,
        None if index.is_none() => bail!("no interface {name}"),
        None => {}
    }
    let left = index.map_or(0, sweep);
    match left {
        0 => print::line(format_args!("{name}: detached"))?,
        _ => print::line(format_args!(
            "{name}: detached, {left} filters of a killed process removed"
        ))?,
    };
    // Programs that live processes hold.
    let held = occupied()?.into_iter().flatten().find(|it| Some(it.index) == index);
    for pid in held.iter().flat_map(owners) {
        notice(format_args!("{name}: process {pid} has attached its own, which goes with it"));
    }
    Ok(())
}

fn owners(occupied: &Occupied) -> Vec<u32> {
    let held = occupied.programs.iter().filter(|program| program.way == Way::Tcx);
    let mut owners: Vec<u32> = held.flat_map(|program| program.owners.clone()).collect();
    owners.sort_unstable();
    owners.dedup();
    owners
}
