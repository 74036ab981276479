//! Where the ranks of a job run: this machine, the hosts of a lab, or hosts reached by ssh.
//!
//! A *site* is what the flags request; a *place* is the result for one rank. Placement is a pure
//! function of (number of ranks, site), so `--dry-run` shows what a run does.
//!
//! - here: every rank on this machine, rendezvous on the loopback address;
//! - lab: rank i on host i mod size, rendezvous at the address of rank 0's host;
//! - ssh: slots in the order of the list; `a:2,b` gives ranks 0 and 1 to `a`, rank 2 to `b`;
//!   [`super::hosts`] parses the hosts.
//!
//! "Local" means *shares the cores*: the hosts of a lab are one machine, so every rank of a lab is
//! local to every other, on whichever host. Waiting strategies depend on shared cores, not on
//! addresses.
//!
//! The rendezvous port is free when it is picked, not reserved: it is bound on rank 0's host and
//! released. For ssh hosts it is drawn at random below the ephemeral port range of kernels; a
//! conflict shows as an error of rank 0, and a second run draws another port.

use super::hosts::{self, SshHost};
use super::job::random_bytes;
use crate::lab::{HOSTS_MAX, Lab, LinkOptions};
use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// Maximum number of ranks of one launcher; beyond it, a cluster's own launcher is the right tool.
pub const RANKS_MAX: usize = 4096;

/// Ports drawn for ssh hosts: above the registered services most sites use, below 32768, where the
/// ephemeral port range of Linux begins.
const RANDOM_PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Options that say where ranks run.
#[derive(clap::Args)]
pub struct SiteArgs {
    /// Run on lab hosts: `ephemeral` (as many hosts as ranks), a number of hosts, or the NAME of a
    /// lab made by `omnes lab up`
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "ephemeral")]
    #[arg(conflicts_with = "remote")]
    lab: Option<String>,
    /// Run over ssh on these hosts, with the number of slots after a colon, such as
    /// a,b:2,user@c:4,node[1-4,7]; IPv6 addresses are in brackets
    #[arg(long, value_name = "HOST[:SLOTS],...", group = "remote")]
    hosts: Option<String>,
    /// Run over ssh on the hosts in this file, one per line: HOST, HOST:SLOTS or HOST slots=N; `#`
    /// starts a comment
    #[arg(long, value_name = "FILE", group = "remote")]
    hostfile: Option<PathBuf>,
    /// Command to use instead of ssh, split at spaces; it gets the host and one command line
    #[arg(long, value_name = "COMMAND", requires = "remote")]
    #[arg(
        default_value = "ssh -T -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=15"
    )]
    ssh: String,
    /// Use IPv6 addresses on this machine and in labs
    #[arg(long, conflicts_with = "remote")]
    ipv6: bool,
    /// Faults and rate of the links of an ephemeral lab.
    #[command(flatten)]
    link: Option<LinkOptions>,
}

/// A lab that is up, or one still to be created.
pub struct LabSite {
    /// `None` for an ephemeral lab until [`Site::build`]; the lab lives as long as this value.
    pub lab: Option<Lab>,
    hosts: usize,
    /// Links of a lab still to be created.
    link: LinkOptions,
    ipv6: bool,
}

/// Where a job runs, checked.
pub enum Site {
    /// This machine.
    Here {
        /// Whether the address is `[::1]` instead of `127.0.0.1`.
        ipv6: bool,
    },
    /// Hosts of a lab.
    Lab(Box<LabSite>),
    /// Hosts reached by ssh.
    Ssh {
        /// Program and leading arguments.
        ssh: Vec<String>,
        /// In the order of the list; names are unique.
        hosts: Vec<SshHost>,
    },
}

/// The host of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// This machine.
    Here,
    /// Host of the lab, by index.
    Lab(usize),
    /// Host reached by ssh, by name.
    Ssh(String),
}

/// Where one rank runs, and which ranks share its cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// `0..size`.
    pub rank: usize,
    /// Host of the rank.
    pub host: Host,
    /// Index among the ranks that share its machine's cores.
    pub local_rank: usize,
    /// Number of ranks that share its machine's cores.
    pub local_size: usize,
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Host::Here => write!(f, "this machine"),
            Host::Lab(index) => write!(f, "lab host {index}"),
            Host::Ssh(name) => write!(f, "{name}"),
        }
    }
}

impl SiteArgs {
    /// Hosts to reach by ssh, if any were given. A hostfile may be a pipe, so it is read only once.
    ///
    /// Errors: malformed `--hosts` or `--hostfile`.
    pub fn ssh_hosts(&self) -> Result<Option<Vec<SshHost>>> {
        match (&self.hosts, &self.hostfile) {
            (Some(list), _) => hosts::parse(list).map(Some),
            (None, Some(path)) => hosts::read(path).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Checks the flags for a job of `ranks` on `hosts` (from [`Self::ssh_hosts`]); opens a named
    /// lab, creates nothing.
    ///
    /// Errors name the value and the remedy: more ranks than slots, link options without an
    /// ephemeral lab, a lab that is not up.
    pub fn resolve(self, ranks: usize, hosts: Option<Vec<SshHost>>) -> Result<Site> {
        if let Some(hosts) = hosts {
            ensure!(self.link.is_none(), "link options such as --loss need --lab, not ssh");
            let ssh: Vec<String> = self.ssh.split_whitespace().map(str::to_owned).collect();
            ensure!(!ssh.is_empty(), "--ssh is empty: name a command, such as --ssh \"ssh -p 22\"");
            let slots = slots(&hosts);
            let source = match (self.hosts, self.hostfile) {
                (Some(list), _) => format!("--hosts {list}"),
                (None, file) => format!("--hostfile {}", file.unwrap_or_default().display()),
            };
            ensure!(
                ranks <= slots,
                "-n {ranks}: the hosts of {source} have room for {slots}; \
                 add hosts, or slots as in HOST:{ranks}"
            );
            return Ok(Site::Ssh { ssh, hosts });
        }
        match self.lab {
            None => {
                ensure!(self.link.is_none(), "link options such as --loss need --lab");
                Ok(Site::Here { ipv6: self.ipv6 })
            }
            Some(name) => resolve_lab(&name, ranks, self.link, self.ipv6),
        }
    }
}

/// Number of ranks that the hosts have slots for.
pub fn slots(hosts: &[SshHost]) -> usize {
    hosts.iter().map(|host| host.slots).sum()
}

fn resolve_lab(name: &str, ranks: usize, link: Option<LinkOptions>, ipv6: bool) -> Result<Site> {
    let hosts = match name {
        "ephemeral" => Some(ranks),
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(
            digits
                .parse()
                .ok()
                .filter(|hosts| (1..=HOSTS_MAX).contains(hosts))
                .with_context(|| format!("--lab {digits}: hosts must be 1 to {HOSTS_MAX}"))?,
        ),
        _ => None,
    };
    if let Some(hosts) = hosts {
        let link = link.unwrap_or_default();
        return Ok(Site::Lab(Box::new(LabSite { lab: None, hosts, link, ipv6 })));
    }
    ensure!(
        link.is_none(),
        "--lab {name}: the links of a lab that is up are changed by `omnes lab set --name {name}`"
    );
    let lab = Lab::open(name)?;
    let (hosts, link) = (lab.size(), LinkOptions::default());
    Ok(Site::Lab(Box::new(LabSite { lab: Some(lab), hosts, link, ipv6 })))
}

impl Site {
    /// Creates the ephemeral lab, if one was asked for and does not exist yet; restarts the hold
    /// loop of a lab that is up.
    pub fn build(&mut self) -> Result<()> {
        let Site::Lab(site) = self else { return Ok(()) };
        match &site.lab {
            Some(lab) => lab.restore_hold()?,
            None => site.lab = Some(Lab::ephemeral(site.hosts, &site.link)?),
        }
        Ok(())
    }

    /// One place per rank, in rank order; `ranks` fits the site, as [`SiteArgs::resolve`] checked.
    pub fn places(&self, ranks: usize) -> Vec<Place> {
        let together = |host: fn(usize, usize) -> Host, hosts: usize| {
            (0..ranks)
                .map(|rank| Place {
                    rank,
                    host: host(rank, hosts),
                    local_rank: rank,
                    local_size: ranks,
                })
                .collect()
        };
        match self {
            Site::Here { .. } => together(|_, _| Host::Here, 1),
            Site::Lab(site) => together(|rank, hosts| Host::Lab(rank % hosts), site.hosts),
            Site::Ssh { hosts, .. } => ssh_places(ranks, hosts),
        }
    }

    /// `host:port` of the rendezvous at rank 0; IPv6 addresses are in brackets.
    pub fn rendezvous(&self) -> Result<String> {
        match self {
            Site::Here { ipv6 } => {
                let loopback: IpAddr =
                    if *ipv6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
                let port = omnes::free_port(loopback)
                    .with_context(|| format!("no free port on {loopback}"))?;
                Ok(SocketAddr::new(loopback, port).to_string())
            }
            Site::Lab(site) => {
                let Some(lab) = &site.lab else {
                    return Ok("(lab host 0):(free port)".to_owned());
                };
                let address = lab.address(0, site.ipv6);
                let port = free_port_in_lab(lab, address)
                    .with_context(|| format!("no free port on lab host 0 ({address})"))?;
                Ok(SocketAddr::new(address, port).to_string())
            }
            Site::Ssh { hosts, .. } => {
                let host = hosts.first().expect("resolve checked that there is a slot per rank");
                // ssh takes user@host; the network needs the host alone.
                let name = hosts::machine(&host.name);
                let port = random_port()?;
                Ok(if name.contains(':') {
                    format!("[{name}]:{port}")
                } else {
                    format!("{name}:{port}")
                })
            }
        }
    }
}

fn ssh_places(ranks: usize, hosts: &[SshHost]) -> Vec<Place> {
    let mut places = Vec::with_capacity(ranks);
    for host in hosts {
        let first = places.len();
        let local_size = host.slots.min(ranks - first);
        places.extend((0..local_size).map(|local_rank| Place {
            rank: first + local_rank,
            host: Host::Ssh(host.name.clone()),
            local_rank,
            local_size,
        }));
    }
    places
}

fn random_port() -> Result<u16> {
    let span = u32::from(RANDOM_PORTS.end - RANDOM_PORTS.start);
    let offset =
        u16::try_from(u32::from_le_bytes(random_bytes()?) % span).expect("span fits a port");
    Ok(RANDOM_PORTS.start + offset)
}

/// Binds port 0 inside rank 0's namespace, in a child process that does nothing else.
fn free_port_in_lab(lab: &Lab, address: IpAddr) -> Result<u16> {
    let mut probe = Command::new("true");
    lab.enter_in(0, &mut probe)?;
    let (mut reader, mut writer) = std::io::pipe()?;
    // SAFETY: the hook runs between fork and exec; it only makes the system calls socket, bind,
    // listen, getsockname, write and close, allocates nothing and takes no lock.
    unsafe {
        probe.pre_exec(move || {
            let port = TcpListener::bind((address, 0))?.local_addr()?.port();
            writer.write_all(&port.to_be_bytes())
        });
    }
    probe.status()?;
    drop(probe); // closes our copy of the writer, so that the read below can see its end
    let mut port = [0; 2];
    reader.read_exact(&mut port)?;
    Ok(u16::from_be_bytes(port))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn ssh_site(list: &str) -> Site {
        Site::Ssh { ssh: vec!["ssh".to_owned()], hosts: hosts::parse(list).unwrap() }
    }

    fn names(places: &[Place]) -> Vec<String> {
        places.iter().map(|place| place.host.to_string()).collect()
    }

    #[test]
    fn ranks_fill_slots_in_host_order() {
        let places = ssh_site("a,b:2,c").places(4);
        assert_eq!(names(&places), ["a", "b", "b", "c"]);
        let locals: Vec<_> = places.iter().map(|p| (p.local_rank, p.local_size)).collect();
        assert_eq!(locals, [(0, 1), (0, 2), (1, 2), (0, 1)]);
    }

    #[test]
    fn local_size_counts_ranks_not_slots() {
        let places = ssh_site("a:8").places(3);
        assert!(places.iter().all(|place| place.local_size == 3));
    }

    #[test]
    fn duplicate_hosts_are_merged() {
        let places = ssh_site("a,b,a").places(3);
        assert_eq!(names(&places), ["a", "a", "b"]);
    }

    #[test]
    fn lab_ranks_are_placed_round_robin_and_share_the_cores() {
        let link = LinkOptions::default();
        let site = LabSite { lab: None, hosts: 2, link, ipv6: false };
        let places = Site::Lab(Box::new(site)).places(3);
        assert_eq!(names(&places), ["lab host 0", "lab host 1", "lab host 0"]);
        assert!(places.iter().all(|place| place.local_size == 3));
    }

    #[test]
    fn ipv6_hosts_are_bracketed_only_in_the_rendezvous_address() {
        let site = ssh_site("[fd00::1]:2");
        assert_eq!(names(&site.places(2)), ["fd00::1", "fd00::1"]);
        assert!(site.rendezvous().unwrap().starts_with("[fd00::1]:"));
        let site = ssh_site("root@[fd00::1]:4,root@[fd00::2]");
        assert_eq!(names(&site.places(5))[3..], ["root@fd00::1", "root@fd00::2"]);
        assert!(site.rendezvous().unwrap().starts_with("[fd00::1]:"));
        assert!(ssh_site("user@b").rendezvous().unwrap().starts_with("b:"));
    }

    #[test]
    fn loopback_rendezvous_uses_the_requested_address_family() {
        let rendezvous = Site::Here { ipv6: false }.rendezvous().unwrap();
        assert!(rendezvous.starts_with("127.0.0.1:"), "{rendezvous}");
    }
}
