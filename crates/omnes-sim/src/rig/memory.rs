//! The user memory of one rank on one channel, or of its broadcasts: memory that the machines refer
//! to but never own.

use crate::rig::ledger::Operation;
use omnes_proto::limits::POOL_GROWTH;
use omnes_proto::packet::{
    Move, Origin, Preview, ReceiveId, Segment, SendId, SlotId, Source, xor_into,
};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;

#[derive(Debug)]
struct Outgoing {
    operation: Operation,
    content: Rc<[u8]>,
    available: u64,
}

#[derive(Debug)]
struct Incoming {
    operation: Operation,
    content: Vec<u8>,
    /// Written ranges, ends by their starts.
    written: BTreeMap<u64, u64>,
}

impl Incoming {
    /// True if no byte from `start` to `end` has been written.
    fn is_untouched(&self, start: u64, end: u64) -> bool {
        let before = self.written.range(..end).next_back();
        start >= end || before.is_none_or(|(_, written_to)| *written_to <= start)
    }

    /// Records that a range has been written which was unwritten before.
    fn write(&mut self, start: u64, end: u64) {
        let end = self.written.remove(&end).unwrap_or(end);
        match self.written.range_mut(..start).next_back() {
            Some((_, before)) if *before == start => *before = end,
            _ => {
                self.written.insert(start, end);
            }
        }
    }

    /// Number of contiguous bytes from the first on that are in place.
    fn written_to(&self) -> u64 {
        self.written.get(&0).copied().unwrap_or(0)
    }
}

/// How long the data in a slot remain usable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum SlotLife {
    /// Until they are moved.
    #[default]
    UntilMoved,
    /// Until the slot is filled again, as co-roots send from slots data that they have already
    /// moved.
    UntilRefilled,
}

/// Trust in the senders of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Senders {
    /// All senders keep the protocol: every byte is written once, and none is left out.
    #[default]
    Honest,
    /// A sender may send arbitrary packets.
    Any,
}

/// See the module header. Errors describe how the machine broke its contract.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    sends: BTreeMap<SendId, Outgoing>,
    receives: BTreeMap<ReceiveId, Incoming>,
    slots: BTreeMap<SlotId, Vec<u8>>,
    slots_max: u32,
    slot_life: SlotLife,
    senders: Senders,
}

impl Memory {
    /// Memory of a channel whose pool has `pool_slots` slots.
    pub(crate) fn of_channel(pool_slots: u32) -> Self {
        let slots_max = pool_slots * POOL_GROWTH as u32;
        Self { slots_max, slot_life: SlotLife::UntilMoved, ..Self::default() }
    }

    /// Memory of broadcasts whose pool has `pool_slots` slots.
    pub(crate) fn of_broadcasts(pool_slots: u32) -> Self {
        Self { slots_max: pool_slots, slot_life: SlotLife::UntilRefilled, ..Self::default() }
    }

    /// Memory of a rank whose peers may lie: the only remaining requirement is that nothing is
    /// placed outside of posted memory.
    pub(crate) fn among_liars(self) -> Self {
        Self { senders: Senders::Any, ..self }
    }

    pub(crate) fn add_send(
        &mut self,
        id: SendId,
        operation: Operation,
        content: Rc<[u8]>,
        available: u64,
    ) {
        self.sends.insert(id, Outgoing { operation, content, available });
    }

    pub(crate) fn extend(&mut self, operation: Operation, available: u64) -> Option<SendId> {
        let (id, send) = self.sends.iter_mut().find(|(_, send)| send.operation == operation)?;
        send.available = available;
        Some(*id)
    }

    /// A message that is being sent and its number of available bytes, if not all are.
    pub(crate) fn incomplete_send(&self, operation: Operation) -> Option<(SendId, u64)> {
        let (id, send) = self.sends.iter().find(|(_, send)| send.operation == operation)?;
        (send.available < send.content.len() as u64).then_some((*id, send.available))
    }

    /// Length of a message that is being sent.
    pub(crate) fn content_bytes(&self, id: SendId) -> u64 {
        self.sends.get(&id).map_or(0, |send| send.content.len() as u64)
    }

    pub(crate) fn add_receive(&mut self, id: ReceiveId, operation: Operation, capacity: u64) {
        let content = vec![0; capacity as usize];
        self.receives.insert(id, Incoming { operation, content, written: BTreeMap::new() });
    }

    pub(crate) fn receive_id(&self, operation: Operation) -> Option<ReceiveId> {
        let found = self.receives.iter().find(|(_, receive)| receive.operation == operation);
        found.map(|(id, _)| *id)
    }

    /// The bytes of an outgoing packet; if it is coded, the combined bytes of `parts`.
    pub(crate) fn gather(
        &self,
        segment: &Segment,
        parts: &[Segment],
    ) -> Result<Cow<'_, [u8]>, String> {
        let Segment { source, offset, bytes } = *segment;
        let (content, available) = match source {
            Source::Message(id) => match self.sends.get(&id) {
                Some(send) => (&send.content[..], send.available),
                None => return Err(format!("sends from {id:?}, whose memory was given back")),
            },
            Source::Slot(slot) => match self.slots.get(&slot) {
                Some(data) => (&data[..], data.len() as u64),
                None => return Err(format!("sends from the empty {slot:?}")),
            },
            Source::Coded => {
                let mut data = vec![0; bytes as usize];
                for part in parts {
                    xor_into(&mut data, &self.gather(part, &[])?);
                }
                return Ok(data.into());
            }
        };
        let end = offset + u64::from(bytes);
        if end > available {
            return Err(format!("sends {segment:?} of which {available} bytes are there"));
        }
        Ok(content[offset as usize..end as usize].into())
    }

    pub(crate) fn fill_slot(&mut self, slot: SlotId, data: &[u8]) -> Result<(), String> {
        if slot.0 >= self.slots_max {
            return Err(format!("{slot:?} is beyond the pool of {}", self.slots_max));
        }
        self.slots.insert(slot, data.to_vec());
        Ok(())
    }

    pub(crate) fn place(&mut self, id: ReceiveId, offset: u64, data: &[u8]) -> Result<(), String> {
        let Some(receive) = self.receives.get_mut(&id) else {
            return Err(format!("places data into {id:?}, which is not posted"));
        };
        let end = offset + data.len() as u64;
        if self.senders == Senders::Honest && !receive.is_untouched(offset, end) {
            return Err(format!("places {} bytes at {offset} of {id:?} again", data.len()));
        }
        let Some(memory) = receive.content.get_mut(offset as usize..end as usize) else {
            return Err(format!("places {} bytes at {offset} beyond {id:?}", data.len()));
        };
        memory.copy_from_slice(data);
        if offset < end && self.senders == Senders::Honest {
            receive.write(offset, end);
        }
        Ok(())
    }

    /// Checks a preview: a driver may write all of it before the packets are handled.
    pub(crate) fn check_preview(&self, preview: &Preview) -> Result<(), String> {
        let Some(receive) = self.receives.get(&preview.receive) else {
            return Err(format!("{preview:?}, which is not posted"));
        };
        let end = preview.offset + preview.bytes_max;
        if end > receive.content.len() as u64 || !receive.is_untouched(preview.offset, end) {
            let written = receive.written.range(..end).next_back();
            return Err(format!("{preview:?}, but {written:?} is in place or the end is beyond"));
        }
        Ok(())
    }

    pub(crate) fn apply_move(&mut self, step: &Move) -> Result<(), String> {
        let slot = match step.origin {
            Origin::Slot(slot) => slot,
            Origin::Known(known) => return self.decode(step, known),
        };
        let data = match self.slot_life {
            SlotLife::UntilMoved => self.slots.remove(&slot),
            SlotLife::UntilRefilled => self.slots.get(&slot).cloned(),
        };
        let Some(data) = data else { return Err(format!("{step:?} from an empty slot")) };
        if step.bytes > data.len() {
            return Err(format!("{step:?} of {} bytes", data.len()));
        }
        if step.bytes == 0 {
            return Ok(());
        }
        self.place(step.receive, step.offset, &data[..step.bytes])
    }

    /// Removes the known data at `known` from coded data.
    fn decode(&mut self, step: &Move, known: u64) -> Result<(), String> {
        let Some(receive) = self.receives.get_mut(&step.receive) else {
            return Err(format!("{step:?}, which is not posted"));
        };
        let (start, end) = (known, known + step.bytes as u64);
        let holds = |(from, to): (&u64, &u64)| *from <= start && end <= *to;
        let is_there = receive.written.range(..=start).next_back().is_some_and(holds);
        let Some(other) = receive.content.get(start as usize..end as usize) else {
            return Err(format!("{step:?} from beyond the end"));
        };
        if self.senders == Senders::Honest && !is_there {
            return Err(format!("{step:?}, of which not all is in place"));
        }
        let other = other.to_vec();
        let from = step.offset as usize;
        match receive.content.get_mut(from..from + step.bytes) {
            Some(data) => xor_into(data, &other),
            None => return Err(format!("{step:?} to beyond the end")),
        }
        Ok(())
    }

    pub(crate) fn finish_send(&mut self, id: SendId) -> Result<Operation, String> {
        let send = self.sends.remove(&id).ok_or_else(|| format!("{id:?} ends twice"))?;
        Ok(send.operation)
    }

    /// A receive fails: its content is undefined.
    pub(crate) fn abandon_receive(&mut self, id: ReceiveId) -> Result<Operation, String> {
        let receive = self.receives.remove(&id).ok_or_else(|| format!("{id:?} ends twice"))?;
        Ok(receive.operation)
    }

    /// Checks the machine's claim that the first `bytes` of a receive's message are in place.
    pub(crate) fn check_received(&self, id: ReceiveId, bytes: u64) -> Result<(), String> {
        let Some(receive) = self.receives.get(&id) else { return Ok(()) };
        let (kept, written) = (bytes.min(receive.content.len() as u64), receive.written_to());
        if kept <= written {
            Ok(())
        } else {
            Err(format!("{id:?}: {bytes} bytes are said to be there of which {written} are"))
        }
    }

    /// A receive of a message of `bytes` is complete; returns its content.
    pub(crate) fn finish_receive(
        &mut self,
        id: ReceiveId,
        bytes: u64,
    ) -> Result<(Operation, Vec<u8>), String> {
        let receive = self.receives.remove(&id).ok_or_else(|| format!("{id:?} ends twice"))?;
        let written = receive.written_to();
        let mut content = receive.content;
        let kept = bytes.min(content.len() as u64);
        if self.senders == Senders::Honest && written != kept {
            return Err(format!("{id:?}: {written} bytes written for a message of {bytes}"));
        }
        content.truncate(kept as usize);
        Ok((receive.operation, content))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ID: ReceiveId = ReceiveId(0);

    fn preview(offset: u64, bytes_max: u64) -> Preview {
        Preview { channel: 0, receive: ID, offset, bytes_max, head_bytes: 40 }
    }

    #[test]
    fn bytes_are_written_once_and_previews_cover_only_unwritten_ones() {
        let mut memory = Memory::of_channel(1);
        memory.add_receive(ID, Operation(0), 10);
        memory.place(ID, 4, &[1, 2]).unwrap();
        assert!(memory.place(ID, 5, &[3]).is_err());
        assert!(memory.check_preview(&preview(0, 4)).is_ok());
        assert!(memory.check_preview(&preview(0, 5)).is_err());
        assert!(memory.check_preview(&preview(6, 4)).is_ok());
        assert!(memory.check_preview(&preview(6, 5)).is_err());
        memory.place(ID, 6, &[1; 4]).unwrap();
        memory.place(ID, 0, &[1; 4]).unwrap();
        assert_eq!(memory.finish_receive(ID, 10).unwrap().1, [1, 1, 1, 1, 1, 2, 1, 1, 1, 1]);
    }

    #[test]
    fn receive_with_a_hole_is_incomplete() {
        let mut memory = Memory::of_channel(1);
        memory.add_receive(ID, Operation(0), 10);
        memory.place(ID, 0, &[1; 3]).unwrap();
        memory.place(ID, 4, &[1; 6]).unwrap();
        assert!(memory.check_received(ID, 3).is_ok());
        assert!(memory.check_received(ID, 4).is_err());
        assert!(memory.finish_receive(ID, 10).is_err());
    }
}
