//! Which ranks are started next: all of them, with a limit for those over ssh.
//!
//! An sshd drops connections while ten others have not authenticated yet (`MaxStartups`), and a
//! rank whose connection is dropped ends the job. So at most [`CONNECTING_MAX`] ranks connect to a
//! machine concurrently. A rank is *through* when its ssh has read the control pipe, which ssh does
//! only after authentication.

use super::hosts::machine;
use super::placement::{Host, Place};
use super::process::Process;
use std::collections::BTreeMap;

/// Concurrent connection attempts to one machine; the remainder of the ten is left to others.
const CONNECTING_MAX: usize = 8;

/// Ranks that have not been started yet.
pub struct Waiting<'a>(Vec<&'a Place>);

impl<'a> Waiting<'a> {
    /// Creates the set of all ranks.
    pub fn new(places: &'a [Place]) -> Self {
        Self(places.iter().collect())
    }

    /// True if no rank is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes and returns the places that may be started beside `ranks`, in order.
    pub fn take_next(&mut self, ranks: &[Process]) -> Vec<&'a Place> {
        let mut connecting: BTreeMap<&str, usize> = BTreeMap::new();
        for rank in ranks.iter().filter(|rank| rank.is_connecting()) {
            *connecting.entry(machine(&rank.host)).or_default() += 1;
        }
        let may_start = |place: &mut &'a Place| {
            let Host::Ssh(name) = &place.host else { return true };
            let count = connecting.entry(machine(name)).or_default();
            *count += 1;
            *count <= CONNECTING_MAX
        };
        self.0.extract_if(.., may_start).collect()
    }

    /// Gives up all remaining ranks; returns their number.
    pub fn give_up(&mut self) -> usize {
        std::mem::take(&mut self.0).len()
    }
}
