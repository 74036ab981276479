//! The connections of the rendezvous, kept open: the kernel closes them the moment a rank ends,
//! however it ends, so that its death is known immediately.
//!
//! Rank 0 holds one connection per rank, every other rank holds one to rank 0. A rank that leaves
//! in good order announces it by one byte, and names the failed rank that is the cause, if there is
//! one. A connection that breaks otherwise, for instance because of a router on the path, says
//! nothing about the rank: its packets tell whether it still lives.
//!
//! Connections rarely have news, and there may be many, so one epoll descriptor reports on all, and
//! only those that it names are read: a poll costs one system call, and each event two more.

use crate::rendezvous::{NUDGES_MAX, READY};
use omnes_wire::Rank;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

const FAREWELL: u8 = b'.';
/// The byte, and the number of the failed rank plus one, or 0.
const FAREWELL_BYTES: usize = 5;
/// Silence after which the kernel probes the other side: devices on the path forget a connection
/// that is silent for minutes.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Event reported by a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// The rank has left in good order, because of the failure of another one if it names one.
    Left(Rank, Option<Rank>),
    /// The rank has ended without farewell.
    Lost(Rank),
}

/// See the module header.
pub(crate) struct Watch {
    epoll: OwnedFd,
    streams: BTreeMap<Rank, TcpStream>,
    /// Space for the event of one connection.
    ready: Vec<epoll::Event>,
}

impl Watch {
    pub(crate) fn new(streams: Vec<(Rank, TcpStream)>) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (rank, stream) in &streams {
            stream.set_nonblocking(true)?;
            set_socket_keepalive(stream, true)?;
            set_tcp_keepidle(stream, KEEP_ALIVE)?;
            let data = epoll::EventData::new_u64(u64::from(rank.0));
            epoll::add(&epoll, stream, data, epoll::EventFlags::IN)?;
        }
        Ok(Self { epoll, streams: streams.into_iter().collect(), ready: Vec::with_capacity(1) })
    }

    /// The descriptor that is readable when there are events; it lives as long as this watch.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Next event, if there is one. The connection is closed then.
    pub(crate) fn poll(&mut self) -> Option<News> {
        loop {
            let rank = self.next_ready()?;
            let mut stream = self.streams.get(&rank)?;
            let mut said = [0; NUDGES_MAX + FAREWELL_BYTES];
            let news = match stream.read(&mut said) {
                Ok(0) => Some(News::Lost(rank)),
                Ok(bytes) => match news_of(&said[..bytes], rank) {
                    None => continue,
                    news => news,
                },
                Err(error) if is_nothing(&error) => return None,
                // Only the end of its data shows that the rank has ended, not an error.
                Err(_) => None,
            };
            self.forget(rank);
            if news.is_some() {
                return news;
            }
        }
    }

    /// A rank whose connection has data to read.
    fn next_ready(&mut self) -> Option<Rank> {
        if self.streams.is_empty() {
            return None;
        }
        self.ready.clear();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An interrupted poll finds nothing.
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut self.ready), Some(&at_once));
        self.ready.first().map(|event| Rank(event.data.u64() as u32))
    }

    /// Closes a connection. A child of this process may have it open, too, and then epoll would
    /// report it forever.
    fn forget(&mut self, rank: Rank) {
        if let Some(stream) = self.streams.remove(&rank) {
            let _ = epoll::delete(&self.epoll, &stream);
        }
    }

    /// Says farewell to all; `cause` is the failed rank because of which this one leaves.
    pub(crate) fn leave(&mut self, cause: Option<Rank>) {
        let mut farewell = [FAREWELL; FAREWELL_BYTES];
        farewell[1..].copy_from_slice(&cause.map_or(0, |failed| failed.0 + 1).to_be_bytes());
        for stream in std::mem::take(&mut self.streams).into_values() {
            let _ = epoll::delete(&self.epoll, &stream);
            // A rank that is gone already need not be told.
            let _ = (&stream).write_all(&farewell);
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
}

/// Meaning of bytes from a rank; late bytes of the start have none.
fn news_of(said: &[u8], rank: Rank) -> Option<News> {
    let begin = said.iter().position(|byte| *byte != READY)?;
    let Some(number) = said[begin..].strip_prefix(&[FAREWELL]) else {
        return Some(News::Lost(rank));
    };
    // So few bytes arrive together; if they do not, no cause was named.
    let number = number.try_into().map_or(0, u32::from_be_bytes);
    Some(News::Left(rank, number.checked_sub(1).map(Rank)))
}

fn is_nothing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
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
    fn late_startup_bytes_are_ignored() {
        let (mut watch, mut theirs) = watched();
        theirs.write_all(&[READY; NUDGES_MAX]).unwrap();
        assert!(has_woken(&watch, Duration::from_secs(60)));
        assert_eq!((watch.poll(), watch.streams.len()), (None, 1));
        theirs.write_all(&[READY; NUDGES_MAX]).unwrap();
        Watch::new(vec![(Rank(0), theirs)]).unwrap().leave(Some(Rank(7)));
        assert_eq!(wait_for_news(&mut watch), News::Left(Rank(3), Some(Rank(7))));
    }

    #[test]
    fn farewell_names_the_failed_rank_behind_the_departure() {
        for cause in [None, Some(Rank(0)), Some(Rank(300))] {
            let (mut watch, theirs) = watched();
            assert_eq!(watch.poll(), None);
            Watch::new(vec![(Rank(0), theirs)]).unwrap().leave(cause);
            assert_eq!(wait_for_news(&mut watch), News::Left(Rank(3), cause));
            assert_eq!(watch.poll(), None);
        }
    }

    #[test]
    fn connection_closed_without_farewell_is_a_loss() {
        let (mut watch, theirs) = watched();
        drop(theirs);
        assert_eq!(wait_for_news(&mut watch), News::Lost(Rank(3)));
    }

    #[test]
    fn connections_with_news_are_found_among_many() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = |rank| {
            let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            ((Rank(rank), listener.accept().unwrap().0), theirs)
        };
        let (ours, mut theirs): (Vec<_>, Vec<_>) = (1..=200).map(connect).unzip();
        let mut watch = Watch::new(ours).unwrap();
        assert_eq!(watch.poll(), None);
        drop(theirs.remove(150));
        assert_eq!(wait_for_news(&mut watch), News::Lost(Rank(151)));
        Watch::new(vec![(Rank(0), theirs.remove(0))]).unwrap().leave(None);
        assert_eq!(wait_for_news(&mut watch), News::Left(Rank(1), None));
        assert_eq!((watch.poll(), watch.streams.len()), (None, 198));
    }

    /// True if the descriptor becomes readable within `patience`.
    fn has_woken(watch: &Watch, patience: Duration) -> bool {
        let time = rustix::event::Timespec::try_from(patience).unwrap();
        let mut polled = [rustix::event::PollFd::new(&watch.epoll, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&time)).unwrap() > 0
    }

    #[test]
    fn closed_connection_still_open_in_a_child_causes_no_wake_ups() {
        let (mut watch, theirs) = watched();
        // A descriptor of the same open file, like that of a forked child.
        let child_s = watch.streams[&Rank(3)].try_clone().unwrap();
        drop(theirs);
        assert!(has_woken(&watch, Duration::from_secs(20)));
        assert_eq!(wait_for_news(&mut watch), News::Lost(Rank(3)));
        assert!(!has_woken(&watch, Duration::ZERO));
        drop(child_s);
    }

    #[test]
    fn connection_reset_is_not_reported_as_a_loss() {
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
