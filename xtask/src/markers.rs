//! Which requirement is met and tested where: the markers such as `[XY-R3]` in sources.
//!
//! A marker holds one requirement, a list or a range, on one line: `[XY-R3]`, `[XY-R3, R7]`,
//! `[XY-R3–R6]`, `[XY-R3, ZW-R1]`, or a step of one, `[XY-R3 C2]`, where XY is one of the prefixes
//! in [`SEEDS`]. It stands in a comment: a literal of Rust or C cannot contain a marker. Other
//! entries in the same brackets are ignored. In code the marker says that the requirement is met,
//! in a test that it is tested. The table names files, not lines, because lines change with every
//! edit. Rows are in the order of the seeds. A number that does not exist is an error: a wrong
//! citation is a bug.

use crate::modules::{Compiled, compiled, test_lines};
use crate::source::{blanked, tokens, without_literals};
use crate::workspace::{TextFile, Workspace};
use anyhow::{Context, bail, ensure};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Prefix of each seed and the number of its last requirement.
const SEEDS: [(&str, u8); 5] = [("MS", 25), ("BC", 26), ("PM", 25), ("CB", 14), ("IT", 18)];
const DOCUMENT: &str = "docs/PROTOCOLS.md";
const BEGIN: &str = "<!-- markers -->";
const END: &str = "<!-- /markers -->";
/// Our own sources, which describe markers.
const LEFT_OUT: &str = "xtask/";

/// What to do with the table; without an option the table in the document must be up to date.
#[derive(clap::Args, Default)]
pub struct Args {
    /// Rewrite the table in docs/PROTOCOLS.md
    #[arg(long, conflicts_with = "print")]
    write: bool,
    /// Print the table, whatever docs/PROTOCOLS.md says
    #[arg(long)]
    print: bool,
    /// Fail if a requirement is met without being tested
    #[arg(long)]
    strict: bool,
}

/// A requirement: index into [`SEEDS`] and number, so that order is the order of rows.
type Requirement = (usize, u8);

/// Files that name a requirement.
#[derive(Default)]
struct Row {
    code: BTreeSet<String>,
    tests: BTreeSet<String>,
}

/// Collects the markers and acts according to `args`; true if nothing must be fixed.
pub fn run(workspace: &Workspace, args: &Args) -> anyhow::Result<bool> {
    let (rows, mut findings) = collect(workspace);
    if args.strict {
        let untested = rows.iter().filter(|(_, row)| row.tests.is_empty());
        findings
            .extend(untested.map(|(requirement, _)| format!("{}: no test", name(*requirement))));
    }
    let table = table(&rows);
    if args.print {
        print!("{table}");
    } else {
        let path = workspace.root.join(DOCUMENT);
        let old = std::fs::read_to_string(&path).context(DOCUMENT)?;
        let new = with_table(&old, &table)?;
        if args.write {
            std::fs::write(&path, new).context(DOCUMENT)?;
        } else if old != new {
            findings.push(format!("{DOCUMENT}: old table; run `cargo xtask markers --write`"));
        }
    }
    Ok(crate::report("markers", &findings))
}

/// Rows of the table, and errors in markers.
fn collect(workspace: &Workspace) -> (BTreeMap<Requirement, Row>, Vec<String>) {
    let (mut rows, mut findings) = (BTreeMap::<Requirement, Row>::new(), Vec::new());
    let compiled = compiled(workspace);
    let sources = workspace.files.iter().filter(|file| file.is_code());
    for file in sources.filter(|file| !file.path.starts_with(LEFT_OUT)) {
        let is_test = test_judge(file, &compiled);
        let has_literals = ["rs", "c", "h"].iter().any(|end| file.is(end));
        let text = if has_literals {
            Cow::Owned(without_literals(&file.text))
        } else {
            Cow::Borrowed(&file.text)
        };
        for (index, line) in text.lines().enumerate() {
            match requirements(line) {
                Err(error) => findings.push(format!("{}:{}: {error:#}", file.path, index + 1)),
                Ok(found) => found.into_iter().for_each(|requirement| {
                    let row = rows.entry(requirement).or_default();
                    let side = if is_test(index + 1) { &mut row.tests } else { &mut row.code };
                    side.insert(file.path.clone());
                }),
            }
        }
    }
    (rows, findings)
}

/// Returns a predicate that is true for the lines of `file`, from 1, that belong to a test.
fn test_judge(file: &TextFile, compiled: &Compiled) -> impl Fn(usize) -> bool + use<> {
    let (folders, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let by_place = folders.split('/').any(|folder| ["tests", "benches", "fuzz"].contains(&folder))
        || name == "tests.rs"
        || name.ends_with("_tests.rs")
        || (file.is("py") && name.starts_with("test_"));
    let whole = by_place || compiled.get(&file.path) == Some(&true);
    let lines = if file.is("rs") { test_lines(&tokens(&blanked(&file.text))) } else { Vec::new() };
    move |line| whole || lines.iter().any(|range| range.contains(&line))
}

/// The requirements that the markers of one line name, in order.
///
/// Errors if a marker does not end on the line, cannot be read, or names a requirement that does
/// not exist.
fn requirements(line: &str) -> anyhow::Result<Vec<Requirement>> {
    let mut found = Vec::new();
    for start in line.match_indices('[').map(|(at, _)| at + 1) {
        let rest = &line[start..];
        if !SEEDS.iter().any(|(prefix, _)| opens_marker(rest, prefix)) {
            continue;
        }
        let Some((inside, _)) = rest.split_once(']') else {
            bail!("marker does not end on its line: [{rest}");
        };
        let mut prefix = "";
        for entry in inside.split([',', ';']).map(without_step) {
            if let Some((before, _)) = entry.split_once("-R")
                && before.chars().all(|letter| letter.is_ascii_uppercase())
            {
                prefix = before;
            } else if !is_number_of_requirement(entry) {
                continue;
            }
            found.extend(range(entry, prefix).with_context(|| format!("marker [{inside}]"))?);
        }
    }
    Ok(found)
}

/// Returns `PM-R21 C3`, step C3 of a requirement, without the step; a range with blanks stays
/// whole.
fn without_step(entry: &str) -> &str {
    let entry = entry.trim();
    match entry.split_once(' ') {
        Some((requirement, step)) if step.starts_with('C') && !step.contains("-R") => requirement,
        _ => entry,
    }
}

fn opens_marker(rest: &str, prefix: &str) -> bool {
    rest.strip_prefix(prefix).is_some_and(|rest| rest.starts_with("-R"))
}

/// True for `R3` and entries that begin so, such as `R3–R6`.
fn is_number_of_requirement(entry: &str) -> bool {
    let number = entry.strip_prefix('R');
    number.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// One entry of a marker, `XY-R3`, `R3`, `XY-R3–R6`, as the requirements that it names.
fn range(entry: &str, prefix: &str) -> anyhow::Result<Vec<Requirement>> {
    let seed = SEEDS.iter().position(|(own, _)| *own == prefix);
    let seed = seed.with_context(|| format!("no seed has the prefix `{prefix}`"))?;
    let last = SEEDS[seed].1;
    let bare = |part: &str| {
        let part = part.trim();
        let part =
            part.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-')).unwrap_or(part);
        let number = part.strip_prefix('R').unwrap_or(part);
        let number: u8 =
            number.parse().with_context(|| format!("`{entry}` is not a requirement"))?;
        ensure!((1..=last).contains(&number), "{prefix}-R{number}: {prefix} ends at R{last}");
        Ok(number)
    };
    let numbers = entry.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-'));
    let (from, to) = match split_range(numbers.unwrap_or(entry)) {
        Some((from, to)) => (bare(from)?, bare(to)?),
        None => (bare(entry)?, bare(entry)?),
    };
    ensure!(from <= to, "`{entry}` runs backwards");
    Ok((from..=to).map(|number| (seed, number)).collect())
}

/// Both ends of a range, written with an en dash, `..` or a hyphen.
fn split_range(entry: &str) -> Option<(&str, &str)> {
    ["–", "..", "-"].into_iter().find_map(|mark| entry.split_once(mark))
}

fn name((seed, number): Requirement) -> String {
    format!("{}-R{number}", SEEDS[seed].0)
}

/// The table, followed by the requirements that no source names.
fn table(rows: &BTreeMap<Requirement, Row>) -> String {
    let mut out = String::from("| requirement | code | test |\n| --- | --- | --- |\n");
    let list = |paths: &BTreeSet<String>| {
        let quoted: Vec<String> = paths.iter().map(|path| format!("`{path}`")).collect();
        if quoted.is_empty() { "—".to_owned() } else { quoted.join("<br>") }
    };
    for (requirement, row) in rows {
        let (code, tests) = (list(&row.code), list(&row.tests));
        // Writing to a String cannot fail.
        let _ = writeln!(out, "| {} | {code} | {tests} |", name(*requirement));
    }
    let absent: Vec<String> = (0..SEEDS.len()).flat_map(|seed| absent(rows, seed)).collect();
    if !absent.is_empty() {
        let _ = writeln!(out, "\nNamed by no source: {}.", absent.join(", "));
    }
    out
}

/// The requirements of one seed that have no row; consecutive ones as one range.
fn absent(rows: &BTreeMap<Requirement, Row>, seed: usize) -> Vec<String> {
    let mut runs: Vec<(u8, u8)> = Vec::new();
    for number in (1..=SEEDS[seed].1).filter(|&number| !rows.contains_key(&(seed, number))) {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let written = runs.into_iter().map(|(first, last)| match last - first {
        0 => name((seed, first)),
        _ => format!("{}–R{last}", name((seed, first))),
    });
    written.collect()
}

/// Returns `document` with `table` between the two comments that mark its place.
fn with_table(document: &str, table: &str) -> anyhow::Result<String> {
    let place = document
        .split_once(BEGIN)
        .and_then(|(before, rest)| rest.split_once(END).map(|(_, after)| (before, after)));
    let (before, after) =
        place.with_context(|| format!("{DOCUMENT} has no `{BEGIN}` followed by `{END}`"))?;
    Ok(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(line: &str) -> Vec<String> {
        requirements(line).unwrap().into_iter().map(name).collect()
    }

    #[test]
    fn workspace_markers_cite_existing_requirements() {
        let (_, findings) = collect(&Workspace::load().unwrap());
        assert!(findings.is_empty(), "{findings:#?}");
    }

    #[test]
    fn marker_lists_and_ranges_are_expanded() {
        assert_eq!(names("// [PM-R13] and [BC-R1]"), ["PM-R13", "BC-R1"]);
        assert_eq!(names("// [PM-R13, R14]"), ["PM-R13", "PM-R14"]);
        assert_eq!(names("// [PM-R13–R15, BC-R2]"), ["PM-R13", "PM-R14", "PM-R15", "BC-R2"]);
        assert_eq!(names("// [CB-R3-R4; CB-R6..CB-R7]"), ["CB-R3", "CB-R4", "CB-R6", "CB-R7"]);
        assert_eq!(names("// [IT-R18, Fig. 3]"), ["IT-R18"]);
        assert_eq!(names("// [PM-R21 C2–C4, R3 – R4]"), ["PM-R21", "PM-R3", "PM-R4"]);
        assert!(names("// [Key04 §4.2] [D] [X-R1] a[MS] [Result]").is_empty());
    }

    #[test]
    fn citations_of_missing_requirements_are_rejected() {
        for line in
            ["[PM-R26]", "[PM-R0]", "[CB-R13–R15]", "[PM-R5–R4]", "[PM-R1O]", "[PM-R1 R2]", "[PM-R"]
        {
            assert!(requirements(line).is_err(), "{line}");
        }
        assert!(requirements("[PM-R1, XY-R1]").is_err());
    }

    #[test]
    fn tests_are_distinguished_from_code_by_path_and_attribute() {
        let text = "// [PM-R1]\n#[cfg(test)]\nmod tests {\n// [PM-R2]\n}\n";
        let file = |path: &str| TextFile { path: path.to_owned(), text: text.to_owned() };
        let code = test_judge(&file("crates/a/src/b.rs"), &Compiled::new());
        assert!(!code(1) && code(4));
        let compiled = Compiled::from([("crates/a/src/script.rs".to_owned(), true)]);
        assert!(test_judge(&file("crates/a/src/script.rs"), &compiled)(1));
        assert!(test_judge(&file("crates/a/tests/b.rs"), &Compiled::new())(1));
    }

    #[test]
    fn markers_inside_literals_are_ignored() {
        let text = without_literals("a(\"[PM-R1]\", r#\"[PM-R2]\"#); // [PM-R3–R4] \"[PM-R5]\"\n");
        assert_eq!(names(&text), ["PM-R3", "PM-R4", "PM-R5"]);
    }

    #[test]
    fn table_is_written_between_its_comments_idempotently() {
        let row = Row { code: BTreeSet::from(["a.rs".to_owned()]), tests: BTreeSet::new() };
        let table = table(&BTreeMap::from([((2, 13), row)]));
        assert!(table.contains("| PM-R13 | `a.rs` | — |\n"));
        assert!(table.contains("BC-R1–R26, PM-R1–R12, PM-R14–R25, CB-R1–R14"));
        let once =
            with_table("# T\n<!-- markers -->\nold\n<!-- /markers -->\nend\n", &table).unwrap();
        assert!(once.starts_with("# T\n<!-- markers -->\n| req") && once.ends_with("-->\nend\n"));
        assert_eq!(with_table(&once, &table).unwrap(), once);
        assert!(with_table("no place", &table).is_err());
    }
}
