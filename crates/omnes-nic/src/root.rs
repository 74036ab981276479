//! Unit tests need root if they load programs or create namespaces. Without it they print
//! `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a failure.

/// True as root; otherwise prints that the test is skipped.
pub(crate) fn is_root() -> bool {
    // SAFETY: only returns a number.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        skip("root");
    }
    is_root
}

/// Prints that a test is skipped because `ability` is missing.
///
/// # Panics
/// With `OMNES_REQUIRE=root`.
pub(crate) fn skip(ability: &str) {
    let required = std::env::var("OMNES_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|word| word == "root"), "OMNES_REQUIRE=root: needs {ability}");
    println!("skipped: needs {ability}");
}
