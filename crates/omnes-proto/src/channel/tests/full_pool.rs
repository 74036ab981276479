//! Two ranks of which one sends more than the other has posted receives for: awaited messages
//! arrive nevertheless.

use super::*;
use std::collections::VecDeque;

const WIRE_US: u64 = 10;
const MINUTE_US: u64 = 60_000_000;

struct Packet {
    arrives: u64,
    to: usize,
    header: Header,
    head: Vec<u8>,
    bytes: usize,
}

/// Both ends and the wire between them, which is in order and without loss.
struct Pair {
    ends: [Channel; 2],
    wire: VecDeque<Packet>,
    now_us: u64,
}

impl Pair {
    fn new() -> Self {
        let config = || ChannelConfig::default().build().unwrap();
        let end = |me| Channel::new(ChannelId(0), 0, Rank(me), 2, config());
        Self { ends: [end(0), end(1)], wire: VecDeque::new(), now_us: 0 }
    }

    /// Starts to send messages to rank 1 that fill its pool: no receive is posted for them.
    fn fill_pool(&mut self) {
        for _ in 0..100 {
            self.send(2, 128 << 10);
        }
    }

    fn send(&mut self, tag: u32, bytes: u64) {
        let message = Message { tag, ..message(Rank(1), bytes) };
        self.ends[0].send(message).unwrap();
    }

    /// Rank 1 posts a receive.
    fn receive(&mut self, tag: u32, bytes: u64) -> ReceiveId {
        let pattern = Pattern { communicator: COMMUNICATOR, source: Some(Rank(0)), tag: Some(tag) };
        self.ends[1].receive(at(self.now_us), pattern, bytes).unwrap()
    }

    /// Runs for `us`, or until there is nothing to do. Returns the receives that have ended.
    fn run_for(&mut self, us: u64) -> Vec<ReceiveId> {
        let (until, mut received) = (self.now_us + us, Vec::new());
        loop {
            (0..2).for_each(|end| self.drain(end, &mut received));
            let timers = self.ends.iter().filter_map(Channel::poll_timeout);
            let timers = timers.map(|at| at.as_ns().div_ceil(1000));
            let next = timers.chain(self.wire.front().map(|packet| packet.arrives)).min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.now_us = self.now_us.max(next);
            while let Some(packet) = self.wire.pop_front_if(|it| it.arrives <= next) {
                let Packet { to, header, head, bytes, .. } = packet;
                self.ends[to].handle_packet(at(self.now_us), &header, &head, bytes);
                while self.ends[to].poll_move().is_some() {}
            }
            self.ends.iter_mut().for_each(|end| end.handle_timeout(at(self.now_us)));
        }
        self.now_us = until;
        received
    }

    fn drain(&mut self, own: usize, received: &mut Vec<ReceiveId>) {
        let end = &mut self.ends[own];
        let mut head = Head::default();
        while let Some(Outbound { header, segment, .. }) =
            end.poll_transmit(at(self.now_us), &mut head)
        {
            let mut whole = header.emit().to_vec();
            whole.extend_from_slice(&[0; TAG_BYTES]);
            whole.extend_from_slice(head.body());
            let bytes = whole.len() + segment.map_or(0, |segment| segment.bytes as usize);
            let (arrives, to) = (self.now_us + WIRE_US, 1 - own);
            self.wire.push_back(Packet { arrives, to, header, head: whole, bytes });
        }
        while let Some(event) = end.poll_event() {
            if let Event::Received { id, .. } = event {
                received.push(id);
            }
        }
    }
}

#[test]
fn message_behind_a_full_pool_reaches_a_posted_receive() {
    let mut pair = Pair::new();
    pair.fill_pool();
    pair.send(1, 8);
    assert_eq!(pair.run_for(MINUTE_US), []);
    let receive = pair.receive(1, 8);
    assert_eq!(pair.run_for(MINUTE_US), [receive]);
}

#[test]
fn granted_message_continues_while_the_window_is_full_of_rejected_ones() {
    let mut pair = Pair::new();
    let large = pair.receive(1, 64 << 20);
    pair.send(1, 64 << 20);
    pair.fill_pool();
    while pair.ends[1].received_bytes(large) < 1 << 20 {
        assert_eq!(pair.run_for(100), []);
    }
    pair.receive(3, 100);
    assert_eq!(pair.run_for(MINUTE_US), [large]);
}

#[test]
fn grant_is_sent_while_the_window_is_full_of_rejected_messages() {
    let config = ChannelConfig {
        initial_credit_bytes: 12_288,
        payload_bytes: 256,
        eager_bytes: 2048,
        eager_head_bytes: 240,
        window_packets: 8,
        ..ChannelConfig::default()
    };
    let mut channel = Channel::new(ChannelId(0), 0, ME, 3, config.build().unwrap());
    channel.receive(at(0), from(PEER), 3000).unwrap();
    for _ in 0..8 {
        channel.send(message(PEER, 240)).unwrap();
    }
    sent(&mut channel, 0);
    reject(&mut channel, 50, 0, 0);
    assert!(hand_first(&mut channel, 60, PEER, 0, 3000, 240).is_some());
    assert!(sent(&mut channel, 61).iter().any(|line| line.starts_with("grant")));
}

#[test]
fn unrelated_receives_do_not_make_a_rejected_sender_repeat_all() {
    let mut pair = Pair::new();
    pair.fill_pool();
    pair.run_for(MINUTE_US);
    let before = pair.ends[0].counters().retransmits;
    let receives: u64 = 100;
    for _ in 0..receives {
        pair.receive(3, 100);
        pair.run_for(500);
    }
    let again = pair.ends[0].counters().retransmits - before;
    // Packets that now have space, once each, and one probe per receive.
    assert!(again < 1024 + 2 * receives, "{again} packets sent again");
}

#[test]
fn message_behind_a_full_pool_reaches_a_probing_rank() {
    for source in [Some(Rank(0)), None] {
        let mut pair = Pair::new();
        pair.fill_pool();
        pair.send(1, 8);
        assert_eq!(pair.run_for(MINUTE_US), []);
        let sought = Pattern { communicator: COMMUNICATOR, source, tag: Some(1) };
        for _ in 0..200 {
            // Occasional probes, after each of which the rank does something else.
            if pair.ends[1].probe(&sought).is_none() {
                pair.ends[1].seek(at(pair.now_us), &sought).unwrap();
            }
            assert_eq!(pair.run_for(MINUTE_US), []);
        }
        assert_eq!(pair.ends[1].probe(&sought), Some((Rank(0), 1, 8)));
    }
}
