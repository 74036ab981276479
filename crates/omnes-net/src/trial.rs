//! Test of which packets get from host to host, at the start of every job on several hosts.
//!
//! Links report the maximum length of their packets; the path between two hosts may carry shorter
//! ones only, as through a VPN or a switch with another setting, and drop the others silently. A
//! firewall may pass none at all. So the hosts form a circle at the start: one rank of each sends
//! packets to that of the next host, without fragmentation, and reports which packets have arrived
//! from the previous host. A circle crosses every link that separates the hosts into two parts,
//! both ways; other paths that packets may take between two hosts are not tested.
//!
//! First, packets of the job's maximum length and short ones are sent. All ranks have sent theirs
//! before any rank checks. Only if one rank lacks the long ones, all send again, packets of the
//! job's length and of each of [`MTUS`] that is below, and the job uses the longest that arrived
//! everywhere. A random loss in one of these turns does not count if the packet arrives in the
//! other. If no packet arrives in either, the job ends with an error that names the two hosts.
//!
//! The packets are questions for a sign of life, padded with zeros, from a separate socket; no rank
//! answers them. A short one goes to the previous host, too: many firewalls pass packets from a
//! host to which one was sent. Cost: twelve packets per host, eight between two, and a byte each
//! way between rank 0 and each rank of the circle.

use crate::socket::forbid_fragments;
use omnes_wire::{HEADER_BYTES, Header, JobId, JobKey, Kind, PACKET_OVERHEAD_BYTES, Rank};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Result};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Lengths of IP packets, in bytes, that a job may use if longer ones do not pass: through clouds'
/// gateways with jumbo frames, Ethernet, GRE, VXLAN, WireGuard, IPsec and the like, and the minimum
/// that each path of IPv6 and of IPv4 carries.
pub(crate) const MTUS: [u32; 8] = [8500, 1500, 1476, 1450, 1420, 1400, 1280, 576];
/// Packets of each length and turn: on no usable network does chance lose that many in a row, in
/// both turns.
const PACKETS: usize = 4;
/// Longest wait for the first packet, by the number of the turn: in the first one all packets have
/// been sent before.
const WAITS: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(2)];
/// Longest wait for a long packet that a shorter one has overtaken.
const OVERTAKEN_WAIT: Duration = Duration::from_millis(50);

/// A host's place in the circle: one rank of it, and the port at which that rank receives.
pub(crate) type Place = (u32, u16);

/// Index of the longest of the tested lengths that has arrived, longest first; `None` if no packet
/// has.
pub(crate) type Found = Option<u8>;

/// Request of rank 0 to all ranks in the circle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Check which packets have arrived.
    Look,
    /// Send packets of all lengths, then check.
    Again,
}

/// The circle of the ranks whose addresses and ports are given in order of ranks: one rank of each
/// address, in order of ranks. Empty if there is only one address.
pub(crate) fn circle(hosts: impl Iterator<Item = (IpAddr, u16)>) -> Vec<Place> {
    let mut seen = BTreeSet::new();
    let first = (0..).zip(hosts).filter(|(_, (host, _))| seen.insert(*host));
    let circle: Vec<Place> = first.map(|(rank, (_, port))| (rank, port)).collect();
    if circle.len() > 1 { circle } else { Vec::new() }
}

/// Payloads of the packets to test, longest first, in a job whose packets have `longest`; `lesser`
/// are those of shorter ones.
pub(crate) fn payloads(longest: u16, lesser: &[u16]) -> Vec<u16> {
    let mut payloads = vec![longest];
    payloads.extend(lesser.iter().filter(|payload| **payload < longest));
    payloads
}

/// A rank's part in the trial; the packets of the first turn have been sent.
pub(crate) struct TrialPart<'a> {
    socket: &'a UdpSocket,
    question: Question<'a>,
    /// The previous rank in the circle.
    before: (Rank, SocketAddr),
    after: (Rank, SocketAddr),
    /// Number of times that packets were sent.
    turn: u32,
}

/// Parameters of the job and the test.
pub(crate) struct Question<'a> {
    pub(crate) me: Rank,
    pub(crate) job: JobId,
    pub(crate) key: &'a JobKey,
    /// UDP payload lengths to test, in bytes, longest first.
    pub(crate) lengths: Vec<usize>,
}

impl<'a> TrialPart<'a> {
    /// Begins the trial, if this rank is in `circle`; `addresses` are those of all ranks.
    pub(crate) fn begin(
        trial: Option<&'a Trial>,
        mut question: Question<'a>,
        circle: &[Place],
        addresses: &[SocketAddr],
    ) -> Option<Self> {
        let at = circle.iter().position(|(rank, _)| *rank == question.me.0)?;
        let place = |step: usize| {
            let (rank, port) = circle[(at + step) % circle.len()];
            (Rank(rank), SocketAddr::new(addresses[rank as usize].ip(), port))
        };
        question.lengths.push(PACKET_OVERHEAD_BYTES);
        let (socket, before, after) = (&trial?.0, place(circle.len() - 1), place(1));
        let mut part = Self { socket, question, before, after, turn: 0 };
        part.send();
        Some(part)
    }

    /// Executes a request of rank 0.
    pub(crate) fn take(&mut self, turn: Turn) -> Found {
        let (first, again) = (WAITS[0], WAITS[1]);
        if turn == Turn::Look {
            return self.look(first);
        }
        self.send();
        self.look(again)
    }

    /// Sends the packets that the next rank of the circle expects: at first the longest and the
    /// shortest, later all lengths. Packets that the kernel refuses are not sent.
    fn send(&mut self) {
        self.turn += 1;
        let lengths = &self.question.lengths;
        let (longest, shortest) = (lengths[0], lengths[lengths.len() - 1]);
        let packet = self.question.packet(self.after.0, self.turn, longest);
        let back = self.question.packet(self.before.0, self.turn, shortest);
        let tried = |length: &&usize| self.turn > 1 || [longest, shortest].contains(length);
        for _ in 0..PACKETS {
            for length in lengths.iter().filter(tried) {
                let _ = self.socket.send_to(&packet[..*length], self.after.1);
            }
            if self.before != self.after {
                let _ = self.socket.send_to(&back, self.before.1);
            }
        }
    }

    /// Longest of the packets sent last that has arrived, if a first one arrives within `wait`.
    fn look(&self, wait: Duration) -> Found {
        let lengths = &self.question.lengths;
        let mut buffer = vec![0; lengths[0] + 1];
        let (mut until, mut found) = (Instant::now() + wait, Found::None);
        while found != Some(0) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.socket.set_read_timeout(Some(left)).is_err() {
                break;
            }
            let bytes = match self.socket.recv(&mut buffer) {
                Ok(bytes) if self.question.is_of(self.before.0, self.turn, &buffer[..bytes]) => {
                    bytes
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                _ => continue,
            };
            let place = lengths.iter().position(|length| *length == bytes);
            let Some(place) = place.and_then(|place| u8::try_from(place).ok()) else { continue };
            if found.is_none() {
                until = until.min(Instant::now() + OVERTAKEN_WAIT);
            }
            found = better(found, Some(place));
        }
        found
    }
}

/// The combined result of two checks.
pub(crate) fn better(one: Found, other: Found) -> Found {
    [one, other].into_iter().flatten().min()
}

/// The first two ranks between whose hosts no packet passes; of these, the one that is not rank 0.
pub(crate) fn first_silent(circle: &[Place], found: &BTreeMap<Rank, Found>) -> Option<Rank> {
    let (rank, _) = found.iter().find(|(_, found)| found.is_none())?;
    let before_zero = || circle.last().map(|(rank, _)| Rank(*rank));
    Some(*rank).filter(|rank| rank.0 != 0).or_else(before_zero)
}

/// Pairs of hosts, from and to, whose result is bad, as the ranks of the circle have `found`; rank
/// 0 is at `own`.
pub(crate) fn ways(
    circle: &[Place],
    found: &BTreeMap<Rank, Found>,
    is_bad: fn(Found) -> bool,
    addresses: &[SocketAddr],
    own: IpAddr,
) -> Vec<(IpAddr, IpAddr)> {
    let host = |rank: u32| if rank == 0 { own } else { addresses[rank as usize].ip() };
    let before = circle.iter().cycle().skip(circle.len().saturating_sub(1));
    let bad = |to: &u32| found.get(&Rank(*to)).is_some_and(|found| is_bad(*found));
    let ways = before.zip(circle).filter(|(_, (to, _))| bad(to));
    ways.map(|((from, _), (to, _))| (host(*from), host(*to))).collect()
}

/// A rank's socket for the trial.
pub(crate) struct Trial(UdpSocket);

impl Trial {
    pub(crate) fn open(address: IpAddr) -> Result<Self> {
        let socket = UdpSocket::bind(SocketAddr::new(address, 0))?;
        forbid_fragments(&socket)?;
        Ok(Self(socket))
    }

    pub(crate) fn port(&self) -> Result<u16> {
        Ok(self.0.local_addr()?.port())
    }
}

impl Question<'_> {
    /// The packet that this rank sends to `to` in this turn.
    fn packet(&self, to: Rank, turn: u32, length: usize) -> Vec<u8> {
        let blank = Header::blank(Kind::Ping, self.me);
        let bytes = Header { job: self.job, argument: turn, ..blank }.emit();
        let tag = self.key.sender(self.me).tag(&bytes, to, &[]);
        let mut packet = vec![0; length];
        packet[..HEADER_BYTES].copy_from_slice(&bytes);
        packet[HEADER_BYTES..PACKET_OVERHEAD_BYTES].copy_from_slice(&tag.0.to_be_bytes());
        packet
    }

    /// True if `packet` is the one that rank `from` sends to this one in this turn.
    fn is_of(&self, from: Rank, turn: u32, packet: &[u8]) -> bool {
        let Ok((header, tag)) = Header::parse(packet) else { return false };
        let is_ours = header.job == self.job && header.source == from && header.kind == Kind::Ping;
        let is_ours = is_ours && header.argument == turn;
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
    fn circle_contains_one_rank_per_host() {
        let host = |last| IpAddr::from([10, 0, 0, last]);
        let hosts = [(host(1), 5), (host(2), 6), (host(1), 7), (host(3), 8), (host(2), 9)];
        assert_eq!(circle(hosts.into_iter()), [(0, 5), (1, 6), (3, 8)]);
        assert_eq!(circle(hosts.into_iter().filter(|(it, _)| *it == host(1))), []);
    }

    #[test]
    fn shorter_packets_are_tried_in_order() {
        assert_eq!(payloads(1400, &[8000, 1400, 1300, 500]), [1400, 1300, 500]);
        assert_eq!(payloads(300, &[1400, 300]), [300]);
    }

    /// Two hosts, the second of which expects packets of these lengths, whatever the first sends.
    fn with_two(
        [sent, expected]: [&[usize]; 2],
        [sender_job, own_job]: [u32; 2],
        check: impl FnOnce(TrialPart<'_>, TrialPart<'_>),
    ) {
        let key = JobKey::new([7; 16]);
        let trials = [0, 1].map(|_| Trial::open(ONE).unwrap());
        let circle = [0, 1].map(|rank| (rank as u32, trials[rank].port().unwrap()));
        let addresses = [SocketAddr::new(ONE, 9); 2];
        let begin = |me: usize, job, lengths: &[usize]| {
            let (rank, lengths) = (Rank(me as u32), lengths.to_vec());
            let question = Question { me: rank, job: JobId(job), key: &key, lengths };
            TrialPart::begin(Some(&trials[me]), question, &circle, &addresses).unwrap()
        };
        check(begin(0, sender_job, sent), begin(1, own_job, expected));
    }

    #[test]
    fn longest_packets_that_arrive_are_found_in_one_or_two_turns() {
        with_two([&[3000, 2000], &[3000, 2000]], [9, 9], |_, mut one| {
            assert_eq!(one.take(Turn::Look), Some(0));
        });
        // In the first turn no lengths between the longest and the shortest are sent.
        with_two([&[3000, 2000, 1000], &[4000, 2000, 1000]], [9, 9], |mut zero, mut one| {
            assert_eq!(one.take(Turn::Look), Some(3));
            std::thread::scope(|scope| {
                scope.spawn(|| zero.take(Turn::Again));
                assert_eq!(one.take(Turn::Again), Some(1));
            });
        });
    }

    #[test]
    fn packets_of_other_jobs_and_turns_are_ignored() {
        with_two([&[3000], &[3000]], [8, 9], |_, mut one| {
            assert_eq!(one.take(Turn::Look), None);
        });
        with_two([&[3000], &[3000]], [9, 9], |_, mut one| {
            assert_eq!(one.take(Turn::Again), None, "rank 0 has not sent again");
        });
    }

    #[test]
    fn packets_with_another_key_sender_or_addressee_are_rejected() {
        let [own, other] = [7, 8].map(|byte| JobKey::new([byte; 16]));
        let question = |me, key| Question { me: Rank(me), job: JobId(9), key, lengths: vec![3000] };
        let packet = |from: u32, key| question(from, key).packet(Rank(1), 1, 3000);
        let is_of_zero = |packet: &[u8]| question(1, &own).is_of(Rank(0), 1, packet);
        assert!(is_of_zero(&packet(0, &own)));
        assert!(!is_of_zero(&packet(0, &other)));
        assert!(!is_of_zero(&packet(2, &own)), "another rank's");
        assert!(!question(2, &own).is_of(Rank(0), 1, &packet(0, &own)), "for another rank");
    }

    #[test]
    fn hosts_at_both_ends_of_a_bad_path_are_named() {
        let circle = [(0, 5), (1, 6), (3, 8)];
        let addresses = [1, 2, 2, 3].map(|last| SocketAddr::from(([10, 0, 0, last], 9)));
        let found = |found: [Found; 3]| -> BTreeMap<Rank, Found> {
            circle.iter().map(|(rank, _)| Rank(*rank)).zip(found).collect()
        };
        let named = |found: &BTreeMap<Rank, Found>| {
            let ways = ways(&circle, found, |it| it != Some(0), &addresses, addresses[0].ip());
            let ways = ways.iter().map(|(from, to)| format!("{from} {to}"));
            (ways.collect::<Vec<_>>(), first_silent(&circle, found))
        };
        let well = found([Some(0); 3]);
        assert_eq!(named(&well), (Vec::new(), None));
        let some = found([None, Some(2), None]);
        let told = ["10.0.0.3 10.0.0.1", "10.0.0.1 10.0.0.2", "10.0.0.2 10.0.0.3"];
        assert_eq!(named(&some), (told.map(String::from).into(), Some(Rank(3))));
        let one = found([Some(0), None, Some(0)]);
        assert_eq!(named(&one), (vec!["10.0.0.1 10.0.0.2".to_owned()], Some(Rank(1))));
    }

    #[test]
    fn any_packet_is_better_than_none() {
        assert_eq!(better(None, Some(3)), Some(3));
        assert_eq!(better(Some(2), Some(3)), Some(2));
        assert_eq!(better(None, None), None);
    }
}
