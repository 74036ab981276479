//! Neighbours that are none, or hand over invalid segments.

#![allow(clippy::unwrap_used)]

use super::card::{Card, Secret};
use super::exchange::{Exchange, Offer, Seat, connect_to, hand_over};
use super::layout::Layout;
use super::map::RingMap;
use super::segment::Segment;
use super::writer::Pushed;
use super::{Neighbours, NodeConfig};
use omnes_wire::{JobId, JobKey, Rank};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const KEY: JobKey = JobKey::new([12; 16]);
const RANKS: [Rank; 2] = [Rank(0), Rank(1)];
/// For ranks that are awaited in vain.
const BRIEFLY: Duration = Duration::from_millis(200);
/// For ranks that do connect.
const PATIENTLY: Duration = Duration::from_secs(20);

fn secret() -> Secret<'static> {
    let job = JobId(u32::from_be_bytes(crate::rendezvous::random().unwrap()));
    Secret { job, key: &KEY }
}

fn layout() -> Layout {
    Layout::new(1 << 18, 2).unwrap()
}

fn event() -> OwnedFd {
    super::wake::event().unwrap()
}

/// Runs the real rank 0.
fn meet(secret: Secret<'_>, timeout: Duration) -> Neighbours {
    let config = NodeConfig {
        job: secret.job,
        key: secret.key,
        me: Rank(0),
        ranks: &RANKS,
        packet_bytes_max: 9000,
        timeout,
    };
    Neighbours::meet(config).unwrap()
}

/// Rank 0's exchange, as strangers find it.
struct Door<'key> {
    secret: Secret<'key>,
    is_shut: AtomicBool,
}

impl Door<'_> {
    /// Connects to rank 0 as soon as it listens; `None` if it no longer does.
    fn connect(&self) -> Option<OwnedFd> {
        loop {
            match connect_to(&self.secret.name(Rank(0))) {
                Ok(connection) => return Some(connection),
                Err(_) if self.is_shut.load(Relaxed) => return None,
                Err(_) => std::thread::yield_now(),
            }
        }
    }

    /// The same, and hands over a card with descriptors.
    fn enter(&self, card: &[u8], descriptors: &[BorrowedFd<'_>]) -> Option<()> {
        hand_over(self.connect()?.as_fd(), card, descriptors).ok()
    }
}

/// Whether rank 0 accepts the process that runs `stranger` as rank 1; `None` if that was too late,
/// for instance on a busy machine. Rank 1 listens, and sends nothing.
fn is_taken_in(
    secret: Secret<'_>,
    timeout: Duration,
    stranger: impl FnOnce(&Door<'_>) -> Option<()> + Send,
) -> Option<bool> {
    let _listens = Exchange::open(secret, Rank(1)).unwrap();
    let door = Door { secret, is_shut: AtomicBool::new(false) };
    std::thread::scope(|scope| {
        let stranger = scope.spawn(|| stranger(&door));
        let is_taken = meet(secret, timeout).reaches(Rank(1));
        door.is_shut.store(true, Relaxed);
        stranger.join().unwrap().map(|()| is_taken)
    })
}

/// True if rank 0 does not accept this card with these descriptors.
fn is_refused(secret: Secret<'_>, card: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
    let try_for = |time| is_taken_in(secret, time, |door| door.enter(card, descriptors));
    [BRIEFLY, PATIENTLY].into_iter().find_map(try_for) == Some(false)
}

#[test]
fn unsafe_segments_are_rejected() {
    let secret = secret();
    let card = Card { from: Rank(1), to: Rank(0), layout: layout() }.emit(secret);
    let good = Segment::create(layout()).unwrap();
    let event = event();
    let descriptors = [good.fd(), event.as_fd()];
    let neighbour = |door: &Door<'_>| door.enter(&card, &descriptors);
    assert_eq!(is_taken_in(secret, PATIENTLY, neighbour), Some(true));
    let loose = memfd_create("loose", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&loose, layout().segment_bytes()).unwrap();
    assert!(is_refused(secret, &card, &[loose.as_fd(), event.as_fd()]), "it could shrink");
    let short = Segment::create(Layout::new(1 << 17, 2).unwrap()).unwrap();
    assert!(is_refused(secret, &card, &[short.fd(), event.as_fd()]), "it is too short");
    assert!(is_refused(secret, &card, &[event.as_fd(), good.fd()]), "it is no memory");
    assert!(is_refused(secret, &card, &[good.fd()]), "no event");
}

#[test]
fn cards_not_issued_by_the_neighbour_for_this_rank_are_rejected() {
    let (secret, event) = (secret(), event());
    let segment = Segment::create(layout()).unwrap();
    let descriptors = [segment.fd(), event.as_fd()];
    let card = |from, to, secret| Card { from, to, layout: layout() }.emit(secret);
    let other = Secret { job: JobId(!secret.job.0), ..secret };
    for (card, what) in [
        (card(Rank(1), Rank(0), other), "another job's"),
        (card(Rank(1), Rank(2), secret), "meant for another"),
        (card(Rank(0), Rank(0), secret), "its own"),
        (card(Rank(7), Rank(0), secret), "of a rank elsewhere"),
        ([0; 40], "no card"),
    ] {
        assert!(is_refused(secret, &card, &descriptors), "{what}");
    }
}

#[test]
fn silent_strangers_do_not_block_the_neighbour() {
    let (secret, event) = (secret(), event());
    let segment = Segment::create(layout()).unwrap();
    let card = Card { from: Rank(1), to: Rank(0), layout: layout() }.emit(secret);
    let many = |door: &Door<'_>| {
        let _silent: Option<Vec<OwnedFd>> = (0..100).map(|_| door.connect()).collect();
        door.enter(&card, &[segment.fd(), event.as_fd()])
    };
    assert_eq!(is_taken_in(secret, PATIENTLY, many), Some(true));
}

#[test]
fn other_users_are_rejected_even_with_the_key() {
    let (secret, event) = (secret(), event());
    let segment = Segment::create(layout()).unwrap();
    let card = Card { from: Rank(1), to: Rank(0), layout: layout() }.emit(secret);
    let is_other = AtomicBool::new(true);
    let other = |door: &Door<'_>| {
        let nobody = rustix::process::Uid::from_raw(65_534);
        // Only for this thread, which ends.
        let became = rustix::thread::set_thread_res_uid(nobody, nobody, nobody);
        is_other.store(became.is_ok(), Relaxed);
        became.ok()?;
        // The connection may be closed before the stranger has sent a byte.
        let connection = door.connect()?;
        let _ = hand_over(connection.as_fd(), &card, &[segment.fd(), event.as_fd()]);
        Some(())
    };
    let mut is_taken = is_taken_in(secret, BRIEFLY, other);
    if !is_other.load(Relaxed) {
        eprintln!("skipped: needs the right to become another user");
        return;
    }
    // If the stranger was too late, for instance on a busy machine, that shows nothing.
    is_taken = is_taken.or_else(|| is_taken_in(secret, PATIENTLY, other));
    assert_eq!(is_taken, Some(false));
}

/// The exchange ends in spite of them, at its time limit.
#[test]
fn connection_flood_by_other_users_does_not_prolong_the_exchange() {
    let flood = |door: &Door<'_>| {
        let nobody = rustix::process::Uid::from_raw(65_534);
        // Only for these threads, which end.
        if rustix::thread::set_thread_res_uid(nobody, nobody, nobody).is_err() {
            eprintln!("skipped: needs the right to become another user");
            return None;
        }
        while door.connect().is_some() {}
        Some(())
    };
    let floods = |door: &Door<'_>| {
        std::thread::scope(|scope| {
            let others = [(); 3].map(|()| scope.spawn(|| flood(door)));
            others.into_iter().map(|other| other.join().unwrap()).last()?
        })
    };
    assert_ne!(is_taken_in(secret(), BRIEFLY, floods), Some(true));
}

#[test]
fn neighbour_that_corrupts_its_outgoing_ring_is_reported_once() {
    let secret = secret();
    let (segment, wake_event) = (Segment::create(layout()).unwrap(), event());
    let (mut table, seats) = std::thread::scope(|scope| {
        let neighbour = scope.spawn(|| {
            let offer =
                Offer { layout: layout(), segment: segment.fd(), event: wake_event.as_fd() };
            Exchange::open(secret, Rank(1)).unwrap().run(&RANKS[..1], offer, PATIENTLY)
        });
        (meet(secret, PATIENTLY), neighbour.join().unwrap())
    });
    let [Seat { segment, layout, .. }] = <[Seat; 1]>::try_from(seats).ok().unwrap();
    assert_eq!((table.receive(1, |_| {}), table.take_unheard()), (0, None));
    let spoilt = Segment::adopt(segment, layout).unwrap().ring(1).unwrap();
    spoilt.tail().store(u64::MAX / 3, Relaxed);
    assert_eq!(table.receive(1, |_| {}), 0);
    assert_eq!((table.take_unheard(), table.counters().broken), (Some(Rank(1)), 1));
    assert_eq!((table.receive(1, |_| {}), table.take_unheard()), (0, None));
}

#[test]
fn neighbour_that_corrupts_its_incoming_ring_is_reached_by_udp() {
    let secret = secret();
    let segment = Segment::create(layout()).unwrap();
    let wake_event = event();
    let mut table = std::thread::scope(|scope| {
        scope.spawn(|| {
            let offer =
                Offer { layout: layout(), segment: segment.fd(), event: wake_event.as_fd() };
            let exchange = Exchange::open(secret, Rank(1)).unwrap();
            assert_eq!(exchange.run(&RANKS[..1], offer, PATIENTLY).len(), 1);
        });
        meet(secret, PATIENTLY)
    });
    assert!(table.reaches(Rank(1)));
    let spoilt: RingMap = segment.ring(0).unwrap();
    spoilt.head().store(u64::MAX / 3, Relaxed);
    let packet = [0u8; 1000];
    let part = libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
    let mut pushes = 0;
    while table.reaches(Rank(1)) {
        // SAFETY: the packet outlives the call.
        let pushed = unsafe { table.push(Rank(1), &[part]) };
        table.publish();
        pushes += 1;
        assert!(pushed != Pushed::Full && pushes <= (1 << 18) / 1024 + 1);
    }
    assert_eq!((table.counters().broken, table.counters().full), (1, 0));
    table.publish();
}
