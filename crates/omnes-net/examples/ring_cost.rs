//! Cost of a packet between two ranks of a node: through a ring, and through UDP for comparison.
//!
//! ```console
//! $ cargo run --release -p omnes-net --example ring_cost
//! ```
//!
//! Two processes pass a packet back and forth, either polling or sleeping in between, and one sends
//! packets one way as fast as the other takes them. Half a round trip is printed for the first two,
//! and bytes of packets per second for the third.

use omnes_net::ring::{Neighbours, NodeConfig, Pushed};
use omnes_wire::{JobId, JobKey, Rank};
use rustix::event::{PollFd, PollFlags, poll};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const RANKS: [Rank; 2] = [Rank(0), Rank(1)];
const SIZES: [usize; 4] = [64, 1480, 4096, 8948];
const ROUNDS: u32 = 1_000;
const SLEEPING_ROUNDS: u32 = 100;
const STREAM_BYTES: usize = 16 << 20;
/// The best run counts, because other work on the machine only slows it down.
const RUNS: usize = 40;
/// Packets pushed before they are published.
const BATCH: usize = 16;

type AnyError = Box<dyn std::error::Error>;

/// How a process waits for a packet.
#[derive(Clone, Copy, PartialEq)]
enum Wait {
    Looking,
    Sleeping,
}

/// One end of a ring, or of a UDP socket.
enum Link {
    Ring { table: Box<Neighbours>, peer: Rank, waker: OwnedFd },
    Udp(UdpSocket),
}

fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

impl Link {
    /// Pushes the packet, and retries while the ring is full.
    fn push(&mut self, packet: &[u8]) {
        match self {
            Self::Ring { table, peer, .. } => {
                // SAFETY: the packet outlives the call.
                while unsafe { table.push(*peer, &[part(packet)]) } == Pushed::Full {
                    table.publish();
                    std::thread::yield_now();
                }
            }
            Self::Udp(socket) => {
                let _ = socket.send(packet);
            }
        }
    }

    fn publish(&mut self) {
        if let Self::Ring { table, .. } = self {
            table.publish();
        }
    }

    /// Takes up to `most` packets into `into`; returns their bytes.
    fn take(&mut self, most: usize, into: &mut [u8]) -> usize {
        match self {
            Self::Ring { table, .. } => {
                let mut bytes = 0;
                table.receive(most, |packet| {
                    let data = packet.data(0);
                    into[..data.len()].copy_from_slice(data);
                    bytes += data.len();
                });
                bytes
            }
            Self::Udp(socket) => socket.recv(into).unwrap_or(0),
        }
    }

    /// Waits for the next packet.
    fn wait(&mut self, wait: Wait, into: &mut [u8]) {
        loop {
            if self.take(1, into) > 0 {
                return;
            }
            if wait == Wait::Sleeping {
                self.sleep();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    fn sleep(&mut self) {
        match self {
            Self::Ring { table, waker, .. } => {
                if table.arm() {
                    let _ = poll(&mut [PollFd::new(waker, PollFlags::IN)], None);
                    let _ = rustix::io::read(waker, &mut [0; 8]);
                    table.disarm();
                }
            }
            Self::Udp(socket) => {
                let _ = poll(&mut [PollFd::new(socket, PollFlags::IN)], None);
            }
        }
    }
}

/// Runs rank 1, which answers all packets of rank 0's measurements.
fn answer(link: &mut Link, is_streamed: bool) {
    let mut packet = vec![0; 1 << 16];
    for bytes in SIZES {
        for _ in 0..RUNS {
            for (rounds, wait) in [(ROUNDS, Wait::Looking), (SLEEPING_ROUNDS, Wait::Sleeping)] {
                for _ in 0..rounds {
                    link.wait(wait, &mut packet);
                    link.push(&packet[..bytes]);
                    link.publish();
                }
            }
            let mut left = if is_streamed { STREAM_BYTES / bytes * bytes } else { 0 };
            while left > 0 {
                left -= link.take(BATCH, &mut packet);
            }
            link.push(&packet[..bytes]);
            link.publish();
        }
    }
}

/// Measures half a round trip.
fn latency(link: &mut Link, bytes: usize, rounds: u32, wait: Wait) -> Duration {
    let mut packet = vec![1; 1 << 16];
    let since = Instant::now();
    for _ in 0..rounds {
        link.push(&packet[..bytes]);
        link.publish();
        link.wait(wait, &mut packet);
    }
    since.elapsed() / (2 * rounds)
}

/// Measures bytes per second one way, until the last packet is answered.
fn throughput(link: &mut Link, bytes: usize, is_streamed: bool) -> f64 {
    let mut packet = vec![1; 1 << 16];
    let since = Instant::now();
    let count = if is_streamed { STREAM_BYTES / bytes } else { 0 };
    for number in 0..count {
        link.push(&packet[..bytes]);
        if number % BATCH == 0 {
            link.publish();
        }
    }
    link.publish();
    link.wait(Wait::Looking, &mut packet);
    (count * bytes) as f64 / since.elapsed().as_secs_f64()
}

fn measure(name: &str, link: &mut Link, is_streamed: bool) {
    for bytes in SIZES {
        let (mut looking, mut sleeping, mut stream) = (Duration::MAX, Duration::MAX, 0.0f64);
        for _ in 0..RUNS {
            looking = looking.min(latency(link, bytes, ROUNDS, Wait::Looking));
            sleeping = sleeping.min(latency(link, bytes, SLEEPING_ROUNDS, Wait::Sleeping));
            stream = stream.max(throughput(link, bytes, is_streamed));
        }
        let (looking, sleeping) = (looking.as_nanos(), sleeping.as_nanos());
        let stream = if is_streamed { format!("{:.2} GB/s", stream / 1e9) } else { "-".to_owned() };
        println!("{name:6} {bytes:7} {looking:10} {sleeping:11} {stream:>12}");
    }
}

fn ring(me: Rank, job: u32) -> Result<Link, AnyError> {
    let config = NodeConfig {
        job: JobId(job),
        key: &JobKey::new([1; 16]),
        me,
        ranks: &RANKS,
        packet_bytes_max: 8948,
        timeout: Duration::from_secs(5),
    };
    let peer = Rank(1 - me.0);
    let table = Neighbours::meet(config)?;
    if !table.reaches(peer) {
        return Err("the other process did not connect".into());
    }
    Ok(Link::Ring { waker: table.waker()?, table: Box::new(table), peer })
}

fn udp() -> Result<UdpSocket, AnyError> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Runs rank 1, given rank 0's job number and UDP address.
fn second(job: u32, address: &str) -> Result<(), AnyError> {
    answer(&mut ring(RANKS[1], job)?, true);
    let socket = udp()?;
    socket.connect(address)?;
    let mut link = Link::Udp(socket);
    link.push(b"here");
    answer(&mut link, false);
    Ok(())
}

fn first() -> Result<(), AnyError> {
    let (job, socket) = (std::process::id(), udp()?);
    let mut other = std::process::Command::new(std::env::current_exe()?)
        .args([job.to_string(), socket.local_addr()?.to_string()])
        .spawn()?;
    println!("link     bytes looking_ns sleeping_ns       stream");
    measure("ring", &mut ring(RANKS[0], job)?, true);
    let from = loop {
        if let Ok((_, from)) = socket.recv_from(&mut [0; 16]) {
            break from;
        }
    };
    socket.connect(from)?;
    measure("udp", &mut Link::Udp(socket), false);
    other.wait()?;
    Ok(())
}

fn main() -> Result<(), AnyError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [job, address] => second(job.parse()?, address),
        _ => first(),
    }
}
