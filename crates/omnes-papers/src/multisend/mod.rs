//! Multi-send: findings and figures; see the three files.

mod closed;
mod emulated;
mod structure;

use crate::{Figure, Finding, Target};
use omnes_sim::testbed::Testbed;

/// The finding of one of this paper's targets; `None` if nothing computes it.
pub(crate) fn find(target: &Target) -> Option<Finding> {
    closed::find(target).or_else(|| structure::find(target)).or_else(|| emulated::find(target))
}

/// The testbed that only this paper uses.
pub(crate) fn testbed() -> Testbed {
    emulated::testbed()
}

/// Targets to which constants outside the testbeds were fitted.
pub(crate) const FITTED: &[&str] = &["MS-M02"];

/// Figures of the paper, redrawn.
pub(crate) fn figures() -> Vec<Figure> {
    emulated::figures()
}
