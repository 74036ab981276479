//! Context switch, steps C6 and C7 [PM-R21]: the host moves a channel word by word over the bus.
//!
//! Source: PM §4.4 and table 2. Reading or writing a word costs the host as much as any other
//! access over the bus; reading waits for an answer, which is why saving takes longer. Records of
//! the send buffer cost the host additional work, since its buffers are handled one by one; the
//! receive buffer is one piece.

use super::Constants;
use omnes_sim::engine::{Random, Server, Span, Time};

const WORD_BYTES: u64 = 4;

/// Contents of a channel in SRAM, in words.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in crate::pm) struct Context {
    structure: Vec<u32>,
    sends: Vec<u32>,
    receives: Vec<u32>,
}

impl Context {
    /// A channel with `sends` and `receives` messages in its buffers [PM-C08].
    pub(in crate::pm) fn with(constants: &Constants, sends: u64, receives: u64) -> Self {
        let buffers = &constants.buffers;
        let mut random = Random::named(1, "context", 0);
        let mut words = |count: u64| (0..count).map(|_| random.bits() as u32).collect();
        Self {
            structure: words(constants.switching.structure_words),
            sends: words(sends * buffers.send_record_bytes / WORD_BYTES),
            receives: words(receives * buffers.receive_record_bytes / WORD_BYTES),
        }
    }

    /// Bytes of the channel's messages.
    #[cfg(test)]
    pub(in crate::pm) fn message_bytes(&self) -> u64 {
        (self.sends.len() + self.receives.len()) as u64 * WORD_BYTES
    }
}

/// Moves words over the bus, one after the other.
struct Mover<'a> {
    constants: &'a Constants,
    bus: Server,
    now: Time,
    word: Span,
}

impl<'a> Mover<'a> {
    fn new(constants: &'a Constants, word: Span) -> Self {
        let now = Time::ZERO + constants.switching.call;
        Self { constants, bus: Server::default(), now, word }
    }

    fn words(&mut self, words: &[u32]) -> Vec<u32> {
        for _ in words {
            self.now = self.bus.serve(self.now, self.word);
        }
        words.to_vec()
    }

    fn sends(&mut self, words: &[u32]) -> Vec<u32> {
        let record_words = self.constants.buffers.send_record_bytes / WORD_BYTES;
        let mut moved = Vec::with_capacity(words.len());
        for record in words.chunks(record_words as usize) {
            self.now += self.constants.switching.send_record;
            moved.extend(self.words(record));
        }
        moved
    }

    fn context(mut self, from: &Context) -> (Context, Span) {
        let structure = self.words(&from.structure);
        let sends = self.sends(&from.sends);
        let receives = self.words(&from.receives);
        (Context { structure, sends, receives }, self.now.since(Time::ZERO))
    }
}

/// Saves the contents of SRAM to memory; returns the copy and the time taken.
pub(in crate::pm) fn save(constants: &Constants, sram: &Context) -> (Context, Span) {
    Mover::new(constants, constants.bus.read_word).context(sram)
}

/// Restores saved contents to SRAM; returns the contents of SRAM and the time taken.
pub(in crate::pm) fn restore(constants: &Constants, saved: &Context) -> (Context, Span) {
    Mover::new(constants, constants.bus.write_word).context(saved)
}
