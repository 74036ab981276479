//! The gate that every packet passes: the packet is parsed, its job compared and its tag checked
//! before any other code examines it; each reason for rejection has its own counter. Outgoing
//! packets get job and tag here, so the machines behind the gate never see a key.

use super::Endpoint;
use crate::packet::Head;
use omnes_wire::{
    Flags, HEADER_BYTES, Header, HeaderError, JobId, JobKey, Kind, PACKET_OVERHEAD_BYTES, Rank,
    SenderKey, Tag, TaggedRun, carries_data,
};
use std::collections::BTreeMap;

/// Counters of received packets, by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GateCounters {
    /// Authentic packets.
    pub accepted: u64,
    /// Packets that are not of Omnes, or are invalid.
    pub malformed: u64,
    /// Packets of another version of the wire format.
    pub unknown_version: u64,
    /// Packets of another job.
    pub foreign_job: u64,
    /// Packets whose sender does not exist or whose tag is wrong.
    pub bad_tag: u64,
    /// Packets of a channel that does not exist.
    pub unknown_channel: u64,
    /// Packets from a rank that has failed or left.
    pub from_gone: u64,
    /// Packets whose head is authentic but whose data are not, in a job that encrypts them.
    pub bad_data: u64,
}

/// See the module header.
pub(super) struct Gate {
    pub(super) me: Rank,
    size: u32,
    job: JobId,
    key: JobKey,
    own_key: SenderKey,
    sender_keys: BTreeMap<Rank, SenderKey>,
    latest_key: (Rank, SenderKey),
    pub(super) counters: GateCounters,
}

/// True if a packet is the first of a message and carries an acknowledgement of broadcasts.
pub(super) fn carries_report(header: &Header) -> bool {
    header.kind == Kind::Data
        && header.flags.has(Flags::FIRST)
        && header.flags.has(Flags::CARRIES_REPORT)
}

/// True for a packet whose tag covers all ranks as receivers.
pub(super) fn is_to_all(header: &Header) -> bool {
    let may_be = matches!(header.kind, Kind::Cast | Kind::CastCoded | Kind::Hello | Kind::Step);
    may_be && header.flags.has(Flags::GROUP)
}

/// Bytes after the tag of a packet without user data.
pub(super) fn control_body(head: &[u8]) -> &[u8] {
    head.get(PACKET_OVERHEAD_BYTES..).unwrap_or_default()
}

/// Splits off header and tag of an encoded packet.
fn apart(head: &[u8]) -> Option<(&[u8; HEADER_BYTES], Tag)> {
    let (header, rest) = head.split_first_chunk::<HEADER_BYTES>()?;
    Some((header, Tag(u64::from_be_bytes(*rest.first_chunk()?))))
}

impl Gate {
    /// Creates the gate of rank `me` of `size`.
    pub(super) fn new(me: Rank, size: u32, job: JobId, key: JobKey) -> Self {
        let own_key = key.sender(me);
        let (sender_keys, counters) = (BTreeMap::new(), GateCounters::default());
        Self { me, size, job, key, own_key, sender_keys, latest_key: (me, own_key), counters }
    }

    /// Returns the header of an authentic packet of this job; otherwise counts the reason and
    /// returns `None`.
    pub(super) fn admit(&mut self, head: &[u8]) -> Option<Header> {
        let (header, tag) = match Header::parse(head) {
            Ok(parsed) => parsed,
            Err(HeaderError::UnknownVersion(_)) => {
                self.counters.unknown_version += 1;
                return None;
            }
            Err(_) => {
                self.counters.malformed += 1;
                return None;
            }
        };
        if header.job != self.job {
            self.counters.foreign_job += 1;
            return None;
        }
        if !self.is_other(header.source) {
            self.counters.bad_tag += 1;
            return None;
        }
        let body = control_body(head);
        let body = &body[..body.len().min(header.control_body_bytes())];
        let bytes = head.first_chunk::<HEADER_BYTES>()?;
        let key = self.sender_key(header.source);
        if !key.verify(tag, bytes, if is_to_all(&header) { Rank::ALL } else { self.me }, body) {
            self.counters.bad_tag += 1;
            return None;
        }
        Some(header)
    }

    /// As [`Self::admit`], without counting; the packet is counted when it is handled.
    pub(super) fn admit_uncounted(&mut self, head: &[u8]) -> Option<Header> {
        let counters = self.counters;
        let admitted = self.admit(head);
        self.counters = counters;
        admitted
    }

    /// True if `rank` is another rank of the job.
    fn is_other(&self, rank: Rank) -> bool {
        rank.0 < self.size && rank != self.me
    }

    /// True if a packet claims to be from another rank of this job.
    pub(super) fn is_from_job(&self, header: &Header) -> bool {
        header.job == self.job && self.is_other(header.source)
    }

    /// Key of a sender, usually the one used last, since packets arrive in runs.
    fn sender_key(&mut self, source: Rank) -> SenderKey {
        if self.latest_key.0 != source {
            let job_key = &self.key;
            let key = self.sender_keys.entry(source).or_insert_with(|| job_key.sender(source));
            self.latest_key = (source, *key);
        }
        self.latest_key.1
    }

    /// Writes header and tag in front of the control body.
    pub(super) fn seal(&self, mut header: Header, to: Rank, head: &mut Head) {
        header.job = self.job;
        let bytes = header.emit();
        let tag = self.own_key.tag(&bytes, to, head.body());
        head.seal(&bytes, tag);
    }

    /// Header and tag of each packet of this rank in the run that starts with `first`, including
    /// `first`.
    pub(super) fn run(&self, first: Header, to: Rank) -> TaggedRun {
        self.own_key.run(first, to)
    }

    /// Number of leading heads that are authentic and continue the run of the first packet.
    pub(super) fn count_run<'a>(
        &mut self,
        first: &Header,
        heads: impl Iterator<Item = &'a [u8]>,
    ) -> u32 {
        let to = if first.kind == Kind::Cast { Rank::ALL } else { self.me };
        let run = self.sender_key(first.source).run(*first, to);
        let continues = |((next, right), head): &(([u8; HEADER_BYTES], Tag), &[u8])| {
            apart(head).is_some_and(|(header, tag)| header == next && tag == *right)
        };
        run.zip(heads).take_while(continues).count() as u32
    }
}

impl Endpoint {
    /// Returns the sender of a packet, and the number of bytes before its data, if its kind carries
    /// user data and its head is authentic. Returns `None` for all other packets, which are left to
    /// [`Self::handle_packet`].
    pub fn data_head(&mut self, packet: &[u8]) -> Option<(Rank, usize)> {
        if !carries_data(packet) {
            return None;
        }
        let header = self.gate.admit_uncounted(packet)?;
        Some((header.source, PACKET_OVERHEAD_BYTES + header.control_body_bytes()))
    }

    /// Counts a packet accepted by [`Self::data_head`] whose data are not those that its sender
    /// sent.
    pub fn refuse_data(&mut self) {
        self.gate.counters.bad_data += 1;
    }

    /// True if a packet to all ranks is authentic, judged by its head, so that it may be forwarded.
    pub fn vouches(&mut self, head: &[u8]) -> bool {
        self.gate.admit_uncounted(head).is_some_and(|header| {
            let is_data = matches!(header.kind, Kind::Cast | Kind::CastCoded | Kind::Hello);
            is_data && header.flags.has(Flags::GROUP)
        })
    }
}
