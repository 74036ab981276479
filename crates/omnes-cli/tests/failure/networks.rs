//! Hosts that are cut off, lose packets or do not receive long ones.

use crate::as_root::is_root;
use crate::play::Play;
use crate::test_lab::TestLab;
use crate::{BY_DEFAULT, OMNES, PATIENCE, RANKS, SOON};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn disconnected_rank_is_named_and_ends_as_well() {
    if !is_root() {
        return;
    }
    for (role, victim) in [("recv", 2), ("barrier", 0)] {
        let lab = TestLab::up("");
        let play = Play::new(role, victim, "wait");
        let mut ranks = lab.start(&play);
        lab.link(victim, "down");
        play.assert_named(&mut ranks, Instant::now());
        // From the view of the host that is cut off, the others have failed.
        let (status, errors) = ranks[victim as usize].finish(Instant::now() + SOON);
        assert_eq!(status, Some(3), "{errors}");
        assert!(errors.contains(" has failed"), "{errors}");
    }
}

/// While the link is down, packets wait for the other host's Ethernet address, where no NIC can see
/// them.
#[test]
fn barriers_survive_link_outages_shorter_than_the_timeout() {
    if !is_root() {
        return;
    }
    let lab = TestLab::up("");
    let play = Play { peer_timeout: None, ..Play::new("steady", 0, "wait") };
    for host in 0..RANKS {
        // As outside of labs.
        lab.run_on(host, &["ip", "neigh", "flush", "dev", "eth0", "nud", "permanent"]);
    }
    let mut ranks = lab.start(&play);
    ranks.iter_mut().for_each(|rank| rank.wait_until("steady"));
    lab.on_switch("ip link set p1 down; sleep 2.2; ip link set p1 up");
    let deadline = Instant::now() + PATIENCE;
    let ended: Vec<_> = ranks.iter_mut().map(|rank| rank.finish(deadline)).collect();
    assert!(ended.iter().all(|ended| *ended == (Some(0), String::new())), "{ended:?}");
}

#[test]
fn killed_rank_is_named_despite_packet_loss() {
    if !is_root() {
        return;
    }
    for seed in 1..=2 {
        let lab = TestLab::up(&format!("--loss 10% --fault-seed {seed}"));
        // Not less than the default: questions and notices are lost, too.
        let play = Play { peer_timeout: None, ..Play::new("barrier", 2, "compute") };
        let mut ranks = lab.start(&play);
        ranks[2].signal(libc::SIGKILL);
        play.assert_named(&mut ranks, Instant::now());
    }
}

/// Bytes that process `id` has written so far, as the kernel counts them.
fn written_bytes(id: &str) -> u64 {
    let counts = std::fs::read_to_string(format!("/proc/{id}/io")).unwrap_or_default();
    let line = counts.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[test]
fn rank_killed_during_a_copy_between_hosts_is_named_without_leftovers() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let data: Vec<u8> = (0..96u32 << 20).map(|at| ((at * 31) ^ (at >> 12)) as u8).collect();
    std::fs::write(place.path().join("source"), data).unwrap();
    for victim in ["0", "2"] {
        // Each rank prints its process id, then becomes the copy.
        let script = format!("echo $OMNES_RANK $$; exec {OMNES} cp source copy-{{rank}}");
        let mut command = Command::new(OMNES);
        command.args(["run", "-n", "4", "--lab", "--rate", "1gbit", "--no-prefix", "--"]);
        command.args(["sh", "-c", &script]).current_dir(place.path()).stdin(Stdio::null());
        let mut job = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(job.stdout.take().unwrap()).lines().map(Result::unwrap);
        let told: Vec<String> = lines.take(4).collect();
        let process = |rank: &str| {
            let mut pairs = told.iter().map(|line| line.split_once(' ').unwrap());
            pairs.find(|(other, _)| *other == rank).unwrap().1
        };
        let deadline = Instant::now() + PATIENCE;
        while written_bytes(process("1")) < 16 << 20 {
            assert!(Instant::now() < deadline, "nothing is copied");
            std::thread::sleep(Duration::from_millis(1));
        }
        let killed = Instant::now();
        // SAFETY: plain system call; the launcher has not reaped its rank, which is running.
        assert_eq!(unsafe { libc::kill(process(victim).parse().unwrap(), libc::SIGKILL) }, 0);
        let mut errors = String::new();
        job.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert_eq!(job.wait().unwrap().code(), Some(128 + libc::SIGKILL), "{errors}");
        assert!(killed.elapsed() < BY_DEFAULT, "{errors}");
        for rank in ["0", "1", "2", "3"].into_iter().filter(|rank| *rank != victim) {
            let line = format!("omnes: rank {rank}: rank {victim} has failed: ");
            assert!(errors.lines().any(|other| other.starts_with(&line)), "{errors}");
        }
        let left = std::fs::read_dir(place.path()).unwrap().flatten();
        let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["source"], "{errors}");
    }
}

#[test]
fn rank_unreachable_by_long_packets_is_named_with_a_hint() {
    if !is_root() {
        return;
    }
    for role in ["long", "cast"] {
        // Links with faults split trains, so that each packet reaches the switch alone.
        let lab = TestLab::up("--mtu 9000 --reorder 0.1%");
        let play = Play { peer_timeout: None, ..Play::new(role, 2, "for ever") };
        let mut ranks = lab.start(&play);
        lab.narrow(play.victim);
        let deadline = Instant::now() + PATIENCE;
        for rank in &mut ranks {
            let (status, errors) = rank.finish(deadline);
            let told = "ended: packets of 8976 bytes do not reach rank 2, though shorter ones do: ";
            assert!(errors.lines().any(|line| line.starts_with(told)), "{role}: {errors}");
            assert!(errors.contains("OMNES_MTU=1500"), "{role}: {errors}");
            assert_eq!(status, Some(3), "{role}");
        }
    }
}

#[test]
fn job_falls_back_to_shorter_packets_if_a_switch_drops_long_ones() {
    if !is_root() {
        return;
    }
    let lab = TestLab::up("--mtu 9000 --reorder 0.1%");
    lab.narrow(2);
    let mut ranks = lab.start(&Play { peer_timeout: None, ..Play::new("long", 2, "a few") });
    let deadline = Instant::now() + PATIENCE;
    let ends: Vec<_> = ranks.iter_mut().map(|rank| rank.finish(deadline)).collect();
    assert!(ends.iter().all(|(status, _)| *status == Some(0)), "{ends:?}");
    let told = "omnes: rank 0: packets of 8976 bytes do not get from 10.77.0.2 to 10.77.0.3, from \
                10.77.0.3 to 10.77.0.4, though shorter ones do: this job uses 1500; ";
    assert!(ends[0].1.starts_with(told), "{ends:?}");
    assert!(ends[1..].iter().all(|(_, errors)| errors.is_empty()), "{ends:?}");
}

#[test]
fn job_across_sites_reduces_its_packet_size_to_the_path_mtu() {
    if !is_root() {
        return;
    }
    for is_silent in [false, true] {
        let lab = TestLab::up("");
        lab.part(is_silent);
        let mut ranks = lab.start(&Play { peer_timeout: None, ..Play::new("long", 2, "a few") });
        let deadline = Instant::now() + PATIENCE;
        let ends: Vec<_> = ranks.iter_mut().map(|rank| rank.finish(deadline)).collect();
        assert!(ends.iter().all(|(status, _)| *status == Some(0)), "{is_silent}: {ends:?}");
        let told = "omnes: rank 0: packets of 1500 bytes do not get from 10.78.0.4 to 10.77.0.1, \
                    from 10.77.0.2 to 10.78.0.3, though shorter ones do: this job uses 1400; ";
        assert!(ends[0].1.starts_with(told), "{is_silent}: {ends:?}");
        assert!(ends[1..].iter().all(|(_, errors)| errors.is_empty()), "{ends:?}");
    }
}

#[test]
fn mutually_unreachable_hosts_are_named_at_startup() {
    if !is_root() {
        return;
    }
    let lab = TestLab::up("");
    lab.part(false);
    lab.on_switch("ip rule add iif br0 ipproto udp blackhole");
    let mut ranks = lab.launch(&Play { peer_timeout: None, ..Play::new("long", 2, "a few") });
    let deadline = Instant::now() + PATIENCE;
    let told = "UDP packets do not get from 10.77.0.2 to 10.78.0.3, though TCP gets from there ";
    for (number, rank) in ranks.iter_mut().enumerate() {
        let (status, errors) = rank.finish(deadline);
        let begin = if number == 0 { "ended: " } else { "ended: rank 0 refused: " };
        assert!(errors.contains(&format!("{begin}{told}")), "{number}: {errors}");
        assert!(!errors.contains("NAT") && status == Some(3), "{number}: {errors}");
    }
}
