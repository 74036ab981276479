//! Who has failed, left or given notice, this rank among them, and the error that follows for a
//! caller whom it concerns.

use super::Core;
use crate::operations::{Disruption, OperationError};
use omnes_wire::Rank;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What has become of the job's ranks, as far as this one knows.
#[derive(Default)]
pub(crate) struct Standing {
    /// This rank has said farewell: it hears nothing any more.
    has_left: bool,
    /// Who says that this rank has failed.
    excluded_by: Option<Rank>,
    pub(crate) failed: Vec<Rank>,
    left: Vec<Rank>,
    /// Tags of the notices that have arrived, each with the rank that gave it first.
    notices: Vec<(Rank, u32)>,
    /// Set once there are some.
    pub(crate) has_notices: Arc<AtomicBool>,
    /// Times that any of this has changed: who waits need not look again before.
    pub(super) changes: u64,
}

impl Standing {
    pub(super) fn on_own_farewell(&mut self) {
        self.has_left = true;
        self.changes += 1;
    }

    pub(super) fn on_exclusion(&mut self, by: Rank) {
        self.excluded_by = Some(by);
        self.changes += 1;
    }

    pub(super) fn on_failure(&mut self, rank: Rank) {
        self.failed.push(rank);
        self.changes += 1;
    }

    pub(super) fn on_farewell(&mut self, rank: Rank) {
        self.left.push(rank);
        self.changes += 1;
    }

    /// `from` gives notice; it may do so again, and others the same.
    pub(super) fn on_notice(&mut self, from: Rank, tag: u32) {
        if self.notices.iter().all(|(_, known)| *known != tag) {
            self.notices.push((from, tag));
            self.has_notices.store(true, Ordering::Relaxed);
            self.changes += 1;
        }
    }

    /// Forgets notices that concern nobody any more; true if there were any.
    pub(crate) fn forget_notices(&mut self, is_over: impl Fn(u32) -> bool) -> bool {
        let before = self.notices.len();
        self.notices.retain(|(_, tag)| !is_over(*tag));
        self.has_notices.store(!self.notices.is_empty(), Ordering::Relaxed);
        self.notices.len() < before
    }
}

impl Core {
    pub(crate) fn check_standing(&self) -> Result<(), OperationError> {
        self.standing.excluded_by.map_or(Ok(()), |by| Err(self.excluded(by)))
    }

    /// The first rank that has failed or left or given notice and concerns the caller; failures
    /// before all else, as ranks leave when they hear of a failure. It is this rank itself once
    /// that has left.
    pub(crate) fn failure(
        &self,
        concerns: &impl Fn(Disruption<'_>) -> bool,
    ) -> Option<OperationError> {
        let Standing { has_left, excluded_by, failed, left: among, notices, .. } = &self.standing;
        if *has_left {
            return Some(OperationError::PeerLeft { rank: self.me });
        }
        if let Some(by) = excluded_by {
            return Some(self.excluded(*by));
        }
        if let Some(rank) = failed.iter().find(|rank| concerns(Disruption::Failed(rank.0))) {
            return Some(self.gone(*rank));
        }
        let concerning =
            |(rank, tag): &&(Rank, u32)| concerns(Disruption::Notice { rank: rank.0, tag: *tag });
        if let Some((rank, tag)) = notices.iter().find(concerning) {
            return Some(OperationError::Notice { rank: *rank, tag: *tag });
        }
        let left = among.iter().find(|rank| concerns(Disruption::Left { rank: rank.0, among }));
        left.map(|rank| OperationError::PeerLeft { rank: *rank })
    }

    pub(crate) fn gone(&self, rank: Rank) -> OperationError {
        if self.endpoint.has_departed(rank) {
            OperationError::PeerLeft { rank }
        } else {
            self.mtu_black_hole(rank).unwrap_or(OperationError::PeerFailed { rank })
        }
    }

    /// Why this rank is out of the job, as `by` says.
    fn excluded(&self, by: Rank) -> OperationError {
        self.mtu_black_hole(self.me).unwrap_or(OperationError::Excluded { by })
    }

    /// The error of `rank` if it was given up as long packets do not get to it.
    fn mtu_black_hole(&self, rank: Rank) -> Option<OperationError> {
        let is_lost = self.endpoint.is_mtu_black_hole(rank);
        is_lost.then_some(OperationError::MtuBlackHole { rank, bytes: self.packet_bytes })
    }
}
