//! Set of machines that may have something to hand out. Polling all of them in vain, several times
//! per packet, would take as long as handling the packet.
//!
//! A machine is *touched* by every input; once it reports that it has nothing to hand out, it is
//! not polled until it is touched again.

use crate::limits::CHANNELS_MAX;

/// A set of machines.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Machines(u32);

impl Machines {
    pub(super) const NONE: Self = Self(0);
    pub(super) const ALL: Self = Self(u32::MAX);
    pub(super) const COLLECTIVE: Self = Self(1);
    /// The watch over other ranks, and control messages of the endpoint itself.
    pub(super) const WATCH: Self = Self(1 << 1);
    pub(super) const BROADCAST: Self = Self(1 << 2);

    pub(super) const fn channel(index: usize) -> Self {
        Self(1 << (3 + index))
    }

    pub(super) const fn has(self, machine: Self) -> bool {
        self.0 & machine.0 != 0
    }

    pub(super) fn insert(&mut self, machine: Self) {
        self.0 |= machine.0;
    }

    pub(super) fn remove(&mut self, machine: Self) {
        self.0 &= !machine.0;
    }
}

// Each channel has its own bit.
const _: () = assert!(3 + CHANNELS_MAX <= u32::BITS as usize);

/// Machines to poll, by kind of output; see the module header.
pub(super) struct Due {
    pub(super) moves: Machines,
    pub(super) events: Machines,
    pub(super) transmits: Machines,
}

impl Due {
    pub(super) const ALL: Self =
        Self { moves: Machines::ALL, events: Machines::ALL, transmits: Machines::ALL };

    /// Records that `machines` have received an input.
    pub(super) fn touch(&mut self, machines: Machines) {
        self.moves.insert(machines);
        self.events.insert(machines);
        self.transmits.insert(machines);
    }
}
