//! List of targets that were met before, `papers/met.txt`: one id per line, sorted.

use crate::finding::Verdict;
use crate::registry::Judged;
use std::collections::BTreeSet;

const FILE: &str = include_str!("../../../papers/met.txt");

/// Ids of targets that were met before.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MetList(BTreeSet<String>);

impl MetList {
    /// The built-in list.
    pub fn built_in() -> Self {
        Self::parse(FILE)
    }

    /// Reads a list; text after a `#` is ignored.
    pub fn parse(text: &str) -> Self {
        let ids = text.lines().filter_map(|line| line.split('#').next()).map(str::trim);
        Self(ids.filter(|id| !id.is_empty()).map(str::to_owned).collect())
    }

    /// True if this target was met before.
    pub fn contains(&self, id: &str) -> bool {
        self.0.contains(id)
    }

    /// All ids, sorted.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The entries of `all` that were met before and no longer are, and those that are missed: a
    /// target that was not met before had a reason.
    pub fn regressions<'all>(&self, all: &'all [Judged]) -> Vec<&'all Judged> {
        let is_worse = |one: &&Judged| match one.finding.verdict {
            Verdict::Met => false,
            Verdict::Missed => true,
            _ => self.contains(&one.target.id),
        };
        all.iter().filter(is_worse).collect()
    }

    /// The updated list: of the targets in `all` those that are met, of all others those listed
    /// before.
    #[must_use]
    pub fn renewed(&self, all: &[Judged]) -> Self {
        let mut ids = self.0.clone();
        for one in all {
            if one.finding.verdict == Verdict::Met {
                ids.insert(one.target.id.clone())
            } else {
                ids.remove(&one.target.id)
            };
        }
        Self(ids)
    }

    /// Contents of the file.
    pub fn text(&self) -> String {
        let mut text = "# Targets that are met; `omnes papers --bless` writes it.\n".to_owned();
        for id in self.ids() {
            text += id;
            text.push('\n');
        }
        text
    }
}
