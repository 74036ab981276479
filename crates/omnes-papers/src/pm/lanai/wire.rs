//! Links: a packet leaves as far as it is in SRAM, through a cut-through switch, and only when the
//! receiver has a buffer for it; otherwise it blocks, and so does every packet behind it [PM-R3].

use super::{Packet, Sending, What, World};
use std::collections::VecDeque;

/// A packet in the sender's SRAM.
struct Leaving {
    packet: Box<Packet>,
    bytes: u64,
    /// Bytes of it in SRAM.
    ready: u64,
    sent: u64,
}

/// A node's link to the switch.
#[derive(Default)]
pub(super) struct Output {
    queue: VecDeque<Leaving>,
    /// Packets that must wait for their DMA before they may leave.
    filling: VecDeque<Leaving>,
    /// Bytes currently on the link.
    leaving: u64,
    has_path: bool,
    is_waiting: bool,
}

#[cfg(test)]
impl Output {
    /// For the packet in progress: bytes in SRAM, bytes that have left or are leaving, total bytes.
    pub(super) fn progress(&self) -> Option<(u64, u64, u64)> {
        let front = self.queue.front()?;
        Some((front.ready, front.sent + self.leaving, front.bytes))
    }
}

/// A node's link from the switch.
#[derive(Default)]
pub(super) struct Input {
    is_taken: bool,
    waiting: VecDeque<usize>,
}

impl World {
    /// Sends a packet that is entirely in SRAM.
    pub(super) fn send_resident(&mut self, node: usize, packet: Box<Packet>) {
        let bytes = packet.data_bytes + self.constants.link.frame_bytes;
        self.nodes[node].output.queue.push_back(Leaving { packet, bytes, ready: bytes, sent: 0 });
        self.pump(node);
    }

    /// Sends a packet whose data a DMA will fetch.
    pub(super) fn send_filling(&mut self, node: usize, packet: Box<Packet>) {
        let ready = self.constants.link.frame_bytes; // the NIC has made the frame itself
        let bytes = packet.data_bytes + ready;
        let leaving = Leaving { packet, bytes, ready, sent: 0 };
        match self.design.sending {
            Sending::Immediate => self.nodes[node].output.queue.push_back(leaving),
            Sending::Plain | Sending::Double => self.nodes[node].output.filling.push_back(leaving),
        }
        self.pump(node);
    }

    /// More data of the oldest incomplete packet have arrived in SRAM.
    pub(super) fn on_brought(&mut self, node: usize, bytes: u64, is_all: bool) {
        let output = &mut self.nodes[node].output;
        let mut packets = output.queue.iter_mut().chain(&mut output.filling);
        let packet = packets.find(|it| it.ready < it.bytes).expect("somebody asked for the data");
        packet.ready += bytes;
        assert!(packet.ready <= packet.bytes && is_all == (packet.ready == packet.bytes));
        match self.design.sending {
            Sending::Immediate => self.pump(node),
            Sending::Plain | Sending::Double if is_all => self.on_filled(node),
            Sending::Plain | Sending::Double => {}
        }
    }

    /// The oldest packet that waited for its DMA may leave.
    pub(super) fn release_filled(&mut self, node: usize) {
        let output = &mut self.nodes[node].output;
        let packet = output.filling.pop_front().expect("it was filled");
        output.queue.push_back(packet);
        self.pump(node);
    }

    /// Sends as much as possible.
    fn pump(&mut self, node: usize) {
        let output = &self.nodes[node].output;
        let Some(front) = output.queue.front() else { return };
        if output.leaving > 0 || output.is_waiting {
            return;
        }
        let to = front.packet.to;
        if !output.has_path {
            self.nodes[node].output.is_waiting = true;
            self.nodes[to].input.waiting.push_back(node);
            self.admit(to);
            return;
        }
        let leaving = front.ready - front.sent;
        if leaving > 0 {
            self.nodes[node].output.leaving = leaving;
            let at = self.now + self.constants.link.byte * leaving;
            self.at(at, node, What::Left);
        }
    }

    /// Admits the next packet if the link is free and a buffer is available.
    pub(super) fn admit(&mut self, node: usize) {
        let input = &mut self.nodes[node].input;
        if input.is_taken || self.nodes[node].nic.receive_free == 0 {
            return;
        }
        let Some(from) = self.nodes[node].input.waiting.pop_front() else { return };
        self.nodes[node].input.is_taken = true;
        self.nodes[node].nic.receive_free -= 1;
        let output = &mut self.nodes[from].output;
        output.has_path = true;
        output.is_waiting = false;
        self.pump(from);
    }

    pub(super) fn on_left(&mut self, node: usize) {
        let output = &mut self.nodes[node].output;
        let front = output.queue.front_mut().expect("something was leaving");
        front.sent += std::mem::take(&mut output.leaving);
        assert!(front.sent <= front.ready, "the wire has overtaken the DMA");
        if front.sent < front.bytes {
            self.pump(node);
            return;
        }
        let packet = output.queue.pop_front().expect("it was there").packet;
        output.has_path = false;
        let (to, data_bytes) = (packet.to, packet.data_bytes);
        self.nodes[to].input.is_taken = false;
        let at = self.now + self.constants.link.switch;
        self.at(at, to, What::Arrived(packet));
        self.pump(node);
        self.admit(to);
        if data_bytes > 0 {
            self.on_wire_done(node);
        }
    }
}
