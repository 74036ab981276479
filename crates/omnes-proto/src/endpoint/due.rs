//! Which machines may have something to hand out. To ask all of them for nothing, several times per
//! packet, would take as long as the packet.
//!
//! A machine is *touched* by whatever goes into it, and has nothing to hand out once it has said
//! so, until it is touched again.

use crate::limits::CHANNELS_MAX;

/// A set of machines.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Machines(u32);

impl Machines {
    pub(super) const NONE: Self = Self(0);
    pub(super) const ALL: Self = Self(u32::MAX);
    pub(super) const COLLECTIVE: Self = Self(1);
    /// The watch over other ranks, and answers of the endpoint itself.
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

// Each channel has a bit of its own.
const _: () = assert!(3 + CHANNELS_MAX <= u32::BITS as usize);

/// By what they may hand out; see the module header.
pub(super) struct Due {
    pub(super) moves: Machines,
    pub(super) events: Machines,
    pub(super) transmits: Machines,
}

impl Due {
    pub(super) const ALL: Self =
        Self { moves: Machines::ALL, events: Machines::ALL, transmits: Machines::ALL };

    /// Something has gone into these.
    pub(super) fn touch(&mut self, machines: Machines) {
        self.moves.insert(machines);
        self.events.insert(machines);
        self.transmits.insert(machines);
    }
}
