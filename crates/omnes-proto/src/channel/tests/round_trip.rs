//! Which answers a channel measures round trips by, and which it does not.

use super::*;

/// Makes a round trip of 50 µs known. Returns the time, and the number of packets so far.
fn known_path(channel: &mut Channel) -> (u64, u32) {
    let (mut us, mut packets) = (0, 0);
    for _ in 0..50 {
        (us, packets) = (us + 1000, packets + 1);
        exchange(channel, us, 1, &[(us + 50, packets)]);
    }
    (us, packets)
}

/// Sends `messages` messages of one packet each at `us`, fires timers, and passes in the answers.
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

/// Time that the next packet waits for its answer until it is retransmitted.
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
fn own_pause_is_not_mistaken_for_a_slow_path() {
    let mut channel = channel();
    let (us, packets) = known_path(&mut channel);
    for _ in 0..6 {
        channel.send(message(PEER, 10)).unwrap();
    }
    assert_eq!(sent(&mut channel, us + 1000).len(), 6);
    // The answers have arrived in time, but are read before the timers are handled.
    let read_at = us + 1_001_000;
    (1..=6).for_each(|more| ack(&mut channel, read_at, packets + more));
    let timeout = timeout(&mut channel, read_at);
    assert!(timeout < 100_000, "{timeout} us");
}

#[test]
fn pause_of_a_peer_is_not_mistaken_for_a_slow_path() {
    let mut channel = channel();
    let (us, packets) = known_path(&mut channel);
    let back_at = us + 1_001_000;
    let answers: Vec<_> = (1..=6).map(|more| (back_at, packets + more)).collect();
    exchange(&mut channel, us + 1000, 6, &answers);
    let timeout = timeout(&mut channel, back_at);
    assert!(timeout < 100_000, "{timeout} us");
}

#[test]
fn slowed_path_is_learnt_from_bursts() {
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

/// Sends a message at `us` that arrives, as do its retransmissions. Answers follow `takes` µs after
/// each transmission; the first one is a message, which acknowledges no epoch, if `by_data`.
/// Returns how often the timer expired.
fn exchange_alone(channel: &mut Channel, us: u64, takes: u64, packets: u32, by_data: bool) -> u64 {
    let before = channel.counters().timeouts;
    channel.send(message(PEER, 10)).unwrap();
    let mut answers = vec![(us + takes, epoch_of(&sent(channel, us)[0]))];
    let mut index = 0;
    while let Some((answered_at, epoch)) = answers.get(index).copied() {
        while let Some(due) = channel.poll_timeout().filter(|due| *due < at(answered_at)) {
            let due = due.as_ns() / 1000 + 1;
            let lines = sent(channel, due);
            let again = lines.iter().filter(|line| line.starts_with("data"));
            answers.extend(again.map(|line| (due + takes, epoch_of(line))));
        }
        let kind = if index == 0 && by_data { Kind::Data } else { Kind::Ack };
        // A data packet, which is a duplicate.
        let answer = Header { epoch, ..header(PEER, kind, u32::MAX, packets) };
        hand(channel, at(answered_at), answer, &[], 0);
        index += 1;
    }
    events(channel);
    channel.counters().timeouts - before
}

fn epoch_of(line: &str) -> u16 {
    line.split(' ').find_map(|word| word.strip_prefix('e')?.parse().ok()).unwrap()
}

/// Returns how often the timer expired for each of twelve messages, of which those that `is_slow`
/// selects are answered after 30 ms and the others after 50 µs, and how long the next one waits.
fn one_by_one(by_data: bool, is_slow: fn(u32) -> bool) -> (Vec<u64>, u64) {
    let mut channel = channel();
    let (us, packets) = known_path(&mut channel);
    let exchange = |more: u32| {
        let takes = if is_slow(more) { 30_000 } else { 50 };
        let us = us + u64::from(more) * 1_000_000;
        exchange_alone(&mut channel, us, takes, packets + more, by_data)
    };
    let timeouts = (1..=12).map(exchange).collect();
    sent(&mut channel, us + 19_000_000);
    (timeouts, timeout(&mut channel, us + 20_000_000))
}

#[test]
fn slowed_path_is_learnt_from_single_messages() {
    for by_data in [false, true] {
        let (timeouts, timeout) = one_by_one(by_data, |_| true);
        assert!(timeouts[0] > 0 && timeouts[6..] == [0; 6], "{timeouts:?}");
        assert!(timeout > 30_000, "{timeout} us");
    }
}

#[test]
fn occasional_pauses_of_a_peer_do_not_raise_the_timeout() {
    for by_data in [false, true] {
        let (timeouts, timeout) = one_by_one(by_data, |more| more % 3 == 0);
        assert!(timeouts[11] > 0 && timeout < 10_000, "{timeouts:?}, {timeout} us");
    }
}
