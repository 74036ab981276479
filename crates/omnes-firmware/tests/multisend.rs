//! To whom the firmware forwards: as the tree says, for every member and source.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use omnes_firmware::multisend::Table;
use omnes_topo::{Tree, TreeTable};
use omnes_wire::Rank;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn children_by_tree(tree: Tree, own: u32, source: u32, size: u32) -> Vec<u32> {
    tree.children(Rank(own), Rank(source), size).unwrap().iter().map(|rank| rank.0).collect()
}

fn tree() -> impl Strategy<Value = Tree> {
    let texts = ["binomial", "chain", "flat", "knomial=4", "kary=3", "postal=2.5", "postal=2.5/4"];
    (0..texts.len()).prop_map(move |at| texts[at].parse().unwrap())
}

#[test]
fn table_children_match_the_tree_for_every_member_and_source() {
    // [MS-R15, R16]
    for tree in [Tree::Binomial, Tree::Chain, Tree::Flat, Tree::Knomial { radix: 3 }] {
        for size in 1..=40 {
            let whole = TreeTable::new(tree, size).unwrap();
            for own in 0..size {
                let table = Table::new(&whole, own);
                for source in 0..size {
                    let children: Vec<u32> = table.children(source).collect();
                    assert_eq!(children, children_by_tree(tree, own, source, size));
                    let parent = tree.parent(Rank(own), Rank(source), size).unwrap();
                    assert_eq!(table.parent(source), parent.map(|rank| rank.0));
                }
            }
        }
    }
}

#[test]
fn source_outside_the_group_has_no_children_or_parent() {
    let tree = TreeTable::new(Tree::Flat, 5).unwrap();
    let table = Table::new(&tree, 2);
    for source in [5, 6, 1023, 1024, u32::MAX] {
        assert_eq!(table.children(source).count(), 0);
        assert_eq!(table.parent(source), None);
    }
    assert_eq!(table.children(2).count(), 4);
    assert!((0..1024).all(|source| Table::none().children(source).count() == 0));
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(0x7370_7264),
        failure_persistence: None,
        ..ProptestConfig::with_cases(200)
    })]

    #[test]
    fn every_member_is_reached_exactly_once_at_any_group_size(
        tree in tree(),
        (size, source) in (1u32..=1024).prop_flat_map(|size| (Just(size), 0..size)),
    ) {
        let whole = TreeTable::new(tree, size).unwrap();
        let mut reached = vec![0; size as usize];
        for own in 0..size {
            let table = Table::new(&whole, own);
            let children: Vec<u32> = table.children(source).collect();
            prop_assert_eq!(&children, &children_by_tree(tree, own, source, size));
            let parent = tree.parent(Rank(own), Rank(source), size).unwrap();
            prop_assert_eq!(table.parent(source), parent.map(|rank| rank.0));
            children.iter().for_each(|child| reached[*child as usize] += 1);
        }
        reached[source as usize] += 1;
        prop_assert!(reached.iter().all(|times| *times == 1));
    }
}
