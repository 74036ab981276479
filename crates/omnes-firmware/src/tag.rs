//! The firmware's own SipHash-2-4, for comparing it with that of `omnes-wire`.

use omnes_wire::{HEADER_BYTES, Rank};

/// A sender's key, as the firmware keeps it: two words.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Key {
    /// The first eight bytes, little-endian.
    pub k0: u64,
    /// The last eight bytes, little-endian.
    pub k1: u64,
}

impl Key {
    /// The key whose 16 bytes are given.
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

/// The tag of a packet without control body for `to`, as the firmware computes it.
pub fn tag(key: Key, header: &[u8; HEADER_BYTES], to: Rank) -> u64 {
    unsafe extern "C" {
        fn omnes_native_tag(key: *const Key, words: *const u64) -> u64;
    }
    let mut bytes = [0; HEADER_BYTES + 8];
    bytes[..HEADER_BYTES].copy_from_slice(header);
    bytes[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&to.0.to_be_bytes());
    let mut words = [0u64; (HEADER_BYTES + 8) / 8];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().expect("chunks of eight"));
    }
    // SAFETY: the function reads the key and five words.
    unsafe { omnes_native_tag(&raw const key, words.as_ptr()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use omnes_wire::JobKey;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_firmwares_tag_is_the_wires(job: [u8; 16], sender: u32, to: u32, header: [u8; 32]) {
            let key = JobKey::new(job).sender(Rank(sender));
            let wire = key.tag(&header, Rank(to), &[]).0;
            prop_assert_eq!(tag(Key::new(key.to_bytes()), &header, Rank(to)), wire);
        }
    }
}
