//! Ranks on a core with a program that computes: they request short time slices from the scheduler,
//! unless configured not to. Benchmarks measure the effect.
#![allow(clippy::unwrap_used)]

mod ranks;

use omnes::ReduceOp;
use ranks::with_ranks;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_micros(200);
/// A limit for events that take milliseconds; reached only in case of failure.
const PATIENCE: Duration = Duration::from_secs(20);

/// Time slice of the calling thread, in nanoseconds; 0 on kernels without slices per thread.
fn slice_ns() -> u64 {
    // SAFETY: a structure of numbers, for which zero is a valid value.
    let mut own: libc::sched_attr = unsafe { std::mem::zeroed() };
    let bytes = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes at most `bytes` bytes, which is the size of the structure.
    assert_eq!(unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut own, bytes, 0) }, 0);
    own.sched_runtime
}

/// Binds the calling thread to the first processor that this process may use.
fn bind() {
    // SAFETY: a set of bits, for which zero is a valid value; the calls access only these sets.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        let mut first: libc::cpu_set_t = std::mem::zeroed();
        let bytes = size_of::<libc::cpu_set_t>();
        assert_eq!(libc::sched_getaffinity(libc::getpid(), bytes, &raw mut all), 0);
        let bits = 0..8 * bytes;
        libc::CPU_SET(
            bits.into_iter().find(|bit| libc::CPU_ISSET(*bit, &all)).unwrap(),
            &mut first,
        );
        assert_eq!(libc::sched_setaffinity(0, bytes, &raw const first), 0);
    }
}

/// Two ranks and a thread that computes, all on one processor.
fn beside_a_program(slice: Duration, body: impl Fn(&omnes::Communicator) + Sync) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            bind();
            while !is_over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        with_ranks(
            2,
            |config| config.time_slice = Some(slice),
            |comm| {
                bind();
                body(&comm);
            },
        );
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn callers_competing_for_their_core_get_short_slices() {
    if slice_ns() <= SLICE.as_nanos() as u64 {
        println!("skipped: needs Linux 6.12 or later, and usual slices");
        return;
    }
    let start = Instant::now();
    beside_a_program(SLICE, |comm| {
        let mut are_short = [0u32];
        while are_short == [0] {
            assert!(start.elapsed() < PATIENCE);
            are_short = [u32::from(slice_ns() == SLICE.as_nanos() as u64)];
            comm.allreduce(&mut are_short, ReduceOp::Min).unwrap();
        }
    });
}

#[test]
fn callers_keep_their_slices_when_short_ones_are_disabled() {
    let before = slice_ns();
    beside_a_program(Duration::ZERO, |comm| {
        (0..20).for_each(|_| comm.barrier().unwrap());
        assert_eq!(slice_ns(), before);
    });
}
