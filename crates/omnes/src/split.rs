//! New communicators from existing ones.

use crate::collective::Collective;
use crate::communicator::Communicator;
use crate::compare::Call;
use crate::error::Error;
use omnes_wire::CommunicatorId;
use std::sync::Arc;

/// The values that each rank contributes: color and key, and the number that it would assign next.
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
    /// Splits the communicator: ranks of the same color form a new communicator, ordered by key
    /// and, for equal keys, by rank in this communicator. A rank without a color gets none.
    /// Collective. A job can create at most 2^27 - 1 communicators in total, including those that
    /// were dropped.
    ///
    /// # Errors
    /// [`Error::PeerFailed`] if a member has failed, [`Error::TooManyCommunicators`];
    /// [`Error::NoNic`] if a multi-send through the kernel NIC is required and a rank of the new
    /// communicator gets no slot.
    pub fn split(&self, color: Option<u32>, key: i64) -> Result<Option<Self>, Error> {
        self.begin(Call::of(Collective::Agreement))?;
        let next_communicator = self.job().numbers.next();
        let choices = self.choices(Choice { color, key, next_communicator })?;
        // Groups of one split are disjoint, so they may share a number that is new to all.
        let highest = choices.iter().map(|choice| choice.next_communicator).max().unwrap_or(0);
        let id = self.job().numbers.agree(self, highest)?;
        if color.is_none() {
            return Ok(None);
        }
        let mut group: Vec<u32> =
            (0..self.size()).filter(|rank| choices[*rank as usize].color == color).collect();
        group.sort_by_key(|rank| (choices[*rank as usize].key, *rank));
        let own = group.iter().position(|rank| *rank == self.rank());
        let rank = own.expect("a rank is in the group of its own color") as u32;
        let members = group.into_iter().map(|rank| self.job_rank(rank).0).collect();
        let job = Arc::clone(&self.inner.job);
        let part = Self::new(job, id, members, rank);
        part.settle_multisend(part.open_multisend_late())?;
        part.open_together(part.usual_policy())?;
        Ok(Some(part))
    }

    /// Creates a communicator of the same ranks with a message context of its own. Collective.
    ///
    /// # Errors
    /// As [`Self::split`].
    pub fn dup(&self) -> Result<Self, Error> {
        let copy = self.split(Some(0), i64::from(self.rank()))?;
        Ok(copy.expect("a rank with a color gets a communicator"))
    }

    /// A communicator number that is new to all members. Collective.
    pub(crate) fn take_number(&self) -> Result<CommunicatorId, Error> {
        let numbers = &self.job().numbers;
        let table = self.exchange(&numbers.next().to_be_bytes())?;
        let rows = table.chunks(4).filter_map(|row| row.try_into().ok());
        numbers.agree(self, rows.map(u32::from_be_bytes).max().unwrap_or(0))
    }

    /// Every rank's choice, in order of ranks.
    fn choices(&self, own: Choice) -> Result<Vec<Choice>, Error> {
        let table = self.exchange(&own.emit())?;
        let choices: Option<Vec<Choice>> = table.chunks(CHOICE_BYTES).map(Choice::parse).collect();
        choices.ok_or(Error::Mismatch { what: "the format of a split" })
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
