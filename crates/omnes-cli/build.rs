//! Compiles the lab's link-fault program with clang and leaves the object in `OUT_DIR`, where
//! `lab::firmware` embeds it.
//!
//! Without clang the object is an empty file: the command is built all the same, and `omnes lab`
//! says that faults are unavailable. `CLANG` names another compiler.

use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = "../../firmware/link_faults.bpf.c";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-env-changed=CLANG");
    let out_dir = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let object = out_dir.join("link_faults.bpf.o");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());

    match compile(&clang, &object).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!("{clang} {SOURCE}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // A file that is never there: asks again at each build, until clang is installed.
            println!("cargo:rerun-if-changed={}", out_dir.join("clang-installed").display());
            println!("cargo:warning=no {clang}: `omnes lab` is built without link faults");
            std::fs::write(&object, []).expect("OUT_DIR can be written");
        }
        Err(error) => panic!("{clang}: {error}"),
    }
}

/// The compiler call. The headers are those that libbpf-sys exports, so that the program and the
/// loader are of one version; the `asm/` headers lie in the machine's multiarch folder.
fn compile(clang: &str, object: &Path) -> Command {
    let mut command = Command::new(clang);
    // v3: atomics that return the old value.
    command.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror"]);
    if let Ok(include) = std::env::var("DEP_BPF_INCLUDE") {
        command.arg(format!("-I{include}"));
    }
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    command.arg(format!("-I/usr/include/{arch}-linux-gnu"));
    command.args(["-c", SOURCE, "-o"]).arg(object);
    command
}
