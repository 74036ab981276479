//! Packets that become due by a receive are sent by the call that posts it, not only when a caller
//! waits for it; and the packets of one train may be for many receives.
#![allow(clippy::unwrap_used)]

mod hosts;
mod ranks;

use hosts::Host;
use omnes_wire::ENVELOPE_BYTES;
use ranks::{PATIENCE, pattern, with_ranks};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// More than is sent before the receiver's memory is known.
const BYTES: usize = 1 << 20;

#[test]
fn rest_of_an_early_message_is_requested_immediately() {
    let here = Host::here(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let block_at_once = |config: &mut omnes_net::JobConfig| {
        config.shared_memory = false;
        (config.spin, config.yield_time) = (Some(Duration::ZERO), Some(Duration::ZERO));
    };
    let is_asked_for = AtomicBool::new(false);
    with_ranks(&[here.clone(), here], block_at_once, |member| {
        if member.engine.rank() == 1 {
            let data = pattern(BYTES, 1);
            let send = member.start_send(0, &data);
            member.wait(send);
            return;
        }
        let until = Instant::now() + PATIENCE;
        while member.engine.counters().gate.accepted == 0 {
            assert!(Instant::now() < until, "nothing comes");
            // Nothing is in progress, so this only polls.
            assert!(member.engine.drain(PATIENCE));
        }
        let mut buffer = vec![0; BYTES];
        let before = member.engine.counters().channel.data_packets;
        let receive = member.start_receive(1, &mut buffer);
        let after = member.engine.counters().channel.data_packets;
        is_asked_for.store(after > before, Ordering::SeqCst);
        member.wait(Some(receive));
        assert!(buffer == pattern(BYTES, 1));
    });
    assert!(is_asked_for.into_inner(), "the grant waits for a step");
}

/// Their last packets are as long as all others, so the next message's packets continue their
/// trains.
#[test]
fn messages_that_share_a_train_arrive_in_separate_buffers() {
    const MESSAGES: usize = 60;
    let here = Host::here(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let by_sockets = |config: &mut omnes_net::JobConfig| config.shared_memory = false;
    with_ranks(&[here.clone(), here], by_sockets, |member| {
        let bytes = 3 * usize::from(member.engine.payload_bytes()) - ENVELOPE_BYTES;
        let messages: Vec<Vec<u8>> = (0..MESSAGES).map(|it| pattern(bytes, it as u32)).collect();
        if member.engine.rank() == 1 {
            member.meet.wait();
            let sends: Vec<_> = messages.iter().map(|data| member.start_send(0, data)).collect();
            sends.into_iter().for_each(|send| assert_eq!(member.wait(send), 0));
            return;
        }
        let mut buffers = vec![vec![0; bytes]; MESSAGES];
        let receives: Vec<_> =
            buffers.iter_mut().map(|buffer| member.start_receive(1, buffer)).collect();
        member.meet.wait();
        for receive in receives {
            assert_eq!(member.wait(Some(receive)), bytes as u64);
        }
        assert!(buffers == messages);
    });
}
