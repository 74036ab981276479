//! Memory ordering between the two ends of a ring, on memory that threads share without a file, so
//! that these tests run in Miri, which also shows what weakly ordered processors may do, and with
//! ThreadSanitizer, for which two mappings are different memories: `cargo xtask sanitize`.

#![allow(clippy::unwrap_used)]

use super::layout::record_bytes;
use super::map::{BoardMap, RingMap};
use super::reader::RingReader;
use super::wake::{WakeEvent, Waker, order};
use super::writer::{Pushed, RingWriter};
use std::hint::spin_loop;
use std::sync::Barrier;

const PACKET_BYTES_MAX: usize = 200;
/// A few packets: most extend to the end of the ring, or beyond it.
const CAPACITY_BYTES: usize = 512;

/// Few rounds in Miri, which runs each test with many seeds.
const fn rounds(otherwise: u64) -> u64 {
    if cfg!(miri) { 12 } else { otherwise }
}

/// Both ends of a ring.
fn ring() -> (RingWriter, RingReader) {
    let map = RingMap::private(CAPACITY_BYTES).unwrap();
    (RingWriter::new(map.clone()), RingReader::new(map, PACKET_BYTES_MAX))
}

/// The wake event of a rank, and the wakers of its neighbours.
fn wakers<const COUNT: usize>() -> (WakeEvent, [Waker; COUNT]) {
    let board = BoardMap::private().unwrap();
    let sleeper = WakeEvent::of(board.clone()).unwrap();
    let waker = |_| Waker::of(board.clone(), rustix::io::dup(sleeper.event()).unwrap());
    let wakers = std::array::from_fn(waker);
    (sleeper, wakers)
}

fn push(writer: &mut RingWriter, packet: &[u8]) -> Pushed {
    let part = libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
    // SAFETY: the packet outlives the call.
    unsafe { writer.push(&[part]) }
}

/// Packet `number` of a stream in which length and bytes identify each packet.
fn packet(number: u64) -> Vec<u8> {
    let bytes = 1 + (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % PACKET_BYTES_MAX;
    vec![number as u8; bytes]
}

/// Pushes the packets of a stream, one or two at a time, and calls `publish` each time.
fn write(writer: &mut RingWriter, packets: u64, publish: impl Fn(&mut RingWriter)) {
    for number in 0..packets {
        while push(writer, &packet(number)) == Pushed::Full {
            publish(writer);
            std::thread::yield_now();
        }
        if number % 3 != 0 {
            publish(writer);
        }
    }
    publish(writer);
}

#[test]
fn published_packets_are_whole_and_freed_space_has_been_read() {
    let packets = rounds(20_000);
    let (mut writer, mut reader) = ring();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            write(&mut writer, packets, |writer| {
                writer.publish();
            });
        });
        let mut number = 0;
        while number < packets {
            match reader.take() {
                Some(found) => {
                    assert!(found.data(0) == packet(number), "packet {number}");
                    number += 1;
                }
                None => std::thread::yield_now(),
            }
            // A ring that is empty for this end may be full for the other.
            if number % 2 == 0 || reader.is_empty() {
                reader.free();
            }
        }
    });
    assert!(reader.is_empty() && !reader.is_broken());
}

/// The race between going to sleep and being woken, without the sleep: the reader may sleep or is
/// woken, or both, but never neither.
#[test]
fn race_between_sleep_and_publish_never_misses_a_wake_up() {
    let rounds = rounds(20_000);
    let (mut writer, mut reader) = ring();
    let (sleeper, [waker]) = wakers();
    let (start, end) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        let woken = scope.spawn(|| {
            let mut woken = Vec::new();
            for _ in 0..rounds {
                start.wait();
                push(&mut writer, b"new");
                writer.publish();
                order();
                woken.push(waker.wake());
                end.wait();
            }
            woken
        });
        let mut may_sleep = Vec::new();
        for round in 0..rounds {
            start.wait();
            // A different moment in each round.
            (0..round % 64).for_each(|_| spin_loop());
            sleeper.arm();
            may_sleep.push(reader.is_empty());
            end.wait();
            sleeper.disarm();
            assert_eq!(reader.take().map(|packet| packet.bytes()), Some(3));
            reader.free();
        }
        let woken = woken.join().unwrap();
        assert!(may_sleep.iter().zip(&woken).all(|(may_sleep, woken)| !may_sleep || *woken));
    });
}

/// Two neighbours write at will, and the reader sleeps whenever it may: once both have ended, no
/// packet is left for which the reader was not woken.
#[test]
fn no_wake_up_is_lost_with_two_writers() {
    let packets = rounds(5_000);
    let (sleeper, wakers) = wakers::<2>();
    let (writers, mut readers): (Vec<_>, Vec<_>) = (0..2).map(|_| ring()).unzip();
    std::thread::scope(|scope| {
        let start = |(mut writer, waker): (RingWriter, Waker)| {
            scope.spawn(move || {
                write(&mut writer, packets, |writer| {
                    if writer.publish() {
                        order();
                        waker.wake();
                    }
                });
            })
        };
        let threads: Vec<_> = writers.into_iter().zip(wakers).map(start).collect();
        let mut taken = 0;
        while taken < 2 * packets {
            sleeper.arm();
            if readers.iter().all(RingReader::is_empty) {
                // As long as `poll` would last.
                loop {
                    let is_over = threads.iter().all(|thread| thread.is_finished());
                    if rustix::io::read(sleeper.event(), &mut [0; 8]).is_ok() {
                        break;
                    }
                    assert!(!is_over, "nobody woke it, {taken} packets were taken");
                    std::thread::yield_now();
                }
            }
            sleeper.disarm();
            for reader in &mut readers {
                while reader.take().is_some() {
                    taken += 1;
                }
                reader.free();
            }
        }
    });
}

#[test]
fn packets_that_wrap_around_the_ring_are_contiguous() {
    let (mut writer, mut reader) = ring();
    for number in 0..20 {
        assert_eq!(push(&mut writer, &packet(number)), Pushed::Queued);
        assert!(record_bytes(packet(number).len()) <= CAPACITY_BYTES / 2 && writer.publish());
        assert!(reader.take().unwrap().data(0) == packet(number));
        reader.free();
    }
}
