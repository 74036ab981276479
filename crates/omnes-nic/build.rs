//! Compiles the firmware for the kernel with clang and leaves the object in `OUT_DIR`, where
//! `kernel` embeds it.
//!
//! Without clang the object is an empty file: everything is built all the same, and the kernel's
//! NIC says that it is unavailable. `CLANG` names another compiler.

use std::path::{Path, PathBuf};
use std::process::Command;

const FOLDER: &str = "../../firmware";
const SOURCE: &str = "../../firmware/nic.bpf.c";
/// Everything that the object is made from.
const SOURCES: [&str; 11] = [
    "nic.bpf.c",
    "nic_maps.h",
    "nic_packet.h",
    "nic_barrier.h",
    "nic_spread.h",
    "barrier_step.h",
    "spread_step.h",
    "siphash.h",
    "slot.h",
    "types.h",
    "wire.h",
];

fn main() {
    for file in SOURCES {
        println!("cargo:rerun-if-changed={FOLDER}/{file}");
    }
    println!("cargo:rerun-if-env-changed=CLANG");
    let out_dir = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let object = out_dir.join("nic.bpf.o");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());

    match compile(&clang, &object).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!("{clang} {SOURCE}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // A file that is never there: asks again at each build, until clang is installed.
            println!("cargo:rerun-if-changed={}", out_dir.join("clang-installed").display());
            println!("cargo:warning=no {clang}: built without the kernel's NIC");
            std::fs::write(&object, []).expect("OUT_DIR can be written");
        }
        Err(error) => panic!("{clang}: {error}"),
    }
}

/// The compiler call. The headers are those that libbpf-sys exports, so that the firmware and the
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
