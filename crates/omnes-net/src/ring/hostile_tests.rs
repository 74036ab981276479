//! Whatever shared memory contains, neither end panics, leaves the ring or yields invalid packets.

#![allow(clippy::unwrap_used)]

use super::layout::{Layout, record_bytes, stamp};
use super::map::RingMap;
use super::reader::RingReader;
use super::segment::Segment;
use super::writer::{Pushed, RingWriter};
use proptest::prelude::*;
use std::sync::atomic::Ordering::Relaxed;

const CAPACITY_BYTES: usize = 64 << 10;
const PACKET_BYTES_MAX: usize = 1500;

struct Ring {
    writer: RingWriter,
    reader: RingReader,
    /// A third view of the same memory, to which a faulty neighbour has access.
    wild: RingMap,
}

fn ring() -> Ring {
    let segment = Segment::create(Layout::new(CAPACITY_BYTES, 1).unwrap()).unwrap();
    Ring {
        writer: RingWriter::new(segment.ring(0).unwrap()),
        reader: RingReader::new(segment.ring(0).unwrap(), PACKET_BYTES_MAX),
        wild: segment.ring(0).unwrap(),
    }
}

fn push(writer: &mut RingWriter, bytes: usize) -> Pushed {
    let packet = vec![1u8; bytes];
    let part = libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: bytes };
    // SAFETY: the packet outlives the call.
    let pushed = unsafe { writer.push(&[part]) };
    writer.publish();
    pushed
}

fn word(position: u64, bytes: usize) -> u64 {
    u64::from(stamp(position)) << 32 | bytes as u64
}

#[test]
fn invalid_tail_positions_break_the_ring_for_the_reader() {
    let beyond = CAPACITY_BYTES as u64 + 64;
    for tail in [1, 63, 65, beyond, u64::MAX, u64::MAX - 63, 1 << 63] {
        let mut ring = ring();
        ring.wild.tail().store(tail, Relaxed);
        assert!(ring.reader.take().is_none());
        assert!(ring.reader.is_broken() && ring.reader.is_empty(), "{tail}");
        ring.wild.tail().store(64, Relaxed);
        assert!(ring.reader.take().is_none(), "broken for good");
    }
}

#[test]
fn writer_that_moves_its_tail_back_breaks_the_ring() {
    let mut ring = ring();
    assert_eq!(push(&mut ring.writer, 100), Pushed::Queued);
    assert!(ring.reader.take().is_some());
    ring.wild.tail().store(0, Relaxed);
    assert!(ring.reader.take().is_none() && ring.reader.is_broken());
}

#[test]
fn invalid_lengths_and_stamps_break_the_ring() {
    let published = record_bytes(100) as u64;
    let wrong = [0, word(0, 0), word(0, PACKET_BYTES_MAX + 1), word(64, 100), word(0, 121)];
    for wrong in wrong.into_iter().chain([u64::MAX, word(0, u32::MAX as usize)]) {
        let mut ring = ring();
        ring.wild.tail().store(published, Relaxed);
        ring.wild.word(0).store(wrong, Relaxed);
        assert!(ring.reader.take().is_none() && ring.reader.is_broken(), "{wrong:x}");
    }
    let mut ring = ring();
    ring.wild.tail().store(published, Relaxed);
    ring.wild.word(0).store(word(0, 120), Relaxed);
    assert_eq!(ring.reader.take().map(|packet| packet.bytes()), Some(120), "the longest that fits");
}

#[test]
fn reader_that_frees_unwritten_space_breaks_the_ring() {
    for head in [1, 64 * 2000, u64::MAX, u64::MAX - 63] {
        let mut ring = ring();
        ring.wild.head().store(head, Relaxed);
        let results: Vec<Pushed> = (0..100).map(|_| push(&mut ring.writer, 1000)).collect();
        assert_eq!(results[CAPACITY_BYTES / 1024 - 1], Pushed::Queued, "nobody had to look");
        assert_eq!(results[98..], [Pushed::Broken; 2], "{head}");
    }
}

#[test]
fn reader_that_moves_its_head_back_breaks_the_ring() {
    let mut ring = ring();
    for _ in 0..CAPACITY_BYTES / 1024 {
        assert_eq!(push(&mut ring.writer, 1000), Pushed::Queued);
    }
    ring.wild.head().store(2048, Relaxed);
    assert_eq!(push(&mut ring.writer, 1000), Pushed::Queued);
    assert_eq!(push(&mut ring.writer, 1000), Pushed::Queued);
    ring.wild.head().store(1024, Relaxed);
    assert_eq!(push(&mut ring.writer, 1000), Pushed::Broken);
}

#[test]
fn reader_survives_concurrent_corruption_of_the_memory() {
    for seed in 0..200u64 {
        let Ring { mut writer, mut reader, wild } = ring();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut number = seed;
                for _ in 0..2_000 {
                    number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    let line = (number >> 32) % (CAPACITY_BYTES as u64 / 64) * 64;
                    let bytes = (number >> 20) as usize % 2000;
                    wild.word(line).store(word(line, bytes), Relaxed);
                    if number >> 56 == 0 {
                        wild.tail().store(line, Relaxed);
                    }
                }
            });
            for number in 0..500 {
                push(&mut writer, 1 + number % PACKET_BYTES_MAX);
                while let Some(packet) = reader.take() {
                    assert!((1..=PACKET_BYTES_MAX).contains(&packet.bytes()));
                    assert!(packet.copy_head(&mut [0; 64]).len() <= packet.bytes());
                    std::hint::black_box(packet.data(0).to_vec());
                }
                reader.free();
            }
        });
    }
}

/// An event that may happen to a ring.
#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    Take,
    Free,
    Tail(u64),
    Head(u64),
    Word(u64, u64),
}

/// Numbers that are wrong in relevant ways: small, near the capacity, near the maximum.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..300_000u64,
        (0..5_000u64).prop_map(|line| line * 64),
        any::<u64>(),
        (0..200u64).prop_map(|below| u64::MAX - below),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..PACKET_BYTES_MAX).prop_map(Step::Push),
        6 => Just(Step::Take),
        2 => Just(Step::Free),
        1 => number().prop_map(Step::Tail),
        1 => number().prop_map(Step::Head),
        1 => (number(), number()).prop_map(|(at, value)| Step::Word(at & !63, value)),
        1 => (number(), 0..2000usize)
            .prop_map(|(at, bytes)| Step::Word(at & !63, word(at & !63, bytes))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn ring_survives_arbitrary_corruption(steps in prop::collection::vec(step(), 1..300)) {
        let mut ring = ring();
        for step in steps {
            match step {
                Step::Push(bytes) => {
                    push(&mut ring.writer, bytes);
                }
                Step::Take => {
                    if let Some(packet) = ring.reader.take() {
                        prop_assert!((1..=PACKET_BYTES_MAX).contains(&packet.bytes()));
                        // Reads every byte: a wrong length or place would cause a fault.
                        let sum: u64 = packet.data(0).iter().map(|byte| u64::from(*byte)).sum();
                        std::hint::black_box(sum);
                    }
                }
                Step::Free => {
                    ring.reader.free();
                }
                Step::Tail(position) => ring.wild.tail().store(position, Relaxed),
                Step::Head(position) => ring.wild.head().store(position, Relaxed),
                Step::Word(position, value) => ring.wild.word(position).store(value, Relaxed),
            }
        }
    }

    #[test]
    fn well_behaved_ends_pass_all_packets_in_any_order_of_steps(
        steps in prop::collection::vec((1..PACKET_BYTES_MAX, 0..4usize, any::<bool>()), 1..300),
    ) {
        let mut ring = ring();
        let mut expected = std::collections::VecDeque::new();
        for (bytes, takes, frees) in steps {
            match push(&mut ring.writer, bytes) {
                Pushed::Queued => expected.push_back(bytes),
                other => prop_assert_eq!(other, Pushed::Full),
            }
            for _ in 0..takes {
                let found = ring.reader.take().map(|packet| packet.bytes());
                prop_assert_eq!(found, expected.pop_front());
            }
            if frees {
                ring.reader.free();
            }
        }
        prop_assert!(!ring.reader.is_broken());
    }
}
