//! What ranks write, and what they read.

use super::{omnes_run, shell};
use std::fs;
use std::io::Write;
use std::process::Stdio;

#[test]
fn every_line_has_its_rank_before_it_and_a_last_line_gets_its_end() {
    let (status, output, errors) =
        shell(&["-n", "2"], "echo one; printf two; echo bad >&2; [ $OMNES_RANK = 0 ]");
    assert_eq!(output, "[0] one\n[0] two\n[1] one\n[1] two");
    assert_eq!(status, 1);
    for line in ["[0] bad", "[1] bad"] {
        assert!(errors.lines().any(|other| other == line), "{errors}");
    }
}

#[test]
fn prefixes_are_as_wide_as_the_largest_rank() {
    let (_, output, _) = shell(&["-n", "11"], "echo x");
    let mut expected: Vec<_> = (0..11).map(|rank| format!("[{rank:2}] x")).collect();
    expected.sort_unstable();
    assert_eq!(output, expected.join("\n"));
}

#[test]
fn output_can_pass_raw() {
    let script = "printf 'no end'; echo error >&2";
    let (status, output, errors) = shell(&["-n", "1", "--no-prefix"], script);
    assert_eq!((status, &*output, &*errors), (0, "no end", "error\n"));
}

#[test]
fn output_can_go_to_files() {
    let directory = tempfile::tempdir().unwrap();
    let logs = directory.path().join("deep/logs");
    let options = ["-n", "2", "--output-dir", logs.to_str().unwrap()];
    let result = shell(&options, "echo out $OMNES_RANK; echo err $OMNES_RANK >&2");
    assert_eq!(result, (0, String::new(), String::new()));
    let read = |name: &str| fs::read_to_string(logs.join(name)).unwrap();
    assert_eq!((read("rank.0.out"), read("rank.1.err")), ("out 0\n".into(), "err 1\n".into()));
    // Of a job of fewer ranks there is nothing of another beside; what no job has made stays.
    fs::write(logs.join("rank.1.out.old"), "").unwrap();
    assert_eq!(shell(&["-n", "1", options[2], options[3]], ":").0, 0);
    let mut names: Vec<_> =
        fs::read_dir(&logs).unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["rank.0.err", "rank.0.out", "rank.1.out.old"]);
}

#[test]
fn megabytes_of_output_arrive_whole() {
    let (status, output, _) = shell(&["-n", "2"], "seq 1 200000");
    assert_eq!((status, output.lines().count()), (0, 400_000));
    assert!(output.lines().all(|line| line.starts_with("[0] ") || line.starts_with("[1] ")));
}

#[test]
fn only_the_chosen_rank_reads_standard_input() {
    let mut command = omnes_run(&["-n", "2", "--stdin", "1", "--", "cat"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"[1] hello\n");
}

#[test]
fn quiet_leaves_only_the_status() {
    let result = shell(&["-n", "1", "--quiet"], "exit 9");
    assert_eq!(result, (9, String::new(), String::new()));
}
