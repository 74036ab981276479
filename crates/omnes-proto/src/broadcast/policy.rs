//! How a broadcast is made reliable: every design of the paper is one value of [`Policy`].
//!
//! | text | what it is | source |
//! |---|---|---|
//! | `basic` | the root waits for all acknowledgements of each message | [BC-R4] |
//! | `window` | the root goes on at once; one acknowledgement per message each | [BC-R5] |
//! | `tree-ack=4` | acknowledgements travel up a tree, 4-nomial; the root repairs | [BC-R14] |
//! | `co-root=2` | 2 collectors with the root, each acknowledged to by its subgroup | [BC-R10] |
//! | `ack-every=10` | one acknowledgement per 10 messages, all at once | [BC-R16] |
//! | `skewed=10` | one per 10 messages, each receiver after another message | [BC-R17] |
//! | `nack` | receivers report gaps; acknowledgements are rare | beyond the paper |
//! | `combined` | gap reports, skewed acknowledgements, prompt where the root asks | default |
//!
//! Parts combine with `+`, as in `co-root=4+skewed=8` [BC-R19]; later parts override earlier ones.

use crate::limits::RANKS_AT_ONCE;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Messages per acknowledgement where the text gives none [BC-R25].
const GROUP_MESSAGES: u32 = 10;
/// Messages per acknowledgement where gaps are reported anyway.
const RARE_MESSAGES: u32 = 32;
/// Messages per acknowledgement of the default policy.
const COMBINED_MESSAGES: u32 = 16;
/// Radix of a tree of acknowledgements where the text gives none.
const TREE_RADIX: u32 = 4;
/// Collectors where the text gives none: the root and one co-root [BC-R25].
const COLLECTORS: u32 = 2;
/// Largest number in a policy; a window must hold twice as many messages [BC-R18].
const COUNT_MAX: u32 = 4096;

/// Most nodes whose acknowledgements the root receives itself by default: with more nodes,
/// receiving them takes longer than sending.
const ROOT_NODES_MAX: u32 = 64;
/// Radix of the default policy's tree for more nodes.
const USUAL_RADIX: u32 = 8;

/// Longest message that is copied.
const COPY_BYTES_MAX: u64 = 64 << 10;

/// When the root's call may return.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Hold {
    /// When all ranks have acknowledged the message [BC-R4]; with co-roots, when the root's
    /// subgroup and the co-roots that get their copies from it have, which take care of the others.
    Basic,
    /// When the memory may be reused: immediately for a message that was copied [BC-R5].
    Window,
}

impl Hold {
    /// True if a driver copies a message of `bytes` bytes, so that its memory is free immediately
    /// [BC-R5].
    pub fn copies(self, bytes: u64) -> bool {
        self == Self::Window && bytes <= COPY_BYTES_MAX
    }
}

/// Which ranks collect acknowledgements.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Collection {
    /// The root.
    Root,
    /// Every rank collects those of its children in a k-nomial tree [BC-R14].
    Tree {
        /// Radix of the tree, at least 2.
        radix: u32,
    },
    /// The root and others each collect those of their subgroups, which they also repair [BC-R10].
    CoRoots {
        /// Number of collectors including the root, at least 2.
        count: u32,
    },
}

/// Messages that a receiver acknowledges unasked. A timer covers the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AckRule {
    /// Every message.
    Every,
    /// Every nth message, the same for all receivers [BC-R16].
    EveryNth(u32),
    /// Every nth message, a different one for each receiver [BC-R17].
    Skewed(u32),
}

/// Whether receivers report gaps unasked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum GapReports {
    /// No: the collector detects gaps by its timer.
    Never,
    /// Yes, as soon as the gaps are certain.
    Prompt,
}

/// Whether the root asks for prompt acknowledgements.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Asking {
    /// Only when a caller waits for them.
    IfNeeded,
    /// Also for a message that no unacknowledged one precedes: so the loss of a lone message is
    /// detected in a round trip, and a stream of messages is acknowledged only as often as the rule
    /// says. Not for every single-packet message if the receivers that wait for it ask themselves.
    WhenIdle,
}

/// See the module header.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Policy {
    /// When the root's call returns.
    pub hold: Hold,
    /// Which ranks collect acknowledgements.
    pub collection: Collection,
    /// Messages that receivers acknowledge unasked.
    pub acks: AckRule,
    /// Whether receivers report gaps.
    pub gaps: GapReports,
    /// When the root asks for acknowledgements.
    pub asking: Asking,
}

/// Error: a text is not a valid policy.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PolicyError {
    /// No policy has this name.
    #[error(
        "`{text}` is not a broadcast scheme; choose among basic, window, tree-ack[=RADIX], \
         co-root[=COUNT], ack-every[=M], skewed[=M], nack and combined, and combinations such as \
         co-root=4+skewed=8"
    )]
    Unknown {
        /// The text.
        text: String,
    },
    /// The policy exists, but not with this number.
    #[error(
        "`{text}`: RADIX of tree-ack and COUNT of co-root are 2 to {COUNT_MAX}, M of ack-every and \
         skewed 1 to {COUNT_MAX}; the others have no number"
    )]
    Number {
        /// The text.
        text: String,
    },
}

impl Policy {
    /// The "basic" scheme [BC-R4].
    pub const BASIC: Self = Self { hold: Hold::Basic, ..Self::WINDOW };
    /// The "window" scheme [BC-R5].
    pub const WINDOW: Self = Self {
        hold: Hold::Window,
        collection: Collection::Root,
        acks: AckRule::Every,
        gaps: GapReports::Never,
        asking: Asking::IfNeeded,
    };
    /// Gap reports, and acknowledgements only to free the window.
    pub const NACK: Self =
        Self { acks: AckRule::Skewed(RARE_MESSAGES), gaps: GapReports::Prompt, ..Self::WINDOW };
    /// The default of small jobs; see [`Self::usual`].
    pub const COMBINED: Self = Self {
        acks: AckRule::Skewed(COMBINED_MESSAGES),
        gaps: GapReports::Prompt,
        asking: Asking::WhenIdle,
        ..Self::WINDOW
    };

    /// Returns the default policy for `nodes` nodes.
    pub fn usual(nodes: u32) -> Self {
        if nodes <= ROOT_NODES_MAX {
            Self::COMBINED
        } else {
            Self { collection: Collection::Tree { radix: USUAL_RADIX }, ..Self::COMBINED }
        }
    }

    /// True if each of `takers` ranks asks for a message that is overdue. More ranks would be too
    /// many for a root that is late.
    pub(super) fn takers_ask(&self, takers: u32) -> bool {
        self.gaps == GapReports::Prompt && takers <= RANKS_AT_ONCE
    }

    /// True if repairs are numbered, which requires that only the root repairs.
    pub(super) fn numbers_repairs(&self) -> bool {
        !matches!(self.collection, Collection::CoRoots { .. })
    }

    /// True if several packets that ranks lack may be combined in one: the rank that repairs must
    /// know all gaps, and be the root, whose memory holds the data.
    pub(super) fn codes_repairs(&self) -> bool {
        self.gaps == GapReports::Prompt && self.numbers_repairs()
    }

    /// Returns `self` with one part of a text applied; `None` if the part is invalid.
    fn with(self, part: &str) -> Option<Self> {
        let (name, count) = match part.split_once('=') {
            Some((name, count)) => (name, Some(count.parse::<u32>().ok()?)),
            None => (part, None),
        };
        let count_or = |usual: u32, least: u32| {
            let count = count.unwrap_or(usual);
            (least..=COUNT_MAX).contains(&count).then_some(count)
        };
        let plain = |policy: Self| count.is_none().then_some(policy);
        match name {
            "basic" => plain(Self { hold: Hold::Basic, acks: AckRule::Every, ..self }),
            "window" => plain(Self { hold: Hold::Window, acks: AckRule::Every, ..self }),
            "tree-ack" => {
                let collection = Collection::Tree { radix: count_or(TREE_RADIX, 2)? };
                Some(Self { collection, ..self })
            }
            "co-root" => {
                let collection = Collection::CoRoots { count: count_or(COLLECTORS, 2)? };
                Some(Self { collection, ..self })
            }
            "ack-every" => {
                Some(Self { acks: AckRule::EveryNth(count_or(GROUP_MESSAGES, 1)?), ..self })
            }
            "skewed" => Some(Self { acks: AckRule::Skewed(count_or(GROUP_MESSAGES, 1)?), ..self }),
            "nack" => plain(Self { acks: Self::NACK.acks, gaps: Self::NACK.gaps, ..self }),
            "combined" => plain(Self { collection: self.collection, ..Self::COMBINED }),
            _ => None,
        }
    }
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let mut parts = text.split('+');
        let policy = parts.try_fold(Self::WINDOW, |policy, part| policy.with(part.trim()));
        let is_named = |part: &str| {
            let (name, number) = part.trim().split_once('=').unwrap_or((part, "1"));
            let is_number = !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit());
            is_number && Self::WINDOW.with(name.trim()).is_some()
        };
        policy.ok_or_else(|| {
            let text = text.to_owned();
            let has_names = text.split('+').all(is_named);
            if has_names { PolicyError::Number { text } } else { PolicyError::Unknown { text } }
        })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        match self.collection {
            Collection::Root => {}
            Collection::Tree { radix } => parts.push(format!("tree-ack={radix}")),
            Collection::CoRoots { count } => parts.push(format!("co-root={count}")),
        }
        if (Self { collection: Collection::Root, ..*self }) == Self::COMBINED {
            parts.push("combined".to_owned());
            return formatter.write_str(&parts.join("+"));
        }
        if self.hold == Hold::Basic {
            parts.push("basic".to_owned());
        }
        let is_reported = self.gaps == GapReports::Prompt;
        if is_reported {
            parts.push("nack".to_owned());
        }
        match self.acks {
            AckRule::Every if is_reported => parts.push("window".to_owned()),
            AckRule::Every if parts.is_empty() => parts.push("window".to_owned()),
            AckRule::Every => {}
            AckRule::EveryNth(messages) => parts.push(format!("ack-every={messages}")),
            rule if is_reported && rule == Self::NACK.acks => {}
            AckRule::Skewed(messages) => parts.push(format!("skewed={messages}")),
        }
        formatter.write_str(&parts.join("+"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn usual_policy_of_a_large_job_collects_acknowledgements_in_a_tree() {
        assert_eq!(Policy::usual(ROOT_NODES_MAX), Policy::COMBINED);
        assert_eq!(Policy::usual(ROOT_NODES_MAX + 1).to_string(), "tree-ack=8+combined");
    }

    #[test]
    fn policy_names_round_trip() {
        let texts = [
            "basic",
            "window",
            "tree-ack=4",
            "co-root=2",
            "ack-every=10",
            "skewed=10",
            "nack",
            "combined",
            "co-root=4+skewed=8",
            "co-root=3+combined",
            "nack+window",
            "nack+skewed=4",
            "tree-ack=2+basic",
        ];
        for text in texts {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
        assert_eq!("skewed".parse::<Policy>().unwrap().to_string(), "skewed=10");
        assert_eq!("co-root".parse::<Policy>().unwrap().to_string(), "co-root=2");
    }

    #[test]
    fn unknown_policy_error_lists_the_valid_names() {
        for text in ["", "windows", "basic+", "skewed=3+x", "skewed=8:store", "tree-ack=x"] {
            let error = text.parse::<Policy>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("co-root=4+skewed=8"), "{error}");
        }
    }
}
