//! Ranks that long packets do not reach, distinguished from failed ranks, from ranks without buffer
//! space and from links that lose packets.

use super::*;

/// Data bytes of the packets, longer than some networks forward.
const LONG: u64 = 8000;
/// Last packet of a message of one long and one short packet.
const TAIL: u32 = 1;
const TIMEOUT_US: u64 = 4_000_000;
/// After two timeouts everything that is to be detected has been detected.
const END_US: u64 = 2 * TIMEOUT_US;

fn channel() -> Channel {
    let config = ChannelConfig {
        payload_bytes: LONG as u16,
        eager_bytes: 64 << 10,
        peer_timeout: Duration::from_micros(TIMEOUT_US),
        ..config()
    };
    Channel::new(ChannelId(0), 0, ME, 3, config.build().unwrap())
}

/// Fires timers until an event occurs, but not after [`END_US`]; returns the event and its time.
/// `answer` gives the peer's answer to the packets that were sent.
fn run(
    channel: &mut Channel,
    mut answer: impl FnMut(&mut Channel, u64, &[String]),
) -> Option<(u64, Event)> {
    loop {
        let us = channel.poll_timeout()?.as_ns().div_ceil(1000);
        if us > END_US {
            return None;
        }
        let lines = sent(channel, us);
        if let Some(event) = channel.poll_event() {
            return Some((us, event));
        }
        answer(channel, us, &lines);
    }
}

const MTU_BLACK_HOLE: Event = Event::MtuBlackHole { rank: PEER };

#[test]
fn long_packets_that_never_arrive_are_noticed_though_short_ones_do() {
    let mut channel = channel();
    channel.send(message(PEER, LONG + 100)).unwrap();
    sent(&mut channel, 0);
    // The tail has arrived; the peer keeps reporting the gap before it.
    let noticed = run(&mut channel, |channel, us, _| nack(channel, us + 1, 0, &[TAIL]));
    let (us, event) = noticed.unwrap();
    assert_eq!(event, MTU_BLACK_HOLE);
    assert!((TIMEOUT_US..TIMEOUT_US * 3 / 2).contains(&us), "{us}");
}

#[test]
fn a_silent_rank_that_lives_is_one_that_long_packets_do_not_get_to() {
    for lives in [true, false] {
        let mut channel = channel();
        channel.send(message(PEER, LONG)).unwrap();
        sent(&mut channel, 0);
        let (us, event) = run(&mut channel, |_, _, _| ()).unwrap();
        assert_eq!(event, Event::PeerQuiet { rank: PEER });
        assert!((TIMEOUT_US / 2..TIMEOUT_US).contains(&us), "{us}");
        if lives {
            channel.on_sign_of_life(at(us + 50), PEER);
        }
        let found = std::iter::from_fn(|| run(&mut channel, |_, _, _| ()));
        let found = found.map(|(_, event)| event).find(|it| !matches!(it, Event::PeerQuiet { .. }));
        let silent = Event::PeerSilent { rank: PEER };
        assert_eq!(found, Some(if lives { MTU_BLACK_HOLE } else { silent }));
    }
}

#[test]
fn unanswered_short_packets_raise_no_black_hole_suspicion() {
    let mut channel = channel();
    channel.send(message(PEER, 500)).unwrap();
    sent(&mut channel, 0);
    channel.on_sign_of_life(at(1), PEER);
    let found = std::iter::from_fn(|| run(&mut channel, |_, _, _| ())).map(|(_, event)| event);
    let found: Vec<_> = found.take(20).collect();
    assert!(found.contains(&Event::PeerSilent { rank: PEER }) && !found.contains(&MTU_BLACK_HOLE));
}

#[test]
fn rejecting_rank_is_not_suspected_of_a_black_hole() {
    let mut channel = channel();
    channel.send(message(PEER, LONG + 100)).unwrap();
    sent(&mut channel, 0);
    let noticed = run(&mut channel, |channel, us, lines| {
        for line in lines {
            let mut words = line.split_whitespace().skip(2);
            let epoch = words.next().unwrap()[1..].parse().unwrap();
            reject(channel, us + 1, 0, epoch);
        }
    });
    assert_eq!(noticed, None);
}

#[test]
fn partial_arrival_of_long_packets_raises_no_suspicion() {
    let mut channel = channel();
    let mut arrived = Vec::new();
    for _ in 0..6 {
        channel.send(message(PEER, LONG)).unwrap();
    }
    sent(&mut channel, 0);
    // Occasionally a later packet arrives, while the oldest is lost each time.
    let noticed = run(&mut channel, |channel, us, _| {
        let next = arrived.len() as u32 + 1;
        if u64::from(next) * END_US / 6 < us {
            arrived.push(next);
        }
        nack(channel, us + 1, 0, &arrived);
    });
    assert_eq!((noticed, arrived.len()), (None, 5));
}

#[test]
fn rank_that_sends_requests_but_never_answers_is_silent() {
    // The path to the peer carries nothing.
    let mut channel = channel();
    channel.send(message(PEER, 500)).unwrap();
    sent(&mut channel, 0);
    let found = run(&mut channel, |channel, us, _| {
        let question = Header { flags: Flags::ACK_NOW, ..header(PEER, Kind::Nack, 0, 0) };
        hand(channel, at(us + 1), question, &[], 0);
    });
    let (us, event) = found.unwrap();
    assert_eq!(event, Event::PeerSilent { rank: PEER });
    assert!((TIMEOUT_US..TIMEOUT_US * 3 / 2).contains(&us), "{us}");
}

#[test]
fn what_went_in_vain_before_a_pause_says_nothing_after_it() {
    let mut channel = channel();
    channel.send(message(PEER, LONG + 100)).unwrap();
    sent(&mut channel, 0);
    // Most of a timeout, and then the same again.
    let mut rounds = 0;
    for start in [0, 3 * TIMEOUT_US] {
        let mut us = start;
        while us < start + TIMEOUT_US * 9 / 10 {
            us += 100_000;
            rounds += sent(&mut channel, us).len();
            nack(&mut channel, us + 1, 0, &[TAIL]);
            assert_eq!(events(&mut channel), [], "{us}");
        }
        channel.on_pause(at(3 * TIMEOUT_US));
    }
    assert!(rounds >= 20, "{rounds}");
}

#[test]
fn rejecting_rank_that_falls_silent_is_reported_as_silent() {
    let mut channel = channel();
    channel.send(message(PEER, LONG)).unwrap();
    sent(&mut channel, 0);
    reject(&mut channel, 100, 0, 0);
    let (_, event) = run(&mut channel, |_, _, _| ()).unwrap();
    assert_eq!(event, Event::PeerSilent { rank: PEER });
}

#[test]
fn long_packets_arriving_at_the_second_try_raise_no_suspicion() {
    let mut channel = channel();
    for number in 0..20 {
        let mut us = u64::from(number) * END_US / 20 + 1;
        let id = channel.send(message(PEER, LONG - 16)).unwrap();
        assert_eq!(sent(&mut channel, us).len(), 1);
        let mut lines = Vec::new();
        while lines.is_empty() {
            us = channel.poll_timeout().unwrap().as_ns().div_ceil(1000);
            lines = sent(&mut channel, us);
        }
        ack(&mut channel, us + 1, number + 1);
        assert_eq!(events(&mut channel), [Event::Sent { id }], "{number}");
    }
}
