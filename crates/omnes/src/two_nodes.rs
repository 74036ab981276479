//! A job for unit tests: two ranks as threads, each a node of its own, over loopback.
#![allow(clippy::unwrap_used)]

use crate::{Communicator, Config};
use std::net::Ipv4Addr;

/// Runs `body` on both ranks.
pub(crate) fn on_two_nodes(adjust: fn(&mut Config), body: fn(&Communicator)) {
    let port = omnes_net::free_port(Ipv4Addr::LOCALHOST.into()).unwrap();
    let join = |rank| {
        let mut config = Config::new(rank, 2, format!("127.0.0.1:{port}"));
        config.shared_memory = false;
        adjust(&mut config);
        let world = Communicator::from_config(config).unwrap();
        body(&world);
        world.finalize().unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| join(1));
        join(0);
    });
}
