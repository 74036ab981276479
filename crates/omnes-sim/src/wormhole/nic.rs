//! The interface: receives, sends, and forwards packets in transit.
//!
//! ```text
//!   first 4 bytes ─▶ early ─┬─ ordinary: tail ─▶ receive ─▶ bus ─▶ delivered
//!                           └─ in transit: claim ─┬─ sender idle: DMA set-up ─▶ head leaves
//!                                                 └─ busy: pending, and then before all others
//! ```
//!
//! The receiving side itself starts the sender for a packet in transit while that packet still
//! arrives: virtual cut-through [IT-R12]. If the sender is busy, the packet is pending and goes
//! first when the sender becomes idle [IT-R13]. A packet holds a buffer from its first bytes to the
//! end of its use [IT-R14]; a packet in transit holds one of the pool if there is a pool [IT-R15].
//! Without a free buffer a packet is lost, since a network that waited for in-transit buffers could
//! deadlock. A host's own packets wait in its memory for one of as many send buffers.

use std::collections::VecDeque;

use super::fabric::{Event, Fabric, Flit, What};
use crate::engine::{Server, Span, Time};

/// A packet that enters or leaves, and its number of flits that have not done so yet.
#[derive(Clone, Copy, Debug)]
struct Worm {
    packet: u32,
    left: u32,
    is_fresh: bool,
    is_in_transit: bool,
}

impl Worm {
    fn new(packet: u32, left: u32) -> Self {
        Self { packet, left, is_fresh: true, is_in_transit: false }
    }
}

/// Use of an arriving packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    Ordinary,
    InTransit,
    /// No buffer is free for the packet.
    Lost,
}

/// One interface and the bus of its host.
#[derive(Clone, Debug, Default)]
pub(super) struct Nic {
    processor: Server,
    bus: Server,
    arriving: Option<(Worm, Use)>,
    sending: Option<Worm>,
    /// The packet for which the sending DMA is being set up.
    next: Option<u32>,
    pending: VecDeque<u32>,
    own: VecDeque<u32>,
    /// Packets that are still in the host because all send buffers are in use.
    in_host: VecDeque<u32>,
    /// Number of send buffers in use.
    outgoing: u32,
    ordinary: u32,
    in_transit: u32,
}

impl Fabric<'_> {
    /// Gives a packet to `host` to send; the packet crosses the bus when a send buffer is free.
    pub fn post(&mut self, host: u32, packet: u32) {
        self.nics[host as usize].in_host.push_back(packet);
        self.fetch(host);
    }

    /// Takes the next packet from the host, if a send buffer is free [IT-R15].
    fn fetch(&mut self, host: u32) {
        let nic = &mut self.nics[host as usize];
        if nic.outgoing >= self.interface.buffers {
            return;
        }
        let Some(packet) = nic.in_host.pop_front() else { return };
        nic.outgoing += 1;
        let bytes = u64::from(self.packets[packet as usize].payload_bytes);
        let done = nic.bus.serve(self.now, self.interface.bus.of(bytes));
        self.at(done, Event::Posted { host, packet });
    }

    pub fn on_posted(&mut self, host: u32, packet: u32) {
        self.nics[host as usize].own.push_back(packet);
        self.send_next(host);
    }

    /// Starts an idle sender on the next waiting packet: packets in transit first [IT-R13].
    fn send_next(&mut self, host: u32) {
        let nic = &mut self.nics[host as usize];
        if nic.sending.is_some() || nic.next.is_some() {
            return;
        }
        let (next, span) = match nic.pending.pop_front() {
            Some(packet) => (Some(packet), self.interface.resume),
            None => (nic.own.pop_front(), self.interface.send),
        };
        if let Some(packet) = next {
            self.set_up(host, packet, span);
        }
    }

    /// Programs the sending DMA for `packet` after `span` of the processor's time.
    fn set_up(&mut self, host: u32, packet: u32, span: Span) {
        let nic = &mut self.nics[host as usize];
        nic.next = Some(packet);
        let programmed = nic.processor.serve(self.now, span);
        self.at(programmed + self.interface.dma_setup, Event::Ready { host });
    }

    pub fn on_ready(&mut self, host: u32) {
        let next = self.nics[host as usize].next.take();
        let packet = next.expect("a DMA is set up for a packet");
        let left = self.flits(packet);
        // Once its head has left, the next interface may move the packet on to a later piece.
        let is_in_transit = self.packets[packet as usize].piece > 0;
        let worm = Worm { is_in_transit, ..Worm::new(packet, left) };
        self.nics[host as usize].sending = Some(worm);
        self.pump(2 * host);
    }

    /// Takes a flit of the packet being sent; if that packet still arrives, only flits that have
    /// arrived.
    pub fn take_sent(&mut self, host: u32) -> Option<Flit> {
        let nic = &mut self.nics[host as usize];
        let worm = nic.sending.as_mut()?;
        let to_come = match nic.arriving {
            Some((arriving, _)) if arriving.packet == worm.packet => arriving.left,
            _ => 0,
        };
        if worm.left <= to_come {
            return None;
        }
        worm.left -= 1;
        let is_head = std::mem::take(&mut worm.is_fresh);
        let flit = Flit { packet: worm.packet, is_head, is_tail: worm.left == 0 };
        if is_head {
            self.mark(host, What::Head);
        }
        Some(flit)
    }

    /// The last flit of the packet being sent is on the link.
    pub fn on_sent(&mut self, host: u32) {
        let nic = &mut self.nics[host as usize];
        let sent = nic.sending.take().expect("what ended was being sent");
        if sent.is_in_transit {
            self.release(host, Use::InTransit);
        } else {
            nic.outgoing -= 1;
            self.fetch(host);
        }
        self.send_next(host);
    }

    /// The first bytes of a packet have arrived: checks its type [IT-R11].
    pub fn on_early(&mut self, host: u32, packet: u32) {
        self.mark(host, What::Early);
        let left = self.flits(packet);
        let pieces = self.routes.pieces[self.packets[packet as usize].route as usize].len();
        let is_last = usize::from(self.packets[packet as usize].piece) + 1 == pieces;
        let wanted = if is_last { Use::Ordinary } else { Use::InTransit };
        let given = self.claim(host, wanted);
        let nic = &mut self.nics[host as usize];
        assert!(nic.arriving.is_none(), "packets arrive one after the other");
        nic.arriving = Some((Worm::new(packet, left), given));
        let mut done = nic.processor.serve(self.now, self.interface.early);
        if given == Use::InTransit {
            done = nic.processor.serve(done, self.interface.claim);
            self.at(done, Event::Claimed { host, packet });
        }
    }

    /// Allocates a buffer for a packet of the wanted use; returns the use that is possible.
    fn claim(&mut self, host: u32, wanted: Use) -> Use {
        let (buffers, pool) = (self.interface.buffers, self.interface.pool);
        let nic = &mut self.nics[host as usize];
        let in_buffers = nic.ordinary + if pool == 0 { nic.in_transit } else { 0 };
        let is_free = match wanted {
            Use::InTransit if pool > 0 => nic.in_transit < pool,
            _ => in_buffers < buffers,
        };
        match wanted {
            _ if !is_free => {
                self.counters.overflowed += 1;
                return Use::Lost;
            }
            Use::InTransit => nic.in_transit += 1,
            _ => nic.ordinary += 1,
        }
        self.counters.in_transit_max = self.counters.in_transit_max.max(nic.in_transit);
        wanted
    }

    fn release(&mut self, host: u32, used: Use) {
        let nic = &mut self.nics[host as usize];
        match used {
            Use::Ordinary => nic.ordinary -= 1,
            Use::InTransit => nic.in_transit -= 1,
            Use::Lost => {}
        }
    }

    /// A packet is known to be in transit: starts the sender, or leaves the packet pending.
    pub fn on_claimed(&mut self, host: u32, packet: u32) {
        self.counters.forwarded += 1;
        let moved = &mut self.packets[packet as usize];
        moved.piece += 1;
        moved.hop = 0;
        let nic = &mut self.nics[host as usize];
        if nic.sending.is_none() && nic.next.is_none() {
            self.set_up(host, packet, Span::ZERO);
        } else {
            self.counters.waited += 1;
            nic.pending.push_back(packet);
        }
    }

    /// A flit of the arriving packet is in memory.
    pub fn on_flit_received(&mut self, host: u32) {
        let nic = &mut self.nics[host as usize];
        let (worm, given) = nic.arriving.as_mut().expect("a packet announces itself first");
        worm.left -= 1;
        let (packet, given) = (worm.packet, *given);
        let is_tail = worm.left == 0;
        if is_tail {
            nic.arriving = None;
            self.mark(host, What::Tail);
        }
        match given {
            Use::InTransit => self.pump(2 * host),
            Use::Ordinary if is_tail => self.receive(host, packet),
            Use::Lost if is_tail => self.forget(packet),
            _ => {}
        }
    }

    /// Delivers a complete packet to its host.
    fn receive(&mut self, host: u32, packet: u32) {
        let bytes = u64::from(self.packets[packet as usize].payload_bytes);
        let nic = &mut self.nics[host as usize];
        let handled = nic.processor.serve(self.now, self.interface.receive);
        let done = nic.bus.serve(handled, self.interface.bus.of(bytes));
        self.at(done, Event::Delivered { host, packet });
    }

    pub fn on_delivered(&mut self, host: u32, packet: u32) {
        self.mark(host, What::Delivered);
        self.release(host, Use::Ordinary);
        let done = &self.packets[packet as usize];
        let born: Time = done.born;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += u64::from(done.payload_bytes);
        self.counters.latency += self.now - born;
        self.forget(packet);
    }
}
