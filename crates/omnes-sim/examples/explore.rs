//! Exploration.
use omnes_proto::collective::Runner;
use omnes_sim::engine::Span;
use omnes_sim::model::*;
use omnes_sim::testbed::Testbed;
use omnes_topo::Barrier;
use omnes_topo::network::Network;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let text = std::fs::read_to_string(&args[1]).expect("file");
    let radix: u32 = args[2].parse().expect("radix");
    let skew: u64 = args[3].parse().expect("skew ns");
    let sizes: Vec<u32> = args[4].split(',').map(|s| s.parse().expect("size")).collect();
    let testbed = Testbed::parse(&text).expect("testbed");
    let setup = |ranks: u32| Setup {
        testbed: testbed.clone(),
        network: if radix == 0 {
            Network::single_switch(ranks)
        } else {
            Network::fat_tree(ranks.max(radix + 1), radix)
        }
        .expect("net"),
        ranks,
        seed: 1,
        loss_ppm: 0,
        carrier: Carrier::Multicast,
    };
    let run = |ranks, ops: Vec<Op>, n| {
        Model::new(setup(ranks), Plan::new(ops, n), false).and_then(Model::run).expect("runs")
    };
    let n = 200;
    let m = |f, t| Op::Message { from: f, to: t, bytes: 8 };
    let r = run(2, vec![m(0, 1), m(1, 0)], n);
    println!("one way {:.3}", r.end.as_ps() as f64 / 2e6 / n as f64);
    let x = Op::Barrier(BarrierKind {
        algorithm: Barrier::PairwiseExchange,
        steps: Steps::Channel,
        is_multicast: false,
    });
    println!("exchange {:.3}", run(2, vec![x], n).end.as_ps() as f64 / 1e6 / n as f64);
    for ranks in sizes {
        print!("{ranks:5}");
        for steps in [Steps::Machine(Runner::Nic), Steps::Machine(Runner::Host), Steps::Channel] {
            print!("  |");
            for algorithm in
                [Barrier::Dissemination, Barrier::PairwiseExchange, Barrier::GatherBroadcast]
            {
                let b = Op::Barrier(BarrierKind { algorithm, steps, is_multicast: false });
                let n = if ranks > 64 { 20 } else { n };
                let ops = if skew == 0 {
                    vec![b]
                } else {
                    vec![
                        Op::Meet { rest: Span::from_ns(100_000) },
                        Op::Compute { most: Span::from_ns(skew), root: ranks },
                        b,
                    ]
                };
                let r = run(ranks, ops, n);
                let us = if skew == 0 {
                    r.end.as_ps() as f64 / 1e6 / n as f64
                } else {
                    r.samples.iter().map(|s| s.from_last().as_us()).sum::<f64>()
                        / r.samples.len() as f64
                };
                print!(" {us:8.3}");
            }
        }
        println!();
    }
}
