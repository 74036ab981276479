//! Checks whether all ranks call the same collective, before each one if
//! [`Config::compare_calls`](crate::Config::compare_calls) is set.
//!
//! All ranks report their calls to each other, in the same number of bytes for every call, so
//! mismatched calls meet at least here, before any other data of theirs are sent. All ranks find
//! the same difference, and the communicator can still be used.
//!
//! Not compared: nonblocking operations and barriers with a limit, which must not wait for others;
//! functions, algorithms and tags; lengths that may differ, such as those of `gatherv`, which
//! sender and receiver learn from the message. Cost: an exchange ([`Communicator::exchange`])
//! before each call; without the setting, a branch.

use crate::collective::Collective;
use crate::communicator::Communicator;
use crate::error::Error;
use crate::fnv::fnv;
use crate::reduce::{ElementType, ReduceOp};
use std::fmt;

/// The call of a rank; parameters that the collective does not have are `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    collective: Collective,
    root: Option<u32>,
    bytes: Option<u64>,
    /// Digest of the lengths of parts, which all ranks pass.
    lengths: Option<u32>,
    combined: Option<(ElementType, ReduceOp)>,
}

const CALL_BYTES: usize = 20;

impl Call {
    pub(crate) fn of(collective: Collective) -> Self {
        Self { collective, root: None, bytes: None, lengths: None, combined: None }
    }

    pub(crate) fn with_root(self, root: u32) -> Self {
        Self { root: Some(root), ..self }
    }

    pub(crate) fn with_bytes(self, bytes: usize) -> Self {
        Self { bytes: Some(bytes as u64), ..self }
    }

    /// Adds the lengths of the parts, which are the same on all ranks.
    pub(crate) fn with_lengths(self, lengths: &[usize]) -> Self {
        let bytes = lengths.iter().fold(0, |sum: usize, length| sum.saturating_add(*length));
        Self { lengths: Some(digest(lengths)), ..self.with_bytes(bytes) }
    }

    /// Adds the operation on `bytes` bytes, without bytes at the end that do not fill an element.
    pub(crate) fn combining(self, bytes: usize, element: ElementType, op: ReduceOp) -> Self {
        let each = element.bytes();
        Self { combined: Some((element, op)), ..self.with_bytes(bytes / each * each) }
    }

    fn emit(&self) -> [u8; CALL_BYTES] {
        let mut bytes = [0; CALL_BYTES];
        bytes[0] = self.collective.number();
        let parts = u8::from(self.root.is_some()) | u8::from(self.bytes.is_some()) << 1;
        let parts = parts | u8::from(self.lengths.is_some()) << 3;
        bytes[1] = parts | u8::from(self.combined.is_some()) << 2;
        if let Some((element, op)) = self.combined {
            (bytes[2], bytes[3]) = (element as u8, op as u8);
        }
        bytes[4..8].copy_from_slice(&self.root.unwrap_or(0).to_be_bytes());
        bytes[8..16].copy_from_slice(&self.bytes.unwrap_or(0).to_be_bytes());
        bytes[16..].copy_from_slice(&self.lengths.unwrap_or(0).to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let [collective, parts, element, op, rest @ ..] = bytes else { return None };
        let (root, rest) = rest.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<8>()?;
        let lengths = rest.first_chunk::<4>()?;
        let element = ElementType::ALL.get(usize::from(*element)).copied();
        let op = ReduceOp::ALL.get(usize::from(*op)).map(|(op, _)| *op);
        let has = |part: u8| parts >> part & 1 != 0;
        Some(Self {
            collective: Collective::of_number(*collective)?,
            root: has(0).then_some(u32::from_be_bytes(*root)),
            bytes: has(1).then_some(u64::from_be_bytes(*length)),
            lengths: has(3).then_some(u32::from_be_bytes(*lengths)),
            combined: element.zip(op).filter(|_| has(2)),
        })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.collective)?;
        match (self.bytes, self.combined) {
            (Some(bytes), Some((element, op))) => {
                write!(formatter, " of {} {element} by {op}", bytes / element.bytes() as u64)?;
            }
            (Some(bytes), None) => write!(formatter, " of {bytes} bytes")?,
            (None, _) => {}
        }
        if let Some(lengths) = self.lengths {
            write!(formatter, " in parts of lengths #{lengths:08x}")?;
        }
        self.root.map_or(Ok(()), |root| write!(formatter, " with root {root}"))
    }
}

/// A number that distinguishes lists of lengths.
fn digest(lengths: &[usize]) -> u32 {
    fnv(lengths.iter().flat_map(|length| (*length as u64).to_be_bytes())) as u32
}

/// Returns an error with the first rank whose call differs from rank 0's, as text.
fn difference(table: &[u8]) -> Result<(), Error> {
    let mut rows = table.chunks(CALL_BYTES);
    let first = rows.next().unwrap_or_default();
    let Some((rank, row)) = (1..).zip(rows).find(|(_, row)| *row != first) else { return Ok(()) };
    match (Call::parse(row), Call::parse(first)) {
        (Some(call), Some(first)) => {
            let (call, first) = (call.to_string(), first.to_string());
            Err(Error::CallMismatch { rank, call, first })
        }
        _ => Err(Error::Mismatch { what: "the format of a call" }),
    }
}

impl Communicator {
    /// Begins a collective: rejects it after one that was given up and, if calls are compared, if
    /// it is not the same on all ranks. Collective in that case.
    pub(crate) fn begin(&self, call: Call) -> Result<(), Error> {
        self.check_whole()?;
        if self.job().config.compare_calls && !self.job().is_finalizing() {
            let compare = || self.table_of(&call.emit());
            return difference(&self.run_collective(call.collective, compare)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn calls() -> Vec<(Call, &'static str)> {
        let reduce = Call::of(Collective::Reduce);
        vec![
            (Call::of(Collective::Barrier), "barrier"),
            (Call::of(Collective::Alltoall).with_bytes(12), "alltoall of 12 bytes"),
            (
                Call::of(Collective::Bcast).with_bytes(0).with_root(7),
                "bcast of 0 bytes with root 7",
            ),
            (
                reduce.combining(27, ElementType::F64, ReduceOp::Max).with_root(0),
                "reduce of 3 f64 by max with root 0",
            ),
            (reduce.combining(8, ElementType::I8, ReduceOp::Sum), "reduce of 8 i8 by sum"),
            (
                Call::of(Collective::Allgatherv).with_lengths(&[3, 0, 4]),
                "allgatherv of 7 bytes in parts of lengths #b9b378e0",
            ),
        ]
    }

    #[test]
    fn calls_round_trip_and_are_displayed_by_name() {
        for (call, text) in calls() {
            assert_eq!(Call::parse(&call.emit()), Some(call));
            assert_eq!(call.to_string(), text);
        }
        assert_eq!(Call::parse(&[0; 15]), None);
        assert_eq!(Call::parse(&[u8::MAX; CALL_BYTES]), None);
    }

    #[test]
    fn element_types_and_operations_match_their_positions() {
        let all = ElementType::ALL.iter().zip(0..);
        assert!(all.into_iter().all(|(element, place)| *element as u8 == place));
        assert!(ReduceOp::ALL.iter().zip(0..).all(|((op, _), place)| *op as u8 == place));
    }

    #[test]
    fn first_rank_with_a_different_call_than_rank_0_is_named() {
        let table = |calls: &[usize]| {
            calls.iter().flat_map(|call| self::calls()[*call].0.emit()).collect::<Vec<u8>>()
        };
        difference(&table(&[1, 1, 1])).unwrap();
        difference(&table(&[1])).unwrap();
        let error = difference(&table(&[0, 0, 4, 1])).unwrap_err();
        assert_eq!(error.rank(), Some(2));
        let text = error.to_string();
        assert!(text.starts_with("rank 2 called reduce of 8 i8 by sum, rank 0 barrier:"), "{text}");
    }
}
