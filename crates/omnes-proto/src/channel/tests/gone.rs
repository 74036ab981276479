//! Ranks that fail or leave: operations that wait for them end, and their state is dropped.

use super::*;

/// `source` has sent a message that no receive takes, half of the next one, and a packet out of
/// order: each uses a slot.
fn begin(channel: &mut Channel, source: Rank) {
    hand_first(channel, 0, source, 0, 100, 100);
    hand_first(channel, 1, source, 1, 1000, FIRST);
    hand(channel, at(2), header(source, Kind::Data, 3, 0), &[], NEXT);
}

/// Slots in use, stashed packets, ranks that are sending, and credits advertised to each.
fn kept(channel: &Channel) -> (usize, usize, u32, u16) {
    (channel.pool.used(), channel.stashed, channel.senders, channel.credits)
}

fn roomy() -> Channel {
    let config = ChannelConfig { pool_slots: 16, ..config() };
    Channel::new(ChannelId(0), 0, ME, 3, config.build().unwrap())
}

#[test]
fn state_of_a_failed_rank_is_discarded() {
    let mut channel = roomy();
    begin(&mut channel, OTHER);
    let before = kept(&channel);
    begin(&mut channel, PEER);
    let during = kept(&channel);
    assert_eq!((during.0, during.1, during.2), (6, 2, 2));
    assert!(during.3 < before.3, "room is shared");
    channel.fail_peer(PEER);
    assert_eq!((kept(&channel), channel.peers_known()), (before, 1));
}

#[test]
fn complete_messages_of_a_departed_rank_are_kept_until_received() {
    let mut channel = roomy();
    begin(&mut channel, OTHER);
    let before = kept(&channel);
    begin(&mut channel, PEER);
    channel.depart_peer(PEER);
    assert_eq!(kept(&channel), (before.0 + 1, before.1, before.2, before.3));
    let id = channel.receive(at(10), from(PEER), 100).unwrap();
    assert_eq!(events(&mut channel), [Event::Received { id, from: PEER, tag: 5, bytes: 100 }]);
    moves(&mut channel);
    assert_eq!(kept(&channel), before);
    let refused = channel.receive(at(20), from(PEER), 1000);
    assert_eq!(refused, Err(ChannelError::PeerFailed { rank: PEER }));
}

#[test]
fn stopped_channel_does_not_wait_for_a_failed_or_departed_rank() {
    for has_left in [false, true] {
        let mut channel = channel();
        let id = channel.send(message(PEER, 10)).unwrap();
        assert_eq!(sent(&mut channel, 0).len(), 1);
        channel.stop(at(1));
        assert_eq!(events(&mut channel), []);
        let ended = if has_left {
            channel.depart_peer(PEER);
            Event::Sent { id }
        } else {
            channel.fail_peer(PEER);
            Event::SendFailed { id, to: PEER }
        };
        assert_eq!(events(&mut channel), [ended, Event::Stable]);
    }
}

#[test]
fn any_source_receive_fails_with_the_rank_of_its_partial_message() {
    let mut channel = channel();
    let anybody = Pattern { source: None, ..from(PEER) };
    let id = channel.receive(at(0), anybody, 1000).unwrap();
    let later = channel.receive(at(0), anybody, 1000).unwrap();
    hand_first(&mut channel, 1, PEER, 0, 1000, FIRST);
    channel.fail_peer(PEER);
    assert_eq!(events(&mut channel), [Event::ReceiveFailed { id, from: PEER }]);
    assert!(channel.cancel(later), "another rank may fill it");
}
