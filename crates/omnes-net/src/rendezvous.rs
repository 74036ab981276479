//! How the ranks of a job find each other: everybody reports to rank 0, who answers all with a
//! table of addresses.
//!
//! One TCP connection per rank, one JSON line each way. With a job key both sides prove that they
//! know it, by answering a challenge over what they say, before anything is believed; without one,
//! rank 0 draws a key and hands it out, which trusts the network for the length of the start. Other
//! users of the same machine are refused then, as the kernel tells whose process calls.

use crate::caller::{Callers, Spoken};
use crate::crowd::{Crowd, Machine};
use crate::deadline::Deadline;
use crate::duration::shortest;
use crate::error::NetError;
use crate::proof::{Signed, printable, read_line, write_line};
use crate::ring::Node;
use crate::user::stranger_at;
use crate::while_waiting::WhileWaiting;
use omnes_proto::limits::{PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MIN};
use omnes_wire::{JobId, JobKey, Rank};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Version of these lines; ranks of different versions refuse each other.
pub(crate) const PROTOCOL: u32 = 4;
/// Wait between attempts to reach rank 0.
const RETRY_WAIT: Duration = Duration::from_millis(20);
/// Wait between looks at who has come.
const LOOK_WAIT: Duration = Duration::from_millis(1);

/// What a rank brings to the rendezvous.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    pub(crate) rank: Rank,
    pub(crate) size: u32,
    /// `host:port` of rank 0.
    pub(crate) address: String,
    /// Listens there already, at rank 0; it does so itself where there is none.
    pub(crate) listener: Option<TcpListener>,
    pub(crate) key: Option<JobKey>,
    pub(crate) timeout: Duration,
    pub(crate) while_waiting: Option<WhileWaiting>,
    /// Where this rank may share memory with others; none if it may not.
    pub(crate) node: Option<Node>,
    pub(crate) encrypts: bool,
}

/// What it takes away.
pub(crate) struct Met {
    pub(crate) job: JobId,
    pub(crate) key: JobKey,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) payload_bytes: u16,
    pub(crate) crowd: Crowd,
    /// Ranks that share memory, each node's lowest first.
    pub(crate) nodes: Vec<Vec<u32>>,
    /// Connections to keep: to rank 0, or at rank 0 to all others.
    pub(crate) streams: Vec<(Rank, TcpStream)>,
}

/// Where this rank's packets come in, made when its own address is known.
pub(crate) struct Local {
    /// Port for packets of each rank, in order of ranks.
    pub(crate) ports: Vec<u16>,
    /// Largest payload of a packet that fits this rank's link.
    pub(crate) payload_bytes: u16,
}

/// Rank 0's first line.
#[derive(Serialize, Deserialize)]
pub(crate) struct Challenge {
    pub(crate) omnes: u32,
    pub(crate) challenge: u64,
}

/// What stays the same in a rank's line from version to version, so that versions which differ can
/// tell each other so.
#[derive(Deserialize)]
pub(crate) struct Introduction {
    version: String,
    rank: u32,
    challenge: u64,
}

/// A rank's only line, [`Signed`].
#[derive(Serialize, Deserialize)]
struct Hello {
    version: String,
    rank: u32,
    size: u32,
    ports: Vec<u16>,
    payload_bytes: u16,
    machine: Machine,
    node: Option<Node>,
    encrypts: bool,
    challenge: u64,
}

/// Rank 0's line, [`Signed`].

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    Refused(String),
    Table(Table),
}

#[derive(Clone, Serialize, Deserialize)]
struct Table {
    job: u32,
    /// Hexadecimal; absent where the ranks have a key already.
    key: Option<String>,
    /// Where each rank takes the packets of the reader, in order of ranks. Rank 0 does at the
    /// address under which it was reached.
    addresses: Vec<Option<SocketAddr>>,
    own_port: u16,
    payload_bytes: u16,
    crowd: Crowd,
    nodes: Vec<Vec<u32>>,
}

/// Random bytes that nobody can guess.
///
/// # Errors
/// [`NetError::Random`] if the kernel has none.
pub fn random<const N: usize>() -> Result<[u8; N], NetError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| NetError::Random(error.to_string()))?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Those that have come, by rank.
type Hellos = BTreeMap<u32, (Hello, SocketAddr, TcpStream)>;

/// The role of rank 0 in a [`Signed`] line; no rank has this number.
const SERVER: u32 = u32::MAX;

/// Where nobody listens yet, this end may draw the very port that it calls: TCP then connects it to
/// itself, and rank 0 could not listen any more.
fn refuse_itself(stream: TcpStream) -> std::io::Result<TcpStream> {
    match stream.local_addr()? == stream.peer_addr()? {
        true => Err(std::io::ErrorKind::ConnectionRefused.into()),
        false => Ok(stream),
    }
}

/// True if the other side has hung up.
fn is_cut_off(error: &std::io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

fn is_payload(bytes: u16) -> bool {
    (PAYLOAD_BYTES_MIN..=PAYLOAD_BYTES_MAX).contains(&bytes)
}

/// Resolves `host:port`; to an address of one machine alone only where there is no other.
pub(crate) fn resolve(address: &str) -> Result<SocketAddr, NetError> {
    let fail = |source| NetError::Resolve { address: address.to_owned(), source };
    let resolved: Vec<SocketAddr> = address.to_socket_addrs().map_err(fail)?.collect();
    let outward = resolved.iter().find(|address| !address.ip().is_loopback());
    outward.or(resolved.first()).copied().ok_or_else(|| fail(ErrorKind::NotFound.into()))
}

/// What may keep ranks of other machines from coming to `address`, which `given` has been resolved
/// to: many systems give the machine's own name an address of that machine alone.
fn hint(given: &str, address: SocketAddr) -> String {
    let host = given.rsplit_once(':').map_or(given, |(host, _)| host);
    let is_meant = host == "localhost" || host.starts_with("127.") || host.starts_with('[');
    match address.ip().is_loopback() && !is_meant {
        true => format!(
            " Only this machine can: '{host}' is {} here. See /etc/hosts, or set OMNES_RENDEZVOUS \
             to an address and a port",
            address.ip()
        ),
        false => String::new(),
    }
}

impl Rendezvous {
    /// Meets the other ranks. `local` makes this rank's socket once its address is known, given
    /// that address and those of the peers that it knows, one for each host.
    pub(crate) fn meet(
        mut self,
        local: impl FnOnce(IpAddr, &[SocketAddr]) -> Result<Local, NetError>,
    ) -> Result<Met, NetError> {
        let address = resolve(&self.address)?;
        if self.rank == Rank(0) { self.serve(address, local) } else { self.report(address, local) }
    }

    // ---- every other rank -----------------------------------------------------------------

    fn report(
        &self,
        address: SocketAddr,
        local: impl FnOnce(IpAddr, &[SocketAddr]) -> Result<Local, NetError>,
    ) -> Result<Met, NetError> {
        let mut until = Deadline::after(self.timeout, self.while_waiting.as_ref());
        let mut stream = self.connect(address, &mut until)?;
        let mut greeting = self.hear_greeting(&stream, &mut until)?;
        let own = stream.local_addr().map_err(|source| self.lost(source))?;
        let local = local(own.ip(), &[address])?;
        let challenge = u64::from_be_bytes(random()?);
        let hello = Hello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            rank: self.rank.0,
            size: self.size,
            ports: local.ports,
            payload_bytes: local.payload_bytes,
            machine: Machine::this(),
            node: self.node,
            encrypts: self.encrypts,
            challenge,
        };
        let signed = loop {
            match self.introduce(&stream, &hello, greeting.challenge, &mut until) {
                // So many are at rank 0's door that it has let this one go.
                Err(source) if is_cut_off(&source) && !until.left().is_zero() => {
                    until.sleep(RETRY_WAIT).map_err(|source| self.lost(source))?;
                    stream = self.call(address, &mut until).map_err(|source| self.lost(source))?;
                    greeting = self.hear_greeting(&stream, &mut until)?;
                }
                answered => break answered.map_err(|source| self.lost(source))?,
            }
        };
        let key = self.key.as_ref();
        let is_proven = signed.is_proven(key, challenge, SERVER);
        match signed.read().map_err(|source| self.lost(source))? {
            Reply::Refused(reason) if is_proven || key.is_none() => {
                Err(NetError::Refused { reason: printable(&reason) })
            }
            Reply::Table(table) if is_proven => self.accept(table, address, stream),
            Reply::Refused(_) | Reply::Table(_) => Err(NetError::WrongKey { rank: Rank(0) }),
        }
    }

    fn lost(&self, source: std::io::Error) -> NetError {
        let source = match source.kind() {
            ErrorKind::Interrupted => return NetError::Interrupted,
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                std::io::Error::new(source.kind(), "whoever listens there does not answer in time")
            }
            _ => source,
        };
        NetError::RendezvousLost { address: self.address.clone(), source }
    }

    fn hear_greeting(
        &self,
        stream: &TcpStream,
        until: &mut Deadline<'_>,
    ) -> Result<Challenge, NetError> {
        let greeting = until.wait_for(stream).and_then(|()| read_line(stream));
        let greeting: Challenge = greeting.map_err(|source| self.lost(source))?;
        if greeting.omnes != PROTOCOL {
            let (ours, theirs) = (PROTOCOL.to_string(), greeting.omnes.to_string());
            return Err(NetError::Version { ours, theirs });
        }
        match (&self.key, stranger_at(stream)) {
            (None, Some(user)) => Err(NetError::OtherUser { address: self.address.clone(), user }),
            _ => Ok(greeting),
        }
    }

    /// Rank 0's answer to this rank's report.
    fn introduce(
        &self,
        stream: &TcpStream,
        hello: &Hello,
        challenge: u64,
        until: &mut Deadline<'_>,
    ) -> std::io::Result<Signed> {
        write_line(stream, &Signed::new(hello, self.key.as_ref(), challenge, self.rank.0)?)?;
        until.wait_for(stream)?;
        read_line(stream)
    }

    fn accept(
        &self,
        table: Table,
        address: SocketAddr,
        stream: TcpStream,
    ) -> Result<Met, NetError> {
        let malformed = || NetError::Refused { reason: "rank 0 sent a malformed table".to_owned() };
        let key = match (&self.key, &table.key) {
            (Some(key), _) => key.clone(),
            (None, Some(hex)) => JobKey::from_hex(hex).map_err(|_| malformed())?,
            (None, None) => return Err(NetError::KeyMissing),
        };
        let is_mine = |node: &Vec<u32>| node.contains(&self.rank.0);
        let is_whole = table.addresses.len() == self.size as usize
            && is_payload(table.payload_bytes)
            && table.nodes.iter().any(is_mine)
            && table.nodes.iter().flatten().all(|rank| *rank < self.size);
        if !is_whole {
            return Err(malformed());
        }
        let own_address = SocketAddr::new(address.ip(), table.own_port);
        let addresses = table.addresses.into_iter().map(|entry| entry.unwrap_or(own_address));
        Ok(Met {
            job: JobId(table.job),
            key,
            addresses: addresses.collect(),
            payload_bytes: table.payload_bytes,
            crowd: table.crowd,
            nodes: table.nodes,
            streams: vec![(Rank(0), stream)],
        })
    }

    fn connect(
        &self,
        address: SocketAddr,
        until: &mut Deadline<'_>,
    ) -> Result<TcpStream, NetError> {
        loop {
            let left = until.left();
            let source = match self.call(address, until) {
                Ok(stream) => return Ok(stream),
                Err(source) if source.kind() == ErrorKind::Interrupted => {
                    return Err(self.lost(source));
                }
                Err(source) => source,
            };
            if left.is_zero() {
                let (address, waited) = (self.address.clone(), self.timeout);
                return Err(NetError::Unreachable { address, waited, source });
            }
            // Rank 0 may not have started yet.
            until.sleep(RETRY_WAIT.min(left)).map_err(|source| self.lost(source))?;
        }
    }

    /// A connection to rank 0, if it listens.
    fn call(&self, address: SocketAddr, until: &mut Deadline<'_>) -> std::io::Result<TcpStream> {
        let stream = refuse_itself(until.connect(&address, RETRY_WAIT)?)?;
        let left = until.left().max(RETRY_WAIT);
        let _ = stream.set_nodelay(true);
        let _ = stream.set_read_timeout(Some(left + self.timeout / 8));
        Ok(stream)
    }

    // ---- rank 0 ---------------------------------------------------------------------------

    fn serve(
        &mut self,
        address: SocketAddr,
        local: impl FnOnce(IpAddr, &[SocketAddr]) -> Result<Local, NetError>,
    ) -> Result<Met, NetError> {
        let mut callers = self.listen(address)?;
        let mut hellos = BTreeMap::new();
        let mut until = Deadline::after(self.timeout, self.while_waiting.as_ref());
        while hellos.len() + 1 < self.size as usize {
            if until.left().is_zero() {
                return Err(self.missing(hellos, address));
            }
            match callers.poll()? {
                Some(spoken) => self.admit(spoken, &mut hellos)?,
                None => until.sleep(LOOK_WAIT).map_err(|source| self.lost(source))?,
            }
        }
        let peers = hellos.values().map(|(_, from, _): &(Hello, SocketAddr, _)| (from.ip(), *from));
        let peers: BTreeMap<IpAddr, SocketAddr> = peers.collect();
        let peers: Vec<SocketAddr> = peers.into_values().collect();
        let local = local(address.ip(), &peers)?;
        self.answer_all(&local, address, hellos)
    }

    fn listen(&mut self, address: SocketAddr) -> Result<Callers, NetError> {
        let listener = self.listener.take().map_or_else(|| TcpListener::bind(address), Ok);
        let listening = listener.and_then(|it| Callers::new(it, self.size));
        listening.map_err(|source| NetError::Listen { address: self.address.clone(), source })
    }

    fn missing(&self, hellos: Hellos, address: SocketAddr) -> NetError {
        let missing: Vec<u32> = (1..self.size).filter(|rank| !hellos.contains_key(rank)).collect();
        let names: Vec<String> = missing.iter().map(u32::to_string).collect();
        let plural = if missing.len() == 1 { "rank" } else { "ranks" };
        let reason =
            format!("{plural} {} did not come within {}", names.join(", "), shortest(self.timeout));
        self.refuse_all(&hellos, &reason);
        let hint = hint(&self.address, address);
        NetError::Missing { ranks: missing, waited: self.timeout, address, hint }
    }

    /// Tells all that have come why there will be no job.
    fn refuse_all(&self, hellos: &Hellos, reason: &str) {
        for (hello, _, stream) in hellos.values() {
            self.refuse(stream, hello.challenge, reason);
        }
    }

    fn refuse(&self, stream: &TcpStream, challenge: u64, reason: &str) {
        let reply = Reply::Refused(reason.to_owned());
        // Who is gone already need not be told.
        let _ = self.sign(&reply, challenge).and_then(|signed| write_line(stream, &signed));
    }

    fn sign(&self, reply: &Reply, challenge: u64) -> std::io::Result<Signed> {
        Signed::new(reply, self.key.as_ref(), challenge, SERVER)
    }

    /// Hears one rank. A stranger, or one of another job, is refused and forgotten; a mistake of
    /// the job's own ends it for all, who are told.
    fn admit(&self, spoken: Spoken, hellos: &mut Hellos) -> Result<(), NetError> {
        let Spoken { introduction, signed, stream, from, challenge } = spoken;
        let theirs = introduction.challenge;
        if !signed.is_proven(self.key.as_ref(), challenge, introduction.rank) {
            let reason = "wrong job key: OMNES_JOB_KEY differs from rank 0's";
            self.refuse(&stream, theirs, reason);
            return Ok(());
        }
        if let (None, Some(user)) = (&self.key, stranger_at(&stream)) {
            let reason = format!("without OMNES_JOB_KEY it takes no rank of user {user}");
            self.refuse(&stream, theirs, &reason);
            return Ok(());
        }
        match self.judge(introduction, &signed, hellos) {
            Ok(hello) => {
                hellos.insert(hello.rank, (hello, from, stream));
                Ok(())
            }
            Err(problem) => {
                let reason = problem.to_string();
                self.refuse_all(hellos, &reason);
                self.refuse(&stream, theirs, &reason);
                Err(problem)
            }
        }
    }

    /// The report of a rank that knows the key, if it fits this job.
    fn judge(
        &self,
        introduction: Introduction,
        signed: &Signed,
        hellos: &Hellos,
    ) -> Result<Hello, NetError> {
        let Introduction { version, rank, .. } = introduction;
        let rank = Rank(rank);
        let ours = env!("CARGO_PKG_VERSION").to_owned();
        if version != ours {
            return Err(NetError::Version { ours, theirs: printable(&version) });
        }
        let malformed =
            || NetError::Refused { reason: format!("rank {rank} sent a malformed report") };
        let hello: Hello = signed.read().map_err(|_| malformed())?;
        if hello.size != self.size {
            return Err(NetError::SizeDiffers { rank, ours: self.size, theirs: hello.size });
        }
        if hello.encrypts != self.encrypts {
            return Err(NetError::EncryptionDiffers { rank });
        }
        if hello.ports.len() != self.size as usize || !is_payload(hello.payload_bytes) {
            return Err(malformed());
        }
        if rank.0 >= self.size || rank.0 == 0 || hellos.contains_key(&rank.0) {
            return Err(NetError::RankTaken { rank, size: self.size });
        }
        Ok(hello)
    }

    fn answer_all(
        &self,
        local: &Local,
        address: SocketAddr,
        hellos: Hellos,
    ) -> Result<Met, NetError> {
        let key = match &self.key {
            Some(key) => key.clone(),
            None => JobKey::new(random()?),
        };
        let payloads = hellos.values().map(|(hello, _, _)| hello.payload_bytes);
        let payload_bytes = payloads.fold(local.payload_bytes, u16::min);
        // Every rank takes the packets of every other at a port of its own.
        let mut ports = vec![local.ports.clone()];
        let mut hosts = vec![None];
        for (hello, from, _) in hellos.values() {
            ports.push(hello.ports.clone());
            hosts.push(Some(from.ip()));
        }
        let addresses_for = |reader: u32| -> Vec<Option<SocketAddr>> {
            let address = |(host, ports): (&Option<IpAddr>, &Vec<u16>)| {
                host.map(|host| SocketAddr::new(host, ports[reader as usize]))
            };
            hosts.iter().zip(&ports).map(address).collect()
        };
        let own = std::iter::once(self.node);
        let nodes: Vec<Option<Node>> =
            own.chain(hellos.values().map(|(hello, _, _)| hello.node)).collect();
        let nodes = Node::groups(&nodes);
        let table = Table {
            job: u32::from_be_bytes(random()?),
            key: self.key.is_none().then(|| hex(key.as_bytes())),
            addresses: Vec::new(),
            own_port: 0,
            payload_bytes,
            crowd: Crowd::default(),
            nodes: nodes.clone(),
        };
        let mut machines = vec![Machine::this()];
        machines.extend(hellos.values().map(|(hello, _, _)| hello.machine));
        let mut streams = Vec::new();
        for (rank, (hello, _, stream)) in hellos {
            let own_port = local.ports[rank as usize];
            let addresses = addresses_for(rank);
            let crowd = Crowd::of(&machines, hello.machine);
            let reply = Reply::Table(Table { own_port, addresses, crowd, ..table.clone() });
            let signed = self.sign(&reply, hello.challenge);
            signed
                .and_then(|signed| write_line(&stream, &signed))
                .map_err(|source| NetError::RankLost { rank: Rank(rank), source })?;
            streams.push((Rank(rank), stream));
        }
        let own = SocketAddr::new(address.ip(), 0);
        let addresses = addresses_for(0);
        let addresses = addresses.into_iter().map(|entry| entry.unwrap_or(own)).collect();
        let (job, crowd) = (JobId(table.job), Crowd::of(&machines, Machine::this()));
        Ok(Met { job, key, addresses, payload_bytes, crowd, nodes, streams })
    }
}
