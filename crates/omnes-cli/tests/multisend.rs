//! Multi-send in place of multicast between lab hosts: equal data from every root by every tree,
//! also while packets are lost and in parts of a job; its measurements, stored and used.
//!
//! Copies are made in user space (`loop`), which every kernel supports, except in one test. Every
//! rank is a host of its own unless there are fewer hosts; the program for the data is the
//! library's example `conformance`. Without root the tests print `skipped: needs root`, which
//! `OMNES_REQUIRE=root` turns into a failure.
#![allow(clippy::unwrap_used)]

mod as_root;
mod program;

use as_root::is_root;
use program::conformance;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

const OMNES: &str = env!("CARGO_BIN_EXE_omnes");
const TREES: [&str; 4] = ["flat", "binomial", "postal=2.5", "chain"];
/// Longest message of the bodies; several trees at several sizes are run.
const SHORT: &str = "--bytes-max 200000";

/// Status, output and errors of a job of `ranks` ranks without multicast, which stores no figures.
fn job(ranks: u32, flags: &str, program: &Path, arguments: &str) -> (i32, String, String) {
    job_of(ranks, flags, program, &arguments.split_whitespace().collect::<Vec<_>>())
}

fn job_of(ranks: u32, flags: &str, program: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(OMNES);
    command.args(["run", "-n", &ranks.to_string(), "--no-prefix", "--timeout", "120s"]);
    command.args(["--env", "OMNES_MULTICAST=off"]);
    for name in ["OMNES_TUNE", "OMNES_BCAST", "OMNES_NETWORK", "OMNES_MULTISEND"] {
        command.env_remove(name);
    }
    if !flags.contains("OMNES_TUNE=") {
        command.args(["--env", "OMNES_TUNE=off"]);
    }
    command.args(flags.split_whitespace()).arg("--").arg(program);
    let done = command.args(arguments).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (done.status.code().unwrap(), text(done.stdout), text(done.stderr))
}

fn conform(ranks: u32, flags: &str, bodies: &str) {
    let (status, output, errors) = job(ranks, flags, conformance(), bodies);
    assert_eq!((status, errors.as_str()), (0, ""), "{ranks} ranks, {flags}: {output}");
    let held = output.lines().filter(|line| line.ends_with(" holds")).count();
    let asked = bodies.split_whitespace().take_while(|word| !word.starts_with("--")).count();
    assert_eq!(held, asked, "{ranks} ranks, {flags}: {output}");
}

/// The lines of `omnes bench`, and its head lines.
fn bench(ranks: u32, flags: &str, options: &str) -> (Vec<Value>, String) {
    let short = "--format json --budget 30ms --min-iters 5 --max-iters 100 --warmup 2";
    let (status, output, errors) =
        job(ranks, flags, Path::new(OMNES), &format!("bench {options} {short}"));
    assert_eq!(status, 0, "{ranks} ranks, {flags}: {errors}");
    let lines: Vec<Value> =
        output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(|line| line["errors"] == 0), "{output}");
    (lines, errors)
}

fn by(tree: &str) -> String {
    format!("--env OMNES_MULTISEND={tree}:loop")
}

#[test]
fn every_root_reaches_all_by_every_tree() {
    if !is_root() {
        return;
    }
    for (hosts, tree) in [5, 8].iter().flat_map(|hosts| TREES.map(|tree| (*hosts, tree))) {
        let flags = format!("--lab {}", by(tree));
        conform(hosts, &flags, &format!("schemes all-roots roots {SHORT}"));
    }
}

#[test]
fn every_root_reaches_all_with_several_ranks_per_host() {
    if !is_root() {
        return;
    }
    for tree in TREES {
        // Ranks 0, 3, 6, 9 share a host, as do the other ranks of each residue.
        let flags = format!("--lab 3 {}", by(tree));
        conform(10, &flags, &format!("all-roots roots parts {SHORT}"));
    }
}

#[test]
fn kernel_copies_packets_over_ipv4_and_ipv6() {
    if !is_root() {
        return;
    }
    for version in ["", "--ipv6"] {
        let flags = format!("--lab {version} --env OMNES_MULTISEND=binomial:nic");
        conform(5, &flags, &format!("all-roots roots {SHORT}"));
    }
    // Each rank of a host is a root, and has a slot as such.
    conform(4, "--lab 2 --env OMNES_MULTISEND=flat:nic", &format!("all-roots roots {SHORT}"));
}

/// The tree is given, but not what copies: later communicators start in user space.
#[test]
fn kernel_takes_over_copying_from_running_ranks() {
    if !is_root() {
        return;
    }
    let flags = "--lab --env OMNES_MULTISEND=flat";
    let (_, head) = bench(5, flags, "bcast --sizes 8 --scheme combined");
    assert!(head.contains("flat, copied and forwarded by the kernel NIC"), "{head}");
    conform(5, flags, "late-slots slot-during-message");
}

#[test]
fn kernel_copies_packets_for_every_scheme() {
    if !is_root() {
        return;
    }
    let flags = "--lab --env OMNES_MULTISEND=binomial:nic";
    for scheme in ["combined", "window", "nack", "co-root=2"] {
        // If packets were not copied to three of four receivers, as many would be retransmitted.
        let are_copied = |line: &Value| line["root_repairs"].as_f64().unwrap() < 0.5;
        let (line, _) = small_broadcast(5, flags, scheme, are_copied);
        assert!(are_copied(&line), "{line}");
    }
}

/// Moves the host's address to another interface than the one by which its packets leave.
const HIDE: &str = "set -e
    address=$(ip -o -4 address show dev eth0 | awk '{ print $4 }')
    network=$(ip -o -4 route show dev eth0 | awk '{ print $1; exit }')
    ip link add hidden0 type veth peer name hidden1
    ip link set hidden0 up; ip link set hidden1 up
    ip address del $address dev eth0
    ip address add ${address%/*}/32 dev hidden0
    ip route add $network dev eth0 src ${address%/*}
    exec \"$@\"";

/// Such a slot copies nothing: all receivers but one would get all data by repairs, forever.
#[test]
fn slot_bypassed_by_packets_is_returned() {
    if !is_root() {
        return;
    }
    for tree in ["flat", "binomial"] {
        let flags = format!("--lab --env OMNES_MULTISEND={tree}:nic");
        // Ranks may find it out as late as during the first size.
        let bench = "bench bcast --sizes 8,16 --scheme combined --format json --warmup 1000 \
                     --budget 1s --max-iters 1000";
        let arguments =
            [&["-c", HIDE, "sh", OMNES], &*bench.split(' ').collect::<Vec<_>>()].concat();
        let (status, output, errors) = job_of(5, &flags, Path::new("sh"), &arguments);
        assert_eq!(status, 0, "{tree}: {errors}");
        let lines = output.lines().map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<Value> = lines.collect();
        assert_eq!(lines.len(), 2, "{output}");
        assert!(lines.iter().all(|line| line["errors"] == 0), "{output}");
        // Without the copies each message would be sent about four times.
        assert!(lines[1]["root_packets"].as_f64().unwrap() < 2.0, "{tree}: {output}");
    }
}

#[test]
fn subgroups_of_a_job_multisend_independently() {
    if !is_root() {
        return;
    }
    for tree in TREES {
        let flags = format!("--lab {}", by(tree));
        conform(8, &flags, &format!("parts split interleaved {SHORT}"));
    }
}

#[test]
fn multisend_delivers_equal_data_under_packet_loss() {
    if !is_root() {
        return;
    }
    for (seed, tree) in (1..).zip(TREES) {
        let flags = format!("--lab --loss 1% --reorder 0.5% --fault-seed {seed} {}", by(tree));
        let bodies = format!("back-to-back all-roots outstanding parts {SHORT}");
        conform(if seed % 2 == 0 { 8 } else { 5 }, &flags, &bodies);
    }
}

#[test]
fn bench_finds_no_corrupted_byte_under_packet_loss() {
    if !is_root() {
        return;
    }
    let forms = "--multisend flat:loop,binomial:loop,postal=2.5:loop,chain:loop,off";
    let options = format!("bcast,multisend --sizes 8,100k --destinations 1,4,7 {forms}");
    let (mut lines, head) = bench(8, "--lab --loss 1% --fault-seed 7", &options);
    // A broadcast by five forms; messages and four forms to three numbers of destinations.
    assert_eq!(lines.len(), 2 * 5 + 2 * 3 * (1 + 4), "{head}");
    let flags = "--lab --loss 1% --fault-seed 8";
    lines.extend(bench(8, flags, &format!("throughput --sizes 8 {forms}")).0);
    assert_eq!(lines.len(), 2 * 5 + 2 * 3 * (1 + 4) + 5);
    assert!(lines.iter().any(|line| line["retransmits"].as_f64() > Some(0.0)), "{lines:?}");
}

#[test]
fn files_are_copied_by_multisend_under_packet_loss() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let data: Vec<u8> = (0..6u32 << 20).map(|at| ((at * 31) ^ (at >> 12)) as u8).collect();
    let source = place.path().join("source");
    std::fs::write(&source, &data).unwrap();
    let ways = ["", "--loss 1% --fault-seed 3"].iter();
    for (faults, tree) in ways.flat_map(|faults| TREES.map(|tree| (faults, tree))) {
        let dest = place.path().join("copy-{rank}");
        let (source, dest) = (source.display(), dest.display());
        let arguments = format!("cp {source} {dest} --chunk 1m --force --scheme combined");
        let flags = format!("--lab {faults} {}", by(tree));
        let (status, _, errors) = job(5, &flags, Path::new(OMNES), &arguments);
        assert_eq!((status, errors.as_str()), (0, ""), "{tree} {faults}");
        for rank in 0..5 {
            let copy = std::fs::read(place.path().join(format!("copy-{rank}"))).unwrap();
            assert!(copy == data, "{tree} {faults}: rank {rank}");
        }
    }
}

/// The one line of a small broadcast: the first for which `is_undisturbed` holds, or the last of
/// ten. Ranks that wait for a core cause repairs, and single packets leave outside the counted
/// call.
fn small_broadcast(
    hosts: u32,
    flags: &str,
    scheme: &str,
    is_undisturbed: impl Fn(&Value) -> bool,
) -> (Value, String) {
    let measure = || {
        let (mut lines, head) = bench(hosts, flags, &format!("bcast --sizes 8 --scheme {scheme}"));
        assert_eq!(lines.len(), 1);
        (lines.remove(0), head)
    };
    let mut measured = measure();
    for _ in 1..10 {
        if is_undisturbed(&measured.0) {
            break;
        }
        measured = measure();
    }
    measured
}

#[test]
fn root_sends_one_packet_with_multisend_and_uses_a_tree_without() {
    if !is_root() {
        return;
    }
    for tree in TREES {
        // Seven copies are sent, some forwarded; otherwise repairs would have to deliver them.
        let are_copies = |line: &Value| {
            line["packets"].as_f64() >= Some(7.0) && line["retransmits"].as_f64() < Some(3.0)
        };
        let flags = format!("--lab {}", by(tree));
        let (line, head) = small_broadcast(8, &flags, "combined", are_copies);
        assert!(head.contains(&format!("\n# multi-send: {tree}, in user space: ")), "{head}");
        assert_eq!(line["root_packets"], 1.0, "{tree}: {line}");
        assert!(are_copies(&line), "{tree}: {line}");
        assert!(line["root_acks"].as_f64() > Some(0.0), "{tree}: {line}");
    }
    // A binomial tree: three children, and no multicast.
    let is_tree = |line: &Value| (2.8..3.2).contains(&line["root_packets"].as_f64().unwrap());
    let flags = "--lab --env OMNES_MULTISEND=off";
    let (line, head) = small_broadcast(8, flags, "combined", is_tree);
    assert!(head.contains("# no multicast: ") && !head.contains("multi-send: "), "{head}");
    assert!(is_tree(&line) && line["root_acks"] == 0.0, "{line}");
    conform(5, flags, &format!("schemes all-roots {SHORT}"));
}

#[test]
fn bench_compares_multisend_forms_and_destination_counts() {
    if !is_root() {
        return;
    }
    let names = |lines: &[Value]| -> Vec<String> {
        lines.iter().map(|line| line["algorithm"].as_str().unwrap().to_owned()).collect()
    };
    let forms = "--multisend flat:loop,postal=2.5:loop,off";
    let (lines, head) =
        bench(5, "--lab", &format!("bcast --sizes 8 {forms} --scheme default,window,chain"));
    let expected = [
        "combined@flat:loop",
        "combined@postal=2.5:loop",
        "binomial@off",
        "window@flat:loop",
        "window@postal=2.5:loop",
        "binomial@off",
        "chain",
    ];
    assert_eq!(names(&lines), expected, "{head}");
    // Packets of all ranks: four copies, whatever makes them, and replies.
    assert!(lines[0]["packets"].as_f64() >= Some(4.0), "{}", lines[0]);

    let options = format!("multisend --sizes 8 {forms} --destinations 1,4");
    let (lines, _) = bench(5, "--lab", &options);
    let rows: Vec<_> = names(&lines)
        .into_iter()
        .zip(lines.iter().map(|line| line["destinations"].as_u64().unwrap()))
        .collect();
    let expected = ["unicast", "combined@flat:loop", "combined@postal=2.5:loop"];
    let expected: Vec<_> =
        expected.iter().flat_map(|name| [1, 4].map(|count| ((*name).to_owned(), count))).collect();
    assert_eq!(rows, expected);
    // Packets that the root sends: one for each destination, or one [MS-R8, R23].
    let handed = |at: usize| lines[at]["root_packets"].as_f64().unwrap().round();
    assert_eq!([0, 1, 2, 3].map(handed), [1.0, 4.0, 1.0, 1.0], "{lines:?}");
    // Without a list: the root's own copies.
    let (lines, _) = bench(3, &format!("--lab {}", by("chain")), "multisend --sizes 8");
    assert_eq!(names(&lines), ["unicast", "combined@flat:loop"]);
}

#[test]
fn bench_explains_missing_multisend_in_jobs_with_multicast() {
    if !is_root() {
        return;
    }
    for options in ["multisend", "bcast --multisend flat"] {
        let flags = "--lab --env OMNES_MULTICAST=auto";
        let (status, output, errors) =
            job(3, flags, Path::new(OMNES), &format!("bench {options} --sizes 8"));
        assert_eq!((status, output.as_str()), (2, ""), "{errors}");
        assert_eq!(errors.matches("--env OMNES_MULTICAST=off").count(), 1, "{errors}");
    }
}

/// All ranks use the form that `auto` stands for at rank 0, also if it equals the next form.
#[test]
fn ranks_with_different_copy_methods_measure_the_same_forms() {
    if !is_root() {
        return;
    }
    // Two hosts with two ranks each, of which the second ones have no slot.
    let options = "bcast --sizes 8 --multisend auto,postal=6:loop";
    let (lines, _) = bench(4, "--lab 2", options);
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[test]
fn measured_lambda_is_stored_and_shapes_the_tree_of_later_jobs() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("tune.json");
    // In user space, so that both jobs have the same form on every kernel.
    let flags = format!("--lab --env OMNES_NIC=user --env OMNES_TUNE={}", file.display());
    let options = "tune --sizes 8,64k --budget 5ms --format json";
    let (status, output, errors) = job(8, &flags, Path::new(OMNES), options);
    assert_eq!(status, 0, "{errors}");
    let report: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(report["network"]["multisend"], "auto:loop", "{report}");
    let hops = report["hops"].as_array().unwrap();
    let sizes: Vec<_> = hops.iter().map(|hop| hop["bytes"].as_u64().unwrap()).collect();
    let payload = report["network"]["payload_bytes"].as_u64().unwrap();
    assert_eq!(sizes, [8, payload, 16 << 10, 64 << 10]);
    for hop in hops {
        let ns = |name: &str| hop[name].as_u64().unwrap() as f64;
        let lambda = hop["lambda"].as_f64().unwrap();
        let (transmit, half_trip) = (ns("transmit_ns"), ns("half_trip_ns"));
        let rest = (half_trip - ns("send_ns") - transmit).max(0.0);
        assert!((rest - ns("receive_ns")).abs() < 0.5, "{hop}");
        // [MS-R17], of which three decimals are stored; the three times are those of the hop.
        assert!((lambda - (half_trip / transmit).max(1.0)).abs() < 1e-3, "{hop}");
        assert!(lambda >= 1.0 && ns("send_ns") > 0.0 && hop["tree"] != "", "{hop}");
    }
    let lambda = report["figures"]["lambda_thousandths"].as_u64().unwrap();
    let of_packet = hops[1]["lambda"].as_f64().unwrap();
    assert!((of_packet * 1e3 - lambda as f64).abs() < 0.5, "{of_packet} {lambda}");

    // Eight nodes have a flat tree with the default lambda, and another one with this.
    let mut content: Value =
        serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    content["networks"][0]["figures"]["lambda_thousandths"] = 1500.into();
    std::fs::write(&file, content.to_string()).unwrap();
    let tree = |flags: &str| {
        let (_, head) = bench(8, flags, "bcast --sizes 8 --scheme combined");
        let line = head.lines().find_map(|line| line.strip_prefix("# multi-send: ")).unwrap();
        line.split_once(',').unwrap().0.to_owned()
    };
    assert_eq!(tree(&flags), "postal=1.5");
    assert_eq!(tree(&format!("{flags} --env OMNES_MULTISEND=chain")), "chain");
    assert_eq!(tree("--lab --env OMNES_NIC=user"), "postal=6");
    conform(8, &flags, &format!("all-roots parts {SHORT}"));
}
