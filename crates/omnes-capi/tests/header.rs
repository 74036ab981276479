//! The header agrees with the library, and C and C++ compilers accept it.

#![allow(clippy::unwrap_used)]

mod compiler;

use compiler::{STRICT, crate_folder, find, library, output_of};
use omnes_c::failure::Code;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The header without its comments.
fn declarations() -> String {
    let header = std::fs::read_to_string(crate_folder().join("include/omnes.h")).unwrap();
    let mut parts = header.split("/*");
    let mut text = parts.next().unwrap().to_owned();
    for part in parts {
        text.push_str(part.split_once("*/").unwrap().1);
    }
    text
}

/// Names in the header that are followed by an opening parenthesis.
fn declared_functions() -> BTreeSet<String> {
    let text = declarations();
    let names = text.split('(').filter_map(|before| {
        let name = before.rsplit(|mark: char| mark != '_' && !mark.is_alphanumeric()).next()?;
        name.starts_with("omnes_").then(|| name.to_owned())
    });
    names.collect()
}

fn syntax_check(compiler: &str, language: &[&str]) {
    let mut command = Command::new(compiler);
    command.args(language).args(STRICT).arg("-fsyntax-only").arg("-include");
    output_of(command.arg(crate_folder().join("include/omnes.h")).arg("/dev/null"));
}

#[test]
fn header_is_c11() {
    if let Some(compiler) = find("CC", &["cc", "gcc", "clang"]) {
        syntax_check(&compiler, &["-std=c11", "-x", "c"]);
    }
}

#[test]
fn header_is_cpp17() {
    if let Some(compiler) = find("CXX", &["c++", "g++", "clang++"]) {
        syntax_check(&compiler, &["-std=c++17", "-x", "c++"]);
    }
}

#[test]
fn library_exports_exactly_the_functions_declared_in_the_header() {
    let Some(nm) = find("NM", &["nm", "llvm-nm"]) else { return };
    let symbols = output_of(
        Command::new(nm).args(["--dynamic", "--defined-only", "--format=posix"]).arg(library()),
    );
    let exported: BTreeSet<String> =
        symbols.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    assert_eq!(exported, declared_functions());
}

#[test]
fn library_soname_contains_the_major_version() {
    let Some(readelf) = find("READELF", &["readelf", "llvm-readelf"]) else { return };
    let dynamic = output_of(Command::new(readelf).arg("--dynamic").arg(library()));
    let soname = concat!("[libomnes.so.", env!("CARGO_PKG_VERSION_MAJOR"), "]");
    let named = dynamic.lines().any(|line| line.contains("SONAME") && line.contains(soname));
    assert!(named, "{dynamic}");
}

#[test]
fn header_version_matches_the_library() {
    let text = declarations();
    for (part, version) in [
        ("MAJOR", env!("CARGO_PKG_VERSION_MAJOR")),
        ("MINOR", env!("CARGO_PKG_VERSION_MINOR")),
        ("PATCH", env!("CARGO_PKG_VERSION_PATCH")),
    ] {
        let defined = format!("#define OMNES_VERSION_{part} {version}");
        assert!(text.lines().any(|line| line == defined), "{defined}");
    }
}

#[test]
fn header_error_codes_match_the_library() {
    let text = declarations();
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("OMNES_ERROR_"));
    let declared: BTreeMap<String, i32> = lines
        .map(|line| {
            let (name, value) = line.split_once(" = ").unwrap();
            (name.to_owned(), value.trim_end_matches(',').parse().unwrap())
        })
        .collect();
    let ours = Code::ALL.iter().map(|code| (code.name.to_owned(), code.number));
    assert_eq!(declared, ours.collect());
}

#[test]
fn error_codes_are_negative_and_distinct() {
    let numbers: BTreeSet<i32> = Code::ALL.iter().map(|code| code.number).collect();
    assert_eq!(numbers.len(), Code::ALL.len());
    assert!(numbers.iter().all(|number| *number < 0));
}
