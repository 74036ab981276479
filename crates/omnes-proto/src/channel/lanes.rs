//! State of each lane: in place for the ordered one, allocated on first use for the others.
//!
//! Small messages use no other lane, and a rank may have many peers: state that they do not use
//! must not take space in the cache.

use super::peer::{LANES, Lane};
use super::send_lane::SendLane;
use crate::lane::Arrivals;
use std::ops::{Index, IndexMut};

/// One state for each lane.
#[derive(Debug)]
pub(super) struct Lanes<T> {
    ordered: T,
    others: Option<Box<[T; LANES - 1]>>,
}

/// State of a lane in one direction.
pub(super) trait State: Default + 'static {
    /// State before the first packet.
    fn unused() -> &'static Self;
}

impl State for SendLane {
    fn unused() -> &'static Self {
        static UNUSED: SendLane = SendLane::UNUSED;
        &UNUSED
    }
}

impl State for Arrivals {
    fn unused() -> &'static Self {
        static UNUSED: Arrivals = Arrivals::UNUSED;
        &UNUSED
    }
}

impl<T: State> Default for Lanes<T> {
    fn default() -> Self {
        Self { ordered: T::default(), others: None }
    }
}

impl<T> Lanes<T> {
    /// True if a lane other than the ordered one has been used.
    pub(super) fn has_others(&self) -> bool {
        self.others.is_some()
    }

    /// States of the lanes that have been used.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.ordered).chain(self.others.iter().flat_map(|others| others.iter()))
    }

    /// As [`Self::iter`].
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let others = self.others.iter_mut().flat_map(|others| others.iter_mut());
        std::iter::once(&mut self.ordered).chain(others)
    }
}

impl<T: State> Index<Lane> for Lanes<T> {
    type Output = T;

    #[inline]
    fn index(&self, lane: Lane) -> &T {
        match (lane, &self.others) {
            (Lane::Ordered, _) => &self.ordered,
            (other, Some(others)) => &others[other as usize - 1],
            (_, None) => T::unused(),
        }
    }
}

impl<T: State> IndexMut<Lane> for Lanes<T> {
    #[inline]
    fn index_mut(&mut self, lane: Lane) -> &mut T {
        match lane {
            Lane::Ordered => &mut self.ordered,
            other => &mut self.others.get_or_insert_default()[other as usize - 1],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_created_on_first_write() {
        let mut lanes = Lanes::<Arrivals>::default();
        assert_eq!(lanes[Lane::Grants].epoch(), 0);
        assert!(!lanes.has_others());
        assert_eq!(lanes.iter().count(), 1);
        lanes[Lane::Bulk].on_packet(omnes_wire::Instant::ZERO, 7);
        assert!(lanes.has_others());
        let epochs: Vec<u16> = Lane::ALL.iter().map(|lane| lanes[*lane].epoch()).collect();
        assert_eq!(epochs, [0, 7, 0]);
        assert_eq!(lanes.iter_mut().count(), LANES);
    }
}
