//! Many more ranks than cores: everything still completes, with nearly the minimum number of
//! packets.
//!
//! Only counts are checked, not times. The ranks are processes of this test program itself, started
//! by the launcher; rank 0 prints the counts of all.
#![allow(clippy::unwrap_used)]

use omnes::{BarrierAlgorithm, BcastAlgorithm, Communicator, Error};
use std::process::{Command, Stdio};

const OMNES: &str = env!("CARGO_BIN_EXE_omnes");
const RANKS: u64 = 16;
const ROUNDS: u64 = 200;

/// Operation that is repeated [`ROUNDS`] times.
type Round = fn(&Communicator) -> Result<(), Error>;

const ROUND_NAMES: [&str; 6] =
    ["dissemination", "pairwise", "gather-broadcast", "counter", "binomial", "usual"];

fn round(name: &str) -> Round {
    match name {
        "dissemination" => |world| world.barrier_with(BarrierAlgorithm::Dissemination),
        "pairwise" => |world| world.barrier_with(BarrierAlgorithm::PairwiseExchange),
        "gather-broadcast" => |world| world.barrier_with(BarrierAlgorithm::GatherBroadcast),
        "counter" => |world| world.barrier_with(BarrierAlgorithm::Counter),
        "binomial" => |world| {
            let mut data = if world.rank() == 0 { [7; 8] } else { [0; 8] };
            let binomial: BcastAlgorithm = "binomial".parse().expect("a known name");
            world.bcast_with(0, &mut data, binomial)?;
            assert_eq!(data, [7; 8]);
            Ok(())
        },
        _ => |world| {
            world.barrier()?;
            world.bcast(0, &mut [0; 8])
        },
    }
}

/// Not a test of its own: the body of a rank.
#[test]
fn plays_a_rank() {
    if std::env::var("TEST_RANK").is_err() {
        return;
    }
    if let Err(error) = Communicator::from_env().and_then(count_packets) {
        eprintln!("ended: {error}");
        std::process::exit(3);
    }
    std::process::exit(0);
}

/// Prints, at rank 0, the packets sent by all ranks, and how many of those were retransmitted.
fn count_packets(world: Communicator) -> Result<(), Error> {
    for name in ROUND_NAMES {
        world.barrier()?;
        let before = world.stats();
        (0..ROUNDS).try_for_each(|_| round(name)(&world))?;
        // The last broadcast's receivers have their data, but the root may not know it yet.
        world.barrier()?;
        let after = world.stats();
        let counts = [
            after.packets_sent - before.packets_sent,
            after.retransmits - before.retransmits,
            after.packets_bad_tag + after.packets_malformed + after.send_errors,
        ];
        let bytes: Vec<u8> = counts.iter().flat_map(|count| count.to_be_bytes()).collect();
        if world.rank() > 0 {
            world.send(0, 1, &bytes)?;
            continue;
        }
        let mut sums = counts;
        for rank in 1..world.size() {
            let mut bytes = [0; 24];
            world.recv(rank, 1, &mut bytes)?;
            for (sum, count) in sums.iter_mut().zip(bytes.chunks_exact(8)) {
                *sum += u64::from_be_bytes(count.try_into().expect("eight bytes"));
            }
        }
        println!("{name} packets={} again={} refused={}", sums[0], sums[1], sums[2]);
    }
    world.finalize()
}

/// Counts of one line of rank 0.
fn counts(output: &str, name: &str) -> [u64; 3] {
    let line = output.lines().find(|line| line.starts_with(&format!("[ 0] {name} "))).unwrap();
    let values = line.split_whitespace().filter_map(|word| word.split_once('='));
    let values: Vec<u64> = values.map(|(_, value)| value.parse().unwrap()).collect();
    values.try_into().unwrap()
}

#[test]
fn sixteen_local_ranks_send_few_packets_beyond_the_closed_form() {
    let mut command = Command::new(OMNES);
    command.args(["run", "-n", &RANKS.to_string(), "--timeout", "60s", "--env", "TEST_RANK=yes"]);
    // Packets on the network are counted.
    command.args(["--env", "OMNES_SHM=off", "--"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "plays_a_rank", "--nocapture"]).stdin(Stdio::null());
    let done = command.output().unwrap();
    let output = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success(), "{output}{}", String::from_utf8_lossy(&done.stderr));
    // Messages per round: a step of log2(16) per rank, or one down and one up each edge of a tree.
    let steps = u64::from(RANKS.ilog2());
    let (flat, edges) = (RANKS * steps, RANKS - 1);
    for (name, least, most) in [
        ("dissemination", flat, flat),
        ("pairwise", flat, flat),
        ("gather-broadcast", 2 * edges, 2 * edges),
        // The release is one packet where multicast works.
        ("counter", edges + 1, 2 * edges),
        ("binomial", edges, edges),
        // A barrier of either kind, and a broadcast: by multicast one packet and occasionally an
        // acknowledgement.
        ("usual", edges + 2, flat + edges),
    ] {
        let [packets, again, refused] = counts(&output, name);
        let (least, most) = (least * ROUNDS, most * ROUNDS);
        println!("{name}: {packets} packets for {least} to {most} messages, {again} again");
        assert!(packets >= least, "{name}: {packets} of at least {least}");
        // At most a reply to each message, and to each that was retransmitted for lack of one
        // because its receiver had no core; a tenth is for signs of life and the barriers around
        // it.
        assert!(packets <= 2 * (most + again) + most / 10, "{name}: {packets} for {most}");
        assert!(again <= most / 2, "{name}: {again} of {most} sent again");
        assert_eq!(refused, 0);
    }
}
