//! `omnes sim testbeds`: the testbeds, and the source of each constant.

use super::config::read_testbed;
use crate::format::{Format, FormatArgs};
use anyhow::Result;
use omnes_sim::testbed::{Constant, Origin, Testbed, built_in};
use serde_json::{Value, json};

/// What to show.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Show all constants of this testbed: a name, or a TOML file
    name: Option<String>,
    #[command(flatten)]
    format: FormatArgs,
}

/// Text for standard output.
pub fn show(args: &Args) -> Result<String> {
    let named = args.name.as_deref().map(read_testbed).transpose()?;
    let has_name = named.is_some();
    let testbeds = named.map_or_else(built_in, |testbed| vec![testbed]);
    if args.format.chosen() == Format::Json {
        let lines: Vec<_> = testbeds.iter().map(|testbed| object(testbed).to_string()).collect();
        return Ok(lines.join("\n"));
    }
    Ok(match (&testbeds[..], has_name) {
        ([testbed], true) => {
            format!("{}: {}\n\n{}", testbed.name, testbed.title, constants(testbed))
        }
        _ => list(&testbeds),
    })
}

fn plain() -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table
}

fn list(testbeds: &[Testbed]) -> String {
    let mut table = plain();
    table.set_header(["testbed", "what it is", "constants", "given", "calibrated", "assumed"]);
    for testbed in testbeds {
        let count = |origin| testbed.constants.iter().filter(|it| it.origin == origin).count();
        let counts = [Origin::Given, Origin::Calibrated, Origin::Assumed].map(count);
        let all = testbed.constants.len();
        let counts = [all, counts[0], counts[1], counts[2]].map(|count| count.to_string());
        let names = [testbed.name.clone(), testbed.title.clone()];
        table.add_row(names.into_iter().chain(counts));
    }
    format!("{table}\n\nomnes sim testbeds NAME shows each constant with its source.")
}

fn origin(constant: &Constant) -> &'static str {
    match constant.origin {
        Origin::Given => "given",
        Origin::Calibrated => "calibrated",
        Origin::Assumed => "assumed",
    }
}

/// Unit of a constant: counts have the unit in their name, all others are times.
fn unit(constant: &Constant) -> &'static str {
    match &constant.name {
        name if name.ends_with("_bytes") => "B",
        name if name.ends_with("_packets") => "packets",
        name if name.ends_with("_messages") => "messages",
        name if name.ends_with(".cores") => "cores",
        _ => "ns",
    }
}

fn constants(testbed: &Testbed) -> comfy_table::Table {
    let mut table = plain();
    table.set_header(["constant", "value", "each byte", "origin", "source", "fitted to"]);
    for constant in &testbed.constants {
        let per_byte = match constant.per_byte {
            0.0 => String::new(),
            ns => format!("{ns} ns"),
        };
        table.add_row([
            constant.name.clone(),
            format!("{} {}", constant.value, unit(constant)),
            per_byte,
            origin(constant).to_owned(),
            constant.source.clone(),
            constant.points.join(", "),
        ]);
    }
    table
}

fn object(testbed: &Testbed) -> Value {
    let constants = testbed.constants.iter().map(|constant| {
        json!({
            "name": constant.name,
            "value": constant.value,
            "unit": unit(constant),
            "byte_ns": constant.per_byte,
            "origin": origin(constant),
            "source": constant.source,
            "points": constant.points,
        })
    });
    let constants: Vec<_> = constants.collect();
    json!({"testbed": testbed.name, "title": testbed.title, "constants": constants})
}
