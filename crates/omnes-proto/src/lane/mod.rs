//! Parts of a numbered sequence that every reliable machine needs: arrivals and their reports, sets
//! of numbers in a window, the congestion window, round-trip times, and questions for overdue
//! packets.

mod arrivals;
mod bits;
mod loss_window;
mod overdue;
mod rtt;

use omnes_wire::Instant;

pub(crate) use arrivals::{AckWhen, Arrival, Arrivals, Report};
pub(crate) use bits::SeqBits;
pub(crate) use loss_window::{LOSS_ROUND_PACKETS, LossWindow};
pub(crate) use overdue::Overdue;
pub(crate) use rtt::{Allowance, Rtt};

/// Earliest of some deadlines, if there is one. Called after every input, so it avoids a chain of
/// iterators.
pub(crate) fn earliest<const N: usize>(deadlines: [Option<Instant>; N]) -> Option<Instant> {
    let mut earliest: Option<Instant> = None;
    for deadline in deadlines {
        earliest = match (earliest, deadline) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
    earliest
}
