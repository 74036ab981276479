use super::*;
#[test]
fn explore() {
    use crate::pm::measure::*;
    let mut c = Constants::built_in();
    if let Ok(v) = std::env::var("FLOW") { c.nic.flow = v.parse().expect(""); }
    if let Ok(v) = std::env::var("DOWN") { c.bus.dma_down_byte = omnes_sim::engine::Span::from_ps(v.parse().expect("")); }
    if let Ok(v) = std::env::var("UP") { c.bus.dma_up_byte = omnes_sim::engine::Span::from_ps(v.parse().expect("")); }
    let d = |sending, receiving| Design { sending, receiving };
    let all = [Design::PM, d(Sending::Immediate, Receiving::Single), d(Sending::Plain, Receiving::Single), d(Sending::Plain, Receiving::Double), d(Sending::Double, Receiving::Double)];
    for bytes in [8, 16, 64, 128, 256, 300, 400, 512, 1024, 2048, 4096] {
        let l: Vec<String> = all.iter().map(|d| format!("{:.2}", latency_us(&c, *d, bytes))).collect();
        let r: Vec<String> = all.iter().map(|d| format!("{:.2}", rate(&c, *d, bytes))).collect();
        println!("{bytes} lat {l:?} rate {r:?}");
    }
    let peak = rate(&c, Design::PM, 4096);
    println!("half {:?}", first_size((8, 4096), |b| rate(&c, Design::PM, b) >= peak / 2.0));
    println!("cross {:?}", first_size((8, 4096), |b| rate(&c, Design::PM, b) > super::super::closed::FM.rate(b as f64)));
    for n in 1..=8 {
        println!("multi {n} {:.2} {:.2}", rate_each(&c, Design::PM, 4096, (n, Copies::Resident)), rate_each(&c, Design::PM, 4096, (n, Copies::Fetched)));
    }
    { let mut w = World::new(&c, Design::PM, 8, vec![Program::Stream{to: vec![1], bytes: 8, count: 3000, copies: Copies::Fetched}, Program::Sink{count: 3000, from: Time::ZERO}]); w.run(); println!("{:?} {:?}", w.counters(0), w.counters(1)); let _ = Context::with(&c, 1, 1).message_bytes(); }
    for (s, r) in [(0, 0), (511, 0), (0, 2730), (511, 2730)] {
        let x = Context::with(&c, s, r);
        let (m, a) = save(&c, &x);
        println!("{} {}", a, restore(&c, &m).1);
    }
}
