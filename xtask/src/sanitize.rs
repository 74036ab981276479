//! Checks that data shared by threads and processes are accessed without data races and correctly
//! under the memory model: ThreadSanitizer on the threaded tests, Miri on the ordering of accesses
//! to shared memory.
//!
//! Miri runs the tests of rings, wake-ups, sequence words and sleep with many seeds: each has other
//! switches between threads, and stale values where the orderings allow them, as on weakly ordered
//! processors. Neither tool sees the kernel's writes.

use crate::workspace::Workspace;
use crate::{report, succeeds};
use anyhow::{Context, bail};
use clap::{Args as Arguments, ValueEnum};
use std::process::Command;

/// What to run.
#[derive(Arguments)]
pub struct Args {
    /// Both if omitted
    tool: Option<Tool>,
    /// Number of seeds that Miri runs the tests with
    #[arg(long, default_value_t = 64)]
    seeds: u32,
}

#[derive(Clone, Copy, ValueEnum)]
enum Tool {
    /// ThreadSanitizer
    Thread,
    /// Miri
    Miri,
}

/// Tests of rings that race intentionally, or are single-threaded and take long.
const NOT_FOR_THREADS: &str = "ring::hostile_tests";
/// Tests of memory that threads or processes share, by the names of `omnes-net`'s modules.
const ORDERS: [&str; 3] = ["ring::order_tests", "live::sequence", "idle_sleep"];

/// Runs the selected tools; true if they found nothing.
///
/// Errors if the nightly compiler or a component of it is missing.
pub fn run(workspace: &Workspace, args: &Args) -> anyhow::Result<bool> {
    check_nightly()?;
    let threads = || thread(workspace);
    let memory = || miri(workspace, args.seeds);
    let passed = match args.tool {
        Some(Tool::Thread) => threads()?,
        Some(Tool::Miri) => memory()?,
        None => memory()? && threads()?,
    };
    if passed {
        report("sanitize", &[]);
    }
    Ok(passed)
}

/// Checks that the nightly compiler is installed, with the standard library's source and Miri.
fn check_nightly() -> anyhow::Result<()> {
    let listed = Command::new("rustup")
        .args(["component", "list", "--installed", "--toolchain", "nightly"])
        .output()
        .context("cannot run rustup")?;
    let listed = String::from_utf8_lossy(&listed.stdout);
    for needed in ["rust-src", "miri"] {
        if !listed.lines().any(|component| component.starts_with(needed)) {
            bail!("needs the nightly compiler with its {needed}: `make setup-fuzz` installs it");
        }
    }
    Ok(())
}

/// Nightly cargo, with a build folder of its own.
fn nightly(workspace: &Workspace, folder: &str) -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo"])
        .env("CARGO_TARGET_DIR", workspace.root.join("target").join(folder))
        .current_dir(&workspace.root);
    command
}

fn thread(workspace: &Workspace) -> anyhow::Result<bool> {
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut command = nightly(workspace, "tsan");
    // ThreadSanitizer sees only system calls that go through libc: without them, memory that is
    // unmapped and mapped again for another purpose looks like the same memory. Warnings of newer
    // compilers are not errors here.
    command
        .env("RUSTFLAGS", "-Zsanitizer=thread --cfg=rustix_use_libc --cap-lints=warn")
        .env("CARGO_PROFILE_DEV_DEBUG", "1")
        .args(["test", "-Zbuild-std", "--no-fail-fast", "--lib", "--tests"])
        .args(["--target", &host, "--package", "omnes-net", "--package", "omnes"])
        .args(["--", "--skip", NOT_FOR_THREADS]);
    succeeds(&mut command)
}

fn miri(workspace: &Workspace, seeds: u32) -> anyhow::Result<bool> {
    let mut command = nightly(workspace, "miri");
    // The tests access the machine's files.
    command
        .env("MIRIFLAGS", format!("-Zmiri-disable-isolation -Zmiri-many-seeds=0..{seeds}"))
        .args(["miri", "test", "--lib", "--package", "omnes-net", "--"])
        .args(ORDERS);
    succeeds(&mut command)
}
