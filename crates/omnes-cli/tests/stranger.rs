//! Packets that no rank has sent: anybody on the network may send them, and they change nothing.
//!
//! Two ranks, as processes of this test program, exchange messages while the test sends to their
//! ports. As an ordinary user that is noise from another port, which the kernel keeps away from
//! connected sockets. As root the noise comes from the peer's own address, in forged and in
//! replayed packets, and each is counted; otherwise it prints `skipped: needs root`.
#![allow(clippy::unwrap_used)]

mod as_root;

use as_root::is_root;
use omnes::{Communicator, Error, Stats};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A limit for events that take milliseconds; reached only by a failure.
const PATIENCE: Duration = Duration::from_secs(20);
/// Header and tag, of which no bit may be changed.
const HEAD_BYTES: usize = 40;

/// Not a test of its own: a rank, until its standard input ends.
#[test]
fn plays_a_rank() {
    if std::env::var("TEST_RANK").is_err() {
        return;
    }
    let is_over = &AtomicBool::new(false);
    let told = std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            is_over.store(true, Ordering::SeqCst);
        });
        Communicator::from_env().and_then(|world| pass_messages(&world, is_over))
    });
    let stats = told.unwrap();
    println!(
        "refused={} foreign_job={} bad_tag={}",
        stats.packets_malformed
            + stats.packets_unknown_version
            + stats.packets_foreign_job
            + stats.packets_bad_tag,
        stats.packets_foreign_job,
        stats.packets_bad_tag
    );
    std::process::exit(0);
}

/// Rounds of a message to rank 1 and back, alternately short and long, until rank 0 stops.
fn pass_messages(world: &Communicator, is_over: &AtomicBool) -> Result<Stats, Error> {
    let mut buffer = vec![0; 200_000];
    world.barrier()?;
    println!("ready");
    for round in 0u32.. {
        let bytes = [100, 5000, 200_000][round as usize % 3];
        if world.rank() == 0 {
            let is_last = is_over.load(Ordering::SeqCst);
            let data = vec![if is_last { 255 } else { (round % 100) as u8 }; bytes];
            world.send(1, round, &data)?;
            let status = world.recv(1, round, &mut buffer)?;
            assert!(status.bytes == bytes && buffer[..bytes] == data);
            if is_last {
                break;
            }
        } else {
            let status = world.recv(0, round, &mut buffer)?;
            assert!(buffer[..bytes].iter().all(|byte| *byte == buffer[0]));
            world.send(0, round, &buffer[..status.bytes])?;
            if buffer[0] == 255 {
                break;
            }
        }
    }
    world.barrier()?;
    Ok(world.stats())
}

/// One of the two ranks, killed when dropped.
struct Rank {
    process: Child,
    input: Option<ChildStdin>,
}

impl Rank {
    fn start(rank: u32, rendezvous: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "plays_a_rank", "--nocapture"]).env("TEST_RANK", "yes");
        command.env("OMNES_RANK", rank.to_string()).env("OMNES_SIZE", "2");
        command.env("OMNES_RENDEZVOUS", rendezvous).env("OMNES_LOCAL_SIZE", "2");
        // Strangers are on the network.
        command.env("OMNES_SHM", "off");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let input = process.stdin.take();
        Self { process, input }
    }

    /// Local and remote address of its UDP socket for the other rank, as the kernel reports them.
    fn socket(&self) -> (SocketAddrV4, SocketAddrV4) {
        let own = format!("/proc/{}", self.process.id());
        let links = std::fs::read_dir(format!("{own}/fd")).unwrap().flatten();
        let links = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        let held: Vec<String> = links.map(|link| link.to_string_lossy().into_owned()).collect();
        let table = std::fs::read_to_string(format!("{own}/net/udp")).unwrap();
        let mut rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
        // Not the sockets of the multicast group.
        let is_of_peer = |row: &[&str]| {
            let ends = [address(row[1]), address(row[2])];
            ends.iter().all(|end| end.ip().is_loopback())
        };
        let is_held = |row: &[&str]| held.contains(&format!("socket:[{}]", row[9]));
        let row = rows.find(|row| is_held(row) && is_of_peer(row)).unwrap();
        (address(row[1]), address(row[2]))
    }

    fn lines(&mut self) -> impl Iterator<Item = String> + use<> {
        BufReader::new(self.process.stdout.take().unwrap()).lines().map(Result::unwrap)
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Parses `0100007F:1F90`, the form in `/proc`.
fn address(text: &str) -> SocketAddrV4 {
    let (ip, port) = text.split_once(':').unwrap();
    let ip = u32::from_str_radix(ip, 16).unwrap().swap_bytes();
    SocketAddrV4::new(Ipv4Addr::from(ip), u16::from_str_radix(port, 16).unwrap())
}

/// Runs two ranks, applies `act` to rank 1's socket, and returns the counters of rank 1.
fn counts_of_rank_1(act: impl FnOnce(SocketAddrV4, SocketAddrV4)) -> Vec<(String, u64)> {
    let port = omnes::free_port(std::net::Ipv4Addr::LOCALHOST.into()).unwrap();
    let rendezvous = format!("127.0.0.1:{port}");
    let mut ranks = [0, 1].map(|rank| Rank::start(rank, &rendezvous));
    let mut output = ranks[1].lines();
    assert!(output.any(|line| line.ends_with("ready")), "rank 1 did not start");
    let (own, peer) = ranks[1].socket();
    act(own, peer);
    ranks[0].input = None;
    ranks[1].input = None;
    let counts = output.find(|line| line.contains("refused=")).unwrap();
    for mut rank in ranks {
        assert!(rank.process.wait().unwrap().success());
    }
    let pairs = counts.split_whitespace().filter_map(|word| word.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}

fn count(counts: &[(String, u64)], name: &str) -> u64 {
    counts.iter().find(|(other, _)| other == name).unwrap().1
}

/// Meaningless bytes, of many lengths.
fn noise() -> Vec<Vec<u8>> {
    let lengths = [1, 3, 31, 39, 40, 41, 56, 168, 1000, 1472, 9000];
    let byte = |at: usize, length: usize| (at * 151 + length * 7) as u8;
    lengths.iter().map(|length| (0..*length).map(|at| byte(at, *length)).collect()).collect()
}

#[test]
fn packets_from_unknown_senders_do_not_reach_a_rank() {
    let counts = counts_of_rank_1(|own, _| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for packet in noise() {
            socket.send_to(&packet, own).unwrap();
        }
    });
    assert_eq!(count(&counts, "refused"), 0);
}

/// Receives all packets of this machine's loopback, and sends packets from any port.
struct Forger(Socket);

impl Forger {
    fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        Self(socket)
    }

    /// The next packet from `from` to `to` that is long enough to be a data packet.
    fn overhear(&self, from: SocketAddrV4, to: SocketAddrV4) -> Vec<u8> {
        let deadline = Instant::now() + PATIENCE;
        let mut buffer = vec![0; 1 << 16];
        loop {
            assert!(Instant::now() < deadline, "nothing was heard");
            let Ok(bytes) = (&self.0).read(&mut buffer) else { continue };
            let header_bytes = usize::from(buffer[0] & 15) * 4;
            let udp = &buffer[header_bytes..bytes];
            let ports =
                (u16::from_be_bytes([udp[0], udp[1]]), u16::from_be_bytes([udp[2], udp[3]]));
            let data = &udp[8..];
            if ports == (from.port(), to.port()) && (HEAD_BYTES + 60..1500).contains(&data.len()) {
                return data.to_vec();
            }
        }
    }

    fn send(&self, from: SocketAddrV4, to: SocketAddrV4, data: &[u8]) {
        let mut packet = Vec::with_capacity(8 + data.len());
        packet.extend(from.port().to_be_bytes());
        packet.extend(to.port().to_be_bytes());
        packet.extend((8 + data.len() as u16).to_be_bytes());
        packet.extend([0, 0]); // No checksum, which IPv4 allows.
        packet.extend(data);
        let sent = self.0.send_to(&packet, &SocketAddr::V4(to).into()).unwrap();
        assert_eq!(sent, packet.len());
    }
}

#[test]
fn forged_packets_are_counted_and_have_no_effect() {
    if !is_root() {
        return;
    }
    let mut forged = 0;
    let counts = counts_of_rank_1(|own, peer| {
        let forger = Forger::new();
        let real = forger.overhear(peer, own);
        for byte in 0..HEAD_BYTES {
            for bit in [0, 7] {
                let mut packet = real.clone();
                packet[byte] ^= 1 << bit;
                forger.send(peer, own, &packet);
                forged += 1;
            }
        }
        for packet in noise().into_iter().chain([real[..HEAD_BYTES - 1].to_vec()]) {
            forger.send(peer, own, &packet);
            forged += 1;
        }
        // A genuine packet of a rank, replayed repeatedly.
        for _ in 0..50 {
            forger.send(peer, own, &real);
        }
        forger.send(peer, own, &[]);
    });
    assert_eq!(count(&counts, "refused"), forged);
    // Two bits in each of the four bytes of the job number; most of the others only the tag
    // detects.
    assert_eq!(count(&counts, "foreign_job"), 8);
    assert!(count(&counts, "bad_tag") >= 40, "{counts:?}");
}
