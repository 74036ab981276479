//! Gives the C library its names: the SONAME `libomnes.so.0`, and beside cargo's
//! `libomnes_c.so` the links `libomnes.so` (for `-lomnes`) and `libomnes.so.0` (for the loader).
//!
//! Cargo's own name differs because the Rust library `omnes` has that name already, and two
//! libraries of one name would write the same files. The links are made before the library is, and
//! lie outside `OUT_DIR`, so that a plain `cargo build` leaves something that C programs can be
//! linked with. Installing (`install.sh`) copies the file under its real name.

use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// What cargo calls the library.
const LIBRARY: &str = "libomnes_c.so";
/// Folders from `OUT_DIR` (`PROFILE/build/omnes-capi-HASH/out`) up to the profile's.
const OUT_DIR_DEPTH: usize = 3;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").expect("cargo sets the version");
    let soname = format!("libomnes.so.{major}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{soname}");

    let out_dir = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let profile = out_dir.ancestors().nth(OUT_DIR_DEPTH).expect("OUT_DIR is that deep");
    for name in ["libomnes.so", &soname] {
        if let Err(error) = link(&profile.join(name)) {
            println!("cargo:warning={name}: cannot be linked to {LIBRARY}: {error}");
        }
    }
}

/// Makes `path` a link to the library in the same folder, unless it is one.
fn link(path: &Path) -> std::io::Result<()> {
    if std::fs::read_link(path).is_ok_and(|target| target == Path::new(LIBRARY)) {
        return Ok(());
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => symlink(LIBRARY, path),
    }
}
