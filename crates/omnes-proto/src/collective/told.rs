//! Barriers that the members have reported to have entered.
//!
//! Ranks of this rank's own node report at every barrier, others only when asked.

use std::collections::BTreeMap;
use std::ops::Range;

/// Newest barrier that each member is known to have entered, by seat.
#[derive(Debug)]
pub(super) struct Told {
    /// Seats that this rank leads.
    led: Range<u32>,
    /// Barriers of the members at these seats.
    near: Vec<u32>,
    /// Barriers of the other members that have reported any.
    far: BTreeMap<u32, u32>,
}

impl Told {
    /// The members at `led` have entered `epoch`; nothing is known of the others.
    pub(super) fn new(led: Range<u32>, epoch: u32) -> Self {
        Self { near: vec![epoch; led.len()], led, far: BTreeMap::new() }
    }

    /// Records that the member at `seat` has entered `epoch`.
    pub(super) fn set(&mut self, seat: u32, epoch: u32) {
        if self.led.contains(&seat) {
            self.near[(seat - self.led.start) as usize] = epoch
        } else {
            self.far.insert(seat, epoch);
        }
    }

    /// Newest barrier that the member at `seat` is known to have entered, if any.
    pub(super) fn of(&self, seat: u32) -> Option<u32> {
        if self.led.contains(&seat) {
            Some(self.near[(seat - self.led.start) as usize])
        } else {
            self.far.get(&seat).copied()
        }
    }
}
