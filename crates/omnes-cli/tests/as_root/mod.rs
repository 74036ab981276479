//! Labs need root. Without it their tests are skipped, which `OMNES_REQUIRE=root` turns into a
//! failure, so that a machine that must run them cannot skip them unnoticed.

/// True if the test can run.
pub fn is_root() -> bool {
    // SAFETY: plain system call without arguments.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        let required = std::env::var("OMNES_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|word| word == "root"), "OMNES_REQUIRE=root: not root");
        println!("skipped: needs root");
    }
    is_root
}
