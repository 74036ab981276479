//! Live counters that ranks of this launcher have published ([`omnes::live`]).
//!
//! A rank that is ended from outside leaves its file, which says that it died. Of ranks that the
//! user has ended that is no news, so the launcher removes theirs. Files are known by the process
//! group of their publisher, so what a rank has started counts too; ranks behind ssh publish on
//! their own machine and are not seen.

use super::job::Job;
use super::process::Process;
use omnes::live::{Snapshot, StatsPlace, Survey};
use std::collections::BTreeSet;

/// The variable that says where ranks publish.
const VARIABLE: &str = "OMNES_STATS";

/// Where the ranks of `job` publish; `None` where they do not, or cannot.
pub fn place(job: &Job) -> Option<StatsPlace> {
    let given = job.extra.iter().rev().find(|(name, _)| name == VARIABLE);
    // As ranks read it: what is no text is not unset.
    let inherited = || std::env::var_os(VARIABLE).map(|text| text.to_string_lossy().into_owned());
    let text = given.map(|(_, value)| value.clone()).or_else(inherited);
    match text.filter(|text| !text.is_empty()) {
        Some(text) => text.parse().ok(),
        None => Some(StatsPlace::Usual),
    }
}

/// Files of ranks, told apart from those of other jobs.
#[derive(Default)]
pub struct Published(BTreeSet<(u32, u32, u32)>);

fn key(rank: &Snapshot) -> (u32, u32, u32) {
    (rank.job, rank.rank, rank.pid)
}

impl Published {
    /// Those of processes that `ranks` are or have started, and that live.
    pub fn by(ranks: &[Process], place: &StatsPlace) -> Self {
        let groups: BTreeSet<libc::pid_t> = ranks.iter().map(Process::group).collect();
        let is_ours = |rank: &&Snapshot| {
            let Ok(pid) = libc::pid_t::try_from(rank.pid) else { return false };
            // SAFETY: plain system call; of a process that is gone it is an error.
            groups.contains(&unsafe { libc::getpgid(pid) })
        };
        Self(Survey::take(place).ranks.iter().filter(is_ours).map(key).collect())
    }

    /// True if no rank has published.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes those of `other` too.
    pub fn add(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Removes those whose process has ended; call it when the ranks are reaped.
    pub fn remove(&self, place: &StatsPlace) {
        if !self.is_empty() {
            Survey::clean(place, |rank| self.0.contains(&key(rank)));
        }
    }
}
