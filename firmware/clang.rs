//! Compiles a BPF program with clang, for build scripts, which leave the object in `OUT_DIR` for
//! embedding.
//!
//! Without clang, or with one that does not support BPF, as some vendors' do not, the object is an
//! empty file: the build succeeds, and loading the object reports what is missing. `CLANG` names
//! another compiler.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `source` to `object` in `OUT_DIR`; `without` names what a build without clang lacks.
///
/// # Panics
/// If a clang that supports BPF rejects the source.
pub fn compile(source: &str, object: &str, without: &str) {
    println!("cargo:rerun-if-env-changed=CLANG");
    let out_dir = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let object = out_dir.join(object);
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());

    if let Err(obstacle) = probe(&clang, &object) {
        // A file that never exists: the build script runs again at each build, until clang is
        // installed.
        println!("cargo:rerun-if-changed={}", out_dir.join("clang-installed").display());
        println!("cargo:warning={obstacle}: built without {without}");
        std::fs::write(&object, []).expect("OUT_DIR can be written");
        return;
    }
    let output = call(&clang, source, &object).output().expect("it has been started before");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{clang} {source}: {said}");
}

/// Compiles an empty source to `object`; the error says in words why the compiler cannot.
fn probe(clang: &str, object: &Path) -> Result<(), String> {
    let output = target(clang).args(["-x", "c", "-c", "/dev/null", "-o"]).arg(object).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(_) => Err(format!("{clang} does not know BPF")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(format!("no {clang}")),
        Err(error) => Err(format!("{clang}: {error}")),
    }
}

/// The compiler command with its target.
fn target(clang: &str) -> Command {
    let mut command = Command::new(clang);
    // v3: atomics that return the old value.
    command.args(["-target", "bpf", "-mcpu=v3"]);
    command
}

/// The compiler call. The headers are those that libbpf-sys exports, so that program and loader are
/// of the same version; the `asm/` headers are in the machine's multiarch folder.
fn call(clang: &str, source: &str, object: &Path) -> Command {
    let mut command = target(clang);
    command.args(["-O2", "-g", "-Wall", "-Werror"]);
    if let Ok(include) = std::env::var("DEP_BPF_INCLUDE") {
        command.arg(format!("-I{include}"));
    }
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    command.arg(format!("-I/usr/include/{arch}-linux-gnu"));
    command.args(["-c", source, "-o"]).arg(object);
    command
}
