//! The keeper: the background process that holds the delayed frames of a named lab.
//!
//! Started by `omnes lab up` or `omnes lab set` when a delay or reordering is first requested,
//! ended by `omnes lab down`; identified by its [`Process`] in the lab's state, and by its command
//! line if the state is damaged.

use super::firmware::Firmware;
use super::hold::HoldLoop;
use super::named;
use super::namespace::inside;
use super::process::{self, Process};
use crate::print;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Arguments after the command's name that make a keeper.
const VERB: [&str; 3] = ["lab", "keep", "--name"];
const READY: &str = "ready";

/// Starts the keeper of the lab `name`; returns when it is ready to hold frames.
pub fn start(name: &str) -> Result<Process> {
    let program = std::env::current_exe().context("cannot find the omnes program")?;
    let mut command = Command::new(program);
    command.args(VERB).arg(name).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: makes two system calls without pointers, between fork and exec.
    unsafe { command.pre_exec(detach) };
    let mut child = command.spawn().context("cannot start the lab's keeper")?;
    let mut line = String::new();
    let output = child.stdout.take().expect("stdout is piped");
    BufReader::new(output).read_line(&mut line)?;
    if line.trim_end() != READY {
        let output = child.wait_with_output()?;
        bail!("the lab's keeper failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Process::of(child.id() as i32).context("the lab's keeper ended immediately")
}

/// Detaches from the terminal's session, and closes inherited descriptors.
fn detach() -> std::io::Result<()> {
    // SAFETY: takes no pointers. Fails only in a process that leads a group, which a child does
    // not.
    unsafe { libc::setsid() };
    // On exec, not now: the standard library reports a failed exec through one of them.
    // SAFETY: takes no memory. Fails on kernels before 5.11, where they stay open.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    Ok(())
}

/// Holds the frames of the lab `name` until this process is ended.
pub fn serve(name: &str) -> Result<()> {
    let state = named::State::load(name)?;
    let ids = state.firmware.with_context(|| format!("lab `{name}` has no faults"))?;
    let spaces = named::open_spaces(name, state.hosts)?;
    // Never written to; closing it would end the loop.
    let (stopped, _stop) = std::io::pipe()?;
    inside(spaces.switch.as_fd(), || {
        let firmware = Firmware::open(ids)?;
        let hold = HoldLoop::create(state.hosts, state.link.mtu_bytes, firmware)?;
        print::line(READY)?;
        hold.serve(stopped.as_fd())
    })
}

/// Running keepers of the lab `name`, found by their command lines.
pub fn find(name: &str) -> Vec<Process> {
    process::find(|pid| {
        let Ok(line) = std::fs::read(format!("/proc/{pid}/cmdline")) else { return false };
        let words: Vec<_> = line.split(|byte| *byte == 0).skip(1).collect();
        let wanted = VERB.iter().map(|word| word.as_bytes()).chain([name.as_bytes(), b""]);
        words.into_iter().eq(wanted)
    })
}
