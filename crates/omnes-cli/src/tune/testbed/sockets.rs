//! Times of calls that send and receive packets: rank 0 sends to sinks at all other ranks.
//!
//! Rank 0 fills the sinks' buffers with a known number of packets and then asks rank 1 to drain its
//! own, so each side is timed alone. On one machine the sender's call covers the whole path, up to
//! the receivers' buffers; the additional time for one more receiver of a multicast is the path of
//! one copy.

use super::{TAG, median};
use anyhow::{Context, Result, bail};
use omnes::Communicator;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, ToSocketAddrs, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Data of a packet that fills an Ethernet frame, with our header.
const FULL_BYTES: usize = 1472;
const SHORT_BYTES: usize = 56;
/// Packets of a train.
pub const TRAIN: usize = 44;
/// Calls per round: they fit into a buffer that is not drained, if the system allows such a large
/// one.
const CALLS: usize = 16;
const BUFFER_BYTES: usize = 8 << 20;
const ROUNDS: usize = 61;
/// Exceeds the size of the caches.
const MEMORY_BYTES: usize = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(5);
/// An administratively scoped group for this measurement alone.
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 195, 7, 57);
const SOL_UDP: i32 = 17;
const UDP_SEGMENT: i32 = 103;
const UDP_GRO: i32 = 104;

/// Times per call in nanoseconds: sending, and draining the buffer.
#[derive(Clone, Copy, Default)]
pub struct Times {
    /// Time of a call that sends.
    pub send_ns: f64,
    /// Time of draining the buffer, per packet or per train.
    pub receive_ns: f64,
}

/// Measured times.
#[derive(Default)]
pub struct Sockets {
    /// A short packet to one sink.
    pub short: Times,
    /// A full packet to one sink.
    pub full: Times,
    /// A train of [`TRAIN`] full packets to one sink.
    pub train: Times,
    /// A short packet to all sinks.
    pub short_to_all: Times,
    /// A train to all sinks.
    pub train_to_all: Times,
}

#[derive(Clone, Copy)]
struct Case {
    bytes: usize,
    packets: usize,
    is_to_all: bool,
}

const CASES: [Case; 5] = [
    Case { bytes: SHORT_BYTES, packets: 1, is_to_all: false },
    Case { bytes: FULL_BYTES, packets: 1, is_to_all: false },
    Case { bytes: FULL_BYTES, packets: TRAIN, is_to_all: false },
    Case { bytes: SHORT_BYTES, packets: 1, is_to_all: true },
    Case { bytes: FULL_BYTES, packets: TRAIN, is_to_all: true },
];

/// Measures; the figures are rank 0's, which also calls `alone` while the others sleep.
pub fn measure<T>(
    comm: &Communicator,
    rendezvous: &str,
    alone: impl FnOnce() -> T,
) -> Result<(Sockets, Option<T>)> {
    let own = own_address(rendezvous)?;
    let place = SocketAddrV4::new(own, 0);
    let control = UdpSocket::bind(place).context("cannot open a socket")?;
    control.set_read_timeout(Some(PATIENCE))?;
    let sink = sink(own, comm)?;
    let mine = format!("{} {}", control.local_addr()?, sink.local_addr()?);
    if comm.rank() != 0 {
        comm.send(0, TAG, mine.as_bytes())?;
        serve(comm, &control, &sink)?;
        comm.barrier()?;
        return Ok((Sockets::default(), None));
    }
    let mut sinks = Vec::new();
    for rank in 1..comm.size() {
        let mut text = vec![0; 128];
        let received = comm.recv(rank, TAG, &mut text)?;
        sinks.push(parse(&text[..received.bytes])?);
    }
    let mut times = [Times::default(); CASES.len()];
    for (times, case) in times.iter_mut().zip(CASES) {
        *times = time_case(&control, own, &sinks, case)?;
    }
    let alone = alone();
    sinks.iter().try_for_each(|(ask, _)| control.send_to(b"end", ask).map(|_| ()))?;
    comm.barrier()?;
    let [short, full, train, short_to_all, train_to_all] = times;
    Ok((Sockets { short, full, train, short_to_all, train_to_all }, Some(alone)))
}

fn parse(text: &[u8]) -> Result<(SocketAddr, SocketAddr)> {
    let text = std::str::from_utf8(text)?;
    let (control, sink) = text.split_once(' ').context("two addresses")?;
    Ok((control.parse()?, sink.parse()?))
}

/// Address by which this host reaches rank 0, or is reached as rank 0.
pub fn own_address(rendezvous: &str) -> Result<Ipv4Addr> {
    let there = rendezvous.to_socket_addrs()?.find(SocketAddr::is_ipv4);
    let there = there.with_context(|| {
        format!("{rendezvous} is not an IPv4 address of rank 0: only IPv4 networks can be measured")
    })?;
    let probe = UdpSocket::bind("0.0.0.0:0")?;
    probe.connect(there)?;
    match probe.local_addr()?.ip() {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(_) => unreachable!("of a socket for IPv4"),
    }
}

/// A socket in which packets accumulate.
fn sink(own: Ipv4Addr, comm: &Communicator) -> Result<UdpSocket> {
    let port = if comm.rank() == 0 { 0 } else { 47_113 };
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None)?;
    set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER_BYTES as i32)
        .or_else(|_| socket.set_recv_buffer_size(BUFFER_BYTES))?;
    socket.set_reuse_address(true)?;
    let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
    socket.bind(&any.into()).with_context(|| format!("cannot bind UDP port {port}"))?;
    let socket: UdpSocket = socket.into();
    if comm.rank() != 0 {
        socket.join_multicast_v4(&GROUP, &own).context("cannot join a multicast group")?;
    }
    // Without it, trains are split, which is then measured.
    let _ = set(&socket, SOL_UDP, UDP_GRO, 1);
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn set(socket: &impl AsRawFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    let size = size_of::<i32>() as libc::socklen_t;
    let pointer = (&raw const value).cast();
    // SAFETY: the pointer is to an integer of the given size.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, pointer, size) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// User memory that is in no cache, like that of long messages of many hosts.
struct Memory {
    bytes: Vec<u8>,
    at: usize,
    step: usize,
}

impl Memory {
    fn new(step: usize) -> Self {
        Self { bytes: vec![1; MEMORY_BYTES], at: 0, step }
    }

    /// The least recently used part.
    fn next(&mut self) -> &mut [u8] {
        self.at = if self.at + 2 * self.step > MEMORY_BYTES { 0 } else { self.at + self.step };
        &mut self.bytes[self.at..self.at + self.step]
    }
}

/// Rank 0: measures one case in several rounds.
fn time_case(
    control: &UdpSocket,
    own: Ipv4Addr,
    sinks: &[(SocketAddr, SocketAddr)],
    case: Case,
) -> Result<Times> {
    let socket = UdpSocket::bind(SocketAddrV4::new(own, 0))?;
    socket2::SockRef::from(&socket).set_multicast_if_v4(&own)?;
    socket.set_multicast_loop_v4(false)?;
    let port = sinks.first().context("a sink")?.1.port();
    let first = SocketAddr::new(sinks[0].0.ip(), port);
    let group = SocketAddr::new(GROUP.into(), port);
    socket.connect(if case.is_to_all { group } else { first })?;
    if case.packets > 1 {
        set(&socket, SOL_UDP, UDP_SEGMENT, case.bytes as i32)
            .context("this kernel sends no trains (UDP_SEGMENT)")?;
    }
    let call_bytes = case.bytes * case.packets;
    let mut data = Memory::new(call_bytes);
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    let mut are_empty = vec![true; if case.is_to_all { sinks.len() } else { 1 }];
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        for _ in 0..CALLS {
            socket.send(data.next()).context("cannot send")?;
        }
        sends.push(begin.elapsed().as_nanos() as f64 / CALLS as f64);
        for (number, (ask, _)) in sinks.iter().enumerate() {
            control.send_to(b"empty", ask)?;
            let mut answer = [0; 32];
            let bytes = control.recv(&mut answer).context("a sink does not answer")?;
            let text = std::str::from_utf8(&answer[..bytes])?;
            let (time, bytes) = text.split_once(' ').context("a time and bytes")?;
            let (time, bytes): (f64, f64) = (time.parse()?, bytes.parse()?);
            // Packets that found no room in the buffer took no time there.
            if number == 0 && bytes > 0.0 {
                receives.push(time * call_bytes as f64 / bytes);
            }
            if let Some(is_empty) = are_empty.get_mut(number) {
                *is_empty &= bytes == 0.0;
            }
        }
    }
    if let Some(number) = are_empty.iter().position(|is_empty| *is_empty) {
        let way = if case.is_to_all { "multicast" } else { "packets" };
        bail!("rank {} received no {way} from rank 0", number + 1);
    }
    Ok(Times { send_ns: median(sends), receive_ns: median(receives) })
}

/// Other ranks: drain the sink on request, and report the time and the number of bytes. Rank 0 may
/// be busy alone for long; if it is gone, the communicator reports that.
fn serve(comm: &Communicator, control: &UdpSocket, sink: &UdpSocket) -> Result<()> {
    let mut buffer = Memory::new(64 << 10);
    let mut asked = [0; 8];
    loop {
        let (bytes, from) = match control.recv_from(&mut asked) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                comm.iprobe(0, TAG)?;
                continue;
            }
            received => received?,
        };
        if &asked[..bytes] == b"end" {
            return Ok(());
        }
        let mut all = 0;
        let begin = Instant::now();
        while let Ok(bytes) = sink.recv(buffer.next()) {
            all += bytes;
        }
        let time = begin.elapsed().as_nanos();
        control.send_to(format!("{time} {all}").as_bytes(), from)?;
    }
}
