//! Barriers by the kernel NIC in labs: every algorithm at several sizes, on links that drop,
//! duplicate and reorder, with checksums computed by hardware and not; a doorbell from each host.
#![allow(clippy::unwrap_used)]

mod as_root;

use std::process::Command;

const OMNES: &str = env!("CARGO_BIN_EXE_omnes");

/// Runs `omnes bench barrier` in a lab; returns its lines as JSON.
fn bench(hosts: u32, link: &[&str], arguments: &[&str]) -> Vec<serde_json::Value> {
    let mut command = Command::new(OMNES);
    command.args(["run", "-n", &hosts.to_string(), "--lab", "--no-prefix"]).args(link);
    command.args(["--", OMNES, "bench", "barrier", "--format", "json"]).args(arguments);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{link:?} {arguments:?}: {errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

const RUNS_MAX: u32 = 20;
const KINDS: &str = "nic:dissemination,nic:pairwise,nic:gather-broadcast,nic:counter";

#[test]
fn hosts_send_one_packet_per_barrier() {
    if !as_root::is_root() {
        return;
    }
    // Steps are made by the kernel; the host's own packets are doorbells, one per rank and barrier.
    // The other ranks query a rank that waits long for its core: that depends on the machine, so
    // the minimum of a few runs counts.
    for version in [&[][..], &["--ipv6"]] {
        let least = least_packets(5, version);
        let are_doorbells = least.iter().all(|packets| (5.0..5.5).contains(packets));
        assert!(are_doorbells, "{version:?}: packets per barrier by {KINDS}: {least:?}");
    }
}

/// Packets per barrier of each kind, the minimum of a few runs; stops as soon as it is low enough.
fn least_packets(hosts: u32, link: &[&str]) -> [f64; 4] {
    let limits = ["--algorithms", KINDS, "--max-iters", "300", "--budget", "1s"];
    let mut least = [f64::INFINITY; 4];
    for _ in 0..RUNS_MAX {
        let rows = bench(hosts, link, &limits);
        assert_eq!(rows.len(), least.len());
        for (least, row) in least.iter_mut().zip(&rows) {
            *least = least.min(row["packets"].as_f64().unwrap());
        }
        if least.iter().all(|packets| *packets < f64::from(hosts) + 0.5) {
            break;
        }
    }
    least
}

#[test]
fn barriers_complete_on_lossy_links() {
    if !as_root::is_root() {
        return;
    }
    let limits = ["--algorithms", KINDS, "--max-iters", "400", "--budget", "2s"];
    for link in [
        &["--loss", "1%", "--reorder", "1%", "--duplicate", "1%", "--fault-seed", "7"][..],
        &["--receive-loss", "5%", "--tx-offload", "off", "--fault-seed", "8"],
        &["--tx-offload", "off"],
        &["--ipv6", "--loss", "1%", "--reorder", "1%", "--duplicate", "1%", "--fault-seed", "7"],
        &["--ipv6", "--tx-offload", "off"],
    ] {
        for hosts in [3, 4] {
            assert_eq!(bench(hosts, link, &limits).len(), 4, "{link:?}");
        }
    }
}

#[test]
fn user_space_barriers_end_despite_packet_loss() {
    if !as_root::is_root() {
        return;
    }
    let link = ["--env", "OMNES_NIC=user", "--loss", "1%", "--fault-seed", "9"];
    let kinds = ["--algorithms", "user:dissemination,user:counter,default", "--max-iters", "300"];
    assert_eq!(bench(4, &link, &kinds).len(), 3);
}
