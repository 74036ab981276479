//! Ranks that compute or are stopped together: neither is a failure.

use crate::as_root::is_root;
use crate::play::{Play, Rank};
use crate::test_lab::TestLab;
use crate::{PATIENCE, SUSPENSION};
use std::time::{Duration, Instant};

/// Asserts that no rank ends during this time.
fn assert_all_stay(ranks: &mut [Rank], time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        for (number, rank) in ranks.iter_mut().enumerate() {
            let ended = rank.process.try_wait().unwrap();
            assert!(ended.is_none(), "rank {number} has ended: {}", rank.errors());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn computing_rank_is_not_reported_as_failed() {
    let play = Play::new("recv", 1, "compute");
    assert_all_stay(&mut play.start_here(), play.limit() * 2);
}

/// Stops all ranks, as when a job is suspended, for longer than any may be silent.
fn suspend(ranks: &mut [Rank]) {
    ranks.iter().for_each(|rank| rank.signal(libc::SIGSTOP));
    assert_all_stay(ranks, SUSPENSION);
}

#[test]
fn ranks_stopped_together_resume_together() {
    let play = Play::new("rounds", 0, "wait");
    let mut ranks = play.start_here();
    suspend(&mut ranks);
    ranks.iter().for_each(|rank| rank.signal(libc::SIGCONT));
    let deadline = Instant::now() + PATIENCE;
    for (number, rank) in ranks.iter_mut().enumerate() {
        let (status, errors) = rank.finish(deadline);
        assert_eq!((status, errors.as_str()), (Some(0), ""), "rank {number}");
    }
}

#[test]
fn stopped_ranks_resume_one_by_one_and_a_later_death_is_reported() {
    // Victims in a call, and victims with only their progress thread inside the library.
    for (role, victim, fate) in [("barrier", 1, "wait"), ("send", 2, "compute")] {
        let play = Play::new(role, victim, fate);
        let mut ranks = play.start_here();
        suspend(&mut ranks);
        for rank in (0..ranks.len()).rev() {
            ranks[rank].signal(libc::SIGCONT);
            assert_all_stay(&mut ranks, play.limit() / 8);
        }
        assert_all_stay(&mut ranks, play.limit() * 3 / 2);
        ranks[victim as usize].signal(libc::SIGSTOP);
        play.assert_named(&mut ranks, Instant::now());
    }
}

#[test]
fn rank_that_does_not_resume_with_the_others_is_named_after_timeout() {
    for (role, victim) in [("recv", 0), ("bcast", 2)] {
        let play = Play::new(role, victim, "compute");
        let mut ranks = play.start_here();
        suspend(&mut ranks);
        let others = (0..).zip(&ranks).filter(|(rank, _)| *rank != victim);
        others.for_each(|(_, rank)| rank.signal(libc::SIGCONT));
        let resumed = Instant::now();
        assert_all_stay(&mut ranks, play.limit() / 2);
        play.assert_named(&mut ranks, resumed);
    }
}

#[test]
fn rank_killed_while_all_are_stopped_is_named() {
    for victim in [0, 3] {
        let play = Play::new("barrier", victim, "compute");
        let mut ranks = play.start_here();
        suspend(&mut ranks);
        ranks[victim as usize].signal(libc::SIGKILL);
        ranks.iter().for_each(|rank| rank.signal(libc::SIGCONT));
        play.assert_named(&mut ranks, Instant::now());
    }
}

/// Packets that have arrived from a rank are read before its silence is judged, wherever they are.
#[test]
fn briefly_stopped_ranks_do_not_time_each_other_out() {
    if !is_root() {
        return;
    }
    let lab = TestLab::up("");
    let play = Play::new("recv", 0, "wait");
    let mut ranks = lab.start(&play);
    for _ in 0..3 {
        // Each is asked for a sign of life by the previous one.
        let part = play.limit() / 60;
        for (time, rank, signal) in [
            (0, 2, libc::SIGSTOP),
            (36, 1, libc::SIGSTOP),
            (4, 2, libc::SIGCONT),
            (9, 1, libc::SIGCONT),
        ] {
            assert_all_stay(&mut ranks, part * time);
            ranks[rank].signal(signal);
        }
        assert_all_stay(&mut ranks, play.limit() / 2);
    }
}
