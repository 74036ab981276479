//! Labs whose links fail, get a smaller MTU or are behind a router.

use crate::play::{Play, Rank};
use crate::{OMNES, RANKS};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A named lab with a host per rank; removed when dropped.
pub(crate) struct TestLab(String);

impl TestLab {
    pub(crate) fn up(flags: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let lab = Self(format!("fail-{}-{number}", std::process::id()));
        let mut command = Command::new(OMNES);
        command.args(["lab", "up", &RANKS.to_string(), "--name", &lab.0]);
        let done = command.args(flags.split_whitespace()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        lab
    }

    /// A command that starts its remaining arguments on a host.
    pub(crate) fn on_host(&self, host: u32) -> Command {
        let mut command = Command::new(OMNES);
        command.args(["lab", "exec", "--name", &self.0, &host.to_string(), "--"]);
        command
    }

    pub(crate) fn link(&self, host: u32, state: &str) {
        self.run_on(host, &["ip", "link", "set", "eth0", state]);
    }

    pub(crate) fn run_on(&self, host: u32, words: &[&str]) {
        let done: Output = self.on_host(host).args(words).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// From now on the switch forwards no longer packets to `host`, nor accepts them from there.
    pub(crate) fn narrow(&self, host: u32) {
        self.on_switch(&format!("ip link set p{host} mtu 1500"));
    }

    /// Runs `script` in the switch's namespace.
    pub(crate) fn on_switch(&self, script: &str) {
        let net = format!("--net=/run/omnes-lab/{}/net.switch", self.0);
        let mut command = Command::new("nsenter");
        let done = command.args([&net, "sh", "-ec", script]).output().unwrap();
        assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Makes two sites of the lab, hosts 0 and 1 and hosts 2 and 3, with a router between them that
    /// forwards no packets longer than 1,400 bytes. `is_silent`: without reporting it.
    pub(crate) fn part(&self, is_silent: bool) {
        self.on_switch(
            "ip link add br1 type bridge mcast_snooping 0
             for host in 2 3; do ip link set p$host master br1; done
             ip addr add 10.77.255.254/16 dev br0; ip addr add 10.78.255.254/16 dev br1
             ip link set br0 mtu 1400; ip link set br1 mtu 1400 up
             echo 1 >/proc/sys/net/ipv4/ip_forward",
        );
        if is_silent {
            // Only the router's own packets have lo as their input interface.
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
            self.run_on(host, &["sh", "-ec", &script]);
        }
    }

    pub(crate) fn start(&self, play: &Play<'_>) -> Vec<Rank> {
        let mut ranks = self.launch(play);
        ranks.iter_mut().for_each(Rank::wait_until_ready);
        ranks
    }

    /// Like [`Self::start`], without the wait.
    pub(crate) fn launch(&self, play: &Play<'_>) -> Vec<Rank> {
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
