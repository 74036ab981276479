//! Broadcasts over real multicast: three ranks of one process, over loopback and, as root, between
//! hosts in network namespaces of their own.
#![allow(clippy::unwrap_used)]

mod hosts;
mod ranks;

use omnes_net::{
    Cast, Completion, Engine, EngineCounters, GroupConfig, GroupId, Hold, JobConfig,
    MulticastConfig, MulticastState, Offloads, Operation, OperationError, Policy, WhenFull,
    free_port,
};
use omnes_wire::{ChannelId, CommunicatorId, Flags, Header, JobId, JobKey, Kind, Rank, Seq};
use ranks::{PATIENCE, pattern};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ptr::NonNull;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LOOPBACK: &str = "127.0.0.1";
const GROUP: GroupId = GroupId { communicator: CommunicatorId(0), number: 0 };
/// Lengths around what changes the way: envelope, packet, train, copy, window.
const LENGTHS: [usize; 12] =
    [0, 1, 8, 1000, 8892, 8893, 16_384, 65_536, 65_537, 200_000, 600_001, 1 << 20];

fn config(rank: u32, size: u32, rendezvous: &str) -> JobConfig {
    JobConfig {
        channels: vec![omnes_net::ChannelConfig::default()],
        multicast: MulticastConfig::default(),
        // All ranks are of this process, and it is multicast that is tried here.
        shared_memory: false,
        ..ranks::config(rank, size, rendezvous)
    }
}

/// One rank, and what it needs of the others.
struct Member<'a> {
    engine: Engine,
    meet: &'a Barrier,
}

impl Member<'_> {
    /// Opens the group of all ranks, each on a node of its own, when all have heard all.
    fn open(&self, policy: Policy) {
        let others = self.engine.size() as usize - 1;
        assert!(matches!(self.engine.multicast(), MulticastState::On { .. }), "{:?}", self.state());
        let until = Instant::now() + PATIENCE;
        self.meet.wait();
        // Whoever has heard all may not have been heard.
        self.engine.announce();
        while self.engine.heard() < others {
            assert!(Instant::now() < until, "heard {} of {others}", self.engine.heard());
            std::thread::yield_now();
        }
        self.meet.wait();
        let nodes = (0..self.engine.size()).map(|rank| vec![Rank(rank)]).collect();
        self.engine.open_group(GroupConfig { id: GROUP, nodes, policy });
        self.meet.wait();
    }

    fn state(&self) -> MulticastState {
        self.engine.multicast()
    }

    fn start_broadcast(
        &self,
        data: &[u8],
        hold: Hold,
    ) -> Result<Option<Operation>, OperationError> {
        self.start(data, hold, WhenFull::Wait)
    }

    fn start(
        &self,
        data: &[u8],
        hold: Hold,
        when_full: WhenFull,
    ) -> Result<Option<Operation>, OperationError> {
        let (base, bytes) = (NonNull::from(data).cast(), data.len() as u64);
        let cast = Cast { group: GROUP, hold, base, bytes, when_full };
        // SAFETY: callers wait for the operation, or release it, while they hold the data.
        unsafe { self.engine.broadcast(cast, |_| true) }
    }

    fn broadcast(&self, data: &[u8], hold: Hold) {
        if let Some(operation) = self.start_broadcast(data, hold).unwrap() {
            let sent = self.engine.wait(operation, |_| true).unwrap();
            assert_eq!(sent.bytes, data.len() as u64);
        }
    }

    fn start_receive(&self, root: u32, buffer: &mut [u8]) -> Operation {
        let (capacity, base) = (buffer.len() as u64, NonNull::from(buffer).cast());
        // SAFETY: callers wait for the operation while they hold the buffer.
        unsafe { self.engine.receive_broadcast(GROUP, Rank(root), base, capacity).unwrap() }
    }

    fn receive(&self, root: u32, buffer: &mut [u8]) -> Result<Completion, OperationError> {
        let operation = self.start_receive(root, buffer);
        self.engine.wait(operation, |_| true)
    }
}

/// Runs `body` as every rank of a job; results in order of ranks.
fn with_ranks<T: Send>(
    addresses: &[hosts::Host],
    adjust: impl Fn(&mut JobConfig) + Sync,
    body: impl Fn(&Member<'_>) -> T + Sync,
) -> Vec<T> {
    let size = addresses.len() as u32;
    let port = addresses[0].inside(|| free_port(addresses[0].address).unwrap());
    let rendezvous = SocketAddr::new(addresses[0].address, port).to_string();
    let meet = Barrier::new(addresses.len());
    std::thread::scope(|scope| {
        let start = |rank: u32| {
            let (adjust, body, meet, rendezvous) = (&adjust, &body, &meet, &rendezvous);
            scope.spawn(move || {
                addresses[rank as usize].inside(|| {
                    let mut config = config(rank, size, rendezvous);
                    adjust(&mut config);
                    let member = Member { engine: Engine::join(config).unwrap(), meet };
                    let result = body(&member);
                    meet.wait();
                    assert!(member.engine.drain(PATIENCE));
                    meet.wait();
                    member.engine.leave();
                    result
                })
            })
        };
        let ranks: Vec<_> = (0..size).map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn loopback(size: usize) -> Vec<hosts::Host> {
    vec![hosts::Host::here(LOOPBACK.parse::<IpAddr>().unwrap()); size]
}

/// Every length from every rank, both ways of holding; what each rank has counted.
fn all_lengths(hosts: &[hosts::Host], policy: &str) -> Vec<EngineCounters> {
    let policy: Policy = policy.parse().unwrap();
    with_ranks(
        hosts,
        |_| {},
        |member| {
            member.open(policy);
            let mut buffer = vec![0; LENGTHS[LENGTHS.len() - 1]];
            for (round, length) in LENGTHS.iter().enumerate() {
                for root in 0..member.engine.size() {
                    let data = pattern(*length, round as u32 * 7 + root);
                    let hold = if round % 2 == 0 { Hold::Window } else { Hold::Basic };
                    if root == member.engine.rank() {
                        member.broadcast(&data, hold);
                        continue;
                    }
                    buffer.fill(0xee);
                    let got = member.receive(root, &mut buffer).unwrap();
                    assert_eq!((got.bytes, got.peer), (*length as u64, Rank(root)));
                    assert!(buffer[..*length] == data, "{length} bytes from rank {root}");
                    assert!(buffer[*length..].iter().all(|byte| *byte == 0xee), "written too far");
                }
            }
            assert!(member.engine.drain(PATIENCE));
            member.engine.counters()
        },
    )
}

/// [BC-R1, R20]
#[test]
fn every_length_arrives_from_every_rank_over_loopback() {
    let counters = all_lengths(&loopback(3), "combined");
    for counted in &counters {
        assert!(counted.multicast.packets_sent > 0);
        assert_eq!(counted.broadcast.messages_sent, LENGTHS.len() as u64);
        assert_eq!(counted.broadcast.messages_received, 2 * LENGTHS.len() as u64);
        assert_eq!((counted.gate.bad_tag, counted.gate.foreign_job), (0, 0), "own packets");
    }
}

/// [BC-R4, R5, R10, R14, R17]
#[test]
fn every_policy_brings_the_same_bytes() {
    for policy in ["basic", "window", "tree-ack=2", "co-root=2", "skewed=4", "nack"] {
        all_lengths(&loopback(3), policy);
    }
}

/// Receives all messages of `root`, which are `count` and short.
fn expect_stream(member: &Member<'_>, root: u32, count: u32) {
    let mut buffer = [0; 64];
    for number in 0..count {
        let got = member.receive(root, &mut buffer).unwrap();
        let data = pattern(number as usize % 64, number);
        assert!(buffer[..got.bytes as usize] == data, "message {number} of rank {root}");
    }
}

/// [BC-R1, R5]
#[test]
fn messages_back_to_back_wait_for_room_and_arrive_in_order_at_a_late_rank() {
    let count = 2000;
    with_ranks(
        &loopback(3),
        |_| {},
        |member| {
            member.open(Policy::COMBINED);
            match member.engine.rank() {
                1 => (0..count).for_each(|number| {
                    member.broadcast(&pattern(number as usize % 64, number), Hold::Window);
                }),
                2 => {
                    // Computes, and is not inside the library meanwhile.
                    let until = Instant::now() + Duration::from_millis(50);
                    while Instant::now() < until {
                        std::hint::spin_loop();
                    }
                    expect_stream(member, 1, count);
                }
                _ => expect_stream(member, 1, count),
            }
        },
    );
}

#[test]
fn all_ranks_broadcast_at_once() {
    with_ranks(
        &loopback(3),
        |_| {},
        |member| {
            member.open(Policy::COMBINED);
            let (me, size) = (member.engine.rank(), member.engine.size());
            let bytes = 300_000;
            let data = pattern(bytes, me);
            let mut buffers = vec![vec![0; bytes]; size as usize];
            for _ in 0..10 {
                let sent = member.start_broadcast(&data, Hold::Window).unwrap().unwrap();
                let others = (0..size).zip(&mut buffers).filter(|(root, _)| *root != me);
                let receives: Vec<(u32, Operation)> = others
                    .map(|(root, buffer)| (root, member.start_receive(root, buffer)))
                    .collect();
                for (root, receive) in receives {
                    assert_eq!(member.engine.wait(receive, |_| true).unwrap().peer, Rank(root));
                    assert!(buffers[root as usize] == pattern(bytes, root));
                    buffers[root as usize].fill(0);
                }
                member.engine.wait(sent, |_| true).unwrap();
            }
        },
    );
}

/// [BC-R2]
#[test]
fn small_broadcast_is_one_packet_and_one_call_however_many_receive() {
    let rounds = 50;
    let counters = with_ranks(
        &loopback(3),
        |_| {},
        |member| {
            member.open(Policy::COMBINED);
            let before = member.engine.counters();
            let mut buffer = [0; 8];
            for _ in 0..rounds {
                match member.engine.rank() {
                    0 => member.broadcast(&[7; 8], Hold::Basic),
                    _ => assert_eq!(member.receive(0, &mut buffer).unwrap().bytes, 8),
                }
            }
            (before, member.engine.counters())
        },
    );
    let (before, after) = &counters[0];
    // A rank that the machine keeps from its core for long gets a packet twice, but not by
    // multicast, as there are two of them at most.
    let repairs = after.broadcast.repairs_by_multicast;
    assert_eq!(after.broadcast.casts_sent - before.broadcast.casts_sent, rounds);
    assert_eq!(after.multicast.packets_sent - before.multicast.packets_sent, rounds + repairs);
    assert_eq!(after.multicast.send_calls - before.multicast.send_calls, rounds + repairs);
    let bytes = after.multicast.bytes_sent - before.multicast.bytes_sent;
    let envelope = omnes_wire::ENVELOPE_BYTES + omnes_wire::PACKET_OVERHEAD_BYTES;
    assert_eq!(bytes, (rounds + repairs) * (envelope as u64 + 8));
}

#[test]
fn memory_is_the_callers_again_after_release() {
    with_ranks(
        &loopback(3),
        |_| {},
        |member| {
            member.open(Policy::COMBINED);
            let bytes = 400_000;
            let data = pattern(bytes, 5);
            if member.engine.rank() == 0 {
                let mut lent = data.clone();
                let sent = member.start_broadcast(&lent, Hold::Basic).unwrap().unwrap();
                member.engine.release(sent);
                lent.fill(0xbb);
                member.meet.wait();
                member.broadcast(&data, Hold::Window);
                return;
            }
            let mut buffer = vec![0xee; bytes];
            if member.engine.rank() == 1 {
                let given_up = member.start_receive(0, &mut buffer);
                member.engine.release(given_up);
                member.meet.wait();
                assert!(buffer.iter().all(|byte| *byte == 0xee) || buffer[..100] == data[..100]);
                buffer.fill(0xee);
            } else {
                member.meet.wait();
                member.receive(0, &mut buffer).unwrap();
                assert!(buffer == data, "what was sent before its memory changed");
            }
            member.receive(0, &mut buffer).unwrap();
            assert!(buffer == data);
        },
    );
}

#[test]
fn message_that_is_too_long_is_truncated_and_said_so() {
    with_ranks(
        &loopback(3),
        |_| {},
        |member| {
            member.open(Policy::COMBINED);
            for bytes in [100u64, 200_000] {
                let data = pattern(bytes as usize, 3);
                if member.engine.rank() == 0 {
                    member.broadcast(&data, Hold::Window);
                    continue;
                }
                let mut buffer = vec![0; bytes as usize / 2];
                let capacity = bytes / 2;
                let error = member.receive(0, &mut buffer).unwrap_err();
                assert_eq!(error, OperationError::Truncated { bytes, capacity });
                assert!(buffer == data[..bytes as usize / 2]);
            }
        },
    );
}

#[test]
fn broadcasts_without_offloads_arrive() {
    for (gso, gro) in [(false, false), (true, false), (false, true)] {
        let adjust = |config: &mut JobConfig| config.offloads = Offloads { gso, gro };
        with_ranks(&loopback(3), adjust, |member| {
            member.open(Policy::COMBINED);
            let data = pattern(500_000, 1);
            let mut buffer = vec![0; data.len()];
            match member.engine.rank() {
                0 => member.broadcast(&data, Hold::Window),
                _ => assert!(member.receive(0, &mut buffer).is_ok() && buffer == data),
            }
        });
    }
}

#[test]
fn rank_without_multicast_says_why_and_refuses() {
    let adjust = |config: &mut JobConfig| config.multicast.wanted = config.rank != 1;
    with_ranks(&loopback(2), adjust, |member| {
        let reason = match member.engine.rank() {
            1 => "switched off",
            _ => {
                assert!(matches!(member.state(), MulticastState::On { .. }));
                member.engine.disable_multicast("rank 1 has none");
                "rank 1 has none"
            }
        };
        assert_eq!(member.state(), MulticastState::Off { reason: reason.to_owned() });
        member.engine.announce();
        assert_eq!(member.engine.heard(), 0);
        let refused = OperationError::NoMulticast { reason: reason.to_owned() };
        assert_eq!(member.start_broadcast(&[1], Hold::Window), Err(refused));
    });
}

#[test]
fn failed_rank_ends_broadcasts_with_its_name() {
    let meet = Barrier::new(3);
    let port = free_port(LOOPBACK.parse().unwrap()).unwrap();
    let rendezvous = format!("{LOOPBACK}:{port}");
    let members = std::thread::scope(|scope| {
        let start = |rank: u32| {
            let (meet, rendezvous) = (&meet, &rendezvous);
            scope.spawn(move || {
                let engine = Engine::join(config(rank, 3, rendezvous)).unwrap();
                let member = Member { engine, meet };
                member.open(Policy::COMBINED);
                if rank == 2 {
                    return None; // Ends without a farewell.
                }
                let error = match rank {
                    0 => {
                        let data = vec![1; 300_000];
                        let sent = member.start_broadcast(&data, Hold::Basic).unwrap().unwrap();
                        member.engine.wait(sent, |_| false).unwrap_err()
                    }
                    _ => member.receive(2, &mut [0; 8]).unwrap_err(),
                };
                meet_of_two(&member, rank);
                Some(error)
            })
        };
        let members: Vec<_> = (0..3).map(start).collect();
        members.into_iter().map(|member| member.join().unwrap()).collect::<Vec<_>>()
    });
    let failed = Some(OperationError::PeerFailed { rank: Rank(2) });
    assert_eq!(members, [failed.clone(), failed, None]);
}

/// The two that are left leave when both know of the failure.
fn meet_of_two(member: &Member<'_>, rank: u32) {
    let until = Instant::now() + PATIENCE;
    while member.engine.failed().is_empty() && Instant::now() < until {
        std::thread::yield_now();
    }
    assert_eq!(member.engine.failed(), [2], "rank {rank}");
    member.engine.drain(PATIENCE);
    member.engine.leave();
}

/// Packets to the group of whoever is on its network: noise, another job's, and of this job with a
/// wrong tag. How many it has sent of each.
fn flood(group: SocketAddr, is_over: &AtomicBool) -> u64 {
    let SocketAddr::V4(v4) = group else { panic!("{group}") };
    // The job's number is in address and port.
    let job = u32::from(v4.port() - 16_384) << 18 | u32::from(*v4.ip()) & 0x3_ffff;
    let forged = |job: u32| {
        let header = Header {
            kind: Kind::Cast,
            job: JobId(job),
            communicator: CommunicatorId(0),
            channel: ChannelId(0),
            flags: Flags::GROUP.with(Flags::FIRST),
            source: Rank(0),
            seq: Seq(0),
            expects: Seq(0),
            epoch: 0,
            credits: 0,
            argument: 0,
        };
        let mut packet = header.emit().to_vec();
        packet.resize(100, 0x5a);
        packet
    };
    let socket = UdpSocket::bind((LOOPBACK, 0)).unwrap();
    let mut rounds = 0;
    while !is_over.load(Ordering::SeqCst) {
        for packet in [vec![b'?'; 100], forged(job ^ 1), forged(job)] {
            socket.send_to(&packet, group).unwrap();
        }
        rounds += 1;
        std::thread::sleep(Duration::from_micros(20));
    }
    rounds
}

#[test]
fn strangers_on_the_group_change_counters_only_and_keep_nobody_from_sleeping() {
    let is_over = AtomicBool::new(false);
    let counters = with_ranks(
        &loopback(3),
        |_| {},
        |member| {
            member.open(Policy::COMBINED);
            let MulticastState::On { group, .. } = member.state() else { panic!() };
            let bytes = 100_000;
            let mut buffer = vec![0; bytes];
            let rounds = std::thread::scope(|scope| {
                let stranger =
                    (member.engine.rank() == 0).then(|| scope.spawn(|| flood(group, &is_over)));
                for round in 0..20 {
                    let data = pattern(bytes, round);
                    if member.engine.rank() == 0 {
                        std::thread::sleep(Duration::from_millis(10));
                        member.broadcast(&data, Hold::Window);
                    } else {
                        assert_eq!(member.receive(0, &mut buffer).unwrap().bytes, bytes as u64);
                        assert!(buffer == data, "round {round}");
                    }
                }
                member.meet.wait();
                is_over.store(true, Ordering::SeqCst);
                stranger.map(|stranger| stranger.join().unwrap())
            });
            member.meet.wait();
            (member.engine.counters(), rounds)
        },
    );
    let rounds = counters[0].1.unwrap();
    assert!(rounds > 100, "{rounds}");
    for (counted, _) in &counters[1..] {
        assert_eq!((counted.gate.foreign_job, counted.gate.malformed), (0, 0));
        // The kernel drops two of three, and what a rank has sent itself. Some that are forged may
        // wait to be read.
        let (forged, dropped) = (counted.gate.bad_tag, counted.multicast_drops);
        let dropped = dropped - counted.multicast.packets_sent;
        assert!(forged > rounds / 2, "{forged} of {rounds}");
        assert!(dropped >= 2 * rounds && forged + dropped <= 3 * rounds, "{dropped} of {rounds}");
        // Of the 200 ms most were spent waiting.
        assert!(counted.sleeps > 20, "{} sleeps", counted.sleeps);
        assert_eq!(counted.broadcast.messages_received, 20);
    }
}

/// What is broadcast while somebody listens.
const SECRET: &[u8] = b"weights that cost a month of computing; ";

const SECRETS: u64 = 20;

/// A socket of a stranger who has joined the group.
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

/// Hears all that is secret, and sends each packet once more with one bit of its data changed; true
/// if one of them could be read.
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

/// Broadcasts among three ranks while somebody listens: whether that one could read them, and what
/// each rank has counted.
fn overheard(encrypts: bool) -> (bool, Vec<EngineCounters>) {
    let job = |config: &mut JobConfig| {
        (config.encrypts, config.key) = (encrypts, Some(JobKey::new([5; 16])));
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
                    // In the clear, what was changed may have come first.
                    assert!(buffer == data || !encrypts);
                }
            }
            listener.map(|listener| listener.join().unwrap())
        });
        // What comes by the same socket last shows that all before has been read.
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
fn data_that_are_encrypted_are_not_heard_and_none_are_put_in_their_place() {
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

#[test]
fn every_length_arrives_between_hosts() {
    for family in [hosts::Family::V4, hosts::Family::V6] {
        let Some(hosts) = hosts::network(3, family) else { return };
        for counted in all_lengths(&hosts, "combined") {
            // Nothing of its own comes back to a rank that is alone on its host.
            assert_eq!(counted.multicast_drops, 0);
            assert!(counted.multicast.packets_received > 0);
        }
    }
}

#[test]
fn ranks_of_one_host_and_of_another_hear_each_other() {
    let Some(hosts) = hosts::network(2, hosts::Family::V4) else { return };
    let ranks = [hosts[0].clone(), hosts[1].clone(), hosts[0].clone()];
    all_lengths(&ranks, "combined");
}
