//! Ranks: this test program itself, started again as an ordinary user.

use crate::NOBODY;
use crate::hosts::Hosts;
use crate::outside::text;
use omnes::{Communicator, Config, Error, NicState, WhileWaiting};
use std::ffi::OsStr;
use std::io::Read;
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
pub(crate) fn wait_for_line() {
    println!("waiting");
    let _ = std::io::stdin().read(&mut [0]);
}

/// Enters a barrier that does not complete, without waiting for it or asking for its result.
pub(crate) fn enter_a_barrier_for_nobody(world: &Communicator, interrupts: &AtomicBool) {
    interrupts.store(true, Ordering::Relaxed);
    let error = world.barrier().unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
    interrupts.store(false, Ordering::Relaxed);
}

/// Polls long enough to notice that a slot is gone.
pub(crate) fn move_on(world: &Communicator) {
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        world.iprobe(1, 7).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A barrier in one of the ways of waiting for it.
fn barrier_in(way: &OsStr, world: &Communicator) -> Result<(), Error> {
    match way.to_str() {
        Some("started") => world.ibarrier_owned()?.wait().map(drop),
        Some("tested") => {
            let mut request = world.ibarrier_owned()?;
            while request.test()?.is_none() {
                std::thread::yield_now();
            }
            Ok(())
        }
        Some("limited") => world.barrier_timeout(Duration::from_secs(60)),
        _ => world.barrier(),
    }
}

/// Creates and frees communicators faster than slots are opened; prints how many threads are left.
fn make_many_communicators(world: &Communicator) {
    for _ in 0..200 {
        let other = world.dup().unwrap();
        (0..20).for_each(|_| other.barrier().unwrap());
    }
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let until = Instant::now() + Duration::from_secs(1);
    while threads() > 20 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("threads: {}", threads());
}

/// Prints how barriers are run after this user's slots are all taken, and after one was freed.
fn free_slots(world: &Communicator) {
    let next = || {
        let other = world.dup().unwrap();
        (0..100).for_each(|_| other.barrier().unwrap());
        while other.nic() == NicState::Opening {
            other.barrier().unwrap();
        }
        other
    };
    let second = next();
    println!("second: {}", second.nic());
    println!("third: {}", next().nic());
    drop(second);
    // The agent learns of it a little later.
    let mut later = std::iter::repeat_with(|| next().nic()).take(100);
    println!("freed: {}", later.find(|nic| *nic == NicState::Kernel).unwrap());
}

/// Not a test of its own: the body of a rank.
#[test]
fn plays_a_rank() {
    if std::env::var_os("TEST_RANK").is_none() {
        return;
    }
    let interrupts = Arc::new(AtomicBool::new(false));
    let asked = interrupts.clone();
    let mut config = Config::from_env().unwrap();
    config.while_waiting = Some(WhileWaiting::every(Duration::from_millis(50), move || {
        if asked.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }));
    let world = Communicator::from_config(config).unwrap();
    (0..200).for_each(|_| world.barrier().unwrap());
    if std::env::var_os("TEST_OPENS_LATE").is_some() {
        println!("at first: {}", world.nic());
        if world.rank() == 0 {
            wait_for_line();
        }
    }
    while world.nic() == NicState::Opening {
        world.barrier().unwrap();
    }
    println!("nic: {}", world.nic());
    if std::env::var_os("TEST_MAKES_MANY").is_some() {
        make_many_communicators(&world);
    }
    if std::env::var_os("TEST_FREES_SLOTS").is_some() {
        free_slots(&world);
    }
    // Until the test has checked.
    if std::env::var_os("TEST_WAITS").is_some() {
        wait_for_line();
    }
    if let Some(loss) = std::env::var_os("TEST_LOSES_NIC") {
        let is_before = loss == "before";
        if is_before && world.rank() == 0 {
            enter_a_barrier_for_nobody(&world, &interrupts);
        }
        if is_before || world.rank() == 0 {
            wait_for_line();
        }
        if is_before && world.rank() == 0 {
            move_on(&world);
        }
        // Rank 0's packets for the barrier that it has entered may suffice for that of rank 1.
        let error = (0..2).find_map(|_| barrier_in(&loss, &world).err()).unwrap();
        println!("{error}");
    }
    world.finalize().unwrap();
    std::process::exit(0);
}

pub(crate) fn rank(hosts: &Hosts, rank: usize, size: usize, port: u16) -> Command {
    hosts.inside(rank, || {
        let mut command = Command::new("/proc/self/exe");
        command.args(["ranks::plays_a_rank", "--exact", "--nocapture", "--test-threads=1"]);
        command.env("TEST_RANK", "1").env("OMNES_STATS", "off");
        command.env("OMNES_RANK", rank.to_string()).env("OMNES_SIZE", size.to_string());
        command.env("OMNES_RENDEZVOUS", format!("10.77.0.1:{port}")).env_remove("OMNES_NIC");
        command.uid(NOBODY).gid(NOBODY).stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    })
}

/// Runs a job of an ordinary user, a rank on each host; returns how its barriers were run.
pub(crate) fn job(hosts: &Hosts, port: u16) -> Vec<String> {
    job_of(hosts, port, NOBODY)
}

pub(crate) fn job_of(hosts: &Hosts, port: u16, user: u32) -> Vec<String> {
    let size = hosts.networks.len();
    let start = |at: usize| {
        let mut rank = rank(hosts, at, size, port);
        hosts.inside(at, || rank.uid(user).gid(user).spawn().unwrap())
    };
    let ranks: Vec<Child> = (0..size).map(start).collect();
    let outputs = ranks.into_iter().map(|rank| rank.wait_with_output().unwrap());
    let nic = |output: Output| {
        assert!(output.status.success(), "{}", text(&output.stderr));
        let said = text(&output.stdout);
        let nic = said.lines().find_map(|line| line.split_once("nic: ")).unwrap();
        nic.1.to_owned()
    };
    outputs.map(nic).collect()
}
