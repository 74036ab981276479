//! The card by which a rank identifies itself when it hands its segment to a neighbour.

use super::layout::Layout;
use omnes_wire::{JobId, JobKey, Rank};

/// Size of a card in bytes, as sent; both ends run the same kernel on the same processor.
pub(super) const CARD_BYTES: usize = 40;
const MAGIC: [u8; 8] = *b"omnesrng";
const FIELDS_BYTES: usize = CARD_BYTES - 8;

/// Data that all ranks of a job know.
#[derive(Clone, Copy)]
pub(super) struct Secret<'a> {
    pub(super) job: JobId,
    pub(super) key: &'a JobKey,
}

/// See the module header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Card {
    pub(super) from: Rank,
    pub(super) to: Rank,
    /// The sizes of the segment sent with the card.
    pub(super) layout: Layout,
}

impl Secret<'_> {
    /// The name at which `rank` listens: nobody without the key can guess it.
    pub(super) fn name(&self, rank: Rank) -> String {
        let half = |which: u8| {
            let mut bytes = b"ring name".to_vec();
            bytes.push(which);
            bytes.extend(self.job.0.to_be_bytes());
            bytes.extend(rank.0.to_be_bytes());
            self.key.answer(&bytes)
        };
        format!("omnes-{:016x}{:016x}", half(0), half(1))
    }

    fn proof(&self, fields: &[u8]) -> [u8; 8] {
        let mut bytes = b"ring card".to_vec();
        bytes.extend(self.job.0.to_be_bytes());
        bytes.extend(fields);
        self.key.answer(&bytes).to_be_bytes()
    }
}

impl Card {
    /// Encodes the card with a proof that its writer knows the job's key.
    pub(super) fn emit(&self, secret: Secret<'_>) -> [u8; CARD_BYTES] {
        let mut bytes = [0; CARD_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        let capacity_bytes = self.layout.capacity_bytes() as u32;
        let numbers = [self.from.0, self.to.0, capacity_bytes, self.layout.rings()];
        for (field, number) in bytes[8..24].chunks_mut(4).zip(numbers) {
            field.copy_from_slice(&number.to_be_bytes());
        }
        let proof = secret.proof(&bytes[..FIELDS_BYTES]);
        bytes[FIELDS_BYTES..].copy_from_slice(&proof);
        bytes
    }

    /// Parses a card of this job; `None` for anything else.
    pub(super) fn parse(bytes: &[u8], secret: Secret<'_>) -> Option<Self> {
        let bytes: &[u8; CARD_BYTES] = bytes.try_into().ok()?;
        let (fields, proof) = bytes.split_at(FIELDS_BYTES);
        if fields[..8] != MAGIC || secret.proof(fields) != proof {
            return None;
        }
        let number = |at: usize| {
            u32::from_be_bytes([fields[at], fields[at + 1], fields[at + 2], fields[at + 3]])
        };
        let layout = Layout::new(number(16) as usize, number(20))?;
        Some(Self { from: Rank(number(8)), to: Rank(number(12)), layout })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const KEY: JobKey = JobKey::new([5; 16]);
    const SECRET: Secret<'_> = Secret { job: JobId(9), key: &KEY };

    fn card() -> Card {
        Card { from: Rank(1), to: Rank(2), layout: Layout::new(1 << 18, 3).unwrap() }
    }

    #[test]
    fn card_round_trips() {
        assert_eq!(Card::parse(&card().emit(SECRET), SECRET), Some(card()));
    }

    #[test]
    fn card_with_another_key_or_job_or_altered_bytes_is_rejected() {
        let bytes = card().emit(SECRET);
        let other = JobKey::new([6; 16]);
        assert_eq!(Card::parse(&bytes, Secret { key: &other, ..SECRET }), None);
        assert_eq!(Card::parse(&bytes, Secret { job: JobId(8), ..SECRET }), None);
        for at in 0..CARD_BYTES {
            let mut forged = bytes;
            forged[at] ^= 1;
            assert_eq!(Card::parse(&forged, SECRET), None, "byte {at}");
        }
        assert_eq!(Card::parse(&bytes[1..], SECRET), None);
    }

    #[test]
    fn names_differ_by_rank_job_and_key() {
        let other = JobKey::new([6; 16]);
        let names = [
            SECRET.name(Rank(0)),
            SECRET.name(Rank(1)),
            Secret { job: JobId(8), ..SECRET }.name(Rank(0)),
            Secret { key: &other, ..SECRET }.name(Rank(0)),
        ];
        assert!(names.iter().enumerate().all(|(at, name)| !names[..at].contains(name)));
    }
}
