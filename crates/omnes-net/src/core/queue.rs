//! The receive queue: small packets that the kernel NIC puts into this process's memory, and its
//! report on the sockets.
//!
//! The queue serves some sockets, and the NIC counts the packets that it passes to them. While all
//! of these have been read, a poll of the sockets would find nothing and cost a system call, so a
//! waiting caller polls the queue and the count, in memory. Until then, the NIC passes small
//! packets to the sockets, too, in their order.
//!
//! Counts may differ: a full socket drops packets that were counted, and packets of strangers are
//! read without being counted. So the sockets also count as empty if a poll of all of them
//! [`SETTLING_TIME`] after the last packet has found nothing, and are polled now and then in any
//! case. A packet that is found there and was not counted has arrived by another path, from this
//! host or by another interface: such a socket is polled from then on as if there were no queue.

use super::inward::take_in;
use super::{Core, Look};
use crate::cipher::in_clear;
use crate::clock::Clock;
use crate::poller::Poller;
use omnes_nic::OpenQueue;
use omnes_wire::Instant;
use std::time::Duration;

/// Longer than a packet takes from the NIC's program to its socket.
const SETTLING_TIME: Duration = Duration::from_micros(20);
/// Packets taken in one step, so that sending gets its turn.
const PACKETS_PER_STEP: u32 = 32;

/// A queue of the NIC, and the state of the sockets as far as it is known.
pub(super) struct ReceiveQueue {
    opened: OpenQueue,
    /// By socket index: true if the NIC counts the packets to that socket, as far as is known.
    is_covered: Vec<bool>,
    is_all_covered: bool,
    /// Packets that had been passed to the sockets at the last poll, and when that number changed.
    passed: u32,
    passed_at: Instant,
    /// Of these, the packets that have been read.
    drained: u32,
    /// The sockets may still hold packets from before the queue was in use.
    is_new: bool,
    counters: QueueCounters,
}

/// Packets received by a queue so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueCounters {
    /// Packets.
    pub packets: u64,
    /// UDP payload bytes of these.
    pub bytes: u64,
}

impl ReceiveQueue {
    /// True if packets have been passed to the sockets that were not read.
    fn has_passed(&mut self, clock: Clock) -> bool {
        let passed = self.opened.queue().passed();
        if passed != self.passed {
            (self.passed, self.passed_at) = (passed, clock.now());
        }
        self.has_unread()
    }

    fn has_unread(&self) -> bool {
        self.is_new || self.passed != self.drained
    }

    /// Records that `trains` trains have been read from a socket.
    fn on_read(&mut self, index: usize, trains: u64, clock: Clock) {
        if self.is_covered[index] && self.has_passed(clock) && !self.is_new {
            let unread = self.passed.wrapping_sub(self.drained);
            self.drain(trains.min(u64::from(unread)) as u32);
        }
    }

    fn drain(&mut self, packets: u32) {
        if packets > 0 {
            self.drained = self.drained.wrapping_add(packets);
            self.opened.queue().set_drained(self.drained);
        }
    }

    /// True if packets passed at the last poll have reached the sockets by now.
    fn is_settled(&self, now: Instant) -> bool {
        now.since(self.passed_at) >= SETTLING_TIME
    }

    /// Records that all sockets were found empty.
    fn on_empty(&mut self, clock: Clock) {
        let passed = self.passed;
        if self.is_settled(clock.now()) && self.has_passed(clock) && self.passed == passed {
            self.is_new = false;
            self.drain(self.passed.wrapping_sub(self.drained));
        }
    }
}

impl Core {
    /// Takes small packets from a queue of the NIC from now on; `sockets` are those that it serves.
    pub(crate) fn use_queue(&mut self, opened: OpenQueue, sockets: &[usize]) {
        let mut is_covered = vec![false; self.links.readable()];
        for index in sockets {
            is_covered[*index] = true;
        }
        // Packets passed to the sockets so far are read there like those from before; small packets
        // may arrive in the queue immediately.
        let passed = opened.queue().passed();
        opened.queue().set_drained(passed);
        opened.queue().set_sleeping(self.sleepers > 0);
        self.queue = Some(ReceiveQueue {
            opened,
            is_all_covered: self.links.expected().all(|index| is_covered[index]),
            is_covered,
            passed,
            passed_at: self.now(),
            drained: passed,
            is_new: true,
            counters: QueueCounters::default(),
        });
    }

    /// True if the NIC reports that the sockets are empty.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let clock = self.clock;
        self.queue.as_mut().is_some_and(|queue| !queue.has_passed(clock))
    }

    /// Packets received by the queue so far.
    pub(crate) fn queue_counters(&self) -> QueueCounters {
        self.queue.as_ref().map(|queue| queue.counters).unwrap_or_default()
    }

    /// Takes the packets that are in the queue; true if any was the job's. The next step handles
    /// the consequences.
    pub(crate) fn read_queue(&mut self) -> bool {
        let Some(queue) = &mut self.queue else { return false };
        if !queue.opened.queue().has_packets() {
            return false;
        }
        let now = self.clock.now();
        let Self { endpoint, memory, line, cipher, inbound, .. } = self;
        let accepted = endpoint.counters().accepted;
        for _ in 0..PACKETS_PER_STEP {
            let mut bytes = 0;
            let is_there = queue.opened.queue_mut().take(|packet| {
                bytes = packet.len() as u64;
                if cipher.is_none() {
                    return take_in(now, packet, endpoint, line, memory);
                }
                let copy = inbound.bounce(packet.len());
                copy.copy_from_slice(packet);
                memory.copied_bytes += bytes;
                if let Some(packet) = in_clear(cipher, endpoint, copy) {
                    take_in(now, packet, endpoint, line, memory);
                }
            });
            if !is_there {
                break;
            }
            queue.counters.packets += 1;
            queue.counters.bytes += bytes;
        }
        self.endpoint.counters().accepted != accepted
    }

    /// Reads the sockets that `look` includes, if they may hold packets; true if any packet was the
    /// job's.
    pub(super) fn read_sockets(&mut self, look: Look, poller: &Poller) -> bool {
        let index = match look {
            Look::At(rank) if self.rings.hears(rank) => return false,
            Look::Pages => return false,
            Look::Everywhere => return self.sweep(poller),
            Look::Anywhere => return !self.is_quiet_all_over() && self.sweep(poller),
            Look::At(rank) => self.links.index(rank),
            Look::Group => self.links.group_index(),
        };
        let Some(index) = index else { return false };
        let clock = self.clock;
        if let Some(queue) = &mut self.queue
            && !queue.has_passed(clock)
            && queue.is_covered[index]
        {
            return false;
        }
        // A caller that never has to poll twice would not sweep: then a wrong count would persist.
        self.read_socket(index) || self.may_be_empty() && self.sweep(poller)
    }

    /// True if a poll of all sockets may show them to be empty, although the count says otherwise.
    fn may_be_empty(&self) -> bool {
        let queue = self.queue.as_ref().filter(|queue| queue.has_unread());
        queue.is_some_and(|queue| queue.is_settled(self.now()))
    }

    fn is_quiet_all_over(&mut self) -> bool {
        let is_all_covered = self.queue.as_ref().is_some_and(|queue| queue.is_all_covered);
        is_all_covered && !self.links.has_multisend() && self.is_quiet()
    }

    /// Reads a socket as [`Self::read_uncounted`] does, and records the trains that the NIC has
    /// counted.
    pub(crate) fn read_socket(&mut self, index: usize) -> bool {
        let before = self.links.socket(index).counters.trains_received;
        let has_news = self.read_uncounted(index);
        if let Some(queue) = &mut self.queue {
            let trains = self.links.socket(index).counters.trains_received - before;
            queue.on_read(index, trains, self.clock);
        }
        has_news
    }

    /// Reads every socket that has packets, and detects sockets whose packets the NIC does not
    /// count.
    fn sweep(&mut self, poller: &Poller) -> bool {
        self.pace.on_sweep();
        let clock = self.clock;
        let is_quiet = self.is_quiet();
        let passed = self.queue.as_ref().map(|queue| queue.passed);
        let mut has_news = false;
        poller.for_each_ready(|index| {
            let is_news = self.read_socket(index);
            has_news |= is_news;
            if let Some(queue) = &mut self.queue
                && is_news
                && is_quiet
                && passed == Some(queue.passed)
            {
                queue.is_covered[index] = false;
                queue.is_all_covered = false;
            }
        });
        if let Some(queue) = &mut self.queue
            && !is_quiet
            && !has_news
        {
            queue.on_empty(clock);
        }
        has_news
    }

    /// True if there are packets in the queue.
    pub(super) fn has_queued(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.opened.queue().has_packets())
    }

    /// Asks the NIC to pass all packets to the sockets, or to use the queue again.
    pub(super) fn set_queue_sleeping(&self, sleeps: bool) {
        if let Some(queue) = &self.queue {
            queue.opened.queue().set_sleeping(sleeps);
        }
    }
}
