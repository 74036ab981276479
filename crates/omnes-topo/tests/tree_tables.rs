//! Tables of whole trees, checked against the tree's own answers for every rank and root.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use omnes_topo::{Lambda, TopoError, Tree, TreeTable};
use omnes_wire::Rank;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn children_by_table(table: &TreeTable, rank: u32, source: u32) -> Vec<Rank> {
    table.children_of(Rank(rank), Rank(source)).unwrap().collect()
}

fn some_trees() -> Vec<Tree> {
    let names = "binomial chain flat knomial=3 knomial=5 kary=2 kary=4 postal=1 postal=2.5 \
                 postal=7.862 postal=2.5/2 postal=1.25/4";
    names.split_whitespace().map(|name| name.parse().unwrap()).collect()
}

fn lambda() -> impl Strategy<Value = Lambda> {
    (1000u32..=40_000).prop_map(|thousandths| Lambda::from_thousandths(thousandths).unwrap())
}

fn any_tree() -> impl Strategy<Value = Tree> {
    prop_oneof![
        Just(Tree::Binomial),
        Just(Tree::Chain),
        Just(Tree::Flat),
        (2u32..=40).prop_map(|radix| Tree::Knomial { radix }),
        (1u32..=40).prop_map(|arity| Tree::Kary { arity }),
        lambda().prop_map(|lambda| Tree::Postal { lambda }),
        (lambda(), 1u32..=9).prop_map(|(lambda, fan_out)| Tree::PostalBounded { lambda, fan_out }),
    ]
}

#[test]
fn tables_agree_with_trees_for_every_rank_and_source() {
    // [MS-R16]: one list of destinations per rank, here relative to the source.
    for tree in some_trees() {
        for size in 1..=40 {
            let table = TreeTable::new(tree, size).unwrap();
            for source in 0..size {
                for rank in 0..size {
                    let children = tree.children(Rank(rank), Rank(source), size).unwrap();
                    assert_eq!(children_by_table(&table, rank, source), children);
                }
            }
        }
    }
}

#[test]
fn tables_have_a_run_per_rank_and_an_entry_per_edge() {
    for tree in some_trees() {
        for size in [1, 2, 3, 17, 64, 1024, TreeTable::SIZE_MAX] {
            let table = TreeTable::new(tree, size).unwrap();
            assert_eq!(table.size(), size);
            assert_eq!(table.first().len(), size as usize + 1);
            assert_eq!((table.first()[0], table.first()[size as usize]), (0, (size - 1) as u16));
            assert!(table.first().is_sorted());
            let mut children: Vec<u32> = table.children().iter().copied().map(u32::from).collect();
            children.sort_unstable();
            assert!(children.into_iter().eq(1..size));
        }
    }
}

#[test]
fn mistakes_are_refused_with_value_and_limit() {
    let (size, size_max) = (TreeTable::SIZE_MAX + 1, TreeTable::SIZE_MAX);
    let too_large = TopoError::SizeTooLarge { size, size_max };
    assert_eq!(TreeTable::new(Tree::Chain, 0), Err(TopoError::SizeZero));
    assert_eq!(TreeTable::new(Tree::Chain, size), Err(too_large.clone()));
    assert_eq!(too_large.to_string(), "size 65537 is above the maximum 65536");
    let radix = TopoError::RadixTooSmall { radix: 1 };
    assert_eq!(TreeTable::new(Tree::Knomial { radix: 1 }, 4), Err(radix));
    let table = TreeTable::new(Tree::Chain, 4).unwrap();
    let refused = |own, source| table.children_of(Rank(own), Rank(source)).err();
    assert_eq!(refused(4, 0), Some(TopoError::RankOutOfRange { rank: Rank(4), size: 4 }));
    assert_eq!(refused(0, 4), Some(TopoError::RootOutOfRange { root: Rank(4), size: 4 }));
    assert_eq!(refused(3, 3), None);
}

proptest! {
    // The same samples in every run, so that everybody sees a failure.
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(0x7370_7265_6164),
        failure_persistence: None,
        ..ProptestConfig::with_cases(64)
    })]

    #[test]
    fn tables_of_all_sizes_agree_with_trees(
        tree in any_tree(),
        (size, source) in (1..=1024u32).prop_flat_map(|size| (Just(size), 0..size)),
    ) {
        let table = TreeTable::new(tree, size).unwrap();
        for rank in 0..size {
            let children = tree.children(Rank(rank), Rank(source), size).unwrap();
            prop_assert_eq!(children_by_table(&table, rank, source), children);
        }
    }
}
