//! Invalid reports, and packets of streams that this rank does not know.

use super::*;
use omnes_wire::{ChannelId, Envelope, Seq};

/// Report of `source` about the messages of rank 0 to the group: every packet before `expects` has
/// arrived.
fn report(kind: Kind, flags: Flags, source: u32, expects: u32) -> Header {
    Header {
        job: JobId(1),
        communicator: GROUP.communicator,
        channel: ChannelId(GROUP.number),
        expects: Seq::nth(expects),
        credits: 100,
        flags,
        ..Header::blank(kind, Rank(source))
    }
}

impl Net {
    fn hand(&mut self, rank: u32, header: &Header) {
        let machine = &mut self.nodes[rank as usize].machine;
        assert_eq!(machine.handle_packet(self.now, header, &header.emit(), 40), None);
    }
}

#[test]
fn report_of_unsent_packets_is_rejected() {
    for policy in POLICIES {
        let mut net = Net::new(2, policy);
        net.lose = Box::new(|_, _| true);
        net.send(0, content(1, 8), Reply::Lazy);
        net.run(1);
        net.hand(0, &report(Kind::CastAck, Flags::NONE, 1, 2));
        net.hand(0, &report(Kind::CastNack, Flags::NONE, 1, 7));
        assert_eq!(net.nodes[0].machine.counters().beyond_window, 2, "{policy}");
        net.run(1);
        assert_eq!(net.nodes[0].freed, 0, "{policy}");
        net.lose = Box::new(|_, _| false);
        net.receive(1, 0, 8);
        net.run(20_000);
        net.assert_received(&[content(1, 8)], 0);
    }
}

#[test]
fn report_from_a_rank_with_another_collector_is_rejected() {
    // Rank 3 reports to rank 2.
    let mut net = Net::new(4, "co-root=2");
    net.lose = Box::new(|_, _| true);
    net.send(0, content(1, 8), Reply::Lazy);
    let now = net.now;
    net.nodes[0].poll(now, 0);
    net.hand(0, &report(Kind::CastNack, Flags::MISSING_REST, 3, 0));
    net.hand(0, &report(Kind::CastAck, Flags::NONE, 3, 1));
    assert_eq!(net.nodes[0].machine.counters().malformed, 2);
    assert!(net.nodes[0].poll(now, 0).is_empty());
}

#[test]
fn only_the_newest_unopened_groups_are_remembered() {
    let most = KNOCKS_MAX as u32;
    let mut net = Net::new(2, "combined");
    for number in 2..most * 3 {
        let header = Header {
            job: JobId(1),
            communicator: CommunicatorId(number),
            flags: Flags::GROUP.with(Flags::FIRST).with(Flags::LAST),
            ..Header::blank(Kind::Cast, Rank(0))
        };
        let body = Envelope { tag: 0, token: 0, bytes: 0 }.emit();
        let bytes = [&header.emit()[..], &[0; 8], &body].concat();
        let machine = &mut net.nodes[1].machine;
        assert_eq!(machine.handle_packet(net.now, &header, &bytes, bytes.len()), None);
    }
    let knocks = &net.nodes[1].machine.knocks;
    assert_eq!(knocks.len(), KNOCKS_MAX);
    assert_eq!(knocks.last().map(|key| key.group.communicator.0), Some(most * 3 - 1));
}

#[test]
fn pending_answers_to_queries_are_bounded() {
    let mut net = Net::new(2, "window");
    net.nodes[1].machine.close(GROUP.communicator);
    for root in 0..3 * ASKED_MAX as u32 {
        let header = report(Kind::CastAck, Flags::QUERY, 0, 1);
        net.hand(1, &Header { argument: root, ..header });
    }
    let now = net.now;
    assert_eq!(net.nodes[1].poll(now, 1).len(), ASKED_MAX);
}
