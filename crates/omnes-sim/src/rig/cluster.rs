//! The rig itself: ranks and network in virtual time, driven by one event queue.
//!
//! ```
//! use omnes_sim::{Cluster, delivered_once_in_order, drop};
//! use omnes_wire::Kind;
//!
//! let mut cluster = Cluster::builder().ranks(4).seed(7).build();
//! let _loss = cluster.rule(drop().kind(Kind::Data).seq(3).to(2).times(1));
//! cluster.send(0, 2, 1, 10_000);
//! cluster.receive(2, 0, 1, 10_000);
//! cluster.run_until_quiescent();
//! cluster.check(delivered_once_in_order);
//! assert_eq!(cluster.counters(0).retransmits, 1);
//! ```
//!
//! Guarantees: the same seed and the same calls give the same trace, byte for byte. Checkers look
//! on all the time; the first complaint ends the run with seed and last events.

use crate::engine::random::Random;
use crate::rig::builder::ClusterConfig;
use crate::rig::ledger::{Ledger, Operation, State, Stream};
use crate::rig::network::{Happening, InFlight, Network, NetworkCounters, Planned, Sent};
use crate::rig::node::{Draining, Membership, Node, World};
use crate::rig::payload::content;
use crate::rig::program::Program;
use crate::rig::rule::{Guard, Rule};
use crate::rig::script::{BarrierGroup, Outcome, Script};
use crate::rig::trace::What;
use omnes_proto::broadcast::Policy;
use omnes_proto::channel::{ChannelCounters, Pattern, Reply};
use omnes_proto::endpoint::{Endpoint, GateCounters};
use omnes_wire::{CommunicatorId, Instant, Rank};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// The communicator of the short forms of send and receive.
pub const COMMUNICATOR: CommunicatorId = CommunicatorId(1);

/// A message to send from one rank to another; see [`Cluster::post_send`].
#[derive(Clone, Debug)]
pub struct Send {
    /// Who sends to whom, on what, with which tag.
    pub stream: Stream,
    /// The bytes.
    pub content: Rc<[u8]>,
    /// How many of them are there already.
    pub available: u64,
    /// When the sender wants its answer.
    pub reply: Reply,
}

/// See the module header.
pub struct Cluster {
    pub(crate) config: ClusterConfig,
    now: Instant,
    pub(crate) nodes: Vec<Node>,
    pub(crate) network: Network,
    ledger: Ledger,
    complaint: Option<String>,
    pub(crate) strangers: Random,
    messages: u64,
    /// See [`Self::freeze_perhaps`].
    doubtful: Option<Rank>,
    /// Groups that [`Self::open_group_of_all`] has opened.
    pub(crate) groups: u8,
    /// Policies of scripts, by the number of their group.
    pub(crate) script_policies: Vec<Policy>,
    /// Groups of scripts for barriers, by number.
    pub(crate) script_barriers: Vec<BarrierGroup>,
}

impl Cluster {
    pub(crate) fn new(config: ClusterConfig, nodes: Vec<Node>, network: Network) -> Self {
        let strangers = Random::named(config.seed, "strangers", 0);
        let mut cluster = Self {
            config,
            now: Instant::ZERO,
            nodes,
            network,
            ledger: Ledger::default(),
            complaint: None,
            strangers,
            messages: 0,
            doubtful: None,
            groups: 0,
            script_policies: Vec::new(),
            script_barriers: Vec::new(),
        };
        for rank in 0..cluster.size() {
            cluster.act(rank, |_, _| {});
        }
        cluster
    }

    // ---- commands -------------------------------------------------------------------------

    /// Lets a rank do something outside of an event, and then what follows from it.
    pub(crate) fn act<T>(
        &mut self,
        rank: u32,
        action: impl FnOnce(&mut Node, &mut World) -> T,
    ) -> T {
        let result = self.at_node(Rank(rank), |node, world| {
            let result = action(node, world);
            if node.acts() {
                node.drain(world);
            }
            node.run(world);
            result
        });
        self.complain();
        self.decide_doubt();
        result
    }

    /// Lends the rest of the rig to a rank.
    fn at_node<T>(&mut self, rank: Rank, action: impl FnOnce(&mut Node, &mut World) -> T) -> T {
        let Self { nodes, network, ledger, complaint, config, now, .. } = self;
        let ClusterConfig { previews, draining, runs, packet_time, .. } = *config;
        let now = *now;
        let mut world =
            World { now, network, ledger, complaint, previews, draining, runs, packet_time };
        action(&mut nodes[rank.index()], &mut world)
    }

    fn complain(&self) {
        if let Some(complaint) = &self.complaint {
            self.fail(complaint);
        }
    }

    /// What the content of a new message follows from.
    pub(crate) fn next_identity(&mut self) -> u64 {
        self.messages += 1;
        self.config.seed ^ self.messages << 20
    }

    /// Begins to send a new message of `bytes` on channel 0.
    pub fn send(&mut self, from: u32, to: u32, tag: u32, bytes: usize) -> Operation {
        let content = content(self.next_identity(), bytes);
        let (from, to) = (Rank(from), Rank(to));
        let stream = Stream { from, to, channel: 0, communicator: COMMUNICATOR, tag };
        let available = bytes as u64;
        self.post_send(Send { stream, content, available, reply: Reply::Soon })
    }

    /// Begins to send a message. If the machine refuses, the operation has failed.
    pub fn post_send(&mut self, send: Send) -> Operation {
        let Send { stream, content, available, reply } = send;
        let bytes = content.len();
        let note = format!("send {}>{} tag={} {bytes} B", stream.from, stream.to, stream.tag);
        self.network.trace.note(self.now, stream.from, note);
        self.act(stream.from.0, |node, world| node.send(world, stream, content, available, reply))
    }

    /// More of a message is there.
    pub fn extend(&mut self, rank: u32, channel: usize, send: Operation, available: u64) {
        self.act(rank, |node, _| {
            if let Some(id) = node.memory[channel].extend(send, available) {
                node.endpoint.channel_mut(channel).extend(id, available);
            }
        });
    }

    /// The sender gives a message up, unless all of it is there.
    pub fn cut(&mut self, rank: u32, channel: usize, send: Operation) {
        self.network.trace.note(self.now, Rank(rank), format!("cuts {send:?}"));
        self.act(rank, |node, world| node.cut(world, channel, send));
    }

    /// Posts a receive on channel 0.
    pub fn receive(&mut self, rank: u32, from: u32, tag: u32, capacity: u64) -> Operation {
        let source = Some(Rank(from));
        let pattern = Pattern { communicator: COMMUNICATOR, source, tag: Some(tag) };
        self.post_receive(rank, 0, pattern, capacity)
    }

    /// Posts a receive.
    pub fn post_receive(
        &mut self,
        rank: u32,
        channel: usize,
        pattern: Pattern,
        capacity: u64,
    ) -> Operation {
        let note = format!("receive {pattern:?} capacity {capacity}");
        self.network.trace.note(self.now, Rank(rank), note);
        self.act(rank, |node, world| node.receive(world, channel, pattern, capacity))
    }

    /// Probes for a message until it is here, then receives it as long as it is.
    pub fn receive_once_found(&mut self, rank: u32, channel: usize, pattern: Pattern) {
        self.network.trace.note(self.now, Rank(rank), format!("seeks {pattern:?}"));
        self.act(rank, |node, _| node.probes.add(channel, pattern));
    }

    /// Gives notice: an empty message on channel 0 that needs no receive.
    pub fn give_notice(&mut self, from: u32, to: u32, tag: u32) -> Operation {
        let (from, to, communicator) = (Rank(from), Rank(to), CommunicatorId::NOTICES);
        let stream = Stream { from, to, channel: 0, communicator, tag };
        self.post_send(Send { stream, content: Rc::new([]), available: 0, reply: Reply::Lazy })
    }

    /// Keeps at most so many bytes of truesize in flight from a rank to another, as if a ring in
    /// shared memory led there.
    pub fn limit_flight(&mut self, from: u32, to: u32, bytes: u32) {
        self.act(from, |node, _| {
            for channel in 0..node.endpoint.channels().len() {
                node.endpoint.channel_mut(channel).limit_flight(Rank(to), bytes);
            }
        });
    }

    /// Takes a receive back; false if a message has come for it.
    pub fn cancel(&mut self, rank: u32, channel: usize, receive: Operation) -> bool {
        self.act(rank, |node, world| node.cancel(world, channel, receive))
    }

    /// Stops a channel at one rank [PM-R21 C1].
    pub fn stop(&mut self, rank: u32, channel: usize) {
        self.network.trace.note(self.now, Rank(rank), format!("stop channel {channel}"));
        self.act(rank, |node, world| {
            node.stable_at[channel] = None;
            node.endpoint.channel_mut(channel).stop(world.now);
        });
    }

    /// Lets a channel at one rank send again [PM-R21 C8].
    pub fn resume(&mut self, rank: u32, channel: usize) {
        self.network.trace.note(self.now, Rank(rank), format!("resume channel {channel}"));
        self.act(rank, |node, world| node.endpoint.channel_mut(channel).resume(world.now));
    }

    /// When the channel of a rank became stable after the last [`Self::stop`].
    pub fn stable_at(&self, rank: u32, channel: usize) -> Option<Instant> {
        self.nodes[rank as usize].stable_at[channel]
    }

    /// A rank says farewell and leaves the job in good order, with its last packets.
    pub fn leave(&mut self, rank: u32) {
        self.network.trace.note(self.now, Rank(rank), "leaves".to_owned());
        let has_delivered = self.is_idle(rank);
        self.act(rank, |node, world| {
            node.endpoint.leave();
            // Nobody leaves before all has been sent.
            world.draining = Draining::PacketsFirst;
        });
        self.bury(rank, Membership::Left { has_delivered });
    }

    fn bury(&mut self, rank: u32, membership: Membership) {
        self.nodes[rank as usize].membership = membership;
        self.ledger.bury(Rank(rank));
        self.network.bury(Rank(rank));
        self.network.casts.bury(Rank(rank));
    }

    /// A rank looks away from the network for a while, as it computes.
    pub fn distract(&mut self, rank: u32, time: Duration) {
        self.network.trace.note(self.now, Rank(rank), format!("looks away for {time:?}"));
        self.act(rank, |node, world| node.look_away(world.now, time));
    }

    /// A rank is stopped for a while, as by a signal: it hears nobody, and is told so when it goes
    /// on.
    pub fn suspend(&mut self, rank: u32, time: Duration) {
        self.network.trace.note(self.now, Rank(rank), format!("is stopped for {time:?}"));
        self.act(rank, |node, world| node.suspend(world, time));
    }

    /// A rank is stopped until `until`, so long that the others give it up: it counts as dead from
    /// now on, and goes on then until it hears that it is out.
    pub fn freeze(&mut self, rank: u32, until: Instant) {
        self.suspend(rank, until.since(self.now));
        self.give_up(Rank(rank));
    }

    /// A rank is stopped until `until`, so long that the others may give it up: it counts as dead
    /// as soon as one of them does.
    pub fn freeze_perhaps(&mut self, rank: u32, until: Instant) {
        self.suspend(rank, until.since(self.now));
        self.doubtful = Some(Rank(rank));
    }

    /// It counts as dead, but packets still reach it.
    fn give_up(&mut self, rank: Rank) {
        let node = &mut self.nodes[rank.index()];
        node.membership = Membership::Revenant;
        node.probes.seek_no_more();
        self.ledger.bury(rank);
        self.network.casts.bury(rank);
    }

    fn decide_doubt(&mut self) {
        let is_named = |rank: &mut Rank| self.nodes.iter().any(|it| it.failed.contains_key(rank));
        if let Some(rank) = self.doubtful.take_if(is_named) {
            self.give_up(rank);
        }
    }

    /// A rank dies now.
    pub fn crash(&mut self, rank: u32) {
        self.network.trace.note(self.now, Rank(rank), "dies".to_owned());
        self.bury(rank, Membership::Dead);
    }

    /// A rank dies at a time to come.
    pub fn crash_at(&mut self, rank: u32, at: Instant) {
        self.at(at, move |cluster| cluster.crash(rank));
    }

    /// Does something at a time to come.
    pub fn at(&mut self, at: Instant, deed: impl FnOnce(&mut Self) + 'static) {
        self.network.queue.push(at.as_ns(), Happening::Planned(Planned(Box::new(deed))));
    }

    /// Brings a fault into force for as long as the guard lives.
    pub fn rule(&mut self, rule: Rule) -> Guard {
        self.network.trace.note(self.now, Rank(0), format!("{rule:?}"));
        self.network.rules.add(rule)
    }

    // ---- time -----------------------------------------------------------------------------

    /// Handles the next event; false if there is none before or at `until`.
    fn step(&mut self, until: Instant) -> bool {
        if self.network.queue.next_at().is_none_or(|at| at > until.as_ns()) {
            return false;
        }
        let Some((at, happening)) = self.network.queue.pop() else { return false };
        let at = Instant::from_ns(at);
        assert!(at >= self.now, "time runs back");
        self.now = at;
        match happening {
            Happening::Link(packet) => {
                if let Some(packet) = self.network.pass_link(at, packet) {
                    self.deliver(packet);
                }
            }
            Happening::Deliver(packet) => self.deliver(packet),
            Happening::Doorstep(sent) => self.pass_doorstep(&sent),
            Happening::Wake(rank) => self.run_node(rank),
            Happening::Planned(Planned(deed)) => deed(self),
        }
        self.complain();
        self.decide_doubt();
        true
    }

    fn deliver(&mut self, packet: InFlight) {
        let to = packet.to;
        if !self.nodes[to.index()].acts() {
            return;
        }
        let (goes_on, is_called) = self.at_node(to, |node, world| {
            (node.pass_nic(world, &packet), node.is_called_by_nic(world))
        });
        if !goes_on {
            if is_called {
                self.run_node(to);
            }
            return;
        }
        let node = &mut self.nodes[to.index()];
        let from = packet.from.unwrap_or(to);
        let bytes_max = self.network.config.receive_queue_bytes;
        // The socket drops the newest, so its bytes are worth a line in the trace.
        let head: Vec<u8> = packet.bytes.iter().copied().take(48).collect();
        if !node.enqueue(packet, bytes_max) {
            self.network.counters.overruns += 1;
            self.network.note_farewell_lost(&head);
            self.network.trace.packet(self.now, What::Overrun, from, to, &head);
            return;
        }
        self.run_node(to);
    }

    /// A packet of a rank for the NIC of its own node was late.
    fn pass_doorstep(&mut self, sent: &Sent) {
        let rank = sent.from;
        if !self.nodes[rank.index()].acts() {
            return;
        }
        self.at_node(rank, |node, world| node.pass_nic_outwards(world, sent));
        if self.at_node(rank, |node, world| node.is_called_by_nic(world)) {
            self.run_node(rank);
        }
    }

    fn run_node(&mut self, rank: Rank) {
        self.at_node(rank, |node, world| node.run(world));
    }

    /// Lets time pass until `until`.
    pub fn run_until(&mut self, until: Instant) {
        while self.step(until) {}
        self.now = self.now.max(until);
    }

    /// Lets this much time pass.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    /// Runs until a condition holds, which is asked after each event; false if it did not come
    /// true within `patience`.
    pub fn run_while(
        &mut self,
        patience: Duration,
        mut goes_on: impl FnMut(&Self) -> bool,
    ) -> bool {
        let until = self.now + patience;
        while goes_on(self) {
            if !self.step(until) {
                self.now = until;
                return false;
            }
        }
        true
    }

    /// Runs until every operation has ended and no machine has anything left to say.
    ///
    /// # Panics
    /// If that does not come about within [`ClusterConfig::patience`].
    pub fn run_until_quiescent(&mut self) {
        let patience = self.config.patience;
        if !self.run_while(patience, |cluster| !cluster.is_quiescent()) {
            self.fail(&format!("hangs: not quiescent after {patience:?}"));
        }
    }

    /// True if every operation has ended and no machine has anything left to say.
    pub fn is_quiescent(&self) -> bool {
        let is_done = |node: &Node| !node.is_member() || node.is_idle();
        !self.ledger.has_pending() && self.nodes.iter().all(is_done)
    }

    /// True if no machine of a rank has anything left to say.
    pub fn is_idle(&self, rank: u32) -> bool {
        self.nodes[rank as usize].is_idle()
    }

    /// True if every operation of a rank has ended and it has nothing left to say.
    pub(crate) fn has_finished(&self, rank: u32) -> bool {
        self.is_idle(rank) && !self.ledger.has_pending_of(Rank(rank))
    }

    /// Carries out one script per rank, until all are done; what came of them. Ranks that die on
    /// the way do not count.
    ///
    /// # Panics
    /// If they are not done within [`ClusterConfig::patience`].
    pub fn run_scripts(&mut self, scripts: Vec<Script>) -> Vec<Outcome> {
        assert_eq!(scripts.len(), self.nodes.len(), "one script for each rank");
        self.open_script_groups(&scripts);
        self.open_script_barriers(&scripts);
        for (rank, script) in (0..).zip(scripts) {
            self.act(rank, |node, _| node.program = Program::new(script));
        }
        let is_done = |node: &Node| !node.is_member() || node.program.outcome.is_complete;
        let patience = self.config.patience;
        if !self.run_while(patience, |cluster| !cluster.nodes.iter().all(is_done)) {
            self.fail(&format!("hangs: a script is not done after {patience:?}"));
        }
        self.run_until_quiescent();
        self.nodes.iter_mut().map(|node| std::mem::take(&mut node.program.outcome)).collect()
    }

    // ---- what can be seen -----------------------------------------------------------------

    /// Ranks of the job.
    pub fn size(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// What channel 0 of a rank has counted.
    pub fn counters(&self, rank: u32) -> &ChannelCounters {
        self.endpoint(rank).channels()[0].counters()
    }

    /// What the gate of a rank has counted.
    pub fn gate(&self, rank: u32) -> &GateCounters {
        self.endpoint(rank).counters()
    }

    /// What the network has done.
    pub fn network_counters(&self) -> &NetworkCounters {
        &self.network.counters
    }

    /// The endpoint of a rank.
    pub fn endpoint(&self, rank: u32) -> &Endpoint {
        &self.nodes[rank as usize].endpoint
    }

    /// Most packets that any lane had in flight so far.
    pub fn window_packets_seen(&self) -> u32 {
        self.network.bounds.window_packets_seen
    }

    /// How an operation stands.
    pub fn state(&self, operation: Operation) -> State {
        self.ledger.state(operation)
    }

    /// Stream and content of a completed receive.
    pub fn received(&self, receive: Operation) -> Option<(&Stream, &[u8])> {
        self.ledger.content(receive)
    }

    /// When `rank` was told that `failed` has failed.
    pub fn named_at(&self, rank: u32, failed: u32) -> Option<Instant> {
        self.nodes[rank as usize].failed.get(&Rank(failed)).copied()
    }

    /// When `rank` was told that `departed` has left in good order.
    pub fn departed_at(&self, rank: u32, departed: u32) -> Option<Instant> {
        self.nodes[rank as usize].departed.get(&Rank(departed)).copied()
    }

    /// True if somebody has told `rank` that it is out.
    pub fn is_excluded(&self, rank: u32) -> bool {
        !self.nodes[rank as usize].excluded_by.is_empty()
    }

    /// Ranks that have died or left.
    pub fn dead(&self) -> BTreeSet<Rank> {
        self.nodes.iter().filter(|node| !node.is_member()).map(|node| node.rank).collect()
    }

    /// Those of them that have left in good order, as far as everybody knows.
    pub(crate) fn left(&self) -> BTreeSet<Rank> {
        let is_named = |rank: &Rank| {
            let mut living = self.nodes.iter().filter(|node| node.is_member());
            living.any(|node| node.failed.contains_key(rank))
        };
        let left = self.nodes.iter().filter(|node| node.has_left()).map(|node| node.rank);
        left.filter(|rank| !is_named(rank)).collect()
    }

    /// Those of [`Self::left`] whose messages had all arrived.
    pub(crate) fn delivered(&self) -> BTreeSet<Rank> {
        let delivered = Membership::Left { has_delivered: true };
        let has_delivered = |rank: &Rank| self.nodes[rank.index()].membership == delivered;
        self.left().into_iter().filter(has_delivered).collect()
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// A number that two runs share only if they did the same.
    pub fn trace_hash(&self) -> u64 {
        self.network.trace.hash()
    }

    /// Packets, commands and events so far.
    pub fn events(&self) -> u64 {
        self.network.trace.events()
    }

    /// Seed, time, last events and open operations, for the report of a failure.
    pub fn report(&self) -> String {
        let open: Vec<Operation> = self.ledger.pending().collect();
        let lines = open.iter().take(20).map(|operation| self.ledger.describe(*operation));
        let lines: String = lines.map(|line| format!("  {line}\n")).collect();
        format!(
            "seed {} at {} ns\nlast events:\n{}{} operations open:\n{lines}",
            self.config.seed,
            self.now.as_ns(),
            self.network.trace.last_lines(),
            open.len(),
        )
    }

    /// Ends the run with a report.
    ///
    /// # Panics
    /// Always.
    pub fn fail(&self, text: &str) -> ! {
        panic!("{text}\n{}", self.report());
    }

    /// Asks a checker.
    ///
    /// # Panics
    /// If it complains.
    pub fn check(&self, checker: crate::Checker) {
        if let Err(text) = checker(self) {
            self.fail(&text);
        }
    }
}
