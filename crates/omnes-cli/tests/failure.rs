//! Ranks that die, fall silent, are cut off or just leave: who is told what, and how soon.
//!
//! Ranks are processes: this test program itself, started again to play a role ([`plays_a_role`]).
//! Nothing sleeps for luck: a rank says `ready`, the test does the damage, and the ends of the
//! others are waited for within the limit that the library promises. Without root the labs print
//! `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a failure.
#![allow(clippy::unwrap_used)]

mod as_root;

use as_root::is_root;
use omnes::{Communicator, Error, Source, Tag};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const OMNES: &str = env!("CARGO_BIN_EXE_omnes");
const RANKS: u32 = 4;
/// What the library promises by default, and what these tests mostly ask for.
const BY_DEFAULT: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_secs(2);
/// How long jobs are suspended that fail after [`SOON`].
const SUSPENSION: Duration = Duration::from_secs(3);
/// A limit for what happens within milliseconds; reached only by a failure.
const PATIENCE: Duration = Duration::from_secs(20);

// ---- the roles ----------------------------------------------------------------------------

/// Not a test of its own: what a rank does. The role is what all but the victim wait in; the fate
/// is what the victim does meanwhile.
#[test]
fn plays_a_role() {
    let Ok(role) = std::env::var("TEST_ROLE") else { return };
    let victim: u32 = std::env::var("TEST_VICTIM").unwrap().parse().unwrap();
    let fate = std::env::var("TEST_FATE").unwrap();
    let played = Communicator::from_env().and_then(|world| {
        let pair = world.split(Some(world.rank() / 2), 0)?.unwrap();
        world.barrier()?;
        println!("ready");
        match role.as_str() {
            "farewell" => return say_farewell(world, victim),
            "long" => return send_long(&world, victim, fate == "for ever"),
            "cast" => return cast_long(&world),
            "rounds" => return work(&world),
            _ => {}
        }
        match (world.rank() == victim, fate.as_str()) {
            (true, "exit") => {
                // A failed rank's last messages may be lost: all must be out of the barrier.
                (1..world.size())
                    .try_for_each(|_| world.recv(Source::Any, 9, &mut []).map(drop))?;
                std::process::exit(0)
            }
            (false, "exit") => {
                world.send(victim, 9, &[])?;
                wait_in(&role, &world, victim)?;
            }
            (true, "compute") => std::thread::sleep(PATIENCE),
            (false, _) if role == "chain" => pass_on(&world, &pair, victim)?,
            (false, "stay") => {} // Its communicators go out of scope.
            (true, "wait") => wait_in("recv", &world, victim)?,
            _ => wait_in(&role, &world, victim)?,
        }
        Ok(())
    });
    match played {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            eprintln!("ended: {error}");
            std::process::exit(3);
        }
    }
}

/// Waits for what never comes, as the victim does not take part, or nobody sends.
fn wait_in(role: &str, world: &Communicator, victim: u32) -> Result<(), Error> {
    let (me, size) = (world.rank(), world.size());
    let mut byte = [0];
    match role {
        "neighbour" => {
            // Nobody sends; whoever can waits for one that is well.
            let next = (1..size).map(|step| (me + step) % size).find(|rank| *rank != victim);
            world.recv(next.unwrap(), 1, &mut byte).map(drop)
        }
        "recv" if me == victim => world.recv((me + 1) % size, 1, &mut byte).map(drop),
        "recv" => world.recv(victim, 1, &mut byte).map(drop),
        "any" => world.recv(Source::Any, Tag::Any, &mut byte).map(drop),
        "send" => world.send(victim, 1, &vec![0; 1 << 20]),
        "bcast" => world.bcast(victim, &mut vec![0; 3 << 20]),
        "barrier" => world.barrier(),
        other => panic!("no role '{other}'"),
    }
}

/// Rank 1 is to pass a broadcast of rank 0, which never comes, on to the victim, rank 2. What it
/// does with rank 0 alone meanwhile and later has nothing to do with that.
fn pass_on(world: &Communicator, pair: &Communicator, victim: u32) -> Result<(), Error> {
    let mut data = vec![0; 1 << 20];
    if world.rank() != 1 {
        let failed = world.recv(victim, 1, &mut data).map(drop);
        if world.rank() == 0 {
            pair.send(1, 5, b"meanwhile")?;
            pair.send(1, 6, b"later")?;
        }
        return failed;
    }
    let (mut meanwhile, mut later) = ([0; 9], [0; 5]);
    let failed = pair.scope(|scope| {
        let received = scope.irecv(Source::Any, 5, &mut meanwhile)?;
        let failed = world.bcast_with(0, &mut data, "chain".parse().unwrap());
        received.wait()?;
        Ok::<_, Error>(failed)
    })?;
    pair.recv(0, 6, &mut later)?;
    assert_eq!((&meanwhile, &later), (b"meanwhile", b"later"));
    failed
}

/// The victim leaves in good order, early. What it has sent is there, and the others go on.
fn say_farewell(world: Communicator, victim: u32) -> Result<(), Error> {
    let others = world.split((world.rank() != victim).then_some(0), 0)?;
    let Some(others) = others else {
        for rank in (0..world.size()).filter(|rank| *rank != victim) {
            world.send(rank, 1, b"last words")?;
        }
        return Ok(()); // Its only communicator goes out of scope.
    };
    let mut text = [0; 10];
    // There is no second message: the end of the wait shows that the farewell has come.
    match world.recv(victim, 2, &mut text) {
        Err(Error::PeerLeft { rank }) => assert_eq!(rank, victim),
        other => panic!("{other:?}"),
    }
    world.recv(victim, 1, &mut text)?;
    assert_eq!(&text, b"last words");
    for root in 0..others.size() {
        others.barrier()?;
        others.bcast(root, &mut vec![0; 100_000])?;
    }
    match world.send(victim, 1, b"nobody") {
        Err(Error::PeerLeft { rank }) => assert_eq!(rank, victim),
        other => panic!("{other:?}"),
    }
    others.barrier()
}

/// Rank 0 sends the victim messages of long packets and a short one, over and over or a few; the
/// others wait for a word of the victim's, and then for data that go to all.
fn send_long(world: &Communicator, victim: u32, is_endless: bool) -> Result<(), Error> {
    let mut data = vec![0; 50_000];
    let (me, count) = (world.rank(), if is_endless { usize::MAX } else { 3 });
    if me == 0 {
        (0..count).try_for_each(|_| world.send(victim, 1, &data))?;
    } else if me == victim {
        (0..count).try_for_each(|_| world.recv(0, 1, &mut data).map(drop))?;
    }
    if me == victim {
        (0..world.size()).filter(|to| *to != me).try_for_each(|to| world.send(to, 2, &[]))?;
    } else {
        world.recv(victim, 2, &mut [])?;
    }
    world.bcast(0, &mut data)?;
    world.barrier()
}

/// Rank 0 sends all others messages of long packets and a short one, by multicast, over and over.
fn cast_long(world: &Communicator) -> Result<(), Error> {
    let mut data = vec![0; 45_000];
    loop {
        world.bcast_with(0, &mut data, "combined".parse().unwrap())?;
    }
}

/// All ranks work together, in each way, until rank 0 has seen enough time pass.
fn work(world: &Communicator) -> Result<(), Error> {
    let (me, size) = (world.rank(), world.size());
    let start = Instant::now();
    let mut is_over = [0];
    while is_over == [0] {
        let (to, from) = ((me + 1) % size, (me + size - 1) % size);
        let mut got = vec![0; 300_000];
        world.scope(|scope| {
            let received = scope.irecv(from, 1, &mut got)?;
            world.send(to, 1, &vec![me as u8; 300_000])?;
            received.wait()
        })?;
        assert!(got.iter().all(|byte| *byte == from as u8));
        world.barrier()?;
        is_over = [u8::from(start.elapsed() > 2 * SUSPENSION)];
        world.bcast(0, &mut is_over)?;
    }
    Ok(())
}

// ---- ranks as processes -------------------------------------------------------------------

/// A rank, killed when dropped.
struct Rank {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Rank {
    fn wait_until_ready(&mut self) {
        let mut line = String::new();
        while !line.ends_with("ready\n") {
            line.clear();
            let bytes = self.output.read_line(&mut line).unwrap();
            assert!(bytes > 0, "{}", self.errors());
        }
    }

    fn errors(&mut self) -> String {
        let mut errors = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        errors
    }

    fn signal(&self, signal: i32) {
        let process = libc::pid_t::try_from(self.process.id()).unwrap();
        // SAFETY: plain system call; the process is our child and has not been waited for.
        assert_eq!(unsafe { libc::kill(process, signal) }, 0);
    }

    /// Status and errors of a rank that ends before `deadline`.
    fn finish(&mut self, deadline: Instant) -> (Option<i32>, String) {
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return (status.code(), self.errors());
            }
            if Instant::now() >= deadline {
                self.process.kill().unwrap();
                panic!("a rank does not end; it says: {:?}", self.errors());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a job is to do.
#[derive(Clone, Copy)]
struct Play<'a> {
    role: &'a str,
    victim: u32,
    fate: &'a str,
    /// Silence after which a rank has failed; unset for the default.
    peer_timeout: Option<Duration>,
}

impl<'a> Play<'a> {
    fn new(role: &'a str, victim: u32, fate: &'a str) -> Self {
        Self { role, victim, fate, peer_timeout: Some(SOON) }
    }

    fn limit(&self) -> Duration {
        self.peer_timeout.unwrap_or(BY_DEFAULT)
    }

    /// Starts the ranks by `command`, a command on the host of a rank, and waits for all.
    fn start(&self, rendezvous: &str, command: impl Fn(u32) -> Command) -> Vec<Rank> {
        let mut ranks = self.launch(rendezvous, command);
        ranks.iter_mut().for_each(Rank::wait_until_ready);
        ranks
    }

    /// As [`Self::start`], without the wait.
    fn launch(&self, rendezvous: &str, command: impl Fn(u32) -> Command) -> Vec<Rank> {
        let start = |rank: u32| {
            let mut command = command(rank);
            command.args(["--exact", "plays_a_role", "--nocapture"]);
            command.env("TEST_ROLE", self.role).env("TEST_FATE", self.fate);
            command.env("TEST_VICTIM", self.victim.to_string());
            command.env("OMNES_RANK", rank.to_string()).env("OMNES_SIZE", RANKS.to_string());
            command.env("OMNES_LOCAL_SIZE", RANKS.to_string());
            command.env("OMNES_RENDEZVOUS", rendezvous).env("RUST_BACKTRACE", "0");
            if let Some(timeout) = self.peer_timeout {
                command.env("OMNES_PEER_TIMEOUT", format!("{}ms", timeout.as_millis()));
            }
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut process = command.spawn().unwrap();
            let output = BufReader::new(process.stdout.take().unwrap());
            Rank { process, output }
        };
        (0..RANKS).map(start).collect()
    }

    fn start_here(&self) -> Vec<Rank> {
        let port = omnes::free_port(std::net::Ipv4Addr::LOCALHOST.into()).unwrap();
        self.start(&format!("127.0.0.1:{port}"), |_| Command::new(std::env::current_exe().unwrap()))
    }

    /// All but the victim end within the limit, naming it.
    fn assert_named(&self, ranks: &mut [Rank], since: Instant) {
        let deadline = since + self.limit();
        for (rank, process) in (0..).zip(ranks).filter(|(rank, _)| *rank != self.victim) {
            let (status, errors) = process.finish(deadline);
            let told = format!("ended: rank {} has failed: ", self.victim);
            let Self { role, victim, fate, .. } = self;
            let case = format!("rank {rank} in {role}, victim {victim} ({fate})");
            assert!(errors.lines().any(|line| line.starts_with(&told)), "{case}: {errors}");
            assert_eq!(status, Some(3), "{case}");
        }
    }
}

#[test]
fn a_rank_that_is_killed_is_named_by_all_others_whatever_they_wait_in() {
    for role in ["recv", "any", "neighbour", "send", "bcast", "barrier"] {
        for victim in [0, 2] {
            let play = Play::new(role, victim, "compute");
            let mut ranks = play.start_here();
            ranks[victim as usize].signal(libc::SIGKILL);
            play.assert_named(&mut ranks, Instant::now());
        }
    }
}

#[test]
fn a_rank_that_exits_without_farewell_is_named() {
    for victim in [0, 3] {
        let play = Play::new("barrier", victim, "exit");
        let start = Instant::now();
        let mut ranks = play.start_here();
        play.assert_named(&mut ranks, start + PATIENCE);
        assert_eq!(ranks[victim as usize].finish(Instant::now() + PATIENCE).0, Some(0));
    }
}

/// A stopped rank keeps its connections, so only its silence tells.
fn stop_a_rank(play: Play<'_>) {
    let mut ranks = play.start_here();
    let victim = play.victim as usize;
    ranks[victim].signal(libc::SIGSTOP);
    play.assert_named(&mut ranks, Instant::now());
    ranks[victim].signal(libc::SIGCONT);
    // It waits for others who are gone: any error will do.
    let (status, errors) = ranks[victim].finish(Instant::now() + BY_DEFAULT);
    assert_eq!(status, Some(3), "{errors}");
    assert!(errors.contains("ended: rank "), "{errors}");
}

#[test]
fn a_rank_that_falls_silent_is_named_within_five_seconds_by_default() {
    stop_a_rank(Play { peer_timeout: None, ..Play::new("recv", 2, "wait") });
}

#[test]
fn a_rank_that_falls_silent_is_named_within_the_time_that_was_asked_for() {
    for (role, victim) in [("recv", 0), ("barrier", 3), ("neighbour", 1)] {
        stop_a_rank(Play::new(role, victim, "wait"));
    }
}

/// None of the ranks ends for so long.
fn assert_all_stay(ranks: &mut [Rank], time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        for (number, rank) in ranks.iter_mut().enumerate() {
            let ended = rank.process.try_wait().unwrap();
            assert!(ended.is_none(), "rank {number} has ended: {}", rank.errors());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_rank_that_computes_has_not_failed() {
    let play =
        Play { peer_timeout: Some(Duration::from_millis(500)), ..Play::new("recv", 1, "compute") };
    assert_all_stay(&mut play.start_here(), play.limit() * 3);
}

/// Stops all ranks, as a job that is suspended, for longer than any may be silent.
fn suspend(ranks: &mut [Rank]) {
    ranks.iter().for_each(|rank| rank.signal(libc::SIGSTOP));
    assert_all_stay(ranks, SUSPENSION);
}

#[test]
fn ranks_that_are_stopped_together_go_on_together() {
    let play = Play::new("rounds", 0, "wait");
    let mut ranks = play.start_here();
    suspend(&mut ranks);
    ranks.iter().for_each(|rank| rank.signal(libc::SIGCONT));
    let deadline = Instant::now() + PATIENCE;
    for (number, rank) in ranks.iter_mut().enumerate() {
        let (status, errors) = rank.finish(deadline);
        assert_eq!((status, errors.as_str()), (Some(0), ""), "rank {number}");
    }
}

#[test]
fn ranks_that_are_stopped_go_on_one_by_one_and_who_dies_later_is_named() {
    // Victims in a call, and with nobody but their progress thread inside.
    for (role, victim, fate) in [("barrier", 1, "wait"), ("send", 2, "compute")] {
        let play = Play::new(role, victim, fate);
        let mut ranks = play.start_here();
        suspend(&mut ranks);
        for rank in (0..ranks.len()).rev() {
            ranks[rank].signal(libc::SIGCONT);
            assert_all_stay(&mut ranks, play.limit() / 8);
        }
        assert_all_stay(&mut ranks, play.limit() * 3 / 2);
        ranks[victim as usize].signal(libc::SIGSTOP);
        play.assert_named(&mut ranks, Instant::now());
    }
}

#[test]
fn a_rank_that_does_not_go_on_with_the_others_is_named_after_the_timeout() {
    for (role, victim) in [("recv", 0), ("bcast", 2)] {
        let play = Play::new(role, victim, "compute");
        let mut ranks = play.start_here();
        suspend(&mut ranks);
        let others = (0..).zip(&ranks).filter(|(rank, _)| *rank != victim);
        others.for_each(|(_, rank)| rank.signal(libc::SIGCONT));
        let resumed = Instant::now();
        assert_all_stay(&mut ranks, play.limit() / 2);
        play.assert_named(&mut ranks, resumed);
    }
}

#[test]
fn a_rank_that_is_killed_while_all_are_stopped_is_named() {
    for victim in [0, 3] {
        let play = Play::new("barrier", victim, "compute");
        let mut ranks = play.start_here();
        suspend(&mut ranks);
        ranks[victim as usize].signal(libc::SIGKILL);
        ranks.iter().for_each(|rank| rank.signal(libc::SIGCONT));
        play.assert_named(&mut ranks, Instant::now());
    }
}

#[test]
fn a_rank_that_leaves_early_in_good_order_is_no_failure() {
    for victim in [0, 2] {
        let mut ranks = Play::new("farewell", victim, "leave").start_here();
        let deadline = Instant::now() + PATIENCE;
        for (rank, process) in ranks.iter_mut().enumerate() {
            let (status, errors) = process.finish(deadline);
            assert_eq!((status, errors.as_str()), (Some(0), ""), "rank {rank}");
        }
    }
}

#[test]
fn a_rank_that_fails_ends_nothing_of_those_who_do_without_it() {
    for _ in 0..3 {
        let play = Play::new("chain", 2, "compute");
        let mut ranks = play.start_here();
        ranks[2].signal(libc::SIGKILL);
        play.assert_named(&mut ranks, Instant::now());
    }
}

#[test]
fn a_rank_that_waits_for_anybody_ends_when_all_others_have_left() {
    for victim in [0, 2] {
        let mut ranks = Play::new("any", victim, "stay").start_here();
        let deadline = Instant::now() + PATIENCE;
        for (rank, process) in (0..).zip(&mut ranks) {
            let (status, errors) = process.finish(deadline);
            let expected = if rank == victim { Some(3) } else { Some(0) };
            assert_eq!(status, expected, "rank {rank}: {errors}");
            assert!(rank != victim || errors.contains("has left the job"), "{errors}");
        }
    }
}

// ---- on networks --------------------------------------------------------------------------

/// A named lab with a host per rank; removed when dropped.
struct TestLab(String);

impl TestLab {
    fn up(flags: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let lab = Self(format!("fail-{}-{number}", std::process::id()));
        let mut command = Command::new(OMNES);
        command.args(["lab", "up", &RANKS.to_string(), "--name", &lab.0]);
        let done = command.args(flags.split_whitespace()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        lab
    }

    /// What starts the rest of its arguments on a host.
    fn on_host(&self, host: u32) -> Command {
        let mut command = Command::new(OMNES);
        command.args(["lab", "exec", "--name", &self.0, &host.to_string(), "--"]);
        command
    }

    fn link(&self, host: u32, state: &str) {
        let words = ["ip", "link", "set", "eth0", state];
        let done: Output = self.on_host(host).args(words).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// The switch passes on no longer packets to `host` from now on, nor takes them from there.
    fn narrow(&self, host: u32) {
        self.on_switch(&format!("ip link set p{host} mtu 1500"));
    }

    /// Runs `script` where the switch is.
    fn on_switch(&self, script: &str) {
        let net = format!("--net=/run/omnes-lab/{}/net.switch", self.0);
        let mut command = Command::new("nsenter");
        let done = command.args([&net, "sh", "-ec", script]).output().unwrap();
        assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Makes two sites of the lab, hosts 0 and 1 and hosts 2 and 3, with a router between them
    /// that passes on no longer packets than 1,400 bytes. `is_silent`: it does not say so.
    fn part(&self, is_silent: bool) {
        self.on_switch(
            "ip link add br1 type bridge mcast_snooping 0
             for host in 2 3; do ip link set p$host master br1; done
             ip addr add 10.77.255.254/16 dev br0; ip addr add 10.78.255.254/16 dev br1
             ip link set br0 mtu 1400; ip link set br1 mtu 1400 up
             echo 1 >/proc/sys/net/ipv4/ip_forward",
        );
        if is_silent {
            // Only what it sends itself has come in by no interface but its own.
            self.on_switch("ip rule add iif lo blackhole");
        }
        for host in 0..RANKS {
            let script = match host {
                0 | 1 => "ip route add 10.78.0.0/16 via 10.77.255.254".to_owned(),
                _ => format!(
                    "ip addr flush dev eth0; ip addr add 10.78.0.{}/16 dev eth0
                     ip route add default via 10.78.255.254",
                    host + 1
                ),
            };
            let done = self.on_host(host).args(["sh", "-ec", &script]).output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
    }

    fn start(&self, play: &Play<'_>) -> Vec<Rank> {
        let mut ranks = self.launch(play);
        ranks.iter_mut().for_each(Rank::wait_until_ready);
        ranks
    }

    /// As [`Self::start`], without the wait.
    fn launch(&self, play: &Play<'_>) -> Vec<Rank> {
        // The hosts see no other job, so any port is free; host 0 has the first address.
        let test = std::env::current_exe().unwrap();
        play.launch("10.77.0.1:4000", |rank| {
            let mut command = self.on_host(rank);
            command.arg(&test);
            command
        })
    }
}

impl Drop for TestLab {
    fn drop(&mut self) {
        let _ = Command::new(OMNES).args(["lab", "down", "--name", &self.0]).output();
    }
}

#[test]
fn a_rank_that_is_cut_off_is_named_and_ends_too() {
    if !is_root() {
        return;
    }
    for (role, victim) in [("recv", 2), ("barrier", 0)] {
        let lab = TestLab::up("");
        let play = Play::new(role, victim, "wait");
        let mut ranks = lab.start(&play);
        lab.link(victim, "down");
        play.assert_named(&mut ranks, Instant::now());
        // To the one that is cut off, the others have failed.
        let (status, errors) = ranks[victim as usize].finish(Instant::now() + SOON);
        assert_eq!(status, Some(3), "{errors}");
        assert!(errors.contains(" has failed"), "{errors}");
    }
}

#[test]
fn a_rank_that_is_killed_is_named_also_where_packets_are_lost() {
    if !is_root() {
        return;
    }
    for seed in 1..=2 {
        let lab = TestLab::up(&format!("--loss 10% --fault-seed {seed}"));
        // Not less than the default: a lost answer of the rendezvous may come 3 s late by TCP.
        let play = Play { peer_timeout: None, ..Play::new("barrier", 2, "compute") };
        let mut ranks = lab.start(&play);
        ranks[2].signal(libc::SIGKILL);
        play.assert_named(&mut ranks, Instant::now());
    }
}

/// Bytes that process `id` has written so far, as the kernel counts.
fn written_bytes(id: &str) -> u64 {
    let counts = std::fs::read_to_string(format!("/proc/{id}/io")).unwrap_or_default();
    let line = counts.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[test]
fn a_rank_that_is_killed_while_hosts_copy_is_named_and_no_copy_appears() {
    if !is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let data: Vec<u8> = (0..96u32 << 20).map(|at| ((at * 31) ^ (at >> 12)) as u8).collect();
    std::fs::write(place.path().join("source"), data).unwrap();
    for victim in ["0", "2"] {
        // Each rank tells its process number, then becomes the copy.
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
        // SAFETY: plain system call; the launcher has not waited for its rank, which is at work.
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
fn a_rank_that_long_packets_do_not_get_to_is_named_with_the_way_out() {
    if !is_root() {
        return;
    }
    for role in ["long", "cast"] {
        // Links with faults cut trains, so that each packet meets the switch alone.
        let lab = TestLab::up("--mtu 9000 --reorder 0.1%");
        let play = Play { peer_timeout: None, ..Play::new(role, 2, "for ever") };
        let mut ranks = lab.start(&play);
        lab.narrow(play.victim);
        let deadline = Instant::now() + PATIENCE;
        for rank in &mut ranks {
            let (status, errors) = rank.finish(deadline);
            let told =
                "ended: packets of 8976 bytes do not get to rank 2, though shorter ones do: ";
            assert!(errors.lines().any(|line| line.starts_with(told)), "{role}: {errors}");
            assert!(errors.contains("OMNES_MTU=1500"), "{role}: {errors}");
            assert_eq!(status, Some(3), "{role}");
        }
    }
}

#[test]
fn a_job_does_without_long_packets_where_a_switch_drops_them_and_says_so() {
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
                10.77.0.3 to 10.77.0.4, though shorter ones do: this job's have 1500; ";
    assert!(ends[0].1.starts_with(told), "{ends:?}");
    assert!(ends[1..].iter().all(|(_, errors)| errors.is_empty()), "{ends:?}");
}

#[test]
fn a_job_across_sites_has_packets_that_pass_between_them_and_says_so() {
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
                    from 10.77.0.2 to 10.78.0.3, though shorter ones do: this job's have 1400; ";
        assert!(ends[0].1.starts_with(told), "{is_silent}: {ends:?}");
        assert!(ends[1..].iter().all(|(_, errors)| errors.is_empty()), "{ends:?}");
    }
}

#[test]
fn hosts_between_which_no_packet_gets_through_are_named_at_the_start() {
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
