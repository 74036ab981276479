//! Whether the kernel cuts trains into packets (GSO).
//!
//! It may refuse a train: permanently, because an interface does not support it, or temporarily,
//! because long packets exceed the link's present MTU. So trains are sent packet by packet for a
//! while after each refusal, and then GSO is tried again; the length of the pause is counted in
//! trains.

/// Trains sent packet by packet after a refusal; twice as many if the next one is refused, too.
const PAUSE_MIN: u32 = 64;
const PAUSE_MAX: u32 = 1 << 16;

/// See the module header.
#[derive(Default)]
pub(super) struct Segmentation {
    /// Trains until the next attempt, and the number of trains of the last pause.
    left: u32,
    pause: u32,
}

impl Segmentation {
    /// True if the next train is to be sent by GSO.
    pub(super) fn is_on(&self) -> bool {
        self.left == 0
    }

    /// Records that the kernel has refused a train.
    pub(super) fn on_refusal(&mut self) {
        self.pause = (2 * self.pause).clamp(PAUSE_MIN, PAUSE_MAX);
        self.left = self.pause;
    }

    /// Records that a train was sent whole.
    pub(super) fn on_whole(&mut self) {
        self.pause = 0;
    }

    /// Records that a train was sent packet by packet.
    pub(super) fn on_packetwise(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}
