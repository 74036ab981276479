//! The arrows between crates: `wire ← topo ← firmware ← proto ← nic ← {net, sim} ←
//! {omnes, papers} ← {capi, py} ← mpi ← cli`.
//!
//! A crate may depend on any crate of an earlier layer, but on none of its own or of a later layer.
//! Tests may also use the simulator from the same layer (net and nic run its conformance bodies).
//! xtask stands apart: it depends on no crate of ours, and none depends on it.

use crate::workspace::Workspace;

/// Layer of each crate; a new crate needs a line here.
const LAYERS: [(&str, u8); 13] = [
    ("omnes-wire", 0),
    ("omnes-topo", 1),
    ("omnes-firmware", 2),
    ("omnes-proto", 3),
    ("omnes-nic", 4),
    ("omnes-net", 5),
    (SIMULATOR, 5),
    ("omnes", 6),
    ("omnes-papers", 6),
    ("omnes-capi", 7),
    ("omnes-py", 7),
    ("omnes-mpi", 8),
    ("omnes-cli", 9),
];
const SIMULATOR: &str = "omnes-sim";
const APART: &str = "xtask";

/// Package `from` depends on package `to`.
struct Edge<'a> {
    from: &'a str,
    to: &'a str,
    only_tests: bool,
}

/// Errors in the dependencies inside the workspace, one line each.
pub fn findings(workspace: &Workspace) -> Vec<String> {
    let mut findings: Vec<String> = Vec::new();
    for package in &workspace.packages {
        let from = package.name.as_str();
        if from != APART && layer(from).is_none() {
            findings.push(format!("{from}: has no layer; give it one in xtask/src/arrows.rs"));
            continue;
        }
        for dependency in &package.dependencies {
            let to = dependency.name.as_str();
            if workspace.packages.iter().any(|other| other.name == to) {
                findings.extend(judge(&Edge { from, to, only_tests: dependency.only_tests }));
            }
        }
    }
    findings
}

/// The finding against one edge, if it is not allowed.
fn judge(edge: &Edge) -> Option<String> {
    let Edge { from, to, only_tests } = *edge;
    if from == APART || to == APART {
        return Some(format!("{from}: must not need {to}, for xtask stands apart"));
    }
    let (Some(own), Some(other)) = (layer(from), layer(to)) else {
        return Some(format!("{from}: needs {to}, one of which has no layer"));
    };
    let beside = only_tests && to == SIMULATOR && from != to && other == own;
    if other < own || beside {
        return None;
    }
    let table = if only_tests { "dev-dependencies" } else { "dependencies" };
    Some(format!("{from}: must not need {to} in its {table}: arrows point to earlier layers"))
}

fn layer(name: &str) -> Option<u8> {
    LAYERS.iter().find(|(crate_name, _)| *crate_name == name).map(|(_, layer)| *layer)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn workspace_crates_depend_only_on_earlier_layers() {
        let findings = findings(&Workspace::load().unwrap());
        assert!(findings.is_empty(), "{findings:#?}");
    }

    #[test]
    fn dependencies_on_later_layers_are_rejected() {
        let allowed = |from, to| judge(&Edge { from, to, only_tests: false }).is_none();
        assert!(allowed("omnes-topo", "omnes-wire"));
        assert!(allowed("omnes-cli", "omnes-wire"));
        assert!(allowed("omnes", "omnes-net"));
        assert!(allowed("omnes-papers", "omnes-sim"));
        assert!(allowed("omnes-cli", "omnes-papers"));
        assert!(!allowed("omnes-papers", "omnes"));
        assert!(!allowed("omnes-wire", "omnes-topo"));
        assert!(!allowed("omnes-sim", "omnes"));
        assert!(!allowed("omnes-net", "omnes-sim"));
        assert!(allowed("omnes-cli", "omnes-mpi"));
        assert!(!allowed("omnes-mpi", "omnes-cli"));
        assert!(!allowed("omnes-py", "omnes-capi"));
        assert!(!allowed("omnes", "xtask"));
        assert!(!allowed("xtask", "omnes-wire"));
    }

    #[test]
    fn tests_may_depend_on_the_simulator_of_the_same_layer() {
        let allowed = |from, to| judge(&Edge { from, to, only_tests: true }).is_none();
        assert!(allowed("omnes-net", "omnes-sim"));
        assert!(allowed("omnes", "omnes-sim"));
        assert!(!allowed("omnes-proto", "omnes-sim"));
        assert!(!allowed("omnes-sim", "omnes-net"));
        assert!(!allowed("omnes-sim", "omnes-sim"));
    }
}
