//! State of a channel for one other rank: three lanes in each direction, and the queues above them.

use super::lanes::Lanes;
use super::send_lane::SendLane;
use crate::lane::{Arrivals, LossWindow, Overdue, Rtt, earliest};
use crate::packet::{ReceiveId, SendId, SlotId};
use omnes_wire::{Envelope, Flags, Header, Instant, Rank, Seq};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};

/// Numbered packet streams of a channel between an ordered pair of ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lane {
    /// Messages in order of sending. The only lane whose packets may find no buffer.
    Ordered = 0,
    /// Granted data: their destination is known, so they are never rejected and never block others.
    Bulk = 1,
    /// Grants, which need no buffer: a rank whose own messages are rejected must still be able to
    /// receive the others', or two full ranks would wait for each other.
    Grants = 2,
}

/// Number of lanes.
pub(super) const LANES: usize = 3;

impl Lane {
    pub(super) const ALL: [Self; LANES] = [Self::Ordered, Self::Bulk, Self::Grants];

    pub(super) fn of(header: &Header) -> Self {
        if header.flags.has(Flags::BULK) {
            Self::Bulk
        } else if header.flags.has(Flags::GRANTS) {
            Self::Grants
        } else {
            Self::Ordered
        }
    }

    pub(super) fn flags(self) -> Flags {
        match self {
            Self::Ordered => Flags::NONE,
            Self::Bulk => Flags::BULK,
            Self::Grants => Flags::GRANTS,
        }
    }
}

/// Destination of the message that is arriving on the ordered lane.
#[derive(Clone, Copy, Debug)]
pub(super) enum Destination {
    Receive(ReceiveId),
    Unexpected(u64),
}

/// Message that is arriving on the ordered lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Assembling {
    pub(super) destination: Destination,
    /// Number of bytes of the ordered part that have been placed; `ordered` is its length.
    pub(super) offset: u64,
    pub(super) ordered: u64,
}

/// Packet of the ordered lane that arrived out of order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stashed {
    pub(super) header: Header,
    pub(super) envelope: Option<Envelope>,
    pub(super) slot: Option<SlotId>,
    pub(super) bytes: usize,
}

/// Granted part of a message on the bulk lane, in the order of the grants.
#[derive(Clone, Copy, Debug)]
pub(super) struct BulkPart {
    pub(super) receive: ReceiveId,
    pub(super) first: Seq,
    pub(super) packets: u32,
    /// Offset of the part in the message.
    pub(super) base: u64,
    pub(super) bytes: u64,
}

impl BulkPart {
    pub(super) fn end(&self) -> Seq {
        self.first.plus(self.packets)
    }

    pub(super) fn contains(&self, seq: Seq) -> bool {
        seq.since(self.first) < self.packets
    }
}

/// What is awaited from a peer, and when to ask for it (`asking.rs`).
#[derive(Debug)]
pub(super) struct Watch {
    /// Lane on which the peer is to be asked for an overdue packet.
    pub(super) asks: Option<Lane>,
    pub(super) overdue: Overdue,
    /// Number of unmatched receives that only this peer can fill.
    pub(super) awaited: u32,
    /// A probe has sought a message in vain; cleared by the peer's next message that no receive
    /// takes.
    pub(super) is_sought: bool,
}

impl Watch {
    /// True if a message is awaited that only this peer can send.
    pub(super) fn awaits_message(&self) -> bool {
        self.awaited > 0 || self.is_sought
    }
}

/// How much data may be in flight to a peer, and how much is, in bytes of truesize.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) credit_bytes: u32,
    pub(super) loss_window: LossWindow,
    /// Capacity of the path to the peer, if known.
    pub(super) path_bytes: u32,
    pub(super) flight_bytes: u32,
    /// Bytes handed out since an answer was last requested.
    pub(super) unasked_bytes: u32,
}

impl Flow {
    fn new(credit_bytes: u32) -> Self {
        Self {
            credit_bytes,
            loss_window: LossWindow::new(credit_bytes),
            path_bytes: u32::MAX,
            flight_bytes: 0,
            unasked_bytes: 0,
        }
    }

    /// Number of bytes that may be in flight to the peer.
    pub(super) fn window_bytes(&self) -> u32 {
        self.credit_bytes.min(self.loss_window.bytes()).min(self.path_bytes)
    }

    /// Packets with this total charge have been handed out.
    pub(super) fn on_sent(&mut self, charge: u32) {
        self.flight_bytes += charge;
        self.unasked_bytes += charge;
    }
}

/// See the module header.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) send: Lanes<SendLane>,
    pub(super) receive: Lanes<Arrivals>,
    pub(super) probe_due: [bool; LANES],
    pub(super) watch: Watch,
    /// Messages whose ordered part has not been handed out completely, in order.
    pub(super) messages: VecDeque<SendId>,
    /// Granted messages, in the order of the grants.
    pub(super) granted: VecDeque<SendId>,
    /// Latest cut of a granted message, until the peer is known to have it.
    pub(super) bulk_cut: Option<Seq>,
    /// Grants to send: tokens of the peer's messages.
    pub(super) grants: VecDeque<u32>,
    pub(super) assembling: Option<Assembling>,
    pub(super) stash: BTreeMap<u32, Stashed>,
    /// Grants that arrived out of order: tokens by number.
    pub(super) grants_ahead: BTreeMap<u32, u32>,
    pub(super) bulk_parts: VecDeque<BulkPart>,
    pub(super) bulk_end: Seq,
    pub(super) rtt: Rtt,
    pub(super) flow: Flow,
    pub(super) is_ready: bool,
    /// Only new data has been due since the last input.
    pub(super) has_only_data: bool,
    /// Counted among the peers that are sending.
    pub(super) is_counted: bool,
    pub(super) is_reported_silent: bool,
    /// Time at which it last answered a liveness probe.
    pub(super) lived_at: Option<Instant>,
}

impl Peer {
    pub(super) fn new(credit_bytes: u32) -> Self {
        Self {
            send: Lanes::default(),
            receive: Lanes::default(),
            probe_due: [false; LANES],
            watch: Watch { asks: None, overdue: Overdue::new(), awaited: 0, is_sought: false },
            messages: VecDeque::new(),
            granted: VecDeque::new(),
            bulk_cut: None,
            grants: VecDeque::new(),
            assembling: None,
            stash: BTreeMap::new(),
            grants_ahead: BTreeMap::new(),
            bulk_parts: VecDeque::new(),
            bulk_end: Seq::FIRST,
            rtt: Rtt::new(),
            flow: Flow::new(credit_bytes),
            is_ready: false,
            has_only_data: false,
            is_counted: false,
            is_reported_silent: false,
            lived_at: None,
        }
    }

    /// Lanes that have been used, the ordered one first.
    pub(super) fn lanes(&self) -> &'static [Lane] {
        let has_others = self.send.has_others() || self.receive.has_others();
        if has_others { &Lane::ALL } else { &Lane::ALL[..1] }
    }

    /// False if there is nothing to hand out before the next input: no data, answer or repair.
    pub(super) fn has_due(&self) -> bool {
        let has_data =
            !self.messages.is_empty() || !self.grants.is_empty() || !self.granted.is_empty();
        let owes = |lane: &Lane| {
            let send = &self.send[*lane];
            let is_probed = send.is_blocked() || self.probe_due[*lane as usize];
            self.receive[*lane].is_due() || send.has_lost() || is_probed
        };
        has_data
            || !self.has_only_data && (self.watch.asks.is_some() || self.lanes().iter().any(owes))
    }

    /// Truesize in flight that reduces the space for a packet on `lane`. The peer does not hold
    /// packets that it has rejected: messages whose receives wait must be able to pass those.
    pub(super) fn flight_bytes(&self, lane: Lane) -> u32 {
        match lane {
            Lane::Ordered => self.flow.flight_bytes,
            _ => self.flow.flight_bytes - self.send[Lane::Ordered].rejected_bytes(),
        }
    }

    /// True if a packet of this charge may be sent now; one packet always may.
    pub(super) fn has_room(&self, lane: Lane, charge: u32, window_packets: u32) -> bool {
        let flight_bytes = self.flight_bytes(lane);
        self.send[lane].in_flight() < window_packets
            && (flight_bytes == 0 || flight_bytes + charge <= self.flow.window_bytes())
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let sending = self.send.iter().filter_map(SendLane::deadline).min();
        let receiving = self.receive.iter().filter_map(Arrivals::deadline).min();
        earliest([sending, receiving, self.watch.overdue.deadline()])
    }

    /// True if a message from the peer is arriving.
    pub(super) fn is_sending(&self) -> bool {
        self.assembling.is_some() || !self.bulk_parts.is_empty()
    }

    /// Stable in the sense of [PM-R20]: nothing in flight, no answer owed in either direction.
    pub(super) fn is_stable(&self) -> bool {
        self.send.iter().all(SendLane::is_stable) && self.receive.iter().all(Arrivals::is_stable)
    }

    /// Time since which the peer has owed an answer, if it does.
    pub(super) fn unanswered_since(&self) -> Option<Instant> {
        self.send.iter().filter_map(|lane| lane.unanswered_since).min()
    }

    /// This rank did not run for some time before `now`.
    pub(super) fn on_pause(&mut self, now: Instant) {
        self.send.iter_mut().for_each(|lane| lane.on_pause(now));
    }
}

/// Peers that a rank has heard of: few even in large jobs, so entries are created on first use.
/// Packets arrive in runs, so the entry found last is usually the one needed next.
#[derive(Debug, Default)]
pub(super) struct Peers {
    entries: Vec<(Rank, Peer)>,
    /// Next timer of each entry, by index; contiguous, because few are due at a time.
    wakes: Vec<Option<Instant>>,
    /// Index of each entry by rank.
    index: BTreeMap<Rank, usize>,
    latest: Cell<usize>,
}

impl Peers {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Index of the entry of `rank`; usually the one found last.
    #[inline(always)]
    fn find(&self, rank: Rank) -> Option<usize> {
        let latest = self.latest.get();
        if self.entries.get(latest).is_some_and(|(own, _)| *own == rank) {
            return Some(latest);
        }
        self.find_other(rank)
    }

    #[cold]
    #[inline(never)]
    fn find_other(&self, rank: Rank) -> Option<usize> {
        let index = *self.index.get(&rank)?;
        self.latest.set(index);
        Some(index)
    }

    #[inline(always)]
    pub(super) fn get(&self, rank: Rank) -> Option<&Peer> {
        self.find(rank).map(|index| &self.entries[index].1)
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, rank: Rank) -> Option<&mut Peer> {
        self.find(rank).map(|index| &mut self.entries[index].1)
    }

    /// Returns the entry of `rank`, created by `make` on first use.
    #[inline(always)]
    pub(super) fn entry(&mut self, rank: Rank, make: impl FnOnce() -> Peer) -> &mut Peer {
        let index = match self.find(rank) {
            Some(index) => index,
            None => self.add(rank, make()),
        };
        &mut self.entries[index].1
    }

    #[cold]
    #[inline(never)]
    fn add(&mut self, rank: Rank, peer: Peer) -> usize {
        if self.entries.is_empty() {
            self.entries.reserve_exact(1); // Many ranks have only one peer.
        }
        self.entries.push((rank, peer));
        self.wakes.push(None);
        self.index.insert(rank, self.entries.len() - 1);
        self.entries.len() - 1
    }

    pub(super) fn remove(&mut self, rank: Rank) -> Option<Peer> {
        let index = self.index.remove(&rank)?;
        let (_, peer) = self.entries.swap_remove(index);
        self.wakes.swap_remove(index);
        if let Some((moved, _)) = self.entries.get(index) {
            self.index.insert(*moved, index);
        }
        Some(peer)
    }

    /// Updates the next timer of `rank`, and returns it, if there is one.
    pub(super) fn note_deadline(&mut self, rank: Rank) -> Option<Instant> {
        let index = self.find(rank)?;
        self.wakes[index] = self.entries[index].1.deadline();
        self.wakes[index]
    }

    /// Ranks whose timers are due at `now`, ascending.
    pub(super) fn due(&self, now: Instant) -> Vec<Rank> {
        let entries = self.entries.iter().zip(&self.wakes);
        let due = entries.filter(|(_, wake)| wake.is_some_and(|at| at <= now));
        let mut ranks: Vec<Rank> = due.map(|((rank, _), _)| *rank).collect();
        ranks.sort_unstable();
        ranks
    }

    /// Time of the earliest timer.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.wakes.iter().flatten().min().copied()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Peer> {
        self.entries.iter().map(|(_, peer)| peer)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.entries.iter_mut().map(|(_, peer)| peer)
    }

    /// All ranks with an entry, ascending.
    pub(super) fn ranks(&self) -> Vec<Rank> {
        self.index.keys().copied().collect()
    }
}
