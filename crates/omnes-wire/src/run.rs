//! Packets of a run, encoded for the wire: their headers differ only in their numbers, and each has
//! its own tag.
//!
//! A long message is thousands of packets. Within one SipHash every operation depends on the one
//! before, so the tags of several packets are computed side by side, in vector registers where the
//! processor has them, and the common start of the headers is hashed once.

use crate::header::Header;
use crate::tag::{SenderKey, Tag};
use crate::{HEADER_BYTES, Rank};
use multiversion::multiversion;

/// Number of tags that are computed side by side.
const LANES: usize = 8;
/// Bytes at the front of the header that are the same for all packets of a run.
const SHARED_BYTES: usize = 16;

/// One word of SipHash's state, or of its input, for each lane.
type Words = [u64; LANES];
type State = [Words; 4];

/// See [`SenderKey::run`].
#[derive(Clone)]
pub struct TaggedRun {
    /// Header of the next packet to be made.
    header: Header,
    to: u64,
    /// SipHash's state after the common start of the headers.
    shared: [u64; 4],
    packets: [([u8; HEADER_BYTES], Tag); LANES],
    /// Number of `packets` that have been handed out.
    given: usize,
}

impl SenderKey {
    /// Returns the packets of the run that starts with `first`, for `to`, as an endless iterator:
    /// headers that equal `first` except for sequence number and argument, which count up, each
    /// with the tag that [`SenderKey::tag`] gives it without a control body.
    pub fn run(&self, first: Header, to: Rank) -> TaggedRun {
        let mut state = start(self.to_bytes()).map(|word| [word; LANES]);
        for word in words::<2>(&first.emit()) {
            take_in(&mut state, &[word; LANES]);
        }
        let shared = state.map(|lanes| lanes[0]);
        let packets = [([0; HEADER_BYTES], Tag(0)); LANES];
        TaggedRun { header: first, to: last_word(to), shared, packets, given: LANES }
    }
}

impl TaggedRun {
    fn make(&mut self) {
        let mut rest: [Words; 3] = [[0; LANES], [0; LANES], [self.to; LANES]];
        let mut bytes = self.header.emit();
        for (lane, (header, _)) in self.packets.iter_mut().enumerate() {
            *header = bytes;
            [rest[0][lane], rest[1][lane]] = words(&bytes[SHARED_BYTES..]);
            self.header.count_on(&mut bytes);
        }
        for ((_, tag), hash) in self.packets.iter_mut().zip(finish(self.shared, &rest)) {
            *tag = Tag(hash);
        }
        self.given = 0;
    }
}

impl Iterator for TaggedRun {
    type Item = ([u8; HEADER_BYTES], Tag);

    fn next(&mut self) -> Option<Self::Item> {
        if self.given == LANES {
            self.make();
        }
        self.given += 1;
        Some(self.packets[self.given - 1])
    }
}

/// The first words of `bytes`.
fn words<const COUNT: usize>(bytes: &[u8]) -> [u64; COUNT] {
    let (words, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|at| u64::from_le_bytes(words[at]))
}

/// Last word of the hash input: the receiver, and the length of the whole input.
fn last_word(to: Rank) -> u64 {
    let length = (HEADER_BYTES + size_of::<Rank>()) as u64;
    length << 56 | u64::from(u32::from_le_bytes(to.0.to_be_bytes()))
}

// ---- SipHash-2-4 --------------------------------------------------------------------------------

fn start(key: [u8; 16]) -> [u64; 4] {
    let [low, high] = words(&key);
    [
        low ^ 0x736f_6d65_7073_6575,
        high ^ 0x646f_7261_6e64_6f6d,
        low ^ 0x6c79_6765_6e65_7261,
        high ^ 0x7465_6462_7974_6573,
    ]
}

#[inline(always)]
fn round([a, b, c, d]: &mut State) {
    for lane in 0..LANES {
        a[lane] = a[lane].wrapping_add(b[lane]);
        b[lane] = b[lane].rotate_left(13) ^ a[lane];
        a[lane] = a[lane].rotate_left(32);
        c[lane] = c[lane].wrapping_add(d[lane]);
        d[lane] = d[lane].rotate_left(16) ^ c[lane];
        a[lane] = a[lane].wrapping_add(d[lane]);
        d[lane] = d[lane].rotate_left(21) ^ a[lane];
        c[lane] = c[lane].wrapping_add(b[lane]);
        b[lane] = b[lane].rotate_left(17) ^ c[lane];
        c[lane] = c[lane].rotate_left(32);
    }
}

#[inline(always)]
fn take_in(state: &mut State, words: &Words) {
    (0..LANES).for_each(|lane| state[3][lane] ^= words[lane]);
    round(state);
    round(state);
    (0..LANES).for_each(|lane| state[0][lane] ^= words[lane]);
}

/// Hashes that result from a shared state and the remaining words of each lane.
#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx2"))]
fn finish(shared: [u64; 4], rest: &[Words; 3]) -> Words {
    finish_here(shared, rest)
}

/// The same, compiled for the instruction set of the caller.
#[inline(always)]
fn finish_here(shared: [u64; 4], rest: &[Words; 3]) -> Words {
    let mut state = shared.map(|word| [word; LANES]);
    for words in rest {
        take_in(&mut state, words);
    }
    (0..LANES).for_each(|lane| state[2][lane] ^= 0xff);
    (0..4).for_each(|_| round(&mut state));
    let [a, b, c, d] = state;
    std::array::from_fn(|lane| a[lane] ^ b[lane] ^ c[lane] ^ d[lane])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::JobKey;
    use crate::header::tests::any_header;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn run_packets_are_numbered_consecutively_and_carry_ordinary_tags(
            first in any_header(),
            key: [u8; 16],
            to: u32,
            packets in 0..3 * LANES as u32,
        ) {
            let key = JobKey::new(key).sender(first.source);
            for (index, (bytes, tag)) in (0..packets).zip(key.run(first, Rank(to))) {
                let (seq, argument) = (first.seq.plus(index), first.argument.wrapping_add(index));
                prop_assert_eq!(bytes, Header { seq, argument, ..first }.emit());
                prop_assert_eq!(tag, key.tag(&bytes, Rank(to), &[]));
            }
        }
    }

    #[test]
    fn processor_specific_hashes_match_the_portable_ones() {
        let rest = [0u64, 1, 2].map(|word| std::array::from_fn(|lane| word << 60 | lane as u64));
        let shared = start([9; 16]);
        assert_eq!(finish(shared, &rest), finish_here(shared, &rest));
    }
}
