//! Starting, serving and ending of agents; `omnes nic`; the unit file.

use crate::hosts::{Agent, Hosts};
use crate::outside::{text, wait_until};
use crate::ranks::{job, rank};
use crate::traces::Traces;
use crate::{CLSACT_HANDLE, NOBODY, OMNES, OMNESD};
use libbpf_rs::{ProgramHandle, TC_INGRESS, TcHookBuilder};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
#[test]
fn slots_are_listed_while_a_job_runs_and_freed_when_killed() {
    let Some(hosts) = Hosts::new(2) else { return };
    let _agents = [Agent::start(&hosts, 0, &[]), Agent::start(&hosts, 1, &[])];
    let mut ranks: Vec<Child> = (0..2)
        .map(|at| {
            let spawn = || rank(&hosts, at, 2, 4003).env("TEST_WAITS", "1").spawn().unwrap();
            hosts.inside(at, spawn)
        })
        .collect();
    for rank in &mut ranks {
        let lines = BufReader::new(rank.stdout.take().unwrap()).lines();
        assert!(lines.map(Result::unwrap).any(|line| line.contains("waiting")));
    }
    let list = hosts.list(0);
    let slot = &list["agent"]["slots"][0];
    assert_eq!((&slot["uid"], &slot["pid"]), (&NOBODY.into(), &ranks[0].id().into()));
    assert_eq!((&slot["interface"], &slot["size"]), (&"eth0".into(), &2.into()));
    assert!(slot["counters"]["packets_in"].as_u64().unwrap() > 0, "{slot}");
    let table = hosts.omnes(0, &["nic", "list"]);
    let job = slot["job"].as_str().unwrap();
    assert!(table.contains(job) && table.contains("agent"), "{table}");
    let stat = hosts.omnes(0, &["nic", "stat", "--format", "json"]);
    let line: Value = serde_json::from_str(stat.lines().next().unwrap()).unwrap();
    assert_eq!(line["job"], slot["job"]);
    assert!(hosts.omnes(0, &["nic", "stat"]).contains(job));

    for rank in &mut ranks {
        rank.kill().unwrap();
        rank.wait().unwrap();
    }
    for host in 0..2 {
        wait_until("the slots are back", || {
            hosts.list(host)["agent"]["slots"].as_array().unwrap().is_empty()
        });
    }
}

#[test]
fn stopped_or_killed_agent_leaves_nothing_behind() {
    let Some(hosts) = Hosts::new(1) else { return };
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGKILL] {
        let mut agent = Agent::start(&hosts, 0, &[]);
        let list = hosts.list(0);
        assert_eq!(list["agent"]["pid"], agent.process.id());
        assert_eq!(list["interfaces"][0]["name"], "eth0");
        let owners = &list["interfaces"][0]["programs"][0]["owners"];
        assert_eq!(*owners, serde_json::json!([agent.process.id()]));
        let traces = Traces::of(&list);
        assert!(!traces.are_gone());

        agent.signal(signal);
        let status = agent.process.wait().unwrap();
        assert_eq!(status.success(), signal != libc::SIGKILL, "{status}");
        if signal != libc::SIGKILL {
            agent.hear("ended");
        }
        let list = hosts.list(0);
        assert_eq!((&list["agent"], &list["interfaces"]), (&Value::Null, &serde_json::json!([])));
        wait_until("programs, links and maps are gone", || traces.are_gone());
        for direction in ["ingress", "egress"] {
            let mut tc = Command::new("tc");
            tc.args(["filter", "show", "dev", "eth0", direction]);
            let filters = hosts.inside(0, || tc.output().unwrap());
            assert!(!text(&filters.stdout).contains("nic_"), "{filters:?}");
        }
    }
}

#[test]
fn leftover_filter_is_detected_and_removed() {
    let Some(hosts) = Hosts::new(1) else { return };
    let mut agent = Agent::start(&hosts, 0, &[]);
    let traces = Traces::of(&hosts.list(0));
    // As on a kernel without tcx: a filter keeps the program when its owner is killed.
    let program = ProgramHandle::from_prog_id(traces.programs[0]).unwrap();
    let index = hosts.interface(0);
    hosts.inside(0, || {
        let mut builder = TcHookBuilder::new(program.as_fd());
        let builder = builder.ifindex(index).handle(CLSACT_HANDLE).priority(1);
        let mut hook = builder.hook(TC_INGRESS);
        hook.create().unwrap().attach().unwrap();
    });
    drop(program);
    agent.signal(libc::SIGKILL);
    agent.process.wait().unwrap();

    let left = || {
        let list = hosts.list(0);
        let interfaces = list["interfaces"].as_array().unwrap().clone();
        interfaces.first().map(|it| it["programs"][0]["way"].as_str().unwrap().to_owned())
    };
    assert_eq!(left().as_deref(), Some("clsact"));
    assert!(hosts.omnes(0, &["nic", "list"]).contains("left behind"));
    let done = hosts.omnes(0, &["nic", "detach", "eth0"]);
    assert_eq!(done, "eth0: detached, 1 filters of a killed process removed\n");
    assert_eq!(left(), None);
    wait_until("the program is gone", || traces.are_gone());
}

#[test]
fn only_root_can_start_and_stop_the_agent_by_command() {
    let Some(hosts) = Hosts::new(1) else { return };
    for verb in [&["nic", "attach", "eth0"][..], &["nic", "detach", "eth0"]] {
        let refused = hosts.omnes_as(0, NOBODY, verb);
        assert_eq!(refused.status.code(), Some(77), "{}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains("for root"), "{}", text(&refused.stderr));
    }
    let unknown = hosts.omnes_as(0, 0, &["nic", "attach", "no-such-thing"]);
    assert_eq!(unknown.status.code(), Some(2));
    let reason = text(&unknown.stderr);
    assert!(reason.contains("no such interface: no-such-thing"), "{reason}");

    let said = hosts.omnes(0, &["nic", "attach", "eth0"]);
    assert!(said.contains("omnesd started") && said.contains("eth0: attached"), "{said}");
    // Found already; and an ordinary user is still not permitted.
    assert_eq!(hosts.omnes(0, &["nic", "attach", "eth0"]), "eth0: attached\n");
    let refused = hosts.omnes_as(0, NOBODY, &["nic", "detach", "eth0"]);
    assert_eq!(refused.status.code(), Some(77));
    let seen = hosts.omnes_as(0, NOBODY, &["nic", "list"]);
    assert!(text(&seen.stdout).contains("attached by the agent to: eth0"), "{seen:?}");

    let traces = Traces::of(&hosts.list(0));
    let log = std::fs::read_to_string(hosts.log_of_started_agent(0)).unwrap();
    assert!(log.contains("attached to eth0") && log.contains("serving"), "{log}");
    assert_eq!(hosts.omnes(0, &["nic", "detach", "eth0"]), "eth0: detached\n");
    assert_eq!(hosts.list(0)["interfaces"], serde_json::json!([]));
    let done = hosts.omnes(0, &["nic", "detach", "--all", "--end"]);
    assert_eq!(done, "attached to no interface\nomnesd: ended\n");
    wait_until("the agent is gone", || hosts.list(0)["agent"].is_null());
    wait_until("what it has loaded is gone", || traces.are_gone());
    let none = hosts.omnes(0, &["nic", "detach", "--all", "--end"]);
    assert_eq!(none, "attached to no interface\nomnesd: there is none\n");
}

#[test]
fn only_one_agent_may_run_and_only_as_root() {
    let Some(hosts) = Hosts::new(1) else { return };
    let start = |user: u32, words: &[&str]| {
        hosts.inside(0, || {
            let mut command = Command::new(OMNESD);
            command.args(words).uid(user).gid(user).stdin(Stdio::null()).output().unwrap()
        })
    };
    let nobody = start(NOBODY, &[]);
    assert_eq!(nobody.status.code(), Some(77));
    assert!(text(&nobody.stderr).contains("must be root"), "{}", text(&nobody.stderr));

    // An interface may appear later.
    let agent = Agent::start(&hosts, 0, &["--interface", "no-such-thing"]);
    let second = start(0, &[]);
    assert_eq!(second.status.code(), Some(2));
    let owner = format!("process {} of user 0 is already the agent", agent.process.id());
    assert!(text(&second.stderr).contains(&owner), "{}", text(&second.stderr));
}

#[test]
fn nic_and_agent_help_have_examples() {
    let help = |program: &str, words: &[&str]| {
        let output = Command::new(program).args(words).arg("--help").output().unwrap();
        assert!(output.status.success());
        text(&output.stdout)
    };
    for verb in ["list", "stat", "attach", "detach"] {
        let help = help(OMNES, &["nic", verb]);
        assert!(help.contains(&format!("Examples:\n  omnes nic {verb}")), "{help}");
    }
    assert!(help(OMNES, &["nic"]).contains("omnes nic list"));
    let help = help(OMNESD, &[]);
    assert!(help.contains("--interface <NAME>") && help.contains("[default: 32]"), "{help}");
    assert!(help.contains("omnesd --interface eth1"), "{help}");
}

fn unit_file() -> String {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/omnesd.service");
    std::fs::read_to_string(unit).unwrap()
}

#[test]
fn unit_file_capabilities_are_sufficient() {
    let Some(hosts) = Hosts::new(2) else { return };
    let unit = unit_file();
    let capabilities = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let named = capabilities.unwrap().split(' ').map(|name| name.strip_prefix("CAP_").unwrap());
    // This test itself may have fewer, for instance in a container.
    let known = Command::new("setpriv").arg("--dump").output();
    let Ok(known) = known.map(|output| text(&output.stdout)) else {
        println!("skipped: needs setpriv");
        return;
    };
    let kept: Vec<String> = named
        .map(str::to_lowercase)
        .filter(|name| known.contains(name.as_str()))
        .map(|name| format!("+{name}"))
        .collect();
    let _agents = [0, 1].map(|host| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", &format!("-all,{}", kept.join(","))]);
        command.args(["--inh-caps", "-all", "--no-new-privs", OMNESD]);
        Agent::start_by(&hosts, host, command)
    });
    assert_eq!(job(&hosts, 4004), ["kernel", "kernel"]);
}

#[test]
fn unit_file_starts_the_agent_with_valid_arguments() {
    let unit = unit_file();
    assert!(unit.contains("ExecStart=/usr/local/bin/omnesd $OMNESD_ARGS"), "{unit}");
    let arguments = unit.lines().find_map(|line| line.split_once("OMNESD_ARGS=")).unwrap().1;
    // The example is accepted, up to the word after it.
    let words = arguments.trim_end_matches('"').split(' ');
    let output = Command::new(OMNESD).args(words).arg("--help").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}
