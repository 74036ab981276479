//! Any bytes, read as a list of operations, into two broadcast machines and a third rank that has
//! the right key and says whatever it likes: nothing may panic, and memory stays bounded. The body
//! is `omnes_sim::fuzz::broadcast`, which plain tests replay over `fuzz/corpus/broadcast`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    omnes_sim::fuzz::broadcast(bytes);
});
