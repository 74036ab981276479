//! Which barriers the members have said they have entered.
//!
//! Ranks of this rank's own node say so at every barrier, others only when asked.

use std::collections::BTreeMap;
use std::ops::Range;

/// By seat, the newest barrier that the member is known to have entered.
#[derive(Debug)]
pub(super) struct Told {
    /// The seats that this rank leads.
    led: Range<u32>,
    /// Of those.
    near: Vec<u32>,
    /// Of the others, as far as they have said anything.
    far: BTreeMap<u32, u32>,
}

impl Told {
    /// Those who sit on `led` have entered `epoch`; of the others nothing is known.
    pub(super) fn new(led: Range<u32>, epoch: u32) -> Self {
        Self { near: vec![epoch; led.len()], led, far: BTreeMap::new() }
    }

    /// The member on `seat` has entered `epoch`.
    pub(super) fn set(&mut self, seat: u32, epoch: u32) {
        if self.led.contains(&seat) {
            self.near[(seat - self.led.start) as usize] = epoch
        } else {
            self.far.insert(seat, epoch);
        }
    }

    /// What the member on `seat` has entered, if it has said anything.
    pub(super) fn of(&self, seat: u32) -> Option<u32> {
        if self.led.contains(&seat) {
            Some(self.near[(seat - self.led.start) as usize])
        } else {
            self.far.get(&seat).copied()
        }
    }
}
