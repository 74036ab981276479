//! PM: findings and figures; see the three files.

mod closed;
mod emulated;
mod lanai;
mod measure;
mod structure;

use crate::{Figure, Finding, Target};
use omnes_sim::testbed::Constant;

/// The finding of one of this paper's targets; `None` if nothing computes it.
pub(crate) fn find(target: &Target) -> Option<Finding> {
    closed::find(target).or_else(|| structure::find(target)).or_else(|| emulated::find(target))
}

/// Constants of the testbed, which has a separate form.
pub(crate) fn constants() -> Vec<Constant> {
    lanai::Constants::built_in().all
}

/// Figures of the paper, redrawn.
pub(crate) fn figures() -> Vec<Figure> {
    emulated::figures()
}
