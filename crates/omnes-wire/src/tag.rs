//! Packet authentication: a 64-bit SipHash-2-4 tag under a key per (job, sender).
//!
//! The key of a sender is derived from the job's key, so a packet cannot be passed off as another
//! rank's. The tag covers the header, the receiving rank and the control body. All ranks of a job
//! are one trust domain: a member could forge another member's tag; a stranger has a chance of one
//! in 2^64 per attempt.

use crate::{GAP_MAP_BYTES, HEADER_BYTES, Rank};
use siphasher::sip::SipHasher24;
use std::fmt;
use std::hash::Hasher;

const TAGGED_BYTES_MAX: usize = HEADER_BYTES + 4 + GAP_MAP_BYTES;

/// The tag of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag(pub u64);

/// Secret shared by all ranks of a job.
#[derive(Clone, PartialEq, Eq)]
pub struct JobKey([u8; 16]);

/// Error: a job key is not 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyError;

impl fmt::Display for KeyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a job key is 32 hexadecimal digits")
    }
}

impl std::error::Error for KeyError {}

impl fmt::Debug for JobKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JobKey(secret)")
    }
}

impl JobKey {
    /// A key from 16 random bytes.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes of the key, for handing it to another rank.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Reads 32 hexadecimal digits.
    ///
    /// # Errors
    /// [`KeyError`] for anything else; the error does not repeat the text, as it is a secret.
    pub fn from_hex(text: &str) -> Result<Self, KeyError> {
        let mut bytes = [0; 16];
        if text.len() != 32 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(KeyError);
        }
        for (byte, at) in bytes.iter_mut().zip((0..32).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| KeyError)?;
        }
        Ok(Self(bytes))
    }

    /// Key under which `sender` tags its packets.
    pub fn sender(&self, sender: Rank) -> SenderKey {
        let half = |which: u8| {
            let mut hasher = SipHasher24::new_with_key(&self.0);
            hasher.write(b"omnes sender");
            hasher.write(&[which]);
            hasher.write(&sender.0.to_be_bytes());
            hasher.finish().to_be_bytes()
        };
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&half(0));
        bytes[8..].copy_from_slice(&half(1));
        SenderKey(bytes)
    }

    /// Proves knowledge of the key: a hash of `challenge` that does not reveal the key.
    pub fn answer(&self, challenge: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(b"omnes answer");
        hasher.write(challenge);
        hasher.finish()
    }
}

/// Key of one sender. It holds only its bytes, because a rank may have many senders.
#[derive(Clone, Copy)]
pub struct SenderKey([u8; 16]);

impl SenderKey {
    /// Tag of a packet for `to` with this header and control body.
    ///
    /// # Panics
    /// If the control body is longer than the longest valid one, [`crate::GAP_MAP_BYTES`].
    pub fn tag(&self, header: &[u8; HEADER_BYTES], to: Rank, body: &[u8]) -> Tag {
        // All in one buffer: hashing piece by piece costs twice as much.
        let mut bytes = [0; TAGGED_BYTES_MAX];
        let length = HEADER_BYTES + 4 + body.len();
        bytes[..HEADER_BYTES].copy_from_slice(header);
        bytes[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&to.0.to_be_bytes());
        bytes[HEADER_BYTES + 4..length].copy_from_slice(body);
        Tag(self.hasher().hash(&bytes[..length]))
    }

    /// The 16 bytes of the key, for handing it to the network interface.
    pub fn to_bytes(&self) -> [u8; 16] {
        self.0
    }

    fn hasher(&self) -> SipHasher24 {
        SipHasher24::new_with_key(&self.0)
    }

    /// True if `tag` is right. A single 64-bit comparison, so it takes constant time.
    pub fn verify(&self, tag: Tag, header: &[u8; HEADER_BYTES], to: Rank, body: &[u8]) -> bool {
        self.tag(header, to, body) == tag
    }
}

impl fmt::Debug for SenderKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SenderKey(secret)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const TO: Rank = Rank(4);

    #[test]
    fn tag_is_siphash_2_4() {
        // The reference vector of the SipHash paper: key 00..0f, message 00..0e.
        let key: Vec<u8> = (0..16).collect();
        let message: Vec<u8> = (0..15).collect();
        let mut hasher = SipHasher24::new_with_key(&key.try_into().unwrap());
        hasher.write(&message);
        assert_eq!(hasher.finish(), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn senders_and_jobs_have_different_keys() {
        let header = [7; HEADER_BYTES];
        let first = JobKey::new([1; 16]);
        let second = JobKey::new([2; 16]);
        let tag = first.sender(Rank(0)).tag(&header, TO, b"body");
        assert!(first.sender(Rank(0)).verify(tag, &header, TO, b"body"));
        assert!(!first.sender(Rank(1)).verify(tag, &header, TO, b"body"));
        assert!(!second.sender(Rank(0)).verify(tag, &header, TO, b"body"));
        assert!(!first.sender(Rank(0)).verify(tag, &header, Rank(5), b"body"));
    }

    #[test]
    fn key_is_parsed_from_hex_and_hidden_in_debug_output() {
        let key = JobKey::from_hex("000102030405060708090a0b0c0d0e0F").unwrap();
        assert_eq!(key.as_bytes()[15], 15);
        assert_eq!(format!("{key:?}"), "JobKey(secret)");
        assert_eq!(JobKey::from_hex("00"), Err(KeyError));
        assert_eq!(JobKey::from_hex("zz0102030405060708090a0b0c0d0e0f"), Err(KeyError));
    }

    proptest! {
        #[test]
        fn any_flipped_bit_breaks_the_tag(
            header: [u8; HEADER_BYTES],
            body in proptest::collection::vec(any::<u8>(), 0..64),
            at in 0usize..1000,
            bit in 0u8..8,
        ) {
            let key = JobKey::new([3; 16]).sender(Rank(2));
            let tag = key.tag(&header, TO, &body);
            let mut bytes = [&header[..], &body[..]].concat();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            let (head, rest) = bytes.split_first_chunk::<HEADER_BYTES>().unwrap();
            prop_assert!(!key.verify(tag, head, TO, rest));
        }
    }
}
