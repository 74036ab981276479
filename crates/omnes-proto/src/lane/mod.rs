//! Parts of a numbered sequence that every reliable machine needs: what has arrived and what must
//! be said of it, sets of numbers in a window, how much may be under way, how long an answer takes,
//! and when to ask for what does not come.

mod arrivals;
mod bits;
mod loss_window;
mod overdue;
mod rtt;

pub(crate) use arrivals::{AckWhen, Arrival, Arrivals, Report};
pub(crate) use bits::SeqBits;
pub(crate) use loss_window::{LOSS_ROUND_PACKETS, LossWindow};
pub(crate) use overdue::Overdue;
pub(crate) use rtt::{Allowance, Rtt};
