//! The native form under the compiler's sanitizers for memory and arithmetic, with random input
//! from `firmware/native_test.c`.
//!
//! Without a compiler that supports them the test prints `skipped: needs sanitizers`, which
//! `OMNES_REQUIRE=sanitizers` turns into a failure.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use std::path::{Path, PathBuf};
use std::process::Command;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../firmware");
const ROUNDS: u32 = 2_000;

/// Compiles `sources` with the sanitizers; false if that fails.
fn compile(sources: &[PathBuf], out: &Path) -> Result<(), String> {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(compiler);
    command.args(["-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror"]);
    command.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
    match command.args(sources).arg("-o").arg(out).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// True if programs with sanitizers can be compiled and run; otherwise prints that the test is
/// skipped.
fn has_sanitizers(folder: &Path) -> bool {
    let (source, program) = (folder.join("empty.c"), folder.join("empty"));
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let runs = compile(&[source], &program).is_ok()
        && Command::new(&program).status().is_ok_and(|status| status.success());
    if !runs {
        let required = std::env::var("OMNES_REQUIRE").unwrap_or_default();
        let is_required = required.split(',').any(|word| word == "sanitizers");
        assert!(!is_required, "OMNES_REQUIRE=sanitizers: the compiler has none");
        println!("skipped: needs sanitizers");
    }
    runs
}

#[test]
fn random_input_passes_memory_and_arithmetic_sanitizers() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if !has_sanitizers(folder) {
        return;
    }
    let program = folder.join("native_test");
    let sources = ["native.c", "native_test.c"].map(|file| Path::new(FOLDER).join(file));
    compile(&sources, &program).unwrap();
    for seed in 1..=5 {
        let words = [seed.to_string(), ROUNDS.to_string()];
        let output = Command::new(&program).args(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "seed {seed}: {said}");
    }
}
