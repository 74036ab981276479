//! Encryption of user data: only ranks of the job can read them, and only ranks of the job can have
//! sent them.
//!
//! The tag of a packet covers its head; with encryption its data are encrypted and authenticated as
//! well, by AES-128-GCM under a key per job and sender. The head is bound to the data, so data
//! cannot be moved to another head.
//!
//! ```text
//!   clear      head · tag · control body │ user data
//!   on the wire  the same                │ ciphertext · authenticator (16) · nonce (12)
//! ```
//!
//! The nonce consists of a random number that each rank draws at the start, and a count of its
//! packets: a retransmitted packet is encrypted again, so no nonce is ever used twice. Packets of
//! kinds that carry no user data are unchanged; packets with empty data are authenticated as well,
//! because otherwise packets could be truncated. Packets through a node's shared memory meet no
//! network and are not encrypted.
//!
//! Cost: [`SEALED_BYTES`] in each packet, and a pass over the data at each side, which are then
//! neither gathered from user memory by the kernel nor scattered into it. Encryption needs a job
//! key that is not sent over the network. All ranks of a job trust each other: a member could
//! impersonate another.

use omnes_proto::endpoint::Endpoint;
use omnes_wire::{JobId, JobKey, Rank};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf;
use std::collections::BTreeMap;

const AUTHENTICATOR_BYTES: usize = 16;
/// Bytes that encryption adds to a packet.
pub(crate) const SEALED_BYTES: usize = AUTHENTICATOR_BYTES + NONCE_LEN;

/// Random bytes of the nonce; the others are a counter.
const DRAWN_BYTES: usize = 4;

/// See the module header.
pub(crate) struct Cipher {
    job: JobId,
    job_secret: hkdf::Prk,
    own: LessSafeKey,
    /// Keys of the other ranks, from their first packet on.
    senders: BTreeMap<Rank, LessSafeKey>,
    drawn: [u8; DRAWN_BYTES],
    sealed: u64,
}

impl Cipher {
    /// Creates the cipher of rank `me`. `drawn` must be random: it distinguishes starts with the
    /// same keys.
    pub(crate) fn new(job: JobId, key: &JobKey, me: Rank, drawn: [u8; DRAWN_BYTES]) -> Self {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"omnes user data");
        let job_secret = salt.extract(key.as_bytes());
        let own = sender_key(&job_secret, job, me);
        Self { job, job_secret, own, senders: BTreeMap::new(), drawn, sealed: 0 }
    }

    fn next_nonce(&mut self) -> [u8; NONCE_LEN] {
        let mut nonce = [0; NONCE_LEN];
        nonce[..DRAWN_BYTES].copy_from_slice(&self.drawn);
        nonce[DRAWN_BYTES..].copy_from_slice(&self.sealed.to_be_bytes());
        self.sealed += 1;
        nonce
    }

    /// Encrypts `data` into `sealed`, which is [`SEALED_BYTES`] longer and is sent after `head` in
    /// their place.
    pub(crate) fn seal(&mut self, head: &[u8], data: &[u8], sealed: &mut [u8]) {
        let nonce = self.next_nonce();
        let (cipher_text, rest) = sealed.split_at_mut(data.len());
        cipher_text.copy_from_slice(data);
        let (authenticator, last) = rest.split_at_mut(AUTHENTICATOR_BYTES);
        last.copy_from_slice(&nonce);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let made = self.own.seal_in_place_separate_tag(nonce, Aad::from(head), cipher_text);
        let made = made.expect("no packet is too long for the cipher");
        authenticator.copy_from_slice(made.as_ref());
    }

    /// Decrypts the data of a packet of `sender` in place, which start after `head_bytes`; returns
    /// their length. `None` if they are not the data that the sender has sent with this head.
    fn open(&mut self, sender: Rank, packet: &mut [u8], head_bytes: usize) -> Option<usize> {
        let (head, sealed) = packet.split_at_mut_checked(head_bytes)?;
        let (cipher_text, nonce) = sealed.split_last_chunk_mut::<NONCE_LEN>()?;
        let Self { job, job_secret, senders, .. } = self;
        let key = senders.entry(sender).or_insert_with(|| sender_key(job_secret, *job, sender));
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let data = key.open_in_place(nonce, Aad::from(&*head), cipher_text).ok()?;
        Some(data.len())
    }
}

/// Key for data of `sender` in one run of a job.
fn sender_key(job_secret: &hkdf::Prk, job: JobId, sender: Rank) -> LessSafeKey {
    let (job, sender) = (job.0.to_be_bytes(), sender.0.to_be_bytes());
    let info = [&job[..], &sender[..]];
    let derived = job_secret.expand(&info, &AES_128_GCM).expect("a key is short enough to derive");
    LessSafeKey::new(UnboundKey::from(derived))
}

/// Returns a received packet with its data decrypted. Returns the packet itself if the job does not
/// encrypt, and if the packet carries no data or is not authentic, which its handling will detect.
/// `None` if the data are not authentic, which is counted.
pub(crate) fn in_clear<'a>(
    cipher: &mut Option<Cipher>,
    endpoint: &mut Endpoint,
    packet: &'a mut [u8],
) -> Option<&'a [u8]> {
    let Some(cipher) = cipher else { return Some(packet) };
    let Some((sender, head_bytes)) = endpoint.data_head(packet) else { return Some(packet) };
    match cipher.open(sender, packet, head_bytes) {
        Some(data_bytes) => Some(&packet[..head_bytes + data_bytes]),
        None => {
            endpoint.refuse_data();
            None
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const HEAD: &[u8] = b"forty bytes of a head, or so";

    fn cipher(me: u32) -> Cipher {
        Cipher::new(JobId(7), &JobKey::new([9; 16]), Rank(me), [1, 2, 3, me as u8])
    }

    fn packet(cipher: &mut Cipher, data: &[u8]) -> Vec<u8> {
        let mut sealed = vec![0; data.len() + SEALED_BYTES];
        cipher.seal(HEAD, data, &mut sealed);
        [HEAD, &sealed].concat()
    }

    fn open(cipher: &mut Cipher, sender: u32, packet: &[u8]) -> Option<Vec<u8>> {
        let mut packet = packet.to_vec();
        let bytes = cipher.open(Rank(sender), &mut packet, HEAD.len())?;
        Some(packet[HEAD.len()..HEAD.len() + bytes].to_vec())
    }

    #[test]
    fn data_round_trip_with_a_different_ciphertext_each_time() {
        let (mut sender, mut receiver) = (cipher(3), cipher(0));
        for data in [&b""[..], b"weights", &[0; 1432]] {
            let (first, second) = (packet(&mut sender, data), packet(&mut sender, data));
            assert_ne!(first[HEAD.len()..], second[HEAD.len()..]);
            assert!(data.is_empty() || !first.windows(data.len()).any(|window| window == data));
            assert_eq!(open(&mut receiver, 3, &first).unwrap(), data);
            assert_eq!(open(&mut receiver, 3, &second).unwrap(), data);
            assert_eq!(open(&mut receiver, 3, &first).unwrap(), data, "a duplicate is no forgery");
        }
    }

    #[test]
    fn packets_with_another_sender_job_or_key_are_rejected() {
        let sealed = packet(&mut cipher(3), b"weights");
        assert_eq!(open(&mut cipher(0), 2, &sealed), None);
        let with = |job, key| Cipher::new(JobId(job), &JobKey::new([key; 16]), Rank(0), [0; 4]);
        assert!(open(&mut with(7, 9), 3, &sealed).is_some());
        assert_eq!(open(&mut with(8, 9), 3, &sealed), None);
        assert_eq!(open(&mut with(7, 8), 3, &sealed), None);
    }

    #[test]
    fn truncated_packets_are_rejected() {
        let sealed = packet(&mut cipher(3), b"");
        for bytes in 0..sealed.len() {
            let mut cut = sealed[..bytes].to_vec();
            assert_eq!(cipher(0).open(Rank(3), &mut cut, HEAD.len()), None, "{bytes} bytes");
        }
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_detected(
            data in proptest::collection::vec(any::<u8>(), 0..100),
            at in 0usize..1000,
            bit in 0u8..8,
        ) {
            let mut sealed = packet(&mut cipher(3), &data);
            let at = at % sealed.len();
            sealed[at] ^= 1 << bit;
            prop_assert_eq!(open(&mut cipher(0), 3, &sealed), None);
        }
    }
}
