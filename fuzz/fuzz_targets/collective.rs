//! Any bytes, read as a list of operations, into two collective machines with their NICs and a
//! third rank that has the right key and says whatever it likes: nothing may panic, memory stays
//! bounded, and barriers without the third rank stay safe. The body is
//! `omnes_sim::fuzz::collective`, which plain tests replay over `fuzz/corpus/collective`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    omnes_sim::fuzz::collective(bytes);
});
