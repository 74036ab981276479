//! Whether the kernel cuts trains into packets (GSO).
//!
//! It may refuse one: for good, as an interface cannot, or for a moment, as long packets do not fit
//! the link's present MTU. So trains go packet by packet for a while after each refusal, and then
//! one is tried again; how long, is counted in trains.

/// Trains that go packet by packet after a refusal; twice as many if the next one is refused, too.
const PAUSE_MIN: u32 = 64;
const PAUSE_MAX: u32 = 1 << 16;

/// See the module header.
#[derive(Default)]
pub(super) struct Segmentation {
    /// Trains until the next try, and how many it were after the last refusal.
    left: u32,
    pause: u32,
}

impl Segmentation {
    /// True if the next train is to be tried.
    pub(super) fn is_on(&self) -> bool {
        self.left == 0
    }

    /// The kernel has refused a train.
    pub(super) fn on_refusal(&mut self) {
        self.pause = (2 * self.pause).clamp(PAUSE_MIN, PAUSE_MAX);
        self.left = self.pause;
    }

    /// A train has gone whole.
    pub(super) fn on_whole(&mut self) {
        self.pause = 0;
    }

    /// A train has gone packet by packet.
    pub(super) fn on_packetwise(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}
