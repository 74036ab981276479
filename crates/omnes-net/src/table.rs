//! The table of addresses of a job's ranks, the same for all of them.

use crate::error::RANKS_MAX;
use crate::links::CONNECTED_RANKS_MAX;
use crate::rendezvous::is_payload;
use crate::trial::Place;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// Longest table, as a part of a line: some bytes for the job, and for each rank an IPv6 address, a
/// port, its number among those of its node, and possibly its number and another port in the
/// circle. If each pair of ranks has its own sockets, one more port for each pair.
const TABLE_BYTES: usize = 4096;
const TABLE_BYTES_PER_RANK: usize = 80;
const TABLE_BYTES_PER_PAIR: usize = 6;
// Small enough for any rank to read.
const _: () = assert!(table_bytes_max(RANKS_MAX) < 1 << 23);

/// Ports at which a rank receives packets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Ports {
    /// Packets of all ranks arrive at one port.
    One(u16),
    /// Packets of each rank arrive at a port of their own, in order of ranks; 0 for the rank
    /// itself.
    Each(Vec<u16>),
}

/// Data that rank 0 sends to all ranks.
#[derive(Serialize, Deserialize)]
pub(crate) struct Table {
    pub(crate) job: u32,
    /// Hexadecimal; absent if the ranks have a key already.
    pub(crate) key: Option<String>,
    /// In order of ranks. `None` for rank 0: the address at which it was reached.
    pub(crate) hosts: Vec<Option<IpAddr>>,
    /// In order of ranks.
    pub(crate) ports: Vec<Ports>,
    pub(crate) payload_bytes: u16,
    pub(crate) nodes: Vec<Vec<u32>>,
    /// Ranks that test whether packets of this length get from host to host; empty if that is not
    /// in doubt.
    pub(crate) circle: Vec<Place>,
}

/// Longest line with the table of a job of `size` ranks.
pub(crate) const fn table_bytes_max(size: u32) -> usize {
    let per_pair = if size <= CONNECTED_RANKS_MAX { TABLE_BYTES_PER_PAIR } else { 0 };
    TABLE_BYTES + (TABLE_BYTES_PER_RANK + per_pair * size as usize) * size as usize
}

impl Ports {
    /// True if there is a port for each of `size` ranks.
    pub(crate) fn is_whole(&self, size: u32) -> bool {
        match self {
            Self::One(_) => true,
            Self::Each(ports) => ports.len() == size as usize,
        }
    }

    /// Port for packets of `rank`.
    fn of(&self, rank: u32) -> u16 {
        match self {
            Self::One(port) => *port,
            Self::Each(ports) => ports[rank as usize],
        }
    }
}

impl Table {
    /// True if the table is valid for rank `reader` of a job of `size`.
    pub(crate) fn is_whole(&self, reader: u32, size: u32) -> bool {
        self.hosts.len() == size as usize
            && self.ports.len() == size as usize
            && self.ports.iter().all(|ports| ports.is_whole(size))
            && is_payload(self.payload_bytes)
            && self.nodes.iter().any(|node| node.contains(&reader))
            && self.nodes.iter().flatten().all(|rank| *rank < size)
            && self.circle.iter().all(|(rank, _)| *rank < size)
    }

    /// Addresses at which each rank receives packets of `reader`, which has reached rank 0 at
    /// `zero`.
    pub(crate) fn addresses_for(&self, reader: u32, zero: IpAddr) -> Vec<SocketAddr> {
        let ports = (0..).zip(&self.ports);
        let ports = ports.map(|(rank, ports)| if rank == reader { 0 } else { ports.of(reader) });
        let hosts = self.hosts.iter().map(|host| host.unwrap_or(zero));
        hosts.zip(ports).map(SocketAddr::from).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::core_sharing::CoreSharing;
    use crate::rendezvous::Reply;
    use crate::rendezvous::signed_line::{Signed, ToAll, read_line};
    use omnes_wire::JobKey;

    fn table(host: IpAddr, size: u32) -> Table {
        Table {
            job: u32::MAX,
            key: Some("f".repeat(32)),
            hosts: vec![Some(host); size as usize],
            ports: vec![Ports::One(u16::MAX); size as usize],
            payload_bytes: 1400,
            nodes: (0..size).map(|rank| vec![rank]).collect(),
            circle: (0..size).map(|rank| (rank, u16::MAX)).collect(),
        }
    }

    #[test]
    fn table_of_any_job_size_round_trips_as_one_line() {
        let key = JobKey::new([7; 16]);
        let host = "fedc:ba98:7654:3210:fedc:ba98:7654:3210".parse().unwrap();
        for size in (1..=CONNECTED_RANKS_MAX + 1).chain([RANKS_MAX]) {
            let mut table = table(host, size);
            if size <= CONNECTED_RANKS_MAX {
                table.ports.fill(Ports::Each(vec![u16::MAX; size as usize]));
            }
            let to_all = ToAll::new(&table, Some(&key)).unwrap();
            let reply =
                Reply::Table { digest: to_all.digest(), core_sharing: CoreSharing::default() };
            let signed = Signed::new(&reply, Some(&key), u64::MAX, u32::MAX).unwrap();
            let line = [&signed.begin_line().unwrap(), to_all.end()].concat();
            let mut rest = line.as_slice();
            let read = |piece: &mut [u8]| std::io::Read::read(&mut rest, piece);
            let heard: Signed = read_line(table_bytes_max(size), read).unwrap();
            let table: Table = heard.read_to_all(Some(&key), to_all.digest()).unwrap();
            assert!(table.is_whole(size - 1, size) && !table.is_whole(size, size));
        }
    }

    #[test]
    fn addresses_for_each_rank_use_the_ports_meant_for_that_rank() {
        let host: IpAddr = "10.0.0.7".parse().unwrap();
        let ports = vec![Ports::One(5), Ports::Each(vec![6, 0, 7]), Ports::One(8)];
        let hosts = vec![None, Some(host), Some(host)];
        let table = Table { hosts, ports, ..table(host, 3) };
        assert!(table.is_whole(2, 3));
        let zero = "10.0.0.1".parse().unwrap();
        let shown = |reader| {
            let addresses = table.addresses_for(reader, zero).into_iter();
            addresses.map(|address| address.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(shown(0), ["10.0.0.1:0", "10.0.0.7:6", "10.0.0.7:8"]);
        assert_eq!(shown(2), ["10.0.0.1:5", "10.0.0.7:7", "10.0.0.7:0"]);
        let circle = vec![(0, 5), (3, 6)];
        let mut wrong = Table { circle, ..table };
        assert!(!wrong.is_whole(2, 3), "there is no rank 3");
        wrong.circle.clear();
        assert!(wrong.is_whole(2, 3));
        wrong.ports.fill(Ports::Each(vec![1]));
        assert!(!wrong.is_whole(2, 3));
    }
}
