//! How rank 0 distributes the table to all ranks.
//!
//! It writes to many ranks concurrently: one that reads its line slowly delays no other. Each rank
//! reports that it has the table, and when the last one has, all are told to go: a rank that began
//! before would send to ranks that do not listen yet, and take their silence for their end.
//!
//! If it is to be tested which packets get from host to host ([`crate::trial`]), the ranks in the
//! circle are asked, when all have the table, which packets they have received: a second time if
//! one lacks long packets, and a third time if one receives none then, because its sender may have
//! been late. Then all go with the longest packets that have arrived everywhere, or receive the
//! reason why they cannot. The go is sent with a proof that rank 0 sends it: ranks that went with
//! packets of different lengths would put incoming data in wrong places.
//!
//! Ranks that have received the go take the silence of one that has not for its end. TCP may
//! retransmit a lost segment only after many seconds, because it takes the time in which the call
//! was answered for the round-trip time, but it does so immediately when something later has
//! arrived. So each rank reports that it has gone, and rank 0 sends another byte, a few times, to
//! those that have not.
//!
//! Cost: two bytes from each rank and the proof to it in addition to the line, a byte each way per
//! turn for each rank in the circle, and a few system calls per rank.

use super::SERVER;
use super::signed_line::{PROOF_BYTES, ToAll, proof};
use crate::deadline::Deadline;
use crate::trial::{Found, MTUS, Turn, better};
use omnes_wire::{JobKey, Rank};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A rank has the table, and later the go. Rank 0 also sends it to ranks that may lack the go.
pub(crate) const READY: u8 = b'+';
/// Wait for ranks to report that they have gone, before they are nudged by another byte; it doubles
/// each time.
const NUDGE_WAIT: Duration = Duration::from_millis(10);
/// Most bytes with which a rank is nudged.
pub(crate) const NUDGES_MAX: usize = 6;
/// Ranks go no farther apart than this, except for those to which all of these bytes were lost.
pub(crate) const GO_TIME_MAX: Duration = NUDGE_WAIT.saturating_mul((1 << NUDGES_MAX) - 1);
/// All ranks have the table: check for packets.
const LOOK: u8 = b'?';
/// Send again, then check for packets.
const AGAIN: u8 = b'*';
/// No packet has arrived.
const NOTHING: u8 = b'-';
/// The longest packets have arrived, or all ranks are to go with those; the next letters stand for
/// shorter ones.
const LONGEST: u8 = b'A';
/// There will be no job: a line follows with the reason.
const REFUSED: u8 = b'!';
/// Ranks that are written to concurrently: data in flight to each take kernel memory here.
const AT_ONCE_MAX: usize = 1024;
/// Ranks that are handled after one poll for those that are ready.
const EVENTS: usize = 256;
/// Longest wait in the kernel.
const WAIT_MAX: Duration = Duration::from_secs(1);
// The lengths tested are the job's, those below it, and the shortest.
const _: () = assert!(MTUS.len() + 2 <= 26);

/// How a rank recognizes that rank 0 lets it go: by the job's key, if there is one, and the rank's
/// challenge.
#[derive(Clone, Copy)]
pub(crate) struct Release<'a> {
    pub(crate) key: Option<&'a JobKey>,
    pub(crate) challenge: u64,
}

impl Release<'_> {
    fn proof(self, letter: u8) -> [u8; PROOF_BYTES] {
        proof(self.key, self.challenge, SERVER, &format!("go {}", char::from(letter)))
    }
}

/// A rank that is to receive the table.
pub(crate) struct Reader<'a> {
    pub(crate) rank: Rank,
    pub(crate) stream: TcpStream,
    pub(crate) release: Release<'a>,
    /// The beginning of its line.
    pub(crate) line: Vec<u8>,
    /// The rank is in the circle.
    pub(crate) is_asked: bool,
}

/// See the module header.
pub(crate) struct Distribution<'a> {
    readers: Vec<Reader<'a>>,
    /// One entry per reader.
    progress: Vec<Progress>,
    to_all: &'a ToAll,
    epoll: OwnedFd,
    begun: usize,
    writing: usize,
    unready: usize,
    /// Answers of the ranks in the circle; empty before they were asked.
    found: BTreeMap<Rank, Found>,
    /// One of them has received no packet in the last turn.
    has_silent: bool,
}

/// Result of a distribution.
pub(crate) struct Distributed {
    /// The connections.
    pub(crate) streams: Vec<(Rank, TcpStream)>,
    /// Time at which the ranks were told to go.
    pub(crate) went_at: Instant,
    /// Packets received by the ranks in the circle. If one of them has received none, no rank may
    /// go yet.
    pub(crate) found: BTreeMap<Rank, Found>,
}

/// What a rank is told at the end of a distribution.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Go, with the longest packets except for this many of the tested lengths.
    Go(u8),
    /// The process that lets this rank go does not know the job's key.
    Unproven,
    /// The next line gives the reason why there will be no job.
    Refused,
}

/// State of a reader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Written {
        bytes: usize,
    },
    Sent,
    Ready,
    Asked,
    Told,
    /// Its connection is broken, which does not tell whether the rank lives.
    Broken,
}

impl<'a> Distribution<'a> {
    pub(crate) fn new(readers: Vec<Reader<'a>>, to_all: &'a ToAll) -> Result<Self> {
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
            found: BTreeMap::new(),
            has_silent: false,
        })
    }

    /// Distributes the table to all and lets them go, unless one of the ranks in the circle
    /// receives no packet. If packet lengths are to be tested, `take` takes this rank's turns.
    ///
    /// # Errors
    /// The rank that is lost, or the first one that does not have the table when the time is over,
    /// and the error of the kernel or of the wait.
    pub(crate) fn run(
        mut self,
        until: &mut Deadline<'_>,
        take: Option<impl FnMut(Turn) -> Found>,
    ) -> std::result::Result<Distributed, (Rank, Error)> {
        self.wait_for_all(until)?;
        if let Some(mut take) = take {
            self.ask(Turn::Look, until, &mut take)?;
            if self.worst() != Some(0) {
                self.ask(Turn::Again, until, &mut take)?;
            }
            if self.worst().is_none() || self.has_silent {
                self.ask(Turn::Look, until, &mut take)?;
            }
        }
        let went_at = Instant::now();
        if let Some(worst) = self.worst() {
            let letter = LONGEST + worst;
            self.tell(|reader| [&[letter][..], &reader.release.proof(letter)].concat(), |_| true)?;
            self.see_all_go(until)?;
        }
        let readers = self.readers.into_iter().zip(&self.progress);
        let whole = readers.filter(|(_, progress)| **progress != Progress::Broken);
        let streams = whole.map(|(reader, _)| (reader.rank, reader.stream));
        Ok(Distributed { streams: streams.collect(), went_at, found: self.found })
    }

    /// Longest packets that all ranks asked have received.
    fn worst(&self) -> Found {
        self.found.values().try_fold(0, |worst, found| Some(worst.max((*found)?)))
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

    /// Asks all in the circle, including this rank, and waits for their answers.
    fn ask(
        &mut self,
        turn: Turn,
        until: &mut Deadline<'_>,
        take: &mut impl FnMut(Turn) -> Found,
    ) -> std::result::Result<(), (Rank, Error)> {
        let said = if turn == Turn::Look { LOOK } else { AGAIN };
        self.has_silent = false;
        self.tell(|_| vec![said], |reader| reader.is_asked)?;
        self.listen_to(Progress::Asked, |reader| reader.is_asked)?;
        self.note(Rank(0), take(turn));
        self.wait_for_all(until)
    }

    /// Expects an answer from each reader for which `is_heard` is true.
    fn listen_to(
        &mut self,
        progress: Progress,
        is_heard: impl Fn(&Reader<'_>) -> bool,
    ) -> std::result::Result<(), (Rank, Error)> {
        for (index, reader) in self.readers.iter().enumerate().filter(|(_, it)| is_heard(it)) {
            let data = epoll::EventData::new_u64(index as u64);
            let added = epoll::add(&self.epoll, &reader.stream, data, epoll::EventFlags::IN);
            added.map_err(|error| (reader.rank, error.into()))?;
            self.progress[index] = progress;
            self.unready += 1;
        }
        Ok(())
    }

    /// Waits until all report that they have gone, at most as long as that may take. Ranks that
    /// have ended do not matter here: the job has begun.
    fn see_all_go(&mut self, until: &mut Deadline<'_>) -> std::result::Result<(), (Rank, Error)> {
        self.listen_to(Progress::Told, |_| true)?;
        let mut events = Vec::with_capacity(EVENTS);
        for turn in 0..NUDGES_MAX {
            let nudge_at = Instant::now() + NUDGE_WAIT * (1 << turn);
            while self.unready > 0 && Instant::now() < nudge_at {
                events.clear();
                let look = until.retry(|wait| {
                    let left = nudge_at.saturating_duration_since(Instant::now());
                    match self.wait(&mut events, wait.min(left)) {
                        Err(_) if Instant::now() >= nudge_at => Ok(0),
                        ended => ended,
                    }
                });
                match look {
                    Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(()),
                    look => look.map_err(|error| (self.first_unready(), error))?,
                };
                for event in &events {
                    let index = event.data.u64() as usize;
                    let heard = self.hear(index);
                    self.end_unless_heard(index, heard);
                }
            }
            for index in 0..self.readers.len() {
                if self.progress[index] == Progress::Told {
                    let nudged = passing((&self.readers[index].stream).write(&[READY]));
                    self.end_unless_heard(index, nudged.map(drop));
                }
            }
        }
        Ok(())
    }

    /// Stops waiting for a rank that has ended. The next reader of its connection finds that out,
    /// unless the connection is broken otherwise: then its packets tell whether the rank still
    /// lives.
    fn end_unless_heard(&mut self, index: usize, heard: Result<()>) {
        if let Err(error) = heard {
            let _ = epoll::delete(&self.epoll, &self.readers[index].stream);
            self.on_ready(index);
            if error.kind() != ErrorKind::UnexpectedEof {
                self.progress[index] = Progress::Broken;
            }
        }
    }

    fn on_ready(&mut self, index: usize) {
        self.progress[index] = Progress::Ready;
        self.unready -= 1;
    }

    fn note(&mut self, rank: Rank, found: Found) {
        self.has_silent |= found.is_none();
        let known = self.found.entry(rank).or_default();
        *known = better(*known, found);
    }

    fn tell(
        &self,
        told: impl Fn(&Reader<'_>) -> Vec<u8>,
        is_told: impl Fn(&Reader<'_>) -> bool,
    ) -> std::result::Result<(), (Rank, Error)> {
        for reader in self.readers.iter().filter(|reader| is_told(reader)) {
            let mut stream: &TcpStream = &reader.stream;
            stream.write_all(&told(reader)).map_err(|error| (reader.rank, error))?;
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

    /// Continues to write to a reader, or reads its report.
    fn serve(&mut self, index: usize) -> Result<()> {
        match self.progress[index] {
            Progress::Written { bytes } => self.write_on(index, bytes),
            Progress::Sent | Progress::Asked | Progress::Told => self.hear(index),
            Progress::Ready | Progress::Broken => Ok(()),
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
        let is_asked = self.progress[index] == Progress::Asked;
        let mut said = [0];
        match stream.read(&mut said) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => epoll::delete(&self.epoll, stream)?,
            nothing => return passing(nothing).map(drop),
        }
        match (is_asked, said[0]) {
            (false, READY) => {}
            (true, NOTHING) => self.note(rank, None),
            (true, said) => self.note(rank, Some(place_of(said)?)),
            _ => return Err(ErrorKind::InvalidData.into()),
        }
        self.on_ready(index);
        Ok(())
    }

    fn first_unready(&self) -> Rank {
        let first = self.progress.iter().position(|it| *it != Progress::Ready);
        self.readers[first.expect("one is waited for")].rank
    }
}

/// Reports that this rank has the table, and waits until all have it; `take` takes this rank's
/// turns in the trial meanwhile.
pub(crate) fn wait_for_go(
    stream: &TcpStream,
    release: Release<'_>,
    until: &mut Deadline<'_>,
    mut take: impl FnMut(Turn) -> Found,
) -> Result<Verdict> {
    until.write(stream, &[READY])?;
    loop {
        let [said] = hear_bytes(stream, until)?;
        let turn = match said {
            LOOK => Turn::Look,
            AGAIN => Turn::Again,
            REFUSED => return Ok(Verdict::Refused),
            letter => {
                let place = place_of(letter)?;
                let proof = hear_bytes(stream, until)?;
                if proof != release.proof(letter) {
                    return Ok(Verdict::Unproven);
                }
                // If rank 0 is gone, that is detected later.
                let _ = until.write(stream, &[READY]);
                return Ok(Verdict::Go(place));
            }
        };
        let found = take(turn).map_or(NOTHING, |place| LONGEST + place);
        until.write(stream, &[found])?;
    }
}

/// Tells a rank that there will be no job; a line with the reason must follow.
pub(crate) fn tell_refused(mut stream: &TcpStream) -> Result<()> {
    stream.write_all(&[REFUSED])
}

/// Index of the tested length that a byte stands for.
fn place_of(said: u8) -> Result<u8> {
    if said.is_ascii_uppercase() { Ok(said - LONGEST) } else { Err(ErrorKind::InvalidData.into()) }
}

fn hear_bytes<const N: usize>(stream: &TcpStream, until: &mut Deadline<'_>) -> Result<[u8; N]> {
    let (mut said, mut heard) = ([0; N], 0);
    while heard < N {
        match until.read(stream, &mut said[heard..])? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            bytes => heard += bytes,
        }
    }
    Ok(said)
}

/// Bytes moved by a call; 0 if there is nothing to do at present.
fn passing(call: Result<usize>) -> Result<usize> {
    match call {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(0)
        }
        ended => ended,
    }
}

#[cfg(test)]
mod tests;
