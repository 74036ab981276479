//! Question which members have not entered a barrier, asked when the barrier takes long.

use omnes_wire::Instant;

/// Question about one barrier.
#[derive(Debug)]
pub(super) struct Question {
    epoch: u32,
    /// Last barrier to be asked about.
    pub(super) last: u32,
    /// Next seat to be asked in this round; the round ends after the last one.
    pub(super) next_seat: u32,
    /// Start of the next round, once this one has ended.
    pub(super) again_at: Option<Instant>,
    /// Seats whose members have answered, a bit each.
    answered: Vec<u64>,
}

impl Question {
    /// Creates a question about barrier `epoch`, and then those up to `last`, to a group of `seats`
    /// seats.
    pub(super) fn new(epoch: u32, last: u32, seats: u32) -> Self {
        let answered = vec![0; seats.div_ceil(u64::BITS) as usize];
        Self { epoch, last, next_seat: 0, again_at: None, answered }
    }

    /// Returns the question about the next barrier, when that of this one is complete.
    pub(super) fn next(mut self) -> Option<Self> {
        if self.epoch == self.last {
            return None;
        }
        self.epoch = self.epoch.wrapping_add(1);
        self.answered.fill(0);
        self.restart();
        Some(self)
    }

    /// The member at `seat` has answered.
    pub(super) fn on_answer(&mut self, seat: u32) {
        self.answered[seat as usize / 64] |= 1 << (seat % 64);
    }

    /// True if the member at `seat` has answered.
    pub(super) fn has_answer(&self, seat: u32) -> bool {
        self.answered[seat as usize / 64] >> (seat % 64) & 1 == 1
    }

    /// Starts the next round.
    pub(super) fn restart(&mut self) {
        self.next_seat = 0;
        self.again_at = None;
    }
}
