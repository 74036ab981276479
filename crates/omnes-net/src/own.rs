//! Messages of a rank to itself: matched here, never on the network.

use crate::operations::{Completion, OperationError, OperationId, Outcome};
use omnes_proto::channel::{Message, Pattern};
use omnes_proto::packet::ReceiveId;
use std::collections::VecDeque;
use std::ptr::NonNull;

struct Waiting {
    pattern: Pattern,
    base: NonNull<u8>,
    capacity: u64,
    operation: OperationId,
    /// The same receive on the network, where any source will do.
    paired: Option<ReceiveId>,
}

struct Kept {
    message: Message,
    data: Vec<u8>,
}

/// An operation that ended, and its twin on the network.
pub(crate) struct Done {
    pub(crate) operation: OperationId,
    pub(crate) outcome: Outcome,
    pub(crate) paired: Option<ReceiveId>,
}

/// See the module header.
#[derive(Default)]
pub(crate) struct OwnMessages {
    waiting: VecDeque<Waiting>,
    kept: VecDeque<Kept>,
}

fn accepts(pattern: &Pattern, message: &Message) -> bool {
    pattern.communicator == message.communicator
        && pattern.source.is_none_or(|source| source == message.to)
        && pattern.tag.is_none_or(|tag| tag == message.tag)
}

fn deliver(data: &[u8], message: &Message, base: NonNull<u8>, capacity: u64) -> Outcome {
    let bytes = data.len().min(capacity as usize);
    // SAFETY: the receive's memory is valid for `capacity` bytes, and `data` is not part of it:
    // memory lent for writing is lent to nobody else.
    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), base.as_ptr(), bytes) };
    if data.len() as u64 > capacity {
        return Err(OperationError::Truncated { bytes: data.len() as u64, capacity });
    }
    Ok(Completion { peer: message.to, tag: message.tag, bytes: data.len() as u64, word: 0 })
}

impl OwnMessages {
    /// Sends; the receive that this ends, if one waits.
    pub(crate) fn send(&mut self, message: Message, data: &[u8]) -> Option<Done> {
        let fits = |waiting: &Waiting| accepts(&waiting.pattern, &message);
        let Some(at) = self.waiting.iter().position(fits) else {
            self.kept.push_back(Kept { message, data: data.to_vec() });
            return None;
        };
        let waiting = self.waiting.remove(at)?;
        let outcome = deliver(data, &message, waiting.base, waiting.capacity);
        Some(Done { operation: waiting.operation, outcome, paired: waiting.paired })
    }

    /// Receives; done at once if the message is here.
    ///
    /// # Safety
    /// `base` must be valid for writing `capacity` bytes until the operation ends.
    pub(crate) unsafe fn receive(
        &mut self,
        pattern: Pattern,
        base: NonNull<u8>,
        capacity: u64,
        operation: OperationId,
    ) -> Option<Done> {
        let fits = |kept: &Kept| accepts(&pattern, &kept.message);
        if let Some(at) = self.kept.iter().position(fits) {
            let kept = self.kept.remove(at)?;
            let outcome = deliver(&kept.data, &kept.message, base, capacity);
            return Some(Done { operation, outcome, paired: None });
        }
        let waiting = Waiting { pattern, base, capacity, operation, paired: None };
        self.waiting.push_back(waiting);
        None
    }

    /// The same receive also waits on the network.
    pub(crate) fn pair(&mut self, operation: OperationId, id: ReceiveId) {
        let own = self.waiting.iter_mut().find(|waiting| waiting.operation == operation);
        if let Some(waiting) = own {
            waiting.paired = Some(id);
        }
    }

    /// Takes a receive back; true if it was waiting here.
    pub(crate) fn cancel(&mut self, operation: OperationId) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.operation != operation);
        before != self.waiting.len()
    }
}
