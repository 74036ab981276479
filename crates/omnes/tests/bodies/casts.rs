//! Bodies about broadcasts: every scheme, one after the other and several at a time, from one root
//! and from all, to ranks that are late. If multicast does not work, its schemes run as trees.

use super::{BYTES_MAX, assert_same, pattern};
use omnes::{BcastAlgorithm, Communicator, ReduceOp};
use std::time::{Duration, Instant};

/// Over channels, then by multicast: every design of the paper, and combinations [BC-R19, BC-R25].
const SCHEMES: [&str; 24] = [
    "original",
    "binomial",
    "chain",
    "chain:store",
    "flat",
    "knomial=4",
    "kary=2",
    "postal=2.5",
    "postal=1",
    "postal=6/2:store",
    "basic",
    "window",
    "tree-ack=2",
    "tree-ack=4",
    "co-root=2",
    "co-root=3",
    "ack-every=10",
    "skewed=10",
    "nack",
    "combined",
    "co-root=2+skewed=4",
    "tree-ack=2+basic",
    "co-root=3+combined",
    "nack+ack-every=3",
];
const SIZES: [usize; 8] = [0, 1, 1000, 1416, 65_536, 65_537, 300_000, super::BYTES_MAX];

fn schemes() -> impl Iterator<Item = (u32, BcastAlgorithm)> {
    (0..).zip(SCHEMES.map(|text| text.parse().unwrap()))
}

/// The data that `root` sends in round `round`.
fn message(bytes: usize, root: u32, round: u32) -> Vec<u8> {
    pattern(bytes, round * 64 + root)
}

/// The buffer before a broadcast: the root's data, filler on the other ranks.
fn buffer(comm: &Communicator, root: u32, data: &[u8]) -> Vec<u8> {
    if comm.rank() == root { data.to_vec() } else { vec![0xee; data.len()] }
}

/// Every scheme, every size, with alternating roots.
pub fn every_scheme(comm: &Communicator, bytes_max: usize) {
    for (number, scheme) in schemes() {
        for (round, bytes) in (number..).zip(SIZES.map(|bytes| bytes.min(bytes_max))) {
            let root = round % comm.size();
            let data = message(bytes, root, round);
            let mut got = buffer(comm, root, &data);
            comm.bcast_with(root, &mut got, scheme).unwrap();
            assert_same(&got, &data, format_args!("{scheme}, {bytes} bytes from {root}"));
        }
    }
}

/// 200 broadcasts from one root without a pause, with lengths that are hard on windows.
pub fn back_to_back(comm: &Communicator, bytes_max: usize) {
    let root = comm.size() - 1;
    let quick = ["basic", "window", "skewed=10", "co-root=2", "tree-ack", "nack", "combined"];
    for scheme in ["original"].into_iter().chain(quick) {
        let scheme: BcastAlgorithm = scheme.parse().unwrap();
        for round in 0..200 {
            let bytes = [8, 0, 1416, 1417, 20_000][round as usize % 5].min(bytes_max);
            let data = message(bytes, root, round);
            let mut got = buffer(comm, root, &data);
            comm.bcast_with(root, &mut got, scheme).unwrap();
            assert_same(&got, &data, format_args!("{scheme}, broadcast {round}"));
        }
    }
}

/// Every rank is a root at the same time, twice, and waits in a different order from the others.
pub fn all_roots(comm: &Communicator, bytes_max: usize) {
    let (me, size) = (comm.rank(), comm.size());
    for (number, scheme) in schemes() {
        let bytes = [100, 70_000, 0, 300_000][number as usize % 4].min(bytes_max);
        let data: Vec<_> = (0..2 * size).map(|at| message(bytes, at % size, number)).collect();
        let mut got: Vec<_> =
            (0..).zip(&data).map(|(at, data)| buffer(comm, at % size, data)).collect();
        comm.scope(|scope| {
            let started = (0..2 * size).zip(&mut got).map(|(at, buffer)| {
                (at % size, scope.ibcast_with(at % size, buffer, scheme).unwrap())
            });
            let mut requests: Vec<_> = started.collect();
            let turns = requests.len() as u32;
            requests.rotate_left((me % turns) as usize);
            for (root, request) in requests {
                let status = request.wait().unwrap();
                assert_eq!((status.source, status.bytes), (root, bytes), "{scheme}");
            }
        });
        for (got, data) in got.iter().zip(&data) {
            assert_same(got, data, format_args!("{scheme} from all roots"));
        }
    }
}

/// Several broadcasts in progress from each root, of all lengths, tested instead of waited for.
pub fn outstanding(comm: &Communicator, bytes_max: usize) {
    const COUNT: u32 = 12;
    for (number, scheme) in schemes() {
        let length = |at: u32| [8, 200_000, 1417, 65_536][at as usize % 4].min(bytes_max);
        let root = |at: u32| (at + number) / 3 % comm.size();
        let data: Vec<_> = (0..COUNT).map(|at| message(length(at), root(at), at)).collect();
        let mut got: Vec<_> =
            (0..).zip(&data).map(|(at, data)| buffer(comm, root(at), data)).collect();
        comm.scope(|scope| {
            let mut requests = Vec::new();
            for (at, buffer) in (0..).zip(&mut got) {
                requests.push(scope.ibcast_with(root(at), buffer, scheme).unwrap());
            }
            let mut open = requests.len();
            while open > 0 {
                let ended = requests.iter_mut().map(|request| request.test().unwrap().is_some());
                open = ended.filter(|has_ended| !has_ended).count();
                std::thread::yield_now();
            }
        });
        for (got, data) in got.iter().zip(&data) {
            assert_same(got, data, format_args!("{scheme}, several under way"));
        }
    }
}

/// One rank computes before it takes part: it gets all data sent meanwhile, and delays no other
/// rank any longer.
pub fn late_rank(comm: &Communicator, bytes_max: usize) {
    const LATE: Duration = Duration::from_millis(50);
    for scheme in ["combined", "window", "co-root=2", "tree-ack", "skewed", "nack", "binomial"] {
        let scheme: BcastAlgorithm = scheme.parse().unwrap();
        let late = comm.size() - 1;
        comm.barrier().unwrap();
        if comm.rank() == late {
            std::thread::sleep(LATE);
        }
        for round in 0..10 {
            let bytes = [8, 5000, 300_000][round as usize % 3].min(bytes_max);
            let data = message(bytes, 0, round);
            let mut got = buffer(comm, 0, &data);
            comm.bcast_with(0, &mut got, scheme).unwrap();
            assert_same(&got, &data, format_args!("{scheme}, broadcast {round} to a late rank"));
        }
    }
}

/// A stream through buffers that are reused in turn, as in `omnes cp`.
pub fn owned(comm: &Communicator, bytes_max: usize) {
    let bytes = 400_000.min(bytes_max);
    for scheme in ["combined", "chain"].map(|text| text.parse::<BcastAlgorithm>().unwrap()) {
        let mut under_way = std::collections::VecDeque::new();
        for round in 0..12u32 {
            if under_way.len() == 3 {
                land(comm, under_way.pop_front().unwrap(), bytes);
            }
            let data = buffer(comm, 0, &message(bytes, 0, round));
            under_way.push_back((round, comm.bcast_owned_with(0, data, scheme).unwrap()));
        }
        for (round, started) in under_way {
            // A broadcast that is not waited for may be abandoned, if it is the last.
            land(comm, (round, started), bytes);
        }
    }
}

fn land(comm: &Communicator, (round, started): (u32, omnes::OwnedBcast), bytes: usize) {
    let got = started.wait().unwrap();
    let what = format_args!("owned {round} at rank {}", comm.rank());
    assert_same(&got, &message(bytes, 0, round), what);
}

/// A rank that has started a broadcast and waits for something else still forwards it.
pub fn passed_on(comm: &Communicator, bytes_max: usize) {
    let (me, last) = (comm.rank(), comm.size() - 1);
    let bytes = 300_000.min(bytes_max);
    for scheme in ["chain", "chain:store", "binomial", "combined"] {
        let scheme: BcastAlgorithm = scheme.parse().unwrap();
        let data = message(bytes, 0, 1);
        let mut got = buffer(comm, 0, &data);
        comm.scope(|scope| {
            let request = scope.ibcast_with(0, &mut got, scheme).unwrap();
            if me == last {
                request.wait().unwrap();
                (0..last).for_each(|rank| comm.send(rank, 12, &[]).unwrap());
            } else {
                comm.recv(last, 12, &mut []).unwrap();
                request.wait().unwrap();
            }
        });
        assert_same(&got, &data, format_args!("{scheme}, passed on"));
    }
}

/// Parts of a communicator broadcast at the same time, each with its own schemes.
pub fn parts(comm: &Communicator, bytes_max: usize) {
    let bytes = 30_000.min(bytes_max);
    let part = comm.split(Some(comm.rank() % 2), i64::from(comm.rank())).unwrap().unwrap();
    let copy = comm.dup().unwrap();
    for (round, scheme) in schemes() {
        for comm in [&part, &copy, comm] {
            let root = round % comm.size();
            // The parts send different data at the same time.
            let data = message(bytes, root + comm.size(), round);
            let mut got = buffer(comm, root, &data);
            comm.bcast_with(root, &mut got, scheme).unwrap();
            assert_same(&got, &data, format_args!("{scheme} in a part of {}", comm.size()));
        }
    }
}

/// A part multi-sends first in user space, and then by a slot of the kernel NIC if the job has one,
/// without losing anything in between.
pub fn late_slots(comm: &Communicator, bytes_max: usize) {
    let by_kernel = comm.multisend().is_some_and(|usage| usage.is_in_kernel);
    for (part, lengths) in [[8, 1416], [70_000, 300_000]].into_iter().enumerate() {
        let part = (part, comm.dup().unwrap());
        let clones = || comm.stats().nic_clones;
        let before = clones();
        // With more than two nodes, each root's NIC makes one copy more than its host.
        let has_slot = || !by_kernel || comm.size() < 3 || clones() > before;
        let start = Instant::now();
        for round in 0.. {
            let (turn, root) = (round / comm.size(), round % comm.size());
            let bytes = lengths[turn as usize % 2];
            let data = message(bytes.min(bytes_max), root, round);
            let mut got = buffer(comm, root, &data);
            part.1.bcast_with(root, &mut got, "combined".parse().unwrap()).unwrap();
            assert_same(&got, &data, format_args!("part {}, broadcast {round}", part.0));
            if round == 0 {
                assert_eq!(clones(), before, "the first broadcast of a part has no slot");
            }
            // Slots are opened meanwhile, which may take any time.
            let mut have_slots = [u32::from(has_slot())];
            comm.allreduce(&mut have_slots, ReduceOp::Min).unwrap();
            if round >= 60 && have_slots == [1] {
                break;
            }
            let limit = Duration::from_secs(60);
            assert!(start.elapsed() < limit, "the slot of part {} is not used", part.0);
        }
    }
}

/// A slot that opens during a long message takes over immediately: as long as a rank makes copies
/// that its NIC makes, too, each packet arrives as often as there are children.
pub fn slot_during_message(comm: &Communicator, bytes_max: usize) {
    let by_kernel = comm.multisend().is_some_and(|usage| usage.is_in_kernel);
    if !by_kernel || bytes_max < BYTES_MAX {
        return;
    }
    let part = comm.dup().unwrap();
    let mut came = [0_u64; 2];
    for root in 0..comm.size().min(3) {
        let data = message(32 << 20, root, 0);
        let mut got = buffer(comm, root, &data);
        let before = comm.stats();
        part.bcast_with(root, &mut got, "combined".parse().unwrap()).unwrap();
        assert_same(&got, &data, format_args!("from {root}"));
        let after = comm.stats();
        came[0] += after.bcast_duplicates - before.bcast_duplicates;
        came[1] += after.packets_received - before.packets_received;
    }
    comm.allreduce(&mut came, ReduceOp::Sum).unwrap();
    let [duplicates, all] = came;
    assert!(duplicates < all / 8, "{duplicates} of {all} packets came before");
}
