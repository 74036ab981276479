//! `omnes tune --testbed FILE`: costs of hosts and network, for the simulator.
//!
//! Only individual operations are measured, never a collective: calls that send and receive
//! packets, copies, a machine's work on a packet, switches of a core, and half of a round trip
//! between ranks 0 and 1. So the simulator's results for broadcasts and barriers are predictions.
//! The part of the half round trip that no component explains is the time until a waiting host
//! polls; a barrier of ranks 0 and 1 by the kernel NIC, less its known parts, is the time of the
//! firmware. Both are marked as calibrated to that point.

mod core;
mod file;
mod machine;
mod sockets;

use crate::bench::clock::is_common;
use crate::bench::rank;
use crate::stderr::notice;
use anyhow::{Context, Result, anyhow, ensure};
use file::Figures;
use omnes::{BarrierForm, BarrierKind, Communicator};
use omnes_topo::BarrierAlgorithm;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// Tag of the messages of this measurement.
const TAG: u32 = 0x7e57;
/// Rounds of which the median is taken: enough that waiting ranks have gone to sleep by then.
const ROUNDS: usize = 2001;

/// Minimum number of ranks: a third one shows the cost of one more copy.
const RANKS_MIN: u32 = 3;

/// Measures in all ranks, and writes the file at rank 0.
pub fn run(comm: Communicator, rendezvous: &str, path: &Path) -> Result<ExitCode> {
    let ranks = comm.size();
    match hosts(&comm, rendezvous) {
        Err(error) => return Ok(rank::leave(comm, Err(error))),
        Ok(hosts) if ranks < RANKS_MIN || hosts != u64::from(ranks) => {
            let error = anyhow!(
                "a testbed needs at least {RANKS_MIN} ranks, each on a host of its own; this job \
                 has {ranks} on {hosts}"
            );
            return Ok(rank::refuse(&comm, &error));
        }
        Ok(_) => {}
    }
    let outcome = measure(&comm, rendezvous).and_then(|figures| write(&comm, &figures, path));
    Ok(rank::leave(comm, outcome.map(|()| true)))
}

fn write(comm: &Communicator, figures: &Figures, path: &Path) -> Result<()> {
    if comm.rank() != 0 {
        return Ok(());
    }
    let text = figures.to_toml(path);
    omnes_sim::testbed::Testbed::parse(&text).context("the measured testbed is inconsistent")?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    notice(format_args!("wrote {}", path.display()));
    Ok(())
}

/// Number of distinct host addresses: of several sinks at one address, the same one would get all
/// packets.
fn hosts(comm: &Communicator, rendezvous: &str) -> Result<u64> {
    let own = sockets::own_address(rendezvous)?.octets();
    let mut addresses = BTreeSet::new();
    rank::gather(comm, &own, |_, address| addresses.extend([address.to_owned()]))?;
    rank::share_number(comm, addresses.len() as u64)
}

fn measure(comm: &Communicator, rendezvous: &str) -> Result<Figures> {
    // The other ranks are idle: if they measured too, they would compete for the cores.
    let alone = || Ok::<_, anyhow::Error>((machine::measure(), core::measure(), look(comm)?));
    let (sockets, alone) = sockets::measure(comm, rendezvous, alone)?;
    let (machine, core, look_ns) = alone.transpose()?.unwrap_or_default();
    let cores = shared_cores(comm)?;
    let half_round_trip_ns = half_round_trip(comm, 8)?;
    let nic_barrier_ns = nic_barrier(comm)?;
    Ok(Figures {
        ranks: comm.size(),
        cores,
        sockets,
        machine,
        core,
        look_ns,
        half_round_trip_ns,
        nic_barrier_ns,
    })
}

/// Median of some times, in nanoseconds.
pub(super) fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Time of one poll of the network at rank 0 that finds nothing.
fn look(comm: &Communicator) -> Result<f64> {
    let (mut nothing, own) = ([0; 8], [0; 8]);
    let time = comm.scope(|scope| {
        let mut request = scope.irecv(0, TAG, &mut nothing)?;
        let begin = Instant::now();
        for _ in 0..ROUNDS {
            ensure!(request.test()?.is_none(), "a message that nobody has sent");
        }
        let time = begin.elapsed().as_nanos() as f64 / ROUNDS as f64;
        scope.isend(0, TAG, &own)?.wait()?;
        request.wait()?;
        Ok(time)
    })?;
    Ok(time)
}

/// Half of a round trip of `bytes` bytes between ranks 0 and 1, while the others sleep.
fn half_round_trip(comm: &Communicator, bytes: usize) -> Result<f64> {
    let mut buffer = vec![0; bytes];
    let mut times = Vec::with_capacity(ROUNDS);
    match comm.rank() {
        0 => {
            for _ in 0..ROUNDS {
                let begin = Instant::now();
                comm.send(1, TAG, &buffer)?;
                comm.recv(1, TAG, &mut buffer)?;
                times.push(begin.elapsed().as_nanos() as f64 / 2.0);
            }
        }
        1 => {
            for _ in 0..ROUNDS {
                comm.recv(0, TAG, &mut buffer)?;
                comm.send(0, TAG, &buffer)?;
            }
        }
        _ => {}
    }
    comm.barrier()?;
    Ok(median(times))
}

/// Time of a barrier of ranks 0 and 1 by the kernel NIC, if there is one; `None` on other ranks.
fn nic_barrier(comm: &Communicator) -> Result<Option<f64>> {
    let pair = comm.split((comm.rank() <= 1).then_some(0), 0)?;
    let mut time = None;
    if let Some(pair) = &pair {
        let kind = BarrierKind {
            form: Some(BarrierForm::Nic),
            algorithm: Some(BarrierAlgorithm::Dissemination),
        };
        let mut times = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            if pair.barrier_with(kind).is_err() {
                times.clear();
                break;
            }
            times.push(begin.elapsed().as_nanos() as f64);
        }
        time = (!times.is_empty()).then(|| median(times));
    }
    comm.barrier()?;
    Ok(time)
}

/// Number of cores that all ranks share; 0 if they are on several machines.
fn shared_cores(comm: &Communicator) -> Result<u32> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    Ok(if is_common(comm)? { cores } else { 0 })
}
