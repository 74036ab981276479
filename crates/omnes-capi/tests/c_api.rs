//! C programs that use the library, as jobs on the loopback interface.
//!
//! Each program in `tests/c` is compiled against the header and linked with the library that cargo
//! built; the test sets the environment that a launcher would set. A program checks its own results
//! and reports where it failed. `timeout` ends a job that hangs.

#![allow(clippy::unwrap_used)]

mod compiler;

use compiler::{STRICT, crate_folder, find, library, output_of};
use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Time limit of a job, far more than it needs.
const LIMIT_SECONDS: &str = "60";

/// A program, and the library under the name that the loader needs, in a temporary folder.
struct Program {
    folder: tempfile::TempDir,
    path: PathBuf,
}

impl Program {
    /// Compiles `tests/c/NAME.c`; `None` without a C compiler.
    fn compile(name: &str) -> Option<Self> {
        let compiler = find("CC", &["cc", "gcc", "clang"])?;
        let folder = tempfile::tempdir().unwrap();
        let soname = concat!("libomnes.so.", env!("CARGO_PKG_VERSION_MAJOR"));
        symlink(library(), folder.path().join(soname)).unwrap();
        symlink(soname, folder.path().join("libomnes.so")).unwrap();

        let path = folder.path().join(name);
        let source = crate_folder().join("tests/c").join(name).with_extension("c");
        let mut command = Command::new(compiler);
        command.arg("-std=c11").args(["-D_DEFAULT_SOURCE"]).args(STRICT).arg("-I");
        command.arg(crate_folder().join("include")).arg("-o").arg(&path).arg(source);
        output_of(command.arg("-L").arg(folder.path()).arg("-lomnes"));
        Some(Self { folder, path })
    }

    fn start(&self, rank: u32, size: u32, rendezvous: &str) -> Child {
        let mut command = Command::new("timeout");
        command.arg(LIMIT_SECONDS).arg(&self.path).stdin(Stdio::null()).stderr(Stdio::piped());
        command.env("LD_LIBRARY_PATH", self.folder.path());
        command.env("OMNES_RANK", rank.to_string()).env("OMNES_SIZE", size.to_string());
        command.env("OMNES_RENDEZVOUS", rendezvous).env("TEST_VERSION", env!("CARGO_PKG_VERSION"));
        command.env("OMNES_PEER_TIMEOUT", "3s");
        command.spawn().unwrap()
    }

    /// Runs a program that starts its ranks itself, with and without shared memory. Variables of
    /// launchers have no effect on it.
    fn run_alone(&self, scenario: &str) {
        for shared_memory in ["on", "off"] {
            let mut command = Command::new("timeout");
            command.arg(LIMIT_SECONDS).arg(&self.path).arg(scenario).stdin(Stdio::null());
            command.env("LD_LIBRARY_PATH", self.folder.path()).env("OMNES_SHM", shared_memory);
            command.env("OMNES_RANK", "7").env("OMNES_SIZE", "3");
            let output = command.output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            let status = output.status;
            assert!(status.success(), "{scenario}, OMNES_SHM={shared_memory}: {status}: {errors}");
        }
    }

    /// Runs a job of `size` ranks on the loopback interface; panics unless all ranks succeed.
    fn run(&self, size: u32) {
        let rendezvous = free_address();
        let children: Vec<Child> =
            (0..size).map(|rank| self.start(rank, size, &rendezvous)).collect();
        let name = Path::new(self.path.file_name().unwrap()).display();
        let complaints: Vec<String> = (0..)
            .zip(children)
            .filter_map(|(rank, child): (u32, Child)| {
                let output = child.wait_with_output().unwrap();
                let errors = String::from_utf8_lossy(&output.stderr);
                let good = output.status.success();
                (!good).then(|| format!("{name} rank {rank}: {}: {errors}", output.status))
            })
            .collect();
        assert!(complaints.is_empty(), "{size} ranks:\n{}", complaints.join("\n"));
    }
}

/// An address on the loopback interface on which nobody was listening a moment ago.
fn free_address() -> String {
    let port = omnes::free_port(Ipv4Addr::LOCALHOST.into()).unwrap();
    format!("127.0.0.1:{port}")
}

#[test]
fn messages_and_collectives_work_from_c_at_2_and_4_ranks() {
    if let Some(program) = Program::compile("collectives") {
        program.run(2);
        program.run(4);
    }
}

#[test]
fn invalid_arguments_are_rejected_by_name() {
    if let Some(program) = Program::compile("arguments") {
        program.run(2);
    }
}

#[test]
fn long_messages_and_dead_ranks_are_reported() {
    if let Some(program) = Program::compile("failures") {
        program.run(2);
        program.run(4);
    }
}

#[test]
fn many_concurrent_requests_complete_even_after_a_rank_dies() {
    if let Some(program) = Program::compile("requests") {
        program.run(2);
        program.run(4);
    }
}

#[test]
fn failing_rank_leaves_without_waiting_and_the_others_see_the_error() {
    if let Some(program) = Program::compile("abandon") {
        program.run(2);
        program.run(4);
    }
}

#[test]
fn communicators_from_an_exchange_share_one_job() {
    if let Some(program) = Program::compile("exchange") {
        program.run_alone("share");
    }
}

#[test]
fn ranks_without_a_common_job_create_a_new_one() {
    if let Some(program) = Program::compile("exchange") {
        program.run_alone("grow");
    }
}

#[test]
fn communicator_that_one_rank_cannot_join_fails_at_all_ranks() {
    if let Some(program) = Program::compile("exchange") {
        program.run_alone("fail");
    }
}

#[test]
fn failed_exchange_is_reported_as_an_error() {
    if let Some(program) = Program::compile("exchange") {
        program.run_alone("breaks");
    }
}

#[test]
fn rank_that_exits_without_leaving_is_named() {
    if let Some(program) = Program::compile("exchange") {
        program.run_alone("die");
    }
}

#[test]
fn rank_that_timed_out_gets_a_new_job_instead_of_the_old_one() {
    if let Some(program) = Program::compile("exchange") {
        program.run_alone("give_up");
    }
}
