//! New communicators out of old ones.

use crate::communicator::{Bytes, Communicator, Purpose};
use crate::error::Error;
use omnes_wire::CommunicatorId;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What each rank says of itself: color and key, and the number it would give next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Choice {
    color: Option<u32>,
    key: i64,
    next_communicator: u32,
}

const CHOICE_BYTES: usize = 17;

impl Choice {
    fn emit(&self) -> [u8; CHOICE_BYTES] {
        let mut bytes = [0; CHOICE_BYTES];
        bytes[0] = u8::from(self.color.is_some());
        bytes[1..5].copy_from_slice(&self.color.unwrap_or(0).to_be_bytes());
        bytes[5..13].copy_from_slice(&self.key.to_be_bytes());
        bytes[13..].copy_from_slice(&self.next_communicator.to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (has_color, rest) = bytes.split_first()?;
        let (color, rest) = rest.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_first_chunk::<8>()?;
        Some(Self {
            color: (*has_color != 0).then_some(u32::from_be_bytes(*color)),
            key: i64::from_be_bytes(*key),
            next_communicator: u32::from_be_bytes(*rest.first_chunk()?),
        })
    }
}

impl Communicator {
    /// Parts the communicator: ranks of one color get a new communicator together, in order of
    /// their keys, and of their ranks here where keys are equal. A rank without color gets none.
    /// To be called by all ranks.
    ///
    /// # Errors
    /// [`Error::PeerFailed`] if a member has failed, [`Error::TooManyCommunicators`].
    pub fn split(&self, color: Option<u32>, key: i64) -> Result<Option<Self>, Error> {
        let next_communicator = self.job().next_communicator.load(Ordering::SeqCst);
        let choices = self.exchange(Choice { color, key, next_communicator })?;
        // Groups of one split are disjoint, so they may share a number that is new to all.
        let number = choices.iter().map(|choice| choice.next_communicator).max().unwrap_or(0);
        let limit = u32::from(u16::MAX);
        let Ok(id) = u16::try_from(number) else {
            return Err(Error::TooManyCommunicators { limit });
        };
        self.job().next_communicator.fetch_max(number + 1, Ordering::SeqCst);
        if color.is_none() {
            return Ok(None);
        }
        let mut group: Vec<u32> =
            (0..self.size()).filter(|rank| choices[*rank as usize].color == color).collect();
        group.sort_by_key(|rank| (choices[*rank as usize].key, *rank));
        let own = group.iter().position(|rank| *rank == self.rank());
        let rank = own.expect("a rank is in the group of its own color") as u32;
        let members = group.into_iter().map(|rank| self.in_job(rank).0).collect();
        let job = Arc::clone(&self.inner.job);
        Ok(Some(Self::new(job, CommunicatorId(id), members, rank)))
    }

    /// A communicator of the same ranks whose messages do not mix with this one's. To be called
    /// by all ranks.
    ///
    /// # Errors
    /// As [`Self::split`].
    pub fn dup(&self) -> Result<Self, Error> {
        let copy = self.split(Some(0), i64::from(self.rank()))?;
        Ok(copy.expect("a rank with a color gets a communicator"))
    }

    /// Every rank's choice, in order of ranks: gathered at rank 0 and broadcast.
    fn exchange(&self, own: Choice) -> Result<Vec<Choice>, Error> {
        let size = self.size() as usize;
        let mut table = vec![0; size * CHOICE_BYTES];
        let mine = self.rank() as usize * CHOICE_BYTES;
        table[mine..mine + CHOICE_BYTES].copy_from_slice(&own.emit());
        if self.rank() == 0 {
            let mut receives = Vec::with_capacity(size);
            let mut started = Ok(());
            for (rank, row) in table.chunks_mut(CHOICE_BYTES).enumerate().skip(1) {
                let (rank, row) = (rank as u32, Bytes::of_mut(row));
                // SAFETY: rows are disjoint, and all are waited for before the table is read.
                match unsafe { self.start_receive(rank, Purpose::Gather, row) } {
                    Ok(receive) => receives.push(receive),
                    Err(error) => started = Err(error),
                }
            }
            let waited = self.wait_for_all(&receives);
            started.and(waited)?;
        } else {
            let data = Bytes::of(&table[mine..mine + CHOICE_BYTES]);
            // SAFETY: waited for at once.
            let send = unsafe { self.start_send(0, Purpose::Gather, data, data.length)? };
            self.wait_for_all(send.as_slice())?;
        }
        self.bcast(0, &mut table)?;
        let choices: Option<Vec<Choice>> = table.chunks(CHOICE_BYTES).map(Choice::parse).collect();
        choices.ok_or(Error::Disagreement { what: "the format of a split" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choice_round_trips() {
        for choice in
            [Choice::default(), Choice { color: Some(7), key: -3, next_communicator: 65_535 }]
        {
            assert_eq!(Choice::parse(&choice.emit()), Some(choice));
        }
        assert_eq!(Choice::parse(&[0; CHOICE_BYTES - 1]), None);
    }
}
