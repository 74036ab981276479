//! Why a rank could not join its job.

use crate::duration::shortest;
use omnes_wire::Rank;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use thiserror::Error;

/// Largest job that can start; each rank has a table of all ranks.
pub(crate) const RANKS_MAX: u32 = 1 << 16;

/// Ranks as text: all if there are few, otherwise the first ones.
pub(crate) fn list(ranks: &[u32]) -> String {
    const SHOWN: usize = 16;
    let shown: Vec<String> = ranks.iter().take(SHOWN).map(u32::to_string).collect();
    match ranks.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Addresses as text.
fn texts(addresses: &[IpAddr]) -> String {
    addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
}

/// Paths between hosts as text: all if there are few, otherwise the first ones.
pub(crate) fn list_ways(ways: &[(IpAddr, IpAddr)]) -> String {
    const SHOWN: usize = 4;
    let shown = ways.iter().take(SHOWN).map(|(from, to)| format!("from {from} to {to}"));
    let mut shown: Vec<String> = shown.collect();
    if ways.is_empty() {
        shown.push("from host to host".to_owned());
    } else if ways.len() > SHOWN {
        shown.push("on other ways".to_owned());
    }
    shown.join(", ")
}

/// Remark on the part of address translation in the loss of packets.
fn remark(nat: Option<(Rank, IpAddr, IpAddr)>) -> String {
    let Some((rank, own, seen)) = nat else { return String::new() };
    format!(
        "; rank {rank} is behind NAT (its own address is {own}, rank 0 sees {seen}), which they do \
         not pass: give it an address that all hosts reach, a container its host's network"
    )
}

/// Why a rank could not join; each message names the value concerned and the remedy.
#[derive(Debug, Error)]
pub enum NetError {
    /// None of the addresses that this rank may use has the IP version of the rendezvous address.
    #[error(
        "the ranks meet at {reached}, but none of the addresses that this rank may use ({}) is of \
         that kind; name an interface with an IPv{} address, or meet at an IPv{} address",
        texts(.own),
        if reached.is_ipv4() { 4 } else { 6 },
        if reached.is_ipv4() { 6 } else { 4 }
    )]
    NoAddressOfKind {
        /// Addresses that this rank may use.
        own: Vec<IpAddr>,
        /// Its address towards rank 0; at rank 0, the rendezvous address.
        reached: IpAddr,
    },
    /// The rendezvous address denotes a different host on each link.
    #[error(
        "the rendezvous address '{address}' is a link-local one, which ranks cannot use; give a \
         global or unique-local one"
    )]
    LinkLocal {
        /// The address given.
        address: String,
    },
    /// This host has no route to another rank's address.
    #[error(
        "rank {rank} at {address} cannot be reached from this host: {source}; set OMNES_INTERFACE \
         to a network that all hosts share"
    )]
    NoRoute {
        /// The other rank.
        rank: Rank,
        /// Its address.
        address: SocketAddr,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The rendezvous address cannot be resolved here.
    #[error(
        "cannot resolve the rendezvous address '{address}': {source}; give host:port, the host by \
         an address or by a name that all machines of the job know (not only ssh)"
    )]
    Resolve {
        /// The address given.
        address: String,
        /// The resolver's error.
        source: std::io::Error,
    },
    /// Rank 0 cannot listen at the rendezvous address.
    #[error(
        "rank 0 cannot listen at '{address}': {source}; it must be an address of rank 0's \
         host with a free port"
    )]
    Listen {
        /// The address given.
        address: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// No process answers at the rendezvous address.
    #[error(
        "rank 0 cannot be reached at '{address}' within {}: {source}; is it running, \
         and is the port open?",
        shortest(*.waited)
    )]
    Unreachable {
        /// The address given.
        address: String,
        /// How long this rank has tried.
        waited: Duration,
        /// Error of the last attempt.
        source: std::io::Error,
    },
    /// The connection to rank 0 broke during the rendezvous.
    #[error("lost the connection to rank 0 at '{address}' during the rendezvous: {source}")]
    RendezvousLost {
        /// The address.
        address: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// No UDP packet gets from one host of the job to another.
    #[error(
        "UDP packets do not get {}, though TCP gets from there to rank 0: firewalls must pass UDP \
         between all hosts, to the ports of net.ipv4.ip_local_port_range, by default 32768 to \
         60999{}",
        list_ways(.ways),
        remark(*.nat)
    )]
    NoUdp {
        /// Pairs of hosts, from and to; other pairs were not tried.
        ways: Vec<(IpAddr, IpAddr)>,
        /// A rank, not rank 0, of the first of these pairs.
        silent: Rank,
        /// A rank behind NAT, if there is one: its own address, and the address that rank 0 sees.
        nat: Option<(Rank, IpAddr, IpAddr)>,
    },
    /// Another program listens where rank 0 should.
    #[error(
        "the program that listens at '{address}' is not rank 0 of an Omnes job; is the port in use \
         by another program?"
    )]
    NotRankZero {
        /// The address.
        address: String,
    },
    /// The limit of this process does not allow a connection to each of the other ranks.
    #[error(
        "rank 0 needs {needed} file descriptors, one per rank and some of its own, but may only \
         have {allowed}: raise the limit (ulimit -n) where rank 0 starts"
    )]
    Descriptors {
        /// Descriptors needed, including those that are open.
        needed: u64,
        /// The hard limit.
        allowed: u64,
    },
    /// A rank went away during the rendezvous.
    #[error("rank {rank} went away during the rendezvous: {source}")]
    RankLost {
        /// The rank.
        rank: Rank,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// Rank 0 would be another user's process, and there is no key that it could prove to know.
    #[error(
        "the process that listens at '{address}' belongs to user {user}, not to this one: set \
         OMNES_JOB_KEY, the same for all ranks, or use another port"
    )]
    OtherUser {
        /// The address.
        address: String,
        /// The user's number.
        user: u32,
    },
    /// Rank 0 has refused this rank.
    #[error("rank 0 refused: {reason}")]
    Refused {
        /// The reason that rank 0 gave.
        reason: String,
    },
    /// Two versions of Omnes in one job.
    #[error(
        "versions differ: this rank has {ours}, the other side {theirs}; use one version for \
         all ranks"
    )]
    Version {
        /// Ours.
        ours: String,
        /// Theirs.
        theirs: String,
    },
    /// Ranks disagree on the size of the job.
    #[error("rank {rank} says that the job has {theirs} ranks, rank 0 says {ours}")]
    SizeDiffers {
        /// The rank.
        rank: Rank,
        /// Rank 0's number.
        ours: u32,
        /// The rank's number.
        theirs: u32,
    },
    /// Two processes use the same rank number.
    #[error("two processes say that they are rank {rank}; each rank needs its own number")]
    RankTaken {
        /// The number.
        rank: Rank,
    },
    /// More ranks than a job can have.
    #[error("a job of {size} ranks is too large; at most {}", RANKS_MAX)]
    TooManyRanks {
        /// Ranks of the job.
        size: u32,
    },
    /// Ranks did not join in time.
    #[error(
        "ranks [{}] did not join within {}; are they running, and can they reach rank 0 at \
         {address}?{hint}",
        list(.ranks), shortest(*.waited)
    )]
    Missing {
        /// The missing ranks.
        ranks: Vec<u32>,
        /// How long rank 0 has waited.
        waited: Duration,
        /// Where rank 0 listens.
        address: SocketAddr,
        /// A possible reason, or nothing.
        hint: String,
    },
    /// The other side does not know the job key.
    #[error("rank {rank} does not know the job key; OMNES_JOB_KEY must be the same for all ranks")]
    WrongKey {
        /// The rank.
        rank: Rank,
    },
    /// Rank 0 has a key and this rank has none.
    #[error("rank 0 uses a job key, but this rank has none; set OMNES_JOB_KEY as for rank 0")]
    KeyMissing,
    /// Data are to be encrypted, but the key would be sent unencrypted.
    #[error("encryption needs a job key: set OMNES_JOB_KEY, the same for all ranks")]
    KeyWanted,
    /// Some ranks encrypt and others do not.
    #[error(
        "rank {rank} and rank 0 differ in whether they encrypt user data; OMNES_ENCRYPT must be \
         the same for all ranks"
    )]
    EncryptionDiffers {
        /// The rank.
        rank: Rank,
    },
    /// A setting differs between ranks.
    #[error(
        "{name} is {theirs} on rank {rank} and {ours} on rank 0; it must be the same for all ranks"
    )]
    SettingDiffers {
        /// The rank.
        rank: Rank,
        /// The name by which users know the setting.
        name: &'static str,
        /// Rank 0's value.
        ours: String,
        /// The rank's value.
        theirs: String,
    },
    /// The program's callback has ended the wait for the other ranks.
    #[error("the wait for the other ranks was interrupted")]
    Interrupted,
    /// The socket could not be created.
    #[error("cannot make a UDP socket at {address}: {source}")]
    Socket {
        /// The local address.
        address: std::net::IpAddr,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The kernel refused an operation that every Linux supports.
    #[error("{what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// Random numbers are not available.
    #[error("no random numbers for keys: {0}")]
    Random(String),
    /// A setting is out of range.
    #[error(transparent)]
    Config(#[from] omnes_proto::channel::ConfigError),
}
