//! The kernel NIC at the edge of one node, equivalent to `firmware/nic.bpf.c` and `nic_barrier.h`.
//!
//! It runs the firmware's native form ([`omnes_firmware`]) with the firmware's own tags and
//! reproduces the entry points of the C file around it, in their order and with their verdicts:
//!
//! ```text
//!   wire ─▶ ingress: slot, tag, step ─┬─▶ host (not ours, or a wake)
//!                                     └─▶ next steps, back to the wire
//!   host ─▶ egress: slot, enter ──────┬─▶ wire, as it is (not ours, or a question)
//!                                     └─▶ all steps that may leave
//! ```
//!
//! Guarantees: pure; packets that leave are returned, not sent. A packet without a slot, or on
//! another socket than the slot's, passes unchanged.
//!
//! Assumes: MAC addresses are known. Not done: forwarding of packets to all (multi-send).

use crate::rig::rule::Way;
use omnes_firmware::barrier::{Action, Barrier, Contribution, Table, Verdict};
use omnes_firmware::{Key, tag};
use omnes_proto::collective::{BarrierGroupConfig, NicView};
use omnes_proto::group::Nodes;
use omnes_proto::packet::Destination;
use omnes_topo::Party;
use omnes_wire::{
    CARRIED_MAX, COMBINE_SHIFT, ChannelId, CommunicatorId, Flags, HEADER_BYTES, Header, JobId,
    JobKey, Kind, PACKET_OVERHEAD_BYTES, Rank, Seq, Tag, Words,
};
use std::collections::BTreeMap;

/// Words of a bitmap with one bit per member.
const ARRIVED_WORDS: usize = omnes_firmware::KERNEL_GROUP_MAX / 64;

/// Counters of a slot, as its page shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NicCounters {
    /// Packets with a valid tag, whatever their verdict.
    pub packets_in: u64,
    /// Steps sent; a multicast counts once.
    pub packets_out: u64,
    /// Steps retransmitted because a member had missed them.
    pub repeated: u64,
    /// Steps received before.
    pub duplicates: u64,
    /// Packets that were of no use when they arrived.
    pub ignored: u64,
    /// Steps that no valid member would send.
    pub nonsense: u64,
    /// Packets of strangers.
    pub bad_tags: u64,
    /// Packets passed on to wake the host.
    pub wakes: u64,
}

/// A packet that leaves the node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Leaving {
    pub(crate) to: Destination,
    pub(crate) bytes: Vec<u8>,
}

/// Whether the host of a slot polls the page by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Host {
    /// The host polls, now or soon.
    Awake,
    /// The host does not poll: the packet that ends a barrier must wake it.
    Asleep,
}

/// Result of a packet from the wire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Passage {
    /// The packet goes on to the host.
    pub(crate) goes_on: bool,
    /// The tag was valid, and the slot has processed the packet.
    pub(crate) is_taken: bool,
    /// Packets that leave in response.
    pub(crate) leaving: Vec<Leaving>,
}

impl Passage {
    /// A packet for no slot.
    fn unseen() -> Self {
        Self { goes_on: true, is_taken: false, leaving: Vec::new() }
    }
}

/// One member's slot; see `firmware/slot.h`.
struct Slot {
    job: JobId,
    communicator: CommunicatorId,
    rank: Rank,
    key: Key,
    table: Table,
    /// One of the table's steps waits for all members.
    waits_for_all: bool,
    barrier: Barrier,
    nodes: Nodes,
    job_key: JobKey,
    /// Keys of the members from which packets have arrived.
    keys: BTreeMap<Rank, Key>,
    page: Page,
}

/// The state that the member's process sees.
#[derive(Debug)]
struct Page {
    entered: u32,
    done: u32,
    at: u32,
    results: [u64; CARRIED_MAX],
    arrived: [u64; ARRIVED_WORDS],
    counters: NicCounters,
    /// The last view that the process has read.
    seen: Option<NicView>,
}

/// All slots of one node; see the module header.
#[derive(Default)]
pub(crate) struct Nic {
    slots: BTreeMap<CommunicatorId, Slot>,
}

/// A packet about a step, with its tag; `None` for packets that belong to no slot.
fn step_of(packet: &[u8]) -> Option<(Header, Tag)> {
    let (header, tag) = Header::parse(packet).ok()?;
    let is_step = matches!(header.kind, Kind::Step | Kind::StepNack);
    is_step.then_some((header, tag))
}

/// The words that a packet about a step carries, if its length is as stated in its header; a
/// request carries none: `nic_read_words`.
fn words_of(header: &Header, packet: &[u8]) -> Option<Words> {
    let behind = packet.get(PACKET_OVERHEAD_BYTES..)?;
    let words = Words::parse(header, behind)?;
    let may_carry = header.kind == Kind::Step || behind.is_empty();
    (may_carry && behind.len() == Words::bytes_behind(header)).then_some(words)
}

fn key_of(job: &JobKey, rank: Rank) -> Key {
    Key::new(job.sender(rank).to_bytes())
}

/// The index of the node that `rank` leads, if it leads one.
fn leader_index(nodes: &Nodes, rank: Rank) -> Option<u32> {
    let place = nodes.place(rank)?;
    (nodes.leader(place.node) == rank).then_some(place.node)
}

impl Nic {
    /// True if any slot is open.
    pub(crate) fn has_slots(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Opens a slot for `me`, a member of `group`, replacing one of the same communicator; opens
    /// none if this member does not lead one of several nodes.
    pub(crate) fn open(
        &mut self,
        (job, key): (JobId, &JobKey),
        me: Rank,
        group: &BarrierGroupConfig,
    ) {
        let communicator = group.communicator;
        self.slots.remove(&communicator);
        let nodes = group.nodes.clone();
        let Some(own) = leader_index(&nodes, me) else { return };
        if nodes.count() < 2 {
            return;
        }
        let table = Table::new(group.algorithm, own, nodes.count(), group.is_multicast);
        let Ok(table) = table else { panic!("own is below the number of nodes") };
        let slot = Slot {
            job,
            communicator,
            rank: me,
            key: key_of(key, me),
            waits_for_all: (0..table.steps()).any(|it| table.receive_from(it) == Party::Everybody),
            barrier: Barrier::after(&table, 0),
            table,
            nodes,
            job_key: key.clone(),
            keys: BTreeMap::new(),
            page: Page {
                entered: 0,
                done: 0,
                at: 0,
                results: [0; CARRIED_MAX],
                arrived: [0; ARRIVED_WORDS],
                counters: NicCounters::default(),
                seen: None,
            },
        };
        self.slots.insert(communicator, slot);
    }

    /// Releases a slot.
    pub(crate) fn close(&mut self, communicator: CommunicatorId) {
        self.slots.remove(&communicator);
    }

    /// Steps retransmitted for all groups.
    pub(crate) fn repeated(&self) -> u64 {
        self.slots.values().map(|slot| slot.page.counters.repeated).sum()
    }

    /// Counters of a slot.
    pub(crate) fn counters(&self, communicator: CommunicatorId) -> Option<&NicCounters> {
        self.slots.get(&communicator).map(|slot| &slot.page.counters)
    }

    /// The contents of a slot's page, if they are new to the process.
    pub(crate) fn look(&mut self, communicator: CommunicatorId) -> Option<NicView> {
        let page = &mut self.slots.get_mut(&communicator)?.page;
        let view = page.view();
        (page.seen.replace(view) != Some(view)).then_some(view)
    }

    /// True if the page of a slot shows something that the process has not read.
    pub(crate) fn has_news(&self, communicator: CommunicatorId) -> bool {
        let slot = self.slots.get(&communicator);
        slot.is_some_and(|slot| slot.page.seen != Some(slot.page.view()))
    }

    /// A packet arrives from the wire: `nic_ingress`.
    pub(crate) fn ingress(&mut self, way: Way, packet: &[u8], host: Host) -> Passage {
        let Some((header, tag)) = step_of(packet) else { return Passage::unseen() };
        let slot = self.slots.get_mut(&header.communicator);
        let Some(slot) = slot.filter(|slot| slot.is_at(way, &header)) else {
            return Passage::unseen();
        };
        let words = words_of(&header, packet);
        let from = words.and_then(|_| slot.sender(packet, &header, tag));
        let Some((from, words)) = from.zip(words) else {
            slot.page.counters.bad_tags += 1;
            return Passage { goes_on: false, is_taken: false, leaving: Vec::new() };
        };
        let (goes_on, leaving) = match header.kind {
            Kind::Step => slot.arrived((&header, words), from, host),
            _ => (false, slot.missed(&header, from)),
        };
        Passage { goes_on, is_taken: true, leaving }
    }

    /// The host sends a packet through the slot's socket: `nic_egress`. Returns the packets that
    /// leave.
    pub(crate) fn egress(&mut self, to: Destination, packet: &[u8]) -> Vec<Leaving> {
        let unchanged = || vec![Leaving { to, bytes: packet.to_vec() }];
        let Some((header, _)) = step_of(packet) else { return unchanged() };
        let slot = self.slots.get_mut(&header.communicator);
        let Some(slot) = slot.filter(|slot| slot.is_at(Way::Nic, &header)) else {
            return unchanged();
        };
        match words_of(&header, packet) {
            Some(words) if header.kind == Kind::Step => slot.entered(&header, words),
            _ => unchanged(),
        }
    }
}

impl Page {
    fn set_arrived(&mut self, index: u32) {
        self.arrived[index as usize / 64] |= 1 << (index % 64);
    }

    fn view(&self) -> NicView {
        let Self { entered, done, at, results, arrived, .. } = *self;
        NicView { entered, done, at, results, arrived }
    }

    /// `nic_page_count`.
    fn count(&mut self, verdict: Verdict) {
        self.counters.packets_in += 1;
        match verdict {
            Verdict::Taken => {}
            Verdict::Duplicate => self.counters.duplicates += 1,
            Verdict::Ignored => self.counters.ignored += 1,
            Verdict::Nonsense => self.counters.nonsense += 1,
        }
    }
}

impl Slot {
    /// True if a lookup of the packet in `nic_ports` would succeed: it is of this job and channel
    /// 0, on the slot's own socket, or on the group's if the table releases by multicast.
    fn is_at(&self, way: Way, header: &Header) -> bool {
        let is_port = match way {
            Way::Unicast => false,
            Way::Multicast => self.table.is_multicast(),
            Way::Nic => true,
        };
        is_port && header.job == self.job && header.channel == ChannelId(0)
    }

    /// The index of the member that sent a packet, if its tag is valid: `nic_member` and
    /// `nic_is_tagged`.
    fn sender(&mut self, packet: &[u8], header: &Header, found: Tag) -> Option<u32> {
        let index = leader_index(&self.nodes, header.source)?;
        let job = &self.job_key;
        let key = self.keys.entry(header.source).or_insert_with(|| key_of(job, header.source));
        let to = if header.flags.has(Flags::GROUP) { Rank::ALL } else { self.rank };
        let head = packet.first_chunk::<HEADER_BYTES>()?;
        let behind = packet.get(PACKET_OVERHEAD_BYTES..)?;
        (tag(*key, head, to, behind) == found.0).then_some(index)
    }

    /// `nic_step_arrived`: returns whether the packet goes on to the host, and the packets that
    /// leave.
    fn arrived(
        &mut self,
        (header, words): (&Header, Words),
        from: u32,
        host: Host,
    ) -> (bool, Vec<Leaving>) {
        let epoch = header.seq.0;
        let message = (epoch, header.argument);
        let (verdict, action) = self.barrier.arrive(&self.table, message, from, words);
        self.page.count(verdict);
        if verdict != Verdict::Taken {
            return (false, Vec::new());
        }
        if self.waits_for_all && self.barrier.entered() == epoch {
            self.page.set_arrived(from);
        }
        self.show(&action);
        let wakes = action.is_done() && host == Host::Asleep;
        self.page.counters.wakes += u64::from(wakes);
        (wakes, self.send(&action))
    }

    /// `nic_step_missed`.
    fn missed(&mut self, header: &Header, from: u32) -> Vec<Leaving> {
        let (epoch, step) = (header.seq.0, header.argument);
        let verdict = self.barrier.repeat(&self.table, epoch, step, from);
        self.page.count(verdict);
        if verdict != Verdict::Taken {
            return Vec::new();
        }
        self.page.counters.repeated += 1;
        vec![self.step(epoch, step, Some(from), Flags::NONE)]
    }

    /// `nic_step_entered`.
    fn entered(&mut self, header: &Header, words: Words) -> Vec<Leaving> {
        let own = Contribution::numbered(header.argument >> COMBINE_SHIFT, words);
        let (verdict, action) = self.barrier.enter(&self.table, header.seq.0, own);
        if verdict != Verdict::Taken {
            return Vec::new();
        }
        if self.waits_for_all {
            self.begin_page();
        }
        self.show(&action);
        self.send(&action)
    }

    /// `nic_page_begin`: records the members that entered before this one.
    fn begin_page(&mut self) {
        let Self { barrier, table, page, .. } = self;
        page.arrived = [0; ARRIVED_WORDS];
        let missing = barrier.missing(table);
        let was_there = |index: &u32| *index != table.own() && !missing.contains(index);
        (0..table.size()).filter(was_there).for_each(|index| page.set_arrived(index));
    }

    /// `nic_page_show`.
    fn show(&mut self, action: &Action) {
        let Self { barrier, table, page, .. } = self;
        page.entered = barrier.entered();
        page.at = barrier.waits_at().unwrap_or(table.steps());
        if action.is_done() {
            page.results = [0; CARRIED_MAX];
            let results = barrier.results(table);
            page.results.iter_mut().zip(results.as_slice()).for_each(|(place, it)| *place = *it);
            page.done = action.epoch;
        }
    }

    /// `nic_steps_send`: sends all steps of an action, a release to all last.
    fn send(&mut self, action: &Action) -> Vec<Leaving> {
        let mut leaving = Vec::new();
        for step in action.steps() {
            match self.table.send_to(step) {
                Party::Nobody => {}
                Party::Rank(to) => {
                    leaving.push(self.step(action.epoch, step, Some(to.0), Flags::NONE));
                }
                Party::Everybody if self.table.is_multicast() => {
                    leaving.push(self.step(action.epoch, step, None, Flags::GROUP));
                }
                Party::Everybody => {
                    let others = (0..self.table.size()).filter(|index| *index != self.table.own());
                    let others =
                        others.map(|to| self.step(action.epoch, step, Some(to), Flags::GROUP));
                    leaving.extend(others);
                }
            }
        }
        self.page.counters.packets_out += leaving.len() as u64;
        leaving
    }

    /// `nic_step_write`: the message of a step to a member, or to the group's address.
    fn step(&self, epoch: u32, step: u32, to: Option<u32>, flags: Flags) -> Leaving {
        let header = Header {
            job: self.job,
            communicator: self.communicator,
            flags,
            seq: Seq(epoch),
            argument: step,
            ..Header::blank(Kind::Step, self.rank)
        };
        let words = self.barrier.words(&self.table, epoch, step);
        let head = words.on(header).emit();
        let behind: Vec<u8> = words.behind().iter().flat_map(|word| word.to_be_bytes()).collect();
        let peer = to.map(|index| self.nodes.leader(index));
        let tagged = peer.filter(|_| !flags.has(Flags::GROUP)).unwrap_or(Rank::ALL);
        let mut bytes = head.to_vec();
        bytes.extend_from_slice(&tag(self.key, &head, tagged, &behind).to_be_bytes());
        bytes.extend_from_slice(&behind);
        let communicator = self.communicator;
        let to = peer.map_or(Destination::Group, |to| Destination::Nic { to, communicator });
        Leaving { to, bytes }
    }
}
