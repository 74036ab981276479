//! The postal tree of a testbed: `postal` without a number.
//!
//! The hop and the cost of one more child are measured in the model itself, by flat trees without
//! loss on one switch, as `omnes tune` measures them on a network. Lambda is the hop in units of
//! one more child [MS-R17]. A message that ranks forward whole (up to 128 KiB) is itself the unit,
//! and gets the tree of its lambda. For a longer one, which is forwarded while it arrives, a train
//! of packets is the unit; there each further child costs the whole message again, so the tree is
//! limited to the fan-out that is fastest for this number of units [MS-R16], down to a chain.

use super::network::NetworkKind;
use omnes_proto::algorithm::BcastAlgorithm;
use omnes_sim::engine::Span;
use omnes_sim::model::{Carrier, Model, ModelError, Op, Plan, Setup};
use omnes_sim::testbed::Testbed;
use omnes_topo::{Lambda, PostalTimes, Tree, pipeline};

/// Longer messages are forwarded while they arrive.
const WHOLE_BYTES_MAX: u64 = 128 << 10;
/// Numbers of destinations of the flat trees that are compared.
const FEW: u32 = 1;
const MANY: u32 = 9;

/// A tree and the measurements that it follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Postal {
    /// The tree.
    pub tree: Tree,
    /// Size of the unit that is forwarded.
    pub unit_bytes: u64,
    /// Time from a rank's start of sending a unit until its receiver has it.
    pub hop: Span,
    /// Cost of one more child.
    pub one_more: Span,
    /// A hop in units of one more child.
    pub lambda: Lambda,
}

impl Postal {
    /// Chooses the tree for a message of `bytes` bytes to `ranks` ranks.
    ///
    /// # Errors
    /// [`ModelError`] if the testbed cannot send such messages.
    pub fn choose(testbed: &Testbed, ranks: u32, bytes: u64) -> Result<Self, ModelError> {
        let train_bytes = testbed.link.payload_bytes * u64::from(testbed.host.train_packets.max(1));
        let (unit_bytes, units) = match bytes {
            0..=WHOLE_BYTES_MAX => (bytes, 1),
            _ => {
                let unit_bytes = train_bytes.min(WHOLE_BYTES_MAX);
                (unit_bytes, bytes.div_ceil(unit_bytes))
            }
        };
        let hop = flat(testbed, FEW, unit_bytes)?;
        let many = flat(testbed, MANY, unit_bytes)?;
        let between = many.as_ps().saturating_sub(hop.as_ps()) / u64::from(MANY - FEW);
        let one_more = Span::from_ps(between.max(1));
        let lambda = lambda(hop, one_more);
        let tree = match units {
            1 => Tree::Postal { lambda },
            _ => bounded(ranks, u32::try_from(units).unwrap_or(u32::MAX), lambda),
        };
        Ok(Self { tree, unit_bytes, hop, one_more, lambda })
    }
}

impl Postal {
    /// Explains for people what the tree follows from.
    pub fn explain(&self) -> String {
        let Self { tree, unit_bytes, hop, one_more, lambda } = self;
        let chain =
            if matches!(tree, Tree::PostalBounded { fan_out: 1, .. }) { ", a chain" } else { "" };
        format!(
            "postal is {tree}{chain}: lambda {lambda}, as a hop of {unit_bytes} B takes {hop} and \
             one more child {one_more}"
        )
    }
}

/// (t_xmit + t_recv + t_send) / t_xmit, where the sum is the hop.
fn lambda(hop: Span, one_more: Span) -> Lambda {
    // In picoseconds: only their ratio matters.
    let transmit_ns = one_more.as_ps();
    let receive_ns = hop.as_ps().saturating_sub(transmit_ns);
    let times = PostalTimes { send_ns: 0, transmit_ns, receive_ns };
    Lambda::from_times(times).unwrap_or(Lambda::MAX)
}

/// The postal tree with the fan-out that is fastest for `units` units.
fn bounded(ranks: u32, units: u32, lambda: Lambda) -> Tree {
    let best = pipeline::choose(ranks, units, lambda).unwrap_or(Tree::Postal { lambda });
    match best {
        Tree::Postal { .. } => best,
        _ => match best.fan_out_max(ranks) {
            Ok(fan_out) => Tree::PostalBounded { lambda, fan_out: fan_out.max(1) },
            Err(_) => Tree::Postal { lambda },
        },
    }
}

/// Time until all `others` have received a message directly from the root.
fn flat(testbed: &Testbed, others: u32, bytes: u64) -> Result<Span, ModelError> {
    let ranks = others + 1;
    let algorithm = BcastAlgorithm::tree(Tree::Flat);
    let ops = [Op::Meet, Op::Bcast { algorithm, root: 0, bytes }];
    let setup = Setup {
        testbed: testbed.clone(),
        network: NetworkKind::Single.build(ranks).expect("one switch holds any number of hosts"),
        ranks,
        seed: 1,
        loss_ppm: 0,
        carrier: Carrier::Multicast,
    };
    let report = Model::new(setup, Plan::new(ops, 2), false)?.run()?;
    // The first broadcast finds the machines in their initial state.
    Ok(report.samples.last().map_or(Span::ZERO, |sample| sample.others_ended - sample.root_began))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use omnes_sim::testbed::named;

    fn choose(testbed: &str, ranks: u32, bytes: u64) -> Postal {
        Postal::choose(&named(testbed).unwrap(), ranks, bytes).unwrap()
    }

    #[test]
    fn small_message_gets_the_postal_tree_of_its_lambda() {
        let postal = choose("ethernet-25g", 64, 8);
        assert_eq!(postal.tree, Tree::Postal { lambda: postal.lambda });
        assert!(postal.hop > postal.one_more, "{postal:?}");
        assert_eq!(postal.unit_bytes, 8);
        // For a message of several packets the root waits for the acknowledgement, the hop does
        // not.
        let several = choose("ethernet-25g", 64, 8 << 10);
        assert!(several.hop < Span::from_ns(17_600), "{several:?}");
    }

    #[test]
    fn extra_child_costs_the_slower_of_host_and_wire() {
        // A message of one packet costs its sender a train and a packet for each child, and a copy.
        let (testbed, bytes) = (named("ethernet-25g").unwrap(), 1000);
        let host = testbed.host;
        let postal = choose("ethernet-25g", 64, bytes);
        let least = host.train.of(bytes) + host.send.of(bytes) + host.copy.of(bytes);
        let ratio = postal.one_more.as_us() / least.as_us();
        // Replies arrive in between, and are also work for the host.
        assert!((0.9..1.9).contains(&ratio), "{ratio}");
    }

    #[test]
    fn long_message_gets_a_small_fan_out() {
        let short = choose("ethernet-25g", 512, 64 << 10);
        let long = choose("ethernet-25g", 512, 64 << 20);
        let fan_out = |postal: &Postal| postal.tree.fan_out_max(512).unwrap();
        assert!(fan_out(&long) <= 2 && fan_out(&long) < fan_out(&short), "{short:?} {long:?}");
        assert!(long.explain().contains(&long.lambda.to_string()), "{}", long.explain());
    }
}
