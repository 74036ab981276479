//! Connections to rank 0 that have not identified themselves yet.
//!
//! Rank 0 waits for none of them: one that is slow, because its packets are lost, or silent,
//! because it is a stranger, does not keep the others from being admitted. If there are too many
//! silent connections, or if the process has no descriptor for another one, the oldest is dropped;
//! a rank whose connection was dropped connects again.

use super::signed_line::{Signed, write_line};
use super::{Challenge, Introduction, PROTOCOL, random};
use crate::error::NetError;
use crate::links::CONNECTED_RANKS_MAX;
use rustix::net::listen;
use socket2::SockRef;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Silent connections that are kept in addition to those of the ranks.
pub(crate) const STRANGERS_MAX: usize = 64;
/// Connections accepted before the others are read again.
const LET_IN_MAX: usize = 64;
/// Length of the kernel's queue of connections to accept, as far as the system allows.
const DOOR_MAX: i32 = 4096;
/// TCP segment size that fits the narrowest path of IPv6: if longer packets are silently dropped, a
/// table would never arrive.
const SEGMENT_BYTES: u32 = 1280 - 60;
/// Longest report: the part common to all, and a port per rank of a small job.
const REPORT_BYTES: usize = 4096 + 8 * CONNECTED_RANKS_MAX as usize;

/// A connection that has not identified itself yet.
struct PendingConnection {
    stream: TcpStream,
    from: SocketAddr,
    challenge: u64,
    line: Vec<u8>,
}

/// A connection that has, not checked yet.
pub(crate) struct Introduced {
    pub(crate) introduction: Introduction,
    /// Its complete report.
    pub(crate) signed: Signed,
    pub(crate) stream: TcpStream,
    pub(crate) from: SocketAddr,
    /// The challenge sent to it.
    pub(crate) challenge: u64,
}

/// See the module header.
pub(crate) struct PendingConnections {
    listener: TcpListener,
    waiting: Vec<PendingConnection>,
    waiting_max: usize,
}

impl PendingConnections {
    /// Accepts connections at `listener`, for a job of `size` ranks.
    ///
    /// # Errors
    /// The kernel's error for the listener.
    pub(crate) fn new(listener: TcpListener, size: u32) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        // All ranks may connect at the same time, and one that finds the queue full retries soon.
        listen(&listener, DOOR_MAX)?;
        // As it is announced at the beginning of each connection, either end keeps to it.
        SockRef::from(&listener).set_tcp_mss(SEGMENT_BYTES)?;
        Ok(Self { listener, waiting: Vec::new(), waiting_max: size as usize + STRANGERS_MAX })
    }

    /// The next connection that has identified itself, if there is one. Its stream blocks, as
    /// streams do by default.
    pub(crate) fn poll(&mut self) -> Result<Option<Introduced>, NetError> {
        // A connection that has identified itself must not be dropped for new ones.
        if let Some(introduced) = self.hear() {
            return Ok(Some(introduced));
        }
        self.let_in()?;
        Ok(self.hear())
    }

    fn hear(&mut self) -> Option<Introduced> {
        let mut index = 0;
        while index < self.waiting.len() {
            match self.waiting[index].hear() {
                Ok(None) => index += 1,
                Ok(Some((introduction, signed))) => {
                    let PendingConnection { stream, from, challenge, .. } =
                        self.waiting.remove(index);
                    if stream.set_nonblocking(false).is_ok() {
                        return Some(Introduced { introduction, signed, stream, from, challenge });
                    }
                }
                // Not a rank of this job, or gone.
                Err(_) => drop(self.waiting.remove(index)),
            }
        }
        None
    }

    fn let_in(&mut self) -> Result<(), NetError> {
        for _ in 0..LET_IN_MAX {
            let (stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if is_full(&error) && !self.waiting.is_empty() => {
                    self.waiting.remove(0);
                    continue;
                }
                // No connection, or an error of one that is broken already.
                Err(_) => break,
            };
            let challenge = u64::from_be_bytes(random()?);
            let _ = stream.set_nodelay(true);
            let greeting = Challenge { omnes: PROTOCOL, challenge };
            if stream.set_nonblocking(true).is_err() || write_line(&stream, &greeting).is_err() {
                continue;
            }
            if self.waiting.len() == self.waiting_max {
                self.waiting.remove(0);
            }
            self.waiting.push(PendingConnection { stream, from, challenge, line: Vec::new() });
        }
        Ok(())
    }
}

/// True if no descriptor is left for a connection.
fn is_full(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

impl PendingConnection {
    /// Identity and report of the connection, when all of it has arrived.
    fn hear(&mut self) -> std::io::Result<Option<(Introduction, Signed)>> {
        let mut piece = [0; 4096];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => self.line.extend_from_slice(&piece[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if self.line.ends_with(b"\n") {
                let signed: Signed = serde_json::from_slice(&self.line)?;
                return Ok(Some((signed.read()?, signed)));
            }
            if self.line.len() > REPORT_BYTES {
                return Err(ErrorKind::InvalidData.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn both_ends_limit_the_tcp_segment_size() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut pending = PendingConnections::new(listener, 2).unwrap();
        let caller = TcpStream::connect(address).unwrap();
        while pending.waiting.is_empty() {
            assert!(pending.poll().unwrap().is_none());
        }
        for stream in [&caller, &pending.waiting[0].stream] {
            assert!(SockRef::from(stream).tcp_mss().unwrap() <= SEGMENT_BYTES);
        }
    }
}
