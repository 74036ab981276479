//! Control bodies, which follow the header and the tag of a packet and are covered by the tag too.

use crate::{CommunicatorId, Flags, Header, Rank, Seq};

/// Bytes of an [`Envelope`].
pub const ENVELOPE_BYTES: usize = 16;
/// Bytes of a [`CastReport`].
pub const CAST_REPORT_BYTES: usize = 16;
/// Packets that one [`GapMap`] reports on.
pub const GAP_MAP_BITS: u32 = 1024;
/// Most bytes of a [`GapMap`].
pub const GAP_MAP_BYTES: usize = GAP_MAP_BITS as usize / 8;

/// Description of a message, carried by its first packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// The application's tag.
    pub tag: u32,
    /// Identifier that the sender gave the message; a grant repeats it.
    pub token: u32,
    /// Length of the whole message in bytes.
    pub bytes: u64,
}

impl Envelope {
    /// Reads an envelope from the front of a body; `None` if it is too short.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let bytes = body.first_chunk::<ENVELOPE_BYTES>()?;
        let (tag, rest) = bytes.split_first_chunk::<4>()?;
        let (token, rest) = rest.split_first_chunk::<4>()?;
        Some(Self {
            tag: u32::from_be_bytes(*tag),
            token: u32::from_be_bytes(*token),
            bytes: u64::from_be_bytes(*rest.first_chunk()?),
        })
    }

    /// Encodes the envelope for the wire.
    pub fn emit(&self) -> [u8; ENVELOPE_BYTES] {
        let mut bytes = [0; ENVELOPE_BYTES];
        bytes[0..4].copy_from_slice(&self.tag.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.token.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.bytes.to_be_bytes());
        bytes
    }
}

/// An acknowledgement of broadcasts that travels with a small message [BC-R15].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CastReport {
    /// Communicator of the broadcasts.
    pub communicator: CommunicatorId,
    /// Group of the communicator.
    pub group: u8,
    /// Root of the broadcasts.
    pub root: Rank,
    /// First missing number: every packet before it has arrived.
    pub expects: Seq,
    /// Advertised buffer space, in the unit of the header's field.
    pub credits: u16,
}

impl CastReport {
    /// Reads a report from the front of a body; `None` if it is too short.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let bytes = body.first_chunk::<CAST_REPORT_BYTES>()?;
        let (communicator, rest) = bytes.split_first_chunk::<4>()?;
        let (root, rest) = rest.split_first_chunk::<4>()?;
        let (expects, rest) = rest.split_first_chunk::<4>()?;
        let (credits, rest) = rest.split_first_chunk::<2>()?;
        Some(Self {
            communicator: CommunicatorId(u32::from_be_bytes(*communicator)),
            group: *rest.first()?,
            root: Rank(u32::from_be_bytes(*root)),
            expects: Seq(u32::from_be_bytes(*expects)),
            credits: u16::from_be_bytes(*credits),
        })
    }

    /// Encodes the report for the wire.
    pub fn emit(&self) -> [u8; CAST_REPORT_BYTES] {
        let mut bytes = [0; CAST_REPORT_BYTES];
        bytes[0..4].copy_from_slice(&self.communicator.0.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.root.0.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.expects.0.to_be_bytes());
        bytes[12..14].copy_from_slice(&self.credits.to_be_bytes());
        bytes[14] = self.group;
        bytes
    }
}

/// Most words that one step of a barrier carries.
pub const CARRIED_MAX: usize = 4;
/// Bytes of each word that follows the tag.
const WORD_BYTES: usize = 8;
const _: () = assert!(CARRIED_MAX - 1 == Flags::WORDS_MASK.0 as usize, "the flags count them");

/// Bytes of the words that follow the tag, according to the flags of a packet that carries words.
pub(crate) fn words_behind_bytes(flags: Flags) -> usize {
    usize::from(flags.0 & Flags::WORDS_MASK.0) * WORD_BYTES
}

/// Words carried by a step of a barrier: one in its header, 0 if the barrier reduces nothing, and
/// up to three more in its control body. The memory layout is that of `struct omnes_words` of the
/// firmware.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Words {
    word: [u64; CARRIED_MAX],
    more: u32,
    reserved: u32,
}

impl Words {
    /// Words of a barrier that reduces nothing: a single 0.
    pub const NONE: Self = Self { word: [0; CARRIED_MAX], more: 0, reserved: 0 };

    /// Takes the first [`CARRIED_MAX`] of `words`; a single 0 if `words` is empty.
    pub fn new(words: &[u64]) -> Self {
        let mut all = Self::NONE;
        all.word.iter_mut().zip(words).for_each(|(place, word)| *place = *word);
        all.more = words.len().clamp(1, CARRIED_MAX) as u32 - 1;
        all
    }

    /// All words.
    pub fn as_slice(&self) -> &[u64] {
        &self.word[..=self.more as usize % CARRIED_MAX]
    }

    /// Word that travels in the header.
    pub fn first(&self) -> u64 {
        self.word[0]
    }

    /// Words that follow the tag.
    pub fn behind(&self) -> &[u64] {
        &self.as_slice()[1..]
    }

    /// Combines each word with the word of the same index in `others`; the result has as many words
    /// as `self`.
    #[must_use]
    pub fn zip(self, others: Self, combined: impl Fn(u64, u64) -> u64) -> Self {
        let mut words = self;
        let count = self.as_slice().len();
        for (word, other) in words.word[..count].iter_mut().zip(others.word) {
            *word = combined(*word, other);
        }
        words
    }

    /// Bytes of the words that follow the tag, according to the header of a packet that carries
    /// words.
    pub fn bytes_behind(header: &Header) -> usize {
        words_behind_bytes(header.flags)
    }

    /// Reads the words of a packet; `None` if the body is too short.
    pub fn parse(header: &Header, body: &[u8]) -> Option<Self> {
        let behind = body.get(..Self::bytes_behind(header))?.as_chunks::<WORD_BYTES>().0;
        let mut words = Self { more: behind.len() as u32, ..Self::NONE };
        words.word[0] = header.word();
        for (place, bytes) in words.word[1..].iter_mut().zip(behind) {
            *place = u64::from_be_bytes(*bytes);
        }
        Some(words)
    }

    /// Returns `header` with these words in it: the first one, and the number of words after the
    /// tag.
    #[must_use]
    pub fn on(&self, header: Header) -> Header {
        let flags = header.flags.with(Flags(self.behind().len() as u8));
        Header { flags, ..header.with_word(self.first()) }
    }
}

/// Bitmap of the packets after `expects` that have arrived: bit `i` stands for `expects + 1 + i`,
/// least significant bit of a byte first. One map covers all gaps of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GapMap {
    bits: [u8; GAP_MAP_BYTES],
    bytes: usize,
}

impl Default for GapMap {
    fn default() -> Self {
        Self { bits: [0; GAP_MAP_BYTES], bytes: 0 }
    }
}

impl GapMap {
    /// Reads a map from a body; bytes beyond [`GAP_MAP_BYTES`] are ignored.
    pub fn parse(body: &[u8]) -> Self {
        let mut map = Self { bytes: body.len().min(GAP_MAP_BYTES), ..Self::default() };
        map.bits[..map.bytes].copy_from_slice(&body[..map.bytes]);
        map
    }

    /// Encodes the map for the wire, without trailing bytes that were never set.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bits[..self.bytes]
    }

    /// Records that `seq` has arrived. A number outside the map is left out: it counts as not
    /// reported, which is safe.
    pub fn insert(&mut self, expects: Seq, seq: Seq) {
        let index = seq.since(expects.plus(1));
        if index < GAP_MAP_BITS {
            let byte = index as usize / 8;
            self.bits[byte] |= 1 << (index % 8);
            self.bytes = self.bytes.max(byte + 1);
        }
    }

    /// True if the map reports that `seq` has arrived.
    pub fn contains(&self, expects: Seq, seq: Seq) -> bool {
        let index = seq.since(expects.plus(1));
        index < GAP_MAP_BITS && self.bits[index as usize / 8] & (1 << (index % 8)) != 0
    }

    /// One past the highest number that the map reports, or `expects` if it reports none.
    pub fn end(&self, expects: Seq) -> Seq {
        let Some(byte) = self.bits[..self.bytes].iter().rposition(|bits| *bits != 0) else {
            return expects;
        };
        let top = 8 * byte as u32 + 7 - self.bits[byte].leading_zeros();
        expects.plus(top + 2)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn envelope_round_trips(tag: u32, token: u32, bytes: u64) {
            let envelope = Envelope { tag, token, bytes };
            prop_assert_eq!(Envelope::parse(&envelope.emit()), Some(envelope));
        }

        #[test]
        fn cast_report_round_trips(ids: (u32, u8, u32), expects: u32, credits: u16) {
            let report = CastReport {
                communicator: CommunicatorId(ids.0),
                group: ids.1,
                root: Rank(ids.2),
                expects: Seq(expects),
                credits,
            };
            prop_assert_eq!(CastReport::parse(&report.emit()), Some(report));
            prop_assert_eq!(CastReport::parse(&report.emit()[..15]), None);
        }

        #[test]
        fn gap_map_matches_a_reference_set(expects: u32, offsets: BTreeSet<u16>) {
            let expects = Seq(expects);
            let mut map = GapMap::default();
            for offset in &offsets {
                map.insert(expects, expects.plus(1 + u32::from(*offset)));
            }
            let again = GapMap::parse(map.as_bytes());
            for offset in 0..2 * GAP_MAP_BITS {
                let held = offset < GAP_MAP_BITS && offsets.contains(&(offset as u16));
                prop_assert_eq!(again.contains(expects, expects.plus(1 + offset)), held);
            }
            let top = offsets.range(..GAP_MAP_BITS as u16).next_back();
            let end = top.map_or(expects, |top| expects.plus(2 + u32::from(*top)));
            prop_assert_eq!(again.end(expects), end);
        }
    }

    #[test]
    fn truncated_envelope_is_refused() {
        let envelope = Envelope { tag: 1, token: 2, bytes: 3 };
        assert_eq!(Envelope::parse(&envelope.emit()[..15]), None);
    }
}
