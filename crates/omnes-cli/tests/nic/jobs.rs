//! Jobs that use the kernel NIC, run without it, or lose it.

use crate::NOBODY;
use crate::hosts::{Agent, Hosts};
use crate::outside::{text, wait_until};
use crate::ranks::{job, job_of, rank};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
#[test]
fn unprivileged_users_borrow_the_kernel_nic_or_run_without() {
    let Some(hosts) = Hosts::new(2) else { return };
    for nic in job(&hosts, 4001) {
        assert!(nic.starts_with("user space") && nic.contains("no agent"), "{nic}");
    }
    assert_eq!(hosts.doctor(0, NOBODY), ("in user space".to_owned(), "limited".to_owned()));
    let by_process = "in the kernel, by the process".to_owned();
    assert_eq!(hosts.doctor(0, 0), (by_process, "ok".to_owned()));

    let mut agents = [Agent::start(&hosts, 0, &[]), Agent::start(&hosts, 1, &[])];
    let by_agent = "in the kernel, by the agent".to_owned();
    assert_eq!(hosts.doctor(0, NOBODY), (by_agent, "ok".to_owned()));
    assert_eq!(job(&hosts, 4002), ["kernel", "kernel"]);
    for agent in &mut agents {
        assert!(agent.hear("lent slot").contains("uid 65534"));
        agent.hear("returned slot");
    }
    assert_eq!(hosts.list(0)["agent"]["slots"].as_array().unwrap().len(), 0);
}

/// Gives a host an address on an interface by which no packet leaves, as on the loopbacks of
/// routers, and makes it send to the others from there.
fn move_address_inwards(hosts: &Hosts, host: usize, address: &str) {
    let ip = |host: usize, line: &str| {
        let mut command = Command::new("ip");
        command.args(line.split(' ')).stdin(Stdio::null());
        let output = hosts.inside(host, || command.output().unwrap());
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    ip(host, "link add inner type veth peer name blind");
    ip(host, "link set blind up");
    ip(host, &format!("addr add {address}/32 dev inner"));
    ip(host, "link set inner up");
    let routes = ip(host, "route show dev eth0");
    let subnet = routes.split(' ').next().unwrap();
    ip(host, &format!("route replace {subnet} dev eth0 src {address}"));
    for other in (0..hosts.networks.len()).filter(|other| *other != host) {
        ip(other, &format!("route add {address}/32 dev eth0"));
    }
}

#[test]
fn barriers_fall_back_if_packets_bypass_the_interface_of_their_address() {
    let Some(hosts) = Hosts::new(2) else { return };
    move_address_inwards(&hosts, 1, "10.78.0.2");
    let _agents: Vec<Agent> = (0..2).map(|host| Agent::start(&hosts, host, &[])).collect();
    for nic in job(&hosts, 4006) {
        assert!(nic.contains("did not end"), "{nic}");
    }
}

/// The agent sees packets that leave by any interface; a process that loads the firmware itself
/// sees only those that leave by the interface with its address.
#[test]
fn barriers_fall_back_if_the_nic_of_one_rank_sees_no_packets() {
    let Some(hosts) = Hosts::new(2) else { return };
    move_address_inwards(&hosts, 1, "10.78.0.2");
    for nic in job_of(&hosts, 4008, 0) {
        assert!(nic.starts_with("user space") && nic.contains("did not end"), "{nic}");
    }
}

#[test]
fn barriers_continue_while_slots_are_opened() {
    let Some(hosts) = Hosts::new(2) else { return };
    let agents = [Agent::start(&hosts, 0, &[]), Agent::start(&hosts, 1, &[])];
    // It answers nobody, but it exists.
    agents[0].signal(libc::SIGSTOP);
    let mut ranks = [0, 1].map(|at| {
        let spawn = || rank(&hosts, at, 2, 4012).env("TEST_OPENS_LATE", "1").spawn().unwrap();
        hosts.inside(at, spawn)
    });
    let output = ranks[0].stdout.take().unwrap();
    let mut lines = BufReader::new(output).lines().map(Result::unwrap);
    let opening = lines.find_map(|line| Some(line.split_once("at first: ")?.1.to_owned()));
    assert_eq!(opening.unwrap(), "user space: the kernel NIC is being opened");
    assert!(lines.any(|line| line.contains("waiting")));
    agents[0].signal(libc::SIGCONT);
    drop(ranks[0].stdin.take());
    let nic = lines.find_map(|line| Some(line.split_once("nic: ")?.1.to_owned()));
    assert_eq!(nic.unwrap(), "kernel");
    for rank in ranks {
        assert!(rank.wait_with_output().unwrap().status.success());
    }
}

/// Slots are opened one by one, which takes longer than using a communicator and freeing it.
#[test]
fn unneeded_slots_do_not_keep_threads() {
    let Some(hosts) = Hosts::new(2) else { return };
    let ranks = [0, 1].map(|at| {
        let mut rank = rank(&hosts, at, 2, 4013);
        let spawn = || rank.uid(0).gid(0).env("TEST_MAKES_MANY", "1").spawn().unwrap();
        hosts.inside(at, spawn)
    });
    for rank in ranks {
        let output = rank.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let said = text(&output.stdout);
        let threads = said.lines().find_map(|line| line.split_once("threads: ")).unwrap().1;
        assert!(threads.parse::<u32>().unwrap() < 50, "{threads} threads");
    }
}

#[test]
fn communicator_without_a_slot_does_not_keep_later_ones_from_the_nic() {
    let Some(hosts) = Hosts::new(2) else { return };
    let limits = [["--slots-per-user", "2"], ["--slots-per-user", "3"]];
    let _agents = [0, 1].map(|at| Agent::start(&hosts, at, &limits[at]));
    let ranks = [0, 1].map(|at| {
        let spawn = || rank(&hosts, at, 2, 4014).env("TEST_FREES_SLOTS", "1").spawn().unwrap();
        hosts.inside(at, spawn)
    });
    for rank in ranks {
        let output = rank.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let said = text(&output.stdout);
        let line = |name: &str| said.lines().find_map(|line| Some(line.split_once(name)?.1));
        assert_eq!([line("nic: "), line("second: ")], [Some("kernel"); 2], "{said}");
        let refused =
            "user space: rank 0: omnesd refuses: user 65534 has all 2 slots that a user may have";
        assert_eq!(line("third: "), Some(refused));
        assert_eq!(line("freed: "), Some("kernel"));
    }
}

#[test]
fn all_ranks_learn_that_the_nic_is_lost_between_barriers() {
    let Some(hosts) = Hosts::new(2) else { return };
    let mut agents = [Agent::start(&hosts, 0, &[]), Agent::start(&hosts, 1, &[])];
    let mut ranks = [0, 1].map(|at| {
        let spawn = || rank(&hosts, at, 2, 4010).env("TEST_LOSES_NIC", "before").spawn().unwrap();
        hosts.inside(at, spawn)
    });
    let mut lines = [0, 1].map(|at| {
        let output = ranks[at].stdout.take().unwrap();
        BufReader::new(output).lines().map(Result::unwrap)
    });
    assert!(lines.iter_mut().all(|lines| lines.any(|line| line.contains("waiting"))));
    // Rank 0 knows before it enters the next barrier, and rank 1 waits for it in one.
    agents[0].signal(libc::SIGKILL);
    agents[0].process.wait().unwrap();
    ranks.iter_mut().for_each(|rank| drop(rank.stdin.take()));
    for rank in ranks {
        let rank = Mutex::new(rank);
        wait_until("a rank ends", || rank.lock().unwrap().try_wait().unwrap().is_some());
        assert!(rank.lock().unwrap().wait().unwrap().success());
    }
    let told = lines.map(|lines| lines.collect::<String>());
    assert!(told[0].contains("no longer runs"), "{}", told[0]);
    assert!(told[1].contains("could not complete"), "{}", told[1]);
}

/// Rank 0's agent ends, then rank 0 enters, in `way`, a barrier in which rank 1 waits.
fn all_hear_of_a_lost_barrier(port: u16, way: &str) {
    let Some(hosts) = Hosts::new(2) else { return };
    let mut agents = [Agent::start(&hosts, 0, &[]), Agent::start(&hosts, 1, &[])];
    let mut ranks: Vec<Child> = (0..2)
        .map(|at| {
            let spawn = || rank(&hosts, at, 2, port).env("TEST_LOSES_NIC", way).spawn().unwrap();
            hosts.inside(at, spawn)
        })
        .collect();
    let mut lines = BufReader::new(ranks[0].stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("waiting")));
    agents[0].signal(libc::SIGKILL);
    agents[0].process.wait().unwrap();
    drop(ranks[0].stdin.take());
    assert!(lines.any(|line| line.contains("no longer runs this barrier")), "{way}");
    let output = ranks.pop().unwrap().wait_with_output().unwrap();
    assert!(output.status.success(), "{way}: {}", text(&output.stderr));
    assert!(text(&output.stdout).contains("could not complete"), "{}", text(&output.stdout));
    assert!(ranks[0].wait().unwrap().success(), "{way}");
}

#[test]
fn all_ranks_learn_that_the_nic_is_lost_during_a_barrier() {
    all_hear_of_a_lost_barrier(4009, "blocking");
}

#[test]
fn nic_loss_is_reported_in_nonblocking_and_time_limited_barriers() {
    for (port, way) in (4014..).zip(["started", "tested", "limited"]) {
        all_hear_of_a_lost_barrier(port, way);
    }
}
