//! Hosts, and agents on them.

use crate::as_root::is_root;
use crate::outside::text;
use crate::{OMNES, OMNESD};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
/// Hosts with a network of their own; removed when dropped.
pub(crate) struct Hosts {
    owner: Child,
    pub(crate) networks: Vec<File>,
}

impl Hosts {
    /// `None`, with a message, for users who may not create hosts.
    pub(crate) fn new(count: usize) -> Option<Self> {
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
    pub(crate) fn inside<T: Send>(&self, host: usize, work: impl FnOnce() -> T + Send) -> T {
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

    /// Runs `omnes` inside a host, as a user.
    pub(crate) fn omnes_as(&self, host: usize, user: u32, words: &[&str]) -> Output {
        self.inside(host, || {
            let mut command = Command::new(OMNES);
            command.args(words).stdin(Stdio::null()).env_remove("OMNES_NIC");
            command.uid(user).gid(user).output().unwrap()
        })
    }

    pub(crate) fn omnes(&self, host: usize, words: &[&str]) -> String {
        let output = self.omnes_as(host, 0, words);
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    pub(crate) fn list(&self, host: usize) -> Value {
        serde_json::from_str(&self.omnes(host, &["nic", "list", "--format", "json"])).unwrap()
    }

    /// Value and verdict of `omnes doctor` for a job's NIC and a user.
    pub(crate) fn doctor(&self, host: usize, user: u32) -> (String, String) {
        let output = self.omnes_as(host, user, &["doctor", "--format", "json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap();
        let finding = findings.iter().find(|it| it["name"] == "NIC of a job").unwrap();
        let word = |name: &str| finding[name].as_str().unwrap().to_owned();
        (word("value"), word("verdict"))
    }

    pub(crate) fn interface(&self, host: usize) -> i32 {
        // SAFETY: the name ends with 0.
        self.inside(host, || unsafe { libc::if_nametoindex(c"eth0".as_ptr()) }) as i32
    }

    pub(crate) fn log_of_started_agent(&self, host: usize) -> PathBuf {
        let network = self.networks[host].metadata().unwrap().ino();
        PathBuf::from(format!("/run/omnes/omnesd-{network}.log"))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        drop(self.owner.stdin.take());
        self.owner.wait().unwrap();
        for host in 0..self.networks.len() {
            // Only those in which an agent was started by `omnes nic attach`.
            let _ = std::fs::remove_file(self.log_of_started_agent(host));
        }
    }
}

/// A running agent; killed when dropped.
pub(crate) struct Agent {
    pub(crate) process: Child,
    log: BufReader<ChildStderr>,
}

impl Agent {
    pub(crate) fn start(hosts: &Hosts, host: usize, words: &[&str]) -> Self {
        let mut command = Command::new(OMNESD);
        command.args(words);
        Self::start_by(hosts, host, command)
    }

    pub(crate) fn start_by(hosts: &Hosts, host: usize, mut command: Command) -> Self {
        let mut agent = hosts.inside(host, || {
            let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
            let log = BufReader::new(process.stderr.take().unwrap());
            Self { process, log }
        });
        agent.hear("serving");
        agent
    }

    /// The next line of the log that has `word`.
    pub(crate) fn hear(&mut self, word: &str) -> String {
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

    pub(crate) fn signal(&self, signal: libc::c_int) {
        // SAFETY: a process that nobody has reaped.
        assert_eq!(unsafe { libc::kill(self.process.id() as i32, signal) }, 0);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
