//! Any bytes into the header parser: it must not panic, and what it accepts must be emitted again
//! as the same bytes. The body is `omnes_wire::fuzz::header`, which plain tests replay over
//! `fuzz/corpus/header`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    omnes_wire::fuzz::header(bytes);
});
