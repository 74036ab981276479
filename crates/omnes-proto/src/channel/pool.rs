//! Receive buffers shared by all senders [PM-R17]: slots of one packet's data each, chained to
//! messages; the caller that takes a slot gives the limit of slots in use.

use crate::packet::SlotId;

const END: u32 = u32::MAX;

/// Allocator of the slots; their memory belongs to the driver.
#[derive(Debug)]
pub(super) struct Pool {
    /// Next slot in the chain, for slots that have ever been taken: a rank that needs none uses no
    /// memory here.
    next: Vec<u32>,
    bytes: Vec<u32>,
    /// Returned slots, the latest last.
    free: Vec<u32>,
    count: usize,
}

/// Slots that hold one message's data, in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    first: u32,
    last: u32,
}

impl Default for Chain {
    fn default() -> Self {
        Self { first: END, last: END }
    }
}

impl Pool {
    pub(super) fn new(slots: u32) -> Self {
        Self { next: Vec::new(), bytes: Vec::new(), free: Vec::new(), count: slots as usize }
    }

    /// Number of slots that hold data.
    pub(super) fn used(&self) -> usize {
        self.next.len() - self.free.len()
    }

    /// Number of slots for data that no receive or probe waits for.
    pub(super) fn slots(&self) -> usize {
        self.count
    }

    /// Takes a free slot for `bytes` bytes; `None` if `most` slots hold data.
    pub(super) fn take(&mut self, bytes: usize, most: usize) -> Option<SlotId> {
        if self.used() >= most {
            return None;
        }
        let Some(slot) = self.free.pop() else { return Some(self.take_fresh(bytes)) };
        self.next[slot as usize] = END;
        self.bytes[slot as usize] = bytes as u32;
        Some(SlotId(slot))
    }

    /// Takes a slot that has never been taken before.
    fn take_fresh(&mut self, bytes: usize) -> SlotId {
        let slot = self.next.len();
        self.next.push(END);
        self.bytes.push(bytes as u32);
        SlotId(slot as u32)
    }

    pub(super) fn give_back(&mut self, slot: SlotId) {
        assert!(self.free.len() < self.next.len(), "a slot was given back twice");
        self.free.push(slot.0);
    }

    pub(super) fn append(&mut self, chain: &mut Chain, slot: SlotId) {
        if chain.first == END {
            chain.first = slot.0;
        } else {
            self.next[chain.last as usize] = slot.0;
        }
        chain.last = slot.0;
    }

    /// Removes the first slot from the chain, and returns it with the number of bytes in it. The
    /// slot stays in use.
    pub(super) fn pop(&self, chain: &mut Chain) -> Option<(SlotId, usize)> {
        if chain.first == END {
            return None;
        }
        let slot = chain.first;
        chain.first = self.next[slot as usize];
        Some((SlotId(slot), self.bytes[slot as usize] as usize))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn chain_returns_slots_in_order() {
        let mut pool = Pool::new(3);
        let mut chain = Chain::default();
        for bytes in [10, 20, 30] {
            let slot = pool.take(bytes, 3).unwrap();
            pool.append(&mut chain, slot);
        }
        assert!(pool.take(1, 3).is_none());
        let mut seen = Vec::new();
        while let Some((slot, bytes)) = pool.pop(&mut chain) {
            seen.push(bytes);
            pool.give_back(slot);
        }
        assert_eq!(seen, [10, 20, 30]);
        assert_eq!(pool.used(), 0);
    }
}
