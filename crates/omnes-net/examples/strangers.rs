//! A stranger that floods the group of a job; `tools/bench-strangers.py` runs it beside a
//! broadcast.
//!
//! ```console
//! $ strangers 239.192.7.7:20777 10.77.0.9 100000 earlier.packets
//! ```
//!
//! It joins the group, as any host on the network can, and keeps the first packets of the job that
//! it receives. If FILE does not exist, it writes them to it and ends. Otherwise it sends, in equal
//! parts, random bytes, packets of an earlier job from FILE, and packets of the present job with
//! another tag, and prints once a second how many it has sent in how many seconds.

use omnes_wire::{HEADER_BYTES, Header, JobId};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::error::Error;
use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::time::{Duration, Instant};

type Packets = Vec<Vec<u8>>;

/// Number of packets of the job that are kept.
const KEPT: usize = 32;
/// Longest packet that is kept whole; packets of a stranger need no data.
const BYTES_MAX: usize = 64;
/// How often the rate is checked.
const TURN: Duration = Duration::from_millis(1);
const USAGE: &str = "usage: strangers GROUP:PORT OWN-ADDRESS PACKETS-PER-SECOND FILE";

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [group, own, rate, file] = &words[..] else { return Err(USAGE.into()) };
    let (group, own): (SocketAddrV4, Ipv4Addr) = (group.parse()?, own.parse()?);
    let (rate, file): (u64, _) = (rate.parse()?, Path::new(file));
    let socket = join(group, own)?;
    if !file.exists() {
        let heard = listen(&socket, None)?;
        fs::write(file, serde_json::to_vec(&heard)?)?;
        return Ok(());
    }
    let earlier: Packets = serde_json::from_slice(&fs::read(file)?)?;
    let present = listen(&socket, earlier.first().and_then(|packet| job_of(packet)))?;
    socket.leave_multicast_v4(group.ip(), &own)?;
    flood(&socket, group, rate, &kinds(&earlier, &present)?)
}

fn join(group: SocketAddrV4, own: Ipv4Addr) -> Result<Socket, Box<dyn Error>> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&SockAddr::from(group))?;
    socket.join_multicast_v4(group.ip(), &own)?;
    socket.set_multicast_if_v4(&own)?;
    Ok(socket)
}

fn job_of(packet: &[u8]) -> Option<JobId> {
    Header::parse(packet).ok().map(|(header, _)| header.job)
}

/// Receives the first packets of a job that is not `other`.
fn listen(socket: &Socket, other: Option<JobId>) -> Result<Packets, Box<dyn Error>> {
    let (mut socket, mut buffer) = (socket, vec![0; 1 << 16]);
    let mut heard = Packets::new();
    while heard.len() < KEPT {
        let bytes = socket.read(&mut buffer)?.min(BYTES_MAX);
        let packet = &buffer[..bytes];
        if job_of(packet).is_some_and(|job| Some(job) != other) {
            heard.push(packet.to_vec());
        }
    }
    Ok(heard)
}

/// Packets to send in turn.
fn kinds(earlier: &Packets, present: &Packets) -> Result<Packets, Box<dyn Error>> {
    let mut packets = Packets::new();
    for (old, new) in earlier.iter().zip(present) {
        let mut random = vec![0; BYTES_MAX];
        getrandom::fill(&mut random).map_err(|error| error.to_string())?;
        let mut forged = new.clone();
        // The tag follows the header.
        forged[HEADER_BYTES] ^= 1;
        packets.extend([random, old.clone(), forged]);
    }
    Ok(packets)
}

/// Sends until the process is killed.
fn flood(
    socket: &Socket,
    group: SocketAddrV4,
    rate: u64,
    packets: &Packets,
) -> Result<(), Box<dyn Error>> {
    let (start, to) = (Instant::now(), SockAddr::from(group));
    let (mut sent, mut told) = (0, 0);
    let mut packets = packets.iter().cycle();
    loop {
        let elapsed = start.elapsed();
        while sent < rate * elapsed.as_micros() as u64 / 1_000_000 {
            socket.send_to(packets.next().ok_or("no packets")?, &to)?;
            sent += 1;
        }
        if elapsed.as_secs() > told {
            told = elapsed.as_secs();
            println!("{sent} {}", elapsed.as_secs_f64());
        }
        std::thread::sleep(TURN);
    }
}
