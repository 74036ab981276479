//! Lengths, widths, banned words and dead files.
//!
//! Limits: 70 lines per function, 1000 per file (from 600 on a question is printed), 100 characters
//! per line with a tab as 8. Functions that were longer when the check was introduced are listed in
//! xtask/tidy.txt as `path name lines`; an entry may only become smaller and the list only shorter,
//! so the number of its entries is a constant here.

use crate::modules::compiled;
use crate::report;
use crate::source::{Function, blanked, c_functions, functions, tokens};
use crate::workspace::{TextFile, Workspace};

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 1000;
const FILE_LINES_QUESTION: usize = 600;
const LINE_CHARACTERS_MAX: usize = 100;
const TAB_CHARACTERS: usize = 8;
/// Entries of xtask/tidy.txt; to be lowered when an entry is removed, never raised.
const OLD_OFFENDERS: usize = 0;
const OLD_OFFENDERS_FILE: &str = "xtask/tidy.txt";

/// Words banned everywhere, each in two parts, so that this file does not ban itself.
const BANNED_WORDS: [&str; 6] = [
    concat!("FIX", "ME"),
    concat!("TO", "DO"),
    concat!("X", "XX"),
    concat!("ha", "ck"),
    concat!("ha", "cks"),
    concat!("ha", "cky"),
];
/// Folders of a particular machine, banned at the start of a path.
const MACHINE_FOLDERS: [&str; 3] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
const DEBUG_MACRO: &str = concat!("db", "g!");

/// Result of the check of a workspace.
#[derive(Default)]
pub struct Verdict {
    /// Findings that must be fixed.
    pub findings: Vec<String>,
    /// Questions to the reader.
    pub questions: Vec<String>,
}

/// Runs the check and prints its result; true if nothing must be fixed.
pub fn run(workspace: &Workspace) -> anyhow::Result<bool> {
    let verdict = verdict(workspace);
    for question in &verdict.questions {
        eprintln!("{question}");
    }
    Ok(report("tidy", &verdict.findings))
}

/// Checks every file of the workspace.
pub fn verdict(workspace: &Workspace) -> Verdict {
    let mut verdict = Verdict::default();
    let mut long: Vec<(String, Function)> = Vec::new();
    for file in &workspace.files {
        check_words(file, &mut verdict.findings);
        if file.is_code() {
            check_width(file, &mut verdict.findings);
            check_headings(file, &mut verdict.findings);
            check_file_length(file, &mut verdict);
        }
        let functions = functions_of(file).into_iter();
        let too_long = functions.filter(|function| function.lines > FUNCTION_LINES_MAX);
        long.extend(too_long.map(|function| (file.path.clone(), function)));
    }
    let list = workspace_list(workspace);
    verdict.findings.extend(ratchet(&long, &list, OLD_OFFENDERS));
    verdict.findings.extend(dead_files(workspace));
    verdict
}

fn functions_of(file: &TextFile) -> Vec<Function> {
    if file.is("rs") {
        functions(&tokens(&blanked(&file.text)))
    } else if file.is("c") || file.is("h") {
        c_functions(&blanked(&file.text))
    } else {
        Vec::new()
    }
}

fn check_words(file: &TextFile, findings: &mut Vec<String>) {
    for (index, line) in file.text.lines().enumerate() {
        let words = line.split(|mark: char| mark != '_' && !mark.is_alphanumeric());
        let banned = |word: &str| {
            let lower = word.to_lowercase();
            BANNED_WORDS.into_iter().find(|banned| *banned == word || *banned == lower)
        };
        let word = words.filter_map(banned).next();
        let debug = (file.is("rs") && line.contains(DEBUG_MACRO)).then_some(DEBUG_MACRO);
        let folder = MACHINE_FOLDERS.into_iter().find(|folder| starts_a_path(line, folder));
        for found in [word, debug, folder].into_iter().flatten() {
            findings.push(format!("{}:{}: `{found}` has no place here", file.path, index + 1));
        }
    }
}

/// True if `folder` occurs in `line` as the start of a path.
fn starts_a_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|mark| !mark.is_alphanumeric() && !"_.-~}*>/".contains(mark))
    })
}

/// Text on the line of a heading would become part of the heading.
fn check_headings(file: &TextFile, findings: &mut Vec<String>) {
    for (index, line) in file.text.lines().enumerate() {
        let heading = line.trim_start().strip_prefix("/// # ");
        let Some((name, rest)) = heading.and_then(|text| text.split_once(' ')) else { continue };
        if ["Errors", "Panics", "Safety"].contains(&name) && !rest.is_empty() {
            findings.push(format!("{}:{}: break the line after `{name}`", file.path, index + 1));
        }
    }
}

fn check_width(file: &TextFile, findings: &mut Vec<String>) {
    for (index, line) in file.text.lines().enumerate() {
        let width: usize =
            line.chars().map(|mark| if mark == '\t' { TAB_CHARACTERS } else { 1 }).sum();
        // A URL cannot be broken.
        if width > LINE_CHARACTERS_MAX && !line.contains("://") {
            findings.push(format!(
                "{}:{}: {width} characters wide, over {LINE_CHARACTERS_MAX}",
                file.path,
                index + 1
            ));
        }
    }
}

fn check_file_length(file: &TextFile, verdict: &mut Verdict) {
    let lines = file.text.lines().count();
    if lines > FILE_LINES_MAX {
        verdict.findings.push(format!("{}: {lines} lines, over {FILE_LINES_MAX}", file.path));
    } else if lines > FILE_LINES_QUESTION {
        let path = &file.path;
        verdict.questions.push(format!("{path}: {lines} lines; would a reader want it in two?"));
    }
}

/// One line of the list of old offenders.
struct Entry {
    path: String,
    name: String,
    lines: usize,
}

fn workspace_list(workspace: &Workspace) -> String {
    // A missing list is an empty list.
    std::fs::read_to_string(workspace.root.join(OLD_OFFENDERS_FILE)).unwrap_or_default()
}

/// Compares functions that are too long with the list of permitted ones, and the list's length with
/// `entries_max`.
fn ratchet(long: &[(String, Function)], list: &str, entries_max: usize) -> Vec<String> {
    let mut findings = Vec::new();
    let mut entries = Vec::new();
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match parse_entry(line) {
            Some(entry) => entries.push(entry),
            None => findings.push(format!("{OLD_OFFENDERS_FILE}: not `path name lines`: {line}")),
        }
    }
    if entries.len() != entries_max {
        findings.push(format!(
            "{OLD_OFFENDERS_FILE}: {} entries where xtask/src/tidy.rs says {entries_max}; \
             the number may only be lowered",
            entries.len()
        ));
    }
    for (path, function) in long {
        let Function { name, line, lines } = function;
        let listed = entries.iter().find(|entry| entry.path == *path && entry.name == *name);
        if listed.is_none_or(|entry| *lines > entry.lines) {
            let limit = listed.map_or(FUNCTION_LINES_MAX, |entry| entry.lines);
            findings.push(format!("{path}:{line}: `{name}` has {lines} lines, over {limit}"));
        }
    }
    for Entry { path, name, lines } in entries {
        let matching =
            long.iter().filter(|(file, function)| *file == path && function.name == name);
        let now = matching.map(|(_, function)| function.lines).max();
        if now.is_none_or(|now| now < lines) {
            let now = now.map_or("go from the list".to_owned(), |now| format!("say {now}"));
            findings
                .push(format!("{OLD_OFFENDERS_FILE}: {path} {name} became shorter: let it {now}"));
        }
    }
    findings
}

fn parse_entry(line: &str) -> Option<Entry> {
    let mut fields = line.split_whitespace();
    let (path, name) = (fields.next()?.to_owned(), fields.next()?.to_owned());
    let lines = fields.next()?.parse().ok()?;
    fields.next().is_none().then_some(Entry { path, name, lines })
}

/// Rust files in a package's folder that no target compiles.
fn dead_files(workspace: &Workspace) -> Vec<String> {
    let compiled = compiled(workspace);
    let in_package = |file: &&TextFile| {
        let mut packages = workspace.packages.iter();
        packages.any(|package| file.path.starts_with(&format!("{}/", package.folder)))
    };
    let rust = workspace.files.iter().filter(|file| file.is("rs")).filter(in_package);
    rust.filter(|file| !compiled.contains_key(&file.path))
        .map(|file| format!("{}: in no module tree", file.path))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.to_owned(), text: text.to_owned() }
    }

    fn long(name: &str, lines: usize) -> (String, Function) {
        ("a.rs".to_owned(), Function { name: name.to_owned(), line: 1, lines })
    }

    #[test]
    fn this_workspace_is_tidy() {
        let findings = verdict(&Workspace::load().unwrap()).findings;
        assert!(findings.is_empty(), "{findings:#?}");
    }

    #[test]
    fn banned_words_are_matched_only_as_whole_words() {
        let count = |line: &str| {
            let mut findings = Vec::new();
            check_words(&file("a.rs", line), &mut findings);
            findings.len()
        };
        for banned in BANNED_WORDS.into_iter().chain([DEBUG_MACRO]) {
            assert_eq!(count(&format!("// a {banned}: b")), 1, "{banned}");
            assert_eq!(count(&format!("// a{banned}XY b")), usize::from(banned == DEBUG_MACRO));
        }
        for folder in MACHINE_FOLDERS {
            assert_eq!(count(&format!("open(\"{folder}a\")")), 1, "{folder}");
            assert_eq!(count(&format!("see src{folder}a")), 0, "{folder}");
        }
    }

    #[test]
    fn line_width_expands_tabs_and_exempts_urls() {
        let count = |line: String| {
            let mut findings = Vec::new();
            check_width(&file("a.rs", &line), &mut findings);
            findings.len()
        };
        assert_eq!(count("é".repeat(100)), 0);
        assert_eq!(count("e".repeat(101)), 1);
        assert_eq!(count(format!("\t{}", "e".repeat(93))), 1);
        assert_eq!(count(format!("https://{}", "e".repeat(100))), 0);
    }

    #[test]
    fn unlisted_functions_may_not_exceed_the_limit() {
        assert_eq!(ratchet(&[long("f", 71)], "", 0).len(), 1);
        assert!(ratchet(&[long("f", 71)], "# old\na.rs f 71\n", 1).is_empty());
    }

    #[test]
    fn list_of_long_functions_may_only_shrink() {
        assert_eq!(ratchet(&[long("f", 80)], "a.rs f 79\n", 1).len(), 1, "grown");
        assert_eq!(ratchet(&[long("f", 78)], "a.rs f 79\n", 1).len(), 1, "entry too large");
        assert_eq!(ratchet(&[], "a.rs f 79\n", 1).len(), 1, "entry for a short function");
        assert_eq!(ratchet(&[long("f", 79)], "a.rs f 79\n", 0).len(), 1, "longer list");
        assert_eq!(ratchet(&[long("f", 79)], "a.rs f\n", 1).len(), 3, "unreadable entry");
    }
}
