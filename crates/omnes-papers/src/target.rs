//! Statements of the papers: the entries of `papers/targets.json`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::OnceLock;

const FILE: &str = include_str!("../../../papers/targets.json");

/// One of the five papers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Paper {
    /// MS: multi-send on Myrinet with Fast Messages.
    MultiSend,
    /// BC: broadcast over InfiniBand's multicast.
    Broadcast,
    /// PM: channels and their context switch on Myrinet.
    Pm,
    /// CB: barriers in the NIC, on Myrinet and Quadrics.
    Barrier,
    /// IT: in-transit buffers on Myrinet.
    Itb,
}

impl Paper {
    /// All papers, in the order of the reports.
    pub const ALL: [Self; 5] =
        [Self::MultiSend, Self::Broadcast, Self::Pm, Self::Barrier, Self::Itb];

    /// The two letters with which the paper's ids begin.
    pub fn marker(self) -> &'static str {
        match self {
            Self::MultiSend => "MS",
            Self::Broadcast => "BC",
            Self::Pm => "PM",
            Self::Barrier => "CB",
            Self::Itb => "IT",
        }
    }

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::MultiSend => "multisend",
            Self::Broadcast => "broadcast",
            Self::Pm => "pm",
            Self::Barrier => "barrier",
            Self::Itb => "itb",
        }
    }

    /// Title.
    pub fn title(self) -> &'static str {
        match self {
            Self::MultiSend => "Multi-send: one message to several destinations by the NIC",
            Self::Broadcast => "Broadcast over the network's multicast",
            Self::Pm => "PM: channels, reject and repeat, context switch",
            Self::Barrier => "Barriers in the NIC",
            Self::Itb => "In-transit buffers: minimal routes without deadlock",
        }
    }

    /// The paper that an id such as `MS-F04` belongs to.
    pub fn of_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|paper| id.split('-').next() == Some(paper.marker()))
    }
}

/// One figure, several figures, or text.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// One figure, in the target's unit.
    Number(f64),
    /// Several figures, in the order of the target.
    Numbers(Vec<f64>),
    /// A behaviour, an order or a formula.
    Text(String),
}

impl Value {
    /// The figures; empty for a text.
    pub fn numbers(&self) -> &[f64] {
        match self {
            Self::Number(number) => std::slice::from_ref(number),
            Self::Numbers(numbers) => numbers,
            Self::Text(_) => &[],
        }
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<Vec<f64>> for Value {
    fn from(numbers: Vec<f64>) -> Self {
        Self::Numbers(numbers)
    }
}

impl<const N: usize> From<[f64; N]> for Value {
    fn from(numbers: [f64; N]) -> Self {
        Self::Numbers(numbers.to_vec())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Number(number) => short(*number),
            Self::Numbers(numbers) => {
                numbers.iter().map(|number| short(*number)).collect::<Vec<_>>().join("; ")
            }
            Self::Text(text) => text.clone(),
        };
        f.pad(&text)
    }
}

/// Formats with up to four digits after the point, without trailing zeros.
fn short(number: f64) -> String {
    let text = format!("{number:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// How a target can be tested.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// A formula is evaluated.
    ExactArithmetic,
    /// A property of the protocol is counted.
    Structural,
    /// A simulation with the paper's constants.
    Emulated,
    /// Only the direction is meaningful on today's hardware; simulated here.
    LiveShape,
}

/// One statement of a paper.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Target {
    /// Id, such as `MS-F04`.
    pub id: String,
    /// Section of the paper.
    pub section: String,
    /// The quantity stated.
    pub quantity: String,
    /// Conditions of the statement.
    pub conditions: String,
    /// The figure or the behaviour.
    pub value: Value,
    /// Unit of the value.
    pub unit: String,
    /// Tolerance in words; parsed by [`crate::Tolerance::of`].
    pub tolerance_suggestion: String,
    /// How to test the statement.
    pub how_to_check: String,
    /// Whether the statement is a claim, derived, a parameter, a requirement or from elsewhere.
    pub class: String,
    /// How the statement can be tested.
    pub check_mode: Mode,
    /// Other remarks.
    #[serde(default)]
    pub note: String,
}

impl Target {
    /// The paper that the target belongs to.
    ///
    /// # Panics
    /// If the id is malformed, which a test would have found.
    pub fn paper(&self) -> Paper {
        Paper::of_id(&self.id).expect("ids begin with a paper's marker")
    }

    /// The target with this id.
    pub fn find(id: &str) -> Option<&'static Self> {
        targets().iter().find(|target| target.id == id)
    }
}

/// All targets, in the order of the file, which is grouped by paper.
///
/// # Panics
/// If the built-in file is invalid, which a test would have found.
pub fn targets() -> &'static [Target] {
    static TARGETS: OnceLock<Vec<Target>> = OnceLock::new();
    TARGETS.get_or_init(|| serde_json::from_str(FILE).expect("targets are tested"))
}
