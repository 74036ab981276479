//! Output and input of ranks.

use super::{omnes_run, shell};
use std::fs;
use std::io::Write;
use std::process::Stdio;

#[test]
fn output_lines_are_prefixed_by_rank_and_always_terminated() {
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
fn output_can_be_unprefixed() {
    let script = "printf 'no end'; echo error >&2";
    let (status, output, errors) = shell(&["-n", "1", "--no-prefix"], script);
    assert_eq!((status, &*output, &*errors), (0, "no end", "error\n"));
}

#[test]
fn output_can_be_written_to_files() {
    let directory = tempfile::tempdir().unwrap();
    let logs = directory.path().join("deep/logs");
    let options = ["-n", "2", "--output-dir", logs.to_str().unwrap()];
    let result = shell(&options, "echo out $OMNES_RANK; echo err $OMNES_RANK >&2");
    assert_eq!(result, (0, String::new(), String::new()));
    let read = |name: &str| fs::read_to_string(logs.join(name)).unwrap();
    assert_eq!((read("rank.0.out"), read("rank.1.err")), ("out 0\n".into(), "err 1\n".into()));
    // A job with fewer ranks leaves no files of another job beside its own; files that no job has
    // created stay.
    fs::write(logs.join("rank.1.out.old"), "").unwrap();
    assert_eq!(shell(&["-n", "1", options[2], options[3]], ":").0, 0);
    let mut names: Vec<_> =
        fs::read_dir(&logs).unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["rank.0.err", "rank.0.out", "rank.1.out.old"]);
}

#[test]
fn megabytes_of_output_arrive_complete() {
    let (status, output, _) = shell(&["-n", "2"], "seq 1 200000");
    assert_eq!((status, output.lines().count()), (0, 400_000));
    assert!(output.lines().all(|line| line.starts_with("[0] ") || line.starts_with("[1] ")));
}

/// If standard error cannot be written, the ranks' messages are lost, but they continue.
#[test]
fn ranks_survive_an_unwritable_standard_error() {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let script = "echo one >&2; sleep 0.1; echo two >&2; sleep 0.1; echo three >&2; echo done";
    let mut command = omnes_run(&["-n", "1", "--", "sh", "-c", script]);
    let job = command.stdout(Stdio::piped()).stderr(full).spawn().unwrap();
    let output = job.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"[0] done\n"[..]));
}

#[test]
fn only_lines_over_the_length_limit_are_split() {
    let lengths = |bytes: usize| {
        let script = format!("head -c {bytes} /dev/zero | tr '\\0' x; echo; echo end");
        let (status, output, _) = shell(&["-n", "1"], &script);
        assert_eq!(status, 0);
        let mut lengths: Vec<_> = output.lines().map(|line| line.len() - 4).collect();
        lengths.sort_unstable();
        lengths
    };
    assert_eq!(lengths(1 << 20), [3, 1 << 20]);
    let broken = lengths(3 << 20);
    assert!(broken.len() > 2 && broken.iter().sum::<usize>() == 3 + (3 << 20), "{broken:?}");
    assert!(broken.iter().all(|length| *length > 0), "{broken:?}");
}

/// A pipe takes long lines in pieces, between which others could write.
#[test]
fn launcher_messages_never_mix_with_rank_output_lines() {
    let script = r#"OUT=$(head -c 60000 /dev/zero | tr '\0' x)
        for i in 1 2 3 4 5 6 7 8 9 10; do echo "$OUT"; done; exit 3"#;
    let mut command = omnes_run(&["-n", "4", "--", "sh", "-c", script]);
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut job = command.stdout(writer.try_clone().unwrap()).stderr(writer).spawn().unwrap();
    drop(command);
    let (mut said, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match std::io::Read::read(&mut reader, &mut piece).unwrap() {
            0 => break,
            bytes => said.extend_from_slice(&piece[..bytes]),
        }
        std::thread::sleep(std::time::Duration::from_micros(500));
    }
    assert_eq!(job.wait().unwrap().code(), Some(3));
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("exited with status 3"));
    for line in said.lines() {
        let is_whole = line.len() == 60004 || line.starts_with("omnes: rank ");
        assert!(is_whole, "{}: ...{}", line.len(), &line[line.len().saturating_sub(200)..]);
    }
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
fn quiet_suppresses_everything_but_the_status() {
    let result = shell(&["-n", "1", "--quiet"], "exit 9");
    assert_eq!(result, (9, String::new(), String::new()));
}
