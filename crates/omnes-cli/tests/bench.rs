//! `omnes bench` as a user sees it: whole output and exit status.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::Duration;

const OMNES: &str = env!("CARGO_BIN_EXE_omnes");

/// Enough to see that it works; nobody reads these times.
const SHORT: &str = "--budget 10ms --max-iters 20 --warmup 2";

/// Status, standard output, standard error.
fn bench(ranks: u32, options: &str) -> (i32, String, String) {
    let output = Command::new(OMNES)
        .args(["run", "-n", &ranks.to_string(), "--no-prefix", "--timeout", "60s"])
        // Every rank counts as a node, so that there are other nodes to multicast to.
        .args(["--env", "OMNES_SHM=off", "--", OMNES, "bench"])
        .args(options.split_whitespace())
        .args(SHORT.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Output of a run whose last point takes an hour, if `signal` arrives after `wait`.
fn bench_until(signal: i32, wait: Duration) -> String {
    let bench = Command::new(OMNES)
        .args(["run", "-n", "2", "--no-prefix", "--timeout", "120s", "--", OMNES, "bench"])
        .args("latency,barrier,skew --sizes 8 --skew 0,1h --min-iters 1".split_whitespace())
        .args(SHORT.split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(wait);
    // SAFETY: a signal to a child of this process.
    assert_eq!(unsafe { libc::kill(bench.id() as i32, signal) }, 0);
    let output = bench.wait_with_output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn completed_measurements_are_printed_when_a_signal_ends_the_bench() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // The other points take moments, unless the machine is busy.
        let mut waits = [2, 10, 60].map(Duration::from_secs).into_iter();
        let is_whole = |output: &String| {
            let has = |op: &str| output.lines().filter(|line| line.trim().starts_with(op)).count();
            ["op ", "latency ", "barrier ", "skew=0s "].map(has) == [1; 4]
        };
        assert!(waits.any(|wait| is_whole(&bench_until(signal, wait))));
    }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn json_output_has_one_line_per_point_with_all_fields() {
    let options = "latency,bandwidth,bcast,wbcast,copy,barrier --sizes 0,8,64k --format json \
                   --impl mine --tag net=loopback --tag loss=0";
    let (status, output, errors) = bench(4, options);
    assert_eq!(status, 0, "{errors}");
    let lines = lines(&output);
    let ops: Vec<_> = lines.iter().map(|line| line["op"].as_str().unwrap()).collect();
    let sized = ["latency", "bandwidth", "bcast", "bcast_window", "copy"];
    let expected = sized.map(|op| [op; 3]).concat();
    assert_eq!(ops, [&expected[..], &["barrier"]].concat());
    for line in &lines {
        // On a crowded machine no iteration by the clock may start in time.
        let is_counted = line["late"] != 1.0;
        for field in ["median_us", "p99_us", "min_us", "mean_us"] {
            let is_time = line[field].as_f64().is_some_and(|time| time > 0.0);
            assert!(is_time || !is_counted && line[field].is_null(), "{field} in {line}");
        }
        for field in ["packets", "wire_bytes", "copied_bytes", "syscalls", "wakeups", "retransmits"]
        {
            assert!(line[field].is_number(), "{field} in {line}");
        }
        assert_eq!(line["iters"].as_u64().unwrap() >= 1, is_counted, "{line}");
        assert_eq!((&line["impl"], &line["n"]), (&Value::from("mine"), &Value::from(4)));
        assert_eq!((&line["net"], &line["loss"]), (&Value::from("loopback"), &Value::from(0)));
        assert_eq!((&line["errors"], &line["algorithm"]), (&Value::from(0), &"default".into()));
        let is_rate =
            line["bytes"] != 0 && !["latency", "barrier"].contains(&line["op"].as_str().unwrap());
        assert_eq!(line.get("MBps").is_some(), is_rate && is_counted, "{line}");
        let is_by_clock = ["bcast_window", "copy"].contains(&line["op"].as_str().unwrap());
        assert_eq!(line.get("late").is_some(), is_by_clock, "{line}");
    }
}

#[test]
fn command_line_in_the_header_reproduces_the_measurement() {
    let (_, _, first) = bench(2, "bcast --sizes 8 --format json --no-check");
    let head = first.lines().find(|line| line.starts_with('#')).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let command = head.strip_prefix(&format!("# omnes {version}, 2 ranks: omnes bench ")).unwrap();
    let output = Command::new(OMNES)
        .args(["run", "-n", "2", "--no-prefix", "--timeout", "60s", "--", OMNES, "bench"])
        .args(command.split_whitespace())
        .args(["--format", "json"])
        .output()
        .unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains(head), "{head}");
}

#[test]
fn table_has_a_header_and_one_row_per_point() {
    let (status, output, errors) = bench(2, "bcast,barrier --sizes 8,64k --algorithms chain,flat");
    assert_eq!((status, errors.as_str()), (0, ""));
    let lines: Vec<_> = output.lines().collect();
    assert!(lines[0].starts_with("# omnes "), "{output}");
    assert!(lines[1].starts_with("# multicast: 239.") && lines[1].ends_with(" via lo"), "{output}");
    assert!(lines[2].contains("median us") && lines[2].contains("retransmits"), "{output}");
    let firsts = |line: &&str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let rows: Vec<_> = lines[3..].iter().map(firsts).collect();
    assert_eq!(rows, ["bcast chain", "bcast chain", "bcast flat", "bcast flat", "barrier default"]);
}

/// Counters of rank 0 per broadcast, by scheme, in a throughput test of 4 ranks.
fn at_root(scheme: &str) -> impl Fn(&str) -> f64 + use<> {
    let options = format!("throughput --sizes 8 --scheme {scheme} --format json");
    let (status, output, errors) = bench(4, &options);
    assert_eq!(status, 0, "{errors}");
    let line = lines(&output).remove(0);
    assert_eq!((&line["op"], &line["algorithm"]), (&"throughput".into(), &scheme.into()));
    let rate = line["per_s"].as_f64().unwrap();
    assert!((rate * line["median_us"].as_f64().unwrap() - 1e6).abs() < 1e4, "{line}");
    move |field| line[field].as_f64().unwrap()
}

/// Like [`at_root`], measured again if a receiver that waited for a core was queried, because other
/// tests run concurrently: the last of ten measurements is used in any case.
fn at_root_undisturbed(scheme: &str, acks_max: f64) -> impl Fn(&str) -> f64 + use<> {
    let mut measured = at_root(scheme);
    for _ in 1..10 {
        if measured("root_acks") < acks_max {
            break;
        }
        measured = at_root(scheme);
    }
    measured
}

#[test]
fn throughput_reports_packets_and_acknowledgements_at_the_root() {
    // [BC-R25, BC-R26]: 3 receivers; down a binomial tree the root has two children.
    let down_a_tree = at_root("binomial:store");
    assert!((1.9..2.1).contains(&down_a_tree("root_packets")), "{}", down_a_tree("root_packets"));
    assert_eq!(down_a_tree("root_acks"), 0.0);
    // If the root waits for each broadcast, nothing is coalesced: one acknowledgement per receiver.
    let of_basic = at_root_undisturbed("basic", 3.2);
    assert!((2.9..3.2).contains(&of_basic("root_acks")), "{}", of_basic("root_acks"));
    // Otherwise, broadcasts that arrive together are acknowledged together; M = 10 and a timer at
    // the end.
    for (scheme, acks_max) in [("window", 3.2), ("skewed=10", 0.6), ("ack-every=10", 0.6)] {
        let of_some = at_root_undisturbed(scheme, acks_max);
        // Loss is rare here, but other tests run concurrently.
        assert!((1.0..1.1).contains(&of_some("root_packets")), "{}", of_some("root_packets"));
        assert!((0.05..acks_max).contains(&of_some("root_acks")), "{}", of_some("root_acks"));
    }
}

#[test]
fn skewed_broadcast_has_one_line_per_skew_with_the_root_time() {
    let options = "skew --sizes 8 --skew 0s,2ms --scheme original,window --format json";
    let (status, output, errors) = bench(3, options);
    assert_eq!(status, 0, "{errors}");
    let lines = lines(&output);
    let skews: Vec<_> = lines.iter().map(|line| line["skew_us"].as_f64().unwrap()).collect();
    assert_eq!(skews, [0.0, 2000.0, 0.0, 2000.0]);
    for line in &lines {
        assert!(line["root_us"].as_f64().unwrap() > 0.0, "{line}");
        assert!(line["mean_us"].as_f64().unwrap() > 0.0 && line["errors"] == 0, "{line}");
    }
    assert!(errors.contains("--skew 0s,2ms"), "{errors}");
}

#[test]
fn every_scheme_can_be_measured_without_multicast() {
    let schemes = "basic,window,tree-ack,co-root=2,ack-every,skewed,nack,combined,multicast";
    let options = format!("bcast --sizes 8,100k --scheme {schemes} --format json");
    let count = 2 * schemes.split(',').count();
    let (status, output, errors) = bench(4, &options);
    assert_eq!((status, lines(&output).len()), (0, count), "{errors}");
    assert!(lines(&output).iter().all(|line| line["errors"] == 0), "{output}");
    let without = Command::new(OMNES)
        .args(["run", "-n", "4", "--no-prefix", "--timeout", "60s"])
        .args(["--env", "OMNES_SHM=off", "--env", "OMNES_MULTICAST=off"])
        .args(["--env", "OMNES_MULTISEND=off", "--", OMNES, "bench"])
        .args(options.split_whitespace().chain(SHORT.split_whitespace()))
        .output()
        .unwrap();
    let errors = String::from_utf8(without.stderr).unwrap();
    assert!(
        errors.contains("# no multicast: multicast is off on rank 0: switched off"),
        "{errors}"
    );
    let output = String::from_utf8(without.stdout).unwrap();
    assert_eq!(lines(&output).len(), count);
    assert!(lines(&output).iter().all(|line| line["errors"] == 0 && line["root_acks"] == 0.0));
}

#[test]
fn bidirectional_bandwidth_is_reported_as_its_own_operation() {
    let (status, output, errors) = bench(3, "bandwidth --bidirectional --sizes 8k --format json");
    assert_eq!(status, 0, "{errors}");
    let lines = lines(&output);
    assert_eq!((lines.len(), &lines[0]["op"]), (1, &Value::from("bibandwidth")));
    assert_eq!(lines[0]["errors"], 0);
}

#[test]
fn nonblocking_operations_report_their_overlap_with_computation() {
    let ops = ["iallreduce", "ireduce", "iallgather", "ialltoall", "ibcast"];
    let (status, output, errors) =
        bench(3, &format!("{},allreduce --sizes 1,9,100k --format json", ops.join(",")));
    assert_eq!(status, 0, "{errors}");
    let lines = lines(&output);
    let named: Vec<_> = lines.iter().map(|line| line["op"].as_str().unwrap()).collect();
    assert_eq!(named, [&ops.map(|op| [op; 3]).concat()[..], &["allreduce"; 3]].concat());
    for line in &lines {
        let is_nonblocking = line["op"] != "allreduce";
        for field in ["compute_us", "overall_us", "overlap_percent"] {
            assert_eq!(line.get(field).is_some(), is_nonblocking, "{field} in {line}");
        }
        assert_eq!(line["errors"], 0, "{line}");
        if is_nonblocking {
            let number = |field: &str| line[field].as_f64().unwrap();
            let (pure, compute, overall) =
                (number("median_us"), number("compute_us"), number("overall_us"));
            assert!(pure > 0.0 && compute > 0.0 && overall > 0.0, "{line}");
            let percent = (100.0 * (1.0 - (overall - compute) / pure)).max(0.0);
            let rounding = 0.1 + 0.2 / pure;
            assert!((number("overlap_percent") - percent).abs() < rounding, "{line}");
        }
    }
    let (_, table, _) = bench(2, "ibcast,bcast --sizes 8 --algorithms default,chain");
    let head = table.lines().find(|line| line.contains("median us")).unwrap();
    assert!(head.contains("compute us  overall us  overlap %"), "{table}");
    assert_eq!(table.matches("ibcast  chain").count(), 1, "{table}");
}

#[test]
fn ranks_that_cannot_create_files_run_without_shared_memory_or_stats() {
    let output = Command::new("sh")
        .args(["-c", "ulimit -f 0; exec \"$0\" run -n 2 -- \"$0\" bench barrier $1", OMNES, SHORT])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn without_a_launcher_the_way_out_is_told() {
    let output = Command::new(OMNES).args(["bench", "bcast"]).env_clear().output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("`omnes run -n 8 -- omnes bench bcast`"), "{errors}");
}

#[test]
fn bench_usage_errors_are_reported_once() {
    for (options, part) in [
        ("latency", "latency needs 2 ranks"),
        ("bcast --algorithms dissemination", "none of the operations can use it"),
        ("bcast --algorithms bush", "`bush` is not an algorithm"),
        ("bcast --tag median_us=1", "`median_us` is a field"),
        ("broadcast", "invalid value 'broadcast'"),
    ] {
        let (status, output, errors) = bench(1, options);
        assert_eq!((status, output.as_str()), (2, ""), "{options}: {errors}");
        assert_eq!(errors.matches(part).count(), 1, "{options}: {errors}");
    }
}
