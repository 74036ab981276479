//! Broadcast over multicast: availability, groups, and the operations.
//!
//! Only the other ranks can tell whether multicast reaches them. So a user of these operations
//! first lets all ranks [`announce`](Engine::announce) themselves, and turns multicast off
//! ([`disable_multicast`](Engine::disable_multicast)) unless each has heard all others.

use super::Engine;
use crate::core::{Cast, Core, WhenFull};
use crate::multicast::MulticastState;
use crate::operations::{Disruption, Operation, OperationError, Spot};
#[cfg(doc)]
use omnes_proto::broadcast::Hold;
use omnes_proto::broadcast::{CastGroupConfig, GroupId};
use omnes_wire::{CommunicatorId, Rank};
use std::ptr::NonNull;

impl Engine {
    /// What this rank could set up, as far as it can tell by itself.
    pub fn multicast(&self) -> MulticastState {
        self.enter(|core| core.multicast.clone())
    }

    /// Announces this rank by multicast; does nothing without multicast.
    pub fn announce(&self) {
        self.enter(|core| {
            core.announce();
            core.send_now();
        });
    }

    /// Number of ranks whose multicast has reached this one so far, not counting this one.
    pub fn heard(&self) -> usize {
        self.enter(|core| {
            core.progress_if_stale(&self.shared.poller);
            core.heard()
        })
    }

    /// Leaves the job's group and uses no multicast from now on, for a reason that
    /// [`Self::multicast`] returns. To be called before any group is opened, on all ranks.
    pub fn disable_multicast(&self, reason: &str) {
        self.enter(|core| core.disable_multicast(reason));
    }

    /// Opens a group; does nothing if the group is open, or without multicast. The group is the
    /// same on all of its ranks, but they need not wait for each other.
    pub fn open_group(&self, group: CastGroupConfig) {
        self.enter(|core| core.open_group(group));
    }

    /// Closes the groups of a communicator, and its multi-send when this rank has nothing in
    /// progress there any more. To be called when the rank starts nothing more there; operations in
    /// progress continue.
    pub fn close_groups(&self, communicator: CommunicatorId) {
        self.enter(|core| core.close_groups(communicator));
    }

    /// As [`Self::close_groups`], for a communicator whose collectives were given up: broadcasts
    /// that still arrive in its groups are acknowledged and discarded, and so are messages of its
    /// collectives ([`JobConfig::keeping_place`](crate::JobConfig)).
    pub fn abandon_groups(&self, communicator: CommunicatorId) {
        self.enter(|core| core.abandon_groups(communicator));
    }

    /// Starts to broadcast to a group. Returns `None` if the memory may be reused immediately: with
    /// [`Hold::Window`], messages of up to 64 KiB are copied while the window has room for them. If
    /// it has none, [`Cast::when_full`] decides whether such a message waits here, at most until a
    /// rank for which `concerns` is true has failed or left. The message is also sent if that wait
    /// is interrupted: the other ranks take the next message of this rank for it.
    ///
    /// # Safety
    /// `cast.base` must be valid for reading `cast.bytes` bytes, which must not change, until the
    /// operation has ended or been released.
    ///
    /// # Errors
    /// [`OperationError::NoMulticast`]; [`OperationError::Broadcast`] for a group that is not open;
    /// [`OperationError::TooLarge`]; other errors if a rank has failed or left.
    pub unsafe fn broadcast(
        &self,
        cast: Cast,
        concerns: impl Fn(Disruption<'_>) -> bool,
    ) -> Result<Option<Operation>, OperationError> {
        // SAFETY: the caller's promise is passed on.
        let start = |core: &mut Core| unsafe { core.try_broadcast(cast, &concerns) };
        let started = self.enter(|core| {
            let started = start(core);
            core.progress_if_stale(&self.shared.poller);
            started
        });
        match started {
            Some(started) => started,
            None => {
                let unsent = Unsent { engine: self, cast };
                let started = self.wait_until(None, Spot::Anywhere, start);
                let Ok(started) = started else { return Err(OperationError::Interrupted) };
                std::mem::forget(unsent);
                started
            }
        }
    }

    /// Starts to receive the next message of `root` to a group that has no receive yet.
    ///
    /// The operation ends with [`OperationError::Truncated`] if the message is longer than
    /// `capacity` bytes. If the operation is released, its message still arrives, and is dropped.
    ///
    /// # Safety
    /// `base` must be valid for writing `capacity` bytes, and not be used otherwise, until the
    /// operation has ended or been released.
    ///
    /// # Errors
    /// As for [`Self::broadcast`].
    pub unsafe fn receive_broadcast(
        &self,
        group: GroupId,
        root: Rank,
        base: NonNull<u8>,
        capacity: u64,
    ) -> Result<Operation, OperationError> {
        // SAFETY: the caller's promise is passed on.
        self.enter(|core| unsafe { core.receive_broadcast(group, root, base, capacity) })
    }
}

/// A message that waits for room in the window. If this is dropped because the callback ends the
/// wait or panics, the message is sent from a copy.
struct Unsent<'a> {
    engine: &'a Engine,
    cast: Cast,
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        let cast = Cast { when_full: WhenFull::Lend, ..self.cast };
        self.engine.enter(|core| {
            // SAFETY: its memory is valid until `broadcast` returns; releasing copies the data not
            // sent yet.
            let started = unsafe { core.try_broadcast(cast, &|_| false) };
            if let Some(Ok(Some(operation))) = started {
                core.release(operation);
            }
        });
    }
}
