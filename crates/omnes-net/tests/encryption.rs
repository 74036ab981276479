//! An eavesdropper on the group of a job, which also sends changed packets to it.
#![allow(clippy::unwrap_used)]

mod hosts;
mod members;
mod ranks;

use members::{LOOPBACK, loopback, with_ranks};
use omnes_net::{EngineCounters, Hold, JobConfig, MulticastState, Offloads, Policy};
use omnes_wire::{Header, JobKey, Kind};
use ranks::PATIENCE;
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{SocketAddr, UdpSocket};

/// Data that are broadcast while the eavesdropper listens.
const SECRET: &[u8] = b"weights that cost a month of computing; ";

const SECRETS: u64 = 20;

/// Opens a socket of a stranger that has joined the group.
fn listen(group: SocketAddr) -> UdpSocket {
    let SocketAddr::V4(v4) = group else { panic!("{group}") };
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.set_recv_buffer_size(1 << 20).unwrap();
    socket.bind(&group.into()).unwrap();
    socket.join_multicast_v4(v4.ip(), &LOOPBACK.parse().unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.into()
}

/// Receives all packets with secrets, and sends each packet once more with one bit of its data
/// changed; true if any of them could be read.
fn eavesdrop(ear: &UdpSocket, group: SocketAddr) -> bool {
    let mouth = UdpSocket::bind((LOOPBACK, 0)).unwrap();
    let mut packet = [0; 1 << 16];
    let (mut heard, mut has_read) = (0, false);
    while heard < SECRETS {
        let (bytes, from) = ear.recv_from(&mut packet).unwrap();
        let is_data = Header::parse(&packet[..bytes]).is_ok_and(|(it, _)| it.kind == Kind::Cast);
        if is_data && bytes > SECRET.len() && from != mouth.local_addr().unwrap() {
            heard += 1;
            has_read |= packet[..bytes].windows(SECRET.len()).any(|window| window == SECRET);
            packet[bytes / 2] ^= 1;
            mouth.send_to(&packet[..bytes], group).unwrap();
        }
    }
    has_read
}

/// Broadcasts among three ranks while an eavesdropper listens; returns whether it could read the
/// broadcasts, and each rank's counters.
fn overheard(encrypts: bool) -> (bool, Vec<EngineCounters>) {
    let job = |config: &mut JobConfig| {
        (config.encryption, config.key) = (encrypts, Some(JobKey::new([5; 16])));
        config.offloads = Offloads { gso: false, gro: false };
    };
    let told = with_ranks(&loopback(3), job, |member| {
        member.open(Policy::COMBINED);
        let MulticastState::On { group, .. } = member.state() else { panic!() };
        let data = SECRET.repeat(100);
        let mut buffer = vec![0; data.len()];
        let has_read = std::thread::scope(|scope| {
            let ear = (member.engine.rank() == 0).then(|| listen(group));
            let listener = ear.map(|ear| scope.spawn(move || eavesdrop(&ear, group)));
            for _ in 0..SECRETS {
                if listener.is_some() {
                    member.broadcast(&data, Hold::Window);
                } else {
                    let received = member.receive(0, &mut buffer).unwrap();
                    assert_eq!(received.bytes, data.len() as u64);
                    // Without encryption, the changed packet may have arrived first.
                    assert!(buffer == data || !encrypts);
                }
            }
            listener.map(|listener| listener.join().unwrap())
        });
        // The last packet at the same socket shows that all before it have been read.
        match has_read {
            Some(_) => member.broadcast(b"over", Hold::Window),
            None => assert_eq!(member.receive(0, &mut buffer).unwrap().bytes, 4),
        }
        member.meet.wait();
        (has_read, member.engine.counters())
    });
    let has_read = told[0].0.unwrap();
    (has_read, told.into_iter().map(|(_, counters)| counters).collect())
}

#[test]
fn encrypted_data_can_neither_be_overheard_nor_forged() {
    let (has_read, counters) = overheard(true);
    assert!(!has_read);
    for counted in &counters[1..] {
        assert!(counted.gate.bad_data > 0, "{:?}", counted.gate);
        assert_eq!(counted.gate.bad_tag, 0);
        assert_eq!(counted.broadcast.messages_received, SECRETS + 1);
    }
    let (has_read, counters) = overheard(false);
    assert!(has_read, "the listener reads what is in the clear");
    assert!(counters.iter().all(|counted| counted.gate.bad_data == 0));
}
