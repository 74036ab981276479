//! The conformance bodies as processes: on loopback, and in labs with other links and faults.
//!
//! The program is the library's example `conformance`, which cargo builds if necessary. Without
//! root the labs print `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a failure.
#![allow(clippy::unwrap_used)]

mod as_root;
mod program;

use as_root::is_root;
use program::conformance;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

const OMNES: &str = env!("CARGO_BIN_EXE_omnes");
/// Longest message on slow links.
const SHORT: [&str; 2] = ["--bytes-max", "300000"];

/// Counters of the ranks, summed.
struct Counts(String);

impl Counts {
    fn sum(&self, name: &str) -> u64 {
        let lines = self.0.lines().filter(|line| line.contains("counts: "));
        let words = lines.flat_map(str::split_whitespace);
        words.filter_map(|word| word.strip_prefix(name)?.strip_prefix('=')).map(number).sum()
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap()
}

/// Runs all bodies with `ranks` ranks; `flags` are those of the launcher.
fn conform(ranks: usize, flags: &str, arguments: &[&str]) -> Counts {
    let mut command = Command::new(OMNES);
    command.args(["run", "-n", &ranks.to_string(), "--timeout", "120s", "--grace", "1s"]);
    command.args(flags.split_whitespace()).arg("--").arg(conformance()).args(arguments);
    let done = command.stdin(Stdio::null()).output().unwrap();
    let output = String::from_utf8_lossy(&done.stdout).into_owned();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "-n {ranks} {flags}: {}\n{output}{errors}", done.status);
    assert_eq!(errors, "", "-n {ranks} {flags}");
    let held = output.lines().filter(|line| line.ends_with(" holds")).count();
    let bodies = bodies();
    let named = bodies.lines().filter(|body| arguments.contains(body)).count();
    let asked = if named == 0 { bodies.lines().count() } else { named };
    assert_eq!(held, asked, "{output}");
    let counts = Counts(output);
    assert_eq!(counts.0.matches("counts: ").count(), ranks);
    assert_eq!(counts.sum("bad_tag"), 0);
    counts
}

/// The names of all bodies, one per line.
fn bodies() -> String {
    let done = Command::new(conformance()).arg("--list").output().unwrap();
    String::from_utf8(done.stdout).unwrap()
}

/// Like [`conform`], with every rank on a host of its own; `None` for an ordinary user.
fn conform_in_lab(ranks: usize, flags: &str, arguments: &[&str]) -> Option<Counts> {
    is_root().then(|| conform(ranks, &format!("--lab {flags}"), arguments))
}

#[test]
fn processes_on_one_machine_conform() {
    for ranks in [1, 2, 4, 8] {
        conform(ranks, "", &[]);
    }
    conform(3, "--ipv6", &[]);
}

#[test]
fn every_offload_setting_conforms() {
    for offloads in ["gso", "gro", "none"] {
        conform(2, &format!("--env OMNES_OFFLOADS={offloads} --env OMNES_SHM=off"), &[]);
    }
}

#[test]
fn unknown_test_bodies_are_rejected() {
    let done = Command::new(conformance()).arg("no-such-body").output().unwrap();
    assert_eq!(done.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&done.stderr).contains("no body 'no-such-body'"));
}

#[test]
fn hosts_conform_over_perfect_links() {
    for ranks in [2, 4, 8] {
        conform_in_lab(ranks, "", &[]);
    }
    conform_in_lab(4, "--ipv6", &[]);
}

#[test]
fn hosts_conform_over_jumbo_frames() {
    conform_in_lab(4, "--mtu 9000", &[]);
}

/// A lab that is taken down when dropped.
struct Lab(String);

impl Lab {
    fn up(hosts: &str, flags: &str) -> Self {
        let lab = Self(format!("conform-{}", std::process::id()));
        let flags = flags.split_whitespace();
        lab.omnes("up", &[hosts].into_iter().chain(flags).collect::<Vec<_>>());
        lab
    }

    fn omnes(&self, action: &str, arguments: &[&str]) {
        let mut command = Command::new(OMNES);
        command.args(["lab", action, "--name", &self.0]).args(arguments).stdout(Stdio::null());
        assert!(command.status().unwrap().success(), "{command:?}");
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.omnes("down", &[]);
    }
}

#[test]
fn hosts_conform_over_links_with_different_mtus() {
    if !is_root() {
        return;
    }
    let lab = Lab::up("2", "--mtu 9000");
    lab.omnes("exec", &["0", "--", "ip", "link", "set", "eth0", "mtu", "1500"]);
    let folder = tempfile::tempdir().unwrap();
    let ssh = folder.path().join("ssh");
    let into = "lab exec $((${1##*.} - 1)) --name";
    let script = format!("#!/bin/sh\nexec {OMNES} {into} {} -- sh -c \"$2\"\n", lab.0);
    std::fs::write(&ssh, script).unwrap();
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    // Rank 1 is on rank 0's host: the route between them does not lead to the other host.
    let flags = format!("--ssh {} --hosts 10.77.0.1:2,10.77.0.2:2", ssh.display());
    conform(4, &flags, &[&SHORT[..], &["sizes", "schemes", "allreduce"]].concat());
}

#[test]
fn hosts_conform_with_lost_reordered_and_duplicated_packets() {
    for (ranks, seed) in [(2, 1), (4, 2), (8, 3)] {
        let flags = format!("--loss 1% --reorder 1% --duplicate 0.1% --fault-seed {seed}");
        let Some(counts) = conform_in_lab(ranks, &flags, &[]) else { return };
        assert!(counts.sum("retransmits") > 0 && counts.sum("duplicates") > 0);
    }
}

#[test]
fn hosts_conform_with_encryption() {
    conform_in_lab(2, "--encrypt", &[]);
    let faults = "--encrypt --loss 1% --reorder 1% --duplicate 0.1% --fault-seed 9";
    let Some(counts) = conform_in_lab(4, faults, &[]) else { return };
    assert!(counts.sum("retransmits") > 0);
}

#[test]
fn hosts_conform_with_5_percent_loss() {
    for (ranks, seed) in [(2, 4), (4, 5), (8, 6)] {
        let flags = format!("--loss 5% --fault-seed {seed}");
        let Some(counts) = conform_in_lab(ranks, &flags, &[]) else { return };
        // Repairs are for lost packets only, give or take those that were lost again.
        let (sent, again) = (counts.sum("sent"), counts.sum("retransmits"));
        assert!(again > sent / 50, "{again} of {sent} sent again");
    }
}

#[test]
fn coalesced_trains_of_unrelated_packets_are_split_correctly() {
    // Repairs and new packets share trains here: data that are read ahead are in wrong places.
    for seed in [7, 8] {
        let flags = format!("--loss 12% --reorder 3% --duplicate 1% --fault-seed {seed}");
        conform_in_lab(5, &flags, &["sizes", "mix", "out-of-order"]);
    }
}

#[test]
fn hosts_conform_over_slow_links() {
    conform_in_lab(4, "--rate 100mbit", &SHORT);
}

#[test]
fn hosts_conform_over_high_latency_links() {
    conform_in_lab(4, "--delay 1ms", &SHORT);
}
