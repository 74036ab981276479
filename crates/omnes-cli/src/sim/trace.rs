//! Activity of every host, NIC and link, as lines or for Perfetto (docs/SIMULATOR.md has the
//! columns).

use super::measure::Measured;
use anyhow::{Context, Result};
use omnes_sim::engine::Time;
use omnes_sim::model::{Bar, Doing};
use serde_json::json;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Processes of the Perfetto trace that are not hosts.
const OPERATIONS: u32 = 1_000_000;
const LINKS: u32 = 1_000_001;

/// Names of links, by number.
pub type LinkName<'run> = &'run dyn Fn(u32) -> String;

/// Writes a line for each operation, then one for each piece of work, sorted by start time.
pub fn write_lines(path: &Path, run: &Measured, name: LinkName<'_>) -> Result<()> {
    write(path, |out| lines(out, run, name))
}

/// Writes the same in the Trace Event Format, which Perfetto and chrome://tracing open.
pub fn write_perfetto(path: &Path, run: &Measured, name: LinkName<'_>) -> Result<()> {
    write(path, |out| perfetto(out, run, name))
}

fn write(path: &Path, body: impl Fn(&mut BufWriter<File>) -> std::io::Result<()>) -> Result<()> {
    let written = File::create(path).and_then(|file| {
        let mut out = BufWriter::new(file);
        body(&mut out).and_then(|()| out.flush())
    });
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Sorts by start time; bars with equal times keep the model's order.
fn sorted(bars: &[Bar]) -> Vec<Bar> {
    let mut bars = bars.to_vec();
    bars.sort_by_key(|bar| bar.start);
    bars
}

fn ps(time: Time) -> u64 {
    time.as_ps()
}

fn lines(out: &mut impl Write, run: &Measured, name: LinkName<'_>) -> std::io::Result<()> {
    writeln!(out, "# start_ps end_ps where what")?;
    for sample in &run.samples {
        let (start, end) = (ps(sample.first_began), ps(sample.ended));
        writeln!(out, "{start} {end} all operation={}", sample.number)?;
    }
    for bar in sorted(&run.bars) {
        let place = match bar.doing {
            Doing::Wire => name(bar.at),
            _ => format!("h{}", bar.at),
        };
        writeln!(out, "{} {} {place} {}", ps(bar.start), ps(bar.end), bar.doing.name())?;
    }
    Ok(())
}

/// Track of a host: its number and name.
fn track(doing: Doing) -> (u32, &'static str) {
    match doing {
        Doing::HostCalls | Doing::HostSends | Doing::HostReceives => (1, "host"),
        Doing::NicSends => (2, "NIC out"),
        Doing::NicReceives | Doing::NicSteps => (3, "NIC in"),
        Doing::Wire => (0, "wire"),
    }
}

fn perfetto(out: &mut impl Write, run: &Measured, name: LinkName<'_>) -> std::io::Result<()> {
    writeln!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    write!(out, "{}", named("process_name", (OPERATIONS, 0), "operations"))?;
    // Above all hosts, which are sorted by number.
    let sort = json!({"ph": "M", "name": "process_sort_index", "pid": OPERATIONS, "tid": 0,
                      "args": {"sort_index": -1}});
    write!(out, ",\n{sort}")?;
    let links: std::collections::BTreeSet<u32> =
        run.bars.iter().filter(|bar| bar.doing == Doing::Wire).map(|bar| bar.at).collect();
    write!(out, ",\n{}", named("process_name", (LINKS, 0), "links"))?;
    for link in links {
        write!(out, ",\n{}", named("thread_name", (LINKS, link), &name(link)))?;
    }
    for host in 0..run.point.ranks {
        write!(out, ",\n{}", named("process_name", (host, 0), &format!("host {host}")))?;
        for doing in [Doing::HostCalls, Doing::NicSends, Doing::NicReceives] {
            let (number, what) = track(doing);
            write!(out, ",\n{}", named("thread_name", (host, number), what))?;
        }
    }
    for sample in &run.samples {
        let name = format!("operation {}", sample.number);
        let span = (sample.first_began, sample.ended);
        write!(out, ",\n{}", complete(&name, (OPERATIONS, 0), span))?;
    }
    for bar in sorted(&run.bars) {
        let place = match bar.doing {
            Doing::Wire => (LINKS, bar.at),
            doing => (bar.at, track(doing).0),
        };
        write!(out, ",\n{}", complete(bar.doing.name(), place, (bar.start, bar.end)))?;
    }
    writeln!(out, "\n]}}")
}

fn named(what: &str, (process, track): (u32, u32), name: &str) -> serde_json::Value {
    json!({"ph": "M", "name": what, "pid": process, "tid": track, "args": {"name": name}})
}

/// Times in this format are in microseconds.
fn complete(name: &str, place: (u32, u32), (start, end): (Time, Time)) -> serde_json::Value {
    let us = |time| ps(time) as f64 / 1e6;
    let length = (end - start).as_us();
    json!({"ph": "X", "name": name, "pid": place.0, "tid": place.1, "ts": us(start), "dur": length})
}
