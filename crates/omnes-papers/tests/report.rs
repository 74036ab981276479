//! The page, its figures, and the list of met targets.

#![allow(clippy::unwrap_used)]

use omnes_papers::{
    Figure, Finding, Judged, Mark, MetList, Scale, Series, Tally, Target, compute_all, html_page,
    svg, targets,
};

fn judged(ids: &[&str]) -> Vec<Judged> {
    let targets: Vec<&Target> = ids.iter().map(|id| Target::find(id).unwrap()).collect();
    compute_all(&targets, 2, |_| {})
}

fn figure() -> Figure {
    let points = |factor: f64| -> Vec<(f64, f64)> {
        (0..=14).map(|bit| (f64::from(1 << bit), factor * f64::from(bit) / 5.0 + 0.8)).collect()
    };
    Figure {
        title: "Speedup <over> size".to_owned(),
        x: ("message, bytes".to_owned(), Scale::Logarithmic),
        y: ("speedup".to_owned(), Scale::Linear),
        series: vec![
            Series::solid("16 nodes & more", points(1.0)),
            Series::dashed("4 nodes", points(0.7)),
        ],
        stated: vec![Mark::of("MS-M01", 16_384.0), Mark::of("MS-M06", 16_384.0)],
    }
}

#[test]
fn figure_has_a_curve_per_series_and_a_bar_and_a_name_per_mark() {
    let drawing = svg(&figure());
    assert!(drawing.starts_with("<svg") && drawing.trim_end().ends_with("</svg>"));
    for text in ["16 nodes &amp; more", "4 nodes", "MS-M01", "MS-M06", "message, bytes"] {
        assert!(drawing.contains(text), "{text}");
    }
    assert_eq!(drawing.matches("<circle").count(), 2);
    assert!(!drawing.contains("http"));
}

#[test]
fn figure_without_points_is_still_drawn() {
    let none = Figure { series: Vec::new(), stated: Vec::new(), ..figure() };
    assert!(svg(&none).contains("message, bytes"));
    let one = Figure { series: vec![Series::solid("one", vec![(8.0, 3.0)])], ..none };
    assert!(svg(&one).contains("one"));
}

#[test]
fn mark_bar_spans_its_tolerance() {
    let mark = Mark::of("MS-M01", 16_384.0);
    assert_eq!(mark.y, 3.51);
    assert!((mark.bar.0 - 3.159).abs() < 1e-9 && (mark.bar.1 - 3.861).abs() < 1e-9);
}

#[test]
fn page_is_self_contained_and_explains_the_given_contradictions() {
    let page = html_page(&judged(&["MS-F13", "BC-F10", "PM-F01", "CB-X02"]));
    for text in ["1.3905", "5.2667", "224.8", "6.54", "Contradictions", "fm-lanai4"] {
        assert!(page.contains(text), "{text}");
    }
    for link in ["http:", "https:", "<script", "<link", "<img", "src=", "url("] {
        assert!(!page.contains(link), "{link}");
    }
    let ids = page.matches("href=\"#").count();
    assert_eq!(ids, page.matches("href=").count(), "links lead into the page only");
}

#[test]
fn page_about_one_paper_omits_the_others() {
    let page = html_page(&judged(&["CB-F01"]));
    assert!(page.contains("38.94") && !page.contains("id=\"multisend\""));
}

#[test]
fn met_list_is_sorted_and_names_only_known_targets() {
    let ids: Vec<String> = MetList::built_in().ids().map(str::to_owned).collect();
    assert!(ids.iter().all(|id| targets().iter().any(|target| target.id == *id)));
    let text = include_str!("../../../papers/met.txt");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines, ids);
}

#[test]
fn missing_a_previously_met_target_is_a_regression() {
    let list = MetList::parse("MS-F04\nCB-F01 # a remark\n\n");
    let mut judged = judged(&["MS-F04", "CB-F01", "CB-X02"]);
    assert!(list.regressions(&judged).is_empty());
    judged[0].finding = Finding::judged(judged[0].target, 0.0);
    let ids: Vec<&str> =
        list.regressions(&judged).iter().map(|one| one.target.id.as_str()).collect();
    assert_eq!(ids, ["MS-F04"]);
    assert_eq!(list.renewed(&judged).ids().collect::<Vec<_>>(), ["CB-F01"]);
    let tally = Tally::of(&judged);
    assert_eq!((tally.met, tally.missed, tally.explained, tally.not_computed), (1, 1, 1, 0));
}
