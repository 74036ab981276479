//! Ranks of one host that die, exit, fall silent or leave.

use crate::play::Play;
use crate::{BY_DEFAULT, PATIENCE};
use std::time::Instant;

#[test]
fn killed_rank_is_named_by_all_others_in_every_waiting_call() {
    for role in ["recv", "any", "neighbour", "send", "bcast", "barrier"] {
        for victim in [0, 2] {
            let play = Play::new(role, victim, "compute");
            let mut ranks = play.start_here();
            ranks[victim as usize].signal(libc::SIGKILL);
            play.assert_named(&mut ranks, Instant::now());
        }
    }
}

#[test]
fn rank_that_exits_without_goodbye_is_named() {
    for victim in [0, 3] {
        let play = Play::new("barrier", victim, "exit");
        let start = Instant::now();
        let mut ranks = play.start_here();
        play.assert_named(&mut ranks, start + PATIENCE);
        assert_eq!(ranks[victim as usize].finish(Instant::now() + PATIENCE).0, Some(0));
    }
}

/// A stopped rank keeps its connections, so only its silence shows.
fn stop_a_rank(play: Play<'_>) {
    let mut ranks = play.start_here();
    let victim = play.victim as usize;
    ranks[victim].signal(libc::SIGSTOP);
    play.assert_named(&mut ranks, Instant::now());
    ranks[victim].signal(libc::SIGCONT);
    // It waits for ranks that are gone: any error is accepted.
    let (status, errors) = ranks[victim].finish(Instant::now() + BY_DEFAULT);
    assert_eq!(status, Some(3), "{errors}");
    assert!(errors.contains("ended: rank "), "{errors}");
}

#[test]
fn silent_rank_is_named_within_five_seconds_by_default() {
    stop_a_rank(Play { peer_timeout: None, ..Play::new("recv", 2, "wait") });
}

#[test]
fn silent_rank_is_named_within_the_configured_timeout() {
    for (role, victim) in [("recv", 0), ("barrier", 3), ("neighbour", 1)] {
        stop_a_rank(Play::new(role, victim, "wait"));
    }
}

#[test]
fn rank_that_leaves_early_in_order_is_not_a_failure() {
    for victim in [0, 2] {
        let mut ranks = Play::new("farewell", victim, "leave").start_here();
        let deadline = Instant::now() + PATIENCE;
        for (rank, process) in ranks.iter_mut().enumerate() {
            let (status, errors) = process.finish(deadline);
            assert_eq!((status, errors.as_str()), (Some(0), ""), "rank {rank}");
        }
    }
}

#[test]
fn failed_rank_does_not_disturb_independent_ranks() {
    for _ in 0..3 {
        let play = Play::new("chain", 2, "compute");
        let mut ranks = play.start_here();
        ranks[2].signal(libc::SIGKILL);
        play.assert_named(&mut ranks, Instant::now());
    }
}

#[test]
fn receive_from_any_rank_fails_after_all_others_have_left() {
    for victim in [0, 2] {
        let mut ranks = Play::new("any", victim, "stay").start_here();
        let deadline = Instant::now() + PATIENCE;
        for (rank, process) in (0..).zip(&mut ranks) {
            let (status, errors) = process.finish(deadline);
            let expected = if rank == victim { Some(3) } else { Some(0) };
            assert_eq!(status, expected, "rank {rank}: {errors}");
            assert!(rank != victim || errors.contains("has left the job"), "{errors}");
        }
    }
}
