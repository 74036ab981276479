//! Broadcast algorithms and their names.

use crate::broadcast::{Policy, PolicyError};
use omnes_topo::{TopoError, Tree};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Bytes that are forwarded at a time while a message is still arriving.
pub const PIPELINE_BYTES: u64 = 128 << 10;

/// When a rank forwards a message that it receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forwarding {
    /// When it has received the whole message.
    Store,
    /// While the remaining data are still arriving.
    Pipelined,
}

/// A broadcast algorithm.
///
/// Text form, for parsing and display: over channels `binomial`, `chain`, `flat`, `knomial=4`,
/// `kary=3`, `postal=2.5` or, with at most 4 children per rank, `postal=2.5/4`, with `:store` for
/// forwarding whole messages only; by multicast the names of [`Policy`]. In addition, `original` is
/// `binomial:store`, the broadcast paper's "Original" [BC-R25], and `multicast` is `combined`.
///
/// ```
/// use omnes_proto::algorithm::BcastAlgorithm;
/// use omnes_proto::broadcast::Policy;
///
/// assert_eq!("multicast".parse(), Ok(BcastAlgorithm::Multicast(Policy::COMBINED)));
/// assert_eq!("original".parse::<BcastAlgorithm>()?.to_string(), "binomial:store");
/// assert_eq!("co-root=4+skewed=8".parse::<BcastAlgorithm>()?.to_string(), "co-root=4+skewed=8");
/// # Ok::<(), omnes_proto::algorithm::BcastAlgorithmError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BcastAlgorithm {
    /// Point-to-point, over channels.
    Tree {
        /// Tree that the message is sent along.
        tree: Tree,
        /// When ranks forward the message.
        forwarding: Forwarding,
    },
    /// One packet reaches all ranks; the policy makes it reliable. Where multicast is not
    /// available, a tree chosen by the library is used instead.
    Multicast(Policy),
}

/// Error: a text is not the name of a broadcast algorithm.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum BcastAlgorithmError {
    /// No algorithm has this name.
    #[error(
        "`{text}` is not a broadcast algorithm; over channels there are original, binomial, chain, \
         flat, knomial=RADIX, kary=ARITY, postal=LAMBDA and postal=LAMBDA/FAN_OUT, each but \
         original with or without :store; by multicast there are multicast, basic, window, \
         tree-ack[=RADIX], co-root[=COUNT], ack-every[=M], skewed[=M], nack and combined, and \
         combinations such as co-root=4+skewed=8"
    )]
    Unknown {
        /// The text.
        text: String,
    },
    /// The tree exists, but its number is invalid.
    #[error("`{text}`: {reason}")]
    Tree {
        /// The text.
        text: String,
        /// Reason why the number is invalid.
        reason: TopoError,
    },
    /// The scheme exists, but its number is invalid.
    #[error(transparent)]
    Scheme(PolicyError),
}

impl BcastAlgorithm {
    /// The broadcast paper's "Original": point-to-point, whole messages along a binomial tree
    /// [BC-R25].
    pub const ORIGINAL: Self = Self::Tree { tree: Tree::Binomial, forwarding: Forwarding::Store };

    /// A tree along which large messages are forwarded while they arrive.
    pub fn tree(tree: Tree) -> Self {
        Self::Tree { tree, forwarding: Forwarding::Pipelined }
    }
}

impl fmt::Display for BcastAlgorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tree { tree, forwarding: Forwarding::Store } => write!(formatter, "{tree}:store"),
            Self::Tree { tree, forwarding: Forwarding::Pipelined } => tree.fmt(formatter),
            Self::Multicast(policy) => policy.fmt(formatter),
        }
    }
}

impl FromStr for BcastAlgorithm {
    type Err = BcastAlgorithmError;

    fn from_str(text: &str) -> Result<Self, BcastAlgorithmError> {
        match text {
            "original" => return Ok(Self::ORIGINAL),
            "multicast" => return Ok(Self::Multicast(Policy::COMBINED)),
            _ => {}
        }
        let (name, forwarding) = match text.split_once(':') {
            None => (text, Some(Forwarding::Pipelined)),
            Some((name, "pipelined")) => (name, Some(Forwarding::Pipelined)),
            Some((name, "store")) => (name, Some(Forwarding::Store)),
            Some((name, _)) => (name, None),
        };
        match (name.parse(), forwarding) {
            (Ok(tree), Some(forwarding)) => return Ok(Self::Tree { tree, forwarding }),
            (Err(TopoError::UnknownTree { .. }), _) | (_, None) => {}
            (Err(reason), Some(_)) => {
                return Err(BcastAlgorithmError::Tree { text: text.to_owned(), reason });
            }
        }
        text.parse().map(Self::Multicast).map_err(|error| match error {
            PolicyError::Unknown { text } => BcastAlgorithmError::Unknown { text },
            error => BcastAlgorithmError::Scheme(error),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn algorithms_are_written_as_they_are_read() {
        let trees = ["binomial", "binomial:store", "chain", "chain:store", "flat", "knomial=4"];
        let more = ["kary=3", "kary=2:store", "postal=6", "postal=2.5/4", "postal=2.5:store"];
        let policies =
            ["basic", "window", "tree-ack=4", "co-root=2", "ack-every=10", "skewed=10", "nack"];
        let both = ["combined", "co-root=4+skewed=8", "co-root=3+combined"];
        for text in [&trees[..], &more, &policies, &both].concat() {
            assert_eq!(text.parse::<BcastAlgorithm>().unwrap().to_string(), text);
        }
        assert_eq!("chain:pipelined".parse::<BcastAlgorithm>().unwrap().to_string(), "chain");
        assert_eq!("skewed".parse::<BcastAlgorithm>().unwrap().to_string(), "skewed=10");
    }

    #[test]
    fn unknown_algorithm_error_lists_the_valid_names() {
        for text in ["tree", "chain:later", "window:store", "", "basic+", "postal=", "knomial=x"] {
            let error = text.parse::<BcastAlgorithm>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("`{text}` is not a broadcast algorithm")),
                "{error}"
            );
            assert!(error.contains("kary=ARITY, postal=LAMBDA"), "{error}");
            assert!(error.contains("knomial=RADIX") && error.contains("co-root=4+"), "{error}");
        }
    }

    #[test]
    fn algorithm_numbers_out_of_range_are_rejected_with_the_limits() {
        for (text, part) in [
            ("knomial=1", "2"),
            ("kary=0:store", "0"),
            ("postal=0.5", "0.5"),
            ("postal=2/0", "0"),
            ("co-root=1", "COUNT of co-root are 2 to 4096"),
            ("combined+skewed=0", "M of ack-every and skewed 1 to 4096"),
            ("basic=2", "the others have no number"),
        ] {
            let error = text.parse::<BcastAlgorithm>().unwrap_err().to_string();
            let told = error.strip_prefix(&format!("`{text}`: "));
            assert!(told.is_some_and(|told| told.contains(part)), "{error}");
        }
    }
}
