//! A window of bits that slides along the sequence numbers.

use crate::limits::WINDOW_PACKETS_MAX;
use omnes_wire::Seq;

const WORDS: usize = WINDOW_PACKETS_MAX as usize / 64;

/// One bit per sequence number of a window; the owner keeps numbers inside the window.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeqBits {
    words: [u64; WORDS],
}

impl SeqBits {
    fn at(seq: Seq) -> (usize, u64) {
        let index = seq.0 % WINDOW_PACKETS_MAX;
        (index as usize / 64, 1 << (index % 64))
    }

    pub(crate) fn contains(&self, seq: Seq) -> bool {
        let (word, bit) = Self::at(seq);
        self.words[word] & bit != 0
    }

    pub(crate) fn insert(&mut self, seq: Seq) {
        let (word, bit) = Self::at(seq);
        self.words[word] |= bit;
    }

    /// Takes the bit out; true if it was set.
    pub(crate) fn take(&mut self, seq: Seq) -> bool {
        let (word, bit) = Self::at(seq);
        let was = self.words[word] & bit != 0;
        self.words[word] &= !bit;
        was
    }

    /// The numbers that are set, by their places in the window.
    pub(crate) fn indices(&self) -> impl Iterator<Item = usize> + '_ {
        (0..WINDOW_PACKETS_MAX as usize).filter(|at| self.words[at / 64] >> (at % 64) & 1 == 1)
    }

    pub(crate) fn clear(&mut self) {
        self.words = [0; WORDS];
    }
}
