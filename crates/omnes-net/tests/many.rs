//! A job with more ranks than a step or a push sends packets to.
#![allow(clippy::unwrap_used, missing_docs)]

mod hosts;
mod ranks;

use hosts::Host;
use omnes_net::descriptors;
use ranks::with_ranks;

const RANKS: usize = 200;

#[test]
fn departing_rank_notifies_all_others_in_a_large_job() {
    descriptors::allow(20 * RANKS as u64);
    let hosts = vec![Host::here([127, 0, 0, 1].into()); RANKS];
    let leaves_early = 7;
    let counters = with_ranks(
        &hosts,
        |config| config.shared_memory = false,
        |member| {
            if member.engine.rank() == leaves_early {
                member.engine.leave();
            }
        },
    );
    let sent = counters[leaves_early as usize].socket.packets_sent;
    assert!(sent >= RANKS as u64 - 1, "{sent} of {RANKS}");
}
