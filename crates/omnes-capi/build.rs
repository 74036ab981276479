//! Sets the SONAME `libomnes.so.0` of the C library, and creates links to cargo's `libomnes_c.so`:
//! `libomnes.so` (for `-lomnes`) and `libomnes.so.0` (for the loader).
//!
//! Cargo's name differs because the Rust library is already called `omnes`, and two libraries of
//! the same name would write the same files. The links are created before the library is built, and
//! outside `OUT_DIR`, so that C programs can be linked after a plain `cargo build`. `install.sh`
//! installs the file under its real name.

use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Cargo's name of the library.
const LIBRARY: &str = "libomnes_c.so";
/// Number of levels from `OUT_DIR` (`PROFILE/build/omnes-capi-HASH/out`) up to the profile's
/// folder.
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

/// Makes `path` a link to the library in the same folder, unless it already is one.
fn link(path: &Path) -> std::io::Result<()> {
    if std::fs::read_link(path).is_ok_and(|target| target == Path::new(LIBRARY)) {
        return Ok(());
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => symlink(LIBRARY, path),
    }
}
