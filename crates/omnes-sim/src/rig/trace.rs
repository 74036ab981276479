//! Record of a run, as a hash and as its last lines of text.
//!
//! Every event of the rig enters the hash; equal seeds must give equal hashes, in debug and in
//! release builds. The newest [`LINES_KEPT`] events are kept for the report of a failure:
//! `25000 r2 rx 0>2 data seq=4 expects=1`.

use super::rule::number_of;
use omnes_wire::{Flags, Header, Instant, Kind, Rank};
use std::collections::VecDeque;
use std::fmt;
use std::io::Write as _;

/// Events kept for the report of a failure.
pub(crate) const LINES_KEPT: usize = 60;

/// Kind of event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum What {
    /// A rank handed out a packet.
    Sent = 1,
    /// A rank received a packet.
    Taken = 2,
    /// A rule dropped a packet.
    Lost = 3,
    /// A receive queue was full.
    Overrun = 4,
    /// The UDP checksum was wrong.
    Checksum = 5,
    /// A stranger sent a packet.
    Forged = 6,
    /// A command, an event or a change of the rig, described by its text.
    Note = 7,
    /// A rank gave a packet to the NIC of its own node.
    Bell = 8,
    /// The NIC of a node consumed a packet; its host does not see it.
    Nic = 9,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            Self::Sent => "tx",
            Self::Taken => "rx",
            Self::Lost => "lost",
            Self::Overrun => "overrun",
            Self::Checksum => "checksum",
            Self::Forged => "forged",
            Self::Note => "note",
            Self::Bell => "bell",
            Self::Nic => "nic",
        }
    }
}

/// One event.
#[derive(Clone, Debug)]
struct Line {
    at: Instant,
    what: What,
    from: Rank,
    to: Rank,
    header: Option<Header>,
    bytes: usize,
    note: String,
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, what, from, to, bytes, .. } = self;
        write!(formatter, "{} ", at.as_ns())?;
        if *what == What::Note {
            return write!(formatter, "r{from} {}", self.note);
        }
        let at_rank = if matches!(what, What::Taken | What::Nic) { to } else { from };
        write!(formatter, "r{at_rank} {} {from}>", what.name())?;
        match *to {
            Rank::ALL => write!(formatter, "* ")?,
            to => write!(formatter, "{to} ")?,
        }
        let Some(header) = &self.header else { return write!(formatter, "{bytes} bytes") };
        let Header { kind, communicator, expects, epoch, credits, .. } = header;
        let Header { argument, flags, channel, .. } = header;
        let reports = matches!(kind, Kind::CastAck | Kind::CastNack);
        let name = format!("{kind:?}").to_lowercase();
        write!(formatter, "{name} ch={} ", channel.0)?;
        let is_of_barrier =
            matches!(kind, Kind::Step | Kind::StepNack | Kind::StepAsk | Kind::StepTell);
        if let Some(number) = number_of(header) {
            write!(formatter, "seq={number} ")?;
        }
        if is_of_barrier {
            write!(formatter, "comm={} ", communicator.0)?;
        }
        let answers = matches!(kind, Kind::Data | Kind::Grant | Kind::Ack | Kind::Nack) || reports;
        let expects = if answers { expects.index() } else { expects.0 };
        write!(formatter, "expects={expects} epoch={epoch} credits={credits} ")?;
        write!(formatter, "argument={argument} bytes={bytes}")?;
        let marks = [
            (Flags::BULK, "bulk"),
            (Flags::GRANTS, if reports { "hears" } else { "grants" }),
            (Flags::FIRST, "first"),
            (Flags::LAST, "last"),
            (Flags::ACK_NOW, "ack_now"),
            (Flags::REJECT, if *kind == Kind::Data { "cut" } else { "reject" }),
            (Flags::RESUME, "resume"),
            (Flags::GROUP, if *kind == Kind::Data { "report" } else { "group" }),
        ];
        for (_, name) in marks.iter().filter(|(flag, _)| flags.has(*flag)) {
            write!(formatter, " {name}")?;
        }
        Ok(())
    }
}

/// The hash and the newest lines.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    events: u64,
    lines: VecDeque<Line>,
    is_printed: bool,
}

impl Trace {
    pub(crate) fn new(is_printed: bool) -> Self {
        let hash = 0xcbf2_9ce4_8422_2325;
        Self { hash, events: 0, lines: VecDeque::with_capacity(LINES_KEPT), is_printed }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    fn mix(&mut self, number: u64) {
        // FNV-1a over 64-bit words, folded so that high bits reach low ones.
        let mixed = (self.hash ^ number).wrapping_mul(0x0100_0000_01b3);
        self.hash = mixed ^ (mixed >> 29);
    }

    /// An event of a packet; `packet` may be arbitrary bytes.
    pub(crate) fn packet(&mut self, at: Instant, what: What, from: Rank, to: Rank, packet: &[u8]) {
        self.mix(at.as_ns());
        self.mix(u64::from(what as u8) << 56 | u64::from(from.0) << 28 | u64::from(to.0));
        self.mix(packet.len() as u64);
        for chunk in packet.chunks(8).take(6) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
        let header = Header::parse(packet).ok().map(|(header, _)| header);
        let note = String::new();
        self.keep(Line { at, what, from, to, header, bytes: packet.len(), note });
    }

    /// A command, an event of a machine or a change of the rig.
    pub(crate) fn note(&mut self, at: Instant, rank: Rank, note: String) {
        self.mix(at.as_ns());
        self.mix(u64::from(What::Note as u8) << 56 | u64::from(rank.0));
        note.bytes().for_each(|byte| self.mix(u64::from(byte)));
        self.keep(Line {
            at,
            what: What::Note,
            from: rank,
            to: rank,
            header: None,
            bytes: 0,
            note,
        });
    }

    fn keep(&mut self, line: Line) {
        self.events += 1;
        if self.is_printed {
            // A reader that closes the pipe does not fail the run.
            let _ = writeln!(std::io::stdout(), "{line}");
        }
        if self.lines.len() == LINES_KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// The newest events, oldest first, one per line.
    pub(crate) fn last_lines(&self) -> String {
        self.lines.iter().map(|line| format!("  {line}\n")).collect()
    }
}
