//! Ranks as processes: this test program itself, started again to play a role.

use crate::{BY_DEFAULT, RANKS, SOON};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A rank, killed when dropped.
pub(crate) struct Rank {
    pub(crate) process: Child,
    output: BufReader<ChildStdout>,
}

impl Rank {
    pub(crate) fn wait_until_ready(&mut self) {
        self.wait_until("ready");
    }

    /// Waits until the rank prints `word`.
    pub(crate) fn wait_until(&mut self, word: &str) {
        let mut line = String::new();
        while line.trim_end() != word {
            line.clear();
            let bytes = self.output.read_line(&mut line).unwrap();
            assert!(bytes > 0, "{}", self.errors());
        }
    }

    pub(crate) fn errors(&mut self) -> String {
        let mut errors = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        errors
    }

    pub(crate) fn signal(&self, signal: i32) {
        let process = libc::pid_t::try_from(self.process.id()).unwrap();
        // SAFETY: plain system call; the process is our child and has not been waited for.
        assert_eq!(unsafe { libc::kill(process, signal) }, 0);
    }

    /// Status and errors of a rank that ends before `deadline`.
    pub(crate) fn finish(&mut self, deadline: Instant) -> (Option<i32>, String) {
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

/// The roles in a job.
#[derive(Clone, Copy)]
pub(crate) struct Play<'a> {
    pub(crate) role: &'a str,
    pub(crate) victim: u32,
    pub(crate) fate: &'a str,
    /// Silence after which a rank has failed; unset for the default.
    pub(crate) peer_timeout: Option<Duration>,
}

impl<'a> Play<'a> {
    pub(crate) fn new(role: &'a str, victim: u32, fate: &'a str) -> Self {
        Self { role, victim, fate, peer_timeout: Some(SOON) }
    }

    pub(crate) fn limit(&self) -> Duration {
        self.peer_timeout.unwrap_or(BY_DEFAULT)
    }

    /// Starts the ranks by `command`, a command on the host of a rank, and waits until all are
    /// ready.
    pub(crate) fn start(&self, rendezvous: &str, command: impl Fn(u32) -> Command) -> Vec<Rank> {
        let mut ranks = self.launch(rendezvous, command);
        ranks.iter_mut().for_each(Rank::wait_until_ready);
        ranks
    }

    /// Like [`Self::start`], without the wait.
    pub(crate) fn launch(&self, rendezvous: &str, command: impl Fn(u32) -> Command) -> Vec<Rank> {
        let start = |rank: u32| {
            let mut command = command(rank);
            command.args(["--exact", "roles::plays_a_role", "--nocapture"]);
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

    pub(crate) fn start_here(&self) -> Vec<Rank> {
        let port = omnes::free_port(std::net::Ipv4Addr::LOCALHOST.into()).unwrap();
        self.start(&format!("127.0.0.1:{port}"), |_| Command::new(std::env::current_exe().unwrap()))
    }

    /// All ranks except the victim end within the limit, naming it.
    pub(crate) fn assert_named(&self, ranks: &mut [Rank], since: Instant) {
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
