//! What `install.sh` puts where, and that C programs can be built with it.

#![allow(clippy::unwrap_used)]

mod compiler;

use compiler::{STRICT, crate_folder, find, library, output_of};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// A release folder with the library under test; of the others there are only names.
fn build_folder(folder: &Path) {
    let release = folder.join("release");
    std::fs::create_dir(&release).unwrap();
    symlink(library(), release.join("libomnes_c.so")).unwrap();
    for name in ["libomnes_c.a", "libomnes-mpi-mpich.so"] {
        std::fs::write(release.join(name), name).unwrap();
    }
}

/// Installs what `build` holds under `prefix`.
fn install(build: &Path, prefix: &Path) {
    let mut command = Command::new(crate_folder().join("install.sh"));
    command.arg(prefix).env("CARGO_TARGET_DIR", build).env_remove("DESTDIR");
    output_of(&mut command);
}

#[test]
fn programs_are_built_and_started_with_what_is_installed() {
    let Some(compiler) = find("CC", &["cc", "gcc", "clang"]) else { return };
    let Some(pkg_config) = find("PKG_CONFIG", &["pkg-config", "pkgconf"]) else { return };
    let (build, prefix) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    build_folder(build.path());
    install(build.path(), prefix.path());

    let mut asked = Command::new(pkg_config);
    asked.args(["--cflags", "--libs", "omnes"]);
    let flags = output_of(asked.env("PKG_CONFIG_PATH", prefix.path().join("lib/pkgconfig")));
    let program = prefix.path().join("program");
    let mut command = Command::new(compiler);
    command.args(["-std=c11", "-D_POSIX_C_SOURCE=200809L"]).args(STRICT).arg("-o").arg(&program);
    command.arg(crate_folder().join("tests/c/arguments.c")).args(flags.split_whitespace());
    output_of(&mut command);

    // Outside of a job it ends at once; what counts is that the loader has found the library.
    let mut start = Command::new(program);
    start.env("LD_LIBRARY_PATH", prefix.path().join("lib")).env("LD_BIND_NOW", "1");
    let output = start.env_remove("OMNES_RANK").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() != Some(127), "{errors}");
    assert!(!errors.contains("error while loading"), "{errors}");
}

#[test]
fn libraries_of_mpis_lie_beside_the_library_that_they_need() {
    let (build, prefix) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    build_folder(build.path());
    install(build.path(), prefix.path());
    let soname = concat!("libomnes.so.", env!("CARGO_PKG_VERSION_MAJOR"));
    for name in [soname, "libomnes.so", "libomnes.a", "libomnes-mpi-mpich.so"] {
        assert!(prefix.path().join("lib").join(name).is_file(), "{name}");
    }
    assert!(!prefix.path().join("lib/libomnes-mpi-openmpi.so").exists());
    assert!(!prefix.path().join("bin").exists());
}
