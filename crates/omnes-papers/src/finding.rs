//! What came out here, and what to think of it.

use crate::target::{Target, Value};
use crate::tolerance::Tolerance;
use serde::Serialize;

/// What to think of a value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "is", content = "reason")]
pub enum Verdict {
    /// Within the tolerance.
    Met,
    /// Outside it, and nobody knows why.
    Missed,
    /// Outside it, for this reason.
    Explained(String),
    /// Not computed, for this reason.
    NotComputed(String),
}

/// What came out here for a target.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// Our value in the target's unit; `None` if it is not computed.
    pub ours: Option<Value>,
    /// What to think of it.
    pub verdict: Verdict,
    /// How it came about, or what else is to be said; may be empty.
    pub note: String,
}

impl Finding {
    /// Ours against the target's value and tolerance: met or missed.
    ///
    /// Which form `ours` takes follows from [`Tolerance::of`] the target.
    pub fn judged(target: &Target, ours: impl Into<Value>) -> Self {
        let ours = ours.into();
        let verdict = if Tolerance::of(target).holds(&target.value, &ours) {
            Verdict::Met
        } else {
            Verdict::Missed
        };
        Self { ours: Some(ours), verdict, note: String::new() }
    }

    /// Met with the target's own words if what they describe was seen, else missed with what was
    /// seen in its place.
    pub fn seen(target: &Target, seen: Result<(), String>) -> Self {
        let (ours, verdict) = match seen {
            Ok(()) => (target.value.clone(), Verdict::Met),
            Err(instead) => (Value::Text(instead), Verdict::Missed),
        };
        Self { ours: Some(ours), verdict, note: String::new() }
    }

    /// Not computed, for this reason.
    pub fn not_computed(reason: impl Into<String>) -> Self {
        Self { ours: None, verdict: Verdict::NotComputed(reason.into()), note: String::new() }
    }

    /// If it was missed and ours is what `reason` explains, that is for this reason; else
    /// unchanged.
    ///
    /// The reason explains values that `tolerance` finds near enough to `expected`, which has the
    /// form of ours; no other one, of which nobody knows why.
    #[must_use]
    pub fn explained(
        mut self,
        (tolerance, expected): (Tolerance, impl Into<Value>),
        reason: impl Into<String>,
    ) -> Self {
        let expected = expected.into();
        let is_expected = self.ours.as_ref().is_some_and(|ours| tolerance.holds(&expected, ours));
        if self.verdict == Verdict::Missed && is_expected {
            self.verdict = Verdict::Explained(reason.into());
        }
        self
    }

    /// With a note on how it came about.
    #[must_use]
    pub fn noting(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

impl Verdict {
    /// In one word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Explained(_) => "explained",
            Self::NotComputed(_) => "not computed",
        }
    }

    /// The reason, where there is one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Met | Self::Missed => None,
            Self::Explained(reason) | Self::NotComputed(reason) => Some(reason),
        }
    }
}
