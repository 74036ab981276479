//! The page itself.

use super::contradictions::{self, Contradiction};
use super::{chart, escape, texts};
use crate::registry::{Judged, constants, figures};
use crate::tally::Tally;
use crate::target::{Paper, Value};
use crate::tolerance::Tolerance;
use omnes_sim::testbed::{Constant, Origin};

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;color:#222;max-width:76rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.7rem}h2{font-size:1.35rem;margin-top:2.5rem;border-bottom:1px solid #ccc}
h3{font-size:1.05rem;margin-bottom:.3rem}
table{border-collapse:collapse;width:100%;font-size:13px;margin:.8rem 0}
th,td{text-align:left;vertical-align:top;padding:.25rem .5rem;border-bottom:1px solid #e3e3e3}
th{border-bottom:2px solid #999}td.n{text-align:right;font-variant-numeric:tabular-nums}
small{color:#666}figure{margin:1rem 0}figcaption{color:#444}svg{max-width:100%;height:auto}
.met{color:#00694a}.missed{color:#b00020;font-weight:bold}.explained{color:#8a5a00}
.not-computed{color:#777}";

/// One page about `judged`, with the figures of their papers.
pub fn page(judged: &[Judged]) -> String {
    let papers: Vec<Paper> = Paper::ALL
        .into_iter()
        .filter(|paper| judged.iter().any(|one| one.target.paper() == *paper))
        .collect();
    let sections: String = papers.iter().map(|paper| section(*paper, judged)).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>What the papers state</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n\
         <h1>What the papers state, computed again</h1>\n{}{sections}{}{}</body>\n</html>\n",
        overview(&papers, judged),
        contradictions_section(judged),
        constants_section(),
    )
}

fn of(paper: Paper, judged: &[Judged]) -> Vec<&Judged> {
    judged.iter().filter(|one| one.target.paper() == paper).collect()
}

fn overview(papers: &[Paper], judged: &[Judged]) -> String {
    let row = |name: String, tally: Tally| {
        let Tally { met, missed, explained, not_computed, .. } = tally;
        format!(
            "<tr><td>{name}</td><td class=\"n\">{met}</td><td class=\"n\">{explained}</td>\
             <td class=\"n\">{missed}</td><td class=\"n\">{not_computed}</td></tr>\n"
        )
    };
    let rows: String = papers
        .iter()
        .map(|paper| {
            let name = format!("<a href=\"#{}\">{}</a>", paper.name(), escape(paper.title()));
            row(name, Tally::of(of(*paper, judged)))
        })
        .collect();
    format!(
        "<p>Formulas are evaluated, structure is counted on the protocol machines, curves are \
         simulated. A value is <b>met</b> within the tolerance of its target, <b>explained</b> \
         outside it for the reason given, <b>missed</b> otherwise. Values marked <i>fitted</i> \
         were used to find a constant, and prove nothing.</p>\n\
         <table><tr><th>paper</th><th>met</th><th>explained</th><th>missed</th>\
         <th>not computed</th></tr>\n{rows}{}</table>\n",
        row("all".to_owned(), Tally::of(judged))
    )
}

fn section(paper: Paper, judged: &[Judged]) -> String {
    let of_paper = of(paper, judged);
    let figures: String = figures(paper)
        .iter()
        .map(|figure| {
            let (drawing, title) = (chart::svg(figure), escape(&figure.title));
            format!("<figure>\n{drawing}\n<figcaption>{title}</figcaption>\n</figure>\n")
        })
        .collect();
    let rows: String = of_paper.iter().map(|one| row(one)).collect();
    format!(
        "<h2 id=\"{}\">{}</h2>\n<p>{}</p>\n{figures}<table>\n<tr><th>id</th><th>what</th>\
         <th>paper</th><th>here</th><th>unit</th><th>off</th><th>tolerance</th><th>verdict</th>\
         </tr>\n{rows}</table>\n<p>{}</p>\n",
        paper.name(),
        escape(paper.title()),
        escape(texts::introduction(paper)),
        escape(&Tally::of(of_paper).to_string()),
    )
}

fn row(one: &Judged) -> String {
    let Judged { target, finding } = one;
    let word = finding.verdict.word();
    let fitted = if one.is_fitted() { " <i>fitted</i>" } else { "" };
    let remarks = [finding.verdict.reason().unwrap_or_default(), &finding.note];
    let remarks: Vec<String> =
        remarks.iter().filter(|text| !text.is_empty()).map(|text| escape(text)).collect();
    let cells = [
        escape(&target.id),
        format!("{}<br><small>{}</small>", escape(&target.quantity), escape(&target.conditions)),
        escape(&target.value.to_string()),
        finding
            .ours
            .as_ref()
            .map_or_else(|| "-".to_owned(), |ours| escape(&Value::to_string(ours))),
        escape(&target.unit),
        one.deviation_percent().map_or_else(String::new, |percent| format!("{percent:+.1} %")),
        escape(&Tolerance::of(target).to_string()),
    ];
    let cells: String = cells.iter().map(|cell| format!("<td>{cell}</td>")).collect();
    let class = word.replace(' ', "-");
    format!(
        "<tr id=\"{}\">{cells}<td><span class=\"{class}\">{word}</span>{fitted}<br>\
         <small>{}</small></td></tr>\n",
        escape(&target.id),
        remarks.join("<br>")
    )
}

/// Contradictions with at least one target on the page.
fn contradictions_section(judged: &[Judged]) -> String {
    let parts: String =
        contradictions::ALL.iter().filter_map(|it| contradiction(it, judged)).collect();
    if parts.is_empty() {
        String::new()
    } else {
        format!("<h2 id=\"contradictions\">Contradictions</h2>\n{parts}")
    }
}

fn contradiction(it: &Contradiction, judged: &[Judged]) -> Option<String> {
    let rows: String = it
        .ids
        .iter()
        .filter_map(|id| contradictions::row(id, judged))
        .map(|cells| {
            let cells: String =
                cells.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
            format!("<tr>{cells}</tr>\n")
        })
        .collect();
    let text = format!(
        "<h3>{}</h3>\n<p>{}</p>\n<table>\n<tr><th>id</th><th>what</th><th>paper</th><th>here</th>\
         <th>verdict</th><th></th></tr>\n{rows}</table>\n",
        escape(it.title),
        escape(it.text)
    );
    (!rows.is_empty()).then_some(text)
}

/// Assumptions of the simulations, with sources.
fn constants_section() -> String {
    let tables: String = constants().iter().map(testbed).collect();
    format!(
        "<h2 id=\"constants\">Constants of the simulations</h2>\n<p>A constant is given by its \
         source, calibrated at the points that are named, or assumed. What was calibrated at a \
         point is not checked against it.</p>\n{tables}"
    )
}

fn testbed((title, constants): &(String, Vec<Constant>)) -> String {
    let rows: String = constants.iter().map(constant).collect();
    format!(
        "<h3>{}</h3>\n<table>\n<tr><th>constant</th><th>value</th><th>per byte</th>\
         <th>origin</th><th>source</th></tr>\n{rows}</table>\n",
        escape(title)
    )
}

fn constant(constant: &Constant) -> String {
    let origin = match constant.origin {
        Origin::Given => "given".to_owned(),
        Origin::Calibrated => format!("calibrated at {}", constant.points.join(", ")),
        Origin::Assumed => "assumed".to_owned(),
    };
    let Constant { name, value, per_byte, source, .. } = constant;
    format!(
        "<tr><td>{}</td><td class=\"n\">{value}</td><td class=\"n\">{per_byte}</td><td>{}</td>\
         <td>{}</td></tr>\n",
        escape(name),
        escape(&origin),
        escape(source)
    )
}
