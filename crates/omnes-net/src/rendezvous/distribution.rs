//! How rank 0 hands the table to all ranks.
//!
//! It writes to many at a time: one that takes its line slowly keeps no other waiting. Each rank
//! says that it has the table, and when the last one has, all are told to go: who began before
//! would send to ranks that do not listen yet, and take their silence for their end.
//!
//! Where it is to be tried which packets get from host to host ([`crate::trial`]), those that stand
//! in the circle are asked, when all have the table, what has come to them: a second time if one
//! lacks long packets, and a third time if one gets none then, as who sends to it may have been
//! late. Then all go with the longest packets that have come everywhere, or hear why they cannot.
//! The word to go comes with a proof that rank 0 says it: ranks that went with packets of different
//! lengths would put what comes in into wrong places.
//!
//! Those that have heard the word take the silence of one that has not for its end. TCP may send
//! again what was lost only after many seconds, as it takes the time in which the call was answered
//! for that of the way: but at once when something later has arrived. So each rank says that it has
//! gone, and rank 0 says a byte more, a few times, to those that have not.
//!
//! Cost: two bytes from each rank and the proof to it beside the line, a byte each way per turn for
//! who stands in the circle, and a few system calls per rank.

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

/// A rank has the table, and later the word to go. Rank 0 says it to whoever may lack that word.
pub(crate) const READY: u8 = b'+';
/// Wait for ranks to say that they have gone, before they are told something more; then twice as
/// long, and so on.
const NUDGE_WAIT: Duration = Duration::from_millis(10);
/// Bytes that a rank is told so at most.
pub(crate) const NUDGES_MAX: usize = 6;
/// Ranks go no farther apart than this, but for those that all of that has been lost to.
pub(crate) const GO_TIME_MAX: Duration = NUDGE_WAIT.saturating_mul((1 << NUDGES_MAX) - 1);
/// All have the table: look.
const LOOK: u8 = b'?';
/// Send again, then look.
const AGAIN: u8 = b'*';
/// No packet has come.
const NOTHING: u8 = b'-';
/// The longest packets have come, or all are to go with those; the next letters are for shorter
/// ones.
const LONGEST: u8 = b'A';
/// There will be no job: a line says why.
const REFUSED: u8 = b'!';
/// Ranks that are written to at a time: what is under way to each takes kernel memory here.
const AT_ONCE_MAX: usize = 1024;
/// Ranks that are looked at after one look at who is ready.
const EVENTS: usize = 256;
/// The longest wait for the kernel.
const WAIT_MAX: Duration = Duration::from_secs(1);
// The lengths tried are the job's, those below it, and the shortest.
const _: () = assert!(MTUS.len() + 2 <= 26);

/// By what a rank knows that rank 0 lets it go: the job's key, where there is one, and what the
/// rank has asked.
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

/// One that is to have the table.
pub(crate) struct Reader<'a> {
    pub(crate) rank: Rank,
    pub(crate) stream: TcpStream,
    pub(crate) release: Release<'a>,
    /// The beginning of its line.
    pub(crate) line: Vec<u8>,
    /// It stands in the circle.
    pub(crate) is_asked: bool,
}

/// See the module header.
pub(crate) struct Distribution<'a> {
    readers: Vec<Reader<'a>>,
    /// By reader.
    progress: Vec<Progress>,
    to_all: &'a ToAll,
    epoll: OwnedFd,
    begun: usize,
    writing: usize,
    unready: usize,
    /// By those in the circle that were asked; empty before they were.
    found: BTreeMap<Rank, Found>,
    /// No packet has come to one of them in the last turn.
    has_silent: bool,
}

/// What a distribution leads to.
pub(crate) struct Distributed {
    /// The connections.
    pub(crate) streams: Vec<(Rank, TcpStream)>,
    /// When they were told to go.
    pub(crate) went_at: Instant,
    /// What has come to those in the circle. If nothing has to one of them, nobody may go yet.
    pub(crate) found: BTreeMap<Rank, Found>,
}

/// What a rank hears at the end of a distribution.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Go, with the longest packets but so many of those that were tried.
    Go(u8),
    /// Whoever lets this rank go does not know the job's key.
    Unproven,
    /// The next line says why there will be no job.
    Refused,
}

/// What has become of a reader's line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Written {
        bytes: usize,
    },
    Sent,
    Ready,
    Asked,
    Told,
    /// Its connection is broken, which tells nothing of the rank.
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

    /// Hands the table to all and lets them go, unless no packet comes to one of those in the
    /// circle. If something is to be tried, `take` takes this rank's turns.
    ///
    /// # Errors
    /// The rank that is lost, or the first one that does not have the table when the time is over,
    /// and what the kernel or the end of the wait says.
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

    /// What has come to all that were asked.
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

    /// Asks all in the circle, this rank among them, and waits for their answers.
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

    /// Those heard have an answer to give.
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

    /// Waits until all say that they have gone, and for no longer than that may take. Those that
    /// have ended are no concern of this: the job has begun.
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

    /// A rank that has ended is not waited for. Whoever reads from it later learns of that, unless
    /// the connection is broken otherwise: whether the rank is still there its packets tell.
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

    /// Writes on to a reader, or hears that it has all.
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

/// Says that this rank has the table, and waits until all have; `take` takes its turns in what is
/// tried meanwhile.
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
                // If rank 0 is gone, that will show.
                let _ = until.write(stream, &[READY]);
                return Ok(Verdict::Go(place));
            }
        };
        let found = take(turn).map_or(NOTHING, |place| LONGEST + place);
        until.write(stream, &[found])?;
    }
}

/// Tells a rank that there will be no job; a line is to say why.
pub(crate) fn tell_refused(mut stream: &TcpStream) -> Result<()> {
    stream.write_all(&[REFUSED])
}

/// Which of the lengths that were tried a byte names.
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
mod tests;
