use super::*;

fn at(ms: u64) -> Instant {
    Instant::from_ns(ms * 1_000_000)
}

fn liveness(me: u32, size: u32) -> Liveness {
    Liveness::new(Instant::ZERO, Rank(me), size, LivenessConfig::default())
}

#[test]
fn silent_successor_is_pinged_and_then_fails() {
    let mut liveness = liveness(3, 4);
    assert_eq!(liveness.handle_timeout(at(500)), None);
    let question = WatchMessage::Ping { to: Rank(0), question: 5 };
    assert_eq!(liveness.poll_message(), Some(question));
    assert_eq!(liveness.poll_message(), None);
    for ms in (1000..4000).step_by(500) {
        assert_eq!(liveness.handle_timeout(at(ms)), None);
    }
    assert_eq!(liveness.handle_timeout(at(4000)), Some(Rank(0)));
}

#[test]
fn silent_successor_is_pinged_four_times_as_often_until_an_answer() {
    let mut liveness = liveness(1, 2);
    let questions = |liveness: &mut Liveness, from: u64, to: u64| {
        let mut asked = Vec::new();
        for ms in from..to {
            assert_eq!(liveness.handle_timeout(at(ms)), None);
            asked.extend(liveness.poll_message().map(|_| ms));
        }
        asked
    };
    assert_eq!(questions(&mut liveness, 1, 1001), [500, 625, 750, 875, 1000]);
    liveness.on_heard(at(1001), Rank(0));
    // An answer ends it; the next silence is detected as before.
    assert_eq!(questions(&mut liveness, 1001, 1800), [1625, 1750]);
}

fn ranks(nodes: &[&[u32]]) -> Nodes {
    nodes.iter().map(|node| node.iter().copied().map(Rank).collect()).collect()
}

#[test]
fn ranks_of_one_node_are_not_adjacent_in_the_ring() {
    let order =
        |nodes: &Nodes, me, way| ring(nodes, Rank(me), way).map(|rank| rank.0).collect::<Vec<_>>();
    let nodes = ranks(&[&[0, 1, 2], &[3], &[4, 5]]);
    assert_eq!(order(&nodes, 0, Way::On), [3, 4, 1, 5, 2]);
    assert_eq!(order(&nodes, 5, Way::On), [2, 0, 3, 4, 1]);
    assert_eq!(order(&nodes, 0, Way::Back), [2, 5, 1, 4, 3]);
    assert_eq!(order(&Nodes::one_each(4), 2, Way::On), [3, 0, 1]);
    assert_eq!(order(&Nodes::one_each(1), 0, Way::On), [0; 0]);
}

/// Time at which the living ranks have detected the last of the dead, if they exchange no reports.
fn found_out_at(nodes: &Nodes, dead: std::ops::Range<u32>) -> u64 {
    let size = nodes.seats();
    let living = (0..size).filter(|rank| !dead.contains(rank));
    let mut living: BTreeMap<Rank, Liveness> =
        living.map(|rank| (Rank(rank), liveness(rank, size))).collect();
    living.values_mut().for_each(|it| it.use_nodes(at(0), nodes.clone()));
    let mut found = BTreeSet::new();
    for ms in (0..60_000).step_by(25) {
        let mut asked = Vec::new();
        for (rank, liveness) in &mut living {
            while let Some(failed) = liveness.handle_timeout(at(ms)) {
                found.insert(failed);
                liveness.on_failed(at(ms), failed);
            }
            asked.extend(std::iter::from_fn(|| liveness.poll_message()).map(|it| (*rank, it)));
        }
        for (from, message) in asked {
            let WatchMessage::Ping { to, question } = message else { panic!("{message:?}") };
            if living.contains_key(&to) {
                let watcher = living.get_mut(&from).expect("it has asked");
                watcher.on_heard(at(ms), to);
                watcher.on_answer(at(ms), to, question);
            }
        }
        if found.len() == dead.len() {
            assert!(found.iter().all(|rank| dead.contains(&rank.0)));
            return ms;
        }
    }
    panic!("{found:?} of {dead:?}");
}

#[test]
fn failure_of_a_whole_node_is_detected_within_one_timeout() {
    let nodes: Vec<Vec<Rank>> =
        (0..4).map(|node| (node * 32..(node + 1) * 32).map(Rank).collect()).collect();
    assert!(found_out_at(&Nodes::from(nodes), 32..64) <= 4125);
    assert!(found_out_at(&Nodes::one_each(128), 32..33) <= 4125);
}

#[test]
fn detection_time_grows_logarithmically_with_adjacent_failures() {
    assert!(found_out_at(&Nodes::one_each(128), 1..3) <= 4750 + 125);
    assert!(found_out_at(&Nodes::one_each(128), 1..101) <= 4500 + 7 * 250 + 125);
}

#[test]
fn live_rank_ends_the_watch_over_ranks_further_along_the_ring() {
    let mut liveness = liveness(0, 9);
    let mut asked = |ms: u64, heard: Option<u32>| {
        heard.into_iter().for_each(|rank| liveness.on_heard(at(ms), Rank(rank)));
        assert_eq!(liveness.handle_timeout(at(ms)), None);
        let asked = std::iter::from_fn(|| liveness.poll_message());
        let to = |message| match message {
            WatchMessage::Ping { to, .. } => to.0,
            other => panic!("{other:?}"),
        };
        asked.map(to).collect::<Vec<_>>()
    };
    assert_eq!((asked(500, None), asked(625, None)), (vec![1], vec![1]));
    assert_eq!((asked(750, None), asked(875, None)), (vec![1, 2], vec![1, 2]));
    assert_eq!(asked(1000, None), [1, 2, 3, 4]);
    assert_eq!(asked(1125, Some(3)), [1, 2]);
    assert_eq!(asked(1250, Some(1)), [0; 0]);
    assert_eq!(asked(1750, None), [1]);
}

#[test]
fn dead_successor_fails_within_the_timeout_and_a_quarter_interval() {
    for heard in 0..500 {
        let mut liveness = liveness(0, 2);
        liveness.on_heard(at(heard), Rank(1));
        let failed = (heard..10_000).find(|ms| liveness.handle_timeout(at(*ms)).is_some());
        let silence = failed.map(|ms| ms - heard);
        assert!(silence.is_some_and(|ms| (4000..=4125).contains(&ms)), "{silence:?}");
    }
}

#[test]
fn active_successor_is_not_pinged() {
    let mut liveness = liveness(0, 2);
    liveness.on_heard(at(400), Rank(1));
    assert_eq!(liveness.handle_timeout(at(500)), None);
    assert_eq!(liveness.poll_message(), None);
}

#[test]
fn successor_is_pinged_after_a_pause_and_gets_a_full_timeout() {
    for paused_at in [0, 3999] {
        let mut liveness = liveness(0, 2);
        let failed = (1..paused_at).find(|ms| liveness.handle_timeout(at(*ms)).is_some());
        assert_eq!(failed, None);
        liveness.poll_message();
        liveness.on_pause(at(60_000));
        assert_eq!(liveness.handle_timeout(at(60_000)), None);
        assert!(matches!(liveness.poll_message(), Some(WatchMessage::Ping { to: Rank(1), .. })));
        assert_eq!(liveness.poll_message(), None);
        let failed = (60_000..70_000).find(|ms| liveness.handle_timeout(at(*ms)).is_some());
        assert!(failed.is_some_and(|ms| (64_000..=64_125).contains(&ms)), "{failed:?}");
    }
}

#[test]
fn successor_that_answers_after_a_pause_is_watched_as_before() {
    let mut liveness = liveness(0, 2);
    liveness.on_pause(at(60_000));
    let Some(WatchMessage::Ping { question, .. }) = liveness.poll_message() else {
        panic!("asked")
    };
    liveness.on_heard(at(63_000), Rank(1));
    liveness.on_answer(at(63_000), Rank(1), question);
    let failed = (60_000..70_000).find(|ms| liveness.handle_timeout(at(*ms)).is_some());
    assert!(failed.is_some_and(|ms| (67_000..=67_125).contains(&ms)), "{failed:?}");
}

#[test]
fn replayed_packets_prove_no_life_after_a_pause() {
    let mut liveness = liveness(0, 2);
    liveness.on_pause(at(60_000));
    let failed = (60_000..80_000).find(|ms| {
        liveness.on_heard(at(*ms), Rank(1));
        liveness.handle_timeout(at(*ms)).is_some()
    });
    assert!(failed.is_some_and(|ms| (68_000..=68_125).contains(&ms)), "{failed:?}");
}

/// Time at which a successor that is heard from each millisecond fails, if `answer` gives the
/// numbers of its answers to a question.
fn fails_though_heard(answer: impl Fn(u32) -> Vec<u32>) -> Option<u64> {
    let mut liveness = liveness(0, 2);
    (1..60_000).find(|ms| {
        liveness.on_heard(at(*ms), Rank(1));
        let failed = liveness.handle_timeout(at(*ms));
        if let Some(WatchMessage::Ping { question, .. }) = liveness.poll_message() {
            for number in answer(question) {
                liveness.on_answer(at(*ms), Rank(1), number);
            }
        }
        failed.is_some()
    })
}

#[test]
fn replayed_packets_and_answers_prove_no_life() {
    assert_eq!(fails_though_heard(|question| vec![question]), None);
    let soon = 8000..=8125;
    assert!(fails_though_heard(|_| vec![]).is_some_and(|ms| soon.contains(&ms)));
    // Answers to earlier questions, and to questions that were never asked or not asked yet.
    let again =
        |question| [2, 3, question + 1].into_iter().filter(|old| *old != question).collect();
    let fails = fails_though_heard(again);
    assert!(fails.is_some_and(|ms| (8000..=12_000).contains(&ms)), "{fails:?}");
}

#[test]
fn ring_closes_over_a_failed_rank() {
    let mut liveness = liveness(0, 3);
    assert!(liveness.on_failed(at(1), Rank(1)));
    assert!(!liveness.on_failed(at(1), Rank(1)));
    liveness.tell_all(at(1), Rank(1));
    assert_eq!(
        liveness.poll_message(),
        Some(WatchMessage::Failed { to: Rank(2), failed: Rank(1) })
    );
    liveness.handle_timeout(at(600));
    assert_eq!(
        liveness.poll_message(),
        Some(WatchMessage::Failed { to: Rank(2), failed: Rank(1) })
    );
    assert_eq!(liveness.poll_message(), Some(WatchMessage::Ping { to: Rank(2), question: 4 }));
    liveness.on_answer(at(1100), Rank(2), 1);
    liveness.handle_timeout(at(1200));
    assert_eq!(liveness.poll_message(), Some(WatchMessage::Ping { to: Rank(2), question: 5 }));
}

#[test]
fn first_failure_is_announced_until_all_ranks_have_confirmed() {
    let mut liveness = liveness(0, 4);
    liveness.on_failed(at(1), Rank(2));
    liveness.tell_all(at(1), Rank(2));
    liveness.on_failed(at(2), Rank(1));
    assert_eq!(liveness.first_failed(), Some(Rank(2)));
    assert!(liveness.is_telling());
    liveness.on_departed(at(3), Rank(3));
    assert!(liveness.has_departed(Rank(3)) && !liveness.has_departed(Rank(2)));
    assert!(!liveness.is_telling());
}

/// Messages of `liveness` to a rank that has asked or answered with `digest`.
fn told(liveness: &mut Liveness, ms: u64, digest: u32) -> Vec<WatchMessage> {
    liveness.on_digest(at(ms), Rank(1), digest);
    std::iter::from_fn(|| liveness.poll_message()).collect()
}

#[test]
fn neighbour_learns_of_failures_first_and_then_of_missed_farewells() {
    let (mut knows, mut missed) = (liveness(2, 5), liveness(1, 5));
    for one in [&mut knows, &mut missed] {
        one.on_departed(at(1), Rank(0));
    }
    assert_eq!(told(&mut knows, 2, missed.digest()), []);
    knows.on_departed(at(3), Rank(4));
    knows.on_failed(at(3), Rank(3));
    let news = [
        WatchMessage::Failed { to: Rank(1), failed: Rank(3) },
        WatchMessage::Departed { to: Rank(1), departed: Rank(0) },
        WatchMessage::Departed { to: Rank(1), departed: Rank(4) },
    ];
    assert_eq!(told(&mut knows, 4, missed.digest()), news);
    assert_eq!(told(&mut knows, 5, missed.digest()), [], "so soon again");
    missed.on_failed(at(5), Rank(3));
    missed.on_departed(at(5), Rank(4));
    assert_eq!(told(&mut knows, 500, missed.digest()), []);
}

#[test]
fn many_departures_are_all_announced_in_turn() {
    let mut liveness = liveness(0, 100);
    (2..100).for_each(|rank| assert!(liveness.on_departed(at(1), Rank(rank))));
    let told: BTreeSet<Rank> = (1..=4)
        .flat_map(|time| told(&mut liveness, time * 130, 0))
        .filter_map(|message| match message {
            WatchMessage::Departed { departed, .. } => Some(departed),
            _ => None,
        })
        .collect();
    assert_eq!(told.len(), 98);
}

#[test]
fn alternating_neighbours_both_learn_of_all_departures() {
    let mut liveness = liveness(1, 67);
    (3..67).for_each(|rank| assert!(liveness.on_departed(at(1), Rank(rank))));
    let mut told = BTreeSet::new();
    for time in 1..=8 {
        liveness.on_digest(at(time * 300), Rank(time as u32 % 2 * 2), 0);
        told.extend(std::iter::from_fn(|| liveness.poll_message()).filter_map(|message| {
            match message {
                WatchMessage::Departed { to, departed } => Some((to, departed)),
                _ => None,
            }
        }));
    }
    assert_eq!(told.len(), 2 * 64);
}

#[test]
fn last_remaining_rank_watches_no_other() {
    let mut liveness = liveness(0, 2);
    assert!(liveness.on_departed(at(1), Rank(1)));
    assert_eq!(liveness.poll_timeout(), None);
    liveness.on_pause(at(9000));
    assert_eq!((liveness.poll_timeout(), liveness.poll_message()), (None, None));
}
