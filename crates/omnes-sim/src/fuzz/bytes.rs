//! Reads operations, numbers and parts of packets from the bytes of an input.

use super::OPERATIONS_MAX;
use omnes_wire::{Envelope, Kind, Seq};
use std::time::Duration;

/// Remaining bytes of an input; zeros after its end.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl Bytes<'_> {
    /// Runs operations one after the other; each consumes as many bytes as it needs.
    pub(super) fn run(mut self, mut operate: impl FnMut(&mut Self)) {
        for _ in 0..OPERATIONS_MAX {
            if self.0.is_empty() {
                break;
            }
            operate(&mut self);
        }
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Usually the given number; otherwise one near it, or any.
    pub(super) fn near(&mut self, seq: Seq) -> Seq {
        match self.byte() {
            255 => Seq(self.word()),
            back @ 248..255 => Seq(seq.0.wrapping_sub(256 - u32::from(back))),
            ahead @ 160..248 => seq.plus(u32::from(ahead) - 160),
            _ => seq,
        }
    }

    pub(super) fn word(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// Usually a small number, occasionally any number.
    pub(super) fn number(&mut self) -> u32 {
        match self.byte() {
            255 => self.word(),
            254 => u32::MAX - u32::from(self.byte()),
            small => u32::from(small),
        }
    }

    /// A time too short for an honest rank to take another for dead because of it alone.
    pub(super) fn time(&mut self) -> Duration {
        let time = Duration::from_micros(u64::from(self.number()) * 50);
        time.min(Duration::from_millis(20))
    }

    /// Usually one of the `usual` kinds, occasionally one of the `rare` ones.
    pub(super) fn kind(&mut self, usual: &[Kind], rare: &[Kind]) -> Kind {
        match self.byte() {
            choice @ 250.. => rare[usize::from(choice) % rare.len()],
            choice => usual[usize::from(choice) % usual.len()],
        }
    }

    pub(super) fn envelope(&mut self) -> Envelope {
        let bytes = match self.byte() {
            255 => u64::MAX,
            254 => u64::from(self.word()) << 8,
            _ => u64::from(self.number()),
        };
        let tag = u32::from(self.byte() % 2);
        Envelope { tag, token: self.number(), bytes }
    }

    pub(super) fn gap_map(&mut self) -> Vec<u8> {
        (0..self.byte() % 129).map(|_| self.byte()).collect()
    }

    /// Appends data of a length read from the input.
    pub(super) fn fill(&mut self, packet: &mut Vec<u8>) {
        let data = self.number() as usize % 9000;
        packet.resize(packet.len() + data, 0xcd);
    }
}
