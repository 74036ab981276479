//! Simulated barriers of the slides: consequences of the packets.

#![allow(clippy::unwrap_used)]

use omnes_papers::{Finding, Paper, Verdict, compute, figures};

fn finding(id: &str) -> Finding {
    compute(id).unwrap()
}

fn ours(id: &str) -> f64 {
    finding(id).ours.unwrap().numbers()[0]
}

#[test]
fn simulated_packets_reproduce_the_formulas_at_every_size() {
    let sizes = (11..=19).map(|number| format!("CB-F{number}"));
    for id in sizes.chain(["CB-F01".to_owned(), "CB-F02".to_owned()]) {
        let finding = finding(&id);
        assert_eq!(finding.verdict, Verdict::Met, "{id}");
        assert!(finding.note.starts_with("simulated from packets: "), "{id}: {}", finding.note);
    }
}

#[test]
fn better_algorithm_matches_the_paper_only_on_a_tree_of_switches() {
    let finding_on_tree = finding("CB-M05");
    assert_eq!(finding_on_tree.verdict, Verdict::Met, "{}", finding_on_tree.note);
    let on_one = finding("CB-M04");
    assert!(matches!(on_one.verdict, Verdict::Explained(_)), "{:?}", on_one.verdict);
}

#[test]
fn nic_speedup_over_hosts_matches_the_paper() {
    for id in ["CB-M01", "CB-M02", "CB-M03"] {
        let finding = finding(id);
        assert_eq!(finding.verdict, Verdict::Met, "{id}: {}", finding.note);
    }
}

#[test]
fn nic_speedup_is_larger_with_slower_clocks() {
    // 16 nodes with the older LANai, 8 with the newer one, as in the paper.
    assert!(ours("CB-M01") > 1.1 * ours("CB-M02"));
    assert!(ours("CB-M02") > 2.0);
}

#[test]
fn curves_have_all_their_points() {
    let figures = figures(Paper::Barrier);
    assert_eq!(figures.len(), 5);
    for series in figures.iter().flat_map(|figure| &figure.series) {
        assert!(series.points.len() >= 7, "{}", series.name);
        assert!(series.points.iter().all(|(_, y)| y.is_finite() && *y > 0.0));
    }
}
