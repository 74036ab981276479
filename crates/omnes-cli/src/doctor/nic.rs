//! Which form of the kernel NIC a job of this user would get, and why.
//!
//! Both ways are tested as a rank would use them: the agent is queried, and the firmware is loaded
//! and dropped, attached to nothing. If neither works, ranks run the same firmware in user space.

use super::Finding;
use omnes::NicChoice;
use omnes_nic::agent::{AgentError, Client, Report};
use omnes_nic::{Kernel, NicError};
use std::time::Instant;

/// Findings about the kernel NIC; `variable` reads the environment.
pub fn findings(variable: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let agent = Client::connect().and_then(|client| client.report());
    let start = Instant::now();
    let own = Kernel::load().map(drop);
    let took_ms = start.elapsed().as_millis();
    let wanted = variable("OMNES_NIC").filter(|text| !text.is_empty());
    vec![
        agent_finding(&agent),
        own_finding(&own, took_ms, agent.is_ok()),
        job_finding(wanted.as_deref(), agent.is_ok(), own.is_ok()),
    ]
}

fn agent_finding(agent: &Result<Report, AgentError>) -> Finding {
    let name = "NIC by the agent";
    match agent {
        Ok(report) => {
            let names: Vec<&str> = report.interfaces.iter().map(|it| &*it.name).collect();
            let lent = report.slots_lent();
            let names = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
            let value = format!(
                "omnesd {} (pid {}) on {names}, {lent} of {} slots lent",
                report.omnes_version, report.pid, report.slots_max
            );
            Finding::ok(name, value)
        }
        Err(AgentError::Absent) => {
            let advice = "start omnesd as root, or install dist/omnesd.service, so that ordinary \
                          users can use the kernel NIC";
            Finding::missing(name, "no omnesd", advice)
        }
        Err(error) => Finding::limited(name, error, "see: omnes nic list"),
    }
}

fn own_finding(own: &Result<(), NicError>, took_ms: u128, has_agent: bool) -> Finding {
    let name = "NIC by the process";
    match own {
        Ok(()) => Finding::ok(name, format!("can be loaded, in {took_ms} ms")),
        Err(NicError::NotPermitted) if has_agent => {
            let advice = "not needed, because there is an agent".to_owned();
            Finding { advice, ..Finding::ok(name, "not permitted") }
        }
        Err(NicError::NotPermitted) => {
            let advice = "setcap cap_net_admin,cap_bpf,cap_perfmon+ep PROGRAM, or omnesd";
            Finding::missing(name, "not permitted", advice)
        }
        Err(error) => Finding::missing(name, error, "ranks run the same firmware in user space"),
    }
}

/// The form for a job whose `OMNES_NIC` is `wanted`.
fn job_finding(wanted: Option<&str>, has_agent: bool, can_load: bool) -> Finding {
    let name = "NIC of a job";
    let parsed = wanted.map_or(Ok(NicChoice::Auto), str::parse);
    let set = wanted.map_or(String::new(), |wanted| format!(" (OMNES_NIC={wanted})"));
    let (agent, own) = ("by the agent", "by the process");
    let user = || {
        let value = format!("in user space{set}");
        Finding::limited(name, value, "barriers and multi-sends cost more wake-ups")
    };
    let kernel = |way: &str| Finding::ok(name, format!("in the kernel, {way}{set}"));
    match parsed {
        Err(error) => Finding::limited(name, format!("OMNES_NIC {error}"), "ranks will not start"),
        Ok(NicChoice::Off) => Finding::limited(name, format!("none{set}"), "unset OMNES_NIC"),
        Ok(NicChoice::Auto | NicChoice::Agent) if has_agent => kernel(agent),
        Ok(NicChoice::Auto | NicChoice::Kernel) if can_load => kernel(own),
        Ok(NicChoice::Auto | NicChoice::Agent | NicChoice::Kernel | NicChoice::User) => user(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn job_prefers_agent_then_own_nic_then_user_space() {
        let value = |wanted, has_agent, can_load| job_finding(wanted, has_agent, can_load).value;
        assert_eq!(value(None, true, true), "in the kernel, by the agent");
        assert_eq!(value(None, false, true), "in the kernel, by the process");
        assert_eq!(value(None, false, false), "in user space");
        let kernel = value(Some("kernel"), true, false);
        assert_eq!(kernel, "in user space (OMNES_NIC=kernel)");
        assert_eq!(value(Some("agent"), false, true), "in user space (OMNES_NIC=agent)");
        assert_eq!(value(Some("user"), true, true), "in user space (OMNES_NIC=user)");
        assert_eq!(value(Some("off"), true, true), "none (OMNES_NIC=off)");
        let typo = job_finding(Some("kernl"), true, true);
        assert_eq!(typo.verdict, Verdict::Limited);
        assert!(typo.value.contains("must be auto"), "{}", typo.value);
    }

    #[test]
    fn agent_is_recommended_without_permission_unless_running() {
        let refused = Err(NicError::NotPermitted);
        assert_eq!(own_finding(&refused, 0, false).verdict, Verdict::Missing);
        assert!(own_finding(&refused, 0, false).advice.contains("omnesd"));
        assert_eq!(own_finding(&refused, 0, true).verdict, Verdict::Ok);
        assert_eq!(agent_finding(&Err(AgentError::Absent)).verdict, Verdict::Missing);
        let liar = AgentError::NotRoot { uid: 1000, pid: 7 };
        assert!(agent_finding(&Err(liar)).value.contains("1000"));
    }
}
