//! The wire between the honest ranks: packets in flight, which may be lost or changed, and old
//! packets, which may be replayed.

use super::bytes::Bytes;
use omnes_wire::PACKET_OVERHEAD_BYTES;
use std::collections::VecDeque;

/// Number of old packets kept.
const OLD_PACKETS: usize = 64;

/// Packets, each with the honest rank it is addressed to and, where it matters, the way it takes.
pub(super) struct Wire<To> {
    under_way: VecDeque<(To, Vec<u8>)>,
    old: VecDeque<(To, Vec<u8>)>,
}

impl<To: Copy> Wire<To> {
    pub(super) fn new() -> Self {
        Self { under_way: VecDeque::new(), old: VecDeque::new() }
    }

    pub(super) fn push(&mut self, to: To, packet: Vec<u8>) {
        self.under_way.push_back((to, packet.clone()));
        self.keep(to, packet);
    }

    /// Keeps a packet that no honest rank receives, unless it is replayed.
    pub(super) fn keep(&mut self, to: To, packet: Vec<u8>) {
        if self.old.len() == OLD_PACKETS {
            self.old.pop_front();
        }
        self.old.push_back((to, packet));
    }

    /// The next packet in flight, which arrives or is lost.
    pub(super) fn pop(&mut self) -> Option<(To, Vec<u8>)> {
        self.under_way.pop_front()
    }

    /// A copy of an old packet.
    pub(super) fn replay(&self, bytes: &mut Bytes) -> Option<(To, Vec<u8>)> {
        if self.old.is_empty() {
            return None;
        }
        Some(self.old[usize::from(bytes.byte()) % self.old.len()].clone())
    }

    /// Flips a bit of the next packet in flight.
    pub(super) fn mutate(&mut self, bytes: &mut Bytes) {
        let Some((_, packet)) = self.under_way.front_mut() else { return };
        // Only in the part that the tag covers: the UDP checksum protects the data.
        let index = usize::from(bytes.byte()) % PACKET_OVERHEAD_BYTES;
        packet[index] ^= 1 << (bytes.byte() % 8);
    }
}
