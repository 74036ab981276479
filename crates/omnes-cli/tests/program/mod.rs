//! The library's example `conformance`, as a program for jobs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Path of the program; as recent as the library.
pub fn conformance() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let directory = Path::new(env!("CARGO_BIN_EXE_omnes")).parent().unwrap();
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--quiet", "-p", "omnes", "--example", "conformance"]);
        if directory.ends_with("release") {
            command.arg("--release");
        }
        let built = command.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
        assert!(built.success(), "the example conformance cannot be built");
        directory.join("examples/conformance")
    })
}
