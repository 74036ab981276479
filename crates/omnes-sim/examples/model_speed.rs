//! How fast the model is: events per second, and one broadcast over many ranks.
//!
//! `cargo run --release -p omnes-sim --example model_speed -- RANKS ALGORITHM BYTES REPEAT`

use omnes_sim::engine::Span;
use omnes_sim::model::{Carrier, Model, Op, Plan, Setup};
use omnes_sim::testbed::named;
use omnes_topo::network::Network;
use std::env::args;
use std::time::Instant;

fn main() {
    let argument = |at: usize, usual: &str| args().nth(at).unwrap_or_else(|| usual.to_owned());
    let number = |at, usual: &str| argument(at, usual).parse::<u64>().expect("a number");
    let ranks = number(1, "1024") as u32;
    let algorithm = argument(2, "combined").parse().expect("an algorithm");
    let (bytes, repeat) = (number(3, "8"), number(4, "1") as u32);
    let testbed = named("ethernet-25g").expect("it is built in");
    let network = Network::single_switch(ranks).expect("a network");
    let setup =
        Setup { testbed, network, ranks, seed: 1, loss_ppm: 0, carrier: Carrier::Multicast };
    let ops = [Op::Meet { rest: Span::from_ns(100_000) }, Op::Bcast { algorithm, root: 0, bytes }];
    let begin = Instant::now();
    let model = Model::new(setup, Plan::new(ops, repeat), false).expect("a model");
    let built = begin.elapsed();
    let report = model.run().expect("it ends");
    let all = begin.elapsed();
    let events = report.counters.events;
    let per_s = events as f64 / (all - built).as_secs_f64();
    let sample = report.samples[report.samples.len() - 1];
    println!(
        "{ranks} ranks: built in {built:.2?}, {events} events in {:.2?}: {:.2} M/s; {}",
        all - built,
        per_s / 1e6,
        sample.from_root()
    );
}
