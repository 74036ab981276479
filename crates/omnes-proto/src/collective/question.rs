//! Who has not entered? Asked of the members when a barrier takes long.

use omnes_wire::Instant;

/// A question about one barrier.
#[derive(Debug)]
pub(super) struct Question {
    epoch: u32,
    /// The last barrier that is to be asked about.
    pub(super) last: u32,
    /// The next seat to be asked in this round; the round is over after the last one.
    pub(super) next_seat: u32,
    /// When the next round begins, once this one is over.
    pub(super) again_at: Option<Instant>,
    /// Seats from which an answer has come, a bit each.
    answered: Vec<u64>,
}

impl Question {
    /// About barrier `epoch`, and then those up to `last`, to a group with so many seats.
    pub(super) fn new(epoch: u32, last: u32, seats: u32) -> Self {
        let answered = vec![0; seats.div_ceil(u64::BITS) as usize];
        Self { epoch, last, next_seat: 0, again_at: None, answered }
    }

    /// The question after this one, whose barrier is done.
    pub(super) fn next(mut self) -> Option<Self> {
        if self.epoch == self.last {
            return None;
        }
        self.epoch = self.epoch.wrapping_add(1);
        self.answered.fill(0);
        self.restart();
        Some(self)
    }

    /// The member on `seat` has answered.
    pub(super) fn on_answer(&mut self, seat: u32) {
        self.answered[seat as usize / 64] |= 1 << (seat % 64);
    }

    /// True if the member on `seat` has answered.
    pub(super) fn has_answer(&self, seat: u32) -> bool {
        self.answered[seat as usize / 64] >> (seat % 64) & 1 == 1
    }

    /// The next round begins.
    pub(super) fn restart(&mut self) {
        self.next_seat = 0;
        self.again_at = None;
    }
}
