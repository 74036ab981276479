//! Decoding of coded packets: a rank that has all but one of the parts recovers the missing one.

use super::{Incoming, Packet, Posted};
use crate::broadcast::config::CheckedBroadcast;
use crate::lane::Arrival;
use omnes_wire::{CodedSet, Flags, Seq};

/// Packet recovered from a coded one.
#[derive(Debug)]
pub(in crate::broadcast) struct Decoded {
    pub(in crate::broadcast) packet: Packet,
    /// Offset and length of each other packet's data in the memory of its receive.
    pub(in crate::broadcast) known: Vec<(u64, u32)>,
}

impl Incoming {
    fn lacks(&self, seq: Seq) -> bool {
        matches!(self.arrivals.classify(seq), Arrival::InOrder | Arrival::Ahead)
    }

    /// True if any packet of the set has not arrived.
    pub(in crate::broadcast) fn lacks_any(&self, set: CodedSet) -> bool {
        set.packets().any(|seq| self.lacks(seq))
    }

    /// Recovers the only missing packet of a coded one, if all others are in the memory of a
    /// receive that knows its message's length and has space for it. The first packet of a message
    /// has a different layout, and is in no set.
    pub(in crate::broadcast) fn decode(
        &self,
        config: &CheckedBroadcast,
        set: CodedSet,
    ) -> Option<Decoded> {
        let mut lacking = set.packets().filter(|seq| self.lacks(*seq));
        let (Some(seq), None, false) = (lacking.next(), lacking.next(), self.keeps) else {
            return None;
        };
        let holds = |posted: &Posted| !seq.precedes(posted.first) && seq.precedes(posted.end());
        let at = self.posted.iter().position(holds).filter(|at| self.is_certain(*at))?;
        let posted = &self.posted[at];
        let bytes = posted.bytes.filter(|bytes| *bytes <= posted.capacity)?;
        let mut known = Vec::with_capacity(set.count() as usize);
        for other in set.packets().filter(|other| *other != seq) {
            let index = other.since(posted.first);
            if !self.is_in_place(posted, other) || index == 0 {
                return None;
            }
            known.push((config.offset(index), config.packet_bytes(bytes, index)));
        }
        let index = seq.since(posted.first);
        let flags = Flags::NONE.with_if(Flags::LAST, index + 1 == posted.packets);
        let bytes = config.packet_bytes(bytes, index) as usize;
        let epoch = self.arrivals.epoch();
        let packet = Packet { seq, index, flags, epoch, envelope: None, bytes };
        (index > 0).then_some(Decoded { packet, known })
    }

    /// True if the data of `seq` are in the memory of this receive.
    fn is_in_place(&self, posted: &Posted, seq: Seq) -> bool {
        let is_of_it = !seq.precedes(posted.first) && seq.precedes(posted.end());
        let is_stashed = self.stashed(seq).is_some_and(|stashed| !stashed.is_delivered);
        is_of_it && self.arrivals.classify(seq) == Arrival::Duplicate && !is_stashed
    }
}
