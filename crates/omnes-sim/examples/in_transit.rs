//! Prints the results of the wormhole model for each target of the paper on in-transit buffers.
//!
//! `cargo run --release -p omnes-sim --example in_transit`

use omnes_sim::wormhole::studies::{self, Throughput};
use omnes_sim::wormhole::{EARLY_BYTES, Interface};
use omnes_topo::network::NetworkError;

fn print_throughput(title: &str, found: &Throughput) {
    println!("{title}: bytes per us and switch, up*/down* against in-transit buffers");
    for one in &found.networks {
        let (up_down, in_transit) = (one.up_down, one.in_transit);
        println!(
            "  {:2} switches, seed {}: {up_down:6.1} {in_transit:6.1}  ratio {:.2}",
            one.switches,
            one.seed,
            one.ratio()
        );
    }
    let (mean, least) = (found.large_ratio(), found.large_ratio_min());
    println!("  IT-M06 mean of large ones {mean:.2}, least {least:.2}");
    println!("  IT-M07 best {:.2}", found.best_ratio());
}

fn main() -> Result<(), NetworkError> {
    println!("IT-M01 {:.0} ns", studies::check_ns()?);
    println!("IT-M02 {:.0} ns", studies::check_ns_max()?);
    println!("IT-M03 {:.2?} %", studies::check_percent()?);
    println!("IT-M04 {:.2} us", studies::stop_us()?);
    println!("IT-M05 {:.2?} %", studies::stop_percent()?);
    println!("IT-D01 {:.2?}", studies::bottleneck_ratios()?);
    println!("IT-D02 {:.2?}", studies::path_means()?);
    println!("IT-S01 {:?}", studies::ring_legality());
    println!("IT-S02 at switches {:?}", studies::ring_stops()?);
    println!("IT-S03 {:?} links", studies::ring_hops());
    println!("IT-S04 {:?}", studies::cycles()?);
    println!("IT-S05 {:.0} ns before the tail", studies::cut_through_ns()?);
    println!("IT-P01 {} bytes, constant {EARLY_BYTES}", studies::early_bytes()?);
    println!("IT-P02 {:?}", studies::overflows()?);
    println!("IT-P03 {:?}", studies::bytes_per_switch()?);
    print_throughput("estimated costs", &studies::throughput(Interface::ESTIMATED)?);
    print_throughput("measured costs", &studies::throughput(Interface::MEASURED)?);
    Ok(())
}
