//! Which ranks are started next: all at once, except those behind ssh.
//!
//! An sshd drops connections while ten others have not shown yet who they are (`MaxStartups`), and
//! a rank whose connection is dropped ends the job. So at most [`CONNECTING_MAX`] ranks of a
//! machine are under way to it at a time. A rank is *through* when its ssh has read the control
//! pipe, which ssh does not do before it has been let in.

use super::hosts::machine;
use super::placement::{Host, Place};
use super::process::Process;
use std::collections::BTreeMap;

/// Connections under way to one machine at once; the rest of the ten is left to others.
const CONNECTING_MAX: usize = 8;

/// Ranks that are not started yet.
pub struct Waiting<'a>(Vec<&'a Place>);

impl<'a> Waiting<'a> {
    /// All of them.
    pub fn new(places: &'a [Place]) -> Self {
        Self(places.iter().collect())
    }

    /// True if no rank is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that may be started beside `ranks`, in order.
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

    /// Those that are left are not started any more: how many.
    pub fn give_up(&mut self) -> usize {
        std::mem::take(&mut self.0).len()
    }
}
