//! The agent lends to the processes that it should lend to, and takes back in every case.
//!
//! Without root the tests print `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a
//! failure.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod agent_rig;
mod common;

use agent_rig::actor::{Actor, give_port_up, play};
use agent_rig::{Member, NOBODY, Served, wait_done, wait_until};
use common::group::{GROUP, barrier_plan, leave_checksum_out, rank, socket_address};
use common::hosts::{address, network, settings};
use common::packets::{cast, header, nack, step, tagged};
use omnes_nic::agent::{AgentConfig, AgentError, Client, Form, borrow, hooks};
use omnes_nic::{Nic, NicError, NicForm, Preference, QueuePlan};
use omnes_wire::{Header, JobId, JobKey, Kind, Rank};
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;

#[test]
fn plays_an_actor() {
    play();
}

#[test]
fn unprivileged_users_borrow_slots_for_kernel_barriers() {
    let Some(hosts) = network(2) else { return };
    let agents = [Served::usual(&hosts[0]), Served::usual(&hosts[1])];
    let mut actors = [Actor::start(&hosts[0]), Actor::start(&hosts[1])];
    for (index, actor) in actors.iter_mut().enumerate() {
        assert_eq!(actor.tell("obtain"), "Agent");
        assert_eq!(actor.tell(&format!("borrow {index} 2")), "lent");
    }
    actors.iter_mut().enumerate().for_each(|(index, it)| it.order(&format!("barriers {index} 50")));
    actors.iter_mut().for_each(|actor| assert_eq!(actor.hear(), "done 50"));

    for (index, agent) in agents.iter().enumerate() {
        let report = agent.client().report().unwrap();
        let [slot] = &report.slots[..] else { panic!("{report:?}") };
        let pid = actors[index].process.id();
        assert_eq!((slot.uid, slot.pid as u32), (NOBODY, pid));
        assert_eq!((slot.rank, slot.size, slot.done), (rank(index), 2, 50));
        assert_eq!(slot.socket, socket_address(index));
        assert_eq!(slot.form, Form::Barrier("dissemination".to_owned()));
        assert_eq!(slot.counters["packets_in"], 50);
        assert_eq!(report.interfaces.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["eth0"]);
        agent.wait_for(&["lent slot 0", "uid 65534", "communicator 65541", "eth0"]);
    }
    actors.iter_mut().for_each(|actor| assert_eq!(actor.tell("return"), "returned"));
    agents.iter().for_each(|agent| agent.wait_for(&["returned slot 0 (given back)"]));
    assert_eq!(agents[0].client().report().unwrap().slots.len(), 0);
}

#[test]
fn queue_is_lent_only_for_sockets_of_the_caller() {
    let Some(hosts) = network(1) else { return };
    let agent = Served::usual(&hosts[0]);
    let client = agent.client();
    let open = || hosts[0].inside(|| UdpSocket::bind((socket_address(0).ip(), 0)).unwrap());
    let sockets = [open(), open()];
    let address = |socket: &UdpSocket| socket.local_addr().unwrap();
    let plan = QueuePlan { job: 7, sockets: sockets.iter().map(address).collect(), group: None };
    let refused = |plan: &QueuePlan, sockets: &[&UdpSocket]| {
        let sockets: Vec<_> = sockets.iter().map(|socket| socket.as_fd()).collect();
        client.lend_queue(plan, &sockets).err().unwrap().to_string()
    };
    let [first, second] = &sockets;
    for (what, given) in [
        ("sockets are missing", &[first][..]),
        ("not bound to the address", &[second, first]),
        ("not bound to the address", &[first, first]),
    ] {
        let reason = refused(&plan, given);
        assert!(reason.contains(what), "{reason}");
    }
    let lent = client.lend_queue(&plan, &[first.as_fd(), second.as_fd()]).unwrap();
    let taken = refused(&plan, &[first, second]);
    assert!(taken.contains("already has"), "{taken}");
    let report = client.report().unwrap();
    let [slot] = &report.slots[..] else { panic!("{report:?}") };
    assert_eq!((&slot.form, slot.size, slot.job), (&Form::Queue, 2, 7));
    assert_eq!(report.slots_lent(), 0, "queues take no slots");
    assert_eq!(slot.counters["packets_in"], 0);
    drop(lent);
    agent.wait_for(&["receive queue", "(given back)"]);
    drop(client.lend_queue(&plan, &[first.as_fd(), second.as_fd()]).unwrap());
}

#[test]
fn killed_process_returns_its_slots_even_with_a_living_child() {
    let Some(hosts) = network(1) else { return };
    let agent = Served::usual(&hosts[0]);
    let mut actor = Actor::start(&hosts[0]);
    assert_eq!(actor.tell("borrow 0 2"), "lent");
    let child: i32 = actor.tell("fork").parse().unwrap();
    actor.kill();
    agent.wait_for(&["returned slot 0 (its process has left)"]);
    // SAFETY: the child of the actor, which waits for this.
    unsafe { libc::kill(child, libc::SIGKILL) };
    // Name and port are free for the next process.
    wait_until("the port is free", || {
        hosts[0].inside(|| UdpSocket::bind(socket_address(0))).is_ok()
    });
    assert_eq!(Actor::start(&hosts[0]).tell("borrow 0 2"), "lent");
}

#[test]
fn port_stays_bound_while_its_slot_is_lent() {
    let Some(hosts) = network(1) else { return };
    let agent = Served::usual(&hosts[0]);
    let Member { socket, plan, .. } = Member::new(&hosts[0], 0, 2);
    let lent = agent.client().lend(&plan, socket.as_fd(), None).unwrap();
    drop(socket);
    assert!(hosts[0].inside(|| UdpSocket::bind(socket_address(0))).is_err());
    drop(lent);
    wait_until("the port is free", || {
        hosts[0].inside(|| UdpSocket::bind(socket_address(0))).is_ok()
    });
}

#[test]
fn slot_is_revoked_when_its_port_is_released() {
    let Some(hosts) = network(1) else { return };
    let agent = Served::usual(&hosts[0]);
    let Member { mut plan, .. } = Member::new(&hosts[0], 0, 2);
    for takes_another in [false, true] {
        let socket = hosts[0].inside(|| UdpSocket::bind((plan.socket.ip(), 0)).unwrap());
        plan.socket.set_port(socket.local_addr().unwrap().port());
        let lent = agent.client().lend(&plan, socket.as_fd(), None).unwrap();
        assert!(!lent.is_lost());
        give_port_up(&socket);
        // The port's next owner is not the tenant, even if the socket gets another port.
        let _next = hosts[0].inside(|| UdpSocket::bind(plan.socket).unwrap());
        if takes_another {
            let any = SocketAddr::new(plan.socket.ip(), 0);
            socket2::SockRef::from(&socket).bind(&any.into()).unwrap();
        }
        agent.wait_for(&["returned slot 0 (its port has been given up)", &plan.socket.to_string()]);
        assert!(lent.is_lost());
    }
}

#[test]
fn former_owner_cannot_return_a_reused_slot_number() {
    let Some(hosts) = network(2) else { return };
    let agents = [Served::usual(&hosts[0]), Served::usual(&hosts[1])];
    // Two actors have lost slot 0: one returns it, the other ends.
    let mut losers = [Actor::start(&hosts[0]), Actor::start(&hosts[0])];
    for loser in &mut losers {
        let said = loser.tell("borrow-and-unbind");
        assert!(said.contains("\"slot\":0"), "{said}");
        let is_free = || agents[0].client().report().unwrap().slots.is_empty();
        wait_until("the slot is taken back", is_free);
    }
    let members = [Member::new(&hosts[0], 0, 2), Member::new(&hosts[1], 1, 2)];
    let lent = [0, 1].map(|at: usize| {
        let Member { plan, socket, .. } = &members[at];
        agents[at].client().lend(plan, socket.as_fd(), None).unwrap()
    });
    assert_eq!(lent[0].slot(), 0);
    let [returns, ends] = &mut losers;
    assert_eq!(returns.tell("return-number 0"), "returned");
    ends.kill();
    // Their requests are handled before these are served.
    (0..2).for_each(|_| drop(agents[0].client().report().unwrap()));
    let its_log = || agents[0].log().into_iter().filter(|line| line.starts_with("returned"));
    assert!(its_log().all(|line| line.contains("port has been given up")), "{:?}", agents[0].log());
    for epoch in 1..=3 {
        members.iter().for_each(|member| member.enter(epoch));
        lent.iter().for_each(|lent| wait_done(lent.page(), epoch));
    }
}

#[test]
fn port_of_another_process_is_not_lent() {
    let Some(hosts) = network(2) else { return };
    let _agent = Served::usual(&hosts[0]);
    let victim = Member::new(&hosts[0], 0, 2);

    // Another port.
    let mut thief = Actor::start(&hosts[0]);
    let refused = thief.tell("borrow-port-of 0");
    assert!(refused.contains("not bound to the address"), "{refused}");
    // The socket itself, which is root's: the thief has received it.
    let mut thief = Actor::start_as(&hosts[0], NOBODY, Some(victim.socket.as_fd()));
    let refused = thief.tell("borrow-given 0");
    assert!(refused.contains("another user's"), "{refused}");
    // A socket of a network in which the thief has the address.
    let far = hosts[1].inside(|| {
        let [words, _] = settings(socket_address(0).ip(), "lo");
        assert!(
            std::process::Command::new("ip").args(words.split(' ')).status().unwrap().success()
        );
        UdpSocket::bind(socket_address(0)).unwrap()
    });
    let refused = hosts[0].inside(|| borrow(&victim.plan, far.as_fd(), None)).err().unwrap();
    assert!(refused.to_string().contains("another network namespace"), "{refused}");
    // The same port at another address of the host, or at a group's.
    let other = address(900);
    hosts[0].command(&format!("ip {}", settings(other, "eth0")[0]));
    let mut thief = Actor::start(&hosts[0]);
    let port = socket_address(0).port();
    for order in [format!("borrow-at {other}"), format!("borrow-group {port}")] {
        let refused = thief.tell(&order);
        assert!(refused.contains("another user has a socket with the same port"), "{refused}");
    }
    assert_eq!(thief.tell("borrow-group 20001"), "lent");
    // The victim itself gets the slot.
    hosts[0].inside(|| borrow(&victim.plan, victim.socket.as_fd(), None)).unwrap();
}

#[test]
fn slot_has_one_owner_and_other_jobs_get_their_own() {
    let Some(hosts) = network(1) else { return };
    let agent = Served::usual(&hosts[0]);
    let first = Member::new(&hosts[0], 0, 2);
    let client = agent.client();
    let _lent = client.lend(&first.plan, first.socket.as_fd(), None).unwrap();
    let mut by_mac = first.plan.clone();
    (by_mac.group, by_mac.by_mac) = (Some(GROUP), true);
    let refused = client.lend(&by_mac, first.socket.as_fd(), None).err().unwrap();
    assert!(refused.to_string().contains("by MAC address are not lent"), "{refused}");
    let again = client.lend(&first.plan, first.socket.as_fd(), None).err().unwrap();
    assert!(again.to_string().contains("already has a slot"), "{again}");
    // Another user's process that uses the first one's name, whatever socket it has.
    let mut thief = Actor::start(&hosts[0]);
    assert!(thief.tell("borrow-port-of 0").contains("not bound"));
    // Another job at another port, with everything else the same.
    let mut second = first.plan.clone();
    let socket = hosts[0].inside(|| UdpSocket::bind((second.socket.ip(), 0)).unwrap());
    second.job += 1;
    second.socket.set_port(socket.local_addr().unwrap().port());
    let other = agent.client();
    let lent = other.lend(&second, socket.as_fd(), None).unwrap();
    assert_eq!((lent.slot(), agent.client().report().unwrap().slots.len()), (1, 2));
}

#[test]
fn forged_and_replayed_packets_complete_no_barrier() {
    let Some(hosts) = network(3) else { return };
    let agents = [Served::usual(&hosts[0]), Served::usual(&hosts[1])];
    let members = [Member::new(&hosts[0], 0, 2), Member::new(&hosts[1], 1, 2)];
    let lend = |at: usize| {
        let Member { plan, socket, .. } = &members[at];
        agents[at].client().lend(plan, socket.as_fd(), None).unwrap()
    };
    let lent = [lend(0), lend(1)];
    let pages = [lent[0].page(), lent[1].page()];
    for epoch in 1..=3 {
        members.iter().for_each(|member| member.enter(epoch));
        pages.iter().for_each(|page| wait_done(page, epoch));
    }
    members[0].enter(4);
    wait_until("the first has entered", || pages[0].entered() == 4);
    let before = pages[0].counters();

    let stranger = hosts[2].inside(|| UdpSocket::bind((address(2), 0)).unwrap());
    let send = |packet: &[u8]| stranger.send_to(packet, socket_address(0)).unwrap();
    let genuine = step(rank(1), rank(0), 4, 0);
    // With another key, without a tag, for another receiver, of a rank that is not a member.
    let forged = header(Kind::Step, rank(1), 4, 0).emit();
    let key = JobKey::new([9; 16]).sender(Rank(rank(1)));
    let with_other_key = key.tag(&forged, Rank(rank(0)), &[]).0.to_be_bytes();
    send(&[&forged[..], &with_other_key].concat());
    send(&[&forged[..], &[0; 8]].concat());
    send(&step(rank(1), rank(2), 4, 0));
    send(&step(rank(2), rank(0), 4, 0));
    // The genuine packet with a bit changed in the step, the number or the tag; cut, and too long.
    for byte in [19, 31, 39] {
        let mut changed = genuine.clone();
        changed[byte] ^= 1;
        send(&changed);
    }
    send(&[&genuine[..], &[0]].concat());
    let bad = 8;
    // Replayed: all that the second member has sent before, and a request for a step.
    (1..=3).for_each(|epoch| {
        send(&step(rank(1), rank(0), epoch, 0));
    });
    send(&nack(rank(1), rank(0), 9, 0));
    // Of another job, and of another kind: not for the slot.
    let job = JobId(plan_job() + 1);
    let foreign = Header { job, ..header(Kind::Step, rank(1), 4, 0) };
    send(&tagged(&foreign, Rank(rank(0)), &[], 0));
    send(&cast(rank(1), 4, true, &[0; 16]));

    wait_until("all have come", || {
        let now = pages[0].counters();
        now.bad_tags - before.bad_tags == bad && now.packets_in - before.packets_in == 4
    });
    let now = pages[0].counters();
    assert_eq!(now.duplicates - before.duplicates, 3, "{now:?}");
    assert_eq!((pages[0].done(), pages[1].done(), pages[1].entered()), (3, 3, 3));
    // Only the owner of the key can do it.
    members[1].enter(4);
    pages.iter().for_each(|page| wait_done(page, 4));
}

fn plan_job() -> u32 {
    barrier_plan(0, 2, "dissemination", false).job
}

#[test]
fn process_firmware_and_agent_firmware_work_side_by_side() {
    let Some(hosts) = network(2) else { return };
    let agents = [Served::usual(&hosts[0]), Served::usual(&hosts[1])];
    let members = [Member::new(&hosts[0], 0, 2), Member::new(&hosts[1], 1, 2)];
    let other_port = |index: usize| {
        let mut address = socket_address(index);
        address.set_port(6000 + index as u16);
        address
    };
    // The same group again, of another job, at other ports.
    let own = [0, 1].map(|index: usize| {
        let mut plan = members[index].plan.clone();
        plan.job += 1;
        plan.socket = other_port(index);
        plan.peers = (0..2).map(|at| (rank(at), other_port(at))).collect();
        let socket = hosts[index].inside(|| UdpSocket::bind(plan.socket).unwrap());
        leave_checksum_out(&socket);
        let slot = hosts[index].inside(|| {
            let mut nic = Nic::obtain(Preference::Kernel).unwrap();
            assert_eq!(nic.form(), NicForm::Kernel);
            nic.open(&plan, socket.as_fd(), None).unwrap()
        });
        (socket, slot, plan)
    });
    let lent = [0, 1].map(|index| {
        let Member { plan, socket, .. } = &members[index];
        agents[index].client().lend(plan, socket.as_fd(), None).unwrap()
    });
    for epoch in 1..=20 {
        for index in [0, 1] {
            members[index].enter(epoch);
            let (socket, _, plan) = &own[index];
            let header = Header { job: JobId(plan.job), ..header(Kind::Step, plan.rank, epoch, 0) };
            let packet = tagged(&header, Rank(rank(1 - index)), &[], 0);
            socket.send_to(&packet, other_port(1 - index)).unwrap();
        }
        lent.iter().for_each(|lent| wait_done(lent.page(), epoch));
        own.iter().for_each(|(_, slot, _)| wait_done(slot.page(), epoch));
    }
}

#[test]
fn users_have_slot_limits_and_see_only_their_own_slots() {
    let Some(hosts) = network(1) else { return };
    let config = AgentConfig { slots_per_user: 2, ..AgentConfig::default() };
    let agent = Served::start(&hosts[0], config);
    let client = agent.client();
    let sockets: Vec<UdpSocket> = (0..3)
        .map(|_| hosts[0].inside(|| UdpSocket::bind((socket_address(0).ip(), 0)).unwrap()))
        .collect();
    let lend = |socket: &UdpSocket, members: usize| {
        let plan = barrier_plan(0, 2, "dissemination", false);
        let port = socket.local_addr().unwrap().port();
        let plan = agent_rig::actor::at_port(&plan, 0, port);
        let plan = agent_rig::actor::with_members(&plan, members);
        client.lend(&plan, socket.as_fd(), None)
    };
    let refused = lend(&sockets[0], 4097).err().unwrap().to_string();
    assert!(refused.contains("4096 members"), "{refused}");
    let _lent = [lend(&sockets[0], 4096).unwrap(), lend(&sockets[1], 2).unwrap()];
    let refused = lend(&sockets[2], 2).err().unwrap().to_string();
    assert!(refused.contains("all 2 slots"), "{refused}");
    // Another user has separate limits.
    let mut actor = Actor::start(&hosts[0]);
    assert_eq!(actor.tell("manage"), "3 refused, 2 hidden");
    let crowd = actor.tell("crowd 80");
    assert_eq!(crowd, "63 served; omnesd refuses: too many connections of this user");
    assert_eq!(agent.client().report().unwrap().slots.len(), 2);
}

#[test]
fn queue_limit_per_user_leaves_queues_for_others() {
    let Some(hosts) = network(1) else { return };
    let agent = Served::usual(&hosts[0]);
    let client = agent.client();
    let open = |_| hosts[0].inside(|| UdpSocket::bind((socket_address(0).ip(), 0)).unwrap());
    let sockets: Vec<UdpSocket> = (0..32).map(open).collect();
    let addresses = sockets.iter().map(|socket| socket.local_addr().unwrap());
    let mut plan = QueuePlan { job: 0, sockets: addresses.collect(), group: None };
    let given: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
    let mut lend = || {
        plan.job += 1;
        client.lend_queue(&plan, &given)
    };
    // The same sockets for one job after another.
    let lent: Vec<_> = (0..32).map(|_| lend().unwrap()).collect();
    let refused = lend().err().unwrap().to_string();
    assert!(refused.contains("more than 1024 addresses"), "{refused}");
    let mut actor = Actor::start(&hosts[0]);
    assert_eq!(actor.tell("borrow-queue"), "lent");
    // Taking them back blocks nobody for long, whether together or one by one.
    let start = std::time::Instant::now();
    drop(lent);
    drop(actor);
    wait_until("all are back", || agent.client().report().unwrap().slots.is_empty());
    let taken = start.elapsed();
    assert!(taken.as_secs() < 4, "{taken:?}");
}

#[test]
fn tree_is_reported_in_canonical_form() {
    let Some(hosts) = network(1) else { return };
    let agent = Served::usual(&hosts[0]);
    let Member { mut plan, socket, .. } = Member::new(&hosts[0], 0, 2);
    plan.barrier = None;
    plan.tree = Some(format!("knomial={}4", "0".repeat(600_000)));
    let _lent = agent.client().lend(&plan, socket.as_fd(), None).unwrap();
    let report = agent.client().report().unwrap();
    assert_eq!(report.slots[0].form, Form::Tree("knomial=4".to_owned()));
    agent.wait_for(&["lent slot 0", "tree knomial=4)"]);
}

#[test]
fn hostile_processes_do_not_block_other_users() {
    let Some(hosts) = network(1) else { return };
    let agent = Served::usual(&hosts[0]);
    // The first actor blocks other processes of its own user, so the others belong to another user.
    // All are started before any of them acts: a process that starts later would inherit the
    // lingering socket, and wait for it instead of the agent's helper.
    let orders = [(NOBODY - 1, "linger"), (NOBODY, "half"), (NOBODY, "endless"), (NOBODY, "deaf")];
    let mut hostile: Vec<Actor> =
        orders.map(|(user, _)| Actor::start_as(&hosts[0], user, None)).into();
    // A port has to be found among thousands of others' sockets.
    let mut hoarder = Actor::start_as(&hosts[0], NOBODY - 2, None);
    let hoarded: usize = hoarder.tell("hoard 20000").parse().unwrap();
    assert!(hoarded > 900, "{hoarded}");
    hostile.iter_mut().zip(orders).for_each(|(actor, (_, what))| actor.order(what));
    let refused = hostile[0].hear();
    assert!(refused.contains("not a UDP socket"), "{refused}");
    // A well-behaved process is served while the others do what they can.
    let Member { plan, socket, .. } = Member::new(&hosts[0], 0, 2);
    let start = std::time::Instant::now();
    for _ in 0..20 {
        drop(agent.client().lend(&plan, socket.as_fd(), None).unwrap());
        wait_until("it is back", || agent.client().report().unwrap().slots.is_empty());
    }
    assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
    // The hostile processes are disconnected.
    for actor in &mut hostile[1..] {
        assert_eq!(actor.hear(), "closed");
    }
    agent.wait_for(&["refused uid 65534", "stopped in the middle of a line"]);
    agent.wait_for(&["refused uid 65534", "too long"]);
    // A user who has blocked the agent's helper has to wait until it is done.
    let mut waiting = Actor::start_as(&hosts[0], NOBODY - 1, None);
    waiting.order("garbage");
    assert_eq!(agent.client().report().unwrap().slots.len(), 0);
    assert!(!agent.log().iter().any(|line| line.contains("not a request")));
    drop(hostile);
    let garbage = waiting.hear();
    assert!(garbage.contains("not a request"), "{garbage}");
}

#[test]
fn only_one_agent_runs_and_only_a_root_agent_is_trusted() {
    let Some(hosts) = network(1) else { return };
    let absent = hosts[0].inside(Client::connect).err().unwrap();
    assert!(matches!(absent, AgentError::Absent), "{absent}");

    let mut squatter = Actor::start(&hosts[0]);
    assert_eq!(squatter.tell("seat"), "seated");
    let pid = squatter.process.id() as i32;
    let refused = hosts[0].inside(Client::connect).err().unwrap();
    assert!(matches!(refused, AgentError::NotRoot { uid: NOBODY, pid: it } if it == pid));
    let start = || {
        let agent = omnes_nic::agent::Agent::start(AgentConfig::default(), &mut |_| ());
        agent.map(drop).err().unwrap().to_string()
    };
    let second = hosts[0].inside(start);
    assert!(second.contains(&format!("process {pid} of user 65534")), "{second}");
    // Root then works without an agent.
    let nic = hosts[0].inside(|| Nic::obtain(Preference::Any)).unwrap();
    assert_eq!(nic.form(), NicForm::Kernel);
    squatter.kill();

    let _agent = Served::usual(&hosts[0]);
    let second = hosts[0].inside(start);
    assert!(second.contains(&format!("process {} of user 0", std::process::id())), "{second}");
}

#[test]
fn process_obtains_the_available_nic_or_the_reasons() {
    let Some(hosts) = network(1) else { return };
    let reasons = Actor::start(&hosts[0]).tell("obtain");
    assert!(reasons.contains("no agent") && reasons.contains("CAP_BPF"), "{reasons}");

    let obtain = |preference| hosts[0].inside(|| Nic::obtain(preference));
    let none = obtain(Preference::Agent).err().unwrap();
    assert_eq!(none.reasons.len(), 1);
    // Loaded once, and unloaded with its last user.
    let Member { plan, socket, .. } = Member::new(&hosts[0], 0, 2);
    let mut first = obtain(Preference::Any).unwrap();
    let second = obtain(Preference::Kernel).unwrap();
    let programs = || {
        let interface = hosts[0].interface();
        let at = || hooks::at(interface, &BTreeMap::new()).unwrap();
        hosts[0].inside(at).into_iter().map(|it| it.program_id).collect::<Vec<u32>>()
    };
    assert!(programs().is_empty());
    let slot = hosts[0].inside(|| first.open(&plan, socket.as_fd(), None)).unwrap();
    let loaded = programs();
    assert_eq!(loaded.len(), 2);
    drop((first, second));
    assert_eq!(programs(), loaded);
    assert!(!slot.is_lost());
    drop(slot);
    wait_until("nothing is attached", || programs().is_empty());
    wait_until("nothing is loaded", || {
        let all = hooks::programs().unwrap();
        !loaded.iter().any(|id| all.contains(id))
    });
    // An address that no interface has.
    let mut nic = obtain(Preference::Kernel).unwrap();
    let mut far = plan.clone();
    far.socket.set_ip(socket_address(7).ip().to_owned());
    let refused = hosts[0].inside(|| nic.open(&far, socket.as_fd(), None)).err().unwrap();
    assert!(matches!(refused, NicError::Plan { .. }), "{refused}");
}

#[test]
fn root_can_attach_and_detach_interfaces() {
    let Some(hosts) = network(1) else { return };
    let agent = Served::usual(&hosts[0]);
    let (client, interface) = (agent.client(), hosts[0].interface());
    let hooked = || {
        let at = || hooks::at(interface, &hooks::link_owners()).unwrap();
        hosts[0].inside(at)
    };
    let found = hooked();
    assert_eq!(found.iter().map(|it| &*it.name).collect::<Vec<_>>(), hooks::PROGRAMS);
    // A child process that another test is about to start has them for a moment, too.
    assert!(found.iter().all(|it| it.owners.contains(&std::process::id())), "{found:?}");

    let Member { plan, socket, .. } = Member::new(&hosts[0], 0, 2);
    let lender = agent.client();
    let lent = lender.lend(&plan, socket.as_fd(), None).unwrap();
    let busy = client.detach("eth0", false).err().unwrap().to_string();
    assert!(busy.contains("1 slots are lent on eth0"), "{busy}");
    client.detach("eth0", true).unwrap();
    // Such a child keeps them attached until it calls exec.
    wait_until("nothing is attached", || hooked().is_empty());
    agent.wait_for(&["returned slot 0 (detached by hand)"]);
    assert!(lent.is_lost());
    let off = lender.lend(&plan, socket.as_fd(), None).err().unwrap().to_string();
    assert!(off.contains("omnes nic attach eth0"), "{off}");
    client.attach("eth0").unwrap();
    assert_eq!(hooked().len(), 2);
    // Its owner may return what it no longer has, and keeps the next slot of that number.
    let next = lender.lend(&plan, socket.as_fd(), None).unwrap();
    assert_eq!((next.slot(), lent.slot()), (0, 0));
    drop(lent);
    assert_eq!(lender.report().unwrap().slots.len(), 1);
    drop(next);
    assert_eq!(lender.report().unwrap().slots.len(), 0);
    for unknown in ["lo", "no-such-thing"] {
        assert!(client.attach(unknown).is_err(), "{unknown}");
    }
}

#[test]
fn suspended_agent_blocks_no_barrier_and_keeps_lent_slots() {
    let Some(hosts) = network(2) else { return };
    let agents = [Served::usual(&hosts[0]), Served::usual(&hosts[1])];
    let members = [Member::new(&hosts[0], 0, 2), Member::new(&hosts[1], 1, 2)];
    let clients = [agents[0].client(), agents[1].client()];
    let lent = [0, 1].map(|at: usize| {
        let Member { plan, socket, .. } = &members[at];
        clients[at].lend(plan, socket.as_fd(), None).unwrap()
    });
    let another = |job: u32| {
        let mut plan = members[0].plan.clone();
        let socket = hosts[0].inside(|| UdpSocket::bind((plan.socket.ip(), 0)).unwrap());
        plan.job += job;
        plan.socket.set_port(socket.local_addr().unwrap().port());
        (plan, socket)
    };
    let lend = |(plan, socket): &(_, UdpSocket)| clients[0].lend(plan, socket.as_fd(), None);
    let asked = another(1);
    let spare = lend(&another(2)).unwrap();
    let stopped = agents[0].stop();
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| lend(&asked).err().unwrap().to_string());
        // Meanwhile other threads check their loans, and return them.
        while !asks.is_finished() {
            let start = std::time::Instant::now();
            assert!(!lent[0].is_lost());
            assert!(start.elapsed().as_secs() < 4, "{:?}", start.elapsed());
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let late = asks.join().unwrap();
        assert!(late.contains("has not answered"), "{late}");
    });
    let start = std::time::Instant::now();
    drop(spare);
    assert!(start.elapsed().as_secs() < 4, "{:?}", start.elapsed());
    drop(stopped);
    // The late answer is read, and the slot that it lends is returned.
    let next = lend(&another(3)).unwrap();
    assert_eq!(clients[0].report().unwrap().slots.len(), 2);
    assert!(!lent[0].is_lost() && !next.is_lost());
    members.iter().for_each(|member| member.enter(1));
    lent.iter().for_each(|lent| wait_done(lent.page(), 1));
}

#[test]
fn agent_exit_leaves_no_state_and_notifies_clients() {
    let Some(hosts) = network(1) else { return };
    let Member { plan, socket, .. } = Member::new(&hosts[0], 0, 2);
    let obtain = || Nic::obtain(Preference::Any).unwrap();
    let agent = Served::usual(&hosts[0]);
    let mut nic = hosts[0].inside(obtain);
    let slot = nic.open(&plan, socket.as_fd(), None).unwrap();
    assert!(!slot.is_lost());
    assert_eq!(slot.form(), NicForm::Agent);

    let interface = hosts[0].interface();
    let at = || hooks::at(interface, &BTreeMap::new()).unwrap();
    let programs: Vec<u32> = hosts[0].inside(at).iter().map(|it| it.program_id).collect();
    assert_eq!(programs.len(), 2);
    agent.client().end().unwrap();
    drop(agent);
    // A process that another test starts now has the agent's connections until it calls exec.
    wait_until("the slot is lost", || slot.is_lost());
    wait_until("nothing is attached", || hosts[0].inside(at).is_empty());
    wait_until("its programs are gone", || {
        let all = hooks::programs().unwrap();
        !programs.iter().any(|id| all.contains(id))
    });
    let gone = hosts[0].inside(|| nic.open(&plan, socket.as_fd(), None)).err().unwrap();
    assert!(matches!(gone, NicError::Agent(AgentError::Absent)), "{gone}");
    // Another agent is found without obtaining the NIC again.
    let _agent = Served::usual(&hosts[0]);
    let again = hosts[0].inside(|| nic.open(&plan, socket.as_fd(), None)).unwrap();
    assert!(!again.is_lost());
}

#[test]
fn agent_serves_only_its_configured_interfaces() {
    let Some(hosts) = network(1) else { return };
    hosts[0].command("ip link add other type veth peer name far");
    hosts[0].command("ip link set far up");
    hosts[0].command("ip link set other up");
    hosts[0].command("ip addr add 10.99.9.1/24 dev other");
    let config = AgentConfig { interfaces: vec!["other".to_owned()], ..AgentConfig::default() };
    let agent = Served::start(&hosts[0], config);
    let Member { plan, socket, .. } = Member::new(&hosts[0], 0, 2);
    let client: Arc<Client> = agent.client();
    let refused = client.lend(&plan, socket.as_fd(), None).err().unwrap().to_string();
    assert!(refused.contains("does not serve eth0"), "{refused}");
    client.attach("eth0").unwrap();
    drop(client.lend(&plan, socket.as_fd(), None).unwrap());
}

#[test]
fn configured_interface_is_served_whenever_created() {
    let Some(hosts) = network(1) else { return };
    let config = AgentConfig { interfaces: vec!["late".to_owned()], ..AgentConfig::default() };
    let agent = Served::start(&hosts[0], config);
    agent.wait_for(&["no interface late yet"]);
    let client = agent.client();
    for _ in 0..2 {
        hosts[0].command("ip addr flush dev eth0");
        hosts[0].command("ip link add late type veth peer name far");
        hosts[0].command("ip link set far up");
        hosts[0].command("ip link set late up");
        hosts[0].command(&format!("ip {}", settings(address(0), "late")[0]));
        let Member { plan, socket, .. } = Member::new(&hosts[0], 0, 2);
        drop(client.lend(&plan, socket.as_fd(), None).unwrap());
        hosts[0].command("ip link del late");
        wait_until("it is back", || client.report().unwrap().slots.is_empty());
    }
}
