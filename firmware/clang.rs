//! Compiles a program for the kernel with clang, for build scripts, which leave the object in
//! `OUT_DIR` for embedding.
//!
//! Without clang the object is an empty file: everything is built all the same, and whoever loads
//! it says what is missing. `CLANG` names another compiler.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `source` to `object` in `OUT_DIR`; `without` tells what a build without clang lacks.
pub fn compile(source: &str, object: &str, without: &str) {
    println!("cargo:rerun-if-env-changed=CLANG");
    let out_dir = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let object = out_dir.join(object);
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());

    match call(&clang, source, &object).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!("{clang} {source}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // A file that is never there: asks again at each build, until clang is installed.
            println!("cargo:rerun-if-changed={}", out_dir.join("clang-installed").display());
            println!("cargo:warning=no {clang}: built without {without}");
            std::fs::write(&object, []).expect("OUT_DIR can be written");
        }
        Err(error) => panic!("{clang}: {error}"),
    }
}

/// The compiler call. The headers are those that libbpf-sys exports, so that the program and the
/// loader are of one version; the `asm/` headers lie in the machine's multiarch folder.
fn call(clang: &str, source: &str, object: &Path) -> Command {
    let mut command = Command::new(clang);
    // v3: atomics that return the old value.
    command.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror"]);
    if let Ok(include) = std::env::var("DEP_BPF_INCLUDE") {
        command.arg(format!("-I{include}"));
    }
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    command.arg(format!("-I/usr/include/{arch}-linux-gnu"));
    command.args(["-c", source, "-o"]).arg(object);
    command
}
