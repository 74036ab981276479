//! Ranks that die, leave or are cut off, and packets that no rank has sent.

#![allow(clippy::unwrap_used)]

use omnes_proto::LivenessConfig;
use omnes_proto::broadcast::BroadcastConfig;
use omnes_proto::channel::ChannelConfig;
use omnes_sim::{
    Cluster, Forgery, State, Ways, corrupt, dead_are_named_to_all, delivered_once_in_order, drop,
    no_living_rank_is_named, nothing_is_missing, only_the_dead_fail, partition,
};
use omnes_wire::{Instant, Kind};
use std::time::Duration;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Time within which a death must be known to all: the timeout, the round in which it is noticed,
/// and the transit of the notice.
fn naming_time() -> Duration {
    let LivenessConfig { interval, timeout, .. } = LivenessConfig::default();
    timeout + 2 * interval
}

#[test]
fn death_of_an_idle_rank_is_reported_to_all() {
    for ranks in [2, 3, 8] {
        let mut cluster = Cluster::builder().ranks(ranks).seed(1).build();
        cluster.crash_at(1, Instant::ZERO + ms(100));
        cluster.run_for(ms(100) + naming_time());
        cluster.check(dead_are_named_to_all);
        cluster.check(no_living_rank_is_named);
    }
}

#[test]
fn ranks_that_die_together_are_reported_together() {
    // As when a node or a whole switch fails; only the first dead rank is watched by a living one.
    for (ranks, dead) in [(6, 2..4), (40, 3..35)] {
        let mut cluster = Cluster::builder().ranks(ranks).seed(1).build();
        dead.for_each(|rank| cluster.crash(rank));
        cluster.run_for(naming_time() + 4 * LivenessConfig::default().interval);
        cluster.check(dead_are_named_to_all);
        cluster.check(no_living_rank_is_named);
    }
}

#[test]
fn operations_with_a_dead_rank_fail_and_all_others_complete() {
    let mut cluster = Cluster::builder().ranks(4).seed(2).build();
    let lost = cluster.send(0, 1, 1, 500_000);
    let missed = cluster.receive(2, 1, 1, 100);
    cluster.crash(1);
    for (from, to) in [(0, 2), (2, 3), (3, 0)] {
        cluster.send(from, to, 5, 300_000);
        cluster.receive(to, from, 5, 300_000);
    }
    cluster.run_for(ms(200));
    cluster.check(nothing_is_missing);
    cluster.run_until_quiescent();
    assert!(matches!(cluster.state(lost), State::Failed(_)));
    assert!(matches!(cluster.state(missed), State::Failed(_)));
    cluster.check(delivered_once_in_order);
    cluster.check(only_the_dead_fail);
    let late = cluster.send(3, 1, 1, 10);
    assert!(matches!(cluster.state(late), State::Failed(_)));
}

#[test]
fn both_sides_of_a_lasting_partition_report_each_other_failed() {
    let mut cluster = Cluster::builder().ranks(4).seed(3).build();
    let cut = cluster.rule(partition(&[0, 1], &[2, 3], Ways::Both));
    cluster.send(0, 2, 1, 10);
    cluster.send(0, 1, 1, 10);
    cluster.receive(1, 0, 1, 10);
    cluster.run_for(2 * naming_time());
    for (near, far) in [(0, 2), (0, 3), (1, 2), (1, 3)] {
        assert!(cluster.named_at(near, far).is_some(), "{near} does not name {far}");
        assert!(cluster.named_at(far, near).is_some(), "{far} does not name {near}");
    }
    assert_eq!(cluster.named_at(0, 1), None);
    cut.heal();
    assert!(!cluster.is_excluded(2));
    cluster.send(2, 3, 1, 10);
    cluster.receive(3, 2, 1, 10);
    cluster.run_until_quiescent();
}

#[test]
fn excluded_rank_learns_of_its_exclusion_when_the_partition_heals() {
    let mut cluster = Cluster::builder().ranks(3).seed(3).build();
    // Packets from rank 2 are lost, packets to it arrive: it does not take the others for dead.
    let cut = cluster.rule(partition(&[2], &[0, 1], Ways::One));
    cluster.run_for(naming_time());
    assert!(cluster.named_at(0, 2).is_some() && cluster.named_at(1, 2).is_some());
    cut.heal();
    cluster.run_for(naming_time());
    assert!(cluster.is_excluded(2));
}

#[test]
fn short_partition_loses_no_message_and_fails_no_rank() {
    for ways in [Ways::Both, Ways::One] {
        let mut cluster = Cluster::builder().ranks(5).seed(4).build();
        let cut = cluster.rule(partition(&[0], &[1, 2, 3, 4], ways));
        for rank in 1..5 {
            cluster.send(0, rank, 1, 50_000);
            cluster.receive(rank, 0, 1, 50_000);
        }
        cluster.run_for(ms(2000));
        cut.heal();
        cluster.run_until_quiescent();
        cluster.check(delivered_once_in_order);
        cluster.check(nothing_is_missing);
        cluster.run_for(naming_time());
        cluster.check(no_living_rank_is_named);
    }
}

#[test]
fn live_rank_is_not_reported_failed_at_ten_percent_loss_per_link() {
    let mut cluster = Cluster::builder().ranks(8).seed(5).build();
    let each_link = cluster.rule(drop().ppm(190_000));
    cluster.run_for(ms(30 * 60 * 1000));
    cluster.check(no_living_rank_is_named);
    // A death is named as soon as without loss.
    cluster.crash(3);
    cluster.run_for(naming_time());
    each_link.heal();
    cluster.run_for(ms(1000));
    cluster.check(dead_are_named_to_all);
    cluster.check(no_living_rank_is_named);
}

/// Messages and broadcasts in progress from and to all of four ranks, none of which is complete.
fn at_work(seed: u64) -> Cluster {
    let mut cluster =
        Cluster::builder().ranks(4).broadcast(BroadcastConfig::default()).seed(seed).build();
    let group = cluster.open_group_of_all("basic".parse().unwrap());
    for root in 0..4 {
        cluster.broadcast_to_all(group, root, 500_000);
    }
    for (from, to) in (0..4).flat_map(|from| (0..4).map(move |to| (from, to))) {
        if from != to {
            cluster.send(from, to, 1, 500_000);
            cluster.receive(to, from, 1, 500_000);
        }
    }
    cluster.run_for(Duration::from_micros(30));
    assert!(!cluster.endpoint(0).channels()[0].is_idle());
    assert!(!cluster.endpoint(0).broadcast().unwrap().is_idle());
    cluster
}

#[test]
fn ranks_suspended_together_may_resume_one_after_the_other() {
    let LivenessConfig { timeout, .. } = LivenessConfig::default();
    for (seed, late) in [(30, ms(0)), (31, ms(1)), (32, ms(500)), (33, ms(1300))] {
        let mut cluster = at_work(seed);
        // The last rank resumes within the timeout of the first.
        assert!(3 * late < timeout);
        // The others begin to miss rank 3 before they are stopped, too.
        cluster.suspend(3, ms(100) + 10 * timeout + 3 * late);
        cluster.run_for(ms(100));
        for rank in 0..3 {
            cluster.suspend(rank, 10 * timeout + rank * late);
        }
        cluster.run_for(11 * timeout);
        cluster.run_until_quiescent();
        cluster.run_for(2 * naming_time());
        cluster.check(delivered_once_in_order);
        cluster.check(nothing_is_missing);
        cluster.check(no_living_rank_is_named);
    }
}

/// Ranks that wait `timeout` for each other, less than the start notice takes to arrive, but 1.5 s
/// at first.
fn impatient(timeout: Duration) -> Cluster {
    let liveness = LivenessConfig { interval: ms(25), timeout, grace: ms(1500) };
    let channel = ChannelConfig { peer_timeout: timeout, ..ChannelConfig::default() };
    let broadcast = BroadcastConfig { peer_timeout: timeout, ..BroadcastConfig::default() };
    let builder = Cluster::builder().ranks(4).seed(37).liveness(liveness);
    builder.channel(channel).broadcast(broadcast).build()
}

#[test]
fn rank_that_starts_late_is_waited_for() {
    let mut cluster = impatient(ms(400));
    cluster.suspend(2, ms(1450));
    cluster.send(1, 2, 1, 100_000);
    cluster.receive(2, 1, 1, 100_000);
    let group = cluster.open_group_of_all("basic".parse().unwrap());
    cluster.broadcast_to_all(group, 0, 100_000);
    cluster.run_for(ms(1400));
    assert!(!cluster.endpoint(1).channels()[0].is_idle());
    assert!(!cluster.endpoint(0).broadcast().unwrap().is_idle());
    cluster.run_until_quiescent();
    cluster.check(delivered_once_in_order);
    cluster.check(nothing_is_missing);
    cluster.check(no_living_rank_is_named);
}

#[test]
fn rank_dead_at_the_start_is_reported_only_after_the_startup_grace() {
    for has_message in [false, true] {
        let mut cluster = impatient(ms(400));
        cluster.crash(2);
        if has_message {
            cluster.send(1, 2, 1, 100_000);
        }
        cluster.run_for(ms(1499));
        assert_eq!(cluster.named_at(1, 2), None);
        cluster.run_for(ms(51));
        cluster.check(dead_are_named_to_all);
        cluster.check(no_living_rank_is_named);
    }
}

#[test]
fn rank_unreachable_from_only_one_peer_is_still_reported() {
    for timeout in [ms(200), ms(400), ms(1000)] {
        for is_broadcast in [false, true] {
            let mut cluster = impatient(timeout);
            let group = cluster.open_group_of_all("basic".parse().unwrap());
            let _cut = cluster.rule(partition(&[0], &[2], Ways::Both));
            if is_broadcast {
                cluster.broadcast_to_all(group, 0, 1000);
            } else {
                cluster.send(0, 2, 1, 1000);
            }
            cluster.run_for(ms(1490));
            assert_eq!(cluster.named_at(0, 2), None);
            cluster.run_for(2 * timeout + ms(500));
            assert!(cluster.named_at(0, 2).is_some(), "{timeout:?}, {is_broadcast}");
        }
    }
}

#[test]
fn repeatedly_suspended_idle_ranks_are_not_reported_failed() {
    let LivenessConfig { timeout, .. } = LivenessConfig::default();
    let mut cluster = Cluster::builder().ranks(3).seed(34).build();
    for _ in 0..20 {
        (0..3).for_each(|rank| cluster.suspend(rank, 2 * timeout));
        cluster.run_for(2 * timeout + ms(700));
    }
    cluster.check(no_living_rank_is_named);
}

#[test]
fn rank_dead_during_a_suspension_is_reported_within_the_timeout() {
    let LivenessConfig { timeout, .. } = LivenessConfig::default();
    for is_at_work in [false, true] {
        let mut cluster =
            if is_at_work { at_work(35) } else { Cluster::builder().ranks(4).seed(36).build() };
        (0..4).for_each(|rank| cluster.suspend(rank, 10 * timeout));
        let resumed = cluster.now() + 10 * timeout;
        cluster.run_for(timeout);
        cluster.crash(2);
        cluster.run_for(9 * timeout);
        assert_eq!(cluster.named_at(1, 2), None);
        cluster.run_for(naming_time());
        cluster.check(dead_are_named_to_all);
        cluster.check(no_living_rank_is_named);
        for rank in [0, 1, 3] {
            assert!(cluster.named_at(rank, 2).unwrap().since(resumed) >= timeout);
        }
    }
}

#[test]
fn departed_rank_is_not_reported_failed() {
    let mut cluster = Cluster::builder().ranks(4).seed(5).build();
    cluster.leave(2);
    cluster.run_for(2 * naming_time());
    for rank in [0, 1, 3] {
        assert!(cluster.departed_at(rank, 2).is_some());
        assert_eq!(cluster.named_at(rank, 2), None);
    }
    cluster.send(1, 3, 1, 10);
    cluster.receive(3, 1, 1, 10);
    cluster.run_until_quiescent();
}

#[test]
fn lost_farewell_still_reaches_a_rank_that_waits_for_the_sender() {
    let mut cluster = Cluster::builder().ranks(4).seed(5).build();
    let missed = cluster.receive(1, 3, 1, 10);
    cluster.run_for(ms(10));
    let lost = cluster.rule(drop().kind(Kind::Bye).from(3).to(1));
    cluster.leave(3);
    cluster.run_for(ms(1));
    lost.heal();
    assert_eq!((cluster.departed_at(0, 3).is_some(), cluster.departed_at(1, 3)), (true, None));
    cluster.run_for(2 * LivenessConfig::default().interval);
    assert!(cluster.departed_at(1, 3).is_some());
    assert!(matches!(cluster.state(missed), State::Failed(_)), "{:?}", cluster.state(missed));
    cluster.check(no_living_rank_is_named);
}

#[test]
fn substitute_for_a_lost_farewell_names_the_failure_behind_the_departure() {
    let mut cluster = Cluster::builder().ranks(5).seed(5).build();
    let _unheard = cluster.rule(drop().kind(Kind::Failed).to(1));
    let _lost = cluster.rule(drop().kind(Kind::Bye).from(3).to(1));
    cluster.crash(4);
    cluster.run_for(naming_time());
    cluster.leave(3);
    cluster.run_for(2 * LivenessConfig::default().interval);
    let (failed, departed) = (cluster.named_at(1, 4), cluster.departed_at(1, 3));
    assert!(failed.is_some() && failed <= departed, "{failed:?} {departed:?}");
}

#[test]
fn message_of_a_departed_rank_can_still_be_received() {
    let mut cluster = Cluster::builder().seed(5).build();
    let sent = cluster.send(0, 1, 1, 5000);
    cluster.run_for(ms(10));
    assert!(matches!(cluster.state(sent), State::Done(_)));
    cluster.leave(0);
    cluster.run_for(ms(10));
    let received = cluster.receive(1, 0, 1, 5000);
    cluster.run_until_quiescent();
    assert!(matches!(cluster.state(received), State::Done(_)), "{:?}", cluster.state(received));
    cluster.check(delivered_once_in_order);
}

#[test]
fn partial_message_of_a_dead_rank_is_never_delivered() {
    let mut cluster = Cluster::builder().seed(5).build();
    cluster.send(0, 1, 1, 1_000_000);
    cluster.run_for(ms(10));
    cluster.crash(0);
    cluster.run_for(naming_time());
    let received = cluster.receive(1, 0, 1, 1_000_000);
    assert!(matches!(cluster.state(received), State::Failed(_)));
}

#[test]
fn corrupted_packets_are_counted_and_never_delivered() {
    let mut cluster = Cluster::builder().ranks(2).seed(6).build();
    let _noise = cluster.rule(corrupt().ppm(100_000));
    for _ in 0..50 {
        cluster.send(0, 1, 1, 3000);
        cluster.receive(1, 0, 1, 3000);
        cluster.run_until_quiescent();
    }
    cluster.check(delivered_once_in_order);
    cluster.run_for(ms(100));
    let refused = |rank| {
        let gate = cluster.gate(rank);
        gate.malformed + gate.unknown_version + gate.foreign_job + gate.bad_tag
    };
    let network = cluster.network_counters();
    assert!(network.corrupted > 0 && network.checksum_errors > 0, "{network:?}");
    assert_eq!(refused(0) + refused(1), network.corrupted);
}

#[test]
fn each_kind_of_forgery_has_its_own_counter() {
    let mut cluster = Cluster::builder().ranks(3).seed(7).build();
    for (count, forgery) in (1..).zip(Forgery::ALL) {
        for _ in 0..count {
            cluster.forge(forgery, 1);
        }
    }
    cluster.run_for(ms(1));
    let gate = *cluster.gate(1);
    assert_eq!(gate.malformed, 1 + 2, "{gate:?}");
    assert_eq!(gate.unknown_version, 3);
    assert_eq!(gate.foreign_job, 4);
    assert_eq!(gate.bad_tag, 5);
    assert_eq!(gate.accepted, 0);
}

#[test]
fn forgeries_and_replays_do_not_disturb_messages() {
    let mut cluster = Cluster::builder().ranks(3).seed(8).build();
    for round in 0..60 {
        cluster.send(0, 1, 1, 4000);
        cluster.receive(1, 0, 1, 4000);
        for to in 0..3 {
            cluster.forge(Forgery::ALL[round % Forgery::ALL.len()], to);
            cluster.forge(Forgery::Replay, to);
        }
        cluster.run_for(Duration::from_micros(70));
    }
    cluster.run_until_quiescent();
    cluster.check(delivered_once_in_order);
    cluster.check(nothing_is_missing);
    cluster.check(no_living_rank_is_named);
}

#[test]
fn partial_message_of_a_departed_rank_is_never_delivered() {
    for bytes in [300_000, 1_000_000] {
        let config = ChannelConfig { eager_bytes: 400_000, ..ChannelConfig::default() };
        let mut cluster = Cluster::builder().channel(config).seed(5).build();
        let cut = cluster.rule(drop().kind(Kind::Data).ordered().seq(60));
        cluster.send(0, 1, 1, bytes);
        cluster.run_for(ms(10));
        cut.heal();
        cluster.leave(0);
        cluster.run_for(ms(10));
        let received = cluster.receive(1, 0, 1, bytes as u64);
        cluster.run_for(ms(10));
        assert!(matches!(cluster.state(received), State::Failed(_)), "{bytes} bytes");
    }
}
