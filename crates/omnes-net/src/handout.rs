//! How rank 0 hands the table to all ranks.
//!
//! It writes to many at a time: one that takes its line slowly keeps no other waiting. Each rank
//! says that it has the table, and when the last one has, all are told to go: who began before
//! would send to ranks that do not listen yet, and take their silence for their end.
//!
//! Where it is to be tried whether long packets get from host to host ([`crate::trial`]), all look
//! when all have the table, and say what they have found; then all go.
//!
//! Cost: a byte each way beside the line, two where something is tried, and a few system calls per
//! rank.

use crate::deadline::Deadline;
use crate::proof::ToAll;
use omnes_wire::Rank;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A rank has the table; the second time, long packets get to its host, or nothing tells that they
/// do not.
const READY: u8 = b'+';
/// They do not, though short ones do.
const UNREACHED: u8 = b'-';
/// All have the table: look.
const LOOK: u8 = b'?';
/// All are ready.
const GO: u8 = b'!';
/// All are to go, but without long packets.
const GO_SHORT: u8 = b'.';
/// Ranks that are written to at a time: what is under way to each takes kernel memory here.
const AT_ONCE_MAX: usize = 1024;
/// Ranks that are looked at after one look at who is ready.
const EVENTS: usize = 256;
/// The longest wait for the kernel.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// One that is to have the table.
pub(crate) struct Reader {
    pub(crate) rank: Rank,
    pub(crate) stream: TcpStream,
    /// The beginning of its line.
    pub(crate) line: Vec<u8>,
}

/// See the module header.
pub(crate) struct Handout<'a> {
    readers: Vec<Reader>,
    /// By reader.
    progress: Vec<Progress>,
    to_all: &'a ToAll,
    epoll: OwnedFd,
    begun: usize,
    writing: usize,
    unready: usize,
    /// Ranks to whose hosts long packets do not get.
    unreached: Vec<Rank>,
}

/// What a handout leads to.
pub(crate) struct HandedOut {
    /// The connections.
    pub(crate) streams: Vec<(Rank, TcpStream)>,
    /// Ranks to whose hosts long packets do not get: if there are any, all do without.
    pub(crate) unreached: Vec<Rank>,
}

/// What has become of a reader's line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Written { bytes: usize },
    Sent,
    Ready,
}

impl<'a> Handout<'a> {
    pub(crate) fn new(readers: Vec<Reader>, to_all: &'a ToAll) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let progress = vec![Progress::Written { bytes: 0 }; readers.len()];
        let unready = readers.len();
        Ok(Self {
            readers,
            progress,
            to_all,
            epoll,
            begun: 0,
            writing: 0,
            unready,
            unreached: Vec::new(),
        })
    }

    /// Hands the table to all and lets them go. If something is to be tried, `look` says whether
    /// long packets get to this rank.
    ///
    /// # Errors
    /// The rank that is lost, or the first one that does not have the table when the time is over,
    /// and what the kernel or the end of the wait says.
    pub(crate) fn run(
        mut self,
        until: &mut Deadline<'_>,
        look: Option<impl FnOnce() -> bool>,
    ) -> std::result::Result<HandedOut, (Rank, Error)> {
        self.wait_for_all(until)?;
        if let Some(look) = look {
            self.ask_all()?;
            if !look() {
                self.unreached.push(Rank(0));
            }
            self.wait_for_all(until)?;
        }
        self.tell_all(if self.unreached.is_empty() { GO } else { GO_SHORT })?;
        let streams = self.readers.into_iter().map(|reader| (reader.rank, reader.stream));
        Ok(HandedOut { streams: streams.collect(), unreached: self.unreached })
    }

    fn wait_for_all(&mut self, until: &mut Deadline<'_>) -> std::result::Result<(), (Rank, Error)> {
        let mut events = Vec::with_capacity(EVENTS);
        while self.unready > 0 {
            while self.writing < AT_ONCE_MAX && self.begun < self.readers.len() {
                self.begin().map_err(|error| (self.readers[self.begun].rank, error))?;
            }
            events.clear();
            until
                .retry(|wait| self.wait(&mut events, wait))
                .map_err(|error| (self.first_unready(), error))?;
            for event in &events {
                let index = event.data.u64() as usize;
                self.serve(index).map_err(|error| (self.readers[index].rank, error))?;
            }
        }
        Ok(())
    }

    /// Lets all look, who are to be ready a second time then.
    fn ask_all(&mut self) -> std::result::Result<(), (Rank, Error)> {
        self.tell_all(LOOK)?;
        for (index, Reader { rank, stream, .. }) in self.readers.iter().enumerate() {
            let data = epoll::EventData::new_u64(index as u64);
            let added = epoll::add(&self.epoll, stream, data, epoll::EventFlags::IN);
            added.map_err(|error| (*rank, error.into()))?;
        }
        self.progress.fill(Progress::Sent);
        self.unready = self.readers.len();
        Ok(())
    }

    fn tell_all(&self, told: u8) -> std::result::Result<(), (Rank, Error)> {
        for Reader { rank, stream, .. } in &self.readers {
            let mut stream: &TcpStream = stream;
            stream.write_all(&[told]).map_err(|error| (*rank, error))?;
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<()> {
        let stream = &self.readers[self.begun].stream;
        stream.set_nonblocking(true)?;
        let data = epoll::EventData::new_u64(self.begun as u64);
        epoll::add(&self.epoll, stream, data, epoll::EventFlags::OUT)?;
        (self.begun, self.writing) = (self.begun + 1, self.writing + 1);
        Ok(())
    }

    /// Waits for readers that can be served, for at most `wait`.
    fn wait(&self, events: &mut Vec<epoll::Event>, wait: Duration) -> Result<usize> {
        let wait = wait.min(WAIT_MAX);
        let wait =
            Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&wait))? {
            0 => Err(ErrorKind::TimedOut.into()),
            ready => Ok(ready),
        }
    }

    /// Writes on to a reader, or hears that it has all.
    fn serve(&mut self, index: usize) -> Result<()> {
        match self.progress[index] {
            Progress::Written { bytes } => self.write_on(index, bytes),
            Progress::Sent => self.hear(index),
            Progress::Ready => Ok(()),
        }
    }

    fn write_on(&mut self, index: usize, written: usize) -> Result<()> {
        let Reader { stream, line, .. } = &self.readers[index];
        let (mut stream, end): (&TcpStream, _) = (stream, self.to_all.end());
        let rest = line.get(written..).filter(|rest| !rest.is_empty());
        let rest = rest.unwrap_or_else(|| &end[written - line.len()..]);
        let bytes = written + passing(stream.write(rest))?;
        self.progress[index] = Progress::Written { bytes };
        if bytes == line.len() + end.len() {
            let data = epoll::EventData::new_u64(index as u64);
            epoll::modify(&self.epoll, stream, data, epoll::EventFlags::IN)?;
            self.progress[index] = Progress::Sent;
            self.writing -= 1;
        }
        Ok(())
    }

    fn hear(&mut self, index: usize) -> Result<()> {
        let Reader { rank, stream, .. } = &self.readers[index];
        let (rank, mut stream): (Rank, &TcpStream) = (*rank, stream);
        let mut said = [0];
        match stream.read(&mut said) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => epoll::delete(&self.epoll, stream)?,
            nothing => return passing(nothing).map(drop),
        }
        match said[0] {
            READY => {}
            UNREACHED => self.unreached.push(rank),
            _ => return Err(ErrorKind::InvalidData.into()),
        }
        self.progress[index] = Progress::Ready;
        self.unready -= 1;
        Ok(())
    }

    fn first_unready(&self) -> Rank {
        let first = self.progress.iter().position(|it| *it != Progress::Ready);
        self.readers[first.expect("one is waited for")].rank
    }
}

/// Says that this rank has the table, and waits until all have. If something is tried meanwhile,
/// `look` says whether long packets get to this rank. True if all may send them.
pub(crate) fn wait_for_go(
    stream: &TcpStream,
    until: &mut Deadline<'_>,
    look: impl FnOnce() -> bool,
) -> Result<bool> {
    until.write(stream, &[READY])?;
    let mut said = hear_byte(stream, until)?;
    if said == LOOK {
        until.write(stream, &[if look() { READY } else { UNREACHED }])?;
        said = hear_byte(stream, until)?;
    }
    match said {
        GO => Ok(true),
        GO_SHORT => Ok(false),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

fn hear_byte(stream: &TcpStream, until: &mut Deadline<'_>) -> Result<u8> {
    let mut said = [0];
    match until.read(stream, &mut said)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(said[0]),
    }
}

/// Bytes moved by a call; none if there is nothing to do at present.
fn passing(call: Result<usize>) -> Result<usize> {
    match call {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(0)
        }
        ended => ended,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::TcpListener;

    const PATIENCE: Duration = Duration::from_secs(60);
    const NO_TRIAL: Option<fn() -> bool> = None;

    /// So many readers, and the other ends of their connections.
    fn readers(count: u32) -> (Vec<Reader>, Vec<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = |rank| {
            let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            theirs.set_read_timeout(Some(PATIENCE)).unwrap();
            let (stream, _) = listener.accept().unwrap();
            (Reader { rank: Rank(rank), stream, line: b"{".to_vec() }, theirs)
        };
        (1..=count).map(connect).unzip()
    }

    fn take(mut stream: &TcpStream, to_all: &ToAll) {
        let mut line = vec![0; 1 + to_all.end().len()];
        stream.read_exact(&mut line).unwrap();
        assert!(line.starts_with(b"{") && line.ends_with(to_all.end()));
    }

    #[test]
    fn one_that_takes_nothing_keeps_no_other_waiting_for_the_table() {
        // More than the kernel keeps for who does not read.
        let to_all = ToAll::new(&"x".repeat(32 << 20), None).unwrap();
        let (readers, theirs) = readers(3);
        std::thread::scope(|scope| {
            let handout = Handout::new(readers, &to_all).unwrap();
            let zero = scope.spawn(|| handout.run(&mut Deadline::after(PATIENCE, None), NO_TRIAL));
            for slower in theirs.iter().rev() {
                take(slower, &to_all);
                // None may go: the first has nothing yet.
                let mut stream: &TcpStream = slower;
                stream.set_nonblocking(true).unwrap();
                let said = stream.read(&mut [0]).unwrap_err();
                assert_eq!(said.kind(), ErrorKind::WouldBlock);
                stream.set_nonblocking(false).unwrap();
            }
            let deadline = || Deadline::after(PATIENCE, None);
            let waiting: Vec<_> = theirs
                .iter()
                .map(|stream| scope.spawn(move || wait_for_go(stream, &mut deadline(), || true)))
                .collect();
            assert!(waiting.into_iter().all(|rank| rank.join().unwrap().unwrap()));
            assert!(zero.join().unwrap().is_ok());
        });
    }

    #[test]
    fn all_do_without_long_packets_if_one_rank_lacks_them() {
        let to_all = ToAll::new(&"x", None).unwrap();
        for lacking in [None, Some(0), Some(2)] {
            let (readers, theirs) = readers(2);
            let deadline = || Deadline::after(PATIENCE, None);
            let looks = |rank| move || lacking != Some(rank);
            std::thread::scope(|scope| {
                let ranks: Vec<_> = (1..)
                    .zip(&theirs)
                    .map(|(rank, stream)| {
                        let to_all = &to_all;
                        scope.spawn(move || {
                            take(stream, to_all);
                            wait_for_go(stream, &mut deadline(), looks(rank))
                        })
                    })
                    .collect();
                let handout = Handout::new(readers, &to_all).unwrap();
                let handed_out = handout.run(&mut deadline(), Some(looks(0))).ok().unwrap();
                assert_eq!(handed_out.unreached, Vec::from_iter(lacking.map(Rank)));
                let may = ranks.into_iter().map(|rank| rank.join().unwrap().unwrap());
                assert!(may.into_iter().all(|may| may == lacking.is_none()));
            });
        }
    }

    #[test]
    fn who_does_not_have_the_table_in_time_is_named() {
        let to_all = ToAll::new(&"x", None).unwrap();
        let (readers, theirs) = readers(2);
        (&theirs[1]).write_all(&[READY]).unwrap();
        let limit = Duration::from_millis(100);
        let handout = Handout::new(readers, &to_all).unwrap();
        let (rank, error) = handout.run(&mut Deadline::after(limit, None), NO_TRIAL).err().unwrap();
        assert_eq!((rank, error.kind()), (Rank(1), ErrorKind::TimedOut));
    }
}
