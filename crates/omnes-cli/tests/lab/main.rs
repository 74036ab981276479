//! `omnes lab` from outside: whole commands, real namespaces, packets between hosts.
//!
//! Without root a test prints `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a
//! failure. Faults are seeded, so that each run meets the same ones; losses are compared with the
//! lab's own counters.
#![allow(clippy::unwrap_used)]

#[path = "../as_root/mod.rs"]
mod as_root;
mod faults;
#[path = "../outside/mod.rs"]
mod outside;

use as_root::is_root;
use outside::{PATIENCE, text, wait_until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const OMNES: &str = env!("CARGO_BIN_EXE_omnes");
/// Multicast group of the tests.
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 77, 1);

fn omnes(words: &[&str]) -> Output {
    Command::new(OMNES).args(words).stdin(Stdio::null()).output().unwrap()
}

/// A named lab of this test alone; removed when dropped.
struct TestLab {
    name: String,
}

impl TestLab {
    fn fresh_name() -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
    }

    fn up(hosts: usize, flags: &str) -> Self {
        let lab = Self { name: Self::fresh_name() };
        let hosts = hosts.to_string();
        let words = ["lab", "up", &hosts, "--name", &lab.name];
        let done = omnes(&words.into_iter().chain(flags.split_whitespace()).collect::<Vec<_>>());
        assert!(done.status.success(), "{}", text(&done.stderr));
        lab
    }

    fn run(&self, verb: &str, words: &[&str]) -> Output {
        omnes(&[&["lab", verb, "--name", &self.name], words].concat())
    }

    fn set(&self, flags: &str) {
        let done = self.run("set", &flags.split_whitespace().collect::<Vec<_>>());
        assert!(done.status.success(), "{}", text(&done.stderr));
    }

    fn exec(&self, host: usize, words: &[&str]) -> Output {
        self.run("exec", &[&[&host.to_string(), "--"], words].concat())
    }

    fn path(&self, pin: &str) -> PathBuf {
        Path::new("/run/omnes-lab").join(&self.name).join(pin)
    }

    /// This lab in the output of `omnes lab list`.
    fn listed(&self) -> Value {
        let done = omnes(&["lab", "list", "--format", "json"]);
        assert!(done.status.success(), "{}", text(&done.stderr));
        let labs: Vec<Value> = serde_json::from_slice(&done.stdout).unwrap();
        labs.into_iter().find(|lab| lab["name"] == self.name.as_str()).unwrap()
    }

    fn counter(&self, host: usize, name: &str) -> usize {
        self.listed()["hosts"][host][name].as_u64().unwrap() as usize
    }

    /// A UDP socket of `host`, with room for all packets of a test.
    fn socket(&self, host: usize, ipv6: bool) -> UdpSocket {
        self.bound(host, SocketAddr::new(self.address(host, ipv6), 0))
    }

    /// A socket of `host` in the tests' multicast group, on `port` or, for 0, on any.
    fn member(&self, host: usize, port: u16) -> UdpSocket {
        let IpAddr::V4(own) = self.address(host, false) else { panic!("not IPv4") };
        let socket = self.bound(host, SocketAddr::new(GROUP.into(), port));
        socket.join_multicast_v4(&GROUP, &own).unwrap();
        socket
    }

    fn address(&self, host: usize, ipv6: bool) -> IpAddr {
        let field = if ipv6 { "ipv6" } else { "ipv4" };
        self.listed()["hosts"][host][field].as_str().unwrap().parse().unwrap()
    }

    fn bound(&self, host: usize, address: SocketAddr) -> UdpSocket {
        let namespace = std::fs::File::open(self.path(&format!("net.{host}"))).unwrap();
        // A socket stays in the namespace of the thread that made it.
        let bind = move || {
            // SAFETY: takes no pointers; changes this thread alone.
            assert_eq!(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
            UdpSocket::bind(address).unwrap()
        };
        let socket = std::thread::spawn(bind).join().unwrap();
        set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 16 << 20);
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }
}

impl Drop for TestLab {
    fn drop(&mut self) {
        omnes(&["lab", "down", "--name", &self.name]);
    }
}

fn set_option(socket: &UdpSocket, level: libc::c_int, option: libc::c_int, value: libc::c_int) {
    let size = size_of_val(&value) as libc::socklen_t;
    // SAFETY: pointer and size are those of `value`, which the call only reads.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), size)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Shortest of `tries` round trips between two hosts.
fn round_trip(one: &UdpSocket, other: &UdpSocket, tries: usize) -> Duration {
    let mut buffer = [0; 4];
    let trip = |_| {
        let start = Instant::now();
        one.send_to(b"ping", other.local_addr().unwrap()).unwrap();
        other.recv(&mut buffer).unwrap();
        other.send_to(b"pong", one.local_addr().unwrap()).unwrap();
        one.recv(&mut buffer).unwrap();
        assert_eq!(&buffer, b"pong");
        start.elapsed()
    };
    (0..tries).map(trip).min().unwrap()
}

#[test]
fn values_without_a_unit_are_rejected_with_a_hint() {
    for (flag, value, hint) in [
        ("--loss", "1", "1%"),
        ("--receive-loss", "20", "20%"),
        ("--delay", "50", "25us"),
        ("--rate", "1000", "1gbit"),
        ("--mtu", "100", "1280"),
    ] {
        let done = omnes(&["lab", "up", "2", flag, value]);
        assert_eq!(done.status.code(), Some(2));
        assert!(text(&done.stderr).contains(hint), "{}", text(&done.stderr));
    }
}

#[test]
fn lab_set_without_options_is_rejected() {
    let done = omnes(&["lab", "set", "--name", &TestLab::fresh_name()]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("give a link option"), "{}", text(&done.stderr));
}

#[test]
fn unprivileged_lab_names_the_missing_privilege_and_exits_with_77() {
    let mut command = Command::new(OMNES);
    command.args(["lab", "up", "2", "--name", &TestLab::fresh_name()]);
    // SAFETY: one system call without pointers. An ordinary user may not drop what it does not
    // have.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_CAPBSET_DROP, 12, 0, 0, 0);
            Ok(())
        });
    }
    let done = command.output().unwrap();
    assert_eq!(done.status.code(), Some(77), "{}", text(&done.stderr));
    assert!(text(&done.stderr).contains("CAP_NET_ADMIN"), "{}", text(&done.stderr));
}

#[test]
fn commands_inside_lab_hosts_cannot_damage_or_remove_the_lab() {
    if !is_root() {
        return;
    }
    let lab = TestLab::up(2, "");
    let started = lab.exec(0, &["sh", "-c", "sleep 300 >/dev/null 2>&1 & echo $!"]);
    // A process that has ended and has not been reaped has no such link.
    let network = PathBuf::from(format!("/proc/{}/ns/net", text(&started.stdout).trim()));
    let is_alive = || std::fs::read_link(&network).is_ok();
    assert!(is_alive());
    let name = &*lab.name;
    for (words, status) in [
        (&["list"][..], 0),
        (&["down", "--name", name], 2),
        (&["exec", "0", "--name", name, "--", "true"], 2),
    ] {
        let done = lab.exec(1, &[&[OMNES, "lab"], words].concat());
        let told = text(&done.stdout) + &text(&done.stderr);
        let told: String = told.lines().filter(|line| line.contains(name)).collect();
        assert_eq!(done.status.code(), Some(status), "{words:?}: {told}");
        assert!(told.contains("belongs to another mount namespace"), "{words:?}: {told}");
        assert!(!told.contains("damaged") && is_alive(), "{words:?}: {told}");
    }
    assert_eq!(lab.listed()["error"], Value::Null);
    assert!(lab.run("down", &[]).status.success());
    assert!(!is_alive());
}

#[test]
fn lab_of_another_mount_namespace_is_rejected_while_that_exists() {
    if !is_root() {
        return;
    }
    let lab = TestLab { name: TestLab::fresh_name() };
    let script = format!("{OMNES} lab up 1 --name {} && read line", lab.name);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    let mut maker = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(maker.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("1 hosts"), "{line}");
    let way = format!("nsenter --mount=/proc/{}/ns/mnt", maker.id());
    assert!(lab.listed()["error"].as_str().unwrap().contains(&way), "{}", lab.listed());
    let refused = lab.run("down", &[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains(&way), "{}", text(&refused.stderr));
    drop(maker.stdin.take());
    maker.wait().unwrap();
    wait_until("it is removed", || lab.run("down", &[]).status.success());
    assert!(!lab.path("").exists());
}

#[test]
fn lab_hosts_exchange_ipv4_ipv6_and_multicast_packets() {
    if !is_root() {
        return;
    }
    let lab = TestLab::up(3, "");
    for ipv6 in [false, true] {
        let sockets: Vec<_> = (0..3).map(|host| lab.socket(host, ipv6)).collect();
        round_trip(&sockets[0], &sockets[1], 1);
        round_trip(&sockets[2], &sockets[0], 1);
    }
    let (sender, member) = (lab.socket(0, false), lab.member(1, 0));
    sender.send_to(b"all", member.local_addr().unwrap()).unwrap();
    assert_eq!(member.recv(&mut [0; 8]).unwrap(), 3);
}

#[test]
fn lab_is_created_runs_commands_is_listed_and_is_removed() {
    if !is_root() {
        return;
    }
    let lab = TestLab::up(2, "--rate 1gbit");
    let again = lab.run("up", &["3"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains(&format!("omnes lab down --name {}", lab.name)));

    let named = lab.exec(1, &["uname", "-n"]);
    assert_eq!(text(&named.stdout).trim(), format!("{}-1", lab.name));
    assert_eq!(lab.exec(0, &["sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(lab.exec(0, &["no-such-command"]).status.code(), Some(127));
    assert_eq!(lab.exec(2, &["true"]).status.code(), Some(2));
    // /sys shows the host's network; everything else in it is the machine's.
    let list = |path: &str| text(&lab.exec(0, &["ls", path]).stdout);
    assert_eq!(list("/sys/class/net").lines().collect::<Vec<_>>(), ["eth0", "lo"]);
    for path in ["/sys/fs/cgroup", "/sys/devices/system/cpu"] {
        let machine = Command::new("ls").arg(path).output().unwrap();
        assert_eq!(list(path), text(&machine.stdout), "{path}");
    }
    // Ranks of one host share memory, ranks of two do not.
    assert!(lab.exec(0, &["touch", "/dev/shm/omnes-test"]).status.success());
    assert!(lab.exec(0, &["test", "-e", "/dev/shm/omnes-test"]).status.success());
    assert!(!lab.exec(1, &["test", "-e", "/dev/shm/omnes-test"]).status.success());
    assert!(!Path::new("/dev/shm/omnes-test").exists());
    assert_eq!(lab.listed()["link"]["rate_bps"], 1_000_000_000);

    assert!(lab.run("down", &[]).status.success());
    assert!(lab.run("down", &[]).status.success(), "down twice is fine");
    assert!(!lab.path("").exists());
    assert_eq!(lab.exec(0, &["true"]).status.code(), Some(2));
}

#[test]
fn removing_all_labs_continues_after_one_failure() {
    if !is_root() {
        return;
    }
    // Labs of its own, invisible to others: a file that is not a directory cannot be a lab.
    let name = TestLab::fresh_name();
    let script = format!(
        "mount -t tmpfs none /run && mkdir -p /run/omnes-lab/{name}-b && cd /run/omnes-lab &&
        touch {name}-a {name}-c && {OMNES} lab down --all; echo $? *"
    );
    let down = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap();
    assert_eq!(text(&down.stdout), format!("2 {name}-a {name}-c\n"), "{down:?}");
    let errors = text(&down.stderr);
    let told: Vec<_> = errors.lines().collect();
    assert_eq!(told.len(), 2, "{errors}");
    for (line, letter) in told.iter().zip(["c", "a"]) {
        let reason = format!("omnes: cannot read /run/omnes-lab/{name}-{letter}: Not a directory");
        assert!(line.starts_with(&reason), "{line}");
    }
}

#[test]
fn lab_down_ends_processes_inside_even_with_damaged_state() {
    if !is_root() {
        return;
    }
    let lab = TestLab::up(2, "--delay 50us");
    let keeper = lab_process(&lab);
    let host = identity(&lab.path("net.1"));
    let mut inside = Command::new(OMNES)
        .args(["lab", "exec", "1", "--name", &lab.name, "--", "sleep", "1000"])
        .spawn()
        .unwrap();
    let network = PathBuf::from(format!("/proc/{}/ns/net", inside.id()));
    wait_until("the command is in the host", || identity(&network) == host);

    std::fs::write(lab.path("state.json"), b"{ torn").unwrap();
    let listed = text(&omnes(&["lab", "list"]).stdout);
    assert!(listed.contains("is damaged"), "{listed}");
    let down = lab.run("down", &[]);
    assert!(down.status.success(), "{}", text(&down.stderr));
    assert_eq!(inside.wait().unwrap().signal(), Some(libc::SIGTERM));
    // Ended, though perhaps not reaped: in containers the first process need not reap.
    let command = format!("/proc/{keeper}/cmdline");
    wait_until("the keeper is gone", || std::fs::read(&command).unwrap_or_default().is_empty());
    assert!(!lab.path("").exists());
}

/// Process id of the process that holds the delayed frames of `lab`.
fn lab_process(lab: &TestLab) -> u64 {
    let state = std::fs::read(lab.path("state.json")).unwrap();
    let state: Value = serde_json::from_slice(&state).unwrap();
    state["keeper"]["pid"].as_u64().unwrap()
}

#[test]
fn killed_keeper_is_restarted_on_demand() {
    if !is_root() {
        return;
    }
    let lab = TestLab::up(2, "");
    lab.set("--delay 100us");
    let job = ["run", "-n", "2", "--lab", &lab.name, "--timeout", "60s", "--quiet", "--"];
    for words in [&["lab", "exec", "--name", &lab.name, "0", "--", "true"][..], &job] {
        let keeper = lab_process(&lab);
        // SAFETY: plain system call on the process of this test's own lab.
        assert_eq!(unsafe { libc::kill(keeper.try_into().unwrap(), libc::SIGKILL) }, 0);
        let stat = format!("/proc/{keeper}/stat");
        wait_until("it is gone or a zombie", || {
            std::fs::read_to_string(&stat).map_or(true, |text| text.contains(") Z "))
        });
        let bench = [OMNES, "bench", "barrier", "--budget", "10ms"];
        let rest = if words[0] == "run" { &bench[..] } else { &[] };
        let done = omnes(&[words, rest].concat());
        assert!(done.status.success(), "{}", text(&done.stderr));
        assert_ne!(lab_process(&lab), keeper);
    }
}

#[test]
fn concurrent_lab_changes_are_all_applied() {
    if !is_root() {
        return;
    }
    let lab = TestLab::up(4, "");
    let listed = |field: &str| lab.listed()["link"][field].clone();
    for (rate, bits_per_s, loss) in [("1gbit", 1_000_000_000, 0.01), ("none", 0, 0.02)] {
        let percent = format!("{}%", loss * 100.0);
        let set = |words: [&str; 2]| {
            let mut command = Command::new(OMNES);
            command.args(["lab", "set", "--name", &lab.name]).args(words);
            command.stderr(Stdio::piped()).spawn().unwrap()
        };
        let sets = [set(["--rate", rate]), set(["--loss", &percent])];
        for done in sets.map(|set| set.wait_with_output().unwrap()) {
            assert!(done.status.success(), "{}", text(&done.stderr));
        }
        assert_eq!(listed("rate_bps").as_u64().unwrap_or(0), bits_per_s);
        assert_eq!(listed("loss"), loss);
    }
    let shapers = Command::new("nsenter")
        .arg(format!("--net={}", lab.path("net.0").display()))
        .args(["tc", "qdisc", "show", "dev", "eth0"])
        .output()
        .unwrap();
    assert!(!text(&shapers.stdout).contains("tbf"), "{}", text(&shapers.stdout));
}

#[test]
fn failed_lab_creation_leaves_nothing_behind() {
    if !is_root() {
        return;
    }
    // iproute2 without tc: fails after the namespaces are pinned.
    let tools = tempfile::tempdir().unwrap();
    for tool in ["ip", "bridge"] {
        let found = std::env::var("PATH").unwrap();
        let found = found.split(':').map(|folder| Path::new(folder).join(tool));
        let found = found.chain([Path::new("/usr/sbin").join(tool)]).find(|path| path.exists());
        std::os::unix::fs::symlink(found.unwrap(), tools.path().join(tool)).unwrap();
    }
    let name = TestLab::fresh_name();
    let done = Command::new(OMNES)
        .args(["lab", "up", "2", "--rate", "1gbit", "--name", &name])
        .env("PATH", tools.path())
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(77));
    assert!(text(&done.stderr).contains("install iproute2"), "{}", text(&done.stderr));
    assert!(!Path::new("/run/omnes-lab").join(&name).exists());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&name));
}

#[test]
fn killed_owner_of_an_ephemeral_lab_leaves_nothing_behind() {
    if !is_root() {
        return;
    }
    let mut owner = Command::new(OMNES)
        .args(["lab", "hold", "3", "--delay", "50us"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = owned_lines(&mut owner);
    let networks: Vec<_> =
        lines.iter().filter_map(|line| identity(Path::new(line.strip_prefix("net ")?))).collect();
    assert_eq!(networks.len(), 3);
    let program = lines.iter().find_map(|line| line.strip_prefix("program ")?.parse().ok());
    let program: u32 = program.expect("faults are on");
    assert!(program_fd(program).is_some());

    owner.kill().unwrap();
    assert_eq!(owner.wait().unwrap().signal(), Some(libc::SIGKILL));
    // The program lives as long as the switch's interfaces, and these as long as its namespace.
    wait_until("the fault program is gone", || program_fd(program).is_none());
    // A namespace of another test may have got the same number.
    wait_until("nothing runs inside", || processes_in(&networks).is_empty());
    let own_interfaces = std::fs::read_to_string("/proc/self/net/dev").unwrap();
    assert!(!own_interfaces.contains("hold0:") && !own_interfaces.contains("p0:"));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains("tmpfs omnes-lab"));
}

/// Output of `omnes lab hold` until it is ready.
fn owned_lines(owner: &mut Child) -> Vec<String> {
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    lines.map(Result::unwrap).take_while(|line| line != "ready").collect()
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

fn processes_in(networks: &[(u64, u64)]) -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let is_inside = |process: &PathBuf| {
        identity(&process.join("ns/net")).is_some_and(|network| networks.contains(&network))
    };
    processes.filter(is_inside).collect()
}

/// A descriptor of the BPF program with number `id`, while there is one.
fn program_fd(id: u32) -> Option<OwnedFd> {
    const BPF_PROG_GET_FD_BY_ID: libc::c_long = 13;
    let attributes = [id, 0, 0];
    // SAFETY: pointer and size are those of `attributes`, which the call only reads.
    let fd = unsafe {
        let size = size_of_val(&attributes) as libc::c_long;
        libc::syscall(libc::SYS_bpf, BPF_PROG_GET_FD_BY_ID, attributes.as_ptr(), size)
    };
    // SAFETY: just opened and owned by nobody else.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
