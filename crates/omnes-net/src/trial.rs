//! Whether packets as long as all hosts' links take get from host to host.
//!
//! A switch between them may be set to pass on shorter ones, and drop the others without a word. So
//! where the packets are to be longer than those of Ethernet, the hosts stand in a circle at the
//! start: one rank of each sends some long packets and then some short ones to that of the next
//! host. Whoever gets the short ones only says so, and then the job does without long ones. A
//! circle crosses every link that parts the hosts in two, both ways; other ways that packets may
//! take between two hosts are not tried.
//!
//! The packets are questions for a sign of life, filled up with zeros, by a socket of their own;
//! nobody answers them. All have sent theirs before anybody looks. Where none arrives, since all
//! are lost or a firewall drops UDP, nothing is known, and the job goes on as it is. Cost: sixteen
//! packets per host, and a byte each way between rank 0 and each rank.

use omnes_wire::{HEADER_BYTES, Header, JobId, JobKey, Kind, PACKET_OVERHEAD_BYTES, Rank};
use std::collections::BTreeSet;
use std::io::{ErrorKind, Result};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Packets of each length: chance loses that many in a row on no network that is of use.
const PACKETS: usize = 8;
/// The longest wait for the first packet.
const WAIT: Duration = Duration::from_millis(200);
/// The longest wait for a long packet that a short one has overtaken.
const OVERTAKEN_WAIT: Duration = Duration::from_millis(50);

/// A host's place in the circle: one rank of it, and the port that it looks at.
pub(crate) type Place = (u32, u16);

/// The circle of the ranks whose addresses and ports are given in order of ranks: one of each
/// address. Empty where there is only one.
pub(crate) fn circle(hosts: impl Iterator<Item = (IpAddr, u16)>) -> Vec<Place> {
    let mut seen = BTreeSet::new();
    let first = (0..).zip(hosts).filter(|(_, (host, _))| seen.insert(*host));
    let circle: Vec<Place> = first.map(|(rank, (_, port))| (rank, port)).collect();
    if circle.len() > 1 { circle } else { Vec::new() }
}

/// A rank's part in the trial, which has sent what it has to.
pub(crate) struct Part<'a> {
    trial: &'a Trial,
    question: Question<'a>,
    /// The one before in the circle.
    before: Rank,
}

impl<'a> Part<'a> {
    /// Begins with it, if this rank stands in `circle`; `addresses` are those of all ranks.
    pub(crate) fn begin(
        trial: Option<&'a Trial>,
        question: Question<'a>,
        circle: &[Place],
        addresses: &[SocketAddr],
    ) -> Option<Self> {
        let at = circle.iter().position(|(rank, _)| *rank == question.me.0)?;
        let place = |step: usize| circle[(at + step) % circle.len()];
        let (after, port) = place(1);
        let (before, _) = place(circle.len() - 1);
        let trial = trial?;
        trial.send(question, Rank(after), SocketAddr::new(addresses[after as usize].ip(), port));
        Some(Self { trial, question, before: Rank(before) })
    }

    /// False if long packets do not get here, though short ones do. All must have begun.
    pub(crate) fn look(&self) -> bool {
        self.trial.look(self.question, self.before)
    }
}

/// What a rank needs to know of the job.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) me: Rank,
    pub(crate) job: JobId,
    pub(crate) key: &'a JobKey,
    /// Bytes of the job's longest packets, as UDP counts.
    pub(crate) packet_bytes: usize,
}

/// A rank's socket for the trial.
pub(crate) struct Trial(UdpSocket);

impl Trial {
    pub(crate) fn open(address: IpAddr) -> Result<Self> {
        UdpSocket::bind(SocketAddr::new(address, 0)).map(Self)
    }

    pub(crate) fn port(&self) -> Result<u16> {
        Ok(self.0.local_addr()?.port())
    }

    /// Sends what the next of the circle looks for. What the kernel refuses is not sent.
    fn send(&self, question: Question<'_>, to: Rank, address: SocketAddr) {
        let header = Header { job: question.job, ..Header::blank(Kind::Ping, question.me) };
        let bytes = header.emit();
        let tag = question.key.sender(question.me).tag(&bytes, to, &[]);
        let mut packet = vec![0; question.packet_bytes];
        packet[..HEADER_BYTES].copy_from_slice(&bytes);
        packet[HEADER_BYTES..PACKET_OVERHEAD_BYTES].copy_from_slice(&tag.0.to_be_bytes());
        for length in [packet.len(), PACKET_OVERHEAD_BYTES] {
            for _ in 0..PACKETS {
                let _ = self.0.send_to(&packet[..length], address);
            }
        }
    }

    /// False if short packets of rank `from`, which has sent them, arrive and long ones do not.
    fn look(&self, question: Question<'_>, from: Rank) -> bool {
        let mut buffer = vec![0; question.packet_bytes];
        let mut until = Instant::now() + WAIT;
        let mut has_short = false;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.0.set_read_timeout(Some(left)).is_err() {
                return !has_short;
            }
            match self.0.recv(&mut buffer) {
                Ok(bytes) if !question.is_of(from, &buffer[..bytes]) => {}
                Ok(bytes) if bytes == question.packet_bytes => return true,
                Ok(_) if has_short => {}
                Ok(_) => {
                    has_short = true;
                    until = until.min(Instant::now() + OVERTAKEN_WAIT);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return !has_short,
                Err(_) => {}
            }
        }
    }
}

impl Question<'_> {
    /// True if `packet` is what rank `from` asks this one.
    fn is_of(&self, from: Rank, packet: &[u8]) -> bool {
        let Ok((header, tag)) = Header::parse(packet) else { return false };
        let is_ours = header.job == self.job && header.source == from && header.kind == Kind::Ping;
        let bytes = packet.first_chunk::<HEADER_BYTES>().filter(|_| is_ours);
        bytes.is_some_and(|bytes| self.key.sender(from).verify(tag, bytes, self.me, &[]))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 1));

    #[test]
    fn one_rank_of_each_host_stands_in_the_circle() {
        let host = |last| IpAddr::from([10, 0, 0, last]);
        let hosts = [(host(1), 5), (host(2), 6), (host(1), 7), (host(3), 8), (host(2), 9)];
        assert_eq!(circle(hosts.into_iter()), [(0, 5), (1, 6), (3, 8)]);
        assert_eq!(circle(hosts.into_iter().filter(|(it, _)| *it == host(1))), []);
    }

    #[test]
    fn only_who_gets_short_packets_alone_lacks_long_ones() {
        let key = JobKey::new([7; 16]);
        let of = |me, packet_bytes| Question { me, job: JobId(9), key: &key, packet_bytes };
        let (zero, one) = (Rank(0), Rank(1));
        let sender = Trial::open(ONE).unwrap();
        for (sent, looked_for, lacks) in [(3000, 3000, false), (3000, 4000, true)] {
            let trial = Trial::open(ONE).unwrap();
            let address = SocketAddr::new(ONE, trial.port().unwrap());
            sender.send(of(zero, sent), one, address);
            assert_eq!(trial.look(of(one, looked_for), zero), !lacks);
        }
        // Of strangers, and of nobody, nothing follows.
        let trial = Trial::open(ONE).unwrap();
        let address = SocketAddr::new(ONE, trial.port().unwrap());
        sender.send(of(Rank(2), 3000), one, address);
        sender.send(Question { job: JobId(8), ..of(zero, 3000) }, one, address);
        assert!(trial.look(of(one, 4000), zero));
    }
}
