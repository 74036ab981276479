//! What a receive makes due leaves with the call that posts it, not when somebody waits for it.
#![allow(clippy::unwrap_used)]

mod hosts;
mod ranks;

use hosts::Host;
use ranks::{PATIENCE, pattern, with_ranks};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// More than leaves before the receiver's memory is known.
const BYTES: usize = 1 << 20;

#[test]
fn rest_of_a_message_that_came_early_is_asked_for_at_once() {
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
            // Nothing is under way, so this only looks.
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
