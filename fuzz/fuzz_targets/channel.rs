//! Any bytes, read as a list of operations, into two channel machines with a faulty link between
//! them: the checkers of the simulator must hold. The body is `omnes_sim::fuzz::channel`, which
//! plain tests replay over `fuzz/corpus/channel`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    omnes_sim::fuzz::channel(bytes);
});
