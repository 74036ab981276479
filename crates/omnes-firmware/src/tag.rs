//! The firmware's own SipHash-2-4, for comparison with that of `omnes-wire`.

use omnes_wire::{CARRIED_MAX, HEADER_BYTES, Rank};

/// A sender's key, as the firmware stores it: two words.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Key {
    /// The first eight bytes, little-endian.
    pub k0: u64,
    /// The last eight bytes, little-endian.
    pub k1: u64,
}

impl Key {
    /// The key made of these 16 bytes.
    pub fn new(bytes: [u8; 16]) -> Self {
        let all = u128::from_le_bytes(bytes);
        Self { k0: all as u64, k1: (all >> 64) as u64 }
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Key(secret)")
    }
}

/// Maximum number of 64-bit words that a tag covers.
const TAGGED_WORDS: usize = HEADER_BYTES / 8 + CARRIED_MAX;

/// The tag of a packet for `to`, as the firmware computes it, with the words that follow the
/// packet's header: whole words, at most three.
///
/// # Panics
/// If `behind` has more bytes or no whole words.
pub fn tag(key: Key, header: &[u8; HEADER_BYTES], to: Rank, behind: &[u8]) -> u64 {
    unsafe extern "C" {
        fn omnes_native_tag(key: *const Key, words: *const u64, more: u32) -> u64;
    }
    assert!(behind.len() < 8 * CARRIED_MAX && behind.len().is_multiple_of(8), "whole words");
    let mut bytes = [0; 8 * TAGGED_WORDS];
    bytes[..HEADER_BYTES].copy_from_slice(header);
    bytes[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&to.0.to_be_bytes());
    bytes[HEADER_BYTES + 4..][..behind.len()].copy_from_slice(behind);
    let (chunks, _) = bytes.as_chunks::<8>();
    let mut words = [0u64; TAGGED_WORDS];
    words.iter_mut().zip(chunks).for_each(|(word, chunk)| *word = u64::from_ne_bytes(*chunk));
    // SAFETY: the function reads the key and `TAGGED_WORDS` words.
    unsafe { omnes_native_tag(&raw const key, words.as_ptr(), (behind.len() / 8) as u32) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use omnes_wire::JobKey;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn firmware_tag_equals_the_wire_tag(
            job: [u8; 16],
            sender: u32,
            to: u32,
            header: [u8; 32],
            behind: [u8; 24],
            more in 0usize..4,
        ) {
            let key = JobKey::new(job).sender(Rank(sender));
            let behind = &behind[..8 * more];
            let wire = key.tag(&header, Rank(to), behind).0;
            prop_assert_eq!(tag(Key::new(key.to_bytes()), &header, Rank(to), behind), wire);
        }
    }
}
