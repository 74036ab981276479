//! Findings for people or for programs.

use crate::format::Format;
use crate::print;
use anyhow::Result;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use omnes_papers::{Judged, Paper, Tally, Tolerance, Value, Verdict};
use serde::Serialize;

/// Width of a table that is not written to a terminal.
const WIDTH: u16 = 132;

/// Results, in the order of the papers.
pub struct Report<'all> {
    /// The findings.
    pub judged: &'all [Judged],
    /// Whether to show all details of each finding.
    pub is_detailed: bool,
}

/// A line for programs.
#[derive(Serialize)]
struct Line<'all> {
    id: &'all str,
    paper: &'static str,
    section: &'all str,
    quantity: &'all str,
    conditions: &'all str,
    unit: &'all str,
    stated: &'all Value,
    ours: Option<&'all Value>,
    deviation_percent: Option<f64>,
    tolerance: String,
    verdict: &'static str,
    is_fitted: bool,
    reason: Option<&'all str>,
    note: &'all str,
}

impl Report<'_> {
    /// Prints to standard output.
    pub fn print(&self, format: Format) -> Result<()> {
        let text = match format {
            Format::Json => self.json()?,
            Format::Table => self.text(),
        };
        print::text(&text).map(drop)
    }

    fn json(&self) -> Result<String> {
        let mut text = String::new();
        for one in self.judged {
            text += &serde_json::to_string(&line(one))?;
            text.push('\n');
        }
        Ok(text)
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for paper in Paper::ALL {
            let of_paper: Vec<&Judged> =
                self.judged.iter().filter(|one| one.target.paper() == paper).collect();
            if of_paper.is_empty() {
                continue;
            }
            text += &format!("# {}: {}\n", paper.marker(), paper.title());
            text += &format!("{}\n", table(&of_paper));
            text += &if self.is_detailed { details(&of_paper) } else { reasons(&of_paper) };
            text += &format!("# {}: {}\n\n", paper.marker(), Tally::of(of_paper.iter().copied()));
        }
        text + &format!("# {} targets: {}\n", self.judged.len(), Tally::of(self.judged))
    }
}

fn line(one: &Judged) -> Line<'_> {
    let Judged { target, finding } = one;
    Line {
        id: &target.id,
        paper: target.paper().name(),
        section: &target.section,
        quantity: &target.quantity,
        conditions: &target.conditions,
        unit: &target.unit,
        stated: &target.value,
        ours: finding.ours.as_ref(),
        deviation_percent: one.deviation_percent(),
        tolerance: Tolerance::of(target).to_string(),
        verdict: finding.verdict.word(),
        is_fitted: one.is_fitted(),
        reason: finding.verdict.reason(),
        note: &finding.note,
    }
}

fn table(judged: &[&Judged]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_none() {
        table.set_width(WIDTH);
    }
    table.set_header(["id", "what", "paper", "ours", "unit", "off %", "tolerance", "verdict"]);
    for column in [2, 3, 5] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for one in judged {
        let Judged { target, finding } = one;
        table.add_row([
            target.id.clone(),
            target.quantity.clone(),
            target.value.to_string(),
            finding.ours.as_ref().map(Value::to_string).unwrap_or_else(|| "-".to_owned()),
            target.unit.clone(),
            one.deviation_percent().map(|percent| format!("{percent:+.1}")).unwrap_or_default(),
            Tolerance::of(target).to_string(),
            format!("{}{}", finding.verdict.word(), if one.is_fitted() { ", fitted" } else { "" }),
        ]);
    }
    table
}

/// Reasons why targets are not met.
fn reasons(judged: &[&Judged]) -> String {
    let reason = |one: &&&Judged| one.finding.verdict != Verdict::Met;
    let lines = judged.iter().filter(reason).map(|one| {
        let Judged { target, finding } = one;
        let reason = finding.verdict.reason().unwrap_or(&finding.note);
        format!("{} {}: {reason}\n", target.id, finding.verdict.word())
    });
    lines.collect()
}

/// All details of each target.
fn details(judged: &[&Judged]) -> String {
    let mut text = String::new();
    for one in judged {
        let Judged { target, finding } = one;
        let lines = [
            ("section", target.section.as_str()),
            ("conditions", &target.conditions),
            ("note", &target.note),
            ("reason", finding.verdict.reason().unwrap_or_default()),
            ("here", &finding.note),
        ];
        text += &format!("{}: {}\n", target.id, target.quantity);
        for (name, words) in lines.into_iter().filter(|(_, words)| !words.is_empty()) {
            text += &format!("  {name:<10} {words}\n");
        }
    }
    text
}
