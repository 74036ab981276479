//! Barriers in the NIC: findings and figures; see the files.

mod bed;
mod closed;
mod curves;
mod emulated;
mod structure;

use crate::{Figure, Finding, Target};

/// The finding of one of this paper's targets; `None` if nothing computes it.
pub(crate) fn find(target: &Target) -> Option<Finding> {
    closed::find(target)
        .map(|finding| emulated::beside(target, finding))
        .or_else(|| structure::find(target))
        .or_else(|| emulated::find(target))
}

/// Figures of the paper, redrawn.
pub(crate) fn figures() -> Vec<Figure> {
    emulated::figures()
}
