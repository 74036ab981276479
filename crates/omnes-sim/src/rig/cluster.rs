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
//! Guarantees: the same seed and the same calls give the same trace, byte for byte. Checkers run on
//! every event; the first complaint ends the run and reports the seed and the last events.

use crate::engine::random::Random;
use crate::rig::builder::ClusterConfig;
use crate::rig::ledger::{Ledger, Operation, State, Stream};
use crate::rig::network::{InFlight, Network, NetworkCounters, Planned, Sent, SimEvent};
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

/// Communicator of [`Cluster::send`] and [`Cluster::receive`].
pub const COMMUNICATOR: CommunicatorId = CommunicatorId(1);

/// A message to send from one rank to another; see [`Cluster::post_send`].
#[derive(Clone, Debug)]
pub struct Send {
    /// Sender, receiver, channel, communicator and tag.
    pub stream: Stream,
    /// The bytes.
    pub content: Rc<[u8]>,
    /// Bytes of the content that are available so far.
    pub available: u64,
    /// How soon the sender wants its acknowledgement.
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

    /// Lets a rank act outside of an event and handles the consequences.
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

    /// Identity of a new message, from which its content is derived.
    pub(crate) fn next_identity(&mut self) -> u64 {
        self.messages += 1;
        self.config.seed ^ self.messages << 20
    }

    /// Begins to send a new message of `bytes` bytes on channel 0.
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

    /// Makes more bytes of a message available.
    pub fn extend(&mut self, rank: u32, channel: usize, send: Operation, available: u64) {
        self.act(rank, |node, _| {
            if let Some(id) = node.memory[channel].extend(send, available) {
                node.endpoint.channel_mut(channel).extend(id, available);
            }
        });
    }

    /// Makes the sender give a message up, unless all of it is available.
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

    /// Probes for a message until it arrives, then posts a receive of its length.
    pub fn receive_once_found(&mut self, rank: u32, channel: usize, pattern: Pattern) {
        self.network.trace.note(self.now, Rank(rank), format!("seeks {pattern:?}"));
        self.act(rank, |node, _| node.probes.add(channel, pattern));
    }

    /// Sends a notice: an empty message on channel 0 that needs no receive.
    pub fn give_notice(&mut self, from: u32, to: u32, tag: u32) -> Operation {
        let (from, to, communicator) = (Rank(from), Rank(to), CommunicatorId::NOTICES);
        let stream = Stream { from, to, channel: 0, communicator, tag };
        self.post_send(Send { stream, content: Rc::new([]), available: 0, reply: Reply::Lazy })
    }

    /// Keeps at most `bytes` of truesize in flight from one rank to another, as if the path were a
    /// ring in shared memory.
    pub fn limit_flight(&mut self, from: u32, to: u32, bytes: u32) {
        self.act(from, |node, _| {
            for channel in 0..node.endpoint.channels().len() {
                node.endpoint.channel_mut(channel).limit_flight(Rank(to), bytes);
            }
        });
    }

    /// Cancels a receive; false if a message has already matched it.
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

    /// Resumes a channel at one rank [PM-R21 C8].
    pub fn resume(&mut self, rank: u32, channel: usize) {
        self.network.trace.note(self.now, Rank(rank), format!("resume channel {channel}"));
        self.act(rank, |node, world| node.endpoint.channel_mut(channel).resume(world.now));
    }

    /// When a rank's channel became stable after the last [`Self::stop`].
    pub fn stable_at(&self, rank: u32, channel: usize) -> Option<Instant> {
        self.nodes[rank as usize].stable_at[channel]
    }

    /// A rank sends its farewell with its last packets and leaves the job in good order.
    pub fn leave(&mut self, rank: u32) {
        self.network.trace.note(self.now, Rank(rank), "leaves".to_owned());
        let has_delivered = self.is_idle(rank);
        self.act(rank, |node, world| {
            node.endpoint.leave();
            // No rank leaves before everything has been sent.
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

    /// A rank ignores the network for a while, as during a computation.
    pub fn distract(&mut self, rank: u32, time: Duration) {
        self.network.trace.note(self.now, Rank(rank), format!("looks away for {time:?}"));
        self.act(rank, |node, world| node.look_away(world.now, time));
    }

    /// A rank is stopped for a while, as by a signal: it receives nothing, and is notified of the
    /// pause when it resumes.
    pub fn suspend(&mut self, rank: u32, time: Duration) {
        self.network.trace.note(self.now, Rank(rank), format!("is stopped for {time:?}"));
        self.act(rank, |node, world| node.suspend(world, time));
    }

    /// A rank is stopped until `until`, long enough for the others to declare it failed: it counts
    /// as dead from now on, resumes at `until`, and runs until it hears that it is excluded.
    pub fn freeze(&mut self, rank: u32, until: Instant) {
        self.suspend(rank, until.since(self.now));
        self.give_up(Rank(rank));
    }

    /// A rank is stopped until `until`, so long that the others may declare it failed: it counts as
    /// dead as soon as one of them does.
    pub fn freeze_perhaps(&mut self, rank: u32, until: Instant) {
        self.suspend(rank, until.since(self.now));
        self.doubtful = Some(Rank(rank));
    }

    /// The rank counts as dead, but packets still reach it.
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

    /// A rank dies at `at`.
    pub fn crash_at(&mut self, rank: u32, at: Instant) {
        self.at(at, move |cluster| cluster.crash(rank));
    }

    /// Runs `deed` at `at`.
    pub fn at(&mut self, at: Instant, deed: impl FnOnce(&mut Self) + 'static) {
        self.network.queue.push(at.as_ns(), SimEvent::Planned(Planned(Box::new(deed))));
    }

    /// Keeps a fault in force for as long as the guard lives.
    pub fn rule(&mut self, rule: Rule) -> Guard {
        self.network.trace.note(self.now, Rank(0), format!("{rule:?}"));
        self.network.rules.add(rule)
    }

    // ---- time -----------------------------------------------------------------------------

    /// Handles the next event; false if there is none up to and including `until`.
    fn step(&mut self, until: Instant) -> bool {
        if self.network.queue.next_at().is_none_or(|at| at > until.as_ns()) {
            return false;
        }
        let Some((at, happening)) = self.network.queue.pop() else { return false };
        let at = Instant::from_ns(at);
        assert!(at >= self.now, "time runs back");
        self.now = at;
        match happening {
            SimEvent::Link(packet) => {
                if let Some(packet) = self.network.pass_link(at, packet) {
                    self.deliver(packet);
                }
            }
            SimEvent::Deliver(packet) => self.deliver(packet),
            SimEvent::Doorstep(sent) => self.pass_doorstep(&sent),
            SimEvent::Wake(rank) => self.run_node(rank),
            SimEvent::Planned(Planned(deed)) => deed(self),
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
        // The socket drops the newest packet, so its bytes are recorded in the trace.
        let head: Vec<u8> = packet.bytes.iter().copied().take(48).collect();
        if !node.enqueue(packet, bytes_max) {
            self.network.counters.overruns += 1;
            self.network.note_farewell_lost(&head);
            self.network.trace.packet(self.now, What::Overrun, from, to, &head);
            return;
        }
        self.run_node(to);
    }

    /// A delayed packet of a rank reaches the NIC of its own node.
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

    /// Advances time to `until`.
    pub fn run_until(&mut self, until: Instant) {
        while self.step(until) {}
        self.now = self.now.max(until);
    }

    /// Advances time by `time`.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    /// Runs while a condition holds, evaluating it after each event; false if it still held after
    /// `patience`.
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

    /// Runs until every operation has ended and no machine has anything left to send.
    ///
    /// # Panics
    /// If the cluster is not quiescent within [`ClusterConfig::patience`].
    pub fn run_until_quiescent(&mut self) {
        let patience = self.config.patience;
        if !self.run_while(patience, |cluster| !cluster.is_quiescent()) {
            self.fail(&format!("hangs: not quiescent after {patience:?}"));
        }
    }

    /// True if every operation has ended and no machine has anything left to send.
    pub fn is_quiescent(&self) -> bool {
        let is_done = |node: &Node| !node.is_member() || node.is_idle();
        !self.ledger.has_pending() && self.nodes.iter().all(is_done)
    }

    /// True if no machine of a rank has anything left to send.
    pub fn is_idle(&self, rank: u32) -> bool {
        self.nodes[rank as usize].is_idle()
    }

    /// True if every operation of a rank has ended and the rank has nothing left to send.
    pub(crate) fn has_finished(&self, rank: u32) -> bool {
        self.is_idle(rank) && !self.ledger.has_pending_of(Rank(rank))
    }

    /// Runs one script per rank until all are done; returns their outcomes. Ranks that die during
    /// the run do not count.
    ///
    /// # Panics
    /// If the scripts are not done within [`ClusterConfig::patience`].
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

    // ---- inspection -----------------------------------------------------------------------

    /// Number of ranks of the job.
    pub fn size(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Counters of channel 0 of a rank.
    pub fn counters(&self, rank: u32) -> &ChannelCounters {
        self.endpoint(rank).channels()[0].counters()
    }

    /// Counters of a rank's gate.
    pub fn gate(&self, rank: u32) -> &GateCounters {
        self.endpoint(rank).counters()
    }

    /// Counters of the network.
    pub fn network_counters(&self) -> &NetworkCounters {
        &self.network.counters
    }

    /// The endpoint of a rank.
    pub fn endpoint(&self, rank: u32) -> &Endpoint {
        &self.nodes[rank as usize].endpoint
    }

    /// Most packets that any lane has had in flight.
    pub fn window_packets_seen(&self) -> u32 {
        self.network.bounds.window_packets_seen
    }

    /// State of an operation.
    pub fn state(&self, operation: Operation) -> State {
        self.ledger.state(operation)
    }

    /// Stream and content of a completed receive.
    pub fn received(&self, receive: Operation) -> Option<(&Stream, &[u8])> {
        self.ledger.content(receive)
    }

    /// Time at which `rank` was notified that `failed` has failed.
    pub fn named_at(&self, rank: u32, failed: u32) -> Option<Instant> {
        self.nodes[rank as usize].failed.get(&Rank(failed)).copied()
    }

    /// Time at which `rank` was notified that `departed` has left in good order.
    pub fn departed_at(&self, rank: u32, departed: u32) -> Option<Instant> {
        self.nodes[rank as usize].departed.get(&Rank(departed)).copied()
    }

    /// True if a peer has notified `rank` that it is excluded.
    pub fn is_excluded(&self, rank: u32) -> bool {
        !self.nodes[rank as usize].excluded_by.is_empty()
    }

    /// Ranks that have died or left.
    pub fn dead(&self) -> BTreeSet<Rank> {
        self.nodes.iter().filter(|node| !node.is_member()).map(|node| node.rank).collect()
    }

    /// Ranks that have left in good order and that no living rank has named as failed.
    pub(crate) fn left(&self) -> BTreeSet<Rank> {
        let is_named = |rank: &Rank| {
            let mut living = self.nodes.iter().filter(|node| node.is_member());
            living.any(|node| node.failed.contains_key(rank))
        };
        let left = self.nodes.iter().filter(|node| node.has_left()).map(|node| node.rank);
        left.filter(|rank| !is_named(rank)).collect()
    }

    /// Ranks of [`Self::left`] whose messages had all arrived.
    pub(crate) fn delivered(&self) -> BTreeSet<Rank> {
        let delivered = Membership::Left { has_delivered: true };
        let has_delivered = |rank: &Rank| self.nodes[rank.index()].membership == delivered;
        self.left().into_iter().filter(has_delivered).collect()
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Hash of the run; two runs have equal hashes only if they did the same.
    pub fn trace_hash(&self) -> u64 {
        self.network.trace.hash()
    }

    /// Number of packets, commands and events so far.
    pub fn events(&self) -> u64 {
        self.network.trace.events()
    }

    /// Seed, time, last events and pending operations, for a failure report.
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

    /// Runs a checker.
    ///
    /// # Panics
    /// If the checker complains.
    pub fn check(&self, checker: crate::Checker) {
        if let Err(text) = checker(self) {
            self.fail(&text);
        }
    }
}
