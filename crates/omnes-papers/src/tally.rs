//! Number of findings with each verdict.

use crate::finding::Verdict;
use crate::registry::Judged;
use std::fmt;

/// Numbers of findings by verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Within the tolerance.
    pub met: u32,
    /// Met targets to which a constant was fitted.
    pub fitted: u32,
    /// Outside the tolerance, for unknown reasons.
    pub missed: u32,
    /// Outside the tolerance, for a known reason.
    pub explained: u32,
    /// Not computed.
    pub not_computed: u32,
}

impl Tally {
    /// Counts the findings in `judged`.
    pub fn of<'all>(judged: impl IntoIterator<Item = &'all Judged>) -> Self {
        let mut tally = Self::default();
        for one in judged {
            let is_met = one.finding.verdict == Verdict::Met;
            tally.fitted += u32::from(is_met && one.is_fitted());
            *match one.finding.verdict {
                Verdict::Met => &mut tally.met,
                Verdict::Missed => &mut tally.missed,
                Verdict::Explained(_) => &mut tally.explained,
                Verdict::NotComputed(_) => &mut tally.not_computed,
            } += 1;
        }
        tally
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { met, missed, explained, not_computed, fitted } = self;
        let fitted =
            if *fitted == 0 { String::new() } else { format!(" ({fitted} of them fitted)") };
        write!(
            f,
            "{met} met{fitted}, {explained} explained, {missed} missed, {not_computed} not computed"
        )
    }
}
