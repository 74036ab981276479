//! A bitmap window that slides along the sequence numbers.

use crate::limits::WINDOW_PACKETS_MAX;
use omnes_wire::Seq;

const WORDS: usize = WINDOW_PACKETS_MAX as usize / 64;

/// One bit per sequence number of a window; the owner keeps numbers inside the window. Allocates
/// nothing until a bit is set.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeqBits {
    words: Option<Box<[u64; WORDS]>>,
}

impl SeqBits {
    /// No bit is set.
    pub(crate) const NONE: Self = Self { words: None };

    fn at(seq: Seq) -> (usize, u64) {
        let index = seq.0 % WINDOW_PACKETS_MAX;
        (index as usize / 64, 1 << (index % 64))
    }

    pub(crate) fn contains(&self, seq: Seq) -> bool {
        let (word, bit) = Self::at(seq);
        self.words.as_ref().is_some_and(|words| words[word] & bit != 0)
    }

    pub(crate) fn insert(&mut self, seq: Seq) {
        let (word, bit) = Self::at(seq);
        self.words.get_or_insert_default()[word] |= bit;
    }

    /// Clears the bit; returns true if it was set.
    pub(crate) fn take(&mut self, seq: Seq) -> bool {
        let (word, bit) = Self::at(seq);
        let Some(words) = &mut self.words else { return false };
        let was = words[word] & bit != 0;
        words[word] &= !bit;
        was
    }

    /// Bits of `seq` and of the 63 numbers after it; that of `seq` is the lowest.
    pub(crate) fn word_from(&self, seq: Seq) -> u64 {
        let Some(words) = &self.words else { return 0 };
        let (word, shift) = (Self::at(seq).0, seq.0 % 64);
        let behind = words[(word + 1) % WORDS];
        // A shift by 64 bits is not possible.
        words[word] >> shift | (behind << 1) << (63 - shift)
    }

    /// Numbers whose bits are set, as indices in the window.
    pub(crate) fn indices(&self) -> impl Iterator<Item = usize> + '_ {
        let is_set = |words: &[u64; WORDS], at: usize| words[at / 64] >> (at % 64) & 1 == 1;
        self.words.iter().flat_map(move |words| {
            (0..WINDOW_PACKETS_MAX as usize).filter(move |at| is_set(words, *at))
        })
    }

    pub(crate) fn clear(&mut self) {
        if let Some(words) = &mut self.words {
            **words = [0; WORDS];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_starts_at_any_number_and_wraps_around() {
        let mut bits = SeqBits::NONE;
        assert_eq!(bits.word_from(Seq(7)), 0);
        let first = WINDOW_PACKETS_MAX - 70;
        for seq in [first, first + 1, first + 63, first + 64, first + 70, first + 133] {
            bits.insert(Seq(seq));
        }
        assert_eq!(bits.word_from(Seq(first)), 0b11 | 1 << 63);
        assert_eq!(bits.word_from(Seq(first + 1)), 1 | 1 << 62 | 1 << 63);
        assert_eq!(bits.word_from(Seq(first + 70)), 1 | 1 << 63);
        assert_eq!(bits.word_from(Seq(first + 64)), 1 | 1 << 6);
    }
}
