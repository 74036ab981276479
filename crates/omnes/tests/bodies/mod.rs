//! Promises that hold on every network, one body per promise; each is run as every rank of a job.
//!
//! The same bodies run as threads over loopback (`tests/loopback`) and as processes under any
//! launcher (`examples/conformance.rs`), there also with loss, delay and other links. A body works
//! for any number of ranks, asserts its results, and leaves no message behind, so that bodies can
//! follow each other on one communicator. Ranks without a partner take no part.
//!
//! [`mixes`] has the bodies about many messages in flight, [`casts`] those about broadcasts,
//! [`reductions`] those about reductions, gathers and scatters, [`scans`] those about prefixes,
//! [`nonblocking`] those about nonblocking reductions and gathers.

mod casts;
mod mixes;
mod nonblocking;
mod reductions;
mod scans;

use omnes::{BarrierAlgorithm, Communicator, Error, Source, Status, Tag};
use std::fmt::Display;
use std::time::{Duration, Instant};

/// One promise.
pub struct Body {
    /// Its name, as given on the command line.
    pub name: &'static str,
    /// Checks the promise; no message is longer than the number of bytes given.
    pub run: fn(&Communicator, usize),
}

/// All bodies, in the order in which they are run.
pub const ALL: &[Body] = &[
    Body { name: "sizes", run: sizes },
    Body { name: "unexpected", run: unexpected },
    Body { name: "probed", run: probed },
    Body { name: "itself", run: itself },
    Body { name: "truncation", run: truncation },
    Body { name: "schemes", run: casts::every_scheme },
    Body { name: "back-to-back", run: casts::back_to_back },
    Body { name: "all-roots", run: casts::all_roots },
    Body { name: "outstanding", run: casts::outstanding },
    Body { name: "late-rank", run: casts::late_rank },
    Body { name: "owned", run: casts::owned },
    Body { name: "passed-on", run: casts::passed_on },
    Body { name: "parts", run: casts::parts },
    Body { name: "late-slots", run: casts::late_slots },
    Body { name: "slot-during-message", run: casts::slot_during_message },
    Body { name: "roots", run: roots },
    Body { name: "barriers", run: barriers },
    Body { name: "split", run: split },
    Body { name: "interleaved", run: interleaved },
    Body { name: "refusals", run: refusals },
    Body { name: "allreduce", run: reductions::allreduce },
    Body { name: "words", run: reductions::words },
    Body { name: "reduce", run: reductions::reduce },
    Body { name: "reduce-scatter", run: reductions::reduce_scatter },
    Body { name: "same-bits", run: reductions::same_bits },
    Body { name: "own-operation", run: reductions::own_operation },
    Body { name: "scans", run: scans::scans },
    Body { name: "scans-of-parts", run: scans::parts },
    Body { name: "gathers", run: reductions::gathers },
    Body { name: "varied-gathers", run: reductions::varied_gathers },
    Body { name: "gathers-of-parts", run: reductions::parts },
    Body { name: "remainders", run: reductions::remainders },
    Body { name: "refused-reductions", run: reductions::refusals },
    Body { name: "refused-lengths", run: reductions::refused_lengths },
    Body { name: "started", run: nonblocking::each },
    Body { name: "started-parts", run: nonblocking::varied },
    Body { name: "started-many", run: nonblocking::outstanding },
    Body { name: "started-behind", run: nonblocking::behind_another_wait },
    Body { name: "threads", run: threads },
    Body { name: "mix", run: mixes::mix },
    Body { name: "out-of-order", run: mixes::out_of_order },
    Body { name: "both-ways", run: mixes::both_ways },
    Body { name: "incast", run: mixes::incast },
    Body { name: "burst", run: mixes::burst },
    Body { name: "flood", run: mixes::flood },
];

/// Longest message by default.
pub const BYTES_MAX: usize = 3_000_000;

const SIZES: [usize; 9] = [0, 1, 1000, 1416, 9000, 65_536, 131_072, 131_073, BYTES_MAX];

/// Bytes that differ by position and by seed, without a period: misplaced data are detected.
pub fn pattern(bytes: usize, seed: u32) -> Vec<u8> {
    let word = |at: u64| {
        let mixed = (at ^ u64::from(seed) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 7).to_le_bytes()
    };
    let mut data: Vec<u8> = (0..bytes.div_ceil(8) as u64).flat_map(word).collect();
    data.truncate(bytes);
    data
}

/// Panics with the difference if `got` is not what was sent.
pub fn assert_same(got: &[u8], sent: &[u8], what: impl Display) {
    if got == sent {
        return;
    }
    let mut wrong = (0..sent.len().min(got.len())).filter(|at| got[*at] != sent[*at]);
    let first = wrong.next().unwrap_or(sent.len().min(got.len()));
    let excerpt = |bytes: &[u8]| bytes[first..].iter().take(16).copied().collect::<Vec<u8>>();
    panic!(
        "{what}: {} bytes sent, {} got, {} wrong from {first} on: {:?} instead of {:?}",
        sent.len(),
        got.len(),
        1 + wrong.count(),
        excerpt(got),
        excerpt(sent),
    );
}

/// The other rank of this rank's pair, if it has one.
pub fn partner(comm: &Communicator) -> Option<u32> {
    Some(comm.rank() ^ 1).filter(|rank| *rank < comm.size())
}

fn sizes(comm: &Communicator, bytes_max: usize) {
    let Some(peer) = partner(comm) else { return };
    for (round, bytes) in (0..).zip(SIZES.map(|bytes| bytes.min(bytes_max))) {
        let data = pattern(bytes, round + comm.rank().min(peer));
        let mut back = vec![0; bytes];
        if comm.rank() < peer {
            comm.send(peer, round, &data).unwrap();
            let status = comm.recv(peer, Tag::Any, &mut back).unwrap();
            assert_eq!((status.source, status.tag, status.bytes), (peer, round, bytes));
            assert_same(&back, &data, "what came back");
        } else {
            let status = comm.recv(Source::Any, round, &mut back).unwrap();
            assert_eq!((status.source, status.bytes), (peer, bytes));
            comm.send(peer, round, &back).unwrap();
        }
    }
}

fn unexpected(comm: &Communicator, bytes_max: usize) {
    let Some(peer) = partner(comm) else { return };
    let bytes = 400_000.min(bytes_max);
    let data = pattern(bytes, 1);
    if comm.rank() < peer {
        comm.scope(|scope| {
            let _ = scope.isend(peer, 1, &data).unwrap();
            let _ = scope.isend(peer, 2, &data[..100]).unwrap();
            let _ = scope.isend(peer, 3, &data[..5000]).unwrap();
        });
        return;
    }
    // Out of order: the large message must not block the others.
    let mut small = [0; 100];
    comm.recv(peer, 2, &mut small).unwrap();
    let mut medium = vec![0; 5000];
    comm.recv(peer, 3, &mut medium).unwrap();
    let mut large = vec![0; bytes];
    comm.recv(peer, 1, &mut large).unwrap();
    assert_same(&large, &data, "the large one");
    assert_same(&small, &data[..100], "the small one");
    assert_same(&medium, &data[..5000], "the medium one");
}

/// A receive gets what a probe has reported, and a probe takes no message.
fn probed(comm: &Communicator, bytes_max: usize) {
    let Some(peer) = partner(comm) else { return };
    let own = comm.rank();
    let lengths = [(4, 400_000.min(bytes_max)), (5, 0), (6, 1000)];
    let receive = |found: Status, seed| {
        let mut message = vec![0; found.bytes];
        assert_eq!(comm.recv(found.source, found.tag, &mut message).unwrap(), found);
        assert_same(&message, &pattern(found.bytes, seed), "what was probed");
    };
    assert_eq!(comm.iprobe(Source::Any, 7).unwrap(), None);
    let sent = lengths.map(|(tag, bytes)| (tag, pattern(bytes, tag + own)));
    comm.scope(|scope| {
        for (tag, data) in &sent {
            let _ = scope.isend(peer, *tag, data).unwrap();
        }
        // The last first: the messages before it must not block it.
        for (tag, bytes) in lengths.into_iter().rev() {
            let found = comm.probe(peer, tag).unwrap();
            assert_eq!((found.source, found.tag, found.bytes), (peer, tag, bytes));
            assert_eq!(comm.iprobe(Source::Any, tag).unwrap(), Some(found));
            receive(found, tag + peer);
            assert_eq!(comm.iprobe(peer, tag).unwrap(), None);
        }
        let _ = scope.isend(own, 8, &sent[2].1).unwrap();
        let found = comm.probe(Source::Any, 8).unwrap();
        assert_eq!((found.source, found.bytes), (own, 1000));
        receive(found, 6 + own);
    });
    assert!(matches!(comm.probe(comm.size(), 0), Err(Error::RankOutOfRange { .. })));
}

fn itself(comm: &Communicator, bytes_max: usize) {
    let me = comm.rank();
    let data = pattern(200_000.min(bytes_max), me);
    let mut back = vec![0; data.len()];
    let mut any = [0; 3];
    comm.scope(|scope| {
        let first = scope.irecv(me, 5, &mut back).unwrap();
        let second = scope.irecv(Source::Any, 6, &mut any).unwrap();
        let _ = scope.isend(me, 5, &data).unwrap();
        let _ = scope.isend(me, 6, &[1, 2, 3]).unwrap();
        assert_eq!(first.wait().unwrap().source, me);
        assert_eq!(second.wait().unwrap().source, me);
    });
    assert_same(&back, &data, "a rank's own message");
    assert_eq!(any, [1, 2, 3]);
}

fn truncation(comm: &Communicator, bytes_max: usize) {
    let Some(peer) = partner(comm) else { return };
    let lengths = [(1, 5000.min(bytes_max)), (2, 300_000.min(bytes_max))];
    for (tag, bytes) in lengths {
        if comm.rank() < peer {
            comm.send(peer, tag, &pattern(bytes, 1)).unwrap();
            continue;
        }
        let mut short = [0; 999];
        match comm.recv(peer, tag, &mut short) {
            Err(Error::Truncated { bytes: got, capacity: 999 }) => assert_eq!(got, bytes as u64),
            other => panic!("{other:?}"),
        }
        assert_same(&short, &pattern(999, 1), "the part that fits");
    }
}

/// Consecutive broadcasts without barriers in between, each from another root.
fn roots(comm: &Communicator, bytes_max: usize) {
    for round in 0..60 {
        let root = round * 7 % comm.size();
        let bytes = [8, 3000, 70_000][round as usize % 3].min(bytes_max);
        let data = pattern(bytes, round);
        let mut buffer = if comm.rank() == root { data.clone() } else { vec![0; bytes] };
        comm.bcast(root, &mut buffer).unwrap();
        assert_same(&buffer, &data, format_args!("broadcast {round} from {root}"));
    }
}

/// In each round one rank is late, and no other leaves the barrier before it has entered.
fn barriers(comm: &Communicator, _bytes_max: usize) {
    const LATE: Duration = Duration::from_micros(200);
    for (round, algorithm) in (0..).zip(BarrierAlgorithm::ALL.into_iter().cycle().take(24)) {
        let late = round % comm.size();
        if comm.rank() != late {
            comm.barrier_with(algorithm).unwrap();
            comm.send(late, round, &[]).unwrap();
            continue;
        }
        comm.scope(|scope| {
            let others = (0..comm.size()).filter(|rank| *rank != late);
            let mut ends: Vec<_> =
                others.map(|rank| scope.irecv(rank, round, &mut []).unwrap()).collect();
            let start = Instant::now();
            while start.elapsed() < LATE {
                for end in &mut ends {
                    assert!(end.test().unwrap().is_none(), "{algorithm} did not wait for {late}");
                }
            }
            comm.barrier_with(algorithm).unwrap();
            ends.into_iter().for_each(|end| assert_eq!(end.wait().unwrap().bytes, 0));
        });
    }
}

fn split(comm: &Communicator, _bytes_max: usize) {
    let (me, size) = (comm.rank(), comm.size());
    let has_color = |rank: u32| size < 3 || rank != size - 1;
    let color = has_color(me).then_some(me % 2);
    let Some(part) = comm.split(color, -i64::from(me)).unwrap() else {
        assert_eq!(me, size - 1);
        return;
    };
    let group: Vec<u32> =
        (0..size).rev().filter(|rank| has_color(*rank) && rank % 2 == me % 2).collect();
    assert_eq!(part.size() as usize, group.len());
    assert_eq!(group[part.rank() as usize], me);
    let mut first = [me as u8];
    part.bcast(0, &mut first).unwrap();
    assert_eq!(u32::from(first[0]), group[0]);
    let copy = part.dup().unwrap();
    // Same ranks, same tag: the communicators separate the messages.
    if part.size() > 1 && copy.rank() == 0 {
        copy.send(1, 9, b"copy").unwrap();
        part.send(1, 9, b"part").unwrap();
    } else if copy.rank() == 1 {
        let mut text = [0; 4];
        part.recv(0, 9, &mut text).unwrap();
        assert_eq!(&text, b"part");
        let status = copy.recv(Source::Any, Tag::Any, &mut text).unwrap();
        assert_eq!((&text, status.source), (b"copy", 0));
    }
}

/// Two communicators of the same ranks in different orders, used alternately with the same tags.
fn interleaved(comm: &Communicator, bytes_max: usize) {
    let one = comm.dup().unwrap();
    let two = comm.split(Some(0), -i64::from(comm.rank())).unwrap().unwrap();
    let size = comm.size();
    assert_eq!(two.rank(), size - 1 - comm.rank());
    for round in 0..20 {
        let root = round % size;
        let data = [pattern(2000.min(bytes_max), round), pattern(300, round + 1)];
        let mut got = [vec![0; data[0].len()], vec![0; data[1].len()]];
        for ((comm, data), got) in [&one, &two].into_iter().zip(&data).zip(&mut got) {
            if comm.rank() == root {
                got.copy_from_slice(data);
            }
            comm.bcast(root, got).unwrap();
        }
        assert!(got == data);
        let (next, before) = ((one.rank() + 1) % size, (one.rank() + size - 1) % size);
        one.scope(|scope| {
            let _ = scope.isend(next, 4, &data[0]).unwrap();
            // The same process, by its rank in the other communicator.
            two.send(size - 1 - next, 4, &data[1]).unwrap();
            two.recv(size - 1 - before, Tag::Any, &mut got[1]).unwrap();
            one.recv(Source::Any, 4, &mut got[0]).unwrap();
        });
        assert!(got == data);
        two.barrier().unwrap();
    }
}

fn refusals(comm: &Communicator, _bytes_max: usize) {
    let size = comm.size();
    let error = comm.send(size, 0, &[]).unwrap_err();
    assert_eq!(error.to_string(), format!("rank {size} is not in a communicator of {size} ranks"));
    assert!(comm.bcast(size + 5, &mut []).is_err());
    assert!(comm.recv(size + 7, 0, &mut []).is_err());
}

fn threads(comm: &Communicator, _bytes_max: usize) {
    let Some(peer) = partner(comm) else { return };
    std::thread::scope(|scope| {
        for tag in 0..4u32 {
            scope.spawn(move || {
                for round in 0..50 {
                    let data = pattern(1 + 3000 * tag as usize, round + tag);
                    let mut back = vec![0; data.len()];
                    if comm.rank() < peer {
                        comm.send(peer, tag, &data).unwrap();
                        comm.recv(peer, tag, &mut back).unwrap();
                        assert_same(&back, &data, format_args!("round {round} of thread {tag}"));
                    } else {
                        comm.recv(peer, tag, &mut back).unwrap();
                        comm.send(peer, tag, &back).unwrap();
                    }
                }
            });
        }
    });
}
