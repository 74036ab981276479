//! State of the kernel NIC in this network namespace.

use anyhow::{Context, Result};
use omnes_nic::agent::hooks::{self, Hooked};
use omnes_nic::agent::{AgentError, Client, Report, interfaces};
use serde::Serialize;
use std::io;

/// Everything that was found.
#[derive(Serialize)]
pub struct Survey {
    /// The agent's report; null if there is none.
    pub agent: Option<Report>,
    /// Reason why there is no report.
    pub agent_error: Option<String>,
    /// Interfaces with programs of the firmware; null if only root may see them.
    pub interfaces: Option<Vec<Occupied>>,
}

/// An interface with programs of the firmware.
#[derive(Serialize)]
pub struct Occupied {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The programs, of both directions.
    pub programs: Vec<Hooked>,
}

/// Fetches the agent's report, or the reason why there is none.
pub fn report() -> Result<Report, AgentError> {
    Client::connect().and_then(|client| client.report())
}

/// Surveys everything.
pub fn take() -> Result<Survey> {
    let (agent, agent_error) = match report() {
        Ok(report) => (Some(report), None),
        Err(error) => (None, Some(error.to_string())),
    };
    Ok(Survey { agent, agent_error, interfaces: occupied()? })
}

/// Interfaces with programs of the firmware; `None` if only root may see them.
pub fn occupied() -> Result<Option<Vec<Occupied>>> {
    let owners = hooks::link_owners();
    let mut occupied = Vec::new();
    for (index, name) in interfaces::names().context("cannot list the interfaces")? {
        match hooks::at(index, &owners) {
            Ok(programs) if programs.is_empty() => {}
            Ok(programs) => occupied.push(Occupied { index, name, programs }),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
            // The interface has been removed since.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
            Err(error) => return Err(error).with_context(|| format!("cannot look at {name}")),
        }
    }
    Ok(Some(occupied))
}
