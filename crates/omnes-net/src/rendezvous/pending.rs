//! Connections to rank 0 that have not said yet who they are.
//!
//! None of them is waited for: one that is slow, since its packets are lost, or silent, since it is
//! a stranger, does not keep the others from coming in. Who is still silent when too many are here,
//! or when the process has no descriptor for another one, makes way, the oldest first; a rank that
//! had to comes again.

use super::signed_line::{Signed, write_line};
use super::{Challenge, Introduction, PROTOCOL, random};
use crate::error::NetError;
use crate::links::CONNECTED_RANKS_MAX;
use rustix::net::listen;
use socket2::SockRef;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Silent connections that are kept beside those of the ranks.
pub(crate) const STRANGERS_MAX: usize = 64;
/// Those let in before the others are heard again.
const LET_IN_MAX: usize = 64;
/// Those that the kernel lets wait at the door, as far as the system allows.
const DOOR_MAX: i32 = 4096;
/// Of TCP, such that they pass the narrowest path of IPv6: where longer packets are dropped without
/// a word, a table would never get there.
const SEGMENT_BYTES: u32 = 1280 - 60;
/// Longest report: what all have, and a port per rank of a small job.
const REPORT_BYTES: usize = 4096 + 8 * CONNECTED_RANKS_MAX as usize;

/// One that has not said yet who it is.
struct PendingConnection {
    stream: TcpStream,
    from: SocketAddr,
    challenge: u64,
    line: Vec<u8>,
}

/// One that has, which nobody has checked yet.
pub(crate) struct Introduced {
    pub(crate) introduction: Introduction,
    /// All that it said.
    pub(crate) signed: Signed,
    pub(crate) stream: TcpStream,
    pub(crate) from: SocketAddr,
    /// What it was asked.
    pub(crate) challenge: u64,
}

/// See the module header.
pub(crate) struct PendingConnections {
    listener: TcpListener,
    waiting: Vec<PendingConnection>,
    waiting_max: usize,
}

impl PendingConnections {
    /// Those who come to `listener`, for a job of `size` ranks.
    ///
    /// # Errors
    /// What the kernel says of the listener.
    pub(crate) fn new(listener: TcpListener, size: u32) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        // All may come at once, and who finds no place tries again soon.
        listen(&listener, DOOR_MAX)?;
        // As it says so at the beginning of each connection, either end keeps to it.
        SockRef::from(&listener).set_tcp_mss(SEGMENT_BYTES)?;
        Ok(Self { listener, waiting: Vec::new(), waiting_max: size as usize + STRANGERS_MAX })
    }

    /// The next one who has said who it is, if there is one. Its stream blocks, as streams do by
    /// default.
    pub(crate) fn poll(&mut self) -> Result<Option<Introduced>, NetError> {
        // Whoever has said so is not to make way for those who come.
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
                // Not one of ours, or gone.
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
                // Nobody, or it concerns a connection that is broken already.
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

/// True if there is no descriptor for a connection.
fn is_full(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

impl PendingConnection {
    /// Who it is and what it says, when all of that is here.
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
    fn either_end_sends_segments_that_pass_any_path() {
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
