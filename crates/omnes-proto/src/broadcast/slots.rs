//! Buffers of one packet each, and what the machine's parts share.

use super::config::CheckedBroadcast;
use super::interface::{BroadcastCounters, Event};
use crate::packet::{Move, Segment, SlotId};
use omnes_wire::Rank;
use std::collections::VecDeque;

/// The buffers' bookkeeping; the bytes belong to the driver.
#[derive(Debug)]
pub(super) struct Slots {
    /// Given back, the latest last.
    free: Vec<u32>,
    /// None from here on has ever been taken: a rank that needs none keeps nothing of them.
    fresh: u32,
    count: u32,
}

impl Slots {
    pub(super) fn new(count: u32) -> Self {
        Self { free: Vec::new(), fresh: 0, count }
    }

    pub(super) fn free_slots(&self) -> u32 {
        self.free.len() as u32 + self.count - self.fresh
    }

    /// A buffer, if more than `spared` are free.
    pub(super) fn take_above(&mut self, spared: u32) -> Option<SlotId> {
        if self.free_slots() <= spared {
            return None;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.fresh += 1;
            self.fresh - 1
        });
        Some(SlotId(slot))
    }

    pub(super) fn give_back(&mut self, slot: SlotId) {
        assert!(self.free_slots() < self.count, "a slot was given back twice");
        self.free.push(slot.0);
    }
}

/// What all streams of a rank share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) me: Rank,
    pub(super) config: CheckedBroadcast,
    pub(super) slots: Slots,
    pub(super) moves: VecDeque<Move>,
    pub(super) events: VecDeque<Event>,
    pub(super) counters: BroadcastCounters,
    /// What the coded packet that was handed out last combines.
    pub(super) coded_parts: Vec<Segment>,
    /// Streams on which something is coming in.
    pub(super) active: u32,
}
