//! Rings between threads and between processes, on real shared memory.

#![allow(clippy::unwrap_used)]

use super::layout::Layout;
use super::reader::RingReader;
use super::segment::Segment;
use super::wake::{WakeEvent, Waker, order};
use super::writer::{Pushed, RingWriter};
use super::{Neighbours, NodeConfig};
use omnes_wire::{JobId, JobKey, Rank};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::hint::spin_loop;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

const KEY: JobKey = JobKey::new([11; 16]);
const PACKET_BYTES_MAX: usize = 8960;
const CAPACITY_BYTES: usize = 64 << 10;

/// A segment with one ring, and both its ends.
fn ring() -> (Segment, RingWriter, RingReader) {
    let segment = Segment::create(Layout::new(CAPACITY_BYTES, 1).unwrap()).unwrap();
    let writer = RingWriter::new(segment.ring(0).unwrap());
    let reader = RingReader::new(segment.ring(0).unwrap(), PACKET_BYTES_MAX);
    (segment, writer, reader)
}

fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

fn push(writer: &mut RingWriter, packet: &[u8]) -> Pushed {
    // SAFETY: the slices outlive the call.
    let pushed = unsafe {
        let (head, data) = packet.split_at(packet.len() / 3);
        writer.push(&[part(head), part(data)])
    };
    writer.publish();
    pushed
}

fn take(reader: &mut RingReader) -> Option<Vec<u8>> {
    let packet = reader.take().map(|packet| packet.data(0).to_vec());
    reader.free();
    packet
}

/// Packet `number` of a stream in which length and bytes identify each packet.
fn packet(number: u64) -> Vec<u8> {
    let bytes = 1 + (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % PACKET_BYTES_MAX;
    (0..bytes).map(|at| (number as usize).wrapping_mul(31).wrapping_add(at) as u8).collect()
}

/// Sleeps until the descriptor is readable; false if it was not within ten seconds.
fn sleep(event: impl AsFd) -> bool {
    let most = Timespec { tv_sec: 10, tv_nsec: 0 };
    poll(&mut [PollFd::new(&event, PollFlags::IN)], Some(&most)).unwrap() == 1
}

/// Makes the descriptor unreadable again.
fn quieten(event: impl AsFd) {
    rustix::io::read(event, &mut [0; 8]).unwrap();
}

// ---- one ring -----------------------------------------------------------------------------

#[test]
fn packets_arrive_whole_and_in_order_over_many_wraps_of_the_ring() {
    let (_segment, mut writer, mut reader) = ring();
    assert_eq!(take(&mut reader), None);
    for number in 0..1000 {
        assert_eq!(push(&mut writer, &packet(number)), Pushed::Queued);
        assert_eq!(take(&mut reader), Some(packet(number)));
        assert_eq!(take(&mut reader), None);
    }
}

#[test]
fn unpublished_packet_is_not_visible_to_the_reader() {
    let (_segment, mut writer, mut reader) = ring();
    // SAFETY: the slice outlives the call.
    assert_eq!(unsafe { writer.push(&[part(b"early")]) }, Pushed::Queued);
    assert_eq!(take(&mut reader), None);
    assert!(writer.publish() && !writer.publish());
    assert_eq!(take(&mut reader), Some(b"early".to_vec()));
}

#[test]
fn full_ring_accepts_no_packets_until_space_is_freed() {
    let (_segment, mut writer, mut reader) = ring();
    let record = [7; 1016]; // 1,024 bytes with its word.
    let room = CAPACITY_BYTES / 1024;
    for _ in 0..room {
        assert_eq!(push(&mut writer, &record), Pushed::Queued);
    }
    assert_eq!(push(&mut writer, &record), Pushed::Full);
    assert_eq!(push(&mut writer, b"x"), Pushed::Full, "not a byte is left");
    assert_eq!(reader.take().map(|packet| packet.bytes()), Some(1016));
    assert_eq!(push(&mut writer, &record), Pushed::Full, "taken, but still in use");
    assert!(reader.free());
    assert_eq!(push(&mut writer, &record), Pushed::Queued);
    assert_eq!((0..room).filter_map(|_| take(&mut reader)).count(), room);
    assert!(reader.is_empty());
}

#[test]
fn packet_head_is_copied_up_to_the_packet_length() {
    let (_segment, mut writer, mut reader) = ring();
    push(&mut writer, b"head and data");
    let packet = reader.take().unwrap();
    assert_eq!(packet.copy_head(&mut [0; 4]), b"head");
    assert_eq!(packet.copy_head(&mut [0; 100]), b"head and data");
    assert_eq!((packet.data(9), packet.data(13)), (&b"data"[..], &b""[..]));
}

#[test]
fn two_threads_pass_packets_at_full_speed() {
    const PACKETS: u64 = 30_000;
    let (_segment, mut writer, mut reader) = ring();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..PACKETS {
                while push(&mut writer, &packet(number)) == Pushed::Full {
                    std::thread::yield_now();
                }
            }
        });
        for number in 0..PACKETS {
            let expected = packet(number);
            loop {
                if let Some(found) = reader.take() {
                    assert!(found.data(0) == expected, "packet {number}");
                    break;
                }
                reader.free();
                std::thread::yield_now();
            }
            if number % 5 == 0 {
                reader.free();
            }
        }
    });
}

// ---- sleeping -----------------------------------------------------------------------------

#[test]
fn reader_that_is_not_sleeping_is_not_woken() {
    let (segment, mut writer, mut reader) = ring();
    let wake_event = WakeEvent::new(segment.fd(), segment.layout()).unwrap();
    let event = rustix::io::dup(wake_event.event()).unwrap();
    let waker = Waker::new(segment.fd(), segment.layout(), event).unwrap();
    push(&mut writer, b"one");
    assert!(!waker.wake());
    take(&mut reader);
    wake_event.arm();
    assert!(reader.is_empty());
    push(&mut writer, b"two");
    assert!(waker.wake() && !waker.wake(), "woken once");
    assert!(sleep(wake_event.event()));
    quieten(wake_event.event());
    wake_event.arm();
    wake_event.disarm();
    assert!(!waker.wake());
}

/// The reader sleeps for every packet, and the writer waits for every packet to be taken: each
/// round is a race between going to sleep and being woken, and a lost wake-up ends the test.
#[test]
fn no_wake_up_is_lost() {
    const ROUNDS: u64 = 20_000;
    let (segment, mut writer, mut reader) = ring();
    let wake_event = WakeEvent::new(segment.fd(), segment.layout()).unwrap();
    let event = rustix::io::dup(wake_event.event()).unwrap();
    let waker = Waker::new(segment.fd(), segment.layout(), event).unwrap();
    let taken = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..ROUNDS {
                // A different moment in each round.
                (0..number % 97).for_each(|_| spin_loop());
                push(&mut writer, &number.to_be_bytes());
                order();
                waker.wake();
                while taken.load(SeqCst) <= number {
                    std::thread::yield_now();
                }
            }
        });
        for number in 0..ROUNDS {
            loop {
                wake_event.arm();
                if reader.is_empty() {
                    assert!(sleep(wake_event.event()), "round {number}: nobody woke it");
                    quieten(wake_event.event());
                }
                wake_event.disarm();
                if let Some(packet) = take(&mut reader) {
                    assert_eq!(packet, number.to_be_bytes());
                    break;
                }
            }
            taken.store(number + 1, SeqCst);
        }
    });
}

/// The race itself, many times over without the cost of sleeping: the reader may sleep or is woken,
/// or both, but never neither. Fails within some thousand rounds without the fences.
#[test]
fn reader_that_misses_a_packet_before_sleeping_is_always_woken() {
    const ROUNDS: u64 = 60_000;
    if std::thread::available_parallelism().unwrap().get() < 2 {
        eprintln!("skipped: needs two cores");
        return;
    }
    let (segment, mut writer, mut reader) = ring();
    let wake_event = WakeEvent::new(segment.fd(), segment.layout()).unwrap();
    let event = rustix::io::dup(wake_event.event()).unwrap();
    let waker = Waker::new(segment.fd(), segment.layout(), event).unwrap();
    let (started, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    let wait_for = |turn: &AtomicU64, number: u64| {
        let mut looks = 0u32;
        while turn.load(SeqCst) < number {
            looks += 1;
            // The other thread may need this very core.
            if looks.is_multiple_of(1000) { std::thread::yield_now() } else { spin_loop() }
        }
    };
    std::thread::scope(|scope| {
        let woken = scope.spawn(|| {
            let mut woken = Vec::with_capacity(ROUNDS as usize);
            for number in 1..=ROUNDS {
                wait_for(&started, number);
                push(&mut writer, b"new");
                order();
                woken.push(waker.wake());
                ended.store(number, SeqCst);
            }
            woken
        });
        let mut may_sleep = Vec::with_capacity(ROUNDS as usize);
        for number in 1..=ROUNDS {
            started.store(number, SeqCst);
            // A different moment in each round, about as late as the other thread takes to notice.
            (0..number % 64).for_each(|_| spin_loop());
            wake_event.arm();
            may_sleep.push(reader.is_empty());
            wait_for(&ended, number);
            wake_event.disarm();
            assert_eq!(take(&mut reader), Some(b"new".to_vec()));
        }
        let woken = woken.join().unwrap();
        for (number, (may_sleep, woken)) in may_sleep.iter().zip(&woken).enumerate() {
            assert!(!may_sleep || *woken, "round {number}");
        }
        if !may_sleep.contains(&false) || !woken.contains(&true) {
            eprintln!("there was no race: other processes keep the cores busy");
        }
    });
}

// ---- several ranks ------------------------------------------------------------------------

fn meet(job: u32, ranks: &[Rank], me: Rank, timeout: Duration) -> Neighbours {
    let config = NodeConfig {
        job: JobId(job),
        key: &KEY,
        me,
        ranks,
        packet_bytes_max: PACKET_BYTES_MAX,
        timeout,
    };
    Neighbours::meet(config).unwrap()
}

/// A job number that no other test of this machine uses at present.
fn own_job() -> u32 {
    u32::from_be_bytes(crate::rendezvous::random().unwrap())
}

/// Sends to `to`, and retries while its ring is full.
fn send(table: &mut Neighbours, to: Rank, bytes: &[u8]) {
    // SAFETY: the slice outlives the call.
    while unsafe { table.push(to, &[part(bytes)]) } == Pushed::Full {
        table.publish();
        std::thread::yield_now();
    }
    table.publish();
}

/// Waits for packets of any neighbour, sleeping; returns one of each that has sent some.
fn wait(table: &mut Neighbours) -> Vec<Vec<u8>> {
    let (until, waker) = (Instant::now() + Duration::from_secs(20), table.waker().unwrap());
    let mut got = Vec::new();
    while got.is_empty() {
        assert!(Instant::now() < until, "nothing came");
        if table.arm() {
            assert!(sleep(&waker));
            quieten(&waker);
            table.disarm();
        }
        table.receive(1, |packet| got.push(packet.data(0).to_vec()));
    }
    got
}

#[test]
fn ranks_of_a_node_reach_each_other_and_nobody_else() {
    let (job, ranks) = (own_job(), [Rank(2), Rank(3), Rank(7)]);
    std::thread::scope(|scope| {
        for me in ranks {
            scope.spawn(move || {
                let mut table = meet(job, &ranks, me, Duration::from_secs(20));
                let others: Vec<Rank> = ranks.into_iter().filter(|rank| *rank != me).collect();
                assert_eq!(table.reached().collect::<Vec<_>>(), others);
                assert!(!table.reaches(me) && !table.reaches(Rank(0)) && !table.reaches(Rank(99)));
                for to in &others {
                    send(&mut table, *to, format!("{me} to {to}").as_bytes());
                }
                let mut got = wait(&mut table);
                while got.len() < others.len() {
                    got.extend(wait(&mut table));
                }
                got.sort();
                let said = others.iter().map(|other| format!("{other} to {me}").into_bytes());
                assert_eq!(got, said.collect::<Vec<_>>());
                assert!(others.iter().all(|other| table.hears(*other)) && !table.hears(me));
                let counters = *table.counters();
                assert_eq!((counters.packets_sent, counters.packets_received), (2, 2));
                assert_eq!((counters.full, counters.broken), (0, 0));
            });
        }
    });
}

#[test]
fn missing_rank_does_not_keep_the_others_from_meeting() {
    let (job, ranks) = (own_job(), [Rank(0), Rank(1), Rank(2)]);
    std::thread::scope(|scope| {
        for me in [Rank(0), Rank(1)] {
            scope.spawn(move || {
                let table = meet(job, &ranks, me, Duration::from_millis(300));
                assert!(table.reaches(Rank(1 - me.0)) && !table.reaches(Rank(2)));
            });
        }
    });
}

#[test]
fn ranks_of_other_jobs_of_the_same_user_do_not_meet() {
    let ranks = [Rank(0), Rank(1)];
    std::thread::scope(|scope| {
        for (me, job) in ranks.into_iter().zip([own_job(), own_job()]) {
            scope.spawn(move || {
                let table = meet(job, &ranks, me, Duration::from_millis(200));
                assert_eq!(table.reached().count(), 0);
            });
        }
    });
}

#[test]
fn rank_alone_on_its_node_has_no_rings_and_may_sleep() {
    let mut table = meet(own_job(), &[Rank(4)], Rank(4), Duration::ZERO);
    assert!(table.waker().is_ok() && table.arm() && table.is_empty());
    table.disarm();
}

/// Of two threads that sleep, the first to wake takes the wake-up; the second must still be woken
/// for later packets, and for packets that the first leaves.
#[test]
fn second_sleeping_thread_of_a_rank_is_still_woken() {
    let (job, ranks) = (own_job(), [Rank(0), Rank(1)]);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| meet(job, &ranks, Rank(1), Duration::from_secs(20)));
        let mut table = meet(job, &ranks, Rank(0), Duration::from_secs(20));
        let mut writer = writer.join().unwrap();
        assert!(table.arm() && table.arm());
        let woken = |writer: &mut Neighbours| {
            let before = writer.counters().wakes;
            send(writer, Rank(0), b"news");
            writer.counters().wakes - before
        };
        assert_eq!((woken(&mut writer), woken(&mut writer)), (1, 0));
        table.disarm();
        assert!(table.leaves_sleepers());
        assert_eq!(woken(&mut writer), 1);
        assert_eq!(table.receive(10, |_| {}), 3);
        assert!(!table.leaves_sleepers());
        table.disarm();
        assert_eq!(woken(&mut writer), 0);
        assert!(!table.arm() && !table.leaves_sleepers(), "there is a packet, and nobody sleeps");
    });
}

// ---- two processes ------------------------------------------------------------------------

const JOB_VARIABLE: &str = "OMNES_TEST_RING_JOB";
const ECHOES: u64 = 2_000;

/// The other process of the tests below: echoes packets of rank 0, or ends without farewell in the
/// middle.
#[test]
#[ignore = "runs in the process that the tests below start"]
fn other_process() {
    let Some(job) = std::env::var(JOB_VARIABLE).ok().and_then(|job| job.parse().ok()) else {
        return;
    };
    let mut table = meet(job, &[Rank(0), Rank(1)], Rank(1), Duration::from_secs(20));
    for _ in 0..ECHOES {
        let said = wait(&mut table).remove(0);
        if said == b"die" {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
        }
        send(&mut table, Rank(0), &said);
    }
}

fn start_other(job: u32) -> std::process::Child {
    let arguments = ["--exact", "ring::tests::other_process", "--ignored", "--test-threads=1"];
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(arguments)
        .env(JOB_VARIABLE, job.to_string())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn two_processes_pass_packets_back_and_forth() {
    let job = own_job();
    let mut other = start_other(job);
    let mut table = meet(job, &[Rank(0), Rank(1)], Rank(0), Duration::from_secs(20));
    assert!(table.reaches(Rank(1)));
    for number in 0..ECHOES {
        send(&mut table, Rank(1), &packet(number));
        assert!(wait(&mut table) == [packet(number)], "packet {number}");
    }
    assert!(other.wait().unwrap().success());
}

#[test]
fn killed_rank_leaves_no_socket_names_and_does_not_break_its_ring() {
    let job = own_job();
    let mut other = start_other(job);
    let mut table = meet(job, &[Rank(0), Rank(1)], Rank(0), Duration::from_secs(20));
    send(&mut table, Rank(1), b"die");
    assert!(!other.wait().unwrap().success());
    // Its segment is still mapped here: writing to it continues until it is full, and no further.
    let mut pushed = Pushed::Queued;
    for _ in 0..10_000 {
        // SAFETY: the slice outlives the call.
        pushed = unsafe { table.push(Rank(1), &[part(&[1; 1000])]) };
        table.publish();
    }
    assert_eq!(pushed, Pushed::Full);
    assert!(table.is_empty() && table.counters().broken == 0);
    let names = std::fs::read_to_string("/proc/net/unix").unwrap();
    let secret = super::card::Secret { job: JobId(job), key: &KEY };
    assert!([Rank(0), Rank(1)].iter().all(|rank| !names.contains(&secret.name(*rank))));
}
