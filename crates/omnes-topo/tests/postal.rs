//! Postal trees, compared with the recurrence of the postal model, which is independent of trees.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use std::collections::BTreeMap;

use omnes_topo::{Lambda, PostalTimes, TopoError, Tree, pipeline, postal};
use omnes_wire::Rank;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const UNIT: u64 = 1000;

fn lambda(thousandths: u32) -> Lambda {
    Lambda::from_thousandths(thousandths).unwrap()
}

/// Whole numbers to `last`, and quarters to 8.
fn lambdas(last: u32) -> impl Iterator<Item = Lambda> {
    let quarters = (4..=32).map(|quarters| 250 * quarters);
    (1..=last).map(|whole| 1000 * whole).chain(quarters).map(lambda)
}

/// F of [MS-R18] as printed there, each value computed once.
struct Recurrence {
    lambda: u64,
    known: BTreeMap<u64, u64>,
}

impl Recurrence {
    fn new(lambda: Lambda) -> Self {
        Self { lambda: lambda.thousandths().into(), known: BTreeMap::new() }
    }

    fn reach(&mut self, time: u64) -> u64 {
        if time < self.lambda {
            return 1;
        }
        if let Some(reach) = self.known.get(&time) {
            return *reach;
        }
        let reach = self.reach(time - UNIT) + self.reach(time - self.lambda);
        self.known.insert(time, reach);
        reach
    }

    /// The earliest time for `size` ranks: F grows only at sums of a units and b lambdas.
    fn completion(&mut self, size: u32) -> u64 {
        let latest = u64::from(size) * UNIT + self.lambda;
        let lambdas = (0..=latest / self.lambda).map(|b| b * self.lambda);
        let units = |from: u64| (0..=(latest - from) / UNIT).map(move |a| from + a * UNIT);
        let mut times: Vec<u64> = lambdas.flat_map(units).collect();
        times.sort_unstable();
        // Monotonic, so the first sufficient time is found by bisection.
        times[times.partition_point(|time| self.reach(*time) < size.into())]
    }
}

/// Time at which the last rank is ready, each rank sending to its children one after another.
fn latency(tree: Tree, size: u32, lambda: Lambda) -> u64 {
    pipeline::time(tree, size, 1, lambda).unwrap()
}

/// Sizes of all subtrees, sorted: equal for two trees of equal shape.
fn subtrees(tree: Tree, size: u32) -> Vec<u32> {
    let mut subtrees = vec![1; size as usize];
    for rank in (1..size).rev() {
        let parent = tree.parent(Rank(rank), Rank(0), size).unwrap().unwrap();
        subtrees[parent.index()] += subtrees[rank as usize];
    }
    subtrees.sort_unstable();
    subtrees
}

#[test]
fn reach_matches_the_recurrence() {
    // [MS-R18]
    for lambda in lambdas(16).chain([1001, 1333, 7862].map(lambda)) {
        let mut recurrence = Recurrence::new(lambda);
        for time in (0..=30).map(|units| units * UNIT).chain((0..=200).map(|step| step * 137)) {
            assert_eq!(postal::reach(time, lambda), recurrence.reach(time), "{lambda} at {time}");
        }
    }
}

#[test]
fn reach_at_the_first_times_matches_the_published_values() {
    let reach = |lambda, last| -> Vec<u64> {
        (0..=last).map(|time| postal::reach(time * UNIT, lambda)).collect()
    };
    assert_eq!(reach(Lambda::ONE, 5), [1, 2, 4, 8, 16, 32]);
    assert_eq!(reach(lambda(2000), 6), [1, 1, 2, 3, 5, 8, 13]);
}

#[test]
fn postal_tree_completes_at_the_earliest_possible_time() {
    // [MS-R19]: all sizes to 64, all whole lambdas to the size, and fractional ones.
    for size in 1..=64 {
        for lambda in lambdas(size) {
            let earliest = Recurrence::new(lambda).completion(size);
            let built = latency(Tree::Postal { lambda }, size, lambda);
            assert_eq!(built, earliest, "{size} ranks, lambda {lambda}");
            assert_eq!(postal::completion(size, lambda), Ok(earliest));
        }
    }
}

#[test]
fn search_over_whole_lambdas_is_within_one_unit_of_the_optimum() {
    // [MS-R20]: the search tries 1 to size and keeps the best.
    for size in 2..=40 {
        for real in lambdas(size) {
            let of = |built: Lambda| latency(Tree::Postal { lambda: built }, size, real);
            let found = (1..=size).map(|whole| of(lambda(1000 * whole))).min().unwrap();
            let best = postal::completion(size, real).unwrap();
            assert!(found >= best);
            let is_whole = real.thousandths().is_multiple_of(1000);
            assert!(!is_whole || found == best, "size {size}, lambda {real}");
            assert!(found - best < UNIT, "size {size}, lambda {real}: {found} for {best}");
        }
    }
}

#[test]
fn tree_is_flat_exactly_if_lambda_is_at_least_size_minus_two() {
    for size in 1..=64 {
        for lambda in lambdas(70) {
            let tree = Tree::Postal { lambda };
            let is_flat = tree.fan_out_max(size).unwrap() == size - 1;
            let expected = u64::from(lambda.thousandths()) + 2 * UNIT >= u64::from(size) * UNIT;
            assert_eq!(is_flat, expected, "{size} ranks, lambda {lambda}");
        }
    }
}

#[test]
fn lambda_of_one_gives_the_binomial_shape() {
    let tree = Tree::Postal { lambda: Lambda::ONE };
    for power in 0..=9 {
        assert_eq!(subtrees(tree, 1 << power), subtrees(Tree::Binomial, 1 << power));
    }
    for size in 2..=64u32 {
        let rounds = u64::from(size - 1).ilog2() + 1;
        assert_eq!(postal::completion(size, Lambda::ONE), Ok(u64::from(rounds) * UNIT));
    }
}

#[test]
fn children_match_hand_computed_lists() {
    let children = |name: &str, rank, root| {
        let tree: Tree = name.parse().unwrap();
        let children = tree.children(Rank(rank), Rank(root), 8).unwrap();
        children.into_iter().map(|rank| rank.0).collect::<Vec<_>>()
    };
    // At 2 the root, which has sent before, goes before rank 1; at 3 again.
    assert_eq!(children("postal=2", 0, 0), [1, 2, 3, 5]);
    assert_eq!(children("postal=2", 1, 0), [4, 6]);
    assert_eq!(children("postal=2", 2, 0), [7]);
    assert_eq!(children("postal=2", 6, 5), [1, 3]);
    assert_eq!(children("postal=3", 0, 0), [1, 2, 3, 4, 6]);
    assert_eq!(children("postal=3", 1, 0), [5, 7]);
    assert_eq!(children("postal=2/2", 0, 0), [1, 2]);
    assert_eq!(children("postal=2/2", 1, 0), [3, 4]);
    assert_eq!(children("postal=2/2", 2, 0), [5, 6]);
    assert_eq!(children("postal=2/2", 3, 0), [7]);
}

#[test]
fn bounded_trees_never_complete_later_than_others_of_equal_fan_out() {
    for lambda in lambdas(12) {
        for size in 1..=64 {
            for fan_out in 1..=8 {
                let bounded = latency(Tree::PostalBounded { lambda, fan_out }, size, lambda);
                let kary = latency(Tree::Kary { arity: fan_out }, size, lambda);
                assert!(bounded <= kary);
                let knomial = Tree::Knomial { radix: 3 };
                if knomial.fan_out_max(size).unwrap() <= fan_out {
                    assert!(bounded <= latency(knomial, size, lambda));
                }
            }
            let most = size.max(2) - 1;
            let unbounded = latency(Tree::Postal { lambda }, size, lambda);
            assert_eq!(
                latency(Tree::PostalBounded { lambda, fan_out: most }, size, lambda),
                unbounded
            );
        }
    }
}

#[test]
fn fan_out_bound_is_reached_if_tight_and_has_no_effect_if_loose() {
    for lambda in lambdas(9) {
        for size in 1..=64 {
            let free = Tree::Postal { lambda };
            let widest = free.fan_out_max(size).unwrap();
            for fan_out in 1..=widest {
                let bounded = Tree::PostalBounded { lambda, fan_out };
                assert_eq!(bounded.fan_out_max(size), Ok(fan_out));
            }
            for fan_out in widest.max(1)..widest + 3 {
                let bounded = Tree::PostalBounded { lambda, fan_out };
                for rank in (0..size).map(Rank) {
                    let expected = free.children(rank, Rank(0), size);
                    assert_eq!(bounded.children(rank, Rank(0), size), expected);
                }
            }
        }
    }
}

#[test]
fn lambda_of_measured_times_is_their_quotient() {
    // [MS-R17]; the fits of the paper at 0 and at 1536 bytes, in tenths of a nanosecond.
    let of = |send_ns, transmit_ns, receive_ns| {
        Lambda::from_times(PostalTimes { send_ns, transmit_ns, receive_ns })
    };
    assert_eq!(of(27_863, 13_958, 42_820).unwrap().to_string(), "6.064");
    assert_eq!(of(490_199, 129_158, 396_100).unwrap().to_string(), "7.862");
    assert_eq!(of(0, 1, 0), Ok(Lambda::ONE));
    assert_eq!(of(u64::MAX, u64::MAX, u64::MAX), Ok(lambda(3000)));
    // To the nearest thousandth, halves up.
    assert_eq!(of(1, 2001, 0), Ok(lambda(1000)));
    assert_eq!(of(1, 2000, 0), Ok(lambda(1001)));
    assert_eq!(of(1, 0, 1), Err(TopoError::TransmitTimeZero));
    let most = u64::from(u32::MAX);
    assert_eq!(of(most - 1000, 1000, 0), Ok(Lambda::MAX));
    let thousandths = most + 1;
    assert_eq!(of(most - 999, 1000, 0), Err(TopoError::LambdaOutOfRange { thousandths }));
    let beyond = TopoError::LambdaOutOfRange { thousandths: u64::MAX };
    assert_eq!(of(u64::MAX, 1, u64::MAX), Err(beyond));
}

#[test]
fn valid_lambdas_round_trip_and_invalid_ones_are_rejected() {
    for (text, thousandths) in [("1", 1000), ("2.5", 2500), ("10", 10_000), ("7.862", 7862)] {
        assert_eq!(text.parse(), Ok(lambda(thousandths)));
        assert_eq!(lambda(thousandths).to_string(), text);
    }
    assert_eq!("2.50".parse(), Ok(lambda(2500)));
    assert_eq!("002".parse(), Ok(lambda(2000)));
    assert_eq!("4294967.295".parse(), Ok(Lambda::MAX));
    assert_eq!(format!("[{:>5}]", lambda(2500)), "[  2.5]");
    assert!(Lambda::ONE < lambda(1001) && lambda(1001) < Lambda::MAX);
    for text in ["", ".", "1.", ".5", "+2", "-2", "2.5.0", "2,5", "2.5001", "1e3", "2.+5", "x"] {
        let expected = TopoError::UnknownLambda { text: text.to_string() };
        assert_eq!(text.parse::<Lambda>(), Err(expected), "{text:?}");
    }
    for (text, thousandths) in [("0", 0), ("0.999", 999), ("4294967.296", 4_294_967_296)] {
        let expected = TopoError::LambdaOutOfRange { thousandths };
        assert_eq!(text.parse::<Lambda>(), Err(expected));
    }
    assert_eq!(Lambda::from_thousandths(1000), Ok(Lambda::ONE));
    let below = Lambda::from_thousandths(999).unwrap_err();
    assert_eq!(below.to_string(), "lambda 0.999 is not in 1 to 4294967.295");
    let unknown = "x".parse::<Lambda>().unwrap_err().to_string();
    assert!(
        unknown.starts_with("unknown lambda \"x\": expected a number such as 2.5"),
        "{unknown}"
    );
    let zero = TopoError::TransmitTimeZero.to_string();
    assert_eq!(zero, "transmission takes 0 ns, but lambda needs at least 1 ns");
}

#[test]
fn the_largest_arguments_do_not_overflow() {
    assert_eq!(postal::reach(u64::MAX, Lambda::ONE), u64::MAX);
    assert_eq!(postal::reach(u64::MAX, Lambda::MAX), u64::MAX);
    assert_eq!(postal::reach(0, Lambda::MAX), 1);
    // 2^t up to the largest that fits.
    assert_eq!(postal::reach(63 * UNIT, Lambda::ONE), 1 << 63);
    assert_eq!(postal::reach(64 * UNIT, Lambda::ONE), u64::MAX);
    assert_eq!(postal::completion(u32::MAX, Lambda::ONE), Ok(32 * UNIT));
    assert_eq!(postal::completion(0, Lambda::ONE), Err(TopoError::SizeZero));
    assert_eq!(postal::completion(1, Lambda::MAX), Ok(0));
    assert_eq!(postal::completion(2, Lambda::MAX), Ok(u64::from(u32::MAX)));
    let late = postal::completion(u32::MAX, Lambda::MAX).unwrap();
    assert!(postal::reach(late, Lambda::MAX) >= u32::MAX.into());
    assert!(postal::reach(late - 1, Lambda::MAX) < u32::MAX.into());
}

#[test]
fn largest_trees_complete_at_the_earliest_possible_time() {
    let size = postal::POSTAL_SIZE_MAX;
    for lambda in [Lambda::ONE, lambda(2500), lambda(1_000_000), Lambda::MAX] {
        let earliest = postal::completion(size, lambda).unwrap();
        assert_eq!(latency(Tree::Postal { lambda }, size, lambda), earliest);
    }
    let chain = Tree::PostalBounded { lambda: Lambda::MAX, fan_out: 1 };
    assert_eq!(chain.depth(size), Ok(size - 1));
}

proptest! {
    // The same samples in every run, so that everybody sees a failure.
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(0x706f_7374),
        failure_persistence: None,
        ..ProptestConfig::with_cases(256)
    })]

    #[test]
    fn large_trees_complete_as_early_as_the_reach_allows(
        size in 1u32..=20_000,
        thousandths in prop_oneof![1000u32..=10_000, 1000u32..=50_000_000],
    ) {
        let lambda = lambda(thousandths);
        let earliest = postal::completion(size, lambda).unwrap();
        prop_assert_eq!(latency(Tree::Postal { lambda }, size, lambda), earliest);
        prop_assert!(postal::reach(earliest, lambda) >= size.into());
        prop_assert!(size == 1 || postal::reach(earliest - 1, lambda) < size.into());
    }
}
