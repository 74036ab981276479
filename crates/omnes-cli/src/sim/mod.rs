//! `omnes sim`: predicts the performance of a collective on a cluster you do not have.
//!
//! The models of `omnes-sim` run the library's protocol machines with the costs of a testbed, in
//! virtual time. Results have the fields and columns of `omnes bench`, so that simulated and
//! measured results can be compared directly. They go to stdout; so do the head lines with
//! `--format table`, else these go to stderr.
//!
//! | module | what it does |
//! |---|---|
//! | `options`, `scenario` | options as typed, or read from a file |
//! | `values`, `network` | values of axes and their text forms |
//! | `config` | complete configuration of a simulation; its runs |
//! | `postal` | the postal tree of a testbed |
//! | `measure` | one run |
//! | `sweep` | all runs, several at a time |
//! | `report`, `plot`, `trace` | lines, tables, pictures, activity of every resource |
//! | `testbeds` | constants and their sources |
//!
//! Guarantees: the same configuration gives the same results, in the same order, whatever the
//! number of jobs. Exit status: 0; 1 if a run did not complete; 2 for wrong usage.

mod config;
mod measure;
mod network;
mod options;
mod plot;
mod postal;
mod report;
mod scenario;
mod sweep;
mod testbeds;
mod trace;
mod values;

use crate::files;
use crate::format::Format;
use crate::print::{self, Reader};
use crate::stderr::{notice, write_line};
use crate::units::format_bytes;
use anyhow::{Result, bail};
use config::{Config, Point};
use measure::Measured;
use omnes_sim::model::BARS_MAX;
use options::{Output, Wanted};
use report::Line;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use sweep::{Effort, Outcome};
use values::Op;

const EXAMPLES: &str = "\
Examples:
  omnes sim bcast -n 512 --sizes 64MiB --testbed ethernet-25g --loss 0.01% \\
    --algorithms default,postal,binomial --plot answer.svg
  omnes sim bcast -n 8,64,512,4096 --sizes 8 --algorithms combined,binomial \\
    --plot scaling.html
  omnes sim barrier -n 8,64,512 \\
    --algorithms nic:dissemination,channel:dissemination --json
  omnes sim skew --sizes 8 -n 16 --scheme original,combined
  omnes sim bcast -n 8 --sizes 1m --repeat 1 --perfetto bcast.json
  omnes sim bcast -n 8,64 --loss 0.1% --seeds 5 --print-config > mine.toml
  omnes sim run mine.toml --sizes 4m
  omnes sim testbeds ethernet-25g

The first asks what a 64 MiB broadcast costs on 512 nodes with 25 Gbit/s
Ethernet and a loss of 0.01 %: by multicast, by a postal tree made for that
network, and by a binomial tree. It takes a minute or two; with `-n 64
--sizes 4MiB` some seconds. Columns and fields are those of `omnes bench`;
docs/SIMULATOR.md has them and the columns of traces.";

const BARRIER_EXAMPLES: &str = "\
Examples:
  omnes sim barrier -n 8,64,512
  omnes sim barrier -n 8,64,512 \\
    --algorithms nic:dissemination,channel:dissemination --json
  omnes sim barrier -n 1024 --testbed ethernet-25g --plot barrier.html";

const MESSAGE_EXAMPLES: &str = "\
Examples:
  omnes sim pingpong --sizes 8,8k
  omnes sim bandwidth --sizes 64k,4m --testbed ethernet-25g --loss 0.1%";

const STREAM_EXAMPLES: &str = "\
Examples:
  omnes sim throughput -n 8 --sizes 8 --scheme original,basic,window,combined
  omnes sim skew -n 16 --sizes 8 --scheme original,combined";

/// Simulate collectives on a cluster you do not have.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Broadcast that all ranks start together
    #[command(after_help = EXAMPLES)]
    Bcast(Flags),
    /// Consecutive barriers
    #[command(after_help = BARRIER_EXAMPLES)]
    Barrier(Flags),
    /// Ping-pong between ranks 0 and 1; one-way time, half of the round trip
    #[command(visible_alias = "latency", after_help = MESSAGE_EXAMPLES)]
    Pingpong(Flags),
    /// Stream of messages from rank 0 to rank 1
    #[command(after_help = MESSAGE_EXAMPLES)]
    Bandwidth(Flags),
    /// Back-to-back broadcasts
    #[command(after_help = STREAM_EXAMPLES)]
    Throughput(Flags),
    /// Broadcast while all ranks except the root are late; time inside the call
    #[command(after_help = STREAM_EXAMPLES)]
    Skew(Flags),
    /// Run a scenario file; options override its values
    Run(RunArgs),
    /// List the built-in testbeds; with a name, all constants of one and their sources
    Testbeds(testbeds::Args),
}

#[derive(clap::Args)]
struct Flags {
    #[command(flatten)]
    wanted: Wanted,
    #[command(flatten)]
    output: Output,
}

#[derive(clap::Args)]
struct RunArgs {
    /// Scenario file (docs/SIMULATOR.md; --print-config writes one)
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,
    #[command(flatten)]
    flags: Flags,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<ExitCode> {
    let (op, Flags { wanted, output }) = match args.command {
        Command::Bcast(flags) => (Op::Bcast, flags),
        Command::Barrier(flags) => (Op::Barrier, flags),
        Command::Pingpong(flags) => (Op::Pingpong, flags),
        Command::Bandwidth(flags) => (Op::Bandwidth, flags),
        Command::Throughput(flags) => (Op::Throughput, flags),
        Command::Skew(flags) => (Op::Skew, flags),
        Command::Run(RunArgs { scenario, flags: Flags { wanted, output } }) => {
            let (op, others) = scenario::read(&scenario)?;
            (op, Flags { wanted: wanted.or(others), output })
        }
        Command::Testbeds(args) => {
            print::line(testbeds::show(&args)?)?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    simulate(&Config::resolve(op, wanted)?, &output)
}

fn simulate(config: &Config, output: &Output) -> Result<ExitCode> {
    if output.print_config {
        print::line(scenario::print(config).trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    check(config, output)?;
    let mut told = Told::new(config, output.format());
    told.head();
    if !told.is_wanted(output) {
        return told.finish(output);
    }
    let cores = || std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let jobs = output.jobs.unwrap_or_else(cores);
    let effort = Effort { jobs, has_bars: output.has_bars() };
    sweep::sweep(config, effort, |point, outcome| {
        told.take(point, outcome);
        if told.is_wanted(output) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    told.finish(output)
}

/// Rejects output files that cannot be written, before anything is simulated.
fn check(config: &Config, output: &Output) -> Result<()> {
    if let Some(path) = &output.plot {
        plot::check(path)?;
    }
    for path in [&output.plot, &output.trace, &output.perfetto].into_iter().flatten() {
        files::check(path)?;
    }
    let files = [("plot", &output.plot), ("trace", &output.trace), ("perfetto", &output.perfetto)];
    for (at, (name, path)) in files.iter().enumerate() {
        let same = files[..at].iter().find(|(_, other)| path.is_some() && other == path);
        if let Some((other, _)) = same {
            bail!("--{other} and --{name} would write the same file; name two");
        }
    }
    let runs = config.points().len();
    if output.has_bars() && runs != 1 {
        bail!(
            "--trace and --perfetto show one run, and this makes {runs}; give one value for each \
             axis, and one seed"
        );
    }
    Ok(())
}

/// Output so far.
struct Told<'run> {
    config: &'run Config,
    format: Format,
    results: Vec<Measured>,
    /// Explanations of postal trees, each printed once.
    explained: BTreeSet<String>,
    failed: usize,
    /// Result of printing; nothing more is printed once it has failed.
    printed: Result<Reader>,
}

impl<'run> Told<'run> {
    fn new(config: &'run Config, format: Format) -> Self {
        let (results, explained) = (Vec::new(), BTreeSet::new());
        Self { config, format, results, explained, failed: 0, printed: Ok(Reader::Listens) }
    }

    /// True if results are still read, or files are to be written in any case.
    fn is_wanted(&self, output: &Output) -> bool {
        matches!(self.printed, Ok(Reader::Listens)) || output.has_files()
    }

    fn print(&mut self, line: impl Display) {
        if matches!(self.printed, Ok(Reader::Listens)) {
            self.printed = print::line(line);
        }
    }

    /// Prints a line beside the results.
    fn note(&mut self, line: &str) {
        if self.format == Format::Table {
            self.print(format_args!("# {line}"));
        } else {
            write_line(format_args!("# {line}"));
        }
    }

    fn head(&mut self) {
        let (version, command) = (env!("CARGO_PKG_VERSION"), self.config.command_line());
        self.note(&format!("omnes {version}, simulated: {command}"));
        self.note(&format!("testbed: {}", self.config.testbed.title));
    }

    /// Reports the outcome of a run.
    fn take(&mut self, point: Point, outcome: Outcome) {
        let measured = match outcome {
            Ok(measured) => measured,
            Err(error) => {
                self.failed += 1;
                let Point { algorithm, ranks, bytes, loss, seed, .. } = point;
                notice(format_args!(
                    "{algorithm}, {ranks} ranks, {bytes} B, {loss} loss, seed {seed}: {error}"
                ));
                return;
            }
        };
        if let Some(postal) = measured.postal {
            let size = format_bytes(point.bytes);
            let line = format!("{size} to {} ranks: {}", point.ranks, postal.explain());
            if self.explained.insert(line.clone()) {
                self.note(&line);
            }
        }
        if self.format == Format::Json {
            match Line::new(self.config, &measured).to_json() {
                Ok(line) => self.print(line),
                Err(error) => self.printed = Err(error.into()),
            }
        }
        self.results.push(measured);
    }

    /// Prints the table and writes the plot and the traces; files are written even if printing
    /// fails.
    fn finish(mut self, output: &Output) -> Result<ExitCode> {
        let lines: Vec<_> =
            self.results.iter().map(|measured| Line::new(self.config, measured)).collect();
        let table = report::table(&lines).to_string();
        if self.format == Format::Table && !self.results.is_empty() {
            self.print(&table);
        }
        if let (Some(path), false) = (&output.plot, self.results.is_empty()) {
            plot::write(path, self.config, &self.results, (&table, &self.config.command_line()))?;
        }
        if let Some(run) = self.results.first() {
            write_traces(run, output)?;
        }
        self.printed?;
        Ok(ExitCode::from(u8::from(self.failed > 0)))
    }
}

fn write_traces(run: &Measured, output: &Output) -> Result<()> {
    if !output.has_bars() {
        return Ok(());
    }
    if run.bars.len() == BARS_MAX {
        write_line(format_args!(
            "# the trace has the first {BARS_MAX} pieces of work; give fewer iterations or bytes"
        ));
    }
    let names = network::LinkNames::new(run.point.network, run.point.ranks)?;
    let name = |link| names.name(link);
    if let Some(path) = &output.trace {
        trace::write_lines(path, run, &name)?;
    }
    if let Some(path) = &output.perfetto {
        trace::write_perfetto(path, run, &name)?;
    }
    Ok(())
}
