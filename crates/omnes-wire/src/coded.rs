//! Set of packets that a coded repair combines.

use crate::{Header, Seq};

/// Set of packets combined in a [`Kind::CastCoded`](crate::Kind::CastCoded): its data are the
/// exclusive or of the data of all of them, each padded with zeros to the length of a full packet.
/// A rank that has all but one of the packets recovers the missing one.
///
/// The header encodes the set in the fields that a data packet uses for its index: the first packet
/// in `seq`, and one bit for each later packet in `argument` and then `credits`, nearest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodedSet {
    /// The first packet.
    pub first: Seq,
    /// Bit `i` stands for the packet `1 + i` after the first; `SPAN - 1` bits are in use.
    pub later: u64,
}

impl CodedSet {
    /// Largest distance between packets of one set, counting both ends.
    pub const SPAN: u32 = 1 + u32::BITS + u16::BITS;

    /// Set of the packet `first` and of the packets whose bits are set in `bits`; the lowest of the
    /// [`Self::SPAN`] bits stands for `first` itself.
    pub fn new(first: Seq, bits: u64) -> Self {
        Self { first, later: bits >> 1 & ((1 << (Self::SPAN - 1)) - 1) }
    }

    /// Reads the set from a header.
    pub fn of(header: &Header) -> Self {
        let later = u64::from(header.argument) | u64::from(header.credits) << 32;
        Self { first: header.seq, later }
    }

    /// Returns `header` with this set encoded in it.
    #[must_use]
    pub fn name_in(self, header: Header) -> Header {
        Header {
            seq: self.first,
            argument: self.later as u32,
            credits: (self.later >> 32) as u16,
            ..header
        }
    }

    /// Packets of the set, in order.
    pub fn packets(self) -> impl Iterator<Item = Seq> + Clone {
        let is_in = move |after: &u32| *after == 0 || self.later >> (*after - 1) & 1 == 1;
        (0..Self::SPAN).filter(is_in).map(move |after| self.first.plus(after))
    }

    /// Number of packets in the set.
    pub fn count(self) -> u32 {
        1 + self.later.count_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChannelId, CommunicatorId, Flags, JobId, Kind, Rank};

    #[test]
    fn coded_set_round_trips_through_the_header() {
        let header = Header {
            job: JobId(1),
            communicator: CommunicatorId(2),
            channel: ChannelId(3),
            flags: Flags::GROUP,
            expects: Seq(4),
            ..Header::blank(Kind::CastCoded, Rank(4))
        };
        for later in [0, 1, 1 << 31, 1 << 32, 1 << 47, (1 << 48) - 1] {
            let set = CodedSet { first: Seq(u32::MAX - 3), later };
            assert_eq!(CodedSet::of(&set.name_in(header)), set);
            assert_eq!(set.packets().count(), set.count() as usize);
        }
        let set = CodedSet::new(Seq(u32::MAX), 0b1011);
        assert_eq!(set.packets().collect::<Vec<_>>(), [Seq(u32::MAX), Seq(0), Seq(2)]);
    }
}
