//! Names that the pure crates must not use: clocks, threads, sockets, hash maps, random sources.
//!
//! The same seed gives the same trace, byte for byte, only if wire, topo, firmware, proto and sim
//! take time and randomness as arguments and iterate in a fixed order. The scan reads names in
//! blanked source text, tests included; a build for a bare target, if one is installed, is the
//! second proof. Not detected: a re-export of such an item by another crate under a new name.

use crate::source::{Token, blanked, tokens};
use crate::workspace::Workspace;
use crate::{report, succeeds};
use std::path::Path;
use std::process::Command;

const PURE: [&str; 5] = ["omnes-wire", "omnes-topo", "omnes-firmware", "omnes-proto", "omnes-sim"];
/// Crates that must build without an operating system; the firmware and its users need a C
/// compiler.
const BARE: [&str; 2] = ["omnes-wire", "omnes-topo"];
const BARE_TARGET: &str = "wasm32-unknown-unknown";

/// Banned everywhere.
const WORDS: [&str; 4] = ["SystemTime", "HashMap", "HashSet", "RandomState"];
/// Banned as `a::b`, also inside a `use` with braces; `Instant` alone is Omnes's own.
const PATHS: [(&str, &str); 4] =
    [("std", "thread"), ("std", "net"), ("time", "Instant"), ("time", "*")];
/// Banned crates.
const CRATES: [&str; 5] = ["rand", "rand_core", "fastrand", "getrandom", "oorandom"];

/// Scans, then builds for the bare target if it is installed; true if both find nothing.
pub fn run(workspace: &Workspace) -> anyhow::Result<bool> {
    let scanned = report("purity", &findings(workspace));
    if !target_is_installed(workspace)? {
        eprintln!("purity: build skipped: needs target {BARE_TARGET}");
        return Ok(scanned);
    }
    let packages = BARE.into_iter().flat_map(|name| ["--package", name]);
    let mut check = workspace.cargo();
    let built = succeeds(check.args(["check", "--target", BARE_TARGET]).args(packages))?;
    Ok(scanned && built)
}

fn target_is_installed(workspace: &Workspace) -> anyhow::Result<bool> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", BARE_TARGET]);
    let output = rustc.current_dir(&workspace.root).output()?;
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(output.status.success() && Path::new(&folder).is_dir())
}

/// Every banned name in the sources and dependencies of the pure crates.
fn findings(workspace: &Workspace) -> Vec<String> {
    let mut findings = Vec::new();
    for package in workspace.packages.iter().filter(|package| PURE.contains(&&*package.name)) {
        for dependency in package.dependencies.iter().filter(|dependency| !dependency.only_tests) {
            if CRATES.contains(&&*dependency.name) {
                findings.push(format!("{}: must not need {}", package.name, dependency.name));
            }
        }
        let sources = format!("{}/src/", package.folder);
        let own = workspace.files.iter().filter(|file| file.path.starts_with(&sources));
        // Binaries may use threads: they run many worlds in parallel, each by itself.
        let binaries = format!("{sources}bin/");
        let own = own.filter(|file| !file.path.starts_with(&binaries));
        for file in own.filter(|file| file.is("rs")) {
            let blanked = blanked(&file.text);
            let banned = banned_names(&tokens(&blanked)).into_iter();
            findings.extend(banned.map(|(line, name)| format!("{}:{line}: {name}", file.path)));
        }
    }
    findings
}

/// Line and name of each banned name.
fn banned_names(tokens: &[Token]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    // Path before each open brace, for `use std::{net, time::{Duration, Instant}};`.
    let mut outer: Vec<&str> = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let is_path = |at: usize| tokens.get(at..at + 2).is_some_and(is_path_mark);
        let parent = match index.checked_sub(3) {
            Some(before) if is_path(before + 1) => tokens[before].text,
            _ => outer.last().copied().unwrap_or_default(),
        };
        match token.text {
            "{" if index >= 3 && is_path(index - 2) => outer.push(tokens[index - 3].text),
            "{" => outer.push(""),
            "}" => drop(outer.pop()),
            word if WORDS.contains(&word) => found.push((token.line, word.to_owned())),
            word if PATHS.contains(&(parent, word)) => {
                found.push((token.line, format!("{parent}::{word}")));
            }
            word if CRATES.contains(&word) && is_path(index + 1) => {
                found.push((token.line, word.to_owned()));
            }
            _ => {}
        }
    }
    found
}

fn is_path_mark(pair: &[Token]) -> bool {
    pair[0].text == ":" && pair[1].text == ":" && pair[0].at + 1 == pair[1].at
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(text: &str) -> Vec<String> {
        banned_names(&tokens(&blanked(text))).into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn pure_workspace_crates_use_no_impure_names() {
        let findings = findings(&Workspace::load().unwrap());
        assert!(findings.is_empty(), "{findings:#?}");
    }

    #[test]
    fn clocks_threads_sockets_maps_and_random_crates_are_found() {
        assert_eq!(names("use std::time::Instant;"), ["time::Instant"]);
        assert_eq!(
            names("use std::{net, time::{Duration, Instant}};"),
            ["std::net", "time::Instant"]
        );
        assert_eq!(names("use std::time::*;"), ["time::*"]);
        assert_eq!(names("fn f() { std::thread::sleep(d) }"), ["std::thread"]);
        assert_eq!(names("use std::collections::{BTreeMap, HashMap};"), ["HashMap"]);
        assert_eq!(names("let now = SystemTime::now();"), ["SystemTime"]);
        assert_eq!(names("let x = rand::random();"), ["rand"]);
    }

    #[test]
    fn own_instant_and_harmless_names_are_accepted() {
        assert!(names("use omnes_wire::Instant; use std::time::Duration;").is_empty());
        assert!(names("use core::time::Duration; fn rand(net: u8) -> Instant {}").is_empty());
        assert!(names("// std::thread\nlet s = \"HashMap\"; x * Instant").is_empty());
    }
}
