//! How the ranks of a job find each other: every rank reports to rank 0, which answers all with a
//! table of addresses, and lets them go when each has it.
//!
//! One TCP connection per rank, one JSON line each way, and a few bytes at the end. With a job key
//! both sides prove that they know it, by answering a challenge over their messages, before
//! anything is trusted; without one, rank 0 draws a key and distributes it, which trusts the
//! network during the start. Other users of the same machine are then rejected, because the kernel
//! reports to whom a connecting process belongs.
//!
//! | module | what it does |
//! |---|---|
//! | `server` | rank 0: which ranks it admits, and the table that all get |
//! | `pending` | rank 0: connections that have not identified themselves |
//! | `distribution` | rank 0: distribution of the table to all ranks, and their release |
//! | `client` | the other ranks' side |
//! | `signed_line` | lines with a proof that their writer knows the key |

mod client;
mod distribution;
mod pending;
mod server;
pub(crate) mod signed_line;

pub(crate) use distribution::{GO_TIME_MAX, NUDGES_MAX, READY};

use crate::cipher::SEALED_BYTES;
use crate::core_sharing::{CoreSharing, Machine};
use crate::deadline::Deadline;
use crate::error::NetError;
use crate::ring::NodeId;
use crate::table::Ports;
use crate::trial::{Question, Trial, payloads};
use crate::while_waiting::WhileWaiting;
use omnes_proto::limits::{PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MIN};
use omnes_wire::{JobId, JobKey, PACKET_OVERHEAD_BYTES, Rank};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Version of these lines; ranks of different versions reject each other.
pub(crate) const PROTOCOL: u32 = 12;
/// Wait before an unknown name is resolved again.
const RESOLVE_WAIT: Duration = Duration::from_millis(500);

/// Parameters of a rank for the rendezvous.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    pub(crate) rank: Rank,
    pub(crate) size: u32,
    /// `host:port` of rank 0.
    pub(crate) address: String,
    /// See [`JobConfig::addresses`](crate::JobConfig::addresses).
    pub(crate) own: Vec<IpAddr>,
    /// A listener at that address, at rank 0; rank 0 opens one itself if there is none.
    pub(crate) listener: Option<TcpListener>,
    pub(crate) key: Option<JobKey>,
    pub(crate) timeout: Duration,
    pub(crate) while_waiting: Option<WhileWaiting>,
    /// The node within which this rank may share memory; `None` if it may not.
    pub(crate) node: Option<NodeId>,
    pub(crate) encryption: bool,
    /// See [`JobConfig::alike`](crate::JobConfig::alike).
    pub(crate) alike: Vec<(&'static str, String)>,
}

/// Result of the rendezvous for a rank.
pub(crate) struct Met {
    pub(crate) job: JobId,
    pub(crate) key: JobKey,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) payload_bytes: u16,
    /// Paths on which longer packets do not pass, if that is why the job's packets are shorter.
    pub(crate) narrow: Option<Narrow>,
    pub(crate) core_sharing: CoreSharing,
    /// Ranks that share memory, each node's lowest first.
    pub(crate) nodes: Vec<Vec<u32>>,
    /// Time at which this rank has received the go, or sent it.
    pub(crate) went_at: Instant,
    /// Connections to keep: to rank 0, or at rank 0 to all others.
    pub(crate) streams: Vec<(Rank, TcpStream)>,
}

/// Why a job's packets are shorter than the hosts' links allow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Narrow {
    /// Payload of the packets that were tested, in bytes.
    pub(crate) payload_bytes: u16,
    /// Pairs of hosts, from and to, between which they do not pass; only known at rank 0.
    pub(crate) ways: Vec<(IpAddr, IpAddr)>,
}

/// This rank's sockets for incoming packets, opened when its own address is known.
pub(crate) struct Local {
    pub(crate) ports: Ports,
    /// Largest payload of a packet that fits this rank's link.
    pub(crate) payload_bytes: u16,
    /// Payloads to use if longer packets do not get to other hosts, in descending order.
    pub(crate) lesser_payloads: Vec<u16>,
    /// For testing which of them pass; `None` if the user has set the length.
    pub(crate) trial: Option<Trial>,
}

impl Local {
    /// Port of the trial, 0 if there is none.
    pub(crate) fn trial_port(&self) -> Result<u16, NetError> {
        let port = self.trial.as_ref().map_or(Ok(0), Trial::port);
        port.map_err(|source| NetError::System { what: "local port", source })
    }
}

/// Rank 0's first line.
#[derive(Serialize, Deserialize)]
pub(crate) struct Challenge {
    pub(crate) omnes: u32,
    pub(crate) challenge: u64,
}

/// The part of a rank's line that stays the same in all versions, so that ranks of different
/// versions can report the difference to each other.
#[derive(Deserialize)]
pub(crate) struct Introduction {
    version: String,
    rank: u32,
    challenge: u64,
}

/// A rank's only line, [`Signed`](signed_line::Signed).
#[derive(Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: String,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// Address at which its packets arrive, if it is not the address of this connection.
    pub(crate) address: Option<IpAddr>,
    pub(crate) ports: Ports,
    pub(crate) payload_bytes: u16,
    pub(crate) trial_port: u16,
    /// Address of this end of the connection, as this end sees it.
    pub(crate) reached: IpAddr,
    pub(crate) machine: Machine,
    pub(crate) node: Option<NodeId>,
    pub(crate) encryption: bool,
    /// Values of settings, whose names are in the same order on all ranks.
    pub(crate) alike: Vec<String>,
    pub(crate) challenge: u64,
}

/// Rank 0's line, [`Signed`](signed_line::Signed).
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Refused(String),
    /// A [`Table`](crate::table::Table) for all follows.
    Table {
        digest: u64,
        core_sharing: CoreSharing,
    },
}

/// Random bytes that cannot be guessed.
///
/// # Errors
/// [`NetError::Random`] if the kernel provides none.
pub fn random<const N: usize>() -> Result<[u8; N], NetError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| NetError::Random(error.to_string()))?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The role of rank 0 in a [`Signed`](signed_line::Signed) line; no rank has this number.
pub(crate) const SERVER: u32 = u32::MAX;

pub(crate) fn is_payload(bytes: u16) -> bool {
    (PAYLOAD_BYTES_MIN..=PAYLOAD_BYTES_MAX).contains(&bytes)
}

/// Resolves `host:port` to addresses; loopback addresses are returned only if there are no others.
fn resolve(address: &str) -> std::io::Result<Vec<SocketAddr>> {
    let mut resolved: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    if resolved.iter().any(|address| !address.ip().is_loopback()) {
        resolved.retain(|address| !address.ip().is_loopback());
    }
    if resolved.is_empty() { Err(ErrorKind::NotFound.into()) } else { Ok(resolved) }
}

/// True for an address that needs a zone, which the tables of ranks do not carry.
fn is_link_local(address: &SocketAddr) -> bool {
    matches!(address.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local())
}

impl Rendezvous {
    /// Meets the other ranks. `local` opens this rank's socket once its address is known; its
    /// arguments are that address and those of the peers that the rank knows, one for each host.
    pub(crate) fn meet(
        self,
        local: impl FnOnce(IpAddr, &[SocketAddr]) -> Result<Local, NetError>,
    ) -> Result<Met, NetError> {
        if self.rank == Rank(0) { self.serve(local) } else { self.report(local) }
    }

    /// Addresses of rank 0; never empty.
    pub(crate) fn resolve(&self, until: &mut Deadline<'_>) -> Result<Vec<SocketAddr>, NetError> {
        let link_local = || NetError::LinkLocal { address: self.address.clone() };
        // The resolver does not know a text with a zone and brackets.
        if self.address.starts_with('[') && self.address.contains('%') {
            return Err(link_local());
        }
        loop {
            let left = until.left();
            match resolve(&self.address) {
                Ok(addresses) if addresses.iter().all(is_link_local) => return Err(link_local()),
                Ok(addresses) => return Ok(addresses),
                // A host that has just started may get its name later; an invalid text stays
                // invalid.
                Err(source) if source.kind() == ErrorKind::InvalidInput || left.is_zero() => {
                    return Err(NetError::Resolve { address: self.address.clone(), source });
                }
                Err(_) => until.sleep(RESOLVE_WAIT.min(left)).map_err(|it| self.lost(it))?,
            }
        }
    }

    pub(crate) fn lost(&self, source: std::io::Error) -> NetError {
        let source = match source.kind() {
            ErrorKind::Interrupted => return NetError::Interrupted,
            ErrorKind::InvalidData => {
                return NetError::NotRankZero { address: self.address.clone() };
            }
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                std::io::Error::new(source.kind(), "whoever listens there does not answer in time")
            }
            _ => source,
        };
        NetError::RendezvousLost { address: self.address.clone(), source }
    }

    /// Chooses the address of this rank's packets, given that the rendezvous uses `reached`.
    pub(crate) fn choose_own(&self, reached: IpAddr) -> Result<IpAddr, NetError> {
        if self.own.is_empty() || self.own.contains(&reached) {
            return Ok(reached);
        }
        let fits = self.own.iter().find(|own| own.is_ipv4() == reached.is_ipv4());
        fits.copied().ok_or_else(|| NetError::NoAddressOfKind { own: self.own.clone(), reached })
    }

    /// Address to report to others: none if each of them knows it by its connection to this rank.
    pub(crate) fn advertised_address(&self, own: IpAddr) -> Option<IpAddr> {
        (!self.own.is_empty()).then_some(own)
    }

    /// Parameters of the trial that finds which packets get from host to host, in a job whose
    /// longest packets have `payload_bytes` of payload.
    pub(crate) fn question<'a>(
        &self,
        job: JobId,
        key: &'a JobKey,
        local: &Local,
        payload_bytes: u16,
    ) -> Question<'a> {
        let sealed = if self.encryption { SEALED_BYTES } else { 0 };
        let length = |payload| PACKET_OVERHEAD_BYTES + sealed + usize::from(payload);
        let payloads = payloads(payload_bytes, &local.lesser_payloads);
        Question { me: self.rank, job, key, lengths: payloads.into_iter().map(length).collect() }
    }
}

impl Met {
    /// Adapts the result if only packets of that `place` among the tested lengths get from host to
    /// host: of the shortest, which carry no data, it is only known that longer ones do not pass.
    pub(crate) fn narrowed(self, place: u8, ways: Vec<(IpAddr, IpAddr)>, local: &Local) -> Self {
        let payloads = payloads(self.payload_bytes, &local.lesser_payloads);
        let payload_bytes = payloads[usize::from(place).min(payloads.len() - 1)];
        if payload_bytes == self.payload_bytes {
            return self;
        }
        let narrow = Some(Narrow { payload_bytes: self.payload_bytes, ways });
        Self { payload_bytes, narrow, ..self }
    }
}

#[cfg(test)]
mod tests;
