//! `omnes bench`: measures messages and collective operations in the ranks of a job.
//!
//! Runs in every rank, under any launcher; rank 0 prints. Results go to stdout; the head lines
//! (version, ranks, a command line that repeats the measurement; whether the job multicasts) go to
//! stderr with `--json`, else before the table.
//!
//! | module | what it does |
//! |---|---|
//! | `options` | options as typed, checked |
//! | `transfer`, `pattern` | one call of an operation; its data |
//! | `stage` | which ranks take part, and how packets to all travel among them |
//! | `measure`, `clock` | the loop around it; a start by the clock |
//! | `overlap` | how much of a nonblocking operation computation hides |
//! | `counts`, `summary` | packets, bytes, system calls; median and percentiles |
//! | `report` | lines and table |
//! | `rank` | joining a job, gathering at rank 0; `omnes cp` uses it too |
//!
//! A sample is the slowest rank's time of one iteration, as in the OSU benchmarks; latency is half
//! a round trip. Exit status: 0; 1 if data were wrong or a rank failed; 2 for wrong usage or
//! without a launcher.

pub mod clock;
mod counts;
mod measure;
mod options;
mod overlap;
mod pattern;
pub mod rank;
mod report;
mod stage;
mod summary;
mod transfer;

use crate::format::{Format, FormatArgs};
use crate::print::{self, Reader};
use crate::run::signals;
use crate::stderr::write_line;
use anyhow::Result;
pub use counts::AtRoot;
use measure::Bench;
use omnes::{Communicator, MulticastState};
use omnes_wire::CARRIED_MAX;
use options::Measure;
pub use options::short_bytes;
use report::{Line, Row, Run};
use serde_json::Value;
use stage::Stage;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
pub use summary::Summary;
use transfer::Point;

const EXAMPLES: &str = "\
Examples:
  omnes run -n 8 -- omnes bench bcast,barrier
  omnes run -n 8 --no-prefix -- omnes bench bcast --sizes 64k,4m \\
    --algorithms binomial,chain
  omnes run -n 2 --no-prefix -- omnes bench latency,bandwidth --json \\
    --tag net=lab
  omnes run -n 8 --no-prefix -- omnes bench throughput --sizes 8 \\
    --scheme original,window,skewed
  omnes run -n 8 --no-prefix -- omnes bench skew --sizes 8 --skew 0,400us \\
    --scheme original,window
  omnes run -n 8 --lab --no-prefix --env OMNES_MULTICAST=off -- \\
    omnes bench bcast,multisend --multisend flat:nic,flat:loop,postal=6,off \\
    --destinations 1,3,7
  omnes run -n 8 --no-prefix -- omnes bench allreduce --sizes 8,64k \\
    --algorithms flat,blocks
  omnes run -n 2 --lab --no-prefix -- omnes bench allreduce,iallreduce \\
    --sizes 64k,1m
  omnes run -n 8 --lab --no-prefix -- omnes bench copy,wbcast --sizes 4m
  mpirun -n 8 omnes bench wbcast --sizes 8,1k

`original` is a binomial tree of messages, each forwarded once all of it has
come; tables show it as binomial:store. JSON calls wbcast bcast_window.

Packets, wire bytes, copied bytes, system calls, wake-ups and retransmits are
per operation, summed over ranks; for broadcasts only what happens inside the
calls. For multicast broadcasts, \"root data\" counts the data packets that the
root multicasts, and \"root acks\" the acknowledgements that it receives.
Throughput is that of the slowest rank. The time of a skewed broadcast is the
mean over the ranks of their time inside the call, without the delay before
it.

With --multisend, broadcasts are measured once per form, with multi-sends of
the scheme named before @; off is what a job without multi-sends uses. The
time of a multisend is that at rank 0 from the call until the last destination
has answered with an empty message; unicast sends to one after the other.

Nonblocking operations are started and waited for immediately; median, p99,
min, mean, packets and the other counts refer to that. Then the same amount of
computation, about as long as the median, is timed alone on all ranks
(compute) and between start and wait (overall), medians of the slowest rank.
The overlap is the hidden part of the median: 100 * (1 - (overall - compute) /
median), at least 0. If ranks outnumber cores, as in most labs, it is
necessarily small, because computation and communication compete for the CPU.

docs/PERFORMANCE.md describes the fields of --json.";

/// Measure messages and collective operations.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    measure: Measure,
    #[command(flatten)]
    format: FormatArgs,
    /// Name of the implementation in the output
    #[arg(long = "impl", default_value = "omnes", value_name = "NAME")]
    implementation: String,
    /// Field to add to every output line (repeatable); a number stays a number
    #[arg(long, value_name = "KEY=VALUE", value_parser = options::parse_tag)]
    tag: Vec<(String, Value)>,
}

/// Runs the subcommand in this rank.
pub fn run(args: Args) -> Result<ExitCode> {
    let comm = rank::join("omnes run -n 8 -- omnes bench bcast")?;
    let has_multisend =
        || if args.measure.needs_multisend() { stage::check_multisend(&comm) } else { Ok(()) };
    if let Err(error) = args.measure.check(comm.size()).and_then(|()| has_multisend()) {
        return Ok(rank::refuse(&comm, &error));
    }
    let errors = measure_all(&comm, args);
    Ok(rank::leave(comm, errors.map(|errors| errors == 0)))
}

/// Measures every point; returns the number of wrong bytes found, which is the same at every rank.
fn measure_all(comm: &Communicator, args: Args) -> Result<u64> {
    let format = args.format.chosen();
    let seed = rank::share_number(comm, args.measure.seed.map_or_else(draw_seed, Ok)?)?;
    let run = Run {
        implementation: args.implementation,
        ranks: comm.size(),
        tags: args.tag.into_iter().collect(),
    };
    let mut printed = match comm.rank() {
        0 => print_head(&args.measure, format, comm, seed),
        _ => Ok(Reader::Listens),
    };
    let (bench, mut stage) = (Bench::new(comm, &args.measure, seed), Stage::new(comm));
    bench.warm_up()?;
    let rows: Arc<Mutex<Vec<Row>>> = Arc::default();
    if comm.rank() == 0 && format == Format::Table {
        let rows = Arc::clone(&rows);
        signals::before_end(move || drop(print_table(&rows)))?;
    }
    let mut measure_each = || -> Result<u64> {
        let mut errors = 0;
        for point in points(comm, &args.measure)? {
            // Only rank 0 knows; all ranks stop together.
            let is_heard = matches!(printed, Ok(Reader::Listens));
            if rank::share_number(comm, u64::from(is_heard))? == 0 {
                break;
            }
            let Some(setting) = stage.set(point)? else { continue };
            let measured = bench.measure(&setting)?;
            errors += measured.errors;
            if comm.rank() != 0 {
                continue;
            }
            let line = Line::new(&run, &measured);
            match format {
                Format::Json => printed = print::line(line.to_json()?),
                Format::Table => rows.lock().expect("pushed to only").push(report::row(&line)),
            }
        }
        Ok(errors)
    };
    let errors = measure_each();
    // Rows measured so far are printed even if a rank has failed.
    if let Some(table) = print_table(&rows) {
        printed = table;
    }
    let errors = rank::share_number(comm, errors?)?;
    printed.map(|_| errors)
}

/// Prints the rows, if any have not been printed.
fn print_table(rows: &Mutex<Vec<Row>>) -> Option<Result<Reader>> {
    let mut rows = rows.lock().expect("pushed to only");
    let table = (!rows.is_empty()).then(|| print::line(report::table(&rows)));
    rows.clear();
    table
}

/// Points to measure, in order. Collective.
fn points(comm: &Communicator, measure: &Measure) -> Result<Vec<Point>> {
    let direction = measure.direction();
    let mut points = Vec::new();
    for &op in &measure.ops {
        if op.is_by_clock() && !clock::is_common(comm)? {
            let reason = "needs all ranks on one machine (one clock)";
            tell_left_out(comm, format_args!("{}, which {reason}", op.typed()));
            continue;
        }
        for algorithm in measure.algorithms_for(op) {
            let forms = stage::forms(comm, op, &measure.multisend)?;
            for multisend in algorithm.forms(op, &forms) {
                for destinations in measure.destinations_for(op, comm.size()) {
                    for bytes in measure.sizes_for(op) {
                        let bytes = usize::try_from(bytes)?;
                        if !algorithm.takes(bytes) {
                            let reason =
                                format_args!("{bytes} B are not 1 to {CARRIED_MAX} numbers");
                            tell_left_out(comm, format_args!("{algorithm}: {reason}"));
                            continue;
                        }
                        points.extend(measure.skews_for(op).into_iter().map(|skew| Point {
                            op,
                            direction,
                            bytes,
                            algorithm,
                            skew,
                            destinations,
                            multisend,
                        }));
                    }
                }
            }
        }
    }
    Ok(points)
}

/// Reports at rank 0 that something is not measured.
fn tell_left_out(comm: &Communicator, what: std::fmt::Arguments<'_>) {
    if comm.rank() == 0 {
        crate::stderr::notice(format_args!("left out: {what}"));
    }
}

fn draw_seed() -> Result<u64> {
    // 32 bits: short to type, and enough for data that only have to differ from those of the last
    // run.
    let drawn = getrandom::u32();
    drawn.map(u64::from).map_err(|error| anyhow::anyhow!("cannot get random numbers: {error}"))
}

fn print_head(measure: &Measure, format: Format, comm: &Communicator, seed: u64) -> Result<Reader> {
    let (version, ranks) = (env!("CARGO_PKG_VERSION"), comm.size());
    let command = measure.command_line(seed);
    let multicast = match comm.multicast() {
        MulticastState::On { group, interface } => format!("multicast: {group} via {interface}"),
        MulticastState::Off { reason } => format!("no multicast: {reason}"),
    };
    let mut head = format!("# omnes {version}, {ranks} ranks: {command}\n# {multicast}");
    if let Some(usage) = comm.multisend() {
        write!(head, "\n# multi-send: {usage}").expect("a string takes all text");
    }
    if format == Format::Table {
        return print::line(head);
    }
    write_line(format_args!("{head}"));
    Ok(Reader::Listens)
}
