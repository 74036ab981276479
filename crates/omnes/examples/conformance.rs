//! Checks the promises of the library on the network of a launcher: `omnes run -n 4 --
//! conformance`, or under mpirun, srun, torchrun.
//!
//! Arguments: names of bodies, by default all of them; `--bytes-max N` limits the longest message,
//! `--list` prints the names. Rank 0 prints a line per body that held; every rank ends with a line
//! of counts. Exit status 0: all held; otherwise the rank that detected a failure reports it.
#![allow(clippy::unwrap_used)]

#[path = "../tests/bodies/mod.rs"]
mod bodies;

use bodies::{ALL, BYTES_MAX, Body};
use omnes::Communicator;
use std::process::ExitCode;

/// The options of the command line.
struct Wanted {
    bodies: Vec<&'static Body>,
    bytes_max: usize,
}

fn parse(arguments: impl Iterator<Item = String>) -> Result<Wanted, String> {
    let mut wanted = Wanted { bodies: Vec::new(), bytes_max: BYTES_MAX };
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        if argument == "--bytes-max" {
            let number = arguments.next().and_then(|text| text.parse().ok());
            wanted.bytes_max =
                number.filter(|bytes| *bytes >= 5000).ok_or("--bytes-max: 5000 up")?;
            continue;
        }
        let body = ALL.iter().find(|body| body.name == argument);
        wanted.bodies.push(body.ok_or_else(|| format!("no body '{argument}'; see --list"))?);
    }
    if wanted.bodies.is_empty() {
        wanted.bodies.extend(ALL);
    }
    Ok(wanted)
}

fn check(world: Communicator, wanted: &Wanted) -> Result<(), omnes::Error> {
    for body in &wanted.bodies {
        // A failed assertion ends this rank without a farewell, so the others end, too.
        (body.run)(&world, wanted.bytes_max);
        world.barrier()?;
        if world.rank() == 0 {
            println!("{} holds", body.name);
        }
    }
    let stats = world.stats();
    println!(
        "counts: sent={} casts={} retransmits={} timeouts={} rejects={} duplicates={} bad_tag={}",
        stats.packets_sent,
        stats.bcast_packets_sent,
        stats.repairs(),
        stats.timeouts + stats.bcast_timeouts,
        stats.rejects_sent,
        stats.duplicates + stats.bcast_duplicates,
        stats.packets_bad_tag,
    );
    world.finalize()
}

/// Written in one call, because other ranks write to the same stream.
fn complain(reason: &dyn std::fmt::Display) {
    let line = format!("conformance: {reason}\n");
    eprint!("{line}");
}

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--list") {
        ALL.iter().for_each(|body| println!("{}", body.name));
        return ExitCode::SUCCESS;
    }
    let wanted = match parse(std::env::args().skip(1)) {
        Ok(wanted) => wanted,
        Err(reason) => {
            complain(&reason);
            return ExitCode::from(2);
        }
    };
    match Communicator::from_env().and_then(|world| check(world, &wanted)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}
