//! Requests that own what they need: on raw memory, tested, waited for, abandoned, and never
//! blocking their callers.
#![allow(clippy::unwrap_used)]

mod ranks;

use omnes::{
    Cloning, Communicator, Config, Error, MultiSend, Multicast, OwnedRequest, Source, Status, Tree,
    WhileWaiting,
};
use ranks::{crash, with_ranks};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

/// Transports of a broadcast between three ranks.
const WAYS: [fn(&mut Config); 3] = [
    |config| config.bcast = Some("combined".parse().unwrap()),
    |config| {
        config.bcast = Some("combined".parse().unwrap());
        config.multicast = Multicast::Off;
        config.multisend = MultiSend::Tree(Tree::Flat, Cloning::Loop);
    },
    |config| config.bcast = Some("binomial".parse().unwrap()),
];

/// Starts a broadcast of memory that outlives it.
fn start(comm: &Communicator, root: u32, buffer: &mut [u8]) -> OwnedRequest {
    let (bytes, base) = (buffer.len(), NonNull::from(buffer).cast());
    // SAFETY: all tests end or drop the request before the buffer, and do not access it meanwhile.
    unsafe { comm.ibcast_raw(root, base, bytes).unwrap() }
}

/// The message of broadcast `number`: no two are equal.
fn message(bytes: usize, number: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + number * 7 + number / 256 + at / 251) as u8).collect()
}

fn end(request: OwnedRequest) {
    request.wait().unwrap();
}

/// Tests until all have ended; a request that has ended reports that again.
fn ask_for_all(requests: &mut [OwnedRequest]) {
    let mut open = requests.len();
    while open > 0 {
        let ended = requests.iter_mut().map(|request| request.test().unwrap().is_some());
        open = ended.filter(|has_ended| !has_ended).count();
        std::thread::yield_now();
    }
}

/// Rank 0 starts `count` broadcasts of `bytes` bytes, and barriers among them, before any other
/// rank starts one: if one of them waited for another rank, all would block.
fn all_are_started_before_anybody_receives(adjust: fn(&mut Config), bytes: usize, count: usize) {
    const BARRIER_EVERY: usize = 100;
    let meet = Barrier::new(3);
    with_ranks(3, adjust, |comm| {
        let is_root = comm.rank() == 0;
        let data = |number| if is_root { message(bytes, number) } else { vec![0xee; bytes] };
        let mut buffers: Vec<_> = (0..count).map(data).collect();
        if !is_root {
            meet.wait();
        }
        let mut requests = Vec::new();
        for (number, buffer) in buffers.iter_mut().enumerate() {
            requests.push(start(&comm, 0, buffer));
            if number % BARRIER_EVERY == 0 {
                requests.push(comm.ibarrier_owned().unwrap());
            }
        }
        if is_root {
            meet.wait();
        }
        match comm.rank() {
            0 => requests.into_iter().for_each(end),
            1 => requests.into_iter().rev().for_each(end),
            _ => ask_for_all(&mut requests),
        }
        for (number, buffer) in buffers.iter().enumerate() {
            assert!(*buffer == message(bytes, number), "number {number} at {}", comm.rank());
        }
        // A broadcast that waits for space follows those that were lent because there was none.
        let mut last = data(count);
        comm.bcast(0, &mut last).unwrap();
        assert!(last == message(bytes, count));
        comm.finalize().unwrap();
    });
}

#[test]
fn root_can_start_many_short_broadcasts_before_any_receive() {
    for way in WAYS {
        all_are_started_before_anybody_receives(way, 8, 500);
        // More than the receivers have buffers for: no acknowledgement makes space meanwhile.
        all_are_started_before_anybody_receives(way, 8, 2000);
    }
}

#[test]
fn root_can_start_many_multi_packet_broadcasts_before_any_receive() {
    for way in WAYS {
        all_are_started_before_anybody_receives(way, 3000, 500);
        // Also with packets as large as the loopback interface permits.
        all_are_started_before_anybody_receives(way, 30_000, 500);
    }
}

#[test]
fn completed_send_reports_rank_tag_and_length_for_any_length() {
    with_ranks(
        2,
        |_| {},
        |comm| {
            let (me, other) = (comm.rank(), 1 - comm.rank());
            // One packet, which is copied, and several: no packet of loopback holds 65,536 bytes.
            for bytes in [1, 60_000, 65_536, 1_000_000] {
                let (own, mut buffer) = (message(bytes, 1), vec![0; bytes]);
                let mut statuses = comm.scope(|scope| {
                    let receive = scope.irecv(other, 7, &mut buffer).unwrap();
                    let sent = scope.isend(other, 7, &own).unwrap().wait().unwrap();
                    vec![sent, receive.wait().unwrap()]
                });
                // SAFETY: waited for before the memory ends.
                let mut requests = unsafe {
                    let room = NonNull::from(&mut buffer[..]).cast();
                    let receive = comm.irecv_raw(other, 7, room, bytes).unwrap();
                    let data = NonNull::from(&own[..]).cast();
                    [comm.isend_raw(other, 7, data, bytes).unwrap(), receive]
                };
                ask_for_all(&mut requests);
                statuses.extend(requests.map(|request| request.wait().unwrap()));
                let of = |source| Status { source, tag: 7, bytes };
                assert_eq!(statuses, [me, other, me, other].map(of));
            }
            comm.finalize().unwrap();
        },
    );
}

#[test]
fn dropped_request_leaves_its_memory_unchanged() {
    for way in WAYS {
        let meet = Barrier::new(3);
        with_ranks(3, way, |comm| {
            let me = comm.rank();
            let lengths = [100, 100_000];
            let mut buffers = lengths.map(|bytes| vec![me as u8 + 1; bytes]);
            if me == 1 {
                // Before the root has sent anything.
                for buffer in &mut buffers {
                    drop(start(&comm, 0, buffer));
                }
            }
            meet.wait();
            if me != 1 {
                let mut requests: Vec<_> =
                    buffers.iter_mut().map(|buffer| start(&comm, 0, buffer)).collect();
                ask_for_all(&mut requests);
            }
            // All data sent have arrived when the barrier ends.
            comm.barrier().unwrap();
            let expected = if me == 1 { 2 } else { 1 };
            assert!(buffers.iter().flatten().all(|byte| *byte == expected), "rank {me}");
            comm.finalize().unwrap();
        });
    }
}

#[test]
fn root_can_drop_its_requests_and_modify_the_memory() {
    for way in WAYS {
        with_ranks(3, way, |comm| {
            let is_root = comm.rank() == 0;
            let lengths = [8, 3000, 200_000];
            for bytes in lengths {
                let mut buffer = if is_root { message(bytes, 1) } else { vec![0; bytes] };
                let request = start(&comm, 0, &mut buffer);
                if is_root {
                    drop(request);
                    buffer.fill(0xee);
                } else {
                    assert_eq!(request.wait().unwrap().bytes, bytes);
                    assert!(buffer == message(bytes, 1));
                }
            }
            comm.finalize().unwrap();
        });
    }
}

#[test]
fn tested_requests_fail_with_an_error_that_names_the_failed_rank() {
    for way in WAYS {
        let (started, over) = (Barrier::new(3), Barrier::new(2));
        with_ranks(3, way, |comm| {
            if comm.rank() == 2 {
                started.wait();
                return crash(comm);
            }
            let mut buffers = [vec![0; 8], vec![0; 300_000]];
            let mut requests: Vec<_> =
                buffers.iter_mut().map(|buffer| start(&comm, 2, buffer)).collect();
            requests.push(comm.ibarrier_owned().unwrap());
            started.wait();
            for request in &mut requests {
                let error = loop {
                    match request.test() {
                        Ok(done) => assert!(done.is_none(), "nobody can have sent it"),
                        Err(error) => break error,
                    }
                    std::thread::yield_now();
                };
                assert!(matches!(error, Error::PeerFailed { rank: 2 }), "{error}");
                assert!(request.test().is_err());
            }
            over.wait(); // Neither of the two must end before the other knows.
        });
    }
}

/// More messages than are buffered: senders wait for a rank that receives none.
#[test]
fn queued_short_messages_fail_when_their_receiver_fails() {
    for shared_memory in [false, true] {
        let adjust = |config: &mut Config| {
            (config.pool_packets, config.shared_memory) = (64, shared_memory);
        };
        let started = Barrier::new(2);
        with_ranks(2, adjust, |comm| {
            if comm.rank() == 1 {
                started.wait();
                return crash(comm);
            }
            let data = message(1000, 1);
            let start = |_| {
                let base = NonNull::from(&data[..]).cast();
                // SAFETY: waited for before the data end, which nothing changes.
                unsafe { comm.isend_raw(1, 7, base, data.len()).unwrap() }
            };
            let mut requests: Vec<_> = (0..10_000).map(start).collect();
            assert!(requests.iter_mut().any(|request| request.test().unwrap().is_none()));
            started.wait();
            // Messages that the receiver has buffered have left space for some.
            let failed = (0..10_000).find_map(|_| comm.send(1, 7, &data).err());
            assert!(matches!(failed, Some(Error::PeerFailed { rank: 1 })), "{failed:?}");
            let last = requests.pop().unwrap().wait();
            assert!(matches!(last, Err(Error::PeerFailed { rank: 1 })), "{last:?}");
        });
    }
}

#[test]
fn callback_can_test_requests_of_the_waiting_engine() {
    // On rank 1: the callback's operations in progress, with their memory, and how many have ended.
    type Streams = Mutex<Option<(Communicator, Vec<(OwnedRequest, Box<[u8; 64]>)>)>>;
    const ROUNDS: u32 = 30;
    // With default settings, and if every wait blocks.
    for (way, stage) in WAYS.into_iter().flat_map(|way| [(way, None), (way, Some(Duration::ZERO))])
    {
        let (ended, streams) = (Arc::new(AtomicU32::new(0)), Arc::new(Streams::default()));
        let callback = {
            let (ended, streams) = (Arc::clone(&ended), Arc::clone(&streams));
            move || {
                let mut streams = streams.lock().unwrap();
                let Some((_, requests)) = &mut *streams else { return };
                requests.retain_mut(|(request, buffer)| match request.test().unwrap() {
                    Some(_) => {
                        assert!(buffer.iter().all(|byte| *byte == 7));
                        ended.fetch_add(1, Ordering::SeqCst);
                        false
                    }
                    None => true,
                });
            }
        };
        let adjust = |config: &mut Config| {
            way(config);
            (config.spin, config.yield_time) = (stage, stage);
            if config.rank == 1 {
                config.while_waiting = Some(WhileWaiting::new(callback.clone()));
            }
        };
        with_ranks(2, adjust, |comm| {
            if comm.rank() == 1 {
                let requests = (0..ROUNDS).map(|_| {
                    let mut buffer = Box::new([0; 64]);
                    (start(&comm, 0, &mut *buffer), buffer)
                });
                let requests: Vec<_> = requests.collect();
                *streams.lock().unwrap() = Some((comm.clone(), requests));
                // Ends only when the callback has seen the end of all requests.
                comm.recv(0, 1, &mut [0]).unwrap();
                assert_eq!(ended.load(Ordering::SeqCst), ROUNDS);
                *streams.lock().unwrap() = None;
            } else {
                let mut buffers = vec![[7; 64]; ROUNDS as usize];
                for (number, buffer) in (1..).zip(&mut buffers) {
                    start(&comm, 0, buffer).wait().unwrap();
                    while ended.load(Ordering::SeqCst) < number {
                        std::thread::yield_now();
                    }
                }
                comm.send(1, 1, &[1]).unwrap();
            }
            comm.finalize().unwrap();
        });
    }
}

#[test]
fn sendrecv_exchanges_messages_of_any_length() {
    with_ranks(
        3,
        |_| {},
        |comm| {
            let (me, size) = (comm.rank(), comm.size());
            let (next, before) = ((me + 1) % size, (me + size - 1) % size);
            for bytes in [0, 5, 70_000, 4 << 20] {
                let (own, mut came) = (message(bytes, me as usize), vec![0; bytes + 1]);
                let status = comm.sendrecv(next, me, &own, before, before, &mut came).unwrap();
                assert_eq!(status, Status { source: before, tag: before, bytes });
                assert!(came[..bytes] == message(bytes, before as usize));
                let status = comm.sendrecv(me, 1, &own, Source::Any, 1, &mut came).unwrap();
                assert_eq!(status, Status { source: me, tag: 1, bytes });
            }
            // A message that does not fit here is still sent completely.
            let own = message(1 << 20, 1);
            let mut came = vec![0; if me == 0 { 4 } else { own.len() }];
            let outcome = comm.sendrecv(next, 2, &own, before, 2, &mut came);
            match me {
                0 => assert!(matches!(outcome, Err(Error::Truncated { .. })), "{outcome:?}"),
                _ => assert!(outcome.unwrap().bytes == own.len() && came == own),
            }
            // For a rank that does not exist, nothing is sent or waited for.
            let refused = comm.sendrecv(size, 3, &own, before, 3, &mut came);
            assert!(matches!(refused, Err(Error::RankOutOfRange { .. })), "{refused:?}");
            comm.finalize().unwrap();
        },
    );
}

#[test]
fn failed_request_reports_its_error_once_and_then_request_failed() {
    with_ranks(
        2,
        |_| {},
        |comm| {
            if comm.rank() == 0 {
                comm.send(1, 7, &[0; 8]).unwrap();
                comm.send(1, 7, &[0; 8]).unwrap();
                comm.bcast(0, &mut [0; 8]).unwrap();
                return comm.finalize().unwrap();
            }
            let mut short = [0; 4];
            comm.scope(|scope| {
                let mut request = scope.irecv(0, 7, &mut short).unwrap();
                let error = loop {
                    match request.test() {
                        Ok(status) => assert_eq!(status, None),
                        Err(error) => break error,
                    }
                };
                assert!(matches!(error, Error::Truncated { bytes: 8, capacity: 4 }), "{error}");
                assert!(matches!(request.test(), Err(Error::RequestFailed)));
                assert_eq!(format!("{request:?}"), "Request(failed)");
                assert!(matches!(request.wait(), Err(Error::RequestFailed)));
            });
            // SAFETY: waited for before the buffer ends.
            let receive = unsafe { comm.irecv_raw(0, 7, NonNull::from(&mut short).cast(), 4) };
            let mut receive = receive.unwrap();
            while receive.test().is_ok() {}
            assert!(matches!(receive.test(), Err(Error::RequestFailed)));
            assert!(matches!(receive.wait(), Err(Error::RequestFailed)));
            // The buffer is returned with the error, and with the part of the message that it
            // holds.
            let mut cast = comm.bcast_owned(0, vec![1; 9]).unwrap();
            let error = loop {
                match cast.test() {
                    Ok(has_ended) => assert!(!has_ended),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::LengthMismatch { received: 8, expected: 9 }), "{error}");
            let failed = cast.wait().unwrap_err();
            assert_eq!(failed.buffer, [0, 0, 0, 0, 0, 0, 0, 0, 1]);
            assert!(matches!(Error::from(failed), Error::RequestFailed));
            assert_eq!(format!("{comm:?}"), "Communicator(rank 1 of 2)");
            comm.finalize().unwrap();
        },
    );
}

/// Down chains, each rank forwards data that it has not received yet, and starts something else
/// meanwhile.
fn chains(config: &mut Config) {
    config.bcast = Some("chain".parse().unwrap());
}

#[test]
fn broadcasts_of_two_communicators_can_start_in_any_order() {
    for bytes in [8, 5000, 60_000, 400_000] {
        with_ranks(3, chains, |comm| {
            let other = comm.dup().unwrap();
            let (first, second) = (message(bytes, 1), message(bytes, 2));
            let (mut one, mut two) = (vec![0; bytes], vec![0; bytes]);
            // Rank 0 is the root of the first one and the last to start it: rank 1 forwards both.
            match comm.rank() {
                0 => one.copy_from_slice(&first),
                1 => two.copy_from_slice(&second),
                _ => {}
            }
            if comm.rank() == 1 {
                let passing = start(&comm, 0, &mut one);
                other.bcast(1, &mut two).unwrap();
                end(passing);
            } else {
                other.bcast(1, &mut two).unwrap();
                comm.bcast(0, &mut one).unwrap();
            }
            assert!(one == first && two == second);
            comm.finalize().unwrap();
        });
    }
}

/// Rank 1 starts what rank 0 does not, and tests it when both have left.
#[test]
fn requests_fail_after_their_rank_has_left() {
    with_ranks(
        2,
        |_| (),
        |comm| {
            let other = comm.dup().unwrap();
            if comm.rank() == 0 {
                return comm.finalize().unwrap();
            }
            let mut buffers = [vec![0; 200_000], vec![0; 200_000]];
            let [waited, tested] = &mut buffers;
            let (waited, mut tested) = (start(&other, 0, waited), start(&other, 0, tested));
            let barrier = other.ibarrier_owned().unwrap();
            comm.finalize().unwrap();
            // Either the root or this rank may be noticed first.
            let has_left =
                |error| matches!(error, Err(Error::AlreadyLeft | Error::PeerLeft { rank: 0 }));
            assert!(has_left(barrier.wait().map(|_| ())));
            assert!(has_left(tested.test().map(|_| ())));
            assert!(has_left(waited.wait().map(|_| ())));
        },
    );
}

#[test]
fn too_long_message_is_rejected_with_the_limit() {
    for way in WAYS {
        with_ranks(3, way, |comm| {
            let (base, length) = (NonNull::from(&mut [0u8; 8]).cast(), 1 << 44);
            let is_refused = |started: Result<OwnedRequest, Error>| {
                matches!(started, Err(Error::TooLarge { bytes, limit })
                    if bytes == length as u64 && limit < bytes)
            };
            if comm.rank() == 0 {
                // SAFETY: no byte of a rejected call is read.
                let (sent, cast) = unsafe {
                    (comm.isend_raw(1, 1, base, length), comm.ibcast_raw(0, base, length))
                };
                assert!(is_refused(sent) && is_refused(cast));
            }
            // No part of it is in progress.
            comm.bcast(0, &mut [7; 3000]).unwrap();
            comm.finalize().unwrap();
        });
    }
}

#[test]
fn panicking_scope_abandons_its_requests_without_waiting() {
    let is_over = Barrier::new(2);
    with_ranks(
        2,
        |_| {},
        |comm| {
            if comm.rank() == 0 {
                let mut buffer = [0; 8];
                let scope = AssertUnwindSafe(|| {
                    comm.scope(|scope| {
                        let _ = scope.irecv(1, 7, &mut buffer).unwrap();
                        resume_unwind(Box::new("the test's own"));
                    })
                });
                assert!(catch_unwind(scope).is_err());
                is_over.wait();
                // The message of the abandoned receive goes to the next one.
                assert_eq!(comm.recv(1, 7, &mut buffer).unwrap().bytes, 8);
                assert_eq!(buffer, [1; 8]);
            } else {
                is_over.wait();
                comm.send(0, 7, &[1; 8]).unwrap();
            }
            comm.finalize().unwrap();
        },
    );
}
