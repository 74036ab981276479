//! Broadcasts that a rank gives up before they are complete: the others learn of it, and no later
//! operation blocks.
#![allow(clippy::unwrap_used)]

mod ranks;

use omnes::{
    Communicator, Config, ElementType, Error, MultiSend, Multicast, MulticastState, ReduceOp,
};
use ranks::{crash, interrupted, with_ranks};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Broadcasts go down the chain 0 - 1 - 2 through sockets.
fn chain(config: &mut Config) {
    config.shared_memory = false;
    config.multicast = Multicast::Off;
    config.multisend = MultiSend::Off;
    config.bcast = Some("chain".parse().unwrap());
}

fn inner_rank_gives_up(eager_bytes: u32) {
    let adjust = |config: &mut Config| {
        chain(config);
        config.eager_bytes = eager_bytes;
    };
    with_ranks(3, adjust, |world| {
        let other = world.dup().unwrap();
        for bytes in [8, 300_000, 4 << 20] {
            world.barrier().unwrap();
            // The root begins after the others.
            let request = (world.rank() > 0).then(|| other.bcast_owned(0, vec![0; bytes]).unwrap());
            match (world.rank(), request) {
                (1, request) => drop(request),
                (2, Some(request)) => {
                    let failed = request.wait().unwrap_err();
                    assert!(matches!(failed.error, Error::PeerGaveUp { rank: 1 }), "{failed}");
                    assert_eq!(failed.buffer.len(), bytes);
                }
                _ => {}
            }
            world.barrier().unwrap();
            for bytes in [8, 100_000, 1 << 20] {
                let mut data = vec![world.rank() as u8; bytes];
                world.bcast(1, &mut data).unwrap();
                assert!(data.iter().all(|byte| *byte == 1));
            }
        }
        world.finalize().unwrap();
    });
}

#[test]
fn abandoned_broadcast_is_reported_and_other_broadcasts_continue() {
    inner_rank_gives_up(Config::new(0, 1, "").eager_bytes);
}

#[test]
fn abandoned_eager_broadcast_is_reported_and_others_continue() {
    inner_rank_gives_up(8 << 20);
}

/// Rank 1 has given up its part in a broadcast of `other`, which the root begins now.
fn next_broadcast_brings_its_own_data(world: &Communicator, other: &Communicator, bytes: usize) {
    world.barrier().unwrap();
    if world.rank() == 0 {
        other.bcast(0, &mut vec![1; bytes]).unwrap();
    }
    for value in [2, 3] {
        let mut data = vec![if world.rank() == 0 { value } else { 0 }; bytes];
        other.bcast(0, &mut data).unwrap();
        assert!(data.iter().all(|byte| *byte == value), "{value}: {:?}", &data[..8]);
    }
}

#[test]
fn data_of_an_abandoned_broadcast_do_not_replace_the_next_ones() {
    with_ranks(3, chain, |world| {
        let other = world.dup().unwrap();
        for bytes in [8, 300_000] {
            match world.rank() {
                1 => drop(other.bcast_owned(0, vec![0; bytes]).unwrap()),
                2 => assert!(other.bcast(0, &mut vec![0; bytes]).is_err()),
                _ => {}
            }
            next_broadcast_brings_its_own_data(&world, &other, bytes);
        }
        world.finalize().unwrap();
    });
}

fn broken() -> ControlFlow<()> {
    ControlFlow::Break(())
}

/// A chain whose rank 1 is interrupted in its next wait once `ends` is set.
fn interruptible(ends: &Arc<AtomicBool>) -> impl Fn(&mut Config) + Sync {
    let ends = ends.clone();
    move |config| {
        chain(config);
        if config.rank == 1 {
            config.while_waiting = Some(interrupted(&ends, broken));
        }
    }
}

#[test]
fn interrupted_broadcast_is_reported_to_waiting_ranks() {
    let ends = Arc::new(AtomicBool::new(false));
    with_ranks(3, interruptible(&ends), |world| {
        let other = world.dup().unwrap();
        for bytes in [8, 300_000] {
            let mut data = vec![0; bytes];
            match world.rank() {
                1 => {
                    ends.store(true, Ordering::Relaxed);
                    assert!(matches!(other.bcast(0, &mut data), Err(Error::Interrupted)));
                }
                2 => {
                    let error = other.bcast(0, &mut data).unwrap_err();
                    assert!(matches!(error, Error::PeerGaveUp { rank: 1 }), "{error}");
                }
                _ => {}
            }
            next_broadcast_brings_its_own_data(&world, &other, bytes);
        }
        world.finalize().unwrap();
    });
}

/// Copying the remaining data would take too long, for one child or receiver after the other.
#[test]
fn long_message_data_are_not_copied_when_another_rank_fails() {
    const BYTES: usize = 64 << 20;
    let adjust = |config: &mut Config| config.peer_timeout = Duration::from_secs(2);
    with_ranks(3, adjust, |world| match world.rank() {
        0 => {
            let error = world.send(1, 0, &vec![1; BYTES]).unwrap_err();
            assert!(matches!(error, Error::PeerFailed { rank: 2 }), "{error}");
            assert!(world.stats().copied_bytes < 8 << 20, "{:?}", world.stats());
        }
        1 => {
            // Nothing is received before rank 0 has its error.
            let error = world.recv(2, 0, &mut []).unwrap_err();
            assert!(matches!(error, Error::PeerFailed { rank: 2 }), "{error}");
        }
        _ => crash(world),
    });
}

/// The root of multicast broadcasts waits for space in its window when that wait ends by `ending`.
fn root_is_ended_in_a_full_window(ending: fn() -> ControlFlow<()>) {
    // More than the pool for broadcasts and the window hold: space runs out, however fast
    // acknowledgements arrive.
    const ROUNDS: u32 = 5000;
    let ends = Arc::new(AtomicBool::new(false));
    let adjust = |config: &mut Config| {
        config.shared_memory = false;
        config.bcast = Some("multicast".parse().unwrap());
        if config.rank == 0 {
            config.while_waiting = Some(interrupted(&ends, ending));
        }
    };
    with_ranks(3, adjust, |world| {
        let other = world.dup().unwrap();
        other.bcast(0, &mut [0; 4]).unwrap();
        world.barrier().unwrap();
        if !matches!(world.multicast(), MulticastState::On { .. }) {
            // On a busy machine, some may not have heard all others in time; trees have no window.
            return world.finalize().unwrap();
        }
        match world.rank() {
            0 => ends.store(true, Ordering::Relaxed),
            // No data are received until the root has been interrupted.
            _ => world.recv(0, 0, &mut []).map(drop).unwrap(),
        }
        let mut ended = 0;
        for value in 0..ROUNDS {
            let is_root = world.rank() == 0;
            let mut data = if is_root { value.to_be_bytes() } else { [0xff; 4] };
            let bcast = AssertUnwindSafe(|| other.bcast(0, &mut data));
            match catch_unwind(bcast) {
                Ok(Ok(())) => assert_eq!(u32::from_be_bytes(data), value),
                _ if is_root => {
                    ended += 1;
                    (1..3).for_each(|rank| world.send(rank, 0, &[]).unwrap());
                }
                outcome => panic!("{outcome:?}"),
            }
        }
        assert_eq!(ended, u32::from(world.rank() == 0));
        world.finalize().unwrap();
    });
}

#[test]
fn broadcast_interrupted_at_a_full_window_is_still_delivered() {
    root_is_ended_in_a_full_window(|| ControlFlow::Break(()));
}

#[test]
fn broadcast_whose_callback_panics_at_a_full_window_is_delivered() {
    root_is_ended_in_a_full_window(|| resume_unwind(Box::new("the callback")));
}

#[test]
fn interruption_before_a_policy_is_agreed_breaks_the_communicator() {
    let ends = Arc::new(AtomicBool::new(false));
    let adjust = |config: &mut Config| {
        config.shared_memory = false;
        if config.rank == 0 {
            config.while_waiting = Some(interrupted(&ends, broken));
        }
    };
    with_ranks(3, adjust, |world| {
        let other = world.dup().unwrap();
        world.barrier().unwrap();
        match world.rank() {
            0 => ends.store(true, Ordering::Relaxed),
            2 => world.recv(0, 0, &mut []).map(drop).unwrap(),
            _ => {}
        }
        let policy = "skewed=5".parse().unwrap();
        let error = other.bcast_with(0, &mut [0; 8], policy).unwrap_err();
        if world.rank() == 0 {
            assert!(matches!(error, Error::Interrupted), "{error}");
            world.send(2, 0, &[]).unwrap();
        } else {
            assert!(matches!(error, Error::CollectivesBroken { rank: 0, .. }), "{error}");
        }
        world.finalize().unwrap();
    });
}

/// The root's message is shorter than the others' buffers, and longer than one that is only
/// forwarded as a whole.
fn root_sends_less(bcast: impl Fn(&Communicator, &mut Vec<u8>) -> Result<(), Error> + Sync) {
    with_ranks(4, chain, |world| {
        let other = world.dup().unwrap();
        let (came, expected) = (256 << 10, 512 << 10);
        let bytes = if world.rank() == 0 { came } else { expected };
        let outcome = bcast(&other, &mut vec![world.rank() as u8; bytes]);
        let is_right = match world.rank() {
            0 => outcome.is_ok(),
            1 => matches!(
                outcome,
                Err(Error::LengthMismatch { received: 262_144, expected: 524_288 })
            ),
            _ => matches!(outcome, Err(Error::PeerGaveUp { .. })),
        };
        assert!(is_right, "rank {}: {outcome:?}", world.rank());
        world.barrier().unwrap();
        world.finalize().unwrap();
    });
}

#[test]
fn truncated_broadcast_fails_on_all_ranks_further_down_the_chain() {
    root_sends_less(|comm, data| comm.bcast(0, data));
}

#[test]
fn truncated_broadcast_fails_down_the_chain_when_tested_for() {
    root_sends_less(|comm, data| {
        let mut request = comm.bcast_owned(0, std::mem::take(data)).unwrap();
        loop {
            if request.test()? { return Ok(()) } else { std::thread::yield_now() }
        }
    });
}

#[test]
fn rank_that_gives_up_is_named_by_its_number_in_the_communicator() {
    with_ranks(4, chain, |world| {
        // Ranks 3, 2 and 1: the chain 0 - 1 - 2 in that order, whose root never sends.
        let color = (world.rank() > 0).then_some(0);
        if let Some(trio) = world.split(color, -i64::from(world.rank())).unwrap() {
            let request = (trio.rank() > 0).then(|| trio.bcast_owned(0, vec![0; 8]).unwrap());
            match (trio.rank(), request) {
                (2, Some(request)) => {
                    let failed = request.wait().unwrap_err();
                    assert!(matches!(failed.error, Error::PeerGaveUp { rank: 1 }), "{failed}");
                }
                (_, request) => drop(request),
            }
            trio.barrier().unwrap();
            let mut sum = [1u64; 9];
            if trio.rank() == 1 {
                let base = NonNull::from(&mut sum[..]).cast();
                let (number, op) = (ElementType::U64, ReduceOp::Sum);
                // SAFETY: dropped immediately, before the numbers are.
                drop(unsafe { trio.iallreduce_raw(base, 72, number, op).unwrap() });
            }
            let outcome = trio.allreduce(&mut sum, ReduceOp::Sum).and_then(|()| trio.barrier());
            assert!(
                matches!(outcome, Err(Error::CollectivesBroken { rank: 1, .. })),
                "{outcome:?}"
            );
        }
        world.finalize().unwrap();
    });
}
