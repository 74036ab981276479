//! Trees, checked for every size to 64, every root and radix 2 to 8, and by samples above.
//! `postal.rs` checks that postal trees are as early as possible.
//!
//! The checks are independent of digits: they walk `children` from the root and compare with
//! `parent`, `depth` and `fan_out_max`, and time a broadcast in which every rank sends to one child
//! after another.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use std::collections::VecDeque;

use omnes_topo::postal::POSTAL_SIZE_MAX;
use omnes_topo::tree::RADIX_MIN;
use omnes_topo::{Lambda, TopoError, Tree};
use omnes_wire::Rank;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const SIZES: std::ops::RangeInclusive<u32> = 1..=64;
const RADICES: std::ops::RangeInclusive<u32> = 2..=8;

/// Result of a walk from the root, indexed by rank.
struct Walk {
    /// Number of edges from the root.
    depths: Vec<u32>,
    /// Consecutive sends until the rank has the message, each rank sending one after another.
    arrivals: Vec<u32>,
    /// Number of ranks in the subtree, including the rank itself.
    subtrees: Vec<u32>,
    /// Maximum number of children of any rank.
    fan_out: u32,
}

/// Walks the tree; panics if a rank is reached twice or never, or if `parent` disagrees.
fn walk(tree: Tree, root: Rank, size: u32) -> Walk {
    let ranks = size as usize;
    let mut depths = vec![None; ranks];
    let mut arrivals = vec![0; ranks];
    let mut fan_out = 0;
    let mut visited = Vec::new();
    let mut queue = VecDeque::from([root]);
    depths[root.0 as usize] = Some(0);
    assert_eq!(tree.parent(root, root, size).unwrap(), None);
    while let Some(rank) = queue.pop_front() {
        visited.push(rank);
        let children = tree.children(rank, root, size).unwrap();
        fan_out = fan_out.max(children.len() as u32);
        for (child, nth) in children.into_iter().zip(1..) {
            assert_eq!(tree.parent(child, root, size).unwrap(), Some(rank), "{tree} {child:?}");
            let reached_before = depths[child.0 as usize];
            assert_eq!(reached_before, None, "{tree} root {root:?} size {size}: {child:?} twice");
            depths[child.0 as usize] = depths[rank.0 as usize].map(|depth| depth + 1);
            arrivals[child.0 as usize] = arrivals[rank.0 as usize] + nth;
            queue.push_back(child);
        }
    }
    let depths: Option<Vec<u32>> = depths.into_iter().collect();
    let depths = depths.unwrap_or_else(|| panic!("{tree} root {root:?} size {size} spans not"));
    let mut subtrees = vec![1; ranks];
    for &rank in visited.iter().rev() {
        if let Some(parent) = tree.parent(rank, root, size).unwrap() {
            subtrees[parent.0 as usize] += subtrees[rank.0 as usize];
        }
    }
    Walk { depths, arrivals, subtrees, fan_out }
}

fn check_against_closed_forms(tree: Tree, root: Rank, size: u32) -> Walk {
    let walked = walk(tree, root, size);
    let context = format!("{tree} root {root:?} size {size}");
    assert_eq!(walked.depths.iter().max(), tree.depth(size).ok().as_ref(), "{context}");
    assert_eq!(walked.fan_out, tree.fan_out_max(size).unwrap(), "{context}");
    walked
}

fn all_trees() -> Vec<Tree> {
    let knomials = RADICES.map(|radix| Tree::Knomial { radix });
    let karies = (1..=8).map(|arity| Tree::Kary { arity });
    let single = [Tree::Binomial, Tree::Chain, Tree::Flat];
    single.into_iter().chain(knomials).chain(karies).chain(postal_trees()).collect()
}

fn postal_trees() -> Vec<Tree> {
    let names = ["postal=1", "postal=1.5", "postal=2", "postal=2.75", "postal=8", "postal=100"];
    let bounded = ["postal=1/1", "postal=2.5/2", "postal=8/3", "postal=1.333/8"];
    names.into_iter().chain(bounded).map(|name| name.parse().unwrap()).collect()
}

fn ranks(indices: &[u32]) -> Vec<Rank> {
    indices.iter().copied().map(Rank).collect()
}

/// Smallest d with `radix^d >= size`.
fn log_ceil(radix: u32, size: u32) -> u32 {
    (0..).find(|&power| u64::from(radix).pow(power) >= u64::from(size)).unwrap()
}

#[test]
fn every_tree_spans_without_cycles_and_parents_match_children() {
    for tree in all_trees() {
        for size in SIZES {
            for root in 0..size {
                check_against_closed_forms(tree, Rank(root), size);
            }
        }
    }
}

#[test]
fn knomial_depth_is_at_most_the_number_of_digits_of_the_size() {
    for radix in RADICES {
        for size in SIZES {
            assert!(Tree::Knomial { radix }.depth(size).unwrap() <= log_ceil(radix, size));
        }
    }
}

#[test]
fn rotation_by_the_root_keeps_shape_and_order() {
    for tree in all_trees() {
        for size in SIZES {
            for root in 0..size {
                for relative in 0..size {
                    let rotate = |rank: Rank| Rank((rank.0 + root) % size);
                    let plain = tree.children(Rank(relative), Rank(0), size).unwrap();
                    let expected: Vec<Rank> = plain.into_iter().map(rotate).collect();
                    let rank = rotate(Rank(relative));
                    assert_eq!(tree.children(rank, Rank(root), size).unwrap(), expected);
                }
            }
        }
    }
}

#[test]
fn knomial_of_radix_two_is_binomial() {
    let knomial = Tree::Knomial { radix: 2 };
    for size in SIZES {
        for rank in (0..size).map(Rank) {
            let binomial = Tree::Binomial.children(rank, Rank(size / 2), size);
            assert_eq!(knomial.children(rank, Rank(size / 2), size), binomial);
            let binomial = Tree::Binomial.parent(rank, Rank(size / 2), size);
            assert_eq!(knomial.parent(rank, Rank(size / 2), size), binomial);
        }
        assert_eq!(knomial.depth(size), Tree::Binomial.depth(size));
        assert_eq!(knomial.fan_out_max(size), Tree::Binomial.fan_out_max(size));
    }
}

#[test]
fn kary_children_are_assigned_in_rank_order() {
    for arity in 1..=8 {
        let tree = Tree::Kary { arity };
        for size in SIZES {
            let children = (0..size).flat_map(|r| tree.children(Rank(r), Rank(0), size).unwrap());
            assert!(children.eq((1..size).map(Rank)), "{tree} of {size}");
            let fan_outs = (0..size).map(|r| tree.children(Rank(r), Rank(0), size).unwrap().len());
            let fan_outs: Vec<usize> = fan_outs.collect();
            assert!(fan_outs.is_sorted_by(|one, next| one >= next), "{tree} of {size}");
            assert!(fan_outs.iter().filter(|n| (1..arity as usize).contains(n)).count() <= 1);
        }
    }
}

#[test]
fn trees_of_fan_out_one_equal_the_chain() {
    for name in ["kary=1", "postal=1/1", "postal=7.5/1"] {
        let tree: Tree = name.parse().unwrap();
        for size in SIZES {
            let chain = |rank: u32| Tree::Chain.children(Rank(rank), Rank(size / 3), size);
            assert!((0..size).all(|r| tree.children(Rank(r), Rank(size / 3), size) == chain(r)));
            assert_eq!(tree.depth(size), Tree::Chain.depth(size));
        }
    }
}

/// The loop of the usual MPI binomial broadcast, written with masks instead of digits.
fn children_by_masks(relative: u32, size: u32) -> Vec<Rank> {
    let mut mask = 1;
    while mask < size && relative & mask == 0 {
        mask <<= 1;
    }
    let mut children = Vec::new();
    mask >>= 1;
    while mask > 0 {
        if relative + mask < size {
            children.push(Rank(relative + mask));
        }
        mask >>= 1;
    }
    children
}

#[test]
fn binomial_sends_in_the_order_of_the_mpi_loop() {
    // [MS-R22]: the host binomial tree is a baseline, so it must be the one that MPI uses.
    for size in SIZES {
        for rank in 0..size {
            let children = Tree::Binomial.children(Rank(rank), Rank(0), size).unwrap();
            assert_eq!(children, children_by_masks(rank, size), "rank {rank} of {size}");
        }
    }
}

#[test]
fn binomial_broadcast_ends_after_the_fewest_possible_sends() {
    for size in SIZES {
        let arrivals = walk(Tree::Binomial, Rank(0), size).arrivals;
        assert_eq!(arrivals.into_iter().max(), Some(log_ceil(2, size)), "size {size}");
    }
}

#[test]
fn knomial_broadcast_ends_within_radix_minus_one_sends_per_digit() {
    for radix in RADICES {
        for size in SIZES {
            let arrivals = walk(Tree::Knomial { radix }, Rank(0), size).arrivals;
            assert!(arrivals.into_iter().max() <= Some((radix - 1) * log_ceil(radix, size)));
        }
    }
}

#[test]
fn children_are_ordered_largest_subtree_first_in_full_groups() {
    for radix in RADICES {
        let tree = Tree::Knomial { radix };
        for size in SIZES.filter(|&size| radix.pow(log_ceil(radix, size)) == size) {
            let subtrees = walk(tree, Rank(0), size).subtrees;
            for rank in (0..size).map(Rank) {
                let children = tree.children(rank, Rank(0), size).unwrap();
                assert!(children.is_sorted_by_key(|c| u32::MAX - subtrees[c.0 as usize]));
            }
        }
    }
}

#[test]
fn sending_order_matches_hand_computed_lists() {
    let children = |tree: Tree, rank, root, size| tree.children(Rank(rank), Rank(root), size);
    let knomial = Tree::Knomial { radix: 4 };
    assert_eq!(children(Tree::Binomial, 4, 0, 8).unwrap(), ranks(&[6, 5]));
    assert_eq!(children(Tree::Binomial, 3, 3, 10).unwrap(), ranks(&[1, 7, 5, 4]));
    assert_eq!(children(Tree::Chain, 9, 3, 10).unwrap(), ranks(&[0]));
    assert_eq!(children(Tree::Chain, 2, 3, 10).unwrap(), ranks(&[]));
    assert_eq!(children(Tree::Flat, 2, 2, 4).unwrap(), ranks(&[3, 0, 1]));
    assert_eq!(children(Tree::Flat, 0, 2, 4).unwrap(), ranks(&[]));
    assert_eq!(children(knomial, 0, 0, 10).unwrap(), ranks(&[4, 8, 1, 2, 3]));
    assert_eq!(children(knomial, 8, 0, 10).unwrap(), ranks(&[9]));
    let kary = Tree::Kary { arity: 3 };
    assert_eq!(children(kary, 0, 0, 9).unwrap(), ranks(&[1, 2, 3]));
    assert_eq!(children(kary, 2, 0, 9).unwrap(), ranks(&[7, 8]));
    assert_eq!(children(kary, 1, 8, 9).unwrap(), ranks(&[6, 7]));
}

#[test]
fn a_group_of_one_has_no_edges() {
    for tree in all_trees() {
        assert_eq!(tree.parent(Rank(0), Rank(0), 1), Ok(None));
        assert_eq!(tree.children(Rank(0), Rank(0), 1), Ok(vec![]));
        assert_eq!((tree.depth(1), tree.fan_out_max(1)), (Ok(0), Ok(0)));
    }
}

#[test]
fn the_largest_size_and_radix_do_not_overflow() {
    let (size, last) = (u32::MAX, Rank(u32::MAX - 1));
    let widest = Tree::Knomial { radix: u32::MAX };
    assert_eq!((widest.depth(size), widest.fan_out_max(size)), (Ok(1), Ok(size - 1)));
    assert_eq!(widest.parent(Rank(5), last, size), Ok(Some(last)));
    assert_eq!(widest.children(Rank(5), last, size), Ok(vec![]));
    assert_eq!((Tree::Binomial.depth(size), Tree::Binomial.fan_out_max(size)), (Ok(31), Ok(32)));
    assert_eq!(Tree::Binomial.children(last, last, size).unwrap().len(), 32);
    assert_eq!(Tree::Chain.children(last, Rank(7), size), Ok(vec![Rank(0)]));
    let heap = Tree::Kary { arity: 2 };
    assert_eq!((heap.depth(size), heap.fan_out_max(size)), (Ok(31), Ok(2)));
    assert_eq!(heap.parent(last, Rank(0), size), Ok(Some(Rank((1 << 31) - 2))));
    assert_eq!(heap.children(last, Rank(0), size), Ok(vec![]));
    let heap = Tree::Kary { arity: u32::MAX };
    assert_eq!((heap.depth(size), heap.fan_out_max(size)), (Ok(1), Ok(size - 1)));
    assert_eq!(heap.children(Rank(5), last, size), Ok(vec![]));
    assert_eq!((Tree::Chain.depth(size), Tree::Flat.fan_out_max(size)), (Ok(last.0), Ok(last.0)));
}

#[test]
fn mistakes_are_refused_with_value_and_limit() {
    let tree = Tree::Binomial;
    let rank = TopoError::RankOutOfRange { rank: Rank(4), size: 4 };
    let root = TopoError::RootOutOfRange { root: Rank(9), size: 4 };
    let radix = TopoError::RadixTooSmall { radix: 1 };
    assert_eq!(tree.parent(Rank(4), Rank(0), 4), Err(rank.clone()));
    assert_eq!(tree.children(Rank(4), Rank(0), 4), Err(rank.clone()));
    assert_eq!(tree.parent(Rank(4), Rank(9), 4), Err(root.clone()));
    assert_eq!(tree.children(Rank(0), Rank(9), 4), Err(root.clone()));
    assert_eq!(tree.parent(Rank(0), Rank(0), 0), Err(TopoError::SizeZero));
    assert_eq!(tree.children(Rank(0), Rank(0), 0), Err(TopoError::SizeZero));
    assert_eq!(tree.depth(0), Err(TopoError::SizeZero));
    assert_eq!(tree.fan_out_max(0), Err(TopoError::SizeZero));
    for refused in [0, 1] {
        let tree = Tree::Knomial { radix: refused };
        let expected = TopoError::RadixTooSmall { radix: refused };
        assert_eq!(tree.parent(Rank(0), Rank(0), 4), Err(expected.clone()));
        assert_eq!(tree.children(Rank(0), Rank(0), 4), Err(expected.clone()));
        assert_eq!(tree.depth(4), Err(expected.clone()));
        assert_eq!(tree.fan_out_max(4), Err(expected));
    }
    assert_eq!(Tree::Knomial { radix: RADIX_MIN }.depth(4), Ok(2));
    let lambda = Lambda::ONE;
    for tree in [Tree::Kary { arity: 0 }, Tree::PostalBounded { lambda, fan_out: 0 }] {
        assert_eq!(tree.parent(Rank(0), Rank(0), 4), Err(TopoError::FanOutZero));
        assert_eq!(tree.children(Rank(0), Rank(0), 4), Err(TopoError::FanOutZero));
        assert_eq!(tree.depth(4), Err(TopoError::FanOutZero));
        assert_eq!(tree.fan_out_max(4), Err(TopoError::FanOutZero));
    }
    let (size, size_max) = (POSTAL_SIZE_MAX + 1, POSTAL_SIZE_MAX);
    let too_large = TopoError::SizeTooLarge { size, size_max };
    for tree in [Tree::Postal { lambda }, Tree::PostalBounded { lambda, fan_out: 2 }] {
        assert_eq!(tree.parent(Rank(0), Rank(0), size), Err(too_large.clone()));
        assert_eq!(tree.children(Rank(0), Rank(0), size), Err(too_large.clone()));
        assert_eq!(tree.depth(size), Err(too_large.clone()));
        assert_eq!(tree.fan_out_max(size), Err(too_large.clone()));
        assert_eq!(tree.depth(0), Err(TopoError::SizeZero));
    }
    assert_eq!(rank.to_string(), "rank 4 is not below the size 4");
    assert_eq!(root.to_string(), "root 9 is not below the size 4");
    assert_eq!(radix.to_string(), "radix 1 is below the minimum 2");
    let text = "fan-out is 0, but a rank that sends has at least 1 child";
    assert_eq!(TopoError::FanOutZero.to_string(), text);
    assert_eq!(TopoError::SizeZero.to_string(), "size is 0, but a group has at least 1 rank");
}

#[test]
fn tree_names_round_trip() {
    for tree in all_trees() {
        assert_eq!(tree.to_string().parse(), Ok(tree));
    }
    assert_eq!("knomial=4".parse(), Ok(Tree::Knomial { radix: 4 }));
    assert_eq!(format!("[{:>8}]", Tree::Chain), "[   chain]");
    for name in ["kary=3", "postal=2.5", "postal=3", "postal=2.125/4", "postal=1/1"] {
        assert_eq!(name.parse::<Tree>().unwrap().to_string(), name);
    }
}

#[test]
fn unknown_names_are_refused() {
    let bases = ["", "Binomial", "binomial ", "binomial=2", "knomial", "knomial=", "knomial=x"];
    let others = ["knomial=-2", "kary", "kary=", "kary=1.5", "postal", "postal=", "postal=x"];
    let bounded = ["postal=2/", "postal=/2", "postal=2/x", "postal=2/3/4", "postal=2.", "chain="];
    for name in [&bases[..], &others, &bounded].concat() {
        let expected = TopoError::UnknownTree { name: name.to_string() };
        assert_eq!(name.parse::<Tree>(), Err(expected), "{name:?}");
    }
    assert_eq!("knomial=1".parse::<Tree>(), Err(TopoError::RadixTooSmall { radix: 1 }));
    let lambda = TopoError::LambdaOutOfRange { thousandths: 999 };
    assert_eq!("postal=0.999".parse::<Tree>(), Err(lambda.clone()));
    assert_eq!("postal=0.999/2".parse::<Tree>(), Err(lambda));
    assert_eq!("postal=2/0".parse::<Tree>(), Err(TopoError::FanOutZero));
    assert_eq!("kary=0".parse::<Tree>(), Err(TopoError::FanOutZero));
    let error = "ring".parse::<Tree>().unwrap_err();
    let text =
        "expected binomial, chain, flat, knomial=K, kary=K, postal=LAMBDA or postal=LAMBDA/K";
    assert_eq!(error.to_string(), format!("unknown tree \"ring\": {text}"));
}

/// Any family with closed forms; radix and arity to 100.
fn any_closed_tree() -> impl Strategy<Value = Tree> {
    prop_oneof![
        Just(Tree::Binomial),
        Just(Tree::Chain),
        Just(Tree::Flat),
        (2u32..=100).prop_map(|radix| Tree::Knomial { radix }),
        (1u32..=100).prop_map(|arity| Tree::Kary { arity }),
    ]
}

/// A size in the range and a member of the group.
fn size_and_member(sizes: std::ops::RangeInclusive<u32>) -> impl Strategy<Value = (u32, u32)> {
    sizes.prop_flat_map(|size| (Just(size), 0..size))
}

proptest! {
    // The same samples in every run, so that everybody sees a failure.
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(0x746f706f),
        failure_persistence: None,
        ..ProptestConfig::with_cases(128)
    })]

    #[test]
    fn large_trees_span_and_parents_match_children(
        tree in any_closed_tree(),
        (size, root) in size_and_member(1..=5_000),
    ) {
        check_against_closed_forms(tree, Rank(root), size);
    }

    #[test]
    fn large_postal_trees_span_and_parents_match_children(
        thousandths in 1000u32..=30_000,
        fan_out in prop_oneof![Just(u32::MAX), 1u32..=12],
        (size, root) in size_and_member(1..=500),
    ) {
        let lambda = Lambda::from_thousandths(thousandths).unwrap();
        let tree = match fan_out {
            u32::MAX => Tree::Postal { lambda },
            _ => Tree::PostalBounded { lambda, fan_out },
        };
        let walked = check_against_closed_forms(tree, Rank(root), size);
        prop_assert!(walked.fan_out <= fan_out);
    }

    #[test]
    fn parents_agree_with_children_in_huge_groups(
        radix in 2u32..=1_000,
        (size, root) in size_and_member(1..=u32::MAX),
        pick in any::<u32>(),
    ) {
        let tree = Tree::Knomial { radix };
        let (root, rank) = (Rank(root), Rank(pick % size));
        for child in tree.children(rank, root, size).unwrap() {
            prop_assert_eq!(tree.parent(child, root, size), Ok(Some(rank)));
        }
        if let Some(parent) = tree.parent(rank, root, size).unwrap() {
            prop_assert!(tree.children(parent, root, size).unwrap().contains(&rank));
        }
    }
}
