//! Broadcast over multicast: findings and figures; see the files.

mod closed;
mod curves;
mod emulated;
mod runs;
mod structure;

use crate::{Figure, Finding, Target};

/// The finding of one of this paper's targets; `None` if nothing computes it.
pub(crate) fn find(target: &Target) -> Option<Finding> {
    // Simulations that accompany a formula come first.
    emulated::find(target).or_else(|| closed::find(target)).or_else(|| structure::find(target))
}

/// Figures of the paper, redrawn.
pub(crate) fn figures() -> Vec<Figure> {
    curves::figures()
}
