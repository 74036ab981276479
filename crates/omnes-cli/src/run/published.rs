//! Live counters that ranks of this launcher have published ([`omnes::live`]).
//!
//! A rank that is ended from outside leaves its file, which says that it died. If the user has
//! ended the ranks, that is no news, so the launcher removes their files. Files are matched by the
//! process group of their publisher, so those of processes that a rank has started count too; ranks
//! over ssh publish on their own machine and are not seen.

use super::job::Job;
use super::process::Process;
use omnes::live::{Snapshot, StatsPlace, Survey};
use std::collections::BTreeSet;

/// Variable that says where ranks publish.
const VARIABLE: &str = "OMNES_STATS";

/// Directory in which the ranks of `job` publish; `None` if they do not, or cannot.
pub fn place(job: &Job) -> Option<StatsPlace> {
    let given = job.extra.iter().rev().find(|(name, _)| name == VARIABLE);
    // As ranks read it: a value that is not valid text still counts as set.
    let inherited = || std::env::var_os(VARIABLE).map(|text| text.to_string_lossy().into_owned());
    let text = given.map(|(_, value)| value.clone()).or_else(inherited);
    match text.filter(|text| !text.is_empty()) {
        Some(text) => text.parse().ok(),
        None => Some(StatsPlace::Usual),
    }
}

/// Files of ranks, distinguished from those of other jobs.
#[derive(Default)]
pub struct Published(BTreeSet<(u32, u32, u32)>);

fn key(rank: &Snapshot) -> (u32, u32, u32) {
    (rank.job, rank.rank, rank.pid)
}

impl Published {
    /// Files of live processes that `ranks` are or have started.
    pub fn by(ranks: &[Process], place: &StatsPlace) -> Self {
        let groups: BTreeSet<libc::pid_t> = ranks.iter().map(Process::group).collect();
        let is_ours = |rank: &&Snapshot| {
            let Ok(pid) = libc::pid_t::try_from(rank.pid) else { return false };
            // SAFETY: plain system call; if the process is gone, it returns an error.
            groups.contains(&unsafe { libc::getpgid(pid) })
        };
        Self(Survey::take(place).ranks.iter().filter(is_ours).map(key).collect())
    }

    /// True if no rank has published.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the files of `other`.
    pub fn add(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Removes the files whose process has ended; call it when the ranks are reaped.
    pub fn remove(&self, place: &StatsPlace) {
        if !self.is_empty() {
            Survey::clean(place, |rank| self.0.contains(&key(rank)));
        }
    }
}
