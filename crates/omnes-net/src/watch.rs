//! The connections of the rendezvous, kept open: the kernel closes them the moment a rank ends,
//! however it ends, so that its death is known at once.
//!
//! Rank 0 holds one connection per rank, every other rank holds one to rank 0. A rank that leaves
//! in good order says so first, by one byte, and names the failed rank for which it leaves, if it
//! does for that.

use omnes_wire::Rank;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

const FAREWELL: u8 = b'.';
/// The byte, and the number of the failed rank plus one, or 0.
const FAREWELL_BYTES: usize = 5;

/// What a connection told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// The rank has left in good order, for the failure of another one if it says so.
    Left(Rank, Option<Rank>),
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
            let mut said = [0; FAREWELL_BYTES];
            let news = match stream.read(&mut said) {
                Ok(bytes) if bytes > 0 && said[0] == FAREWELL => {
                    // So few bytes come at once; if they do not, nothing was said of a cause.
                    let is_whole = bytes == FAREWELL_BYTES;
                    let number = u32::from_be_bytes([said[1], said[2], said[3], said[4]]);
                    News::Left(*rank, number.checked_sub(1).filter(|_| is_whole).map(Rank))
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Ok(_) | Err(_) => News::Lost(*rank),
            };
            self.streams.remove(index);
            return Some(news);
        }
        None
    }

    /// Says farewell to all; `cause` is the failed rank for which this one leaves.
    pub(crate) fn leave(&mut self, cause: Option<Rank>) {
        let mut farewell = [FAREWELL; FAREWELL_BYTES];
        farewell[1..].copy_from_slice(&cause.map_or(0, |failed| failed.0 + 1).to_be_bytes());
        for (_, stream) in self.streams.drain(..) {
            // Who is gone already need not be told.
            let _ = (&stream).write_all(&farewell);
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::TcpListener;

    /// A watch over rank 3, and rank 3's end of the connection.
    fn watched() -> (Watch, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Watch::new(vec![(Rank(3), listener.accept().unwrap().0)]).unwrap(), theirs)
    }

    #[test]
    fn farewell_names_the_failure_for_which_a_rank_leaves() {
        for cause in [None, Some(Rank(0)), Some(Rank(300))] {
            let (mut watch, theirs) = watched();
            assert_eq!(watch.poll(), None);
            Watch::new(vec![(Rank(0), theirs)]).unwrap().leave(cause);
            assert_eq!(wait_for_news(&mut watch), News::Left(Rank(3), cause));
            assert_eq!(watch.poll(), None);
        }
    }

    #[test]
    fn end_without_farewell_is_a_loss() {
        let (mut watch, theirs) = watched();
        drop(theirs);
        assert_eq!(wait_for_news(&mut watch), News::Lost(Rank(3)));
    }

    fn wait_for_news(watch: &mut Watch) -> News {
        loop {
            if let Some(news) = watch.poll() {
                return news;
            }
            std::thread::yield_now();
        }
    }
}
