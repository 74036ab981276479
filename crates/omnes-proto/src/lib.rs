//! The protocol machines of Omnes: no clock, no IO.
