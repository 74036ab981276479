//! What lies between the honest ranks: packets under way, which may be lost or changed, and old
//! ones, which may come again.

use super::bytes::Bytes;
use omnes_wire::PACKET_OVERHEAD_BYTES;
use std::collections::VecDeque;

/// Old packets that are kept.
const OLD_PACKETS: usize = 64;

/// Packets, each with the honest rank that it goes to and, where that matters, the way it takes.
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

    /// Keeps a packet that no honest rank hears, unless it is replayed to it.
    pub(super) fn keep(&mut self, to: To, packet: Vec<u8>) {
        if self.old.len() == OLD_PACKETS {
            self.old.pop_front();
        }
        self.old.push_back((to, packet));
    }

    /// The next packet under way, which arrives or is lost.
    pub(super) fn pop(&mut self) -> Option<(To, Vec<u8>)> {
        self.under_way.pop_front()
    }

    /// An old packet, once more.
    pub(super) fn replay(&self, bytes: &mut Bytes) -> Option<(To, Vec<u8>)> {
        if self.old.is_empty() {
            return None;
        }
        Some(self.old[usize::from(bytes.byte()) % self.old.len()].clone())
    }

    /// Turns a bit of the next packet under way.
    pub(super) fn mutate(&mut self, bytes: &mut Bytes) {
        let Some((_, packet)) = self.under_way.front_mut() else { return };
        // Only what the tag covers: the UDP checksum guards the rest.
        let index = usize::from(bytes.byte()) % PACKET_OVERHEAD_BYTES;
        packet[index] ^= 1 << (bytes.byte() % 8);
    }
}
