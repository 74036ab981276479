//! Buffers of one packet each, and the state shared by the machine's parts.

use super::config::CheckedBroadcast;
use super::interface::{BroadcastCounters, Event};
use crate::packet::{Move, Segment, SlotId};
use omnes_wire::Rank;
use std::collections::VecDeque;

/// Allocator of the buffers; their memory belongs to the driver.
#[derive(Debug)]
pub(super) struct Slots {
    /// Returned buffers, the latest last.
    free: Vec<u32>,
    /// Buffers from this one on have never been taken, and need no entry in `free`: a rank that
    /// uses none needs no memory here.
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

    /// Takes a buffer, if more than `spared` are free.
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

/// State shared by all streams of a rank.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) me: Rank,
    pub(super) config: CheckedBroadcast,
    pub(super) slots: Slots,
    pub(super) moves: VecDeque<Move>,
    pub(super) events: VecDeque<Event>,
    pub(super) counters: BroadcastCounters,
    /// Parts combined in the coded packet that was handed out last.
    pub(super) coded_parts: Vec<Segment>,
    /// Number of streams that are receiving something.
    pub(super) active: u32,
}
