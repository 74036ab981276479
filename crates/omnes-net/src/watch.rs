//! The connections of the rendezvous, kept open: the kernel closes them the moment a rank ends,
//! however it ends, so that its death is known at once.
//!
//! Rank 0 holds one connection per rank, every other rank holds one to rank 0. A rank that leaves
//! in good order says so first, by one byte.

use omnes_wire::Rank;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

const FAREWELL: u8 = b'.';

/// What a connection told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// The rank has left in good order.
    Left(Rank),
    /// The rank has ended without farewell.
    Lost(Rank),
}

/// See the module header.
#[derive(Default)]
pub(crate) struct Watch {
    streams: Vec<(Rank, TcpStream)>,
}

impl Watch {
    pub(crate) fn new(streams: Vec<(Rank, TcpStream)>) -> std::io::Result<Self> {
        for (_, stream) in &streams {
            stream.set_nonblocking(true)?;
        }
        Ok(Self { streams })
    }

    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.streams.iter().map(|(_, stream)| stream.as_raw_fd())
    }

    /// Next news, if there are any. The connection is closed then.
    pub(crate) fn poll(&mut self) -> Option<News> {
        for index in 0..self.streams.len() {
            let (rank, stream) = &mut self.streams[index];
            let mut byte = [0];
            let news = match stream.read(&mut byte) {
                Ok(1) if byte[0] == FAREWELL => News::Left(*rank),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Ok(_) | Err(_) => News::Lost(*rank),
            };
            self.streams.remove(index);
            return Some(news);
        }
        None
    }

    /// Says farewell to all.
    pub(crate) fn leave(&mut self) {
        for (_, stream) in self.streams.drain(..) {
            // Who is gone already need not be told.
            let _ = (&stream).write_all(&[FAREWELL]);
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
}
