//! Rank 0's side of the rendezvous: which ranks it admits, and the table that all get.

use super::distribution::{Distributed, Distribution, Reader, Release, tell_refused};
use super::pending::{Introduced, PendingConnections, STRANGERS_MAX};
use super::signed_line::{Signed, ToAll, write_line};
use super::{Hello, Introduction, Local, Met, Rendezvous, Reply, SERVER, hex, is_payload, random};
use crate::core_sharing::{Census, Machine};
use crate::deadline::Deadline;
use crate::descriptors;
use crate::duration::shortest;
use crate::error::{NetError, list};
use crate::links::CONNECTED_RANKS_MAX;
use crate::peer_user::stranger_at;
use crate::ring::NodeId;
use crate::table::Table;
use crate::trial::{Found, TrialPart, circle, first_silent, ways};
use omnes_nic::agent::printable;
use omnes_wire::{JobId, JobKey, Rank};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Descriptors that a rank needs in addition to the connections of the rendezvous: its sockets, and
/// some more.
const OWN_DESCRIPTORS: u64 = CONNECTED_RANKS_MAX as u64 + 16;
/// Wait between polls for new connections.
const LOOK_WAIT: Duration = Duration::from_millis(1);

/// Ranks that have reported, by rank.
type Hellos = BTreeMap<u32, (Hello, SocketAddr, TcpStream)>;

impl Rendezvous {
    pub(super) fn serve(
        mut self,
        local: impl FnOnce(IpAddr, &[SocketAddr]) -> Result<Local, NetError>,
    ) -> Result<Met, NetError> {
        let callback = self.while_waiting.take();
        let mut until = Deadline::after(self.timeout, callback.as_ref());
        let addresses = self.resolve(&mut until)?;
        self.allow_descriptors()?;
        let (mut pending, address) = self.listen(&addresses)?;
        let mut hellos = BTreeMap::new();
        while hellos.len() + 1 < self.size as usize {
            if until.left().is_zero() {
                return Err(self.missing(hellos, address));
            }
            match pending.poll()? {
                Some(introduced) => self.admit(introduced, &mut hellos)?,
                None => until.sleep(LOOK_WAIT).map_err(|source| self.lost(source))?,
            }
        }
        let peers = hellos.values().map(|(_, from, _): &(Hello, SocketAddr, _)| (from.ip(), *from));
        let peers: BTreeMap<IpAddr, SocketAddr> = peers.collect();
        let peers: Vec<SocketAddr> = peers.into_values().collect();
        let own = self.choose_own(address.ip());
        let ready = own.and_then(|own| Ok((local(own, &peers)?, own)));
        let (local, own) = ready.inspect_err(|error| self.refuse_all(&hellos, error))?;
        self.answer_all(local, own, hellos, &mut until)
    }

    /// A descriptor is required for each of the other ranks; some more for strangers are better.
    fn allow_descriptors(&self) -> Result<(), NetError> {
        let needed = descriptors::count_open() + u64::from(self.size) + OWN_DESCRIPTORS;
        let allowed = descriptors::allow(needed + STRANGERS_MAX as u64);
        if allowed < needed { Err(NetError::Descriptors { needed, allowed }) } else { Ok(()) }
    }

    /// Listens at the first of `addresses` that is this host's; also returns that address.
    fn listen(
        &mut self,
        addresses: &[SocketAddr],
    ) -> Result<(PendingConnections, SocketAddr), NetError> {
        let own = |listener: TcpListener| {
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let listener = match self.listener.take() {
            Some(listener) => Ok((listener, addresses[0])),
            None => TcpListener::bind(addresses).and_then(own),
        };
        let listening =
            listener.and_then(|(it, at)| Ok((PendingConnections::new(it, self.size)?, at)));
        listening.map_err(|source| NetError::Listen { address: self.address.clone(), source })
    }

    fn missing(&self, hellos: Hellos, address: SocketAddr) -> NetError {
        let missing: Vec<u32> = (1..self.size).filter(|rank| !hellos.contains_key(rank)).collect();
        let plural = if missing.len() == 1 { "rank" } else { "ranks" };
        let reason =
            format!("{plural} {} did not join within {}", list(&missing), shortest(self.timeout));
        self.refuse_all(&hellos, &reason);
        let hint = hint(&self.address, address);
        NetError::Missing { ranks: missing, waited: self.timeout, address, hint }
    }

    /// Tells all ranks that have reported why there will be no job.
    fn refuse_all(&self, hellos: &Hellos, reason: &impl ToString) {
        let reason = reason.to_string();
        for (hello, _, stream) in hellos.values() {
            self.refuse(stream, hello.challenge, &reason);
        }
    }

    fn refuse(&self, stream: &TcpStream, challenge: u64, reason: &str) {
        let reply = Reply::Refused(reason.to_owned());
        // A rank that is gone already need not be told.
        let _ = self.sign(&reply, challenge).and_then(|signed| write_line(stream, &signed));
    }

    fn sign(&self, reply: &Reply, challenge: u64) -> std::io::Result<Signed> {
        Signed::new(reply, self.key.as_ref(), challenge, SERVER)
    }

    /// Reads the report of one rank. A stranger, or a rank of another job, is rejected and
    /// forgotten; an error of the job itself ends it for all ranks, which are told.
    fn admit(&self, introduced: Introduced, hellos: &mut Hellos) -> Result<(), NetError> {
        let Introduced { introduction, signed, stream, from, challenge } = introduced;
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
        match self.judge(introduction, &signed, from, hellos) {
            Ok(hello) => {
                let host = hello.address.unwrap_or(from.ip());
                hellos.insert(hello.rank, (hello, SocketAddr::new(host, from.port()), stream));
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

    /// Returns the report of a rank that knows the key, if it fits this job.
    fn judge(
        &self,
        introduction: Introduction,
        signed: &Signed,
        from: SocketAddr,
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
        if hello.encryption != self.encryption {
            return Err(NetError::EncryptionDiffers { rank });
        }
        let pairs = self.alike.iter().zip(&hello.alike);
        if let Some(((name, ours), theirs)) = pairs.into_iter().find(|(own, it)| own.1 != **it) {
            let (ours, theirs) = (ours.clone(), printable(theirs));
            return Err(NetError::SettingDiffers { rank, name, ours, theirs });
        }
        let is_of_kind = |address: IpAddr| address.is_ipv4() == from.is_ipv4();
        let is_address = hello.address.is_none_or(is_of_kind);
        let has_ports = hello.ports.is_whole(self.size);
        if !has_ports || !is_payload(hello.payload_bytes) || !is_address {
            return Err(malformed());
        }
        if rank.0 >= self.size {
            return Err(malformed());
        }
        // A rank that has ended has been started again.
        let is_there = hellos.get(&rank.0).is_some_and(|(_, _, stream)| !has_hung_up(stream));
        if rank.0 == 0 || is_there {
            return Err(NetError::RankTaken { rank });
        }
        Ok(hello)
    }

    /// Distributes the table to all ranks that have reported.
    fn answer_all(
        &self,
        local: Local,
        own: IpAddr,
        hellos: Hellos,
        until: &mut Deadline<'_>,
    ) -> Result<Met, NetError> {
        let key = match &self.key {
            Some(key) => key.clone(),
            None => JobKey::new(random()?),
        };
        let table = self.table(&local, &key, own, &hellos);
        let table = table.inspect_err(|error| self.refuse_all(&hellos, error))?;
        let addresses = table.addresses_for(0, own);
        let machine = Machine::this();
        let machines = hellos.values().map(|(hello, _, _)| hello.machine.clone());
        let census = Census::of(&machines.chain([machine.clone()]).collect::<Vec<_>>());
        let question = self.question(JobId(table.job), &key, &local, table.payload_bytes);
        let part = TrialPart::begin(local.trial.as_ref(), question, &table.circle, &addresses);
        let challenges: Vec<u64> = hellos.values().map(|(hello, _, _)| hello.challenge).collect();
        let nat = nat(&hellos);
        let Distributed { streams, went_at, found } =
            self.hand_out(hellos, &table, &census, (until, part))?;
        let ways = |is_bad: fn(Found) -> bool| ways(&table.circle, &found, is_bad, &addresses, own);
        if let Some(silent) = first_silent(&table.circle, &found) {
            let error = NetError::NoUdp { ways: ways(|found| found.is_none()), silent, nat };
            for ((_, stream), challenge) in streams.iter().zip(challenges) {
                let _ = tell_refused(stream);
                self.refuse(stream, challenge, &error.to_string());
            }
            return Err(error);
        }
        let worst = found.values().copied().flatten().max().unwrap_or(0);
        let ways = ways(|found| found != Some(0));
        let core_sharing = census.core_sharing_on(&machine);
        let Table { job, payload_bytes, nodes, .. } = table;
        let met = Met {
            job: JobId(job),
            key,
            addresses,
            payload_bytes,
            narrow: None,
            core_sharing,
            nodes,
            went_at,
            streams,
        };
        Ok(met.narrowed(worst, ways, &local))
    }

    fn table(
        &self,
        local: &Local,
        key: &JobKey,
        own: IpAddr,
        hellos: &Hellos,
    ) -> Result<Table, NetError> {
        let others = || hellos.values().map(|(hello, _, _)| hello);
        let hosts = hellos.values().map(|(_, from, _)| Some(from.ip()));
        let nodes = others().map(|hello| hello.node);
        let nodes: Vec<Option<NodeId>> = std::iter::once(self.node).chain(nodes).collect();
        let ports = others().map(|hello| hello.ports.clone());
        let payloads = others().map(|hello| hello.payload_bytes);
        let payload_bytes = payloads.fold(local.payload_bytes, u16::min);
        let trials = hellos.values().map(|(hello, from, _)| (from.ip(), hello.trial_port));
        let trials = std::iter::once((own, local.trial_port()?)).chain(trials);
        let trials: Vec<(IpAddr, u16)> = trials.collect();
        let is_in_doubt = trials.iter().all(|(_, port)| *port != 0);
        Ok(Table {
            job: u32::from_be_bytes(random()?),
            key: self.key.is_none().then(|| hex(key.as_bytes())),
            hosts: std::iter::once(self.advertised_address(own)).chain(hosts).collect(),
            payload_bytes,
            ports: std::iter::once(local.ports.clone()).chain(ports).collect(),
            nodes: NodeId::groups(&nodes),
            circle: if is_in_doubt { circle(trials.into_iter()) } else { Vec::new() },
        })
    }

    /// Distributes `table` to all ranks that have reported, and takes this rank's part in the
    /// trial.
    fn hand_out(
        &self,
        hellos: Hellos,
        table: &Table,
        census: &Census,
        (until, part): (&mut Deadline<'_>, Option<TrialPart<'_>>),
    ) -> Result<Distributed, NetError> {
        let failed = |source| NetError::System { what: "table of ranks", source };
        let to_all = ToAll::new(table, self.key.as_ref()).map_err(failed)?;
        let mut readers = Vec::with_capacity(hellos.len());
        for (rank, (hello, _, stream)) in hellos {
            let core_sharing = census.core_sharing_on(&hello.machine);
            let reply = Reply::Table { digest: to_all.digest(), core_sharing };
            let signed = self.sign(&reply, hello.challenge);
            let line = signed.and_then(|signed| signed.begin_line()).map_err(failed)?;
            let is_asked = table.circle.binary_search_by_key(&rank, |(asked, _)| *asked).is_ok();
            let release = Release { key: self.key.as_ref(), challenge: hello.challenge };
            readers.push(Reader { rank: Rank(rank), stream, release, line, is_asked });
        }
        let distribution = Distribution::new(readers, &to_all).map_err(failed)?;
        let take = part.map(|mut part| move |turn| part.take(turn));
        distribution.run(until, take).map_err(|(rank, source)| match source.kind() {
            ErrorKind::Interrupted => NetError::Interrupted,
            _ => NetError::RankLost { rank, source },
        })
    }
}

/// True if the other end, from which no data are expected, has closed the connection.
fn has_hung_up(stream: &TcpStream) -> bool {
    let looked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
    let _ = stream.set_nonblocking(false);
    match looked {
        Ok(bytes) => bytes == 0,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
    }
}

/// Hint at a possible reason why ranks of other machines cannot reach `address`, to which `given`
/// was resolved: many systems give the machine's own name a loopback address.
fn hint(given: &str, address: SocketAddr) -> String {
    let host = given.rsplit_once(':').map_or(given, |(host, _)| host);
    let is_meant = host == "localhost" || host.starts_with("127.") || host.starts_with('[');
    if address.ip().is_loopback() && !is_meant {
        format!(
            " Only this machine can: '{host}' is {} here. See /etc/hosts, or name this host by its \
         address: in `omnes run --hosts`, or with a port in OMNES_RENDEZVOUS",
            address.ip()
        )
    } else {
        String::new()
    }
}

/// The first rank whose connection arrives from another address than its own end has; returns its
/// own address and the one seen here.
fn nat(hellos: &Hellos) -> Option<(Rank, IpAddr, IpAddr)> {
    let mut ends = hellos.iter().filter_map(|(rank, (hello, _, stream))| {
        let seen = stream.peer_addr().ok()?.ip().to_canonical();
        Some((Rank(*rank), hello.reached.to_canonical(), seen))
    });
    ends.find(|(_, own, seen)| own != seen)
}
