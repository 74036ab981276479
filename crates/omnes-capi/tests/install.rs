//! The files that `install.sh` installs, and that C programs can be built with them.

#![allow(clippy::unwrap_used)]

mod compiler;

use compiler::{STRICT, crate_folder, find, library, output_of};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// Creates a release folder with the library under test, and stand-ins for the other files.
fn build_folder(folder: &Path) {
    let release = folder.join("release");
    std::fs::create_dir(&release).unwrap();
    symlink(library(), release.join("libomnes_c.so")).unwrap();
    for name in ["libomnes_c.a", "libomnes-mpi-mpich.so"] {
        std::fs::write(release.join(name), name).unwrap();
    }
}

/// Installs the files in `build` under `prefix`.
fn install(build: &Path, prefix: &Path) {
    let mut command = Command::new(crate_folder().join("install.sh"));
    command.arg(prefix).env("CARGO_TARGET_DIR", build).env_remove("DESTDIR");
    output_of(&mut command);
}

#[test]
fn programs_build_and_run_against_the_installed_files() {
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

    // Outside a job it exits immediately; what matters is that the loader has found the library.
    let mut start = Command::new(program);
    start.env("LD_LIBRARY_PATH", prefix.path().join("lib")).env("LD_BIND_NOW", "1");
    let output = start.env_remove("OMNES_RANK").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() != Some(127), "{errors}");
    assert!(!errors.contains("error while loading"), "{errors}");
}

#[test]
fn statically_linked_program_does_not_need_the_shared_library() {
    let Some(compiler) = find("CC", &["cc", "gcc", "clang"]) else { return };
    let Some(pkg_config) = find("PKG_CONFIG", &["pkg-config", "pkgconf"]) else { return };
    let (build, prefix) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    build_folder(build.path());
    let archive = build.path().join("release/libomnes_c.a");
    std::fs::remove_file(&archive).unwrap();
    symlink(library().with_extension("a"), archive).unwrap();
    install(build.path(), prefix.path());

    let mut asked = Command::new(pkg_config);
    asked.args(["--static", "--cflags", "--libs", "omnes"]);
    let flags = output_of(asked.env("PKG_CONFIG_PATH", prefix.path().join("lib/pkgconfig")));
    let flags = flags.replace("-lomnes", "-l:libomnes.a");
    let program = prefix.path().join("program");
    let mut command = Command::new(compiler);
    command.arg("-o").arg(&program).arg(crate_folder().join("tests/c/arguments.c"));
    output_of(command.args(flags.split_whitespace()));
    let output = Command::new(program).env_remove("OMNES_RANK").output().unwrap();
    assert!(output.status.code() != Some(127), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn prefix_may_have_any_name_and_uninstall_removes_all_files() {
    let Some(pkg_config) = find("PKG_CONFIG", &["pkg-config", "pkgconf"]) else { return };
    let (build, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    build_folder(build.path());
    std::fs::write(build.path().join("release/omnesd"), "").unwrap();
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(build.path().join("release/omnesd"), executable).unwrap();
    let prefix = folder.path().join("a & b|c");
    let makefile = crate_folder().join("../../Makefile");
    let make = |goal: &str| {
        let mut command = Command::new("make");
        command.arg("-f").arg(&makefile).arg("-C").arg(makefile.parent().unwrap());
        command.arg(goal).arg(format!("PREFIX={}", prefix.display()));
        output_of(command.env("CARGO_TARGET_DIR", build.path()).env_remove("DESTDIR"))
    };
    let said = make("install");
    assert!(said.contains("the loader does not look in"), "{said}");
    assert!(said.contains("systemctl link"), "{said}");
    let mut asked = Command::new(pkg_config);
    asked.args(["--variable=libdir", "omnes"]);
    let library = output_of(asked.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")));
    assert_eq!(library.trim_end().replace('\\', ""), prefix.join("lib").display().to_string());
    let unit = prefix.join("lib/systemd/system/omnesd.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    assert!(unit.contains(&format!("ExecStart={}/bin/omnesd ", prefix.display())), "{unit}");
    make("uninstall");
    for folder in ["bin", "include", "lib/pkgconfig", "lib/systemd/system"] {
        assert_eq!(std::fs::read_dir(prefix.join(folder)).unwrap().count(), 0, "{folder}");
    }
}

#[test]
fn mpi_libraries_are_installed_beside_the_core_library() {
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
