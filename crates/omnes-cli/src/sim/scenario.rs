//! Scenario files: the same settings as flags, in TOML; a list may be written as a single value.
//!
//! ```toml
//! op = "bcast"
//! testbed = "ethernet-25g"
//! ranks = [8, 64, 512]
//! sizes = ["8", "64KiB"]
//! algorithms = ["multicast", "binomial"]
//! loss = "0.01%"
//! seeds = 3
//! ```
//!
//! Keys are the long flags. A flag on the command line overrides the file's value.

use super::config::Config;
use super::options::Wanted;
use super::values::{Op, parse_ranks};
use crate::bench::short_bytes;
use crate::units::parse_bytes;
use crate::units::{parse_duration, short_time};
use anyhow::{Context, Result, anyhow};
use serde::Deserialize;
use std::fmt::{Display, Write as _};
use std::path::Path;

/// A value in the file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Word {
    Whole(i64),
    Text(String),
}

impl Word {
    fn text(&self) -> String {
        match self {
            Self::Whole(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// A value, or a list of them.
#[derive(Deserialize, Default)]
#[serde(untagged, expecting = "a value or a list of values, as whole numbers or in quotes")]
enum Words {
    #[default]
    None,
    One(Word),
    Many(Vec<Word>),
}

impl Words {
    /// Parses each value as the flag of the same name does.
    fn parse<T, E: Display>(
        &self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Vec<T>> {
        let is_empty = matches!(self, Self::Many(words) if words.is_empty());
        anyhow::ensure!(
            !is_empty,
            "{key}: an empty list makes no run; give a value, or omit `{key}`"
        );
        let words = match self {
            Self::None => &[],
            Self::One(word) => std::slice::from_ref(word),
            Self::Many(words) => words.as_slice(),
        };
        let parse = |word: &Word| parse(&word.text()).map_err(|error| anyhow!("{key}: {error}"));
        words.iter().map(parse).collect()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    op: String,
    testbed: Option<String>,
    #[serde(default)]
    ranks: Words,
    #[serde(default)]
    sizes: Words,
    #[serde(default)]
    algorithms: Words,
    #[serde(default)]
    roots: Words,
    #[serde(default)]
    network: Words,
    #[serde(default)]
    loss: Words,
    #[serde(default)]
    skew: Words,
    #[serde(default)]
    carrier: Words,
    seed: Option<u64>,
    seeds: Option<u32>,
    repeat: Option<u32>,
    warmup: Option<u32>,
}

/// Reads the operation and the settings of the scenario at `path`.
pub fn read(path: &Path) -> Result<(Op, Wanted)> {
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let (op, mut wanted) = parse(&text).with_context(|| format!("{name}"))?;
    // A testbed's file is beside the scenario that names it.
    if let (Some(testbed), Some(folder)) = (&wanted.testbed, path.parent()) {
        let beside = folder.join(testbed);
        if testbed.ends_with(".toml") && beside.is_file() {
            wanted.testbed = Some(beside.display().to_string());
        }
    }
    Ok((op, wanted))
}

fn parse(text: &str) -> Result<(Op, Wanted)> {
    let file: File = toml::from_str(text)?;
    let op = file.op.parse().map_err(|error| anyhow!("op: {error}"))?;
    let rank = |text: &str| text.parse::<u32>().map_err(|_| format!("`{text}` is not a rank"));
    let wanted = Wanted {
        testbed: file.testbed,
        ranks: file.ranks.parse("ranks", parse_ranks)?,
        sizes: file.sizes.parse("sizes", parse_bytes)?,
        algorithms: file.algorithms.parse("algorithms", str::parse)?,
        roots: file.roots.parse("roots", rank)?,
        network: file.network.parse("network", str::parse)?,
        loss: file.loss.parse("loss", str::parse)?,
        skew: file.skew.parse("skew", parse_duration)?,
        carrier: file.carrier.parse("carrier", str::parse)?,
        seed: file.seed,
        seeds: file.seeds,
        repeat: file.repeat,
        warmup: file.warmup,
    };
    let is_none = |number: Option<u32>| number == Some(0);
    anyhow::ensure!(!is_none(wanted.seeds), "seeds: 0 runs show nothing; give 1 or more");
    anyhow::ensure!(!is_none(wanted.repeat), "repeat: 0 iterations show nothing; give 1 or more");
    Ok((op, wanted))
}

/// The scenario that repeats the simulation of `config`.
pub fn print(config: &Config) -> String {
    let mut text = String::new();
    let mut line = |key: &str, value: String| {
        writeln!(text, "{key} = {value}").expect("a string takes all text");
    };
    line("op", quoted(config.op.name()));
    line("testbed", quoted(&config.testbed_name));
    line("ranks", list(config.ranks.iter()));
    if config.has_sizes() {
        line("sizes", quoted_list(config.sizes.iter().map(|bytes| short_bytes(*bytes))));
    }
    if !config.op.is_between_two() {
        line("algorithms", quoted_list(config.algorithms.iter()));
        line("carrier", quoted_list(config.carriers.iter()));
    }
    if config.op.is_broadcast() {
        line("roots", list(config.roots.iter()));
    }
    line("network", quoted_list(config.networks.iter()));
    line("loss", quoted_list(config.losses.iter()));
    if config.op == Op::Skew {
        line("skew", quoted_list(config.skews.iter().map(|skew| short_time(*skew))));
    }
    line("seed", config.seed.to_string());
    line("seeds", config.seeds.to_string());
    for (key, number) in [("repeat", config.repeat), ("warmup", config.warmup)] {
        if let Some(number) = number {
            line(key, number.to_string());
        }
    }
    text
}

/// A string in TOML.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn quoted_list<T: Display>(values: impl Iterator<Item = T>) -> String {
    list(values.map(|value| quoted(&value.to_string())))
}

fn list<T: Display>(values: impl Iterator<Item = T>) -> String {
    let values: Vec<_> = values.map(|value| value.to_string()).collect();
    format!("[{}]", values.join(", "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn printed_scenario_round_trips() {
        let text = "op = \"skew\"\nranks = [4, 8]\nsizes = [\"64k\", 8]\nalgorithms = \"nack\"\n\
                    loss = [\"0.01%\", \"1%\"]\nskew = [\"0\", \"1500ns\"]\nroots = 2\nseeds = 2\n\
                    carrier = [\"multicast\", \"multisend:flat:host\"]\nrepeat = 3\nwarmup = 0\n";
        let (op, wanted) = parse(text).unwrap();
        let config = Config::resolve(op, wanted).unwrap();
        let printed = print(&config);
        let (op, wanted) = parse(&printed).unwrap();
        let again = Config::resolve(op, wanted).unwrap();
        assert_eq!(print(&again), printed);
        assert_eq!(again.points(), config.points());
    }

    #[test]
    fn scenario_errors_include_a_hint() {
        let refused = |text: &str| format!("{:#}", parse(text).unwrap_err());
        let error = refused("op = \"bcast\"\nalgoritms = \"flat\"");
        assert!(error.contains("`algoritms`") && error.contains("`algorithms`"), "{error}");
        assert!(refused("ranks = 8").contains("`op`"));
        assert!(refused("op = \"cast\"").contains("`bcast`"));
        assert!(refused("op = \"bcast\"\nranks = 1").contains("ranks: 1 ranks; a model has 2"));
        assert!(
            refused("op = \"bcast\"\nloss = \"0.01\"").contains("loss: `0.01` needs a percent")
        );
        assert!(refused("op = \"bcast\"\nsizes = 1.5").contains("whole numbers or in quotes"));
        assert!(refused("op = \"bcast\"\nranks = []").contains("ranks: an empty list"));
        assert!(refused("op = \"bcast\"\nseeds = 0").contains("give 1 or more"));
    }
}
