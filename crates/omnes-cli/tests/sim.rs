//! `omnes sim` as a user sees it: whole output and exit status.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const OMNES: &str = env!("CARGO_BIN_EXE_omnes");

/// Status, standard output, standard error.
fn omnes(words: &[&str]) -> (i32, String, String) {
    let output = Command::new(OMNES).args(words).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn sim(options: &str) -> (i32, String, String) {
    let words: Vec<_> = std::iter::once("sim").chain(options.split_whitespace()).collect();
    omnes(&words)
}

/// Lines of a successful run.
fn lines(options: &str) -> Vec<Value> {
    let (status, output, errors) = sim(options);
    assert_eq!(status, 0, "{options}: {errors}");
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Names of fields in order, which a parser does not keep; no value contains `":`.
fn fields(line: &str) -> Vec<&str> {
    let mut parts: Vec<_> = line.split("\":").collect();
    parts.pop();
    parts.into_iter().filter_map(|part| part.rsplit('"').next()).collect()
}

#[test]
fn every_operation_has_one_line_per_combination() {
    for (options, op, count) in [
        ("bcast -n 3,4 --sizes 8,4k --algorithms binomial,postal,nack", "bcast", 12),
        ("barrier -n 2,5 --algorithms nic:pairwise,channel:counter,default", "barrier", 6),
        ("pingpong --sizes 0,8,64k", "latency", 3),
        ("bandwidth --sizes 8,64k", "bandwidth", 2),
        ("throughput -n 4 --sizes 8 --scheme window,skewed=10", "throughput", 2),
        ("skew -n 4 --sizes 8 --skew 0,200us --scheme original,window", "skew", 4),
    ] {
        let lines = lines(&format!("{options} --repeat 2 --json"));
        assert_eq!(lines.len(), count, "{options}");
        for line in &lines {
            assert_eq!((&line["impl"], &line["op"]), (&"omnes-sim".into(), &op.into()));
            assert_eq!((&line["iters"], &line["errors"]), (&2.into(), &0.into()));
            assert_eq!(line["testbed"], "ethernet-25g");
            for field in ["median_us", "p99_us", "min_us", "mean_us", "packets"] {
                assert!(line[field].as_f64().unwrap() > 0.0, "{field} in {line}");
            }
            assert!(line["min_us"].as_f64() <= line["median_us"].as_f64(), "{line}");
        }
    }
}

#[test]
fn json_lines_have_the_same_fields_and_order_as_bench() {
    // Two ranks on this machine; nobody reads the times.
    let bench = "run -n 2 --no-prefix --timeout 60s --env OMNES_SHM=off -- OMNES bench \
                 bcast,barrier,latency,bandwidth,throughput,skew --sizes 8 --skew 200us \
                 --budget 5ms --max-iters 5 --warmup 1 --format json";
    let words: Vec<_> =
        bench.split_whitespace().map(|word| if word == "OMNES" { OMNES } else { word }).collect();
    let (status, output, errors) = omnes(&words);
    assert_eq!(status, 0, "{errors}");
    let mut compared = 0;
    for measured in output.lines() {
        let op =
            serde_json::from_str::<Value>(measured).unwrap()["op"].as_str().unwrap().to_owned();
        let options = if op == "barrier" { "" } else { "--sizes 8" };
        let skew = if op == "skew" { "--skew 200us" } else { "" };
        let (_, simulated, errors) = sim(&format!("{op} -n 2 {options} {skew} --json"));
        let (measured, simulated) = (fields(measured), fields(simulated.trim()));
        let (common, own) = simulated.split_at(measured.len());
        assert_eq!(common, measured, "{op}: {errors}");
        assert_eq!(own[0], "testbed", "{op}");
        compared += 1;
    }
    assert_eq!(compared, 6);
}

#[test]
fn table_has_a_header_and_only_the_varying_columns() {
    let (status, output, errors) =
        sim("bcast -n 4 --sizes 8,64k --algorithms binomial,chain --loss 0%,1% --repeat 2");
    assert_eq!((status, errors.as_str()), (0, ""));
    let lines: Vec<_> = output.lines().collect();
    let version = env!("CARGO_PKG_VERSION");
    let head = format!("# omnes {version}, simulated: omnes sim bcast --testbed ethernet-25g ");
    assert!(lines[0].starts_with(&head), "{output}");
    assert!(lines[1].starts_with("# testbed: 25 Gbit/s Ethernet"), "{output}");
    for shown in ["median us", "loss", "size", "root data", "resent, lost"] {
        assert!(lines[2].contains(shown), "{shown} in {output}");
    }
    for hidden in ["network", "carrier", "seed", "per s"] {
        assert!(!lines[2].contains(hidden), "{hidden} in {output}");
    }
    assert_eq!(lines.len(), 3 + 8, "{output}");
    // The command line in the head repeats the simulation.
    let command = lines[0].split("simulated: omnes ").nth(1).unwrap();
    let words: Vec<_> = command.split_whitespace().collect();
    assert_eq!(omnes(&words).1, output);
}

#[test]
fn postal_tree_choice_is_explained() {
    let (_, output, _) = sim("bcast -n 64 --sizes 8,1m --algorithms postal --repeat 1");
    let notes: Vec<_> = output.lines().filter(|line| line.contains("postal is postal=")).collect();
    assert_eq!(notes.len(), 2, "{output}");
    assert!(
        notes[0].starts_with("# 8 B to 64 ranks: ") && notes[0].contains("lambda "),
        "{output}"
    );
    let options = "bcast -n 64 --sizes 8 --algorithms postal --repeat 1 --json";
    let line = lines(options).remove(0);
    let lambda = line["lambda"].as_f64().unwrap();
    assert_eq!(line["algorithm"], format!("postal={lambda}"), "{line}");
    // The named tree is the same one.
    let named = format!("bcast -n 64 --sizes 8 --algorithms postal={lambda} --repeat 1 --json");
    assert_eq!(lines(&named).remove(0)["hash"], line["hash"]);
}

#[test]
fn retransmitted_barrier_steps_are_counted() {
    for algorithm in ["user:dissemination", "nic:dissemination", "nic:counter"] {
        let options = format!("barrier -n 8 --algorithms {algorithm} --json --loss");
        for (loss, is_repaired) in [("0%", false), ("5%", true)] {
            let line = lines(&format!("{options} {loss}")).remove(0);
            assert_eq!(line["retransmits"].as_f64().unwrap() > 0.0, is_repaired, "{line}");
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_jobs() {
    let options = "bcast -n 4,9 --sizes 8,30k --algorithms combined,binomial --loss 0%,2% \
                   --seeds 2 --repeat 3 --json --jobs";
    let alone = sim(&format!("{options} 1"));
    assert_eq!(alone.1.lines().count(), 32);
    assert_eq!(sim(&format!("{options} 2")).1, alone.1);
    assert_eq!(sim(&format!("{options} 2")).1, alone.1);
}

#[test]
fn printed_scenario_reproduces_the_results() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    let options = "bcast -n 4,8 --sizes 8,64k --algorithms postal,nack --loss 0.5% --seeds 2 \
                   --network fat-tree=4 --carrier multisend:flat:host --roots 1 --repeat 2";
    let (status, scenario, _) = sim(&format!("{options} --print-config"));
    assert_eq!(status, 0);
    fs::write(&file, &scenario).unwrap();
    let file = file.to_str().unwrap();
    let run = |more: &str| sim(&format!("run {file} {more}"));
    assert_eq!(run("--print-config").1, scenario);
    assert_eq!(run("--json").1, sim(&format!("{options} --json")).1);
    // A flag overrides the file's value.
    let changed = run("-n 3 --print-config").1;
    assert_eq!(changed, scenario.replace("ranks = [4, 8]", "ranks = [3]"));
}

#[test]
fn shipped_scenarios_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut found = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let (status, output, errors) = sim(&format!("run {} --print-config", path.display()));
        assert_eq!(status, 0, "{}: {errors}", path.display());
        assert!(output.starts_with("op = "), "{output}");
        found += 1;
    }
    assert!(found >= 5);
}

#[test]
fn custom_testbed_is_resolved_relative_to_the_scenario() {
    let folder = tempfile::tempdir().unwrap();
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbeds/ethernet-25g.toml");
    let text = fs::read_to_string(built_in).unwrap();
    let mine = text
        .replace("name = \"ethernet-25g\"", "name = \"mine\"")
        .replace("byte_ns = 0.32,", "byte_ns = 3.2,");
    assert_ne!(mine, text);
    fs::write(folder.path().join("mine.toml"), mine).unwrap();
    let scenario = folder.path().join("slow.toml");
    fs::write(&scenario, "op = \"bandwidth\"\ntestbed = \"mine.toml\"\nsizes = \"1m\"\n").unwrap();
    let slow = lines(&format!("run {} --json", scenario.display())).remove(0);
    let fast = lines("bandwidth --sizes 1m --json").remove(0);
    assert_eq!(slow["testbed"], "mine");
    assert!(fast["MBps"].as_f64().unwrap() > 3.0 * slow["MBps"].as_f64().unwrap());
}

#[test]
fn file_names_in_the_header_are_shell_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbeds/ethernet-1g.toml");
    let file = folder.path().join("it's mine.toml");
    fs::copy(built_in, &file).unwrap();
    let words = ["sim", "pingpong", "--sizes", "8", "--testbed", file.to_str().unwrap()];
    let (status, output, errors) = omnes(&words);
    assert_eq!(status, 0, "{errors}");
    let command = output.lines().next().unwrap().split("simulated: omnes ").nth(1).unwrap();
    let again = Command::new("sh").arg("-c").arg(format!("{OMNES} {command}")).output().unwrap();
    assert_eq!(String::from_utf8(again.stdout).unwrap(), output);
}

#[test]
fn testbeds_are_listed_with_the_source_of_each_constant() {
    let (status, list, _) = sim("testbeds");
    assert_eq!(status, 0);
    assert!(list.contains("ethernet-25g") && list.contains("fm-lanai4"), "{list}");
    let (_, one, _) = sim("testbeds ethernet-25g");
    let wire = one.lines().find(|line| line.trim_start().starts_with("link.wire")).unwrap();
    assert!(wire.contains("0.32 ns") && wire.contains("25 Gbit/s"), "{one}");
    assert!(one.contains("assumed") && one.contains("given"), "{one}");
    let folder = tempfile::tempdir().unwrap();
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbeds/ethernet-25g.toml");
    let text = fs::read_to_string(built_in).unwrap();
    let cores = "[host]\ncores = { count = 2, source = \"mine\" }\n";
    let file = folder.path().join("mine.toml");
    fs::write(&file, text.replacen("[host]\n", cores, 1)).unwrap();
    let (_, mine, errors) = sim(&format!("testbeds {}", file.display()));
    let cores = mine.lines().find(|line| line.trim_start().starts_with("host.cores")).unwrap();
    assert!(cores.contains("2 cores"), "{mine} {errors}");
    let (_, json, _) = sim("testbeds fm-lanai4 --json");
    let testbed: Value = serde_json::from_str(&json).unwrap();
    let constants = testbed["constants"].as_array().unwrap();
    assert!(constants.iter().all(|it| !it["source"].as_str().unwrap().is_empty()), "{json}");
}

#[test]
fn traces_show_every_resource_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let [trace, perfetto] = ["a.txt", "a.json"].map(|name| folder.path().join(name));
    let (status, _, errors) = sim(&format!(
        "bcast -n 3 --sizes 8 --algorithms flat --repeat 1 --warmup 0 --trace {} --perfetto {}",
        trace.display(),
        perfetto.display()
    ));
    assert_eq!(status, 0, "{errors}");
    let text = fs::read_to_string(trace).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split(' ').collect()).collect();
    assert!(rows.iter().all(|row| row.len() == 4), "{text}");
    let starts: Vec<u64> = rows[1..].iter().map(|row| row[0].parse().unwrap()).collect();
    assert!(starts.is_sorted() && rows[0][3] == "operation=1", "{text}");
    for (place, what) in
        [("h0", "host-sends"), ("h0>s0", "wire"), ("s0>h2", "wire"), ("h2", "host-receives")]
    {
        assert!(rows.iter().any(|row| row[2] == place && row[3] == what), "{place} {text}");
    }
    let parsed: Value = serde_json::from_str(&fs::read_to_string(perfetto).unwrap()).unwrap();
    let events = parsed["traceEvents"].as_array().unwrap();
    let complete = events.iter().filter(|event| event["ph"] == "X").count();
    assert_eq!(complete, rows.len());
}

#[test]
fn plots_show_every_algorithm() {
    let folder = tempfile::tempdir().unwrap();
    for (name, options) in [
        ("sizes.svg", "--sizes 8,1k,64k -n 4"),
        ("ranks.html", "--sizes 8 -n 4,8,16"),
        ("loss.svg", "--sizes 8k -n 4 --loss 0%,1%,2% --seeds 3"),
        ("bars.svg", "--sizes 8 -n 4"),
    ] {
        let path = folder.path().join(name);
        let shown = path.display();
        let (status, _, errors) =
            sim(&format!("bcast --algorithms combined,chain {options} --repeat 1 --plot {shown}"));
        assert_eq!(status, 0, "{errors}");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("<svg") && text.contains("</svg>"), "{name}");
        for part in ["combined", "chain", "ethernet-25g", "Broadcast"] {
            assert!(text.contains(part), "{part} in {name}");
        }
        assert_eq!(name.ends_with("html"), text.contains("omnes sim bcast --testbed"), "{name}");
    }
}

#[test]
fn empty_messages_have_their_own_position_in_plots() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sizes.svg");
    let (status, _, errors) =
        sim(&format!("pingpong --sizes 0,1,8 --repeat 1 --plot {}", path.display()));
    assert_eq!(status, 0, "{errors}");
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches("<circle").count(), 3, "{text}");
    for size in ["0 B", "1 B", "8 B"] {
        assert!(text.lines().any(|line| line.trim() == size), "{size} in {text}");
    }
}

#[test]
fn sim_usage_errors_are_reported_once_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("wrong.toml");
    fs::write(&scenario, "op = \"bcast\"\nrank = 8\n").unwrap();
    let misspelt = format!("run {}", scenario.display());
    for (options, part) in [
        ("bcast --testbed fm", "no testbed `fm`; there are `ethernet-1g`, "),
        ("bcast -n 1", "a model has 2 to 65536"),
        ("bcast --loss 0.01", "needs a percent sign (0.01%)"),
        ("bcast --loss 70%", "above 50%"),
        ("bcast --algorithms bush", "`bush` is not an algorithm"),
        ("barrier --algorithms chain", "barrier cannot use it"),
        ("barrier --sizes 8", "a barrier has no size"),
        ("bcast --skew 1ms", "--skew is for skew"),
        ("bcast -n 4 --roots 4", "the last of 4 ranks is 3"),
        ("bcast --network torus", "fat-tree=RADIX"),
        ("bcast -n 4096 --network fat-tree=4", "--network fat-tree=4"),
        ("bcast --carrier flat", "multisend:flat"),
        ("bcast --plot a.png", "must end in .svg or .html"),
        ("bcast -n 4,8 --trace a.txt", "this makes 10; give one value"),
        ("run no/such.toml", "cannot read no/such.toml"),
        (&misspelt, "unknown field `rank`, expected one of `op`, `testbed`, `ranks`"),
        ("gather", "unrecognized subcommand"),
        ("bcast --jobs 3000", "3000 is not in 1..=1024"),
        ("barrier --repeat 4294967295 --warmup 1", "give 4294967296 iterations; a run has at most"),
        ("bcast --sizes 8 --seeds 4294967295", "this makes 4294967295 runs, at most 1000000"),
        ("skew -n 3 --sizes 8 --skew 9000s", "11 iterations with `--skew 9000s` may last"),
        ("bcast --sizes 8 --plot no/such/a.svg", "cannot write no/such/a.svg: no folder no/such"),
        ("bcast -n 4 --sizes 8 --trace no/such/a", "cannot write no/such/a: no folder no/such"),
        (
            "bcast -n 4 --sizes 8 --trace a --perfetto a",
            "--trace and --perfetto would write the same",
        ),
        ("bcast -n 4 --sizes 8 --plot /proc/a.svg", "cannot write /proc/a.svg"),
        ("bcast -n 4 --sizes 1.5", "not a whole number of bytes"),
        ("bcast --algorithms chain --carrier multisend:flat", "sends to all ranks"),
        ("bcast -n 4 --sizes 8 --perfetto /", "cannot write /: it is a folder"),
    ] {
        let (status, output, errors) = sim(options);
        assert_eq!((status, output.as_str()), (2, ""), "{options}: {errors}");
        assert_eq!(errors.matches(part).count(), 1, "{options}: {errors}");
    }
}

#[test]
fn help_starts_with_an_example_for_newcomers() {
    for options in ["--help", "bcast --help"] {
        let (status, output, _) = sim(options);
        assert_eq!(status, 0);
        let examples = output.split("Examples:\n").nth(1).unwrap();
        let first: Vec<_> = examples.lines().take(2).map(str::trim).collect();
        let wanted = "omnes sim bcast -n 512 --sizes 64MiB --testbed ethernet-25g --loss 0.01% \\";
        assert_eq!(first[0], wanted, "{output}");
        assert_eq!(first[1], "--algorithms default,postal,binomial --plot answer.svg");
    }
}
