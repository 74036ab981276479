//! `omnes tune` as a user sees it, and how jobs use the stored figures.
//!
//! Ranks are lab hosts, or processes of this machine of which each counts as a node; every test has
//! a file of figures of its own. Without root the lab tests print `skipped: needs root`, which
//! `OMNES_REQUIRE=root` turns into a failure.
#![allow(clippy::unwrap_used)]

mod as_root;

use as_root::is_root;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const OMNES: &str = env!("CARGO_BIN_EXE_omnes");
/// Enough to see that it works; nobody reads these times.
const SHORT: &str = "--budget 2ms --sizes 8,64k,300k";

/// Status, standard output, standard error.
type Seen = (i32, String, String);

fn seen(output: Output) -> Seen {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A user whose cache is this directory.
struct User {
    directory: tempfile::TempDir,
}

impl User {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("omnes/tune.json")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(OMNES);
        command.env("XDG_CACHE_HOME", self.directory.path());
        for name in ["OMNES_TUNE", "OMNES_BCAST", "OMNES_NETWORK"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    fn omnes(&self, arguments: &str) -> Seen {
        seen(self.command().args(arguments.split_whitespace()).output().unwrap())
    }

    /// A job of `ranks` ranks with `flags`, all of which run `omnes` with `arguments`.
    fn job(&self, ranks: u32, flags: &str, arguments: &str) -> Seen {
        let mut command = self.command();
        command.args(["run", "-n", &ranks.to_string(), "--no-prefix", "--timeout", "60s"]);
        command.args(flags.split_whitespace()).args(["--", OMNES]);
        seen(command.args(arguments.split_whitespace()).output().unwrap())
    }

    fn kept(&self) -> Vec<Value> {
        let (status, output, errors) = self.omnes("tune --show --format json");
        assert_eq!(status, 0, "{errors}");
        output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Every rank counts as a node.
const NODES: &str = "--env OMNES_SHM=off";

#[test]
fn figures_are_measured_printed_stored_shown_and_cleared() {
    let user = User::new();
    let (status, output, errors) = user.job(3, NODES, &format!("tune {SHORT}"));
    assert_eq!(status, 0, "{errors}");
    assert!(output.starts_with("# 127.0.0.0/8, 3 ranks on 3 nodes, "), "{output}");
    for word in ["\n# measured by omnes tune, just now\n", "\n multicast ", "\n 300 KiB ", "chosen"]
    {
        assert!(output.contains(word), "{word:?} in {output}");
    }
    assert!(output.contains("\nfrom       0 B: "), "{output}");
    assert_eq!(errors, format!("omnes: kept in {}\n", user.file().display()));

    let (status, shown, errors) = user.omnes("tune --show");
    assert_eq!((status, errors.as_str()), (0, ""));
    assert!(shown.contains("127.0.0.0/8") && !shown.contains("chosen"), "{shown}");
    let figures = |text: &str| {
        let rows = text.lines().filter(|line| line.starts_with(" binomial"));
        rows.map(str::to_owned).next().unwrap()
    };
    assert_eq!(figures(&shown), figures(&output));

    let (status, output, _) = user.omnes("tune --clear");
    assert_eq!((status, output), (0, format!("removed {}\n", user.file().display())));
    assert!(!user.file().exists());
    let (status, output, _) = user.omnes("tune --clear");
    assert_eq!((status, output), (0, format!("nothing is kept in {}\n", user.file().display())));
    let (status, output, errors) = user.omnes("tune --show");
    assert_eq!((status, output.as_str()), (0, ""));
    assert!(errors.starts_with("omnes: nothing is kept in "), "{errors}");
    std::fs::write(user.file(), r#"{"format": 1, "netw"#).unwrap();
    let (status, output, errors) = user.omnes("tune --show");
    assert_eq!((status, output.as_str()), (0, ""));
    assert!(errors.contains("is damaged, and will be replaced: EOF while"), "{errors}");
}

#[test]
fn dry_run_stores_nothing_and_json_fields_name_their_units() {
    let user = User::new();
    let (status, output, errors) =
        user.job(4, NODES, &format!("tune {SHORT} --dry-run --format json"));
    assert_eq!((status, errors.as_str()), (0, ""));
    assert!(!user.file().exists());
    let report: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((&report["network"]["ranks"], &report["effort"]), (&json!(4), &json!("thorough")));
    for way in ["multicast", "binomial", "chain"] {
        for figure in ["level_ns", "level_byte_ps", "stream_byte_ps"] {
            assert!(report["figures"][way][figure].is_u64(), "{way} {figure}: {report}");
        }
    }
    let sizes = report["sizes"].as_array().unwrap();
    let bytes: Vec<_> = sizes.iter().map(|size| size["bytes"].as_u64().unwrap()).collect();
    assert_eq!(bytes, [8, 64 << 10, 300 << 10]);
    for time in sizes.iter().flat_map(|size| size["times"].as_array().unwrap()) {
        assert!(time["measured_ns"].as_u64() > Some(0), "{time}");
        assert!(time["samples"].as_u64() >= Some(5), "{time}");
    }
    assert_eq!(report["ranges"][0]["from_bytes"], 0);
}

/// From one size alone, times per byte would be stored as zero.
#[test]
fn insufficient_sizes_are_extended_to_determine_all_costs() {
    let user = User::new();
    for (sizes, all) in
        [("8,8", vec![8, 128 << 10, 512 << 10]), ("1m", vec![8, 128 << 10, 1 << 20])]
    {
        let options = format!("tune --dry-run --json --budget 2ms --sizes {sizes}");
        let (status, output, errors) = user.job(3, NODES, &options);
        assert_eq!(status, 0, "{errors}");
        let report: Value = serde_json::from_str(&output).unwrap();
        let measured = report["sizes"].as_array().unwrap().iter();
        let measured: Vec<_> = measured.map(|size| size["bytes"].as_u64().unwrap()).collect();
        assert_eq!(measured, all, "{sizes}");
    }
}

#[test]
fn unused_figures_are_shown_with_the_reason() {
    let user = User::new();
    let (status, _, errors) = user.job(3, NODES, &format!("tune {SHORT}"));
    assert_eq!(status, 0, "{errors}");
    assert!(!user.omnes("tune --show").1.contains("not used"));
    let kept = std::fs::read_to_string(user.file()).unwrap();
    let mut kept: Value = serde_json::from_str(&kept).unwrap();
    kept["networks"][0]["network"]["version"] = json!("0.0.1");
    std::fs::write(user.file(), kept.to_string()).unwrap();
    let (_, shown, _) = user.omnes("tune --show");
    assert!(shown.contains("# not used: another version of Omnes"), "{shown}");
    let (_, shown, _) = user.omnes("tune --show --json");
    assert!(shown.contains("\"unused\":\"another version"), "{shown}");
}

#[test]
fn usage_errors_suggest_a_valid_command() {
    let user = User::new();
    let says = |(status, _, errors): Seen, words: &str| {
        assert_eq!(status, 2, "{errors}");
        assert!(errors.contains(words), "{errors}");
    };
    says(user.omnes("tune"), "run `omnes run -n 8 --lab --no-prefix -- omnes tune`");
    says(user.job(2, NODES, "tune"), "at least 3 ranks on at least 2 nodes");
    says(user.job(3, "", "tune"), "at least 3 ranks on at least 2 nodes");
    says(user.omnes("tune --sizes 2g"), "above 1g");
    let own_hosts = "at least 3 ranks, each on a host of its own; this job has 3 on 1";
    for flags in ["", NODES] {
        says(user.job(3, flags, "tune --testbed testbed.toml"), own_hosts);
    }
    for flags in ["--show --clear", "--testbed lab.toml --json", "--testbed lab.toml --format json"]
    {
        says(user.omnes(&format!("tune {flags}")), "cannot be used with");
    }
    let set = |value| {
        let mut command = user.command();
        seen(command.env("OMNES_TUNE", value).args(["tune", "--show"]).output().unwrap())
    };
    says(set("never"), "OMNES_TUNE=never: must be auto, off or the path of a file");
    says(set("off"), "measurements are not stored");
}

#[test]
fn unwritable_file_is_reported_after_the_figures() {
    let user = User::new();
    std::fs::write(user.directory.path().join("omnes"), "in the way").unwrap();
    let (status, output, errors) = user.job(3, NODES, &format!("tune {SHORT}"));
    assert_eq!(status, 1, "{errors}");
    assert!(output.contains("chosen") && errors.contains("cannot write "), "{output}{errors}");
    // For a job it is not an error.
    let (status, _, errors) = user.job(3, NODES, "bench bcast --sizes 8 --budget 2ms");
    assert_eq!((status, errors.as_str()), (0, ""));
}

#[test]
fn testbed_is_measured_only_with_one_rank_per_lab_host() {
    if !is_root() {
        return;
    }
    let user = User::new();
    let file = user.directory.path().join("testbed.toml");
    let tune = format!("tune --testbed {}", file.display());
    let (status, _, errors) = user.job(4, "--lab 2", &tune);
    assert_eq!(status, 2, "{errors}");
    assert!(errors.contains("this job has 4 on 2") && !file.exists(), "{errors}");
    let (status, _, errors) = user.job(3, "--lab", &tune);
    assert_eq!(status, 0, "{errors}");
    assert!(file.exists());
}

/// Data packets that the root of a small broadcast sends, and whether it receives acknowledgements
/// of multicasts.
fn at_root(user: &User, hosts: u32, flags: &str) -> (f64, bool) {
    let options = "bench bcast --sizes 8 --budget 10ms --min-iters 200 --format json";
    let (status, output, errors) = user.job(hosts, &format!("--lab {flags}"), options);
    assert_eq!(status, 0, "{errors}");
    let line: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(line["errors"], 0);
    (line["root_packets"].as_f64().unwrap(), line["root_acks"].as_f64() > Some(0.0))
}

/// The packets are a mean over all broadcasts: if the machine is busy, single ones leave after the
/// counted call.
fn assert_seen(seen: (f64, bool), expected: (f64, bool), what: &str) {
    assert_eq!(seen.1, expected.1, "{what}: acknowledgements");
    assert!((seen.0 - expected.0).abs() < 0.2, "{what}: {} packets", seen.0);
}

/// Makes `favourite` the fastest by the figures in the user's file.
fn favour(file: &Path, favourite: &str) {
    let text = std::fs::read_to_string(file).unwrap();
    let mut content: Value = serde_json::from_str(&text).unwrap();
    for network in content["networks"].as_array_mut().unwrap() {
        for way in ["multicast", "binomial", "chain"] {
            let ns = if way == favourite { 1 } else { 1_000_000 };
            network["figures"][way] =
                json!({"level_ns": ns, "level_byte_ps": 0, "stream_byte_ps": 0});
        }
    }
    std::fs::write(file, content.to_string()).unwrap();
}

#[test]
fn jobs_measure_a_network_once_and_then_use_the_stored_figures() {
    if !is_root() {
        return;
    }
    let user = User::new();
    at_root(&user, 4, "");
    let kept = user.kept();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(kept[0]["effort"], "quick");
    assert_eq!(kept[0]["network"]["prefix"], "10.77.0.0/16");
    let text = std::fs::read(user.file()).unwrap();
    for (favourite, seen) in
        [("multicast", (1.0, true)), ("binomial", (2.0, false)), ("chain", (1.0, false))]
    {
        favour(&user.file(), favourite);
        let favoured = std::fs::read(user.file()).unwrap();
        assert_ne!(favoured, text);
        assert_seen(at_root(&user, 4, ""), seen, favourite);
        // Neither measured again nor written.
        assert_eq!(std::fs::read(user.file()).unwrap(), favoured);
    }
    // Settings that override the figures.
    for overriding in ["OMNES_TUNE=off", "OMNES_BCAST=multicast"] {
        let seen = at_root(&user, 4, &format!("--env {overriding}"));
        assert_seen(seen, (1.0, true), overriding);
    }
    // Other links are another network, and so is a network with another name.
    at_root(&user, 4, "--rate 1gbit");
    at_root(&user, 4, "--env OMNES_NETWORK=mine");
    let names: Vec<_> = user.kept().into_iter().map(|it| it["network"]["name"].clone()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.contains(&json!("mine")), "{names:?}");
}
