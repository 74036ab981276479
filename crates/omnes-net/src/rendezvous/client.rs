//! The other ranks' side of the rendezvous: a rank calls rank 0 until it listens, reads its
//! greeting, identifies itself and waits for the table, and then until all ranks have the table.
//!
//! Rank 0 may start later than this rank, and its name may become known later: until the time
//! limit, an unknown name is resolved again, and all its addresses are tried in turn. A listener
//! that closes the connection before the greeting, such as a proxy in place of rank 0, is ignored.

use super::distribution::{Release, Verdict, wait_for_go};
use super::signed_line::{Signed, line, read_line};
use crate::core_sharing::{CoreSharing, Machine};
use crate::deadline::Deadline;
use crate::error::NetError;
use crate::peer_user::stranger_at;
use crate::rendezvous::{
    Challenge, Hello, Local, Met, PROTOCOL, Rendezvous, Reply, SERVER, random,
};
use crate::table::{Table, table_bytes_max};
use crate::trial::TrialPart;
use omnes_nic::agent::printable;
use omnes_wire::{JobId, JobKey, Rank};
use serde::Deserialize;
use std::io::{Error, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Wait between attempts to reach rank 0.
const RETRY_WAIT: Duration = Duration::from_millis(20);
/// Wait for the first call to be answered; it doubles for each later one. TCP would retransmit
/// after a second, and take that for the round-trip time, so later losses would be retransmitted
/// only after many seconds.
const CALL_WAIT: Duration = Duration::from_millis(250);
/// Time to wait for one of several addresses to answer.
const ADDRESS_WAIT: Duration = Duration::from_secs(3);

/// Rejects a connection of this end to itself: if no process listens yet, this end may draw the
/// very port that it calls. TCP then connects it to itself, and rank 0 could not listen any more.
fn refuse_itself(stream: TcpStream) -> std::io::Result<TcpStream> {
    if stream.local_addr()? == stream.peer_addr()? {
        Err(ErrorKind::ConnectionRefused.into())
    } else {
        Ok(stream)
    }
}

/// True if the other side has closed the connection.
fn is_cut_off(error: &Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

impl Rendezvous {
    pub(crate) fn report(
        &self,
        local: impl FnOnce(IpAddr, &[SocketAddr]) -> Result<Local, NetError>,
    ) -> Result<Met, NetError> {
        let mut until = Deadline::after(self.timeout, self.while_waiting.as_ref());
        let (mut stream, mut greeting) = self.reach(&mut until)?;
        let address = stream.peer_addr().map_err(|source| self.lost(source))?;
        let reached = stream.local_addr().map_err(|source| self.lost(source))?;
        let own = self.choose_own(reached.ip())?;
        let local = local(own, &[address])?;
        let challenge = u64::from_be_bytes(random()?);
        let hello = Hello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            rank: self.rank.0,
            size: self.size,
            address: self.advertised_address(own),
            ports: local.ports.clone(),
            payload_bytes: local.payload_bytes,
            trial_port: local.trial_port()?,
            reached: reached.ip(),
            machine: Machine::this(),
            node: self.node,
            encryption: self.encryption,
            alike: self.alike.iter().map(|(_, text)| text.clone()).collect(),
            challenge,
        };
        let signed = loop {
            match self.introduce(&stream, &hello, greeting.challenge, &mut until) {
                // So many connections are pending at rank 0 that it has dropped this one.
                Err(source) if is_cut_off(&source) && !until.left().is_zero() => {
                    until.sleep(RETRY_WAIT).map_err(|source| self.lost(source))?;
                    let limit = until.left().max(RETRY_WAIT);
                    stream =
                        call(address, limit, &mut until).map_err(|source| self.lost(source))?;
                    let heard = self.hear(&stream, &mut until);
                    greeting = heard.map_err(|source| self.lost(source))?;
                    self.check(&stream, &greeting)?;
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
            Reply::Table { digest, core_sharing } if is_proven => {
                let table: Table = signed.read_to_all(key, digest).map_err(|_| malformed())?;
                let circle = table.circle.clone();
                let met = self.accept(table, core_sharing, address.ip())?;
                let question = self.question(met.job, &met.key, &local, met.payload_bytes);
                let trial = local.trial.as_ref();
                let mut part = TrialPart::begin(trial, question, &circle, &met.addresses);
                let take = |turn| part.as_mut().and_then(|part| part.take(turn));
                let release = Release { key, challenge };
                let verdict = wait_for_go(&stream, release, &mut until, take);
                match verdict.map_err(|source| self.lost(source))? {
                    Verdict::Go(place) => {
                        let met = met.narrowed(place, Vec::new(), &local);
                        let streams = vec![(Rank(0), stream)];
                        Ok(Met { went_at: Instant::now(), streams, ..met })
                    }
                    Verdict::Unproven => Err(NetError::WrongKey { rank: Rank(0) }),
                    Verdict::Refused => Err(self.hear_why(&stream, challenge, &mut until)),
                }
            }
            Reply::Refused(_) | Reply::Table { .. } => Err(NetError::WrongKey { rank: Rank(0) }),
        }
    }

    /// Returns a connection to rank 0, and its greeting.
    fn reach(&self, until: &mut Deadline<'_>) -> Result<(TcpStream, Challenge), NetError> {
        let places = self.resolve(until)?;
        let limit = if places.len() > 1 { ADDRESS_WAIT } else { Duration::MAX };
        for place in places.iter().cycle() {
            let left = until.left();
            let source = match call(*place, limit.min(left).max(RETRY_WAIT), until) {
                Ok(stream) => match self.hear(&stream, until) {
                    Ok(greeting) => {
                        self.check(&stream, &greeting)?;
                        return Ok((stream, greeting));
                    }
                    Err(source) if is_cut_off(&source) => {
                        Error::new(source.kind(), "whoever listens there hangs up")
                    }
                    Err(source) => return Err(self.lost(source)),
                },
                Err(source) if source.kind() == ErrorKind::Interrupted => {
                    return Err(self.lost(source));
                }
                Err(source) => source,
            };
            if left.is_zero() {
                let (address, waited) = (self.address.clone(), self.timeout);
                return Err(NetError::Unreachable { address, waited, source });
            }
            until.sleep(RETRY_WAIT.min(left)).map_err(|source| self.lost(source))?;
        }
        unreachable!("a name that is resolved has an address")
    }

    /// Checks whether this rank may trust the process that sent this greeting.
    fn check(&self, stream: &TcpStream, greeting: &Challenge) -> Result<(), NetError> {
        if greeting.omnes != PROTOCOL {
            let (ours, theirs) = (PROTOCOL.to_string(), greeting.omnes.to_string());
            return Err(NetError::Version { ours, theirs });
        }
        match (&self.key, stranger_at(stream)) {
            (None, Some(user)) => Err(NetError::OtherUser { address: self.address.clone(), user }),
            _ => Ok(()),
        }
    }

    /// Reads the next line of rank 0.
    fn hear<T: for<'a> Deserialize<'a>>(
        &self,
        stream: &TcpStream,
        until: &mut Deadline<'_>,
    ) -> std::io::Result<T> {
        read_line(table_bytes_max(self.size), |piece| until.read(stream, piece))
    }

    /// Returns rank 0's answer to this rank's report.
    fn introduce(
        &self,
        stream: &TcpStream,
        hello: &Hello,
        challenge: u64,
        until: &mut Deadline<'_>,
    ) -> std::io::Result<Signed> {
        let signed = Signed::new(hello, self.key.as_ref(), challenge, self.rank.0)?;
        until.write(stream, &line(&signed)?)?;
        self.hear(stream, until)
    }

    /// Reads the reason why there will be no job, although this rank has the table.
    fn hear_why(&self, stream: &TcpStream, challenge: u64, until: &mut Deadline<'_>) -> NetError {
        let signed: Signed = match self.hear(stream, until) {
            Ok(signed) => signed,
            Err(source) => return self.lost(source),
        };
        match signed.read() {
            Ok(Reply::Refused(reason))
                if signed.is_proven(self.key.as_ref(), challenge, SERVER) =>
            {
                NetError::Refused { reason: printable(&reason) }
            }
            Ok(_) => NetError::WrongKey { rank: Rank(0) },
            Err(source) => self.lost(source),
        }
    }

    /// Converts `table` to the result for this rank, which has reached rank 0 at `zero`.
    fn accept(
        &self,
        table: Table,
        core_sharing: CoreSharing,
        zero: IpAddr,
    ) -> Result<Met, NetError> {
        let key = match (&self.key, &table.key) {
            (Some(key), _) => key.clone(),
            (None, Some(hex)) => JobKey::from_hex(hex).map_err(|_| malformed())?,
            (None, None) => return Err(NetError::KeyMissing),
        };
        if !table.is_whole(self.rank.0, self.size) {
            return Err(malformed());
        }
        Ok(Met {
            job: JobId(table.job),
            key,
            addresses: table.addresses_for(self.rank.0, zero),
            payload_bytes: table.payload_bytes,
            narrow: None,
            core_sharing,
            nodes: table.nodes,
            went_at: Instant::now(),
            streams: Vec::new(),
        })
    }
}

fn malformed() -> NetError {
    NetError::Refused { reason: "rank 0 sent a malformed table".to_owned() }
}

/// Connects to rank 0, if it listens at `address` and answers within `limit`.
fn call(
    address: SocketAddr,
    limit: Duration,
    until: &mut Deadline<'_>,
) -> std::io::Result<TcpStream> {
    let (since, mut wait) = (Instant::now(), CALL_WAIT);
    loop {
        let left = limit.saturating_sub(since.elapsed());
        match until.connect(&address, wait.min(left)) {
            Err(error) if error.kind() == ErrorKind::TimedOut && wait < left => wait *= 2,
            connected => {
                let stream = refuse_itself(connected?)?;
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
        }
    }
}
