//! Empty messages that need no receive.

use super::*;

fn hand_notice(channel: &mut Channel, us: u64, seq: u32, bytes: u64) {
    let header = Header {
        communicator: CommunicatorId::NOTICES,
        flags: Flags::FIRST,
        ..header(PEER, Kind::Data, seq, 0)
    };
    let envelope = Envelope { tag: 7, token: 9, bytes }.emit();
    hand(channel, at(us), header, &envelope, bytes as usize);
}

#[test]
fn notice_is_reported_once_in_order_and_takes_no_slot() {
    let mut channel = channel();
    // The pool has no more slots.
    for seq in 0..4 {
        hand_first(&mut channel, 0, PEER, seq, 8, 8);
    }
    let id = channel.receive(at(10), Pattern { tag: None, ..from(PEER) }, 8).unwrap();
    hand_notice(&mut channel, 20, 5, 0);
    assert_eq!(events(&mut channel), [Event::Received { id, from: PEER, tag: 5, bytes: 8 }]);
    hand_notice(&mut channel, 30, 4, 0);
    let notice = Event::Notice { from: PEER, tag: 7 };
    assert_eq!(events(&mut channel), [notice, notice]);
    hand_notice(&mut channel, 40, 4, 0);
    assert_eq!(events(&mut channel), []);
    assert_eq!(sent(&mut channel, 40), ["ack expects 6 e0"]);
}

#[test]
fn notice_with_data_is_malformed() {
    let mut channel = channel();
    hand_notice(&mut channel, 0, 0, 8);
    assert_eq!(events(&mut channel), []);
    assert_eq!(channel.counters().malformed, 1);
}
