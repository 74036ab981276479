//! The protocol between agent and processes: one JSON object per line.
//!
//! A process sends requests, and the agent answers in the same order. Every request has the
//! protocol's version, and a request of another version is refused before anything else of it is
//! read. `lend` comes with the slot's socket as a descriptor, followed by the group's if the plan
//! has one; its answer comes with the page's map. `lend_queue` likewise, with all sockets of the
//! plan and the queue's map. Only `return` is not answered.

use super::limits::{LINE_BYTES_MAX, PROTOCOL_VERSION};
use crate::{QueuePlan, SlotPlan};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// A request of a process.
#[derive(Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(super) enum Request {
    /// Is an agent of the same version there?
    Hello,
    /// Lend a slot.
    Lend {
        /// What the slot has to do.
        plan: Box<SlotPlan>,
    },
    /// Lend a receive queue.
    LendQueue {
        /// Which packets the queue takes.
        plan: QueuePlan,
    },
    /// A slot or queue is no longer needed.
    Return {
        /// Its number.
        slot: u32,
    },
    /// Report what is attached and lent.
    List,
    /// Root only: attach the firmware.
    Attach {
        /// The interface's name.
        interface: String,
    },
    /// Root only: detach the firmware.
    Detach {
        /// The interface's name.
        interface: String,
        /// Even if slots are lent there, which are then lost.
        by_force: bool,
    },
    /// Root only: end.
    End,
}

/// A request with its version of the protocol.
#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    version: u32,
    #[serde(flatten)]
    said: T,
}

#[derive(Deserialize)]
struct OnlyVersion {
    version: u32,
}

/// An answer of the agent.
#[derive(Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum Answer {
    /// The request was carried out.
    Done,
    /// A slot or queue is lent; the map of its page, or the queue's own, comes along.
    Lent {
        /// Its number.
        slot: u32,
    },
    /// What is attached and lent.
    Report(Report),
    /// The request was not carried out.
    Refused {
        /// Why, for people.
        reason: String,
    },
}

/// What an agent has attached and lent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Version of the agent's program.
    pub omnes_version: String,
    /// The agent's process.
    pub pid: u32,
    /// Number of slots that exist.
    pub slots_max: u32,
    /// Maximum number of slots of one user.
    pub slots_per_user: u32,
    /// Interfaces that the firmware is attached to, ascending by index.
    pub interfaces: Vec<Attached>,
    /// Slots and queues that are lent, ascending by number: all for root, else those of the user
    /// who asks.
    pub slots: Vec<SlotReport>,
    /// Number of other users' slots, which are not shown; their queues are not shown either.
    pub hidden: u32,
}

impl Report {
    /// Number of slots that are lent, of [`Self::slots_max`]; queues take none.
    pub fn slots_lent(&self) -> u32 {
        let shown = self.slots.iter().filter(|slot| slot.form != Form::Queue);
        shown.count() as u32 + self.hidden
    }
}

/// An interface that the firmware is attached to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attached {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
}

/// What a slot is for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Barriers, by an algorithm in text form.
    Barrier(String),
    /// Multi-send, over a tree in text form.
    Tree(String),
    /// A receive queue.
    Queue,
}

/// A slot or queue that is lent; for a queue, communicator, channel and rank are 0.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SlotReport {
    /// Its number.
    pub slot: u32,
    /// Name of its interface.
    pub interface: String,
    /// Its user.
    pub uid: u32,
    /// The process that it was lent to.
    pub pid: i32,
    /// The job's number; in text form eight hexadecimal digits, as `omnes stat` shows it.
    #[serde(with = "job_name")]
    pub job: u32,
    /// The communicator's number.
    pub communicator: u32,
    /// The header's channel.
    pub channel: u8,
    /// The member's rank in the job.
    pub rank: u32,
    /// Members of the group, or sockets of the queue.
    pub size: u32,
    /// What it is for.
    pub form: Form,
    /// The member's socket.
    pub socket: SocketAddr,
    /// Time since it was lent.
    pub age_ns: u64,
    /// Newest barrier that the member has entered.
    pub entered: u32,
    /// Newest barrier that is done.
    pub done: u32,
    /// The firmware's counters, by name.
    pub counters: BTreeMap<String, u64>,
}

mod job_name {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(job: &u32, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{job:08x}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
        let name = String::deserialize(deserializer)?;
        u32::from_str_radix(&name, 16).map_err(D::Error::custom)
    }
}

/// Returns the request in a line without its end, or what is wrong with it.
pub(super) fn parse(line: &[u8]) -> Result<Request, String> {
    let malformed = |error: serde_json::Error| format!("not a request: {error}");
    let OnlyVersion { version } = serde_json::from_slice(line).map_err(malformed)?;
    if version != PROTOCOL_VERSION {
        let own = PROTOCOL_VERSION;
        return Err(format!("version {version} is asked for, omnesd speaks {own}: use the same"));
    }
    let versioned: Versioned<Request> = serde_json::from_slice(line).map_err(malformed)?;
    Ok(versioned.said)
}

/// Maximum number of characters that are shown of another process's text.
const WORDS_MAX: usize = 1000;

/// Another process's text as a log or a terminal may show it: without control characters, and the
/// first thousand characters only.
pub fn printable(words: &str) -> String {
    let shown =
        |letter: char| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter };
    words.chars().take(WORDS_MAX).map(shown).collect()
}

/// A request as a line.
pub(super) fn emit(request: Request) -> Vec<u8> {
    line(&Versioned { version: PROTOCOL_VERSION, said: request })
}

/// Any value as a line.
pub(super) fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("plain data has a JSON form");
    line.push(b'\n');
    line
}

/// Splits a stream of bytes into lines.
#[derive(Default)]
pub(super) struct Lines {
    bytes: Vec<u8>,
    /// Number of bytes at the start that are known to contain no end of a line.
    searched: usize,
    /// Number of bytes after the last end of a line.
    unended: usize,
}

/// A line exceeds the maximum length of a request.
#[derive(Debug)]
pub(super) struct TooLong;

impl Lines {
    /// Adds bytes that have arrived.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        self.bytes.extend_from_slice(bytes);
        self.unended = match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => bytes.len() - end - 1,
            None => self.unended + bytes.len(),
        };
        if self.unended > LINE_BYTES_MAX { Err(TooLong) } else { Ok(()) }
    }

    /// The next line, without its end.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        let new = &self.bytes[self.searched..];
        let Some(end) = new.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.bytes.len();
            return None;
        };
        let rest = self.bytes.split_off(self.searched + end + 1);
        let mut line = std::mem::replace(&mut self.bytes, rest);
        self.searched = 0;
        line.pop();
        Some(line)
    }

    /// True if a whole line has arrived.
    pub(super) fn has_line(&self) -> bool {
        self.bytes[self.searched..].contains(&b'\n')
    }

    /// True if no bytes are left.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
