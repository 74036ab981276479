//! Unit tests need root where they load programs or make namespaces. Without it they print
//! `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a failure.

/// False, with a word, without root.
pub(crate) fn is_root() -> bool {
    // SAFETY: asks for a number.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        skip("root");
    }
    is_root
}

/// Says that a test is skipped for want of `ability`.
///
/// # Panics
/// With `OMNES_REQUIRE=root`.
pub(crate) fn skip(ability: &str) {
    let required = std::env::var("OMNES_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|word| word == "root"), "OMNES_REQUIRE=root: needs {ability}");
    println!("skipped: needs {ability}");
}
