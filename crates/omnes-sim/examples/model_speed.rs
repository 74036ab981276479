//! Speed of the model: events per second of processor time, for one run over many ranks.
//!
//! `cargo run --release -p omnes-sim --example model_speed -- [RANKS [ALGORITHM [BYTES [REPEAT
//! [NETWORK]]]]] [--json]`
//!
//! ALGORITHM is a broadcast, such as `combined` or `binomial:store`, or `barrier:STEPS:NAME`, where
//! STEPS is `messages`, `host` or `nic` and NAME such as `dissemination`; barriers follow each
//! other without a rest. NETWORK is `switch`, `fat-tree=RADIX` or `dragonfly`. The time at the end
//! is that of the last operation.

use omnes_proto::collective::Runner;
use omnes_sim::model::{BarrierKind, Carrier, Model, Op, Plan, Report, Setup, Steps};
use omnes_sim::testbed::named;
use omnes_topo::network::Network;
use std::env::args;
use std::process::ExitCode;

type Failure = Box<dyn std::error::Error>;

/// A run.
struct Case {
    ranks: u32,
    algorithm: String,
    bytes: u64,
    repeat: u32,
    network: String,
}

impl Case {
    fn from(words: &[String]) -> Result<Self, Failure> {
        let word = |at: usize, usual: &str| words.get(at).map_or(usual, String::as_str).to_owned();
        Ok(Self {
            ranks: word(0, "1024").parse()?,
            algorithm: word(1, "combined"),
            bytes: word(2, "8").parse()?,
            repeat: word(3, "1").parse()?,
            network: word(4, "switch"),
        })
    }

    fn ops(&self) -> Result<Vec<Op>, Failure> {
        if let Some(barrier) = self.algorithm.strip_prefix("barrier:") {
            return Ok(vec![Op::Barrier(barrier_kind(barrier)?)]);
        }
        let bcast = Op::Bcast { algorithm: self.algorithm.parse()?, root: 0, bytes: self.bytes };
        Ok(vec![Op::Meet, bcast])
    }

    fn setup(&self) -> Result<Setup, Failure> {
        let network = match self.network.split_once('=') {
            Some(("fat-tree", radix)) => Network::fat_tree(self.ranks, radix.parse()?)?,
            None if self.network == "switch" => Network::single_switch(self.ranks)?,
            None if self.network == "dragonfly" => Network::dragonfly(self.ranks)?,
            _ => return Err(format!("`{}` is not a network", self.network).into()),
        };
        let testbed = named("ethernet-25g")?;
        let (ranks, carrier) = (self.ranks, Carrier::Multicast);
        Ok(Setup { testbed, network, ranks, seed: 1, loss_ppm: 0, carrier })
    }
}

fn barrier_kind(text: &str) -> Result<BarrierKind, Failure> {
    let (steps, algorithm) = match text.split_once(':') {
        Some(("messages", algorithm)) => (Steps::Channel, algorithm),
        Some(("host", algorithm)) => (Steps::Machine(Runner::Host), algorithm),
        Some(("nic", algorithm)) => (Steps::Machine(Runner::Nic), algorithm),
        _ => return Err(format!("`{text}` is not STEPS:NAME").into()),
    };
    Ok(BarrierKind { algorithm: algorithm.parse()?, steps, is_multicast: false })
}

/// Processor time so far, in the kernel's ticks of some milliseconds; time of other jobs does not
/// count.
fn cpu_s() -> Result<f64, Failure> {
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    let ns: u64 = text.split_whitespace().next().ok_or("an empty schedstat")?.parse()?;
    Ok(ns as f64 / 1e9)
}

/// Peak memory so far, in bytes.
fn peak_bytes() -> Result<u64, Failure> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1024)
}

fn show(case: &Case, report: &Report, cpu: [f64; 2], is_json: bool) -> Result<(), Failure> {
    let [build_s, run_s] = cpu;
    let sample = report.samples.last().ok_or("no sample")?;
    let counters = report.counters;
    let (events, per_s) = (counters.events, counters.events as f64 / run_s.max(1e-9));
    let peak = peak_bytes()?;
    if !is_json {
        println!(
            "{} ranks: built in {build_s:.3} s, {events} events in {run_s:.3} s: {:.2} M/s; \
             {} MiB; {}",
            case.ranks,
            per_s / 1e6,
            peak >> 20,
            sample.from_root()
        );
        return Ok(());
    }
    println!(
        "{{\"ranks\":{},\"algorithm\":\"{}\",\"bytes\":{},\"repeat\":{},\"network\":\"{}\",\
         \"build_cpu_s\":{build_s:.6},\"run_cpu_s\":{run_s:.6},\"events\":{events},\
         \"packets\":{},\"copies\":{},\"acks\":{},\"repairs\":{},\
         \"dropped\":{},\"peak_bytes\":{peak},\
         \"sample_ns\":{:.3},\"end_ns\":{:.3},\"hash\":\"{:016x}\"}}",
        case.ranks,
        case.algorithm,
        case.bytes,
        case.repeat,
        case.network,
        counters.packets,
        counters.arrived,
        report.ranks.iter().map(|rank| rank.acks).sum::<u64>(),
        report.ranks.iter().map(|rank| rank.repairs).sum::<u64>(),
        counters.dropped_by_switches + counters.dropped_by_hosts,
        sample.from_root().as_ps() as f64 / 1e3,
        report.end.as_ps() as f64 / 1e3,
        report.hash,
    );
    Ok(())
}

fn run() -> Result<(), Failure> {
    let (flags, words): (Vec<_>, Vec<_>) = args().skip(1).partition(|word| word.starts_with('-'));
    let is_json = match flags.as_slice() {
        [] => false,
        [flag] if flag == "--json" => true,
        _ => return Err("the only option is --json".into()),
    };
    let case = Case::from(&words)?;
    let (setup, plan) = (case.setup()?, Plan::new(case.ops()?, case.repeat));
    let begin = cpu_s()?;
    let model = Model::new(setup, plan, false)?;
    let built = cpu_s()?;
    let report = model.run()?;
    show(&case, &report, [built - begin, cpu_s()? - built], is_json)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("model_speed: {why}");
            ExitCode::FAILURE
        }
    }
}
