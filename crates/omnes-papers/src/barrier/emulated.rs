//! Barriers in the NIC: what is simulated.

use crate::{Figure, Finding, Target};

/// The finding of a target that is simulated.
pub(super) fn find(_target: &Target) -> Option<Finding> {
    None
}

/// Curves of the simulations, with the points that the paper states.
pub(super) fn figures() -> Vec<Figure> {
    Vec::new()
}
