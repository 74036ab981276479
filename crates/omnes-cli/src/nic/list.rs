//! `omnes nic list`: the agent, attached programs, and the slots with their owners.

use super::survey::{self, Occupied, Survey};
use crate::format::Format;
use crate::print;
use crate::units::format_age;
use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use omnes_nic::agent::hooks::{Hooked, Way};
use omnes_nic::agent::{Form, Report};
use std::collections::BTreeSet;
use std::time::Duration;

/// Prints everything to standard output.
pub fn show(format: Format) -> Result<()> {
    let survey = survey::take()?;
    let shown = match format {
        Format::Json => serde_json::to_string_pretty(&survey)?,
        Format::Table => text(&survey),
    };
    print::line(shown).map(drop)
}

fn text(survey: &Survey) -> String {
    let agent = match (&survey.agent, &survey.agent_error) {
        (Some(report), _) => agent_line(report),
        (None, error) => error.clone().unwrap_or_default(),
    };
    let agent_pid = survey.agent.as_ref().map(|report| report.pid);
    let interfaces = match (&survey.interfaces, &survey.agent) {
        (Some(occupied), _) if occupied.is_empty() => "attached to no interface".to_owned(),
        (Some(occupied), _) => attached(occupied, agent_pid),
        (None, Some(report)) => {
            let names: Vec<&str> = report.interfaces.iter().map(|it| &*it.name).collect();
            format!("attached by the agent to: {}; root is told of others, too", names.join(", "))
        }
        (None, None) => "only root is told what is attached".to_owned(),
    };
    let lent = survey.agent.as_ref().filter(|report| !report.slots.is_empty());
    let slots = lent.map(|report| slots(report).to_string());
    let parts = [Some(agent), Some(interfaces), slots];
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n\n")
}

fn agent_line(report: &Report) -> String {
    let Report { omnes_version, pid, slots_max, slots_per_user, hidden, .. } = report;
    let lent = report.slots_lent();
    let others = match hidden {
        0 => String::new(),
        hidden => format!(", {hidden} of them to other users"),
    };
    format!(
        "omnesd {omnes_version}, pid {pid}: {lent} of {slots_max} slots lent{others}, at most \
         {slots_per_user} to one user"
    )
}

fn attached(occupied: &[Occupied], agent: Option<u32>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["interface", "index", "way", "attached by"]);
    for Occupied { index, name, programs } in occupied {
        // Both programs of one owner are one row.
        let rows: BTreeSet<(String, String)> = programs
            .iter()
            .map(|program| (way(program).to_owned(), owner(program, agent)))
            .collect();
        for (way, owner) in rows {
            table.add_row([name.clone(), index.to_string(), way, owner]);
        }
    }
    table.to_string()
}

fn way(program: &Hooked) -> &'static str {
    match program.way {
        Way::Tcx => "tcx",
        Way::Clsact => "clsact",
    }
}

fn owner(program: &Hooked, agent: Option<u32>) -> String {
    match (program.way, agent) {
        (Way::Clsact, Some(_)) => "agent, or left behind".to_owned(),
        (Way::Clsact, None) => "a process, or left behind: omnes nic detach".to_owned(),
        (Way::Tcx, Some(agent)) if program.owners.contains(&agent) => "agent".to_owned(),
        (Way::Tcx, _) if program.owners.is_empty() => "a process out of sight".to_owned(),
        (Way::Tcx, _) => {
            let pids: Vec<String> = program.owners.iter().map(u32::to_string).collect();
            format!("pid {}", pids.join(", "))
        }
    }
}

fn slots(report: &Report) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header([
        "slot",
        "interface",
        "uid",
        "pid",
        "job",
        "communicator",
        "rank",
        "members",
        "for",
        "socket",
        "age",
        "steps in",
        "steps out",
        "clones",
        "bad tags",
    ]);
    for slot in &report.slots {
        let count = |name: &str| slot.counters.get(name).copied().unwrap_or(0).to_string();
        table.add_row([
            slot.slot.to_string(),
            slot.interface.clone(),
            slot.uid.to_string(),
            slot.pid.to_string(),
            format!("{:08x}", slot.job),
            slot.communicator.to_string(),
            slot.rank.to_string(),
            slot.size.to_string(),
            form(&slot.form),
            slot.socket.to_string(),
            format_age(Duration::from_nanos(slot.age_ns)),
            count("packets_in"),
            count("packets_out"),
            count("clones"),
            count("bad_tags"),
        ]);
    }
    table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

/// Purpose of a slot, in a word or two.
pub fn form(form: &Form) -> String {
    match form {
        Form::Barrier(algorithm) => algorithm.clone(),
        Form::Tree(tree) => format!("multi-send {tree}"),
        Form::Queue => "receive queue".to_owned(),
    }
}
