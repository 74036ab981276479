//! scratch
#![allow(clippy::all,clippy::disallowed_types,clippy::disallowed_methods,clippy::unwrap_used)]
use omnes_sim::engine::Span;
use omnes_sim::wormhole::*;
use omnes_topo::network::*;
fn main() {
    for size in [8, 16, 32, 64] {
        for seed in 0..3 {
            let n = Network::irregular(IrregularOptions::eight_ports(size), seed).unwrap();
            for scheme in [Scheme::UpDown, Scheme::InTransit] {
                let r = Routes::drawn(&n, scheme, seed).unwrap();
                for interval in [4, 8, 16, 24, 32, 48, 64,96] {
                    let t = std::time::Instant::now();
                    let o = run(Setting { network: &n, routes: &r, wires: Wires::MYRINET, interface: Interface::MEASURED },
                        Traffic { payload_bytes: 512, interval: Span::from_ns(interval * 1000), warm_up: Span::from_ns(100_000), counted: Span::from_ns(300_000), seed });
                    println!("{size} {seed} {scheme:?} {interval} offered {:.1} accepted {:.1} lat {:.1} stuck {} over {} max {} fw {} wait {} ev {} {:?}", o.offered, o.accepted, o.latency_us(), o.stuck, o.all.overflowed, o.all.in_transit_max, o.all.forwarded, o.all.waited, o.events, t.elapsed());
                }
            }
        }
    }
}
