//! Figures of the network: measured at the start of a job, kept by rank 0, and used to choose.
//!
//! Ranks are threads over loopback, each a node of its own; they measure there only if a file is
//! named.
#![allow(clippy::unwrap_used, missing_docs)]

mod ranks;

use omnes::tune::{Cache, Candidate, Cost, Effort, Entry, Figures, Plan};
use omnes::{BcastAlgorithm, Communicator, Config, MultiSend, Multicast, NicChoice, Tune};
use ranks::with_ranks;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A file that does not exist yet; it is removed with its directory.
fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kept/figures.json");
    (directory, path)
}

fn cache(path: &Path) -> Cache {
    Cache::of(&Tune::In(path.to_owned())).unwrap()
}

/// Only rank 0 has the file.
fn kept_in(path: &Path) -> impl Fn(&mut Config) + Sync {
    let path = path.to_owned();
    move |config| {
        config.tune = if config.rank == 0 { Tune::In(path.clone()) } else { Tune::Off };
    }
}

/// The figures of a job's ranks, which must be equal, and their choices for 8 B and 1 GiB.
fn outcome(
    size: u32,
    adjust: impl Fn(&mut Config) + Sync,
) -> (Option<Figures>, [BcastAlgorithm; 2]) {
    let mut found = with_ranks(size, adjust, |comm| {
        let found = (comm.figures(), [8, 1 << 30].map(|bytes| comm.chosen_bcast(bytes)));
        comm.finalize().unwrap();
        found
    });
    found.dedup();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// Number of multicast packets of a broadcast of 1,000 bytes from rank 1.
fn casts(comm: &Communicator) -> u64 {
    comm.barrier().unwrap();
    let before = comm.stats().bcast_packets_sent;
    let mut data = [comm.rank() as u8; 1000];
    comm.bcast(1, &mut data).unwrap();
    assert_eq!(data, [1; 1000]);
    comm.barrier().unwrap();
    comm.stats().bcast_packets_sent - before
}

/// Figures with which `favourite` takes no time, and all others take long.
fn in_favour_of(favourite: Candidate) -> Figures {
    let cost = |candidate| {
        if candidate == favourite {
            Cost::default()
        } else {
            Cost { level_ns: 1_000_000, level_byte_ps: 1_000, stream_byte_ps: 1_000 }
        }
    };
    let multicast = Some(cost(Candidate::Multicast));
    let (binomial, chain) = (cost(Candidate::Binomial), cost(Candidate::Chain));
    Figures { multicast, binomial, chain, lambda_thousandths: None }
}

#[test]
fn first_job_measures_and_later_ones_reuse_its_figures() {
    let (_directory, path) = place();
    let (measured, _) = outcome(4, kept_in(&path));
    let figures = measured.unwrap();
    assert!(figures.multicast.is_some());
    assert!(
        Candidate::ALL.iter().all(|candidate| figures.time_ns(*candidate, 4, 1 << 20).unwrap() > 0)
    );
    let entries = cache(&path).entries();
    let [Entry { network, figures: kept, effort: Effort::Quick, .. }] = &entries[..] else {
        panic!("{entries:?}");
    };
    assert_eq!(*kept, figures);
    assert_eq!((network.ranks, network.nodes, network.has_multicast), (4, 4, true));
    assert_eq!(network.prefix, "127.0.0.0/8");
    let text = std::fs::read(&path).unwrap();
    assert_eq!(outcome(4, kept_in(&path)).0, Some(figures));
    assert_eq!(std::fs::read(&path).unwrap(), text);
    // Another number of ranks is measured separately.
    assert_ne!(outcome(3, kept_in(&path)).0, None);
    assert_eq!(cache(&path).entries().len(), 2);
}

#[test]
fn later_job_measures_again_and_stores_the_medians() {
    let (_directory, path) = place();
    outcome(4, kept_in(&path));
    let mut first = cache(&path).entries().remove(0);
    first.figures = in_favour_of(Candidate::Chain);
    first.measured_unix_s -= 3600;
    cache(&path).store(first.clone()).unwrap();
    let (figures, _) = outcome(4, kept_in(&path));
    let second = cache(&path).entries().remove(0);
    assert_eq!((second.measurements(), Some(second.figures)), (2, figures));
    assert_eq!(second.rounds[0], first.figures);
    // Of two, the lower figures.
    assert_eq!(second.figures.chain, first.figures.chain);
    let binomial = second.rounds.iter().map(|it| it.binomial.level_ns).min();
    assert_eq!(Some(second.figures.binomial.level_ns), binomial);
    // And not again so soon.
    assert_eq!(outcome(4, kept_in(&path)).0, figures);
    assert_eq!(cache(&path).entries(), [second]);
}

#[test]
fn all_ranks_use_the_algorithm_favoured_by_the_figures_of_rank_0() {
    let (_directory, path) = place();
    outcome(4, kept_in(&path));
    let network = cache(&path).entries()[0].network.clone();
    for candidate in Candidate::ALL {
        let entry = Entry::new(network.clone(), in_favour_of(candidate), Effort::Thorough);
        cache(&path).store(entry).unwrap();
        let (figures, chosen) = outcome(4, kept_in(&path));
        assert_eq!((figures, chosen), (Some(in_favour_of(candidate)), [candidate.bcast(1); 2]));
        let sent = with_ranks(4, kept_in(&path), |comm| {
            let sent = casts(&comm);
            comm.finalize().unwrap();
            sent
        });
        assert_eq!(sent, [0, u64::from(candidate == Candidate::Multicast), 0, 0], "{candidate}");
    }
}

#[test]
fn damaged_file_is_remeasured_and_an_unwritable_one_is_no_error() {
    let (_directory, path) = place();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, "{\"format\": 1, \"networks\": [").unwrap();
    let (figures, _) = outcome(3, kept_in(&path));
    assert_eq!(cache(&path).entries()[0].figures, figures.unwrap());
    // A file where a directory should be.
    let (figures, _) = outcome(3, kept_in(&path.join("beneath/tune.json")));
    assert!(figures.is_some());
}

#[test]
fn figures_without_multicast_select_a_tree() {
    let (_directory, path) = place();
    let without = |config: &mut Config| {
        kept_in(&path)(config);
        (config.multicast, config.multisend) = (Multicast::Off, MultiSend::Off);
    };
    let (figures, chosen) = outcome(3, without);
    assert_eq!(figures.unwrap().multicast, None);
    assert!(chosen.iter().all(|bcast| matches!(bcast, BcastAlgorithm::Tree { .. })));
    assert!(!cache(&path).entries()[0].network.has_multicast);
}

#[test]
fn nothing_is_measured_when_figures_would_not_be_used() {
    let (_directory, path) = place();
    let kept = kept_in(&path);
    assert_eq!(outcome(2, &kept).0, None);
    let one_node = |config: &mut Config| {
        kept(config);
        config.shared_memory = true;
    };
    assert_eq!(outcome(4, one_node).0, None);
    let named = |config: &mut Config| {
        kept(config);
        config.bcast = Some("binomial".parse().unwrap());
    };
    assert_eq!(outcome(4, named).0, None);
    // Loopback is not a network.
    assert_eq!(outcome(3, |_| {}).0, None);
    assert_eq!(outcome(3, |config| config.tune = Tune::Off).0, None);
    assert!(!path.exists());
}

#[test]
fn on_demand_measurement_follows_the_plan_of_rank_0_and_stores_nothing() {
    let (_directory, path) = place();
    let plan = Plan::thorough(&[8, 1000, 300_000], Duration::from_millis(5));
    let other = Plan::thorough(&[16], Duration::ZERO);
    let figures = with_ranks(
        4,
        |config| config.tune = Tune::Off,
        |comm| {
            let mut seen = 0;
            let plan = if comm.rank() == 0 { &plan } else { &other };
            let tuned = comm.tune(plan, |_| seen += 1).unwrap();
            if let Some(tuned) = &tuned {
                assert_eq!((comm.rank(), seen, tuned.measured.len()), (0, 4, 12));
                assert!(tuned.measured.iter().all(|it| it.times >= 5 && it.point.time_ns > 0));
                assert_eq!(comm.figures(), Some(tuned.figures));
            }
            assert_eq!(tuned.is_some(), comm.rank() == 0);
            casts(&comm);
            let figures = comm.figures().unwrap();
            comm.finalize().unwrap();
            figures
        },
    );
    assert!(figures.iter().all(|it| *it == figures[0]));
    assert!(!path.exists());
}

/// Without multicast, with copies in user space.
fn multisending(path: &Path) -> impl Fn(&mut Config) + Sync {
    let kept = kept_in(path);
    move |config| {
        kept(config);
        (config.multicast, config.nic) = (Multicast::Off, NicChoice::User);
    }
}

#[test]
fn multisend_tree_is_derived_from_the_lambda_stored_by_rank_0() {
    let (_directory, path) = place();
    let brief_of = |comm: &Communicator| comm.multisend().unwrap().brief();
    let briefs = with_ranks(8, multisending(&path), |comm| {
        assert_eq!(comm.figures().unwrap().lambda_thousandths, None);
        let brief = brief_of(&comm);
        comm.finalize().unwrap();
        brief
    });
    assert!(briefs.iter().all(|brief| brief == "postal=6:loop"), "{briefs:?}");
    let network = cache(&path).entries()[0].network.clone();
    assert_eq!(network.multisend.as_deref(), Some("auto:loop"));
    // Hops of [MS-R17]; at seven and more all eight nodes are children of the root, as at six.
    for (thousandths, tree) in [(1000, "postal=1:loop"), (7000, "postal=6:loop")] {
        let lambda_thousandths = Some(thousandths);
        let figures = Figures { lambda_thousandths, ..in_favour_of(Candidate::Multicast) };
        let entry = Entry::new(network.clone(), figures, Effort::Thorough);
        cache(&path).store(entry).unwrap();
        let briefs = with_ranks(8, multisending(&path), |comm| {
            assert_eq!(comm.figures(), Some(figures));
            let brief = brief_of(&comm);
            for root in 0..comm.size() {
                let mut data = [if comm.rank() == root { root as u8 } else { 99 }; 5000];
                comm.bcast(root, &mut data).unwrap();
                assert_eq!(data, [root as u8; 5000]);
            }
            let part = comm.split(Some(comm.rank() % 2), 0).unwrap().unwrap();
            let mut data = [part.rank() as u8; 100];
            part.bcast(3, &mut data).unwrap();
            assert_eq!(data, [3; 100]);
            comm.finalize().unwrap();
            brief
        });
        assert!(briefs.iter().all(|brief| brief == tree), "{briefs:?}");
    }
}

#[test]
fn on_demand_hop_measurement_changes_the_tree_on_all_ranks() {
    let plan = Plan::thorough(&[8], Duration::from_millis(3));
    let adjust = |config: &mut Config| {
        multisending(Path::new("/unused"))(config);
        config.tune = Tune::Off;
    };
    let found = with_ranks(4, adjust, |comm| {
        let tuned = comm.tune(&plan, |_| {}).unwrap();
        if let Some(tuned) = &tuned {
            let payload = u64::from(tuned.network.payload_bytes);
            let sizes: Vec<u64> = tuned.hops.iter().map(|hop| hop.bytes).collect();
            assert_eq!(sizes, [8, payload, 16 << 10, 64 << 10]);
            assert!(tuned.hops.iter().all(|hop| hop.send_ns > 0 && hop.transmit_ns > 0));
            assert!(tuned.hops.iter().all(|hop| hop.tree(4).is_some()));
            let lambda = tuned.hops[1].lambda().thousandths();
            assert_eq!(tuned.figures.lambda_thousandths, Some(lambda));
        }
        let found = (comm.figures().unwrap(), comm.multisend().unwrap().tree);
        let mut data = [comm.rank() as u8; 3000];
        comm.bcast_with(2, &mut data, Candidate::Multicast.bcast(1)).unwrap();
        assert_eq!(data, [2; 3000]);
        comm.finalize().unwrap();
        found
    });
    assert!(found.iter().all(|it| *it == found[0]), "{found:?}");
    // If multicast works, or there are only two nodes, no hop is measured.
    with_ranks(
        3,
        |config| config.tune = Tune::Off,
        |comm| {
            let tuned = comm.tune(&plan, |_| {}).unwrap();
            assert!(tuned.is_none_or(|tuned| tuned.hops.is_empty()));
            assert_eq!(comm.figures().unwrap().lambda_thousandths, None);
            comm.finalize().unwrap();
        },
    );
}

#[test]
fn sub_communicators_choose_by_the_figures_of_the_job() {
    let (_directory, path) = place();
    outcome(5, kept_in(&path));
    let network = cache(&path).entries()[0].network.clone();
    let entry = Entry::new(network, in_favour_of(Candidate::Chain), Effort::Thorough);
    cache(&path).store(entry).unwrap();
    with_ranks(5, kept_in(&path), |comm| {
        let part = comm.split(Some(comm.rank() % 2), 0).unwrap().unwrap();
        assert_eq!(part.chosen_bcast(8), Candidate::Chain.bcast(1));
        assert_eq!(casts(&part), 0);
        comm.finalize().unwrap();
    });
}

/// An entry that jobs would use if they were on its network; it is stored in the file.
fn kept_entry(path: &Path) -> Entry {
    outcome(3, kept_in(path));
    cache(path).entries().remove(0)
}

#[test]
fn figures_file_is_private_to_its_user() {
    let (_directory, path) = place();
    kept_entry(&path);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn too_long_cache_file_counts_as_empty() {
    let (_directory, path) = place();
    let entry = kept_entry(&path);
    let text = std::fs::read(&path).unwrap();
    let mut long = vec![b' '; 1 << 20];
    long.extend(&text);
    std::fs::write(&path, long).unwrap();
    assert_eq!(cache(&path).entries(), []);
    cache(&path).store(entry).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), text);
}

#[test]
fn figures_with_one_damaged_measurement_are_not_used() {
    let (_directory, path) = place();
    let entry = kept_entry(&path);
    let nonsense = Cost { level_ns: u64::MAX, ..Cost::default() };
    let rounds = vec![entry.figures, Figures { chain: nonsense, ..entry.figures }];
    let network = entry.network.clone();
    assert_eq!(cache(&path).find(&network), Some(entry.clone()));
    cache(&path).store(Entry { rounds, ..entry }).unwrap();
    assert_eq!(cache(&path).find(&network), None);
    assert_eq!(cache(&path).entries()[0].unused(), Some("its figures are damaged"));
}
