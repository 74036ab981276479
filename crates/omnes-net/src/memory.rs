//! Where message bytes are stored: user memory lent for the time of an operation, buffers for small
//! messages, and the pool for messages that no receive has asked for yet.
//!
//! The machines name bytes by (message, offset); only this module turns such names into addresses.
//! The caller that starts an operation promises that its memory stays valid until the operation has
//! ended or been cancelled ([`crate::Engine`] is where that promise is made).

use crate::operations::OperationId;
use omnes_proto::packet::{
    Move, Origin, Placement, ReceiveId, Segment, SendId, Source, Target, xor_into,
};
use omnes_wire::Rank;
use std::ops::Range;
use std::ptr::NonNull;

/// Memory that a caller lends for sending.
#[derive(Clone, Copy)]
pub(crate) struct Loan {
    pub(crate) base: NonNull<u8>,
    pub(crate) bytes: u64,
    /// The operation that the caller waits for.
    pub(crate) operation: OperationId,
}

/// Memory of a message to send.
enum Outgoing {
    Lent(Loan),
    /// A copy; no caller waits for it.
    Own(Kept),
}

/// A copy of a message, until it has arrived.
struct Kept {
    /// Data from byte `start` of the message on; the bytes before it have arrived.
    data: Vec<u8>,
    start: u64,
    /// Its receiver; `None` for a broadcast, whose window limits what is kept.
    to: Option<Rank>,
}

/// Memory of a receive.
#[derive(Clone, Copy)]
pub(crate) struct Sink {
    /// `None` if the data are no longer wanted.
    pub(crate) base: Option<NonNull<u8>>,
    pub(crate) capacity: u64,
    /// The operation that waits, if any.
    pub(crate) operation: Option<OperationId>,
    /// The sender, if only one rank can send.
    pub(crate) from: Option<Rank>,
}

/// Memory of one channel, or of the broadcast machine, whose index follows the last channel's.
#[derive(Default)]
struct ChannelMemory {
    sources: Vec<Option<Outgoing>>,
    /// Bytes kept of messages to one rank each, by rank: the sum of their [`charge`]s.
    kept_bytes: Vec<u64>,
    sinks: Vec<Option<Sink>>,
    pool: Vec<u8>,
}

/// See the module header.
pub(crate) struct Memory {
    channels: Vec<ChannelMemory>,
    spare: Spare,
    slot_bytes: usize,
    /// Bytes copied within the memory of this process, without the kernel's copies.
    pub(crate) copied_bytes: u64,
}

// SAFETY: the pointers are only dereferenced under the lock of the engine that owns this value, and
// the memory behind them is lent for the time of the operation, on whatever thread that runs.
unsafe impl Send for Memory {}

/// Buffers of copies that are no longer needed, for the next ones.
#[derive(Default)]
struct Spare {
    buffers: Vec<Vec<u8>>,
    /// Their total capacity in bytes.
    bytes: usize,
}

impl Spare {
    const BYTES_MAX: usize = 1 << 20;

    fn take(&mut self) -> Vec<u8> {
        let mut buffer = self.buffers.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer.clear();
        buffer
    }

    fn give(&mut self, buffer: Vec<u8>) {
        let room = buffer.capacity();
        // Buffers of empty messages are not worth keeping, and no limit would hold for them.
        if room > 0 && self.bytes + room <= Self::BYTES_MAX {
            self.bytes += room;
            self.buffers.push(buffer);
        }
    }
}

/// Limit for a channel's copies of messages to one rank, in bytes, each counted with 128 bytes in
/// addition to its data. Programs may rely on less: `omnes.h` and the documentation of `send` name
/// this figure.
pub const KEPT_BYTES_MAX: u64 = 4 << 20;
/// Bytes that each message counts in addition to its data, for its description here and in the
/// channel.
const DESCRIPTION_BYTES: u64 = 128;

/// Bytes that a kept message of `bytes` bytes counts, so that empty ones are limited, too.
pub(crate) fn charge(bytes: u64) -> u64 {
    bytes + DESCRIPTION_BYTES
}

fn entry<T>(table: &mut Vec<Option<T>>, index: u32) -> &mut Option<T> {
    let index = index as usize;
    if table.len() <= index {
        table.resize_with(index + 1, || None);
    }
    &mut table[index]
}

impl Memory {
    /// Creates the memory of channels with a pool of `pool_slots` slots of `slot_bytes` bytes each.
    pub(crate) fn new(pool_slots: &[u32], slot_bytes: usize) -> Self {
        let pool = |slots: &u32| ChannelMemory {
            pool: vec![0; *slots as usize * slot_bytes],
            ..ChannelMemory::default()
        };
        let channels = pool_slots.iter().map(pool).collect();
        Self { channels, spare: Spare::default(), slot_bytes, copied_bytes: 0 }
    }

    // ---- sending --------------------------------------------------------------------------

    pub(crate) fn lend(&mut self, channel: usize, id: SendId, loan: Loan) {
        *entry(&mut self.channels[channel].sources, id.0) = Some(Outgoing::Lent(loan));
    }

    /// True if a message of `bytes` bytes to `to` may be copied.
    pub(crate) fn has_room(&self, channel: usize, to: Rank, bytes: u64) -> bool {
        let kept_bytes = self.channels[channel].kept_bytes.get(to.0 as usize);
        kept_bytes.copied().unwrap_or(0) + charge(bytes) <= KEPT_BYTES_MAX
    }

    /// Bytes that a channel keeps of messages to one rank, at the maximum of all channels and
    /// ranks.
    pub(crate) fn kept_bytes(&self) -> u64 {
        let kept_bytes = self.channels.iter().flat_map(|channel| &channel.kept_bytes);
        kept_bytes.copied().max().unwrap_or(0)
    }

    /// Copies a message to one rank or, in a broadcast, to all.
    pub(crate) fn copy_in(&mut self, channel: usize, id: SendId, to: Option<Rank>, data: &[u8]) {
        let mut copy = self.spare.take();
        copy.extend_from_slice(data);
        self.copied_bytes += data.len() as u64;
        self.keep(channel, id, Kept { data: copy, start: 0, to });
    }

    fn keep(&mut self, channel: usize, id: SendId, kept: Kept) {
        let memory = &mut self.channels[channel];
        if let Some(to) = kept.to {
            let rank = to.0 as usize;
            if memory.kept_bytes.len() <= rank {
                memory.kept_bytes.resize(rank + 1, 0);
            }
            memory.kept_bytes[rank] += charge(kept.data.len() as u64);
        }
        *entry(&mut memory.sources, id.0) = Some(Outgoing::Own(kept));
    }

    /// Forgets a message; returns the loan if its memory was lent.
    pub(crate) fn take_source(&mut self, channel: usize, id: SendId) -> Option<Loan> {
        let memory = &mut self.channels[channel];
        match entry(&mut memory.sources, id.0).take()? {
            Outgoing::Lent(loan) => Some(loan),
            Outgoing::Own(Kept { data, to, .. }) => {
                if let Some(to) = to {
                    memory.kept_bytes[to.0 as usize] -= charge(data.len() as u64);
                }
                self.spare.give(data);
                None
            }
        }
    }

    /// Copies the bytes `wanted` of a lent message, to one rank or to all, so that its owner gets
    /// the memory back. That cannot wait, so the copy is kept regardless of the limit.
    pub(crate) fn keep_source(
        &mut self,
        channel: usize,
        id: SendId,
        to: Option<Rank>,
        wanted: Range<u64>,
    ) {
        let source = entry(&mut self.channels[channel].sources, id.0);
        if let Some(Outgoing::Lent(Loan { base, bytes, .. })) = source {
            let end = wanted.end.min(*bytes);
            let start = wanted.start.min(end);
            // SAFETY: lent, and still valid: its owner gets it back only when this returns.
            let data = unsafe {
                let first = base.as_ptr().add(start as usize);
                std::slice::from_raw_parts(first, (end - start) as usize)
            };
            let data = data.to_vec();
            self.copied_bytes += data.len() as u64;
            self.keep(channel, id, Kept { data, start, to });
        }
    }

    /// Discards further data of a receive, and notifies no caller of its end; returns the previous
    /// state.
    pub(crate) fn drop_sink(&mut self, channel: usize, id: ReceiveId) -> Option<Sink> {
        let sink = entry(&mut self.channels[channel].sinks, id.0).as_mut()?;
        Some(std::mem::replace(sink, Sink { base: None, operation: None, ..*sink }))
    }

    /// The bytes of a segment, for the kernel to read.
    pub(crate) fn gather(&self, channel: usize, segment: Segment) -> libc::iovec {
        let memory = &self.channels[channel];
        let (offset, bytes) = (segment.offset as usize, segment.bytes as usize);
        let base = match segment.source {
            Source::Message(id) => {
                let outgoing = memory.sources.get(id.0 as usize).and_then(Option::as_ref);
                match outgoing.expect("a segment of a message that is being sent") {
                    // SAFETY: the machine hands out segments inside the message, whose memory is
                    // valid.
                    Outgoing::Lent(loan) => unsafe { loan.base.as_ptr().cast_const().add(offset) },
                    Outgoing::Own(kept) => {
                        let offset = offset - kept.start as usize;
                        kept.data[offset..offset + bytes].as_ptr()
                    }
                }
            }
            Source::Slot(slot) => {
                let start = slot.0 as usize * self.slot_bytes + offset;
                memory.pool[start..start + bytes].as_ptr()
            }
            Source::Coded => panic!("coded data lie nowhere: their parts do"),
        };
        libc::iovec { iov_base: base.cast_mut().cast(), iov_len: bytes }
    }

    /// Computes the data of a coded packet from its parts.
    pub(crate) fn gather_coded(&self, channel: usize, parts: &[Segment], data: &mut [u8]) {
        data.fill(0);
        for part in parts {
            let part = self.gather(channel, *part);
            // SAFETY: `gather` gives memory that is valid for reading.
            let part = unsafe { std::slice::from_raw_parts(part.iov_base.cast(), part.iov_len) };
            xor_into(data, part);
        }
    }

    // ---- receiving ------------------------------------------------------------------------

    pub(crate) fn open_sink(&mut self, channel: usize, id: ReceiveId, sink: Sink) {
        *entry(&mut self.channels[channel].sinks, id.0) = Some(sink);
    }

    /// Forgets a receive, and returns its memory.
    pub(crate) fn close_sink(&mut self, channel: usize, id: ReceiveId) -> Option<Sink> {
        entry(&mut self.channels[channel].sinks, id.0).take()
    }

    /// Address of `bytes` bytes at `offset` of a receive's memory, if it has any.
    pub(crate) fn sink_at(
        &self,
        channel: usize,
        id: ReceiveId,
        offset: u64,
        bytes: usize,
    ) -> Option<NonNull<u8>> {
        let sink = self.channels[channel].sinks.get(id.0 as usize).and_then(Option::as_ref);
        let sink = sink.expect("a receive that is under way");
        assert!(offset + bytes as u64 <= sink.capacity, "a placement beyond the receive's memory");
        // SAFETY: just checked to lie inside the memory lent for this receive.
        sink.base.map(|base| unsafe { base.add(offset as usize) })
    }

    /// Copies data to their destination.
    pub(crate) fn place(&mut self, placement: Placement, data: &[u8]) {
        let data = &data[..placement.bytes];
        match placement.target {
            Target::Receive(id) => {
                let to = self.sink_at(placement.channel, id, placement.offset, data.len());
                let Some(to) = to else { return };
                // SAFETY: `sink_at` checked the bounds; `data` may lie in the same user memory
                // (read there in advance), hence a copy that allows overlap.
                unsafe { std::ptr::copy(data.as_ptr(), to.as_ptr(), data.len()) };
            }
            Target::Slot(slot) => {
                let start = slot.0 as usize * self.slot_bytes + placement.offset as usize;
                let end = start + data.len();
                let pool = &mut self.channels[placement.channel].pool;
                if pool.len() < end {
                    // A channel may need more than usual (`POOL_GROWTH`); no pointer into it
                    // exists.
                    pool.resize(end.max(pool.len() * 2), 0);
                }
                pool[start..end].copy_from_slice(data);
            }
        }
        self.copied_bytes += data.len() as u64;
    }

    /// Moves data from the pool to the receive posted for them, or removes data that are already in
    /// place from coded data.
    pub(crate) fn execute(&mut self, channel: usize, step: Move) {
        if step.bytes == 0 {
            return; // Beyond the end of a receive that is too short.
        }
        let to = self.sink_at(channel, step.receive, step.offset, step.bytes);
        let Some(to) = to else { return };
        self.copied_bytes += step.bytes as u64;
        match step.origin {
            Origin::Slot(slot) => {
                let start = slot.0 as usize * self.slot_bytes;
                let data = &self.channels[channel].pool[start..start + step.bytes];
                // SAFETY: `sink_at` checked the bounds; pool and user memory are different
                // allocations.
                unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to.as_ptr(), data.len()) };
            }
            Origin::Known(known) => {
                let other = self.sink_at(channel, step.receive, known, step.bytes);
                let Some(other) = other else { return };
                assert!(known.abs_diff(step.offset) >= step.bytes as u64, "two parts overlap");
                // SAFETY: `sink_at` checked the bounds of both, which do not overlap.
                let (data, other) = unsafe {
                    let data = std::slice::from_raw_parts_mut(to.as_ptr(), step.bytes);
                    (data, std::slice::from_raw_parts(other.as_ptr(), step.bytes))
                };
                xor_into(data, other);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::operations::Operations;

    const TO: Rank = Rank(5);

    #[test]
    fn copy_space_is_per_rank_and_freed_once_messages_have_arrived() {
        let mut memory = Memory::new(&[1, 1], 8);
        let most = KEPT_BYTES_MAX - DESCRIPTION_BYTES;
        memory.copy_in(1, SendId(3), Some(TO), &vec![1; most as usize]);
        memory.copy_in(1, SendId(4), None, &[1; 1000]);
        assert_eq!((memory.kept_bytes(), memory.copied_bytes), (KEPT_BYTES_MAX, most + 1000));
        assert!(!memory.has_room(1, TO, 0));
        assert!(memory.has_room(0, TO, most) && memory.has_room(1, Rank(4), most));
        assert!(!memory.has_room(1, Rank(4), most + 1));
        assert!(memory.take_source(1, SendId(3)).is_none(), "nobody waits for a copy");
        assert!(memory.has_room(1, TO, most) && memory.kept_bytes() == 0);
    }

    #[test]
    fn only_the_needed_part_of_lent_memory_is_copied() {
        let mut memory = Memory::new(&[1], 8);
        let mut data: Vec<u8> = (0..100).collect();
        let base = NonNull::from(&mut data[..]).cast();
        let operation = Operations::default().start();
        memory.lend(0, SendId(0), Loan { base, bytes: 100, operation });
        memory.keep_source(0, SendId(0), Some(TO), 40..70);
        assert_eq!((memory.copied_bytes, memory.kept_bytes()), (30, charge(30)));
        data.fill(0xee);
        let source = Source::Message(SendId(0));
        let part = memory.gather(0, Segment { source, offset: 45, bytes: 25 });
        // SAFETY: `gather` gives memory that is valid for reading.
        let part = unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) };
        assert_eq!(part, (45..70).collect::<Vec<u8>>());
        memory.keep_source(0, SendId(0), Some(TO), 0..100);
        assert_eq!(memory.kept_bytes(), charge(30), "it is kept already");
    }

    #[test]
    fn spare_buffers_are_limited() {
        let mut spare = Spare::default();
        let half = Spare::BYTES_MAX / 2;
        (0..3).for_each(|_| spare.give(Vec::with_capacity(half)));
        spare.give(Vec::new());
        assert_eq!((spare.buffers.len(), spare.bytes), (2, 2 * half));
        let buffer = spare.take();
        spare.give(buffer);
        assert_eq!((spare.buffers.len(), spare.bytes), (2, 2 * half));
    }
}
