//! Broadcasts that a rank gives up half-way: the others hear of it, and nothing behind waits.
#![allow(clippy::unwrap_used)]

mod ranks;

use omnes::{Config, Error, MultiSend, Multicast};
use ranks::with_ranks;

/// Broadcasts go down the chain 0 - 1 - 2 through sockets.
fn chain(config: &mut Config) {
    config.shared_memory = false;
    config.multicast = Multicast::Off;
    config.multisend = MultiSend::Off;
    config.bcast = Some("chain".parse().unwrap());
}

fn inner_rank_gives_up(eager_bytes: u32) {
    let adjust = |config: &mut Config| {
        chain(config);
        config.eager_bytes = eager_bytes;
    };
    with_ranks(3, adjust, |world| {
        let other = world.dup().unwrap();
        for bytes in [8, 300_000, 4 << 20] {
            world.barrier().unwrap();
            // The root begins when the others have.
            let request = (world.rank() > 0).then(|| other.bcast_owned(0, vec![0; bytes]).unwrap());
            match (world.rank(), request) {
                (1, request) => drop(request),
                (2, Some(request)) => {
                    let failed = request.wait().unwrap_err();
                    assert!(matches!(failed.error, Error::GivenUp { rank: 1 }), "{failed}");
                    assert_eq!(failed.buffer.len(), bytes);
                }
                _ => {}
            }
            world.barrier().unwrap();
            for bytes in [8, 100_000, 1 << 20] {
                let mut data = vec![world.rank() as u8; bytes];
                world.bcast(1, &mut data).unwrap();
                assert!(data.iter().all(|byte| *byte == 1));
            }
        }
        world.finalize().unwrap();
    });
}

#[test]
fn who_waits_for_a_rank_that_gives_up_hears_of_it_and_other_broadcasts_go_on() {
    inner_rank_gives_up(Config::new(0, 1, "").eager_bytes);
}

#[test]
fn so_do_broadcasts_that_wait_for_nothing_but_room() {
    inner_rank_gives_up(8 << 20);
}
