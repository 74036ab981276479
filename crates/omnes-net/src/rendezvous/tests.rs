#![allow(clippy::unwrap_used)]
use super::signed_line::{Signed, ToAll, read_line, write_line};
use super::*;
use crate::descriptors;
use crate::table::Table;
use std::io::{Read, Write};
use std::thread::{Builder, JoinHandle};

const PATIENCE: Duration = Duration::from_secs(60);

fn key() -> JobKey {
    JobKey::new([7; 16])
}

/// A rank of a job of `size` whose rank 0 is at `address`, on a separate thread; its port is
/// derived from its number.
fn meet(
    rank: u32,
    size: u32,
    address: &str,
    listener: Option<TcpListener>,
) -> JoinHandle<Result<Met, NetError>> {
    meet_as(rank, size, address, listener, &[])
}

/// The same for a rank that may use only these addresses of its host.
fn meet_as(
    rank: u32,
    size: u32,
    address: &str,
    listener: Option<TcpListener>,
    own: &[&str],
) -> JoinHandle<Result<Met, NetError>> {
    let job = Rendezvous {
        rank: Rank(rank),
        size,
        address: address.to_owned(),
        listener,
        key: Some(key()),
        timeout: PATIENCE,
        while_waiting: None,
        node: None,
        encryption: false,
        own: own.iter().map(|address| address.parse().unwrap()).collect(),
        alike: Vec::new(),
    };
    let ports = Ports::One(1000 + rank as u16);
    let local = Local { ports, payload_bytes: 1400, lesser_payloads: Vec::new(), trial: None };
    let met = move || job.meet(|_, _| Ok(local));
    Builder::new().stack_size(1 << 18).spawn(met).unwrap()
}

/// A listener, and its address.
fn door() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

#[test]
fn hundreds_of_ranks_meet_and_receive_the_same_table() {
    let size = 300;
    descriptors::allow(u64::from(3 * size));
    let (listener, address) = door();
    let others: Vec<_> = (1..size).map(|rank| meet(rank, size, &address, None)).collect();
    let zero = meet(0, size, &address, Some(listener)).join().unwrap().unwrap();
    assert_eq!(zero.streams.len() as u32, size - 1);
    for (rank, other) in (1..).zip(others) {
        let met = other.join().unwrap().unwrap();
        assert_eq!((met.job, &met.nodes), (zero.job, &zero.nodes));
        assert_eq!(met.core_sharing.local_ranks, size);
        let own = |port| if port == 1000 + rank { 0 } else { port };
        let ports = met.addresses.iter().map(|address| u32::from(address.port()));
        assert!(ports.eq((1000..1000 + size).map(own)));
    }
}

#[test]
fn ranks_are_published_under_their_allowed_addresses() {
    let (listener, address) = door();
    let own: [&[&str]; 4] = [
        &["fd00::1", "127.0.0.9", "127.0.0.8"],
        &["127.0.0.7"],
        // The address by which it reaches rank 0 is preferred.
        &["127.0.0.6", "127.0.0.1"],
        &[],
    ];
    let join = |rank: usize, listener| meet_as(rank as u32, 4, &address, listener, own[rank]);
    let others = [1, 2, 3].map(|rank| join(rank, None));
    let zero = join(0, Some(listener));
    for met in [zero].into_iter().chain(others) {
        let addresses = met.join().unwrap().unwrap().addresses;
        let hosts: Vec<String> = addresses.iter().map(|it| it.ip().to_string()).collect();
        assert_eq!(hosts, ["127.0.0.9", "127.0.0.7", "127.0.0.1", "127.0.0.1"]);
    }
    let (listener, address) = door();
    let refused = meet_as(0, 1, &address, Some(listener), &["fd00::1"]).join().unwrap();
    let error = refused.err().unwrap().to_string();
    let named =
        "at 127.0.0.1, but none of the addresses that this rank may use (fd00::1) is of that kind";
    assert!(error.contains(named), "{error}");
}

#[test]
fn no_rank_starts_before_all_have_the_table() {
    let (listener, address) = door();
    let zero = meet(0, 3, &address, Some(listener));
    let one = meet(1, 3, &address, None);
    // Rank 2 gets the table and ends before it can confirm that.
    let stream = TcpStream::connect(&address).unwrap();
    let greeting: Challenge = read_line(4096, |piece| (&stream).read(piece)).unwrap();
    let hello = Hello {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        rank: 2,
        size: 3,
        address: None,
        ports: Ports::One(1002),
        payload_bytes: 1400,
        trial_port: 0,
        reached: stream.local_addr().unwrap().ip(),
        machine: Machine::this(),
        node: None,
        encryption: false,
        alike: Vec::new(),
        challenge: 5,
    };
    write_line(&stream, &Signed::new(&hello, Some(&key()), greeting.challenge, 2).unwrap())
        .unwrap();
    let heard: Signed = read_line(4096, |piece| (&stream).read(piece)).unwrap();
    assert!(heard.is_proven(Some(&key()), 5, SERVER));
    drop(stream);
    let lost = zero.join().unwrap().map(drop);
    assert!(matches!(lost, Err(NetError::RankLost { rank: Rank(2), .. })), "{lost:?}");
    let lost = one.join().unwrap().map(drop);
    assert!(matches!(lost, Err(NetError::RendezvousLost { .. })), "{lost:?}");
}

/// A replay: its digest matches the key, but it answers a different challenge.
#[test]
fn replayed_table_for_another_challenge_is_rejected() {
    let (listener, address) = door();
    let one = meet(1, 2, &address, None);
    let mut stream = listener.accept().unwrap().0;
    write_line(&stream, &Challenge { omnes: PROTOCOL, challenge: 3 }).unwrap();
    let heard: Signed = read_line(4096, |piece| (&stream).read(piece)).unwrap();
    let hello: Hello = heard.read().unwrap();
    assert!(heard.is_proven(Some(&key()), 3, 1));
    let table = Table {
        job: 9,
        key: None,
        hosts: vec![None; 2],
        ports: vec![Ports::One(1000), hello.ports],
        payload_bytes: 1400,
        nodes: vec![vec![0], vec![1]],
        circle: Vec::new(),
    };
    let to_all = ToAll::new(&table, Some(&key())).unwrap();
    let reply = Reply::Table { digest: to_all.digest(), core_sharing: CoreSharing::default() };
    let signed = Signed::new(&reply, Some(&key()), hello.challenge ^ 1, SERVER).unwrap();
    stream.write_all(&[&signed.begin_line().unwrap(), to_all.end()].concat()).unwrap();
    drop(stream);
    let refused = one.join().unwrap().map(drop);
    assert!(matches!(refused, Err(NetError::WrongKey { rank: Rank(0) })), "{refused:?}");
}
