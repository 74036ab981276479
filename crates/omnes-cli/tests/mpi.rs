//! Plain MPI programs with the preload library across hosts whose links lose packets, for each MPI
//! that is installed.
//!
//! Without root a test prints `skipped: needs root`, which `OMNES_REQUIRE=root` turns into a
//! failure; without an MPI its part prints `skipped: needs Open MPI`, which `OMNES_REQUIRE=mpi`
//! turns into one. Tests on one machine are in `omnes-mpi/tests/preloaded.rs`.

#![allow(clippy::unwrap_used)]

mod as_root;
#[path = "../../omnes-mpi/tests/mpis/mod.rs"]
mod mpis;
#[path = "../../omnes-mpi/tests/preload/mod.rs"]
mod preload;

use as_root::is_root;
use omnes_mpi::Mpi;
use preload::{Job, Outcome, Site, assert_gone, processes_with, sites};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

const OMNES: &str = env!("CARGO_BIN_EXE_omnes");
/// Subnet of every lab; host addresses start at 1.
const SUBNET: &str = "10.77.0";

/// A lab whose links lose packets; removed when dropped.
struct Lab {
    name: String,
    hosts: u32,
    /// Directory of the agent.
    folder: tempfile::TempDir,
}

impl Lab {
    fn up(hosts: u32) -> Self {
        let name = format!("mpi-{hosts}-{}", std::process::id());
        let lab = Self { name, hosts, folder: tempfile::tempdir().unwrap() };
        let hosts = hosts.to_string();
        omnes(&["lab", "up", &hosts, "--name", &lab.name, "--loss", "1%", "--fault-seed", "1"]);
        std::fs::write(lab.agent(), lab.agent_script()).unwrap();
        std::fs::set_permissions(lab.agent(), PermissionsExt::from_mode(0o755)).unwrap();
        lab
    }

    /// Replacement for `ssh`.
    fn agent(&self) -> PathBuf {
        self.folder.path().join("agent")
    }

    /// Runs a command on the host whose address it is given: `[-x] ADDRESS COMMAND...`.
    fn agent_script(&self) -> String {
        let name = &self.name;
        format!(
            "#!/bin/sh\n[ \"$1\" = -x ] && shift\nhost=${{1##*.}}\nshift\n\
             exec {OMNES} lab exec --name {name} $((host - 1)) -- sh -c \"$*\"\n"
        )
    }

    /// Places `per_host` ranks on each host; the launcher is on the first, of which it has only the
    /// network, because the lab is not visible from inside a host.
    fn place<'a>(&self, job: Job<'a>, site: &Site, per_host: u32) -> Job<'a> {
        let network = format!("--net=/run/omnes-lab/{}/net.0", self.name);
        let placement = match site.launcher.mpi {
            Mpi::OpenMpi => self.for_open_mpi(per_host),
            Mpi::Mpich => self.for_hydra(per_host),
        };
        job.placed(&["nsenter".as_ref(), network.as_ref()], placement)
    }

    fn for_open_mpi(&self, per_host: u32) -> Vec<String> {
        let hosts: Vec<String> =
            (1..=self.hosts).map(|host| format!("{SUBNET}.{host}:{per_host}")).collect();
        let ranks = (self.hosts * per_host).to_string();
        let mut words = vec!["-n", &ranks, "-H"].into_iter().map(str::to_owned).collect::<Vec<_>>();
        words.push(hosts.join(","));
        // A lab ends processes that leave their command.
        words.extend(["--map-by", "node", "--leave-session-attached"].map(str::to_owned));
        for (name, value) in [
            ("plm", "rsh"),
            ("plm_rsh_agent", self.agent().to_str().unwrap()),
            ("plm_rsh_no_tree_spawn", "1"),
            ("pml", "ob1"),
            ("btl", "tcp,vader,self"),
            ("oob_tcp_if_include", &format!("{SUBNET}.0/24")),
            ("btl_tcp_if_include", &format!("{SUBNET}.0/24")),
        ] {
            words.extend(["--mca", name, value].map(str::to_owned));
        }
        words
    }

    fn for_hydra(&self, per_host: u32) -> Vec<String> {
        let hosts: Vec<String> = (1..=self.hosts).map(|host| format!("{SUBNET}.{host}")).collect();
        let (hosts, agent) = (hosts.join(","), self.agent());
        let (ranks, per_host) = ((self.hosts * per_host).to_string(), per_host.to_string());
        let words = ["-launcher", "ssh", "-launcher-exec", agent.to_str().unwrap()];
        let places = ["-iface", "eth0", "-hosts", &hosts, "-ppn", &per_host, "-n", &ranks];
        words.into_iter().chain(places).map(str::to_owned).collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let mut command = Command::new(OMNES);
        command.args(["lab", "down", "--name", &self.name]).stdin(Stdio::null());
        let _ = command.output();
    }
}

fn omnes(words: &[&str]) -> String {
    let output = Command::new(OMNES).args(words).stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a program across the hosts, plain or preloaded; none of its processes may be left running.
fn run(lab: &Lab, job: Job, site: &Site, per_host: u32, words: (&str, &str)) -> Outcome {
    let (program, arguments) = words;
    let program = site.program(program);
    let mut job = lab.place(job, site, per_host);
    if site.launcher.mpi == Mpi::Mpich {
        // Over UCX's TCP alone MPICH 4.0 hangs in MPI_Finalize, whatever is preloaded.
        job = job.with("UCX_TLS", "tcp,sm,self").with("UCX_WARN_UNUSED_ENV_VARS", "n");
    }
    let outcome = job.succeed(&program, arguments);
    assert_gone(words.0, || processes_with(program.to_str().unwrap()));
    outcome
}

/// The tests run the same programs, and each checks that none is left.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs all programs on this many hosts with this many ranks on each.
fn assert_calls_are_taken_across(hosts: u32, per_host: u32) {
    if !is_root() {
        return;
    }
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for site in sites() {
        let (lab, ranks) = (Lab::up(hosts), hosts * per_host);
        for seed in [1, 2] {
            let arguments = format!("--quiet --seed {seed} --steps 10");
            let words = ("mix", &*arguments);
            let plain = run(&lab, Job::plain(&site, ranks), &site, per_host, words);
            let preloaded = run(&lab, Job::preloaded(&site, ranks), &site, per_host, words);
            assert_eq!(plain.line("mix: seed"), preloaded.line("mix: seed"), "{arguments}");
            let world = preloaded.world();
            assert!(world.ranks == ranks && world.bcasts.taken > 0, "{world:?}");
            assert!(world.barriers.are_taken(), "{world:?}");
        }
        let ops = "bcast,ibcast,barrier,ibarrier,allreduce,reduce,allgather,reduce_scatter";
        let options = format!("--ops {ops} --check --root turns --iterations 20");
        let arguments = format!("{options} --sizes 8,1500,32k");
        let words = ("collbench", &*arguments);
        let job = Job::preloaded(&site, ranks);
        let world = run(&lab, job, &site, per_host, words).world();
        assert!(world.bcasts.are_taken() && world.barriers.are_taken(), "{world:?}");
        assert!(world.allreduces.are_taken() && world.reduces.are_taken(), "{world:?}");
        assert!(world.allgathers.are_taken(), "{world:?}");
        // Those with up to 8 KiB in all blocks: of 8 bytes each, and of 1500 at four ranks.
        let short = if ranks > 4 { 1 } else { 2 };
        assert!(world.reduce_scatters.taken * 3 == world.reduce_scatters.all * short, "{world:?}");
        assert_what_is_started_is_taken_across(&lab, &site, per_host);
        assert_packets_were_lost(&lab);
    }
}

/// Nonblocking reductions and gathers, alone and among other calls.
fn assert_what_is_started_is_taken_across(lab: &Lab, site: &Site, per_host: u32) {
    let ranks = lab.hosts * per_host;
    let options = "--ops iallreduce,ireduce,iallgather --check --root turns --iterations 20";
    let arguments = format!("{options} --sizes 8,64");
    let words = ("collbench", &*arguments);
    let world = run(lab, Job::preloaded(site, ranks), site, per_host, words).world();
    assert!(world.allreduces.are_taken() && world.reduces.are_taken(), "{world:?}");
    assert!(world.allgathers.are_taken(), "{world:?}");
    // Each of its communicators has one blocking call, which connects its ranks.
    let job = Job::plain(site, ranks).with_library(&site.eager);
    let outcome = run(lab, job, site, per_host, ("started", ""));
    outcome.line("started: ok");
    let taken: u64 = outcome.report().iter().map(|line| line.reduces.taken).sum();
    assert!(taken > 100, "{outcome:?}");
}

/// Asserts that the links have lost packets, which the test is about.
fn assert_packets_were_lost(lab: &Lab) {
    let list = omnes(&["lab", "list", "--format", "json"]);
    let labs: Vec<serde_json::Value> = serde_json::from_str(&list).unwrap();
    let own = labs.iter().find(|other| other["name"] == lab.name.as_str()).unwrap();
    let hosts = own["hosts"].as_array().unwrap();
    let lost: u64 = hosts.iter().map(|host| host["dropped"].as_u64().unwrap()).sum();
    assert!(lost > 0, "{own}");
}

#[test]
fn mpi_calls_are_intercepted_across_lossy_hosts() {
    assert_calls_are_taken_across(4, 1);
}

#[test]
fn mpi_calls_are_intercepted_with_two_ranks_per_host() {
    assert_calls_are_taken_across(4, 2);
}

/// For `cargo test -p omnes-cli --test mpi -- --ignored`.
#[test]
#[ignore = "takes minutes where the ranks outnumber the cores"]
fn mpi_calls_are_intercepted_at_up_to_sixteen_ranks_in_any_placement() {
    for (hosts, per_host) in [(2, 1), (3, 1), (8, 1), (2, 4), (16, 1), (8, 2)] {
        assert_calls_are_taken_across(hosts, per_host);
    }
}
