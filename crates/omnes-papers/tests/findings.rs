//! All targets: each has a tolerance and a finding, and the targets that are formulas are met.

#![allow(clippy::unwrap_used)]

use omnes_papers::{
    Finding, Judged, Mode, Paper, Target, Tolerance, Verdict, compute, compute_all, targets,
};
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// Computed once for all tests. Simulations take seconds, and many times as long in a debug build,
/// so only a release build includes them; `omnes papers --check` always does.
fn all() -> &'static [Judged] {
    static ALL: OnceLock<Vec<Judged>> = OnceLock::new();
    let is_quick =
        |target: &&Target| matches!(target.check_mode, Mode::ExactArithmetic | Mode::Structural);
    let is_meant = |target: &&Target| !cfg!(debug_assertions) || is_quick(target);
    ALL.get_or_init(|| {
        compute_all(&targets().iter().filter(is_meant).collect::<Vec<_>>(), 2, |_| {})
    })
}

#[test]
fn all_167_targets_have_unique_ids() {
    assert_eq!(targets().len(), 167);
    let ids: BTreeSet<&str> = targets().iter().map(|target| target.id.as_str()).collect();
    assert_eq!(ids.len(), 167);
    assert!(ids.iter().all(|id| Paper::of_id(id).is_some()));
}

#[test]
fn formula_targets_are_met_or_known_contradictions_of_the_paper() {
    for Judged { target, finding } in all() {
        if target.check_mode != Mode::ExactArithmetic || target.class == "parameter" {
            continue;
        }
        let is_known = ["CB-X02", "CB-X03"].contains(&target.id.as_str());
        // These two represent a simulation of 1024 nodes, which may miss where the formula holds.
        if ["BC-F10", "BC-F11"].contains(&target.id.as_str()) {
            assert!(finding.ours.is_some(), "{}: {:?}", target.id, finding.verdict);
            continue;
        }
        match &finding.verdict {
            Verdict::Met => {}
            Verdict::Explained(_) if is_known => {}
            verdict => panic!("{}: {verdict:?}, {:?}", target.id, finding.ours),
        }
    }
}

#[test]
fn only_findings_that_are_not_computed_lack_a_value() {
    for Judged { target, finding } in all() {
        let has_value = finding.ours.is_some();
        let is_left_out = matches!(finding.verdict, Verdict::NotComputed(_));
        assert_eq!(has_value, !is_left_out, "{}", target.id);
        if let Some(reason) = finding.verdict.reason() {
            assert!(reason.len() > 10, "{}: {reason}", target.id);
        }
    }
}

#[test]
fn findings_do_not_depend_on_the_number_of_threads() {
    let some: Vec<&Target> =
        targets().iter().filter(|it| it.check_mode == Mode::ExactArithmetic).collect();
    let told = |threads| {
        let mut told = 0;
        let findings = compute_all(&some, threads, |_| told += 1);
        assert_eq!(told, some.len());
        findings
    };
    assert_eq!(told(1), told(7));
}

#[test]
fn a_figure_outside_its_tolerance_is_missed_unless_explained() {
    let target = Target::find("MS-F04").unwrap();
    assert_eq!(Finding::judged(target, 153.2089).verdict, Verdict::Met);
    let missed = Finding::judged(target, 153.2091);
    assert_eq!(missed.verdict, Verdict::Missed);
    let so_it_is = (Tolerance::Absolute(0.1), 153.3);
    let explained = missed.explained(so_it_is, "so it is").verdict;
    assert_eq!(explained, Verdict::Explained("so it is".to_owned()));
    let met = Finding::judged(target, 153.2089).explained(so_it_is, "so it is");
    assert_eq!(met.verdict, Verdict::Met);
    for other in [153.1999, 153.4001, f64::NAN, f64::INFINITY] {
        let missed = Finding::judged(target, other).explained(so_it_is, "so it is");
        assert_eq!(missed.verdict, Verdict::Missed, "{other}");
    }
}

#[test]
fn unexplained_miss_is_a_regression_even_if_never_met_before() {
    let target = Target::find("CB-X02").unwrap();
    let known = omnes_papers::MetList::built_in();
    assert!(!known.contains("CB-X02"));
    let worse = |ours: f64| {
        let reason = (Tolerance::Exact, 6.54);
        let finding = Finding::judged(target, ours).explained(reason, "of an earlier fit");
        known.regressions(&[Judged { target, finding }]).len()
    };
    assert_eq!([6.54, 5.6, 7.0].map(worse), [0, 0, 1]);
}

#[test]
fn an_unknown_id_has_no_finding() {
    assert!(compute("MS-F99").is_none());
}

#[test]
fn structural_targets_are_never_missed() {
    for Judged { target, finding } in all() {
        if target.check_mode != Mode::Structural {
            continue;
        }
        println!("{} {:?} {} [{}]", target.id, finding.ours, finding.verdict.word(), finding.note);
    }
    for Judged { target, finding } in all() {
        let is_structural = target.check_mode == Mode::Structural;
        assert!(!is_structural || finding.verdict != Verdict::Missed, "{}: {finding:?}", target.id);
    }
}

#[test]
fn built_in_met_list_shows_no_regressions() {
    let list = omnes_papers::MetList::built_in();
    let worse: Vec<&str> =
        list.regressions(all()).iter().map(|one| one.target.id.as_str()).collect();
    assert!(worse.is_empty(), "{worse:?}");
}
