//! Messages of a rank to itself: matched here, never sent on the network.

use crate::operations::{Completion, OperationError, OperationId, Outcome};
use omnes_proto::channel::{Message, Pattern};
use omnes_proto::packet::ReceiveId;
use omnes_wire::Words;
use std::collections::VecDeque;
use std::ptr::NonNull;

struct Waiting {
    channel: usize,
    pattern: Pattern,
    room: Room,
    operation: OperationId,
    /// The same receive on the network, if any source matches.
    paired: Option<ReceiveId>,
}

struct Kept {
    channel: usize,
    message: Message,
    data: Vec<u8>,
}

/// A receive's memory.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub(crate) base: NonNull<u8>,
    pub(crate) capacity: u64,
}

impl Room {
    /// Completes a receive with a message.
    ///
    /// # Safety
    /// The memory must be valid for writing `capacity` bytes, and must not overlap `data`.
    unsafe fn take_in(self, message: &Message, data: &[u8]) -> Outcome {
        let (bytes, capacity) = (data.len() as u64, self.capacity);
        let fitting = bytes.min(capacity) as usize;
        // SAFETY: promised by the caller.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.base.as_ptr(), fitting) };
        if bytes > capacity {
            return Err(OperationError::Truncated { bytes, capacity });
        }
        Ok(Completion { peer: message.to, tag: message.tag, bytes, words: Words::NONE })
    }
}

/// A receive that a message has completed, and its twin on the network.
pub(crate) struct Done {
    pub(crate) operation: OperationId,
    pub(crate) outcome: Outcome,
    pub(crate) paired: Option<ReceiveId>,
}

/// See the module header.
#[derive(Default)]
pub(crate) struct SelfMessages {
    waiting: VecDeque<Waiting>,
    kept: VecDeque<Kept>,
}

fn accepts(pattern: &Pattern, message: &Message) -> bool {
    pattern.communicator == message.communicator
        && pattern.source.is_none_or(|source| source == message.to)
        && pattern.tag.is_none_or(|tag| tag == message.tag)
}

impl SelfMessages {
    /// Sends a message; returns the receive that this completes, if one waits. `take_back` cancels
    /// a twin on the network, and is false if a message has arrived for it there: the receive then
    /// waits for none from here.
    pub(crate) fn send(
        &mut self,
        channel: usize,
        message: Message,
        data: &[u8],
        mut take_back: impl FnMut(ReceiveId) -> bool,
    ) -> Option<Done> {
        let fits = |it: &Waiting| it.channel == channel && accepts(&it.pattern, &message);
        while let Some(at) = self.waiting.iter().position(fits) {
            let Waiting { operation, paired, room, .. } = self.waiting.remove(at)?;
            if paired.is_none_or(&mut take_back) {
                // SAFETY: the receive waits, so its memory is still lent, for writing, and so to no
                // other user.
                let outcome = unsafe { room.take_in(&message, data) };
                return Some(Done { operation, outcome, paired });
            }
        }
        self.kept.push_back(Kept { channel, message, data: data.to_vec() });
        None
    }

    /// Starts a receive; returns its outcome if the message has been sent already.
    ///
    /// # Safety
    /// The room must be valid for writing until the operation ends.
    pub(crate) unsafe fn receive(
        &mut self,
        channel: usize,
        pattern: Pattern,
        room: Room,
        operation: OperationId,
    ) -> Option<Outcome> {
        let fits = |it: &Kept| it.channel == channel && accepts(&pattern, &it.message);
        if let Some(at) = self.kept.iter().position(fits) {
            let kept = self.kept.remove(at)?;
            // SAFETY: promised by the caller; the data are a copy of our own.
            return Some(unsafe { room.take_in(&kept.message, &kept.data) });
        }
        self.waiting.push_back(Waiting { channel, pattern, room, operation, paired: None });
        None
    }

    /// The oldest matching message, which stays in place.
    pub(crate) fn probe(&self, channel: usize, pattern: &Pattern) -> Option<Completion> {
        let fits = |it: &&Kept| it.channel == channel && accepts(pattern, &it.message);
        let Kept { message, data, .. } = self.kept.iter().find(fits)?;
        let (peer, tag, bytes) = (message.to, message.tag, data.len() as u64);
        Some(Completion { peer, tag, bytes, words: Words::NONE })
    }

    /// Records the receive on the network that is the twin of `operation`.
    pub(crate) fn pair(&mut self, operation: OperationId, id: ReceiveId) {
        let own = self.waiting.iter_mut().find(|waiting| waiting.operation == operation);
        if let Some(waiting) = own {
            waiting.paired = Some(id);
        }
    }

    /// Cancels a receive, if it waits here.
    pub(crate) fn cancel(&mut self, operation: OperationId) {
        self.waiting.retain(|waiting| waiting.operation != operation);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::operations::Operations;
    use omnes_proto::channel::Reply;
    use omnes_wire::{CommunicatorId, Rank};

    const ME: Rank = Rank(4);

    fn message(tag: u32) -> Message {
        let (to, communicator) = (ME, CommunicatorId(1));
        Message { to, communicator, tag, bytes: 8, available: 8, reply: Reply::Soon }
    }

    fn pattern(communicator: u32, tag: Option<u32>) -> Pattern {
        Pattern { source: Some(ME), communicator: CommunicatorId(communicator), tag }
    }

    #[test]
    fn messages_match_receives_by_channel_communicator_and_tag() {
        let (mut own, mut operations) = (SelfMessages::default(), Operations::default());
        let mut memory = [[0u8; 8]; 6];
        let rooms: Vec<Room> = memory
            .iter_mut()
            .map(|it| Room { base: NonNull::from(it).cast(), capacity: 8 })
            .collect();
        let mut receive = |own: &mut SelfMessages, room: usize, channel, pattern| {
            let id = operations.start();
            // SAFETY: the memory lives until the end, and no other code uses it before.
            let outcome = unsafe { own.receive(channel, pattern, rooms[room], id) };
            (id, outcome)
        };
        let others = [(1, 1, 7), (0, 2, 7), (0, 1, 8)];
        for (room, (channel, communicator, tag)) in others.into_iter().enumerate() {
            let (_, outcome) = receive(&mut own, room, channel, pattern(communicator, Some(tag)));
            assert_eq!(outcome, None);
        }
        let (id, _) = receive(&mut own, 3, 0, pattern(1, Some(7)));
        let done = own.send(0, message(7), &[5; 8], |_| false).unwrap();
        assert_eq!((done.operation, done.outcome.unwrap().tag), (id, 7));
        assert!(own.send(0, message(9), &[6; 8], |_| false).is_none());
        for (channel, communicator) in [(1, 1), (0, 2)] {
            let other = pattern(communicator, None);
            assert_eq!(own.probe(channel, &other), None);
            assert_eq!(receive(&mut own, 4, channel, other).1, None);
        }
        assert_eq!(own.probe(0, &pattern(1, None)).unwrap().tag, 9);
        assert_eq!(receive(&mut own, 5, 0, pattern(1, None)).1.unwrap().unwrap().bytes, 8);
        assert_eq!(memory, [[0; 8], [0; 8], [0; 8], [5; 8], [0; 8], [6; 8]]);
    }
}
