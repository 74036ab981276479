//! `omnesd` and `omnes nic` from outside: whole programs in network namespaces.
//!
//! Without root a test prints `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a
//! failure. The hosts are those of `omnes lab hold`, each with one interface, `eth0`. Ranks are
//! this test program itself, started again as an ordinary user ([`plays_a_rank`]).
#![allow(clippy::unwrap_used)]

mod as_root;

use as_root::is_root;
use libbpf_rs::query::{LinkInfoIter, MapInfoIter, ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{ProgramHandle, TC_INGRESS, TcHookBuilder};
use omnes::{Communicator, Config, Error, NicState, WhileWaiting};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const OMNES: &str = env!("CARGO_BIN_EXE_omnes");
const OMNESD: &str = env!("CARGO_BIN_EXE_omnesd");
/// A limit for what happens within milliseconds; reached only by a failure.
const PATIENCE: Duration = Duration::from_secs(20);
/// A user without any rights.
const NOBODY: u32 = 65534;
/// Handle by which clsact filters of Omnes are known.
const CLSACT_HANDLE: u32 = 0x4f6d;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "still waiting until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

// ---- hosts ----------------------------------------------------------------------------------

/// Hosts with a network of their own; gone when dropped.
struct Hosts {
    owner: Child,
    networks: Vec<File>,
}

impl Hosts {
    /// `None`, with a word, for those who may not make any.
    fn new(count: usize) -> Option<Self> {
        if !is_root() {
            return None;
        }
        let mut command = Command::new(OMNES);
        command.args(["lab", "hold", &count.to_string()]);
        let mut owner = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
        let lines: Vec<String> =
            lines.map(Result::unwrap).take_while(|line| line != "ready").collect();
        let network = |line: &String| Some(File::open(line.strip_prefix("net ")?).unwrap());
        let networks: Vec<File> = lines.iter().filter_map(network).collect();
        assert_eq!(networks.len(), count);
        Some(Self { owner, networks })
    }

    /// Starts `work` on a thread inside a host, whose processes are inside, too.
    fn inside<T: Send>(&self, host: usize, work: impl FnOnce() -> T + Send) -> T {
        let network = &self.networks[host];
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // SAFETY: affects this thread only, which ends here.
                let code = unsafe { libc::setns(network.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// What `omnes` does inside a host, for a user.
    fn omnes_as(&self, host: usize, user: u32, words: &[&str]) -> Output {
        self.inside(host, || {
            let mut command = Command::new(OMNES);
            command.args(words).stdin(Stdio::null()).env_remove("OMNES_NIC");
            command.uid(user).gid(user).output().unwrap()
        })
    }

    fn omnes(&self, host: usize, words: &[&str]) -> String {
        let output = self.omnes_as(host, 0, words);
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn list(&self, host: usize) -> Value {
        serde_json::from_str(&self.omnes(host, &["nic", "list", "--format", "json"])).unwrap()
    }

    /// What doctor says of a job's NIC for a user: value and verdict.
    fn doctor(&self, host: usize, user: u32) -> (String, String) {
        let output = self.omnes_as(host, user, &["doctor", "--format", "json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap();
        let finding = findings.iter().find(|it| it["name"] == "NIC of a job").unwrap();
        let word = |name: &str| finding[name].as_str().unwrap().to_owned();
        (word("value"), word("verdict"))
    }

    fn interface(&self, host: usize) -> i32 {
        // SAFETY: the name ends with 0.
        self.inside(host, || unsafe { libc::if_nametoindex(c"eth0".as_ptr()) }) as i32
    }

    fn log_of_started_agent(&self, host: usize) -> PathBuf {
        let network = self.networks[host].metadata().unwrap().ino();
        PathBuf::from(format!("/run/omnes/omnesd-{network}.log"))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        drop(self.owner.stdin.take());
        self.owner.wait().unwrap();
        for host in 0..self.networks.len() {
            // Only of those in which an agent was started by `omnes nic attach`.
            let _ = std::fs::remove_file(self.log_of_started_agent(host));
        }
    }
}

/// A running agent; killed when dropped.
struct Agent {
    process: Child,
    log: BufReader<ChildStderr>,
}

impl Agent {
    fn start(hosts: &Hosts, host: usize, words: &[&str]) -> Self {
        let mut command = Command::new(OMNESD);
        command.args(words);
        Self::start_by(hosts, host, command)
    }

    fn start_by(hosts: &Hosts, host: usize, mut command: Command) -> Self {
        let mut agent = hosts.inside(host, || {
            let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
            let log = BufReader::new(process.stderr.take().unwrap());
            Self { process, log }
        });
        agent.hear("serving");
        agent
    }

    /// The next line of the log that has `word`.
    fn hear(&mut self, word: &str) -> String {
        let mut heard = String::new();
        loop {
            let mut line = String::new();
            assert!(self.log.read_line(&mut line).unwrap() > 0, "no {word} in: {heard}");
            if line.contains(word) {
                return line;
            }
            heard += &line;
        }
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: a process that nobody has waited for.
        assert_eq!(unsafe { libc::kill(self.process.id() as i32, signal) }, 0);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

// ---- ranks ----------------------------------------------------------------------------------

fn wait_for_line() {
    println!("waiting");
    let _ = std::io::stdin().read(&mut [0]);
}

/// Enters a barrier that does not end, and does not wait for it: nobody asks how it has ended.
fn enter_a_barrier_for_nobody(world: &Communicator, interrupts: &AtomicBool) {
    interrupts.store(true, Ordering::Relaxed);
    let error = world.barrier().unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
    interrupts.store(false, Ordering::Relaxed);
}

/// Long enough to see that a slot has gone.
fn move_on(world: &Communicator) {
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        world.iprobe(1, 7).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Not a test of its own: what a rank does.
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
    // Until everybody has looked.
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
        // What rank 0 has sent for the one that it has entered may be enough for that of rank 1.
        let error = (0..2).find_map(|_| world.barrier().err()).unwrap();
        println!("{error}");
    }
    world.finalize().unwrap();
    std::process::exit(0);
}

fn rank(hosts: &Hosts, rank: usize, size: usize, port: u16) -> Command {
    hosts.inside(rank, || {
        let mut command = Command::new("/proc/self/exe");
        command.args(["plays_a_rank", "--exact", "--nocapture", "--test-threads=1"]);
        command.env("TEST_RANK", "1").env("OMNES_STATS", "off");
        command.env("OMNES_RANK", rank.to_string()).env("OMNES_SIZE", size.to_string());
        command.env("OMNES_RENDEZVOUS", format!("10.77.0.1:{port}")).env_remove("OMNES_NIC");
        command.uid(NOBODY).gid(NOBODY).stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    })
}

/// Runs a job of an ordinary user, a rank on each host; by what its barriers went.
fn job(hosts: &Hosts, port: u16) -> Vec<String> {
    job_of(hosts, port, NOBODY)
}

fn job_of(hosts: &Hosts, port: u16, user: u32) -> Vec<String> {
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

// ---- what is left in the kernel -------------------------------------------------------------

/// Numbers of what the agent in `list` has in the kernel: programs, links, maps.
struct Traces {
    programs: Vec<u32>,
    links: Vec<u32>,
    maps: Vec<u32>,
}

impl Traces {
    fn of(list: &Value) -> Self {
        let programs = list["interfaces"][0]["programs"].as_array().unwrap();
        let numbers = |name: &str| -> Vec<u32> {
            programs.iter().map(|it| it[name].as_u64().unwrap() as u32).collect()
        };
        let (programs, links) = (numbers("program_id"), numbers("link_id"));
        let options = ProgInfoQueryOptions::default().include_map_ids(true);
        let infos = ProgInfoIter::with_query_opts(options).filter(|it| programs.contains(&it.id));
        let maps: Vec<u32> = infos.flat_map(|info| info.map_ids).collect();
        assert!(programs.len() == 2 && links.len() == 2 && maps.len() >= 6, "{maps:?}");
        Self { programs, links, maps }
    }

    fn are_gone(&self) -> bool {
        !ProgInfoIter::default().any(|it| self.programs.contains(&it.id))
            && !LinkInfoIter::default().any(|it| self.links.contains(&it.id))
            && !MapInfoIter::default().any(|it| self.maps.contains(&it.id))
    }
}

// ---- tests ----------------------------------------------------------------------------------

#[test]
fn ordinary_users_get_the_kernels_nic_from_the_agent_and_do_without() {
    let Some(hosts) = Hosts::new(2) else { return };
    for nic in job(&hosts, 4001) {
        assert!(nic.starts_with("user space") && nic.contains("no agent"), "{nic}");
    }
    assert_eq!(hosts.doctor(0, NOBODY), ("in user space".to_owned(), "limited".to_owned()));
    let by_process = "in the kernel, by the process".to_owned();
    assert_eq!(hosts.doctor(0, 0), (by_process, "ok".to_owned()));

    let mut agents = [Agent::start(&hosts, 0, &[]), Agent::start(&hosts, 1, &[])];
    let by_agent = "in the kernel, by the agent".to_owned();
    assert_eq!(hosts.doctor(0, NOBODY), (by_agent, "ok".to_owned()));
    assert_eq!(job(&hosts, 4002), ["kernel", "kernel"]);
    for agent in &mut agents {
        assert!(agent.hear("lent slot").contains("uid 65534"));
        agent.hear("returned slot");
    }
    assert_eq!(hosts.list(0)["agent"]["slots"].as_array().unwrap().len(), 0);
}

/// Gives a host an address on an interface by which nothing leaves, as routers' loopbacks have, and
/// has it speak to the others from there.
fn move_address_inwards(hosts: &Hosts, host: usize, address: &str) {
    let ip = |host: usize, line: &str| {
        let mut command = Command::new("ip");
        command.args(line.split(' ')).stdin(Stdio::null());
        let output = hosts.inside(host, || command.output().unwrap());
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    ip(host, "link add inner type veth peer name blind");
    ip(host, "link set blind up");
    ip(host, &format!("addr add {address}/32 dev inner"));
    ip(host, "link set inner up");
    let routes = ip(host, "route show dev eth0");
    let subnet = routes.split(' ').next().unwrap();
    ip(host, &format!("route replace {subnet} dev eth0 src {address}"));
    for other in (0..hosts.networks.len()).filter(|other| *other != host) {
        ip(other, &format!("route add {address}/32 dev eth0"));
    }
}

#[test]
fn barriers_go_on_without_the_nic_where_packets_do_not_pass_the_interface_of_their_address() {
    let Some(hosts) = Hosts::new(2) else { return };
    move_address_inwards(&hosts, 1, "10.78.0.2");
    let _agents: Vec<Agent> = (0..2).map(|host| Agent::start(&hosts, host, &[])).collect();
    for nic in job(&hosts, 4006) {
        assert!(nic.contains("did not end"), "{nic}");
    }
}

/// The agent sees what leaves by any interface; a process that loads the firmware itself only what
/// leaves by the one that has its address.
#[test]
fn barriers_go_on_without_the_nic_where_one_rank_alone_finds_it_blind() {
    let Some(hosts) = Hosts::new(2) else { return };
    move_address_inwards(&hosts, 1, "10.78.0.2");
    for nic in job_of(&hosts, 4008, 0) {
        assert!(nic.starts_with("user space") && nic.contains("did not end"), "{nic}");
    }
}

#[test]
fn barriers_go_on_while_slots_are_opened() {
    let Some(hosts) = Hosts::new(2) else { return };
    let agents = [Agent::start(&hosts, 0, &[]), Agent::start(&hosts, 1, &[])];
    // It answers nobody, but it is there.
    agents[0].signal(libc::SIGSTOP);
    let mut ranks = [0, 1].map(|at| {
        let spawn = || rank(&hosts, at, 2, 4012).env("TEST_OPENS_LATE", "1").spawn().unwrap();
        hosts.inside(at, spawn)
    });
    let output = ranks[0].stdout.take().unwrap();
    let mut lines = BufReader::new(output).lines().map(Result::unwrap);
    let opening = lines.find_map(|line| Some(line.split_once("at first: ")?.1.to_owned()));
    assert_eq!(opening.unwrap(), "user space: the kernel NIC is being opened");
    assert!(lines.any(|line| line.contains("waiting")));
    agents[0].signal(libc::SIGCONT);
    drop(ranks[0].stdin.take());
    let nic = lines.find_map(|line| Some(line.split_once("nic: ")?.1.to_owned()));
    assert_eq!(nic.unwrap(), "kernel");
    for rank in ranks {
        assert!(rank.wait_with_output().unwrap().status.success());
    }
}

#[test]
fn all_ranks_hear_that_the_nic_runs_no_barrier_any_more() {
    let Some(hosts) = Hosts::new(2) else { return };
    let mut agents = [Agent::start(&hosts, 0, &[]), Agent::start(&hosts, 1, &[])];
    let mut ranks = [0, 1].map(|at| {
        let spawn = || rank(&hosts, at, 2, 4010).env("TEST_LOSES_NIC", "before").spawn().unwrap();
        hosts.inside(at, spawn)
    });
    let mut lines = [0, 1].map(|at| {
        let output = ranks[at].stdout.take().unwrap();
        BufReader::new(output).lines().map(Result::unwrap)
    });
    assert!(lines.iter_mut().all(|lines| lines.any(|line| line.contains("waiting"))));
    // Rank 0 knows before it enters the next barrier, and rank 1 waits for it in one.
    agents[0].signal(libc::SIGKILL);
    agents[0].process.wait().unwrap();
    ranks.iter_mut().for_each(|rank| drop(rank.stdin.take()));
    for rank in ranks {
        let rank = Mutex::new(rank);
        wait_until("a rank ends", || rank.lock().unwrap().try_wait().unwrap().is_some());
        assert!(rank.lock().unwrap().wait().unwrap().success());
    }
    let told = lines.map(|lines| lines.collect::<String>());
    assert!(told[0].contains("no longer runs"), "{}", told[0]);
    assert!(told[1].contains("could not complete"), "{}", told[1]);
}

#[test]
fn all_ranks_hear_that_the_nic_runs_a_barrier_no_more() {
    let Some(hosts) = Hosts::new(2) else { return };
    let mut agents = [Agent::start(&hosts, 0, &[]), Agent::start(&hosts, 1, &[])];
    let mut ranks: Vec<Child> = (0..2)
        .map(|at| {
            let spawn = || rank(&hosts, at, 2, 4009).env("TEST_LOSES_NIC", "1").spawn().unwrap();
            hosts.inside(at, spawn)
        })
        .collect();
    // Rank 1 waits in a barrier that rank 0 does not enter before its agent has gone.
    let mut lines = BufReader::new(ranks[0].stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("waiting")));
    agents[0].signal(libc::SIGKILL);
    agents[0].process.wait().unwrap();
    drop(ranks[0].stdin.take());
    assert!(lines.any(|line| line.contains("no longer runs this barrier")));
    let output = ranks.pop().unwrap().wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("could not complete"), "{}", text(&output.stdout));
    assert!(ranks[0].wait().unwrap().success());
}

#[test]
fn slots_are_shown_while_a_job_has_them_and_gone_when_it_is_killed() {
    let Some(hosts) = Hosts::new(2) else { return };
    let _agents = [Agent::start(&hosts, 0, &[]), Agent::start(&hosts, 1, &[])];
    let mut ranks: Vec<Child> = (0..2)
        .map(|at| {
            let spawn = || rank(&hosts, at, 2, 4003).env("TEST_WAITS", "1").spawn().unwrap();
            hosts.inside(at, spawn)
        })
        .collect();
    for rank in &mut ranks {
        let lines = BufReader::new(rank.stdout.take().unwrap()).lines();
        assert!(lines.map(Result::unwrap).any(|line| line.contains("waiting")));
    }
    let list = hosts.list(0);
    let slot = &list["agent"]["slots"][0];
    assert_eq!((&slot["uid"], &slot["pid"]), (&NOBODY.into(), &ranks[0].id().into()));
    assert_eq!((&slot["interface"], &slot["size"]), (&"eth0".into(), &2.into()));
    assert!(slot["counters"]["packets_in"].as_u64().unwrap() > 0, "{slot}");
    let table = hosts.omnes(0, &["nic", "list"]);
    let job = slot["job"].as_str().unwrap();
    assert!(table.contains(job) && table.contains("agent"), "{table}");
    let stat = hosts.omnes(0, &["nic", "stat", "--format", "json"]);
    let line: Value = serde_json::from_str(stat.lines().next().unwrap()).unwrap();
    assert_eq!(line["job"], slot["job"]);
    assert!(hosts.omnes(0, &["nic", "stat"]).contains(job));

    for rank in &mut ranks {
        rank.kill().unwrap();
        rank.wait().unwrap();
    }
    for host in 0..2 {
        wait_until("the slots are back", || {
            hosts.list(host)["agent"]["slots"].as_array().unwrap().is_empty()
        });
    }
}

#[test]
fn an_agent_that_ends_or_is_killed_leaves_nothing() {
    let Some(hosts) = Hosts::new(1) else { return };
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGKILL] {
        let mut agent = Agent::start(&hosts, 0, &[]);
        let list = hosts.list(0);
        assert_eq!(list["agent"]["pid"], agent.process.id());
        assert_eq!(list["interfaces"][0]["name"], "eth0");
        let owners = &list["interfaces"][0]["programs"][0]["owners"];
        assert_eq!(*owners, serde_json::json!([agent.process.id()]));
        let traces = Traces::of(&list);
        assert!(!traces.are_gone());

        agent.signal(signal);
        let status = agent.process.wait().unwrap();
        assert_eq!(status.success(), signal != libc::SIGKILL, "{status}");
        if signal != libc::SIGKILL {
            agent.hear("ended");
        }
        let list = hosts.list(0);
        assert_eq!((&list["agent"], &list["interfaces"]), (&Value::Null, &serde_json::json!([])));
        wait_until("programs, links and maps are gone", || traces.are_gone());
        for direction in ["ingress", "egress"] {
            let mut tc = Command::new("tc");
            tc.args(["filter", "show", "dev", "eth0", direction]);
            let filters = hosts.inside(0, || tc.output().unwrap());
            assert!(!text(&filters.stdout).contains("nic_"), "{filters:?}");
        }
    }
}

#[test]
fn a_filter_that_was_left_behind_is_seen_and_removed() {
    let Some(hosts) = Hosts::new(1) else { return };
    let mut agent = Agent::start(&hosts, 0, &[]);
    let traces = Traces::of(&hosts.list(0));
    // As on a kernel without tcx: a filter keeps the program when its owner is killed.
    let program = ProgramHandle::from_prog_id(traces.programs[0]).unwrap();
    let index = hosts.interface(0);
    hosts.inside(0, || {
        let mut builder = TcHookBuilder::new(program.as_fd());
        let builder = builder.ifindex(index).handle(CLSACT_HANDLE).priority(1);
        let mut hook = builder.hook(TC_INGRESS);
        hook.create().unwrap().attach().unwrap();
    });
    drop(program);
    agent.signal(libc::SIGKILL);
    agent.process.wait().unwrap();

    let left = || {
        let list = hosts.list(0);
        let interfaces = list["interfaces"].as_array().unwrap().clone();
        interfaces.first().map(|it| it["programs"][0]["way"].as_str().unwrap().to_owned())
    };
    assert_eq!(left().as_deref(), Some("clsact"));
    assert!(hosts.omnes(0, &["nic", "list"]).contains("left behind"));
    let done = hosts.omnes(0, &["nic", "detach", "eth0"]);
    assert_eq!(done, "eth0: detached, 1 filters of a killed process removed\n");
    assert_eq!(left(), None);
    wait_until("the program is gone", || traces.are_gone());
}

#[test]
fn root_starts_and_ends_an_agent_by_hand_and_others_do_not() {
    let Some(hosts) = Hosts::new(1) else { return };
    for verb in [&["nic", "attach", "eth0"][..], &["nic", "detach", "eth0"]] {
        let refused = hosts.omnes_as(0, NOBODY, verb);
        assert_eq!(refused.status.code(), Some(77), "{}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains("for root"), "{}", text(&refused.stderr));
    }
    let unknown = hosts.omnes_as(0, 0, &["nic", "attach", "no-such-thing"]);
    assert_eq!(unknown.status.code(), Some(2));
    let reason = text(&unknown.stderr);
    assert!(reason.contains("no such interface: no-such-thing"), "{reason}");

    let said = hosts.omnes(0, &["nic", "attach", "eth0"]);
    assert!(said.contains("omnesd started") && said.contains("eth0: attached"), "{said}");
    // Found already; and an ordinary user still may not.
    assert_eq!(hosts.omnes(0, &["nic", "attach", "eth0"]), "eth0: attached\n");
    let refused = hosts.omnes_as(0, NOBODY, &["nic", "detach", "eth0"]);
    assert_eq!(refused.status.code(), Some(77));
    let seen = hosts.omnes_as(0, NOBODY, &["nic", "list"]);
    assert!(text(&seen.stdout).contains("attached by the agent to: eth0"), "{seen:?}");

    let traces = Traces::of(&hosts.list(0));
    let log = std::fs::read_to_string(hosts.log_of_started_agent(0)).unwrap();
    assert!(log.contains("attached to eth0") && log.contains("serving"), "{log}");
    assert_eq!(hosts.omnes(0, &["nic", "detach", "eth0"]), "eth0: detached\n");
    assert_eq!(hosts.list(0)["interfaces"], serde_json::json!([]));
    let done = hosts.omnes(0, &["nic", "detach", "--all", "--end"]);
    assert_eq!(done, "attached to no interface\nomnesd: ended\n");
    wait_until("the agent is gone", || hosts.list(0)["agent"].is_null());
    wait_until("what it has loaded is gone", || traces.are_gone());
    let none = hosts.omnes(0, &["nic", "detach", "--all", "--end"]);
    assert_eq!(none, "attached to no interface\nomnesd: there is none\n");
}

#[test]
fn only_one_agent_serves_and_only_root_may_be_one() {
    let Some(hosts) = Hosts::new(1) else { return };
    let start = |user: u32, words: &[&str]| {
        hosts.inside(0, || {
            let mut command = Command::new(OMNESD);
            command.args(words).uid(user).gid(user).stdin(Stdio::null()).output().unwrap()
        })
    };
    let nobody = start(NOBODY, &[]);
    assert_eq!(nobody.status.code(), Some(77));
    assert!(text(&nobody.stderr).contains("must be root"), "{}", text(&nobody.stderr));

    // An interface may come later.
    let agent = Agent::start(&hosts, 0, &["--interface", "no-such-thing"]);
    let second = start(0, &[]);
    assert_eq!(second.status.code(), Some(2));
    let owner = format!("process {} of user 0 is it", agent.process.id());
    assert!(text(&second.stderr).contains(&owner), "{}", text(&second.stderr));
}

#[test]
fn help_has_examples() {
    let help = |program: &str, words: &[&str]| {
        let output = Command::new(program).args(words).arg("--help").output().unwrap();
        assert!(output.status.success());
        text(&output.stdout)
    };
    for verb in ["list", "stat", "attach", "detach"] {
        let help = help(OMNES, &["nic", verb]);
        assert!(help.contains(&format!("Examples:\n  omnes nic {verb}")), "{help}");
    }
    assert!(help(OMNES, &["nic"]).contains("omnes nic list"));
    let help = help(OMNESD, &[]);
    assert!(help.contains("--interface <NAME>") && help.contains("[default: 32]"), "{help}");
    assert!(help.contains("omnesd --interface eth1"), "{help}");
}

fn unit_file() -> String {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/omnesd.service");
    std::fs::read_to_string(unit).unwrap()
}

#[test]
fn the_capabilities_of_the_unit_file_suffice() {
    let Some(hosts) = Hosts::new(2) else { return };
    let unit = unit_file();
    let capabilities = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let named = capabilities.unwrap().split(' ').map(|name| name.strip_prefix("CAP_").unwrap());
    // This test itself may have fewer, for instance in a container.
    let known = Command::new("setpriv").arg("--dump").output();
    let Ok(known) = known.map(|output| text(&output.stdout)) else {
        println!("skipped: needs setpriv");
        return;
    };
    let kept: Vec<String> = named
        .map(str::to_lowercase)
        .filter(|name| known.contains(name.as_str()))
        .map(|name| format!("+{name}"))
        .collect();
    let _agents = [0, 1].map(|host| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", &format!("-all,{}", kept.join(","))]);
        command.args(["--inh-caps", "-all", "--no-new-privs", OMNESD]);
        Agent::start_by(&hosts, host, command)
    });
    assert_eq!(job(&hosts, 4004), ["kernel", "kernel"]);
}

#[test]
fn the_unit_file_starts_what_there_is() {
    let unit = unit_file();
    assert!(unit.contains("ExecStart=/usr/local/bin/omnesd $OMNESD_ARGS"), "{unit}");
    let arguments = unit.lines().find_map(|line| line.split_once("OMNESD_ARGS=")).unwrap().1;
    // All that the example has is understood, up to the word behind it.
    let words = arguments.trim_end_matches('"').split(' ');
    let output = Command::new(OMNESD).args(words).arg("--help").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}
