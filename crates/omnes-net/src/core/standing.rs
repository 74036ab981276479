//! Ranks that have failed, left or given notice, including this rank, and the resulting error for a
//! caller whom they concern.

use super::Core;
use crate::operations::{Disruption, OperationError};
use omnes_wire::Rank;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// State of the job's ranks, as far as this one knows.
#[derive(Default)]
pub(crate) struct Standing {
    /// This rank has said farewell and hears nothing any more.
    has_left: bool,
    /// The rank that has declared this rank failed.
    excluded_by: Option<Rank>,
    pub(crate) failed: Vec<Rank>,
    left: Vec<Rank>,
    /// The tag of each notice, with the rank that gave it first.
    notices: Vec<(Rank, u32)>,
    /// Set while there are notices.
    pub(crate) has_notices: Arc<AtomicBool>,
    /// Number of changes of this state: a waiting caller need not check it again before the next.
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

    /// Records a notice of `from`. It may be repeated, also by other ranks.
    pub(super) fn on_notice(&mut self, from: Rank, tag: u32) {
        if self.notices.iter().all(|(_, known)| *known != tag) {
            self.notices.push((from, tag));
            self.has_notices.store(true, Ordering::Relaxed);
            self.changes += 1;
        }
    }

    /// Forgets notices that cannot concern any caller any more; returns true if there were any.
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

    /// The first rank that has failed, left or given notice and concerns the caller; failures
    /// before all else, because ranks leave when they learn of a failure. It is this rank itself
    /// after it has left.
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

    /// Why this rank has been excluded from the job by `by`.
    fn excluded(&self, by: Rank) -> OperationError {
        self.mtu_black_hole(self.me).unwrap_or(OperationError::Excluded { by })
    }

    /// The error for `rank` if it was given up because long packets do not reach it.
    fn mtu_black_hole(&self, rank: Rank) -> Option<OperationError> {
        let is_lost = self.endpoint.is_mtu_black_hole(rank);
        is_lost.then_some(OperationError::MtuBlackHole { rank, bytes: self.packet_bytes })
    }
}
