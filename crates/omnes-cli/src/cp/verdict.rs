//! Agreement of all ranks that all copies are good, or on whose copy is not and why.
//!
//! Every rank gives its verdict and receives the outcome three times: when its destination is open,
//! when the data are written (with `--sync` to the disk) and their checksum is right, and when the
//! copy is in place. So no data are sent if one rank cannot write, and no copy appears unless all
//! are complete.
//!
//! In between, every rank posts its verdict after each [`VERDICT_CHUNKS`] chunks. Rank 0 collects a
//! round when the next one is due, so it never waits for verdicts in flight, and gives up within
//! `2 * VERDICT_CHUNKS` chunks after a rank's disk is full.
//!
//! Cost: a message of [`VERDICT_BYTES`] from every rank to rank 0 per round, and a broadcast of
//! [`OUTCOME_BYTES`] per outcome.

use crate::bench::rank;
use anyhow::Result;
use omnes::Communicator;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Chunks between two verdicts while data are sent.
pub const VERDICT_CHUNKS: u64 = 4;
/// Size of a verdict on the wire.
const VERDICT_BYTES: usize = 512;
/// Size of an outcome on the wire.
const OUTCOME_BYTES: usize = 4096;
/// Reasons are shortened to this, so that verdicts and outcomes fit even if every byte is escaped.
const REASON_BYTES_MAX: usize = 320;
/// Host names are shortened to this.
const HOST_BYTES_MAX: usize = 48;
/// Failures sent to all ranks; further ones are counted.
const FAILURES_MAX: usize = 5;

/// A rank's verdict on its copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Reason why there will be no copy.
    #[serde(rename = "f", skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Identifies the destination among those of all machines; `None` if the rank writes none.
    #[serde(rename = "p", skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Identity of the entry that the copy replaces; `None` if there is none.
    #[serde(rename = "r", skip_serializing_if = "Option::is_none")]
    pub replaced: Option<String>,
    /// Name of this rank's host, if the job has several nodes.
    #[serde(rename = "h", skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

impl Verdict {
    /// Good if there is no failure.
    pub fn of(failure: Option<String>) -> Self {
        Self { failure: failure.map(|reason| shortened(&reason)), ..Self::default() }
    }

    /// This verdict with the host of a rank of `comm`.
    fn of_rank(self, comm: &Communicator) -> Self {
        let host = (comm.node_count() > 1).then(own_host).filter(|host| !host.is_empty());
        Self { host, ..self }
    }
}

/// Result of an agreement, received by all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Rank, host if the rank gave one, and reason of the first failures, by rank.
    failures: Vec<(u32, Option<String>, String)>,
    /// Number of further failures.
    more: u32,
    /// Number of ranks that write a copy.
    pub copies: u32,
}

impl Outcome {
    /// True if no rank failed.
    pub fn is_good(&self) -> bool {
        self.failures.is_empty()
    }

    /// Number of ranks that failed.
    pub fn failures(&self) -> u32 {
        self.failures.len() as u32 + self.more
    }

    /// One line per failure.
    pub fn lines(&self) -> Vec<String> {
        let told = self.failures.iter().map(|(rank, host, reason)| match host {
            Some(host) => format!("rank {rank} ({host}): {reason}"),
            None => format!("rank {rank}: {reason}"),
        });
        let more = (self.more > 0).then(|| format!("and {} more ranks failed", self.more));
        told.chain(more).collect()
    }

    fn add(&mut self, rank: u32, host: Option<&String>, reason: String) {
        if self.failures.len() < FAILURES_MAX {
            self.failures.push((rank, host.cloned(), reason));
        } else {
            self.more += 1;
        }
    }

    /// Adds the verdict of `rank`.
    fn hear(&mut self, rank: u32, verdict: Verdict, known: &mut Known<'_>) {
        let host = verdict.host.as_ref();
        if let Some(reason) = verdict.failure {
            self.add(rank, host, reason);
        }
        let is_replaced = |kept: &String| verdict.replaced.as_ref() == Some(kept);
        match known.source.iter().position(is_replaced) {
            Some(0 | 1) => self.add(rank, host, "would write over the source".to_owned()),
            Some(_) => {
                self.add(rank, host, "would replace a directory that holds the source".to_owned());
            }
            None => {}
        }
        let Some(place) = verdict.place else { return };
        self.copies += 1;
        if let Some(other) = known.places.insert(place, rank) {
            let rank_place = super::names::RANK_PLACE;
            let reason =
                format!("writes to the same place as rank {other}; put {rank_place} into DEST");
            self.add(rank, host, reason);
        }
    }
}

/// Data with which rank 0 compares verdicts.
#[derive(Default)]
struct Known<'source> {
    /// Places of previous ranks.
    places: BTreeMap<String, u32>,
    /// [`identities`](super::source::identities) of the source.
    source: &'source [String],
}

/// Shares every rank's verdict with all. Collective.
pub fn agree(comm: &Communicator, mine: &Verdict) -> Result<Outcome> {
    agree_beside(comm, mine, &[])
}

/// Like [`agree`]; also fails if a copy replaces one of `source`, given by rank 0: the
/// [`identities`](super::source::identities) of the source.
pub fn agree_beside(comm: &Communicator, mine: &Verdict, source: &[String]) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut known = Known { source, ..Known::default() };
    let mine = mine.clone().of_rank(comm);
    rank::gather(comm, &packed::<VERDICT_BYTES>(&mine), |rank, theirs| {
        outcome.hear(rank, unpacked(theirs), &mut known);
    })?;
    let shared = rank::share(comm, packed::<OUTCOME_BYTES>(&outcome))?;
    Ok(serde_json::from_slice(until_zero(&shared))?)
}

/// Verdicts while data are sent: how many have been posted, and how many collected.
#[derive(Default)]
pub struct Rounds {
    chunks: u64,
    collected: u64,
}

impl Rounds {
    /// Call after a chunk was broadcast; `failure` returns this rank's failure. Returns the
    /// verdicts collected by rank 0; on other ranks, and if nothing was due, an empty outcome.
    /// Collective.
    pub fn on_chunk(
        &mut self,
        comm: &Communicator,
        failure: impl FnOnce() -> Option<String>,
    ) -> Result<Outcome> {
        self.chunks += 1;
        let is_due = self.chunks.is_multiple_of(VERDICT_CHUNKS);
        if comm.rank() != 0 && is_due {
            rank::post(comm, &packed::<VERDICT_BYTES>(&Verdict::of(failure())))?;
        }
        if is_due && self.chunks / VERDICT_CHUNKS > 1 {
            self.collect(comm)
        } else {
            Ok(Outcome::default())
        }
    }

    /// Collects verdicts that were posted and not collected yet. Collective.
    pub fn finish(mut self, comm: &Communicator) -> Result<()> {
        while self.collected < self.chunks / VERDICT_CHUNKS {
            self.collect(comm)?;
        }
        Ok(())
    }

    fn collect(&mut self, comm: &Communicator) -> Result<Outcome> {
        self.collected += 1;
        let (mut outcome, mut known) = (Outcome::default(), Known::default());
        if comm.rank() == 0 {
            rank::collect(comm, VERDICT_BYTES, |rank, theirs| {
                outcome.hear(rank, unpacked(theirs), &mut known);
            })?;
        }
        Ok(outcome)
    }
}

/// First part of this host's name, at most [`HOST_BYTES_MAX`] bytes as JSON.
fn own_host() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain = host.chars().filter(|c| !c.is_control()).take_while(|c| *c != '.');
    first_chars(plain, HOST_BYTES_MAX)
}

/// JSON, padded with zeros.
fn packed<const BYTES: usize>(value: &impl Serialize) -> [u8; BYTES] {
    let text = serde_json::to_vec(value).expect("plain data");
    let mut bytes = [0; BYTES];
    bytes[..text.len()].copy_from_slice(&text);
    bytes
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len())]
}

/// An unreadable verdict counts as a failure: the rank runs another version.
fn unpacked(bytes: &[u8]) -> Verdict {
    let unreadable = |_| Verdict::of(Some("says what rank 0 cannot read".to_owned()));
    serde_json::from_slice(until_zero(bytes)).unwrap_or_else(unreadable)
}

/// Shortens a reason to [`REASON_BYTES_MAX`] bytes as JSON; the middle is removed, because a reason
/// starts with the action and ends with the cause of its failure.
fn shortened(reason: &str) -> String {
    let reason: String = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let escaped = |part: &str| part.len() + part.matches(['"', '\\']).count();
    if escaped(&reason) <= REASON_BYTES_MAX {
        return reason;
    }
    let half = (REASON_BYTES_MAX - '…'.len_utf8()) / 2;
    let head = first_chars(reason.chars(), half);
    let tail = first_chars(reason.chars().rev(), half);
    format!("{head}…{}", tail.chars().rev().collect::<String>())
}

/// As many of `chars` as take at most `bytes_max` bytes when escaped.
fn first_chars(chars: impl Iterator<Item = char>, bytes_max: usize) -> String {
    let mut bytes = 0;
    chars
        .take_while(|c| {
            bytes += c.len_utf8() + usize::from(matches!(c, '"' | '\\'));
            bytes <= bytes_max
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(reason: &str) -> Verdict {
        Verdict::of(Some(reason.to_owned()))
    }

    #[test]
    fn verdicts_and_outcomes_fit_their_packets_with_any_reason() {
        for reason in ["\"".repeat(5000), "\u{1}".repeat(5000), "ß".repeat(5000), "€\\".repeat(999)]
        {
            let place = Some("0".repeat(64));
            let replaced = Some("0".repeat(super::super::staging::IDENTITY_DIGITS));
            let host = Some("h".repeat(HOST_BYTES_MAX));
            let verdict = Verdict { place, replaced, host, ..failing(&reason) };
            assert_eq!(unpacked(&packed::<VERDICT_BYTES>(&verdict)), verdict);
            let mut outcome = Outcome::default();
            for rank in 0..2000 {
                let verdict = Verdict { place: Some(rank.to_string()), ..verdict.clone() };
                outcome.hear(u32::MAX - rank, verdict, &mut Known::default());
            }
            let bytes = packed::<OUTCOME_BYTES>(&outcome);
            let again: Outcome = serde_json::from_slice(until_zero(&bytes)).expect("packed above");
            assert_eq!(again, outcome);
            assert_eq!((outcome.failures.len(), outcome.more), (FAILURES_MAX, 1995));
        }
    }

    #[test]
    fn shortened_reason_keeps_the_action_and_the_cause() {
        let reason = format!("cannot write /data/{}: No space left on device", "x/".repeat(400));
        let short = shortened(&reason);
        assert!(short.starts_with("cannot write /data/x/"), "{short}");
        assert!(short.ends_with("No space left on device"), "{short}");
    }

    #[test]
    fn ranks_with_the_same_destination_are_reported_with_a_hint() {
        let (mut outcome, mut known) = (Outcome::default(), Known::default());
        for rank in 1..3 {
            let place = Some("host:dir:name".to_owned());
            outcome.hear(rank, Verdict { place, ..Verdict::default() }, &mut known);
        }
        let expected = "rank 2: writes to the same place as rank 1; put {rank} into DEST";
        assert_eq!(outcome.lines(), [expected]);
    }

    #[test]
    fn hosts_are_named_if_ranks_report_them() {
        let mut outcome = Outcome::default();
        let verdict = Verdict { host: Some("node7".to_owned()), ..failing("disk full") };
        outcome.hear(1, verdict, &mut Known::default());
        assert_eq!(outcome.lines(), ["rank 1 (node7): disk full"]);
        assert!(!own_host().is_empty() && !own_host().contains('.'));
    }

    #[test]
    fn replacing_the_source_or_its_parent_directory_is_rejected() {
        let source = ["link", "set", "above"].map(str::to_owned);
        let mut known = Known { source: &source, ..Known::default() };
        let mut outcome = Outcome::default();
        for (rank, replaced) in (1..).zip(["other", "link", "set", "above"]) {
            let replaced = Some(replaced.to_owned());
            outcome.hear(rank, Verdict { replaced, ..Verdict::default() }, &mut known);
        }
        outcome.hear(0, Verdict::default(), &mut known);
        let expected = [
            "rank 2: would write over the source",
            "rank 3: would write over the source",
            "rank 4: would replace a directory that holds the source",
        ];
        assert_eq!(outcome.lines(), expected);
    }

    #[test]
    fn undecodable_verdict_counts_as_failure() {
        assert!(unpacked(b"\xff\xff").failure.is_some());
        assert!(unpacked(b"").failure.is_some());
    }
}
