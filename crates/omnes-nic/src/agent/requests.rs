//! How the agent handles requests.

use super::channel::Peer;
use super::interfaces::{self, Interface};
use super::limits::{
    MEMBERS_MAX, MEMBERS_PER_USER_MAX, QUEUE_PORTS_PER_USER_MAX, QUEUES_PER_USER_MAX,
};
use super::proof;
use super::protocol::{Answer, Attached, Form, Report, Request, SlotReport, parse, printable};
use super::server::{Agent, Event, Loan, Observer, Shown, Tenant};
use super::session::{Parting, Session};
use super::sockets::Sockets;
use crate::{NicError, Page, Queue, QueuePlan, SlotPlan};
use omnes_firmware::slot::SLOTS_MAX;
use omnes_topo::Tree;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// Outcome of a request: an answer, with or without a page; `None` for a request without an answer.
type Done = Result<Option<(Answer, Option<OwnedFd>)>, String>;

fn done() -> Done {
    Ok(Some((Answer::Done, None)))
}

impl Agent {
    /// Carries out the request in a line, and answers.
    pub(super) fn handle(
        &mut self,
        id: u64,
        line: &[u8],
        observe: &mut Observer<'_>,
    ) -> Result<(), Parting> {
        let Some(peer) = self.sessions.get(&id).map(|session| session.peer) else { return Ok(()) };
        let done = match parse(line) {
            Ok(Request::Return { slot }) => {
                self.close_descriptors(id);
                self.give_back(id, slot, observe);
                return Ok(());
            }
            Ok(Request::Hello) => done(),
            Ok(Request::Lend { plan }) => self.lend(id, &plan, observe),
            Ok(Request::LendQueue { plan }) => self.lend_queue(id, &plan, observe),
            Ok(Request::List) => Ok(Some((Answer::Report(self.report(peer)), None))),
            Ok(Request::Attach { interface }) => {
                for_root(peer).and_then(|()| self.attach_by_hand(&interface, observe))
            }
            Ok(Request::Detach { interface, by_force }) => {
                for_root(peer).and_then(|()| self.detach_by_hand(&interface, by_force, observe))
            }
            Ok(Request::End) => for_root(peer).and_then(|()| {
                self.is_ending = true;
                done()
            }),
            Err(reason) => Err(reason),
        };
        self.close_descriptors(id);
        let (answer, page) = match done {
            Ok(None) => return Ok(()),
            Ok(Some(answer)) => answer,
            Err(reason) => {
                let reason = printable(&reason);
                let Peer { uid, pid } = peer;
                observe(&Event::Refused { uid, pid, reason: reason.clone() });
                (Answer::Refused { reason }, None)
            }
        };
        match self.sessions.get_mut(&id) {
            Some(session) => session.answer(&answer, page),
            None => Ok(()),
        }
    }

    /// Closes descriptors that came with a request that does not use them.
    fn close_descriptors(&mut self, id: u64) {
        if let Some(session) = self.sessions.get_mut(&id) {
            let (uid, unused) = (session.peer.uid, session.take_unused_descriptors());
            self.descriptor_closer.close(uid, unused);
        }
    }

    /// Lends a slot to a caller, if its descriptors prove that it may have it.
    fn lend(&mut self, id: u64, plan: &SlotPlan, observe: &mut Observer<'_>) -> Done {
        let check =
            |agent: &mut Self, sockets: &[OwnedFd], peer| agent.look_at(plan, sockets, peer);
        let addresses = std::iter::once(plan.socket).chain(plan.group);
        let Some(admitted) = self.admit(id, addresses, check, observe)? else { return Ok(None) };
        let (socket, _) = admitted.sockets.first().ok_or(SOCKETS_MISSING)?;
        let interface = admitted.interface.index;
        let opened = self.kernel.open(plan, interface, Some(socket.as_fd()));
        let slot = opened.map_err(|error| error.to_string())?;
        let map = self.kernel.page(slot).expect("the slot is open");
        let shown = Page::map(map.as_fd()).map(Shown::Page);
        let tenant = tenant(plan, admitted.peer, &admitted.interface);
        let members = plan.members.len();
        self.hand_over(id, slot, admitted, (tenant, members), (map, shown), observe)
    }

    /// Lends a receive queue in the same way.
    fn lend_queue(&mut self, id: u64, plan: &QueuePlan, observe: &mut Observer<'_>) -> Done {
        let entries = plan.sockets.len() + usize::from(plan.group.is_some());
        let check = |agent: &mut Self, sockets: &[OwnedFd], peer| {
            plan.check().map_err(|error| error.to_string())?;
            agent.check_queues(entries, peer)?;
            check_sockets(&plan.sockets, plan.group, sockets, peer)?;
            usable_with_address(plan.sockets[0].ip())
        };
        let addresses = plan.sockets.iter().copied().chain(plan.group);
        let Some(admitted) = self.admit(id, addresses, check, observe)? else { return Ok(None) };
        let opened = self.kernel.open_queue(plan);
        let number = opened.map_err(|error| error.to_string())?;
        let map = self.kernel.queue(number).expect("the queue is open");
        let shown = Queue::map(map.as_fd()).map(Shown::Queue);
        let tenant = Tenant {
            uid: admitted.peer.uid,
            pid: admitted.peer.pid,
            job: plan.job,
            communicator: 0,
            channel: 0,
            rank: 0,
            size: plan.sockets.len() as u32,
            form: Form::Queue,
            socket: plan.sockets[0],
            interface: admitted.interface.name.clone(),
        };
        self.hand_over(id, number, admitted, (tenant, entries), (map, shown), observe)
    }

    /// Takes the descriptors that came with a request, and lets `check` decide whether they prove
    /// that the caller may have what it asks for, and at which interface: each must be bound to its
    /// one of `addresses`. `None` if the caller has gone.
    fn admit(
        &mut self,
        id: u64,
        addresses: impl Iterator<Item = SocketAddr>,
        check: impl FnOnce(&mut Self, &[OwnedFd], Peer) -> Result<Interface, String>,
        observe: &mut Observer<'_>,
    ) -> Result<Option<Admitted>, String> {
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(None) };
        let peer = session.peer;
        let sockets = session.take_descriptors();
        let checked = check(self, &sockets, peer);
        // UDP sockets close without waiting.
        let (sockets, others): (Vec<_>, Vec<_>) =
            sockets.into_iter().partition(|socket| proof::is_udp(socket.as_fd()));
        self.descriptor_closer.close(peer.uid, others);
        let interface = checked?;
        if !self.attached.contains_key(&interface.index) {
            self.attach_for(&interface, observe)?;
        }
        let sockets = sockets.into_iter().zip(addresses).collect();
        Ok(Some(Admitted { peer, sockets, interface }))
    }

    /// Enters a loan; returns the answer to its caller, with the descriptor that the caller gets.
    fn hand_over(
        &mut self,
        id: u64,
        slot: u32,
        admitted: Admitted,
        (tenant, entries): (Tenant, usize),
        (map, shown): (Arc<OwnedFd>, Result<Shown, NicError>),
        observe: &mut Observer<'_>,
    ) -> Done {
        let given = map.try_clone().map_err(|error| error.to_string());
        let (shown, given) = match (shown.map_err(|error| error.to_string()), given) {
            (Ok(shown), Ok(given)) => (shown, given),
            (Err(reason), _) | (_, Err(reason)) => {
                self.kernel.close(slot);
                return Err(reason);
            }
        };
        observe(&Event::Lent { slot, tenant: tenant.clone() });
        let loan = Loan {
            tenant,
            interface: admitted.interface.index,
            entries,
            since: Instant::now(),
            shown,
            map,
            sockets: admitted.sockets,
        };
        self.loans.insert(slot, loan);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.slots.insert(slot);
        }
        Ok(Some((Answer::Lent { slot }, Some(given))))
    }

    /// Checks everything but the kernel's own limits; returns the interface that the slot is for.
    fn look_at(
        &mut self,
        plan: &SlotPlan,
        sockets: &[OwnedFd],
        peer: Peer,
    ) -> Result<Interface, String> {
        plan.check().map_err(|error| error.to_string())?;
        if plan.by_mac {
            return Err("slots that send by MAC address are not lent".to_owned());
        }
        self.check_slots(plan.members.len(), peer)?;
        check_sockets(&[plan.socket], plan.group, sockets, peer)?;
        usable_with_address(plan.socket.ip())
    }

    /// Checks that a user may have one more queue, with `more` addresses.
    fn check_queues(&mut self, more: usize, peer: Peer) -> Result<(), String> {
        let own = self.of_user(peer, true);
        let (queues, ports) =
            own.fold((0, 0), |(queues, ports), loan| (queues + 1, ports + loan.entries));
        if queues >= QUEUES_PER_USER_MAX {
            let limit = QUEUES_PER_USER_MAX;
            return Err(format!("user {} has all {limit} queues that a user may have", peer.uid));
        }
        if ports + more > QUEUE_PORTS_PER_USER_MAX {
            let limit = QUEUE_PORTS_PER_USER_MAX;
            return Err(format!("the user's queues would have more than {limit} addresses"));
        }
        self.check_kept(peer, true, QUEUES_PER_USER_MAX)
    }

    /// Loans of a user: queues, or slots.
    fn of_user(&self, peer: Peer, queues: bool) -> impl Iterator<Item = &Loan> {
        let is_one = move |loan: &&Loan| {
            loan.tenant.uid == peer.uid && (loan.tenant.form == Form::Queue) == queues
        };
        self.loans.values().filter(is_one)
    }

    /// Checks that a user may have one more slot, with `more` members.
    fn check_slots(&mut self, more: usize, peer: Peer) -> Result<(), String> {
        let own = self.of_user(peer, false);
        let (slots, members) =
            own.fold((0, 0), |(slots, members), loan| (slots + 1, members + loan.entries));
        let limit = self.config.slots_per_user;
        if slots >= limit {
            return Err(format!("user {} has all {limit} slots that a user may have", peer.uid));
        }
        if more > MEMBERS_MAX {
            return Err(format!("the slot would have more than {MEMBERS_MAX} members"));
        }
        if members + more > MEMBERS_PER_USER_MAX {
            let limit = MEMBERS_PER_USER_MAX;
            return Err(format!("the user's slots would have more than {limit} members"));
        }
        self.check_kept(peer, false, limit as usize)
    }

    /// Checks that a user keeps fewer than `limit` queues, or pages of slots, that were taken back.
    fn check_kept(&mut self, peer: Peer, queues: bool, limit: usize) -> Result<(), String> {
        let kept = self.kept.count(peer.uid, queues);
        let kept = kept.map_err(|error| format!("cannot count what a user keeps: {error}"))?;
        if kept >= limit {
            let what = if queues { "queues" } else { "pages of slots" };
            let uid = peer.uid;
            return Err(format!("user {uid} keeps {kept} {what} open that were taken back"));
        }
        Ok(())
    }

    /// Attaches the firmware because a plan names the interface.
    fn attach_for(
        &mut self,
        interface: &Interface,
        observe: &mut Observer<'_>,
    ) -> Result<(), String> {
        let Interface { index, name, .. } = interface;
        if self.barred.contains(index) {
            return Err(format!("{name} was detached by hand: omnes nic attach {name}"));
        }
        let served = &self.config.interfaces;
        if !served.is_empty() && !served.contains(name) {
            return Err(format!("omnesd does not serve {name}: omnes nic attach {name}"));
        }
        self.attach(*index, name, observe).map_err(|error| error.to_string())
    }

    /// Takes back a slot that its caller returns. A number that the caller has lost may be
    /// another's now, which the caller cannot know.
    fn give_back(&mut self, id: u64, slot: u32, observe: &mut Observer<'_>) {
        let has = |session: &Session| session.slots.contains(&slot);
        if self.sessions.get(&id).is_some_and(has) {
            self.take_back(slot, "given back", observe);
        }
    }

    fn attach_by_hand(&mut self, name: &str, observe: &mut Observer<'_>) -> Done {
        let index = interfaces::index_of(name).ok_or_else(|| format!("no interface {name}"))?;
        let usable = interfaces::usable().map_err(|error| error.to_string())?;
        if !usable.iter().any(|interface| interface.index == index) {
            return Err(format!("{name} has no address or no Ethernet network, or is down"));
        }
        self.attach(index, name, observe).map_err(|error| error.to_string())?;
        self.barred.remove(&index);
        done()
    }

    fn detach_by_hand(&mut self, name: &str, by_force: bool, observe: &mut Observer<'_>) -> Done {
        let named = |(_, own): &(&u32, &String)| own.as_str() == name;
        let known = || self.attached.iter().find(named).map(|(index, _)| *index);
        // An attached interface of that name may no longer exist.
        let index = interfaces::index_of(name).or_else(known);
        let index = index.ok_or_else(|| format!("no interface {name}"))?;
        let on_it = self.loans.iter().filter(|(_, loan)| loan.interface == index);
        let slots: BTreeSet<u32> = on_it.map(|(slot, _)| *slot).collect();
        if !slots.is_empty() && !by_force {
            return Err(format!("{} slots are lent on {name}; --force takes them", slots.len()));
        }
        self.take_all_back(&slots, "detached by hand", observe);
        self.barred.insert(index);
        self.kernel.detach(index);
        if let Some(interface) = self.attached.remove(&index) {
            observe(&Event::Detached { interface });
        }
        done()
    }

    /// What is attached and lent, as far as `peer` may see it.
    fn report(&self, peer: Peer) -> Report {
        let is_shown = |loan: &Loan| peer.uid == 0 || loan.tenant.uid == peer.uid;
        let shown = self.loans.iter().filter(|(_, loan)| is_shown(loan));
        let slots = shown.map(|(slot, loan)| slot_report(*slot, loan)).collect();
        let is_hidden = |loan: &&Loan| !is_shown(loan) && loan.tenant.form != Form::Queue;
        let interface = |(index, name): (&u32, &String)| Attached {
            index: *index,
            // The interface may have been renamed since.
            name: interfaces::name_of(*index).unwrap_or_else(|| format!("{name} (gone)")),
        };
        Report {
            omnes_version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            slots_max: SLOTS_MAX,
            slots_per_user: self.config.slots_per_user,
            interfaces: self.attached.iter().map(interface).collect(),
            hidden: self.loans.values().filter(is_hidden).count() as u32,
            slots,
        }
    }
}

/// A caller that may have what it asks for.
struct Admitted {
    peer: Peer,
    sockets: Vec<(OwnedFd, SocketAddr)>,
    interface: Interface,
}

const SOCKETS_MISSING: &str = "the plan's sockets are missing";

/// Checks that `sockets` are bound to the addresses, and that these are the caller's.
fn check_sockets(
    addresses: &[SocketAddr],
    group: Option<SocketAddr>,
    sockets: &[OwnedFd],
    peer: Peer,
) -> Result<(), String> {
    if sockets.len() != addresses.len() + usize::from(group.is_some()) {
        return Err(SOCKETS_MISSING.to_owned());
    }
    // The sockets are bound to these addresses only, so no port needs to be queried twice.
    let ports: BTreeSet<u16> = addresses.iter().chain(&group).map(SocketAddr::port).collect();
    let all = Sockets::at(ports)?;
    for (socket, address) in sockets.iter().zip(addresses) {
        proof::own(socket.as_fd(), *address, peer, &all)?;
    }
    match (sockets.last(), group) {
        (Some(socket), Some(group)) => Ok(proof::group(socket.as_fd(), group, peer, &all)?),
        _ => Ok(()),
    }
}

/// The interface with an address, if the firmware can serve it.
fn usable_with_address(address: IpAddr) -> Result<Interface, String> {
    let interface = interfaces::with_address(address);
    let interface = interface.map_err(|error| format!("cannot list the interfaces: {error}"))?;
    let interface = interface.ok_or("no interface has the socket's address")?;
    if !interface.is_usable() {
        return Err(format!("{} is not an Ethernet interface", interface.name));
    }
    Ok(interface)
}

fn for_root(peer: Peer) -> Result<(), String> {
    if peer.uid == 0 { Ok(()) } else { Err("that is for root to ask".to_owned()) }
}

/// A tree in its canonical text: a plan's text may have as many zeros as a request has bytes.
fn in_few_letters(tree: &str) -> String {
    tree.parse::<Tree>().map(|tree| tree.to_string()).unwrap_or_default()
}

fn tenant(plan: &SlotPlan, peer: Peer, interface: &Interface) -> Tenant {
    let form = match (&plan.barrier, &plan.tree) {
        (Some(algorithm), _) => Form::Barrier(algorithm.clone()),
        (None, tree) => Form::Tree(tree.as_deref().map(in_few_letters).unwrap_or_default()),
    };
    Tenant {
        uid: peer.uid,
        pid: peer.pid,
        job: plan.job,
        communicator: plan.communicator,
        channel: plan.channel,
        rank: plan.rank,
        size: plan.size(),
        form,
        socket: plan.socket,
        interface: interface.name.clone(),
    }
}

fn slot_report(slot: u32, loan: &Loan) -> SlotReport {
    let Loan { tenant, since, shown, .. } = loan;
    let (entered, done) = match shown {
        Shown::Page(page) => (page.entered(), page.done()),
        Shown::Queue(_) => (0, 0),
    };
    SlotReport {
        slot,
        interface: tenant.interface.clone(),
        uid: tenant.uid,
        pid: tenant.pid,
        job: tenant.job,
        communicator: tenant.communicator,
        channel: tenant.channel,
        rank: tenant.rank,
        size: tenant.size,
        form: tenant.form.clone(),
        socket: tenant.socket,
        age_ns: u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX),
        entered,
        done,
        counters: counters(shown),
    }
}

/// The firmware's counters, by name.
fn counters(shown: &Shown) -> BTreeMap<String, u64> {
    let named: &[(&str, u64)] = match shown {
        Shown::Page(page) => {
            let counters = page.counters();
            &[
                ("packets_in", counters.packets_in),
                ("packets_out", counters.packets_out),
                ("repeated", counters.repeated),
                ("duplicates", counters.duplicates),
                ("ignored", counters.ignored),
                ("nonsense", counters.nonsense),
                ("bad_tags", counters.bad_tags),
                ("wakes", counters.wakes),
                ("clones", counters.clones),
                ("clone_failures", counters.clone_failures),
            ]
        }
        Shown::Queue(queue) => &[
            ("packets_in", u64::from(queue.filled_so_far())),
            ("passed", u64::from(queue.passed())),
        ],
    };
    named.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}
