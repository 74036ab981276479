//! The connections of the rendezvous, kept open: the kernel closes them the moment a rank ends,
//! however it ends, so that its death is known at once.
//!
//! Rank 0 holds one connection per rank, every other rank holds one to rank 0. A rank that leaves
//! in good order says so first, by one byte, and names the failed rank for which it leaves, if it
//! does for that. A connection that breaks otherwise, as a router on the way may break it, tells
//! nothing: whether the rank is still there, its packets tell.
//!
//! Connections hardly ever have news, and there may be many, so one epoll descriptor tells of all.

use omnes_wire::Rank;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

const FAREWELL: u8 = b'.';
/// The byte, and the number of the failed rank plus one, or 0.
const FAREWELL_BYTES: usize = 5;
/// Silence after which the kernel asks the other side: what is on the way forgets a connection
/// that says nothing for minutes.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// What a connection told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// The rank has left in good order, for the failure of another one if it says so.
    Left(Rank, Option<Rank>),
    /// The rank has ended without farewell.
    Lost(Rank),
}

/// See the module header.
pub(crate) struct Watch {
    epoll: OwnedFd,
    streams: Vec<(Rank, TcpStream)>,
}

impl Watch {
    pub(crate) fn new(streams: Vec<(Rank, TcpStream)>) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (_, stream) in &streams {
            stream.set_nonblocking(true)?;
            set_socket_keepalive(stream, true)?;
            set_tcp_keepidle(stream, KEEP_ALIVE)?;
            epoll::add(&epoll, stream, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(Self { epoll, streams })
    }

    /// What can be read from when there are news; it lives as long as this watch.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Next news, if there are any. The connection is closed then.
    pub(crate) fn poll(&mut self) -> Option<News> {
        let mut index = 0;
        while index < self.streams.len() {
            let (rank, stream) = &mut self.streams[index];
            let mut said = [0; FAREWELL_BYTES];
            let news = match stream.read(&mut said) {
                Ok(bytes) if bytes > 0 && said[0] == FAREWELL => {
                    // So few bytes come at once; if they do not, nothing was said of a cause.
                    let is_whole = bytes == FAREWELL_BYTES;
                    let number = u32::from_be_bytes([said[1], said[2], said[3], said[4]]);
                    Some(News::Left(*rank, number.checked_sub(1).filter(|_| is_whole).map(Rank)))
                }
                Err(error) if is_nothing(&error) => {
                    index += 1;
                    continue;
                }
                Err(error) if is_broken(&error) => None,
                Ok(_) | Err(_) => Some(News::Lost(*rank)),
            };
            self.forget(index);
            if news.is_some() {
                return news;
            }
        }
        None
    }

    /// Closes a connection. A child of this process may have it open, too, and then epoll would
    /// tell of it for ever.
    fn forget(&mut self, index: usize) {
        let (_, stream) = self.streams.remove(index);
        let _ = epoll::delete(&self.epoll, &stream);
    }

    /// Says farewell to all; `cause` is the failed rank for which this one leaves.
    pub(crate) fn leave(&mut self, cause: Option<Rank>) {
        let mut farewell = [FAREWELL; FAREWELL_BYTES];
        farewell[1..].copy_from_slice(&cause.map_or(0, |failed| failed.0 + 1).to_be_bytes());
        for (_, stream) in self.streams.drain(..) {
            let _ = epoll::delete(&self.epoll, &stream);
            // Who is gone already need not be told.
            let _ = (&stream).write_all(&farewell);
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
}

fn is_nothing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// True if that can be without the other side's end.
fn is_broken(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::TimedOut)
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

    /// True if the descriptor has something to be read within `patience`.
    fn has_woken(watch: &Watch, patience: Duration) -> bool {
        let time = rustix::event::Timespec::try_from(patience).unwrap();
        let mut polled = [rustix::event::PollFd::new(&watch.epoll, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&time)).unwrap() > 0
    }

    #[test]
    fn a_connection_that_a_child_has_too_wakes_nobody_when_it_is_done_with() {
        let (mut watch, theirs) = watched();
        // A descriptor of the same open file, as a child gets it that has been forked.
        let child_s = watch.streams[0].1.try_clone().unwrap();
        drop(theirs);
        assert!(has_woken(&watch, Duration::from_secs(20)));
        assert_eq!(wait_for_news(&mut watch), News::Lost(Rank(3)));
        assert!(!has_woken(&watch, Duration::ZERO));
        drop(child_s);
    }

    #[test]
    fn a_connection_that_is_reset_tells_of_no_end() {
        let (mut watch, theirs) = watched();
        socket2::SockRef::from(&theirs).set_linger(Some(Duration::ZERO)).unwrap();
        drop(theirs);
        assert!(has_woken(&watch, Duration::from_secs(20)));
        assert_eq!(watch.poll(), None);
        assert!(watch.streams.is_empty() && !has_woken(&watch, Duration::ZERO));
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
