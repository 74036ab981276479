//! The fixed header.

use crate::body::{CAST_REPORT_BYTES, ENVELOPE_BYTES, GAP_MAP_BYTES, words_behind_bytes};
use crate::{ChannelId, CommunicatorId, JobId, Rank, Seq, Tag};
use std::fmt;

/// First two bytes of every packet: "Om".
pub const MAGIC: u16 = 0x4f6d;
/// Version of the wire format; others are counted and dropped.
pub const VERSION: u8 = 2;
/// Bytes of the header without the tag.
pub const HEADER_BYTES: usize = 32;
/// Bytes of the tag.
pub const TAG_BYTES: usize = 8;
/// Bytes in front of every body.
pub const PACKET_OVERHEAD_BYTES: usize = HEADER_BYTES + TAG_BYTES;

/// Where each field begins.
mod at {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 2;
    pub(super) const KIND: usize = 3;
    pub(super) const JOB: usize = 4;
    pub(super) const COMMUNICATOR: usize = 8;
    pub(super) const CHANNEL: usize = 12;
    pub(super) const FLAGS: usize = 13;
    pub(super) const SOURCE: usize = 14;
    pub(super) const SEQ: usize = 16;
    pub(super) const EXPECTS: usize = 20;
    pub(super) const EPOCH: usize = 24;
    pub(super) const CREDITS: usize = 26;
    pub(super) const ARGUMENT: usize = 28;
}
const _: () = assert!(at::ARGUMENT + size_of::<u32>() == HEADER_BYTES);

/// Where the magic number stands, for filters that see packets before they are parsed.
pub const MAGIC_OFFSET: usize = at::MAGIC;
/// Where the job's number stands, likewise.
pub const JOB_OFFSET: usize = at::JOB;
/// Where the communicator's number stands, likewise.
pub const COMMUNICATOR_OFFSET: usize = at::COMMUNICATOR;
/// Where the sender's rank stands, likewise.
pub const SOURCE_OFFSET: usize = at::SOURCE;

/// What a packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Part of a message, numbered on its lane; `argument` is its index in that part of the
    /// message. With [`Flags::FIRST`] an [`crate::Envelope`] stands before the data.
    Data = 1,
    /// The receiver's buffer for a large message is known: `argument` is the sender's token.
    /// Numbered on a lane of its own, with [`Flags::GRANTS`].
    Grant = 2,
    /// Everything before `expects` has arrived; `argument` is the delay in microseconds between
    /// the newest arrival and this answer.
    Ack = 3,
    /// `expects` is missing, with a [`crate::GapMap`] of all that arrived beyond it; with
    /// [`Flags::REJECT`] it came but found no buffer [PM-R15]; with [`Flags::ACK_NOW`] the sender
    /// waits for a message.
    Nack = 4,
    /// Are you there? `argument`, the question's number and no rank's, comes back in the answer;
    /// `expects` is a digest of the ranks that the sender knows to be gone.
    Ping = 5,
    /// I am here; `argument` is that of the question, or the rank of the report; `expects` is as
    /// there.
    Pong = 6,
    /// Rank `argument` has failed, says the sender; answered by [`Kind::Pong`].
    Failed = 7,
    /// The sender leaves the job in good order, or says that the rank has whose number plus one is
    /// `seq`, unless that is 0. `argument` is the number plus one of the rank that failed first,
    /// as far as the sender knows, else 0.
    Bye = 8,
    /// Part of a broadcast, numbered on the root's stream; `argument` is its index in the message,
    /// `expects` the root's rank, as others repair too. With [`Flags::FIRST`] an
    /// [`crate::Envelope`] stands before the data, whose token is the message's number.
    Cast = 9,
    /// Everything before `expects` of the stream of root `argument` has arrived; `seq` is the delay
    /// in microseconds between the newest arrival and this report. With [`Flags::ACK_NOW`] the
    /// sender collects the receiver's acknowledgements, and misses that of what it has itself.
    CastAck = 10,
    /// As [`Kind::CastAck`], and `expects` is missing, with a [`crate::GapMap`] of what arrived
    /// beyond it. With [`Flags::ACK_NOW`] it says so again, since nothing has come for a time; with
    /// [`Flags::REJECT`] what it expects has come since the last report, and found no buffer.
    CastNack = 11,
    /// To everybody: the sender's multicast works, and it has heard `argument` ranks by it.
    Hello = 12,
    /// A step of a barrier: `seq` is the barrier's number, `argument` the step [CB-R2], and
    /// [`crate::Words`] are what it carries.
    Step = 13,
    /// The step `argument` of barrier `seq`, which the receiver owes, is missing [CB-R6].
    StepNack = 14,
    /// Has the receiver entered barrier `seq`? Asked when a barrier takes long.
    StepAsk = 15,
    /// The newest barrier that the sender has entered is `seq`, the newest that it is done with
    /// `argument`, whose results it carries as a step does.
    StepTell = 16,
    /// Data of several packets of a broadcast in one, for ranks that lack one each: see
    /// [`crate::CodedSet`]. `expects` is the root's rank, as in [`Kind::Cast`].
    CastCoded = 17,
}

impl Kind {
    fn carries_data(self) -> bool {
        match self {
            Self::Data | Self::Cast | Self::CastCoded => true,
            Self::Grant | Self::Ack | Self::Nack | Self::Ping | Self::Pong => false,
            Self::Failed | Self::Bye | Self::CastAck | Self::CastNack | Self::Hello => false,
            Self::Step | Self::StepNack | Self::StepAsk | Self::StepTell => false,
        }
    }

    /// All of them, in the order of their numbers, from 1.
    pub(crate) const ALL: [Self; 17] = [
        Self::Data,
        Self::Grant,
        Self::Ack,
        Self::Nack,
        Self::Ping,
        Self::Pong,
        Self::Failed,
        Self::Bye,
        Self::Cast,
        Self::CastAck,
        Self::CastNack,
        Self::Hello,
        Self::Step,
        Self::StepNack,
        Self::StepAsk,
        Self::StepTell,
        Self::CastCoded,
    ];

    fn from_wire(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }
}

/// Marks on a packet; unknown ones are kept and ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// No mark.
    pub const NONE: Self = Self(0);
    /// On [`Kind::Step`] and [`Kind::StepTell`]: how many words follow the tag, a number in these
    /// bits.
    pub const WORDS_BEHIND: Self = Self(3);
    /// `seq` and `expects` count on the bulk lane instead of the ordered one.
    pub const BULK: Self = Self(1);
    /// First packet of a message: an envelope stands before the data.
    pub const FIRST: Self = Self(2);
    /// Last packet of a message or of its granted part.
    pub const LAST: Self = Self(4);
    /// The sender waits for an acknowledgement: answer without delay.
    pub const ACK_NOW: Self = Self(8);
    /// No buffer was free for `expects`; on [`Kind::CastNack`], since the last one.
    pub const REJECT: Self = Self(16);
    /// On [`Kind::Data`], without data: nothing more of the message follows on this lane, because
    /// its sender has abandoned it.
    pub const CUT: Self = Self(16);
    /// On [`Kind::Failed`] and [`Kind::Bye`], if it names a failed rank: that rank was given up
    /// because long packets do not reach it, although it answers short ones.
    pub const MTU_BLACK_HOLE: Self = Self(16);
    /// Buffers are free again for `expects`.
    pub const RESUME: Self = Self(32);

    /// `seq` and `expects` count on the lane of grants.
    pub const GRANTS: Self = Self(64);
    /// On [`Kind::CastAck`] and [`Kind::CastNack`]: a packet to all ranks has arrived since the
    /// last report to the rank that repairs.
    pub const HEARS: Self = Self(64);
    /// Sent to all by multicast: the tag names [`Rank::ALL`] instead of the receiver.
    pub const GROUP: Self = Self(128);
    /// On [`Kind::Data`] with [`Flags::FIRST`]: a [`crate::CastReport`] follows the envelope.
    pub const CARRIES_REPORT: Self = Self(128);

    /// Both sets of marks.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// `self`, with `other` added if `wanted`.
    #[must_use]
    pub const fn with_if(self, other: Self, wanted: bool) -> Self {
        if wanted { self.with(other) } else { self }
    }

    /// True if every mark of `other` is set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The fixed part of every packet, in host order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What the packet is.
    pub kind: Kind,
    /// The job it belongs to.
    pub job: JobId,
    /// The communicator of the message; 0 where none is meant.
    pub communicator: CommunicatorId,
    /// The channel it travels on.
    pub channel: ChannelId,
    /// Marks.
    pub flags: Flags,
    /// Rank of the sender in the job, one of at most 65,536.
    pub source: Rank,
    /// Number on the lane, for the numbered kinds.
    pub seq: Seq,
    /// Next number that the sender of this packet expects on the same lane the other way.
    pub expects: Seq,
    /// Counts the sender's rounds of retransmission, or the packets of a broadcast that its root
    /// has sent again; a report repeats the newest it saw [PM-R18].
    pub epoch: u16,
    /// Socket-buffer space that the sender of this packet offers to its receiver, in units of
    /// 4,096 bytes of truesize.
    pub credits: u16,
    /// Depends on the kind.
    pub argument: u32,
}

/// Where the argument of a first step for the NIC tells how the barrier combines words: the bits
/// from this one on; those below it name the step.
pub const COMBINE_SHIFT: u32 = 24;

/// True if a packet that starts with these bytes is of a kind that carries user data. Looks only at
/// the kind: the packet may still turn out to be none of ours.
pub fn carries_data(head: &[u8]) -> bool {
    let kind = head.get(at::KIND).and_then(|kind| Kind::from_wire(*kind));
    kind.is_some_and(Kind::carries_data)
}

impl Header {
    /// A header of this kind from `source`, whose other fields are zero, for use as a base
    /// (`..Header::blank(kind, source)`).
    pub const fn blank(kind: Kind, source: Rank) -> Self {
        Self {
            kind,
            job: JobId(0),
            communicator: CommunicatorId(0),
            channel: ChannelId(0),
            flags: Flags::NONE,
            source,
            seq: Seq(0),
            expects: Seq(0),
            epoch: 0,
            credits: 0,
            argument: 0,
        }
    }

    /// The word that a step of a barrier carries, in the place of what it does not need: `expects`,
    /// `epoch` and `credits`.
    pub fn word(&self) -> u64 {
        u64::from(self.expects.0) << 32 | u64::from(self.epoch) << 16 | u64::from(self.credits)
    }

    /// The same header carrying `word`.
    #[must_use]
    pub fn with_word(self, word: u64) -> Self {
        Self {
            expects: Seq((word >> 32) as u32),
            epoch: (word >> 16) as u16,
            credits: word as u16,
            ..self
        }
    }
}

/// Why bytes are not a packet of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderError {
    /// Fewer bytes than header and tag need.
    TooShort {
        /// Bytes there were.
        bytes: usize,
    },
    /// Not our magic number.
    ForeignMagic,
    /// A version that we do not speak.
    UnknownVersion(u8),
    /// A kind that does not exist.
    UnknownKind(u8),
}

impl fmt::Display for HeaderError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { bytes } => {
                write!(formatter, "{bytes} bytes, shorter than {PACKET_OVERHEAD_BYTES}")
            }
            Self::ForeignMagic => write!(formatter, "not a packet of ours"),
            Self::UnknownVersion(version) => {
                write!(formatter, "wire version {version}, ours is {VERSION}")
            }
            Self::UnknownKind(kind) => write!(formatter, "unknown kind {kind}"),
        }
    }
}

impl std::error::Error for HeaderError {}

/// The `N` bytes from `offset`; the caller has checked that they are there.
fn field<const N: usize>(bytes: &[u8; HEADER_BYTES], offset: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[offset..offset + N]);
    out
}

/// Writes the `N` bytes from `offset`.
fn set<const N: usize>(bytes: &mut [u8; HEADER_BYTES], offset: usize, value: [u8; N]) {
    bytes[offset..offset + N].copy_from_slice(&value);
}

/// True if a control body follows the tag in a packet that starts with these bytes. Looks only
/// at kind and marks: the packet may still turn out to be none of ours.
pub fn has_control_body(head: &[u8]) -> bool {
    let kind = head.get(at::KIND).and_then(|kind| Kind::from_wire(*kind));
    kind.zip(head.get(at::FLAGS))
        .is_some_and(|(kind, flags)| control_body_bytes(kind, Flags(*flags)) > 0)
}

/// Most bytes of the control body of a packet.
fn control_body_bytes(kind: Kind, flags: Flags) -> usize {
    match kind {
        Kind::Data | Kind::Cast if !flags.has(Flags::FIRST) => 0,
        Kind::Data if flags.has(Flags::CARRIES_REPORT) => ENVELOPE_BYTES + CAST_REPORT_BYTES,
        Kind::Data | Kind::Cast => ENVELOPE_BYTES,
        Kind::Nack | Kind::CastNack => GAP_MAP_BYTES,
        Kind::Step | Kind::StepTell => words_behind_bytes(flags),
        _ => 0,
    }
}

impl Header {
    /// Reads the header and the tag from the front of a packet.
    ///
    /// # Errors
    /// [`HeaderError`] says what is wrong. The tag is read, not checked.
    pub fn parse(packet: &[u8]) -> Result<(Self, Tag), HeaderError> {
        let too_short = HeaderError::TooShort { bytes: packet.len() };
        let (bytes, rest) = packet.split_first_chunk::<HEADER_BYTES>().ok_or(too_short)?;
        let tag = rest.first_chunk::<TAG_BYTES>().ok_or(too_short)?;
        if u16::from_be_bytes(field(bytes, at::MAGIC)) != MAGIC {
            return Err(HeaderError::ForeignMagic);
        }
        let (version, kind) = (bytes[at::VERSION], bytes[at::KIND]);
        if version != VERSION {
            return Err(HeaderError::UnknownVersion(version));
        }
        let header = Self {
            kind: Kind::from_wire(kind).ok_or(HeaderError::UnknownKind(kind))?,
            job: JobId(u32::from_be_bytes(field(bytes, at::JOB))),
            communicator: CommunicatorId(u32::from_be_bytes(field(bytes, at::COMMUNICATOR))),
            channel: ChannelId(bytes[at::CHANNEL]),
            flags: Flags(bytes[at::FLAGS]),
            source: Rank(u32::from(u16::from_be_bytes(field(bytes, at::SOURCE)))),
            seq: Seq(u32::from_be_bytes(field(bytes, at::SEQ))),
            expects: Seq(u32::from_be_bytes(field(bytes, at::EXPECTS))),
            epoch: u16::from_be_bytes(field(bytes, at::EPOCH)),
            credits: u16::from_be_bytes(field(bytes, at::CREDITS)),
            argument: u32::from_be_bytes(field(bytes, at::ARGUMENT)),
        };
        Ok((header, Tag(u64::from_be_bytes(*tag))))
    }

    /// Bytes after the tag that the tag covers, at most; a gap map may be shorter.
    pub fn control_body_bytes(&self) -> usize {
        control_body_bytes(self.kind, self.flags)
    }

    /// Makes this the header of the packet that follows in a run, and so `bytes`, in which it is as
    /// it goes on the wire.
    pub(crate) fn count_on(&mut self, bytes: &mut [u8; HEADER_BYTES]) {
        self.seq = self.seq.plus(1);
        self.argument = self.argument.wrapping_add(1);
        set(bytes, at::SEQ, self.seq.0.to_be_bytes());
        set(bytes, at::ARGUMENT, self.argument.to_be_bytes());
    }

    /// The header as it goes on the wire, without the tag.
    ///
    /// # Panics
    /// If the source is none of the 65,536 ranks that a job may have.
    pub fn emit(&self) -> [u8; HEADER_BYTES] {
        let source = u16::try_from(self.source.0).expect("a rank of a job");
        let mut bytes = [0; HEADER_BYTES];
        set(&mut bytes, at::MAGIC, MAGIC.to_be_bytes());
        bytes[at::VERSION] = VERSION;
        bytes[at::KIND] = self.kind as u8;
        set(&mut bytes, at::JOB, self.job.0.to_be_bytes());
        set(&mut bytes, at::COMMUNICATOR, self.communicator.0.to_be_bytes());
        bytes[at::CHANNEL] = self.channel.0;
        bytes[at::FLAGS] = self.flags.0;
        set(&mut bytes, at::SOURCE, source.to_be_bytes());
        set(&mut bytes, at::SEQ, self.seq.0.to_be_bytes());
        set(&mut bytes, at::EXPECTS, self.expects.0.to_be_bytes());
        set(&mut bytes, at::EPOCH, self.epoch.to_be_bytes());
        set(&mut bytes, at::CREDITS, self.credits.to_be_bytes());
        set(&mut bytes, at::ARGUMENT, self.argument.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn any_header() -> impl Strategy<Value = Header> {
        let kinds = proptest::sample::select(&Kind::ALL[..]);
        let ids = (kinds, any::<u32>(), any::<u32>(), any::<u8>(), any::<u8>(), any::<u16>());
        let numbers = (any::<u32>(), any::<u32>(), any::<u16>(), any::<u16>(), any::<u32>());
        (ids, numbers).prop_map(|(ids, numbers)| Header {
            kind: ids.0,
            job: JobId(ids.1),
            communicator: CommunicatorId(ids.2),
            channel: ChannelId(ids.3),
            flags: Flags(ids.4),
            source: Rank(ids.5.into()),
            seq: Seq(numbers.0),
            expects: Seq(numbers.1),
            epoch: numbers.2,
            credits: numbers.3,
            argument: numbers.4,
        })
    }

    fn packet(header: &Header) -> Vec<u8> {
        let mut packet = header.emit().to_vec();
        packet.extend_from_slice(&[0xab; TAG_BYTES]);
        packet
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_to_the_same(header in any_header()) {
            let (parsed, tag) = Header::parse(&packet(&header)).unwrap();
            prop_assert_eq!(parsed, header);
            prop_assert_eq!(tag, Tag(0xabab_abab_abab_abab));
        }

        #[test]
        fn every_truncation_is_refused(header in any_header(), bytes in 0..PACKET_OVERHEAD_BYTES) {
            let packet = packet(&header);
            prop_assert_eq!(Header::parse(&packet[..bytes]), Err(HeaderError::TooShort { bytes }));
        }

        #[test]
        fn any_bytes_parse_or_are_refused_without_panic(bytes: Vec<u8>) {
            if let Ok((header, _)) = Header::parse(&bytes) {
                prop_assert_eq!(&header.emit()[..], &bytes[..HEADER_BYTES]);
            }
        }
    }

    #[test]
    fn kinds_stand_in_the_order_of_their_numbers() {
        for (number, kind) in (1..).zip(Kind::ALL) {
            assert_eq!((kind as u8, Kind::from_wire(number)), (number, Some(kind)));
        }
        assert_eq!(Kind::from_wire(0), None);
        assert_eq!(Kind::from_wire(Kind::ALL.len() as u8 + 1), None);
    }

    #[test]
    fn wrong_magic_version_and_kind_have_each_their_own_error() {
        let good = Header::blank(Kind::Ack, Rank(0));
        let corrupt = |offset: usize, value: u8| {
            let mut packet = packet(&good);
            packet[offset] = value;
            Header::parse(&packet).unwrap_err()
        };
        assert_eq!(corrupt(at::MAGIC, 0), HeaderError::ForeignMagic);
        assert_eq!(corrupt(at::VERSION, 9), HeaderError::UnknownVersion(9));
        assert_eq!(corrupt(at::KIND, 0), HeaderError::UnknownKind(0));
    }
}
