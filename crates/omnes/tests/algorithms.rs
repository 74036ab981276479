//! Algorithms of public types with invalid parameters: an error on all ranks, after which the
//! communicator still works.
#![allow(clippy::unwrap_used, missing_docs)]

mod ranks;

use omnes::policy::{AckRule, Collection, Policy};
use omnes::{BcastAlgorithm, Communicator, Error, Forwarding, ReduceAlgorithm, ReduceOp, Tree};
use ranks::with_ranks;

fn refused(call: impl Fn(&Communicator) -> Result<(), Error> + Sync) {
    with_ranks(
        3,
        |_| {},
        |comm| {
            let outcome = call(&comm);
            assert!(matches!(outcome, Err(Error::Algorithm { .. })), "{outcome:?}");
            let mut data = [comm.rank() as u8; 8];
            comm.bcast(1, &mut data).unwrap();
            assert_eq!(data, [1; 8]);
            comm.finalize().unwrap();
        },
    );
}

#[test]
fn invalid_trees_are_rejected_on_all_ranks() {
    let trees = [Tree::Knomial { radix: 0 }, Tree::Knomial { radix: 1 }, Tree::Kary { arity: 0 }];
    for tree in trees {
        for forwarding in [Forwarding::Store, Forwarding::Pipelined] {
            let algorithm = BcastAlgorithm::Tree { tree, forwarding };
            refused(|comm| comm.bcast_with(0, &mut [0; 8], algorithm));
        }
        refused(|comm| {
            comm.allreduce_with(&mut [1u32; 4], ReduceOp::Sum, ReduceAlgorithm::Tree(tree))
        });
        let started = |comm: &Communicator| {
            let mut data = [0; 8];
            comm.scope(|scope| {
                scope.ibcast_with(0, &mut data, BcastAlgorithm::tree(tree)).map(drop)
            })
        };
        refused(started);
    }
}

#[test]
fn policies_with_out_of_range_counts_are_rejected_on_all_ranks() {
    let usual = Policy::COMBINED;
    let acks = [AckRule::Skewed(0), AckRule::EveryNth(0), AckRule::EveryNth(u32::MAX)];
    let collections = [0, 1].map(|radix| Collection::Tree { radix });
    let few = Collection::CoRoots { count: 0 };
    let policies = acks.map(|acks| Policy { acks, ..usual });
    let others = collections.into_iter().chain([few]);
    for policy in policies.into_iter().chain(others.map(|it| Policy { collection: it, ..usual })) {
        refused(|comm| comm.bcast_with(0, &mut [0; 8], BcastAlgorithm::Multicast(policy)));
    }
}
