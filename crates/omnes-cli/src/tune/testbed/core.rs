//! Costs of copies and of switching to another thread on one core.

use super::median;
use std::hint::black_box;
use std::time::Instant;

/// Size of a copy: more than a second-level cache holds.
const COPY_BYTES: usize = 4 << 20;
const COPIES: usize = 21;
const TURNS: u32 = 20_000;

/// Times of one core, in nanoseconds.
#[derive(Default)]
pub struct Core {
    /// Time of a copy in memory, per byte.
    pub copy_byte_ns: f64,
    /// Time of a switch to another thread.
    pub switch_ns: f64,
}

/// Measures both.
pub fn measure() -> Core {
    Core { copy_byte_ns: copy_byte_ns(), switch_ns: switch_ns() }
}

/// Nanoseconds per byte of a copy in memory.
fn copy_byte_ns() -> f64 {
    let (from, mut to) = (vec![1u8; COPY_BYTES], vec![0u8; COPY_BYTES]);
    let once = |_| {
        let begin = Instant::now();
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
        begin.elapsed().as_nanos() as f64 / COPY_BYTES as f64
    };
    median((0..COPIES).map(once).collect())
}

/// The first of the cores that this process may run on.
fn first_core() -> libc::cpu_set_t {
    // SAFETY: an all-zero set is an empty set.
    let (mut allowed, mut first): (libc::cpu_set_t, libc::cpu_set_t) =
        unsafe { std::mem::zeroed() };
    // SAFETY: the set has the given size.
    unsafe { libc::sched_getaffinity(0, size_of_val(&allowed), &mut allowed) };
    let cores = 0..8 * size_of_val(&allowed);
    // SAFETY: the number is within the set.
    let is_allowed = |core: &usize| unsafe { libc::CPU_ISSET(*core, &allowed) };
    // SAFETY: as above.
    unsafe { libc::CPU_SET(cores.into_iter().find(is_allowed).unwrap_or(0), &mut first) };
    first
}

/// Nanoseconds until another thread of the same core runs.
fn switch_ns() -> f64 {
    let core = first_core();
    let turns = move || {
        // SAFETY: the set has the given size.
        unsafe { libc::sched_setaffinity(0, size_of_val(&core), &core) };
        let begin = Instant::now();
        for _ in 0..TURNS {
            std::thread::yield_now();
        }
        begin.elapsed()
    };
    let other = std::thread::spawn(turns);
    let mine = std::thread::spawn(turns);
    let times = [other.join(), mine.join()].map(|time| time.unwrap_or_default());
    let all: f64 = times.iter().map(|time| time.as_nanos() as f64).sum();
    // Both threads also count the other's turns.
    all / 2.0 / f64::from(2 * TURNS)
}
