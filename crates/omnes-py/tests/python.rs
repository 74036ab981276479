//! Python programs that use the package, run as jobs on the loopback interface.
//!
//! `build.sh` builds the package, as it does for users, around the library that cargo has built;
//! the test sets the environment as a launcher would. Each program checks itself and reports where
//! it failed. `timeout` ends a job that hangs.

#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Time limit of a job; far more than it takes.
const LIMIT_SECONDS: &str = "240";

/// A Python interpreter, and the package in a folder for it.
struct Package {
    folder: tempfile::TempDir,
    python: String,
}

/// The first Python, 3.11 or later, that has the module; `None`, with the reason on standard error,
/// if there is none. With `OMNES_REQUIRE=python` or `torch` that is a failure.
fn python(module: Option<&str>) -> Option<String> {
    let names = std::env::var("PYTHON").into_iter().chain(["python3".to_owned()]);
    let wanted = module.map_or(String::new(), |module| format!("; import {module}"));
    let program = format!("import sys; assert sys.version_info >= (3, 11){wanted}");
    let has_all = |name: &String| {
        let output = Command::new(name).args(["-c", &program]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let found = names.into_iter().find(has_all);
    if found.is_none() {
        let ability = module.unwrap_or("python");
        let required = std::env::var("OMNES_REQUIRE").unwrap_or_default();
        let is_required = required.split(',').any(|other| other == ability);
        assert!(!is_required, "OMNES_REQUIRE={ability}, but no Python from 3.11 on has it");
        eprintln!("skipped: needs Python 3.11 {}", module.unwrap_or_default());
    }
    found
}

/// The shared library that cargo built with this test, beside it or one folder up.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let mut folders = test.ancestors().skip(1).take(2).map(|folder| folder.join("lib_omnes.so"));
    folders.find(|library| library.exists()).expect("cargo builds the library with its tests")
}

impl Package {
    fn with(module: Option<&str>) -> Option<Self> {
        let python = python(module)?;
        let folder = tempfile::tempdir().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.sh");
        let built = Command::new(script)
            .arg(folder.path())
            .env("OMNES_PY_LIBRARY", library())
            .stdout(Stdio::null())
            .status();
        assert!(built.unwrap().success());
        Some(Self { folder, python })
    }

    /// The command of a program with its arguments.
    fn start(&self, program: &str) -> Command {
        let mut words = program.split(' ');
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        let path = path.join(words.next().unwrap());
        let mut command = Command::new("timeout");
        command.arg(LIMIT_SECONDS).arg(&self.python).arg("-W").arg("error").arg(path);
        command.args(words).env("PYTHONPATH", self.folder.path());
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Runs a job of `size` ranks on the loopback interface; all must succeed.
    fn run(&self, program: &str, size: u32) {
        let port = omnes::free_port(Ipv4Addr::LOCALHOST.into()).unwrap();
        let rank = |rank: u32| {
            let mut command = self.start(program);
            command.env("OMNES_RANK", rank.to_string()).env("OMNES_SIZE", size.to_string());
            command.env("OMNES_RENDEZVOUS", format!("127.0.0.1:{port}"));
            command.spawn().unwrap()
        };
        let children: Vec<Child> = (0..size).map(rank).collect();
        let complaints: Vec<String> = (0..)
            .zip(children)
            .filter_map(|(rank, child): (u32, Child)| {
                let output = child.wait_with_output().unwrap();
                let errors = String::from_utf8_lossy(&output.stderr);
                let good = output.status.success();
                (!good).then(|| format!("{program} rank {rank}: {}: {errors}", output.status))
            })
            .collect();
        assert!(complaints.is_empty(), "{size} ranks:\n{}", complaints.join("\n"));
    }
}

#[test]
fn collectives_work_from_python_with_2_and_4_ranks() {
    if let Some(package) = Package::with(None) {
        package.run("collectives.py", 2);
        package.run("collectives.py", 4);
    }
}

#[test]
fn nonblocking_messages_and_exchange_based_communicators_work() {
    if let Some(package) = Package::with(None) {
        package.run("messages.py", 2);
        package.run("messages.py", 3);
    }
}

#[test]
fn dead_rank_is_named_in_the_python_error() {
    if let Some(package) = Package::with(None) {
        package.run("failures.py", 3);
    }
}

#[test]
fn leaving_rank_is_named_and_an_exiting_forked_child_is_ignored() {
    if let Some(package) = Package::with(None) {
        package.run("leaving.py", 3);
    }
}

#[test]
fn python_signal_handlers_run_while_a_call_waits() {
    if let Some(package) = Package::with(None) {
        package.run("signals.py", 2);
    }
}

#[test]
fn calls_with_a_time_limit_time_out() {
    if let Some(package) = Package::with(None) {
        package.run("limits.py", 2);
        package.run("limits_left.py", 2);
    }
}

#[test]
fn dropping_a_communicator_does_not_block_threads_or_handlers() {
    if let Some(package) = Package::with(None) {
        package.run("dropped.py communicator", 2);
        package.run("dropped.py request", 2);
    }
}

#[test]
fn calls_from_a_forked_child_fail_and_its_parent_continues() {
    if let Some(package) = Package::with(None) {
        package.run("forking.py", 2);
    }
}

#[test]
fn python_without_a_launcher_fails_with_a_hint() {
    if let Some(package) = Package::with(None) {
        let mut command = Command::new(&package.python);
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.env("PYTHONPATH", package.folder.path());
        let program = "import omnes; omnes.Communicator.from_env()";
        let output = command.args(["-c", program]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("NoLauncher") && errors.contains("omnes run"), "{errors}");
    }
}

#[test]
fn type_stub_matches_the_compiled_module() {
    if let Some(package) = Package::with(None) {
        let output = package.start("surface.py").output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
    }
}

#[test]
fn pushed_module_weights_reach_all_ranks() {
    if let Some(package) = Package::with(Some("torch")) {
        package.run("weights.py", 2);
        package.run("weights.py", 3);
    }
}

#[test]
fn failed_weight_push_releases_its_pending_operations() {
    if let Some(package) = Package::with(Some("torch")) {
        package.run("weights_given_up.py", 3);
    }
}

#[test]
fn torch_distributed_results_match_a_single_process() {
    if let Some(package) = Package::with(Some("torch")) {
        package.run("distributed.py", 3);
    }
}

#[test]
fn random_torch_distributed_programs_match_local_computation() {
    if let Some(package) = Package::with(Some("torch")) {
        package.run("distributed_random.py", 3);
    }
}

#[test]
fn collectives_of_torch_distributed_overlap_with_the_program() {
    if let Some(package) = Package::with(Some("torch")) {
        package.run("distributed_overlap.py", 3);
    }
}

#[test]
fn pending_torch_distributed_calls_end_at_the_group_timeout() {
    if let Some(package) = Package::with(Some("torch")) {
        package.run("distributed_limits.py", 2);
        package.run("distributed_given_up.py", 3);
    }
}

#[test]
fn torch_distributed_debug_detail_reports_mismatched_calls() {
    if let Some(package) = Package::with(Some("torch")) {
        package.run("distributed_debug.py", 3);
    }
}

#[test]
fn torch_distributed_groups_start_and_end_cleanly() {
    if let Some(package) = Package::with(Some("torch")) {
        package.run("distributed_ends.py", 3);
        package.run("distributed_plain.py", 4);
        package.run("distributed_unfinished.py", 3);
        package.run("distributed_left.py", 3);
        package.run("distributed_meeting.py", 3);
    }
}

#[test]
fn forked_torch_distributed_ranks_leave_on_exit() {
    if let Some(package) = Package::with(Some("torch")) {
        package.run("distributed_forked.py", 4);
    }
}

#[test]
fn forked_child_cannot_use_the_groups_of_its_parent() {
    if let Some(package) = Package::with(Some("torch")) {
        package.run("distributed_children.py", 2);
    }
}
