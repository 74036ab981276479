//! `omnes papers` as a user sees it.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::process::Command;

const OMNES: &str = env!("CARGO_BIN_EXE_omnes");

/// Status, standard output, standard error.
type Seen = (i32, String, String);

fn papers(arguments: &[&str]) -> Seen {
    let output = Command::new(OMNES).arg("papers").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn target_shows_the_paper_value_own_value_and_verdict() {
    let (status, out, error) = papers(&["MS-F04"]);
    assert_eq!((status, error.as_str()), (0, ""));
    for text in ["153.2089", "met", "k = 6 destinations", "# MS: 1 met"] {
        assert!(out.contains(text), "{text}: {out}");
    }
}

#[test]
fn unwritable_page_is_rejected_before_computing() {
    let (status, out, error) = papers(&["MS-F04", "--html", "no/such/page.html"]);
    assert_eq!((status, out.as_str()), (2, ""));
    assert!(error.contains("cannot write no/such/page.html: no folder no/such"), "{error}");
}

#[test]
fn json_output_is_independent_of_the_number_of_threads() {
    let ids = ["MS-F21", "BC-S05", "CB-F01", "PM-F01", "IT-F01", "CB-X02"];
    let of = |threads| {
        let arguments: Vec<&str> =
            ids.into_iter().chain(["--json", "--threads", threads]).collect();
        let (status, out, _) = papers(&arguments);
        assert_eq!(status, 0);
        out
    };
    let out = of("1");
    assert_eq!(out, of("5"));
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), ids.len());
    let line = lines.iter().find(|line| line["id"] == "CB-X02").unwrap();
    assert_eq!(line["verdict"], "explained");
    assert!(line["reason"].as_str().unwrap().contains("earlier fit"));
}

#[test]
fn check_fails_if_a_previously_met_target_is_missed() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("met.txt");
    let path = file.to_str().unwrap();
    std::fs::write(&file, "# before\nMS-F04\n").unwrap();
    assert_eq!(papers(&["MS-F04", "CB-X02", "--check", "--met", path]).0, 0);
    std::fs::write(&file, "MS-F04\nCB-X02\n").unwrap();
    let (status, _, error) = papers(&["MS-F04", "CB-X02", "--check", "--met", path]);
    assert_eq!(status, 1);
    assert!(error.contains("CB-X02 was met and is explained now"), "{error}");
    std::fs::write(&file, "CB-F01\n").unwrap();
    let (status, _, error) = papers(&["MS-F04", "--check", "--met", path]);
    assert_eq!(status, 1);
    assert!(error.contains("MS-F04 is met and not in the list"), "{error}");
    std::fs::write(&file, "MS-F04\nMS-F99\n").unwrap();
    let (status, _, error) = papers(&["MS-F04", "--check", "--met", path]);
    assert_eq!(status, 2);
    assert!(error.contains("`MS-F99` is not a target"), "{error}");
    std::fs::write(&file, "MS-F04\nCB-X02\n").unwrap();
    // Targets that are not requested are not computed, and so are not worse.
    assert_eq!(papers(&["MS-F04", "--check", "--met", path]).0, 0);
}

#[test]
fn list_of_met_targets_round_trips() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("met.txt");
    let path = file.to_str().unwrap();
    assert_eq!(papers(&["MS-F04", "CB-X02", "--bless", "--met", path]).0, 0);
    let ids = |text: String| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    assert_eq!(ids(std::fs::read_to_string(&file).unwrap()), ["MS-F04"]);
    assert_eq!(papers(&["CB-F01", "--bless", "--met", path]).0, 0);
    assert_eq!(ids(std::fs::read_to_string(&file).unwrap()), ["CB-F01", "MS-F04"]);
}

#[test]
fn page_stands_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("papers.html");
    let (status, ..) = papers(&["CB-X02", "MS-F13", "--html", file.to_str().unwrap()]);
    assert_eq!(status, 0);
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(page.contains("Contradictions") && page.contains("1.3905"));
    for link in ["http:", "https:", "<script", "src=", "url("] {
        assert!(!page.contains(link), "{link}");
    }
}

#[test]
fn unknown_targets_and_invalid_options_are_usage_errors() {
    let (status, _, error) = papers(&["MS-F99"]);
    assert_eq!(status, 2);
    assert!(error.contains("MS-F99") && error.contains("multisend (MS)"), "{error}");
    assert_eq!(papers(&["MS-F04", "--html", "/nowhere/papers.html"]).0, 2);
    assert_eq!(papers(&["--check", "--bless"]).0, 2);
    let (status, out, error) = papers(&["MS-F04", "--met", "no/such/list"]);
    assert_eq!((status, out.as_str()), (2, ""));
    assert!(error.contains("--met is for --check and --bless"), "{error}");
}
