//! Connections to rank 0 that have not said yet who they are.
//!
//! None of them is waited for: one that is slow, since its packets are lost, or silent, since it is
//! a stranger, does not keep the others from coming in. Who has not spoken when too many are here
//! makes way, the oldest first.

use crate::error::NetError;
use crate::rendezvous::{Challenge, Introduction, LINE_BYTES_MAX, PROTOCOL, random, write_line};
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Silent connections that are kept beside those of the ranks.
const STRANGERS_MAX: usize = 64;

/// One that has not spoken to the end.
struct Caller {
    stream: TcpStream,
    from: SocketAddr,
    challenge: u64,
    line: Vec<u8>,
}

/// One that has.
pub(crate) struct Spoken {
    pub(crate) introduction: Introduction,
    /// All that it said.
    pub(crate) line: Vec<u8>,
    pub(crate) stream: TcpStream,
    pub(crate) from: SocketAddr,
    /// What it was asked.
    pub(crate) challenge: u64,
}

/// See the module header.
pub(crate) struct Callers {
    listener: TcpListener,
    waiting: Vec<Caller>,
    waiting_max: usize,
}

impl Callers {
    /// Those who come to `listener`, for a job of `size` ranks.
    ///
    /// # Errors
    /// What the kernel says of the listener.
    pub(crate) fn new(listener: TcpListener, size: u32) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        let waiting_max = size as usize + STRANGERS_MAX;
        Ok(Self { listener, waiting: Vec::new(), waiting_max })
    }

    /// The next one who has spoken, if there is one. Its stream blocks, as streams do by default.
    pub(crate) fn poll(&mut self) -> Result<Option<Spoken>, NetError> {
        self.let_in()?;
        let mut index = 0;
        while index < self.waiting.len() {
            match self.waiting[index].hear() {
                Ok(None) => index += 1,
                Ok(Some(introduction)) => {
                    let Caller { stream, from, challenge, line } = self.waiting.remove(index);
                    if stream.set_nonblocking(false).is_ok() {
                        return Ok(Some(Spoken { introduction, line, stream, from, challenge }));
                    }
                }
                // Not one of ours, or gone.
                Err(_) => drop(self.waiting.remove(index)),
            }
        }
        Ok(None)
    }

    fn let_in(&mut self) -> Result<(), NetError> {
        // Whatever else `accept` says concerns a connection that is broken already.
        while let Ok((stream, from)) = self.listener.accept() {
            let challenge = u64::from_be_bytes(random()?);
            let _ = stream.set_nodelay(true);
            let greeting = Challenge { omnes: PROTOCOL, challenge };
            if stream.set_nonblocking(true).is_err() || write_line(&stream, &greeting).is_err() {
                continue;
            }
            if self.waiting.len() == self.waiting_max {
                self.waiting.remove(0);
            }
            self.waiting.push(Caller { stream, from, challenge, line: Vec::new() });
        }
        Ok(())
    }
}

impl Caller {
    /// Who it is, when all that it says is here.
    fn hear(&mut self) -> std::io::Result<Option<Introduction>> {
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
                return Ok(Some(serde_json::from_slice(&self.line)?));
            }
            if self.line.len() as u64 > LINE_BYTES_MAX {
                return Err(ErrorKind::InvalidData.into());
            }
        }
    }
}
