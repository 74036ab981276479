//! Our result for a target, and its assessment.

use crate::target::{Target, Value};
use crate::tolerance::Tolerance;
use serde::Serialize;

/// Assessment of a value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "is", content = "reason")]
pub enum Verdict {
    /// Within the tolerance.
    Met,
    /// Outside the tolerance, for unknown reasons.
    Missed,
    /// Outside the tolerance, for this reason.
    Explained(String),
    /// Not computed, for this reason.
    NotComputed(String),
}

/// Our result for a target.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// Our value in the target's unit; `None` if it is not computed.
    pub ours: Option<Value>,
    /// The assessment.
    pub verdict: Verdict,
    /// How the value was obtained, or other remarks; may be empty.
    pub note: String,
}

impl Finding {
    /// Compares ours with the target's value and tolerance: met or missed.
    ///
    /// The form of `ours` is determined by [`Tolerance::of`] the target.
    pub fn judged(target: &Target, ours: impl Into<Value>) -> Self {
        let ours = ours.into();
        let verdict = if Tolerance::of(target).holds(&target.value, &ours) {
            Verdict::Met
        } else {
            Verdict::Missed
        };
        Self { ours: Some(ours), verdict, note: String::new() }
    }

    /// Met, with the target's own words, if the behaviour that they describe was observed;
    /// otherwise missed, with the behaviour observed instead.
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

    /// Marks a missed finding as explained by `reason` if ours is the value that `reason` explains;
    /// otherwise returns it unchanged.
    ///
    /// The reason explains only values that `tolerance` accepts as close to `expected`, which has
    /// the form of ours; any other deviation has an unknown cause.
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

    /// Adds a note on how the value was obtained.
    #[must_use]
    pub fn noting(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

impl Verdict {
    /// The verdict in one or two words.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Explained(_) => "explained",
            Self::NotComputed(_) => "not computed",
        }
    }

    /// The reason, if there is one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Met | Self::Missed => None,
            Self::Explained(reason) | Self::NotComputed(reason) => Some(reason),
        }
    }
}
