//! An endpoint without further output is not polled again before its next input.
#![allow(clippy::unwrap_used)]

mod pair;

use omnes_proto::channel::{Event as ChannelEvent, Message, Pattern, Reply};
use omnes_proto::endpoint::{Endpoint, EndpointConfig, Event};
use omnes_proto::packet::Head;
use omnes_wire::{CommunicatorId, Header, Instant, Kind, Rank};

const DATA: &[u8] = b"12345678";

fn endpoint(me: u32) -> Endpoint {
    Endpoint::new(Instant::ZERO, pair::config(me))
}

/// All packets that `endpoint` sends at `now`.
fn drain(now: Instant, endpoint: &mut Endpoint) -> Vec<Vec<u8>> {
    let mut head = Head::default();
    let packet = || {
        let transmit = endpoint.poll_transmit(now, &mut head)?;
        let data = transmit.segment.map_or(&[][..], |_| DATA);
        Some([head.as_bytes(), data].concat())
    };
    let packets = std::iter::from_fn(packet).collect();
    assert!(!endpoint.may_transmit());
    packets
}

#[test]
fn failures_and_ended_operations_are_reported_before_the_departure() {
    let config = EndpointConfig { size: 3, ..pair::config(0) };
    let mut endpoint = Endpoint::new(Instant::ZERO, config);
    let now = Instant::from_ns(1000);
    let source = Some(Rank(1));
    let pattern = Pattern { communicator: CommunicatorId(0), source, tag: None };
    let id = endpoint.channel_mut(0).receive(now, pattern, 100).unwrap();
    endpoint.depart_rank(now, Rank(1), Some(Rank(2)));
    // No packet has been polled for in between.
    let events: Vec<Event> = std::iter::from_fn(|| endpoint.poll_event(now)).collect();
    let ended = Event::Channel(0, ChannelEvent::ReceiveFailed { id, from: Rank(1) });
    assert_eq!(events, [Event::PeerFailed(Rank(2)), ended, Event::PeerDeparted(Rank(1))]);
}

#[test]
fn every_input_releases_pending_packets_and_events() {
    let (mut from, mut to) = (endpoint(0), endpoint(1));
    let at = |us: u64| Instant::from_ns(us * 1000);
    assert!(drain(at(0), &mut from).is_empty() && drain(at(0), &mut to).is_empty());
    let message = Message {
        to: Rank(1),
        communicator: CommunicatorId(0),
        tag: 1,
        bytes: DATA.len() as u64,
        available: DATA.len() as u64,
        reply: Reply::Soon,
    };
    from.channel_mut(0).send(message).unwrap();
    let sent = drain(at(1), &mut from);
    assert_eq!(sent.len(), 1);
    // The packet arrives before its receive is posted, so its data are moved then.
    to.handle_packet(at(2), &sent[0], sent[0].len()).unwrap();
    assert!(to.may_transmit() && to.poll_move().is_none() && to.poll_event(at(2)).is_none());
    let answers = drain(at(2), &mut to);
    assert_eq!(answers.len(), 1);
    let pattern = Pattern { communicator: CommunicatorId(0), source: None, tag: None };
    to.channel_mut(0).receive(at(3), pattern, 100).unwrap();
    assert_eq!(to.poll_move().map(|(channel, step)| (channel, step.bytes)), Some((0, DATA.len())));
    assert!(to.poll_event(at(3)).is_some() && to.poll_event(at(3)).is_none());
    from.handle_packet(at(3), &answers[0], answers[0].len());
    assert!(from.poll_event(at(3)).is_some());
    // A timeout is an input too: the other rank is asked for a sign of life.
    assert!(drain(at(3), &mut from).is_empty());
    let mut next = || {
        let due = from.poll_timeout().unwrap();
        from.handle_timeout(due);
        drain(due, &mut from).len()
    };
    assert!((0..9).any(|_| next() == 1));
}

#[test]
fn failure_notice_precedes_the_cut_of_a_message() {
    let three = |me| Endpoint::new(Instant::ZERO, EndpointConfig { size: 3, ..pair::config(me) });
    let (mut from, mut teller) = (three(0), three(1));
    let now = Instant::from_ns(1000);
    // Rank 1 has detected the failure of 2, and tells 0, which has no other rank to tell.
    teller.fail_rank(now, Rank(2));
    drain(now, &mut teller).iter().for_each(|it| _ = from.handle_packet(now, it, it.len()));
    drain(now, &mut from);
    let message = Message {
        to: Rank(1),
        communicator: CommunicatorId(0),
        tag: 1,
        bytes: 100,
        available: 0,
        reply: Reply::Soon,
    };
    let id = from.channel_mut(0).send(message).unwrap();
    assert!(drain(now, &mut from).is_empty());
    from.cut(0, id, u64::MAX);
    let sent = drain(now, &mut from);
    let kinds = sent.iter().map(|packet| Header::parse(packet).unwrap().0.kind);
    assert!(kinds.eq([Kind::Failed, Kind::Data]));
}

#[test]
fn farewell_names_the_failed_rank_known_to_its_sender() {
    let three = |me| Endpoint::new(Instant::ZERO, EndpointConfig { size: 3, ..pair::config(me) });
    let now = Instant::from_ns(1000);
    for (failed, cause) in [(None, 0), (Some(Rank(2)), 3)] {
        let mut leaver = three(0);
        failed.into_iter().for_each(|rank| leaver.fail_rank(now, rank));
        drain(now, &mut leaver);
        leaver.leave();
        let sent = drain(now, &mut leaver);
        let farewells = sent.iter().map(|packet| Header::parse(packet).unwrap().0);
        let farewells: Vec<_> = farewells.filter(|header| header.kind == Kind::Bye).collect();
        assert!(!farewells.is_empty() && farewells.iter().all(|it| it.argument == cause));
    }
}
