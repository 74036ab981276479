#![allow(clippy::unwrap_used)]
use super::*;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering::Relaxed};

fn part(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

fn pair(local: &str) -> (UdpSocket, UdpSocket) {
    let local = local.parse().unwrap();
    (UdpSocket::bind(local, 1 << 20).unwrap(), UdpSocket::bind(local, 1 << 20).unwrap())
}

fn receive_all(socket: &mut UdpSocket, packets: usize) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    let mut out = Vec::new();
    while got.len() < packets {
        let mut buffers = [part(&mut buffer)];
        if socket.receive(&mut buffers, &mut out) == 1 {
            got.extend(buffer[..out[0].bytes].chunks(out[0].packet_bytes).map(<[u8]>::to_vec));
        }
    }
    got
}

fn send_train(gso: bool, local: &str) {
    let (mut from, mut to) = pair(local);
    from.restrict(Offloads { gso, gro: true });
    let mut packets: Vec<Vec<u8>> = (0..40u8).map(|index| vec![index; 1000]).collect();
    packets.push(vec![40; 7]);
    // Head and data of each packet separately, as the engine has them.
    let mut parts: Vec<_> = packets
        .iter_mut()
        .flat_map(|packet| {
            let (head, data) = packet.split_at_mut(5);
            [part(head), part(data)]
        })
        .collect();
    let train = Train {
        multisend: None,
        to: to.local_address().ok(),
        parts: (0, parts.len()),
        packets: 41,
        packet_bytes: 1000,
    };
    assert_eq!(from.send(&[train], &mut parts), 1);
    assert_eq!(receive_all(&mut to, 41), packets);
    assert_eq!(from.counters.packets_sent, 41);
}

#[test]
fn train_arrives_whole_with_and_without_segmentation_offload() {
    send_train(true, "127.0.0.1");
    send_train(false, "127.0.0.1");
    send_train(true, "::1");
    send_train(false, "::1");
}

#[test]
fn train_in_one_part_is_split_into_packets_without_offload() {
    let (mut from, mut to) = pair("127.0.0.1");
    from.restrict(Offloads { gso: false, gro: true });
    let mut data: Vec<u8> = (0..2500usize).map(|at| at as u8).collect();
    let packets: Vec<Vec<u8>> = data.chunks(1000).map(<[u8]>::to_vec).collect();
    let (whole, address) = (data.len(), to.local_address().ok());
    let train =
        Train { multisend: None, to: address, parts: (0, 1), packets: 3, packet_bytes: 1000 };
    assert_eq!(from.send(&[train], &mut [part(&mut data)]), 1);
    assert_eq!(receive_all(&mut to, 3), packets);
    assert_eq!((from.counters.packets_sent, from.counters.bytes_sent), (3, whole as u64));
}

#[test]
fn trains_are_sent_whole_again_after_the_kernel_rejects_one() {
    let (mut from, mut to) = pair("127.0.0.1");
    let address = to.local_address().ok();
    let mut send = |packet_bytes: usize| {
        let mut data = vec![7; 2 * packet_bytes];
        let (parts, packets) = ((0, 1), 2);
        let train = Train { multisend: None, to: address, parts, packets, packet_bytes };
        let calls = from.counters.send_calls;
        assert_eq!(from.send(&[train], &mut [part(&mut data)]), 1);
        assert_eq!(receive_all(&mut to, 2), [vec![7; packet_bytes], vec![7; packet_bytes]]);
        from.counters.send_calls - calls
    };
    assert_eq!(send(1000), 1);
    // Longer than the kernel accepts in one call.
    assert_eq!(send(40_000), 3);
    let calls: Vec<u64> = (0..70).map(|_| send(1000)).collect();
    assert_eq!((calls[0], calls[69]), (2, 1), "{calls:?}");
    assert_eq!(send(40_000), 3);
    assert!(!from.offloads().gso, "what is said is how it goes at present");
}

#[test]
fn peeking_leaves_the_datagram_in_the_queue() {
    let (mut from, mut to) = pair("127.0.0.1");
    let mut data = [1, 2, 3, 4, 5];
    let address = to.local_address().unwrap();
    let train =
        Train { to: Some(address), multisend: None, parts: (0, 1), packets: 1, packet_bytes: 5 };
    from.send(&[train], &mut [part(&mut data)]);
    let mut head = [0; 2];
    let seen = loop {
        let mut buffers = [part(&mut head)];
        if let Some(seen) = to.receive_scattered(&mut buffers, Take::Look) {
            break seen;
        }
    };
    assert_eq!((seen.bytes, head), (5, [1, 2]));
    assert_eq!(receive_all(&mut to, 1), [[1, 2, 3, 4, 5]]);
}

#[test]
fn empty_datagram_counts_as_one_packet_on_every_receive_path() {
    let (from, mut to) = pair("127.0.0.1");
    let address = to.local_address().unwrap();
    let mut buffer = [0; 8];
    let is_one = |got: Received| assert_eq!((got.bytes, got.packet_bytes), (0, 1));
    from.options().send_to(&[], &address.into()).unwrap();
    for take in [Take::Look, Take::Out] {
        is_one(to.receive_scattered(&mut [part(&mut buffer)], take).unwrap());
    }
    from.options().send_to(&[], &address.into()).unwrap();
    let mut out = Vec::new();
    assert_eq!(to.receive(&mut [part(&mut buffer)], &mut out), 1);
    is_one(out[0]);
    assert_eq!((to.counters.trains_received, to.counters.bytes_received), (2, 0));
}

#[test]
fn loopback_path_mtu_is_reported() {
    let (_, to) = pair("127.0.0.1");
    let address = to.local_address().unwrap();
    assert!(UdpSocket::path_mtu(address.ip(), address).unwrap() >= 1500);
}

#[test]
fn address_cannot_be_stolen_while_a_second_socket_is_bound() {
    let (stop, port) = (AtomicBool::new(false), AtomicU16::new(0));
    std::thread::scope(|scope| {
        let thief = scope.spawn(|| {
            let mut stolen = 0;
            while !stop.load(Relaxed) {
                let address = SocketAddr::from(([127, 0, 0, 1], port.load(Relaxed)));
                let socket = UdpSocket::open(address).unwrap();
                socket.set_reuse_address(true).unwrap();
                let is_bound = address.port() != 0 && socket.bind(&address.into()).is_ok();
                // The port may be free again by now.
                let is_theirs = address.port() == port.load(Relaxed);
                stolen += u32::from(is_bound && is_theirs);
            }
            stolen
        });
        for _ in 0..2000 {
            let first = UdpSocket::bind("127.0.0.1".parse().unwrap(), 1 << 16).unwrap();
            port.store(first.local_address().unwrap().port(), Relaxed);
            let second = first.beside("127.0.0.2:9".parse().unwrap()).unwrap();
            assert_eq!(second.local_address().unwrap(), first.local_address().unwrap());
            port.store(0, Relaxed);
        }
        stop.store(true, Relaxed);
        assert_eq!(thief.join().unwrap(), 0);
    });
}
