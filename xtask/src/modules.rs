//! Which file is a module of which file, and which lines are compiled only for tests.
//!
//! Follows `mod name;` (with `#[path = "..."]`) and `include!("...")` from the root file of every
//! target. Not followed: declarations inside an inline `mod name { }`, which refer to a folder of
//! that name, and declarations made by macros.

use crate::source::{Token, blanked, item_end, tokens};
use crate::workspace::{TextFile, Workspace};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Files that are compiled, by path; true if only for tests.
pub type Compiled = BTreeMap<String, bool>;

/// A `mod name;` or `include!`, as found in a file.
#[derive(Debug, PartialEq)]
struct Declaration {
    /// Possible paths, relative to the workspace's root; at most one of them exists.
    candidates: Vec<String>,
    only_tests: bool,
}

/// Every Rust file of the workspace that some target compiles.
pub fn compiled(workspace: &Workspace) -> Compiled {
    let mut compiled = Compiled::new();
    for package in &workspace.packages {
        for target in &package.targets {
            let tests = format!("{}/tests/", package.folder);
            follow(workspace, target, Place::Root, target.starts_with(&tests), &mut compiled);
        }
    }
    compiled
}

/// Whether a file's modules lie beside it or in a folder of its own name.
#[derive(Clone, Copy)]
enum Place {
    Root,
    Module,
}

fn follow(
    workspace: &Workspace,
    path: &str,
    place: Place,
    only_tests: bool,
    compiled: &mut Compiled,
) {
    let Some(file) = workspace.file(path) else { return };
    // A file reached in both ways is code; continue only if this way adds information.
    match compiled.get(path) {
        Some(false) => return,
        Some(true) if only_tests => return,
        _ => compiled.insert(path.to_owned(), only_tests),
    };
    for declaration in declarations(file, place) {
        for candidate in &declaration.candidates {
            let tests = only_tests || declaration.only_tests;
            follow(workspace, candidate, Place::Module, tests, compiled);
        }
    }
}

fn declarations(file: &TextFile, place: Place) -> Vec<Declaration> {
    let blanked = blanked(&file.text);
    let tokens = tokens(&blanked);
    let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let modules = match place {
        Place::Module if name != "mod.rs" => format!("{folder}/{}", name.trim_end_matches(".rs")),
        _ => folder.to_owned(),
    };
    let (mut found, mut attributes) = (Vec::new(), 0..0);
    for (index, token) in tokens.iter().enumerate() {
        let next = |offset: usize| tokens.get(index + offset).map_or("", |token| token.text);
        match token.text {
            "#" if next(1) == "[" && attributes.is_empty() => attributes = index..index + 1,
            "mod" if next(2) == ";" => {
                let (start, end) = (attributes.start, index);
                let given = &tokens[if attributes.is_empty() { end..end } else { start..end }];
                found.push(Declaration {
                    candidates: match given_path(&file.text, given) {
                        Some(path) => vec![join(folder, path)],
                        None => vec![
                            format!("{modules}/{}.rs", next(1)),
                            format!("{modules}/{}/mod.rs", next(1)),
                        ],
                    },
                    only_tests: is_for_tests(given),
                });
                attributes = 0..0;
            }
            "include" if next(1) == "!" => {
                let path = quoted(&file.text[token.at..]).map(|path| join(folder, path));
                found.push(Declaration {
                    candidates: path.into_iter().collect(),
                    only_tests: false,
                });
            }
            ";" | "{" | "}" => attributes = 0..0,
            _ => {}
        }
    }
    found
}

/// The string of `path = "..."` among the attributes, from the original text.
fn given_path<'a>(text: &'a str, attributes: &[Token]) -> Option<&'a str> {
    let path = attributes.windows(2).find(|pair| pair[0].text == "path" && pair[1].text == "=")?;
    quoted(&text[path[1].at..])
}

fn quoted(text: &str) -> Option<&str> {
    text.split('"').nth(1)
}

/// `path` relative to `folder`, with `..` resolved.
fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// True for `#[test]`, `#[cfg(test)]` and `#[cfg(all(test, ...))]`, false for `#[cfg(not(test))]`.
fn is_for_tests(attributes: &[Token]) -> bool {
    attributes.iter().enumerate().any(|(index, token)| {
        let before = |offset: usize| match index.checked_sub(offset) {
            Some(index) => attributes[index].text,
            None => "",
        };
        let negated = before(1) == "(" && before(2) == "not";
        let own = before(1) == "[";
        let inside = matches!(before(1), "(" | ",")
            && attributes[..index].iter().any(|token| token.text == "cfg");
        token.text == "test" && !negated && (own || inside)
    })
}

/// Lines of the items that carry a test attribute, from the attribute to the closing brace.
pub fn test_lines(tokens: &[Token]) -> Vec<RangeInclusive<usize>> {
    let mut ranges = Vec::new();
    let mut index = 0;
    while index < tokens.len() {
        if tokens[index].text != "#" || tokens.get(index + 1).is_none_or(|next| next.text != "[") {
            index += 1;
            continue;
        }
        let start = index;
        index = attribute_end(tokens, start);
        if is_for_tests(&tokens[start..index]) {
            while tokens.get(index).is_some_and(|token| token.text == "#") {
                index = attribute_end(tokens, index);
            }
            let end = item_end(tokens, index).unwrap_or(tokens.len() - 1);
            ranges.push(tokens[start].line..=tokens[end].line);
            index = end + 1;
        }
    }
    ranges
}

/// Index after the `]` of the attribute whose `#` is at `start`.
fn attribute_end(tokens: &[Token], start: usize) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(start + 1) {
        match token.text {
            "[" => depth += 1,
            "]" if depth == 1 => return index + 1,
            "]" => depth -= 1,
            _ => {}
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn module_paths_are_derived_from_their_parent_file() {
        let root =
            file("c/src/lib.rs", "pub mod a;\n#[cfg(test)]\nmod tests;\nmod b { fn f() {} }");
        let found = declarations(&root, Place::Root);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].candidates, ["c/src/a.rs", "c/src/a/mod.rs"]);
        assert!(!found[0].only_tests);
        assert!(found[1].only_tests);
        let module = file("c/src/a.rs", "// mod no;\npub(crate) mod d;");
        let found = declarations(&module, Place::Module);
        assert_eq!(found[0].candidates, ["c/src/a/d.rs", "c/src/a/d/mod.rs"]);
        let module = file("c/src/a/mod.rs", "#[path = \"../e.rs\"] mod d;");
        assert_eq!(declarations(&module, Place::Module)[0].candidates, ["c/src/e.rs"]);
    }

    #[test]
    fn included_files_count_as_compiled() {
        let root = file("c/src/lib.rs", "include!(\"made.rs\");");
        assert_eq!(declarations(&root, Place::Root)[0].candidates, ["c/src/made.rs"]);
    }

    #[test]
    fn test_lines_cover_exactly_the_test_items() {
        let text = concat!(
            "fn a() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n}\n",
            "#[cfg(not(test))]\nfn b() {}\n#[test]\nfn c() {\n}\n",
            "#[cfg(all(unix, test))]\nuse d;\n#[cfg(feature)]\nfn test() {}\n"
        );
        let blanked = blanked(text);
        assert_eq!(test_lines(&tokens(&blanked)), [2..=5, 8..=10, 11..=12]);
    }
}
