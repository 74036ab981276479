//! The user memory of one rank on one channel: what the machines name and never hold.

use crate::ledger::Operation;
use omnes_proto::packet::{Move, ReceiveId, Segment, SendId, SlotId};
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
    /// Bytes written so far; each byte once, so that this is what is in place.
    written: u64,
}

/// See the module header. Errors tell how the machine broke its contract.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    sends: BTreeMap<SendId, Outgoing>,
    receives: BTreeMap<ReceiveId, Incoming>,
    slots: BTreeMap<SlotId, Vec<u8>>,
    slots_max: u32,
}

impl Memory {
    pub(crate) fn new(slots_max: u32) -> Self {
        Self { slots_max, ..Self::default() }
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

    /// Length of a message that is being sent.
    pub(crate) fn content_bytes(&self, id: SendId) -> u64 {
        self.sends.get(&id).map_or(0, |send| send.content.len() as u64)
    }

    pub(crate) fn add_receive(&mut self, id: ReceiveId, operation: Operation, capacity: u64) {
        let content = vec![0; capacity as usize];
        self.receives.insert(id, Incoming { operation, content, written: 0 });
    }

    pub(crate) fn receive_id(&self, operation: Operation) -> Option<ReceiveId> {
        let found = self.receives.iter().find(|(_, receive)| receive.operation == operation);
        found.map(|(id, _)| *id)
    }

    /// The bytes of a packet going out.
    pub(crate) fn gather(&self, segment: &Segment) -> Result<&[u8], String> {
        let Segment { message, offset, bytes } = *segment;
        let Some(send) = self.sends.get(&message) else {
            return Err(format!("sends from {message:?}, whose memory was given back"));
        };
        let end = offset + u64::from(bytes);
        if end > send.available {
            return Err(format!("sends {segment:?} of which {} bytes are there", send.available));
        }
        Ok(&send.content[offset as usize..end as usize])
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
        let place = offset as usize..offset as usize + data.len();
        let Some(memory) = receive.content.get_mut(place) else {
            return Err(format!("places {} bytes at {offset} beyond {id:?}", data.len()));
        };
        memory.copy_from_slice(data);
        receive.written += data.len() as u64;
        Ok(())
    }

    pub(crate) fn apply_move(&mut self, step: &Move) -> Result<(), String> {
        let Some(data) = self.slots.remove(&step.slot) else {
            return Err(format!("{step:?} from an empty slot"));
        };
        if step.bytes > data.len() {
            return Err(format!("{step:?} of {} bytes", data.len()));
        }
        if step.bytes == 0 {
            return Ok(());
        }
        self.place(step.receive, step.offset, &data[..step.bytes])
    }

    pub(crate) fn finish_send(&mut self, id: SendId) -> Result<Operation, String> {
        let send = self.sends.remove(&id).ok_or_else(|| format!("{id:?} ends twice"))?;
        Ok(send.operation)
    }

    /// A receive ends in failure: nothing is known of its content.
    pub(crate) fn abandon_receive(&mut self, id: ReceiveId) -> Result<Operation, String> {
        let receive = self.receives.remove(&id).ok_or_else(|| format!("{id:?} ends twice"))?;
        Ok(receive.operation)
    }

    /// A receive of a message of `bytes` is complete; its content.
    pub(crate) fn finish_receive(
        &mut self,
        id: ReceiveId,
        bytes: u64,
    ) -> Result<(Operation, Vec<u8>), String> {
        let receive = self.receives.remove(&id).ok_or_else(|| format!("{id:?} ends twice"))?;
        let mut content = receive.content;
        let kept = bytes.min(content.len() as u64);
        if receive.written != kept {
            let written = receive.written;
            return Err(format!("{id:?}: {written} bytes written for a message of {bytes}"));
        }
        content.truncate(kept as usize);
        Ok((receive.operation, content))
    }
}
