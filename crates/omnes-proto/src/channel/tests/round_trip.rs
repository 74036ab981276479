//! What a channel learns of the time that answers take, and from which it does not.

use super::*;

/// A path that takes 50 µs both ways is known; the time, and the packets so far.
fn known_path(channel: &mut Channel) -> (u64, u32) {
    let (mut us, mut packets) = (0, 0);
    for _ in 0..50 {
        (us, packets) = (us + 1000, packets + 1);
        exchange(channel, us, 1, &[(us + 50, packets)]);
    }
    (us, packets)
}

/// Sends so many messages of a packet each at `us`, lets timers run out, and hears the answers.
fn exchange(channel: &mut Channel, us: u64, messages: u32, answers: &[(u64, u32)]) {
    for _ in 0..messages {
        channel.send(message(PEER, 10)).unwrap();
    }
    sent(channel, us);
    for (answered_at, expects) in answers {
        while let Some(due) = channel.poll_timeout().filter(|due| *due <= at(*answered_at)) {
            sent(channel, due.as_ns() / 1000 + 1);
        }
        ack(channel, *answered_at, *expects);
    }
    events(channel);
}

/// How long the next packet waits for its answer until it goes again.
fn timeout(channel: &mut Channel, us: u64) -> u64 {
    channel.send(message(PEER, 10)).unwrap();
    assert_eq!(sent(channel, us).len(), 1);
    loop {
        let due = channel.poll_timeout().unwrap().as_ns() / 1000 + 1;
        if !sent(channel, due).is_empty() {
            return due - us;
        }
    }
}

#[test]
fn own_pause_is_not_taken_for_a_slow_path() {
    let mut channel = channel();
    let (us, packets) = known_path(&mut channel);
    for _ in 0..6 {
        channel.send(message(PEER, 10)).unwrap();
    }
    assert_eq!(sent(&mut channel, us + 1000).len(), 6);
    // The answers have come in time, but are read before the timers get their turn.
    let read_at = us + 1_001_000;
    (1..=6).for_each(|more| ack(&mut channel, read_at, packets + more));
    let timeout = timeout(&mut channel, read_at);
    assert!(timeout < 100_000, "{timeout} us");
}

#[test]
fn pause_of_a_peer_is_not_taken_for_a_slow_path() {
    let mut channel = channel();
    let (us, packets) = known_path(&mut channel);
    let back_at = us + 1_001_000;
    let answers: Vec<_> = (1..=6).map(|more| (back_at, packets + more)).collect();
    exchange(&mut channel, us + 1000, 6, &answers);
    let timeout = timeout(&mut channel, back_at);
    assert!(timeout < 100_000, "{timeout} us");
}

#[test]
fn path_that_has_become_slow_is_learnt() {
    let mut channel = channel();
    let (mut us, mut packets) = known_path(&mut channel);
    let mut timeouts = [0; 8];
    for of_burst in &mut timeouts {
        let before = channel.counters().timeouts;
        us += 1_000_000;
        packets += 6;
        exchange(&mut channel, us, 6, &[(us + 100_000, packets - 3), (us + 100_010, packets)]);
        *of_burst = channel.counters().timeouts - before;
    }
    assert!(timeouts[0] > 0 && timeouts[4..] == [0; 4], "{timeouts:?}");
}
