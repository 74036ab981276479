//! The C compiler, the library under test, and the crate's folder; shared by the tests that need C.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Warnings that the header and the programs must not cause.
pub const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

/// Returns the first of `candidates` that can be run, after the value of an environment variable.
///
/// If there is none, prints what is skipped, or panics with `OMNES_REQUIRE=cc`.
pub fn find(variable: &str, candidates: &[&str]) -> Option<String> {
    let own = std::env::var(variable).ok();
    let mut names = own.into_iter().chain(candidates.iter().map(|name| (*name).to_owned()));
    let found = names.find(|name| Command::new(name).arg("--version").output().is_ok());
    if found.is_none() {
        let required = std::env::var("OMNES_REQUIRE").unwrap_or_default();
        let is_required = required.split(',').any(|ability| ability == "cc");
        assert!(!is_required, "OMNES_REQUIRE=cc, but there is none of {candidates:?}");
        eprintln!("skipped: needs {}", candidates[0]);
    }
    found
}

/// Returns the folder of this crate.
pub fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the shared library that cargo built with this test, in the same folder.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("libomnes_c.so");
    assert!(library.exists(), "{} is not built", library.display());
    library
}

/// Runs a command to completion and returns its output; panics with its messages if it fails.
pub fn output_of(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}
