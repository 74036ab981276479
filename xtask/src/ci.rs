//! Everything that continuous integration runs: cheap checks first, all of them even if one fails,
//! and a summary table at the end.

use crate::workspace::Workspace;
use crate::{arrows, markers, purity, report, succeeds, tidy};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Name of a step and the function that runs it; true if it found nothing.
type Step = (&'static str, fn(&Workspace) -> anyhow::Result<bool>);

const STEPS: [Step; 10] = [
    ("fmt", |workspace| succeeds(workspace.cargo().args(["fmt", "--all", "--check"]))),
    ("arrows", |workspace| Ok(report("arrows", &arrows::findings(workspace)))),
    ("tidy", tidy::run),
    ("markers", |workspace| markers::run(workspace, &markers::Args::default())),
    ("purity", purity::run),
    ("clippy", |workspace| {
        succeeds(workspace.cargo().args(["clippy", "--workspace", "--all-targets"]))
    }),
    ("test", |workspace| {
        succeeds(workspace.cargo().args(["test", "--workspace", "--no-fail-fast"]))
    }),
    ("papers", |workspace| {
        let mut command = workspace.cargo();
        command.args(["run", "--quiet", "--package", "omnes-cli", "--bin", "omnes", "--"]);
        succeeds(command.args(["papers", "--check"]).stdout(Stdio::null()))
    }),
    ("doc", document),
    ("mpi4py", mpi4py),
];

/// Exit status of a script that this machine cannot run; the script prints the reason itself.
const SKIPPED: i32 = 77;

/// Runs every step; true if all found nothing.
///
/// A step that cannot run counts as failed, and the other steps still run.
pub fn run(workspace: &Workspace) -> anyhow::Result<bool> {
    let mut results: Vec<(&str, bool, Duration)> = Vec::new();
    for (name, step) in STEPS {
        eprintln!("== {name}");
        let start = Instant::now();
        let passed = step(workspace).unwrap_or_else(|error| {
            eprintln!("{name}: {error:#}");
            false
        });
        results.push((name, passed, start.elapsed()));
    }
    eprintln!("== summary");
    for (name, passed, time) in &results {
        let word = if *passed { "ok" } else { "FAILED" };
        eprintln!("{name:8} {word:6} {:4} s", time.as_secs());
    }
    Ok(results.iter().all(|(_, passed, _)| *passed))
}

/// Builds the documentation of every item, private ones included, with warnings as errors.
///
/// In two runs, because the command `omnes` and the library `omnes` would write to the same folder.
fn document(workspace: &Workspace) -> anyhow::Result<bool> {
    let selections: [&[&str]; 2] =
        [&["--package", "omnes-cli"], &["--workspace", "--exclude", "omnes-cli"]];
    for selection in selections {
        let mut cargo = workspace.cargo();
        cargo.args(["doc", "--no-deps", "--document-private-items"]).args(selection);
        if !succeeds(cargo.env("RUSTDOCFLAGS", "-D warnings"))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Runs mpi4py's own tests. They come from the Python index, so only if an MPI is required.
fn mpi4py(workspace: &Workspace) -> anyhow::Result<bool> {
    let required = std::env::var("OMNES_REQUIRE").unwrap_or_default();
    if !required.split(',').any(|name| name == "mpi") {
        eprintln!("mpi4py: skipped: OMNES_REQUIRE does not name mpi");
        return Ok(true);
    }
    let status = Command::new(workspace.root.join("tools/test-mpi4py.sh")).status()?;
    let is_skipped = status.code() == Some(SKIPPED);
    if is_skipped {
        eprintln!("mpi4py: skipped");
    }
    Ok(status.success() || is_skipped)
}
