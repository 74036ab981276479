//! The firmware loads, with all its checks, and stays small.
//!
//! Without root the tests print `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a
//! failure.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod common;

use common::root::is_root;
use omnes_nic::Kernel;
use std::fmt::Write as _;
use std::path::Path;

/// Sizes that no program may exceed; `OMNES_BLESS=1` writes the present sizes plus a tenth.
const CEILINGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/instructions.txt");
const COLUMNS: &str = "# program: instructions, instructions verified over all paths\n";

#[test]
fn both_programs_load_within_their_instruction_limits() {
    if !is_root() {
        return;
    }
    let kernel = Kernel::load().unwrap();
    assert_eq!(kernel.program_names(), ["nic_ingress", "nic_egress"]);
    let mut blessed = COLUMNS.to_owned();
    let mut sizes = Vec::new();
    for name in kernel.program_names() {
        let info = kernel.program_info(&name).unwrap();
        let (instructions, verified) = (info.instructions, info.verified);
        println!(
            "{name}: {instructions} instructions, {verified} verified, {} bytes of machine code",
            info.machine_bytes
        );
        let more = |number: u32| number + number / 10;
        writeln!(blessed, "{name} {} {}", more(instructions), more(verified)).unwrap();
        sizes.push((name, instructions, verified));
    }
    if std::env::var_os("OMNES_BLESS").is_some() {
        std::fs::write(CEILINGS, &blessed).unwrap();
    }
    let ceilings = std::fs::read_to_string(Path::new(CEILINGS)).unwrap();
    for (name, instructions, verified) in sizes {
        let ceiling = |column: usize| -> u32 {
            let line = ceilings.lines().find(|line| line.split(' ').next() == Some(&name)).unwrap();
            line.split(' ').nth(column).unwrap().parse().unwrap()
        };
        assert!(instructions <= ceiling(1), "{name} has grown to {instructions} instructions");
        assert!(verified <= ceiling(2), "{name} takes {verified} verified instructions");
        assert!(verified < 500_000, "{name} is near the verifier's limit of a million");
    }
}
