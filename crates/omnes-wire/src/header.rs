//! The fixed header of every packet.

use crate::body::{CAST_REPORT_BYTES, ENVELOPE_BYTES, GAP_MAP_BYTES, words_behind_bytes};
use crate::{ChannelId, CommunicatorId, JobId, Rank, Seq, Tag};
use std::fmt;

/// First two bytes of every packet: "Om".
pub const MAGIC: u16 = 0x4f6d;
/// Version of the wire format; packets of other versions are counted and dropped.
pub const VERSION: u8 = 2;
/// Bytes of the header without the tag.
pub const HEADER_BYTES: usize = 32;
/// Bytes of the tag.
pub const TAG_BYTES: usize = 8;
/// Bytes in front of every control body.
pub const PACKET_OVERHEAD_BYTES: usize = HEADER_BYTES + TAG_BYTES;

/// Offset of each field.
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

/// Offset of the magic number, for filters that see packets before they are parsed.
pub const MAGIC_OFFSET: usize = at::MAGIC;
/// Offset of the job number, likewise.
pub const JOB_OFFSET: usize = at::JOB;
/// Offset of the communicator number, likewise.
pub const COMMUNICATOR_OFFSET: usize = at::COMMUNICATOR;
/// Offset of the sender's rank, likewise.
pub const SOURCE_OFFSET: usize = at::SOURCE;

/// Type of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Part of a message, numbered on its lane; `argument` is the packet's index in that part of
    /// the message. With [`Flags::FIRST`], an [`crate::Envelope`] precedes the data.
    Data = 1,
    /// The receiver has a buffer for a large message: `argument` is the sender's token. Numbered on
    /// a lane of its own, with [`Flags::GRANTS`].
    Grant = 2,
    /// Every packet before `expects` has arrived; `argument` is the delay in microseconds between
    /// the latest arrival and this acknowledgement.
    Ack = 3,
    /// Packet `expects` is missing; a [`crate::GapMap`] lists the packets after it that have
    /// arrived. With [`Flags::REJECT`] the packet arrived but found no buffer [PM-R15]; with
    /// [`Flags::ACK_NOW`] the sender of the NACK is waiting for a message.
    Nack = 4,
    /// Liveness probe. `argument`, the number of the probe, which is not a rank, is returned in the
    /// answer; `expects` is a digest of the ranks that the sender knows to be gone.
    Ping = 5,
    /// Answer to a probe or a failure report; `argument` is copied from the probe, or is the rank
    /// that was reported; `expects` is a digest as in [`Kind::Ping`].
    Pong = 6,
    /// The sender reports that rank `argument` has failed; answered by [`Kind::Pong`].
    Failed = 7,
    /// The sender leaves the job in good order; if `seq` is not 0, the sender reports instead that
    /// rank `seq - 1` has left. `argument` is one plus the rank that failed first, as far as the
    /// sender knows, or 0 if none has.
    Bye = 8,
    /// Part of a broadcast, numbered on the root's stream; `argument` is its index in the message,
    /// and `expects` is the root's rank, since other ranks send repairs too. With [`Flags::FIRST`],
    /// an [`crate::Envelope`], whose token is the message's number, precedes the data.
    Cast = 9,
    /// Every packet before `expects` of the stream of root `argument` has arrived; `seq` is the
    /// delay in microseconds between the latest arrival and this report. With [`Flags::QUERY`], the
    /// sender collects the receiver's acknowledgements instead, and asks for that of everything
    /// before `expects`.
    CastAck = 10,
    /// As [`Kind::CastAck`], and packet `expects` is missing; a [`crate::GapMap`] lists the packets
    /// after it that have arrived. With [`Flags::MISSING_REST`] all later packets are missing, too;
    /// with [`Flags::REPEATED`] the report is repeated because nothing has arrived for some time;
    /// with [`Flags::REJECT`] packet `expects` has arrived since the last report, but found no
    /// buffer.
    CastNack = 11,
    /// Sent to all ranks: the sender's multicast works, and `argument` ranks have reached it by
    /// multicast.
    Hello = 12,
    /// Step of a barrier: `seq` is the barrier's number, `argument` the step [CB-R2], and
    /// [`crate::Words`] are the words it carries.
    Step = 13,
    /// Step `argument` of barrier `seq`, which the receiver owes, is missing [CB-R6].
    StepNack = 14,
    /// Asks whether the receiver has entered barrier `seq`; sent when a barrier takes long.
    StepAsk = 15,
    /// `seq` is the newest barrier that the sender has entered, `argument` the newest that it has
    /// completed, whose results it carries as a step does.
    StepTell = 16,
    /// Data of several packets of a broadcast combined in one packet, for ranks that lack one of
    /// them each: see [`crate::CodedSet`]. `expects` is the root's rank, as in [`Kind::Cast`].
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

    /// All kinds, in the order of their numbers, from 1.
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

/// Flags of a packet; unknown ones are kept and ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// On [`Kind::Step`] and [`Kind::StepTell`]: mask of the bits that hold the number of words
    /// after the tag.
    pub const WORDS_MASK: Self = Self(3);
    /// `seq` and `expects` count on the bulk lane instead of the ordered one.
    pub const BULK: Self = Self(1);
    /// First packet of a message: an envelope precedes the data.
    pub const FIRST: Self = Self(2);
    /// Last packet of a message or of its granted part.
    pub const LAST: Self = Self(4);
    /// The sender is waiting for an acknowledgement: the receiver answers without delay.
    pub const ACK_NOW: Self = Self(8);
    /// On [`Kind::CastAck`]: asks for an acknowledgement.
    pub const QUERY: Self = Self(8);
    /// On [`Kind::CastNack`]: the same report as before.
    pub const REPEATED: Self = Self(8);
    /// No buffer was free for packet `expects`; on [`Kind::CastNack`], since the last report.
    pub const REJECT: Self = Self(16);
    /// On [`Kind::Data`], without data: no more packets of the message follow on this lane, because
    /// its sender has abandoned it.
    pub const CUT: Self = Self(16);
    /// On [`Kind::Failed`] and [`Kind::Bye`], if the packet names a failed rank: that rank was
    /// declared failed because long packets do not reach it, although it answers short ones.
    pub const MTU_BLACK_HOLE: Self = Self(16);
    /// Buffers are free again for packet `expects`.
    pub const RESUME: Self = Self(32);
    /// On [`Kind::CastNack`]: all packets after those in its map are missing, too.
    pub const MISSING_REST: Self = Self(32);
    /// `seq` and `expects` count on the lane of grants.
    pub const GRANTS: Self = Self(64);
    /// On [`Kind::CastAck`] and [`Kind::CastNack`]: a packet to all ranks has arrived since the
    /// last report to the rank that repairs.
    pub const HEARS: Self = Self(64);
    /// Sent to all ranks by multicast: the tag covers [`Rank::ALL`] instead of the receiver.
    pub const GROUP: Self = Self(128);
    /// On [`Kind::Data`] with [`Flags::FIRST`]: a [`crate::CastReport`] follows the envelope.
    pub const CARRIES_REPORT: Self = Self(128);

    /// Union of both sets of flags.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// `self`, with `other` added if `wanted`.
    #[must_use]
    pub const fn with_if(self, other: Self, wanted: bool) -> Self {
        if wanted { self.with(other) } else { self }
    }

    /// True if every flag of `other` is set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Decoded form of the fixed header of every packet, in host byte order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Type of the packet.
    pub kind: Kind,
    /// Job that the packet belongs to.
    pub job: JobId,
    /// Communicator of the message; 0 if the packet concerns none.
    pub communicator: CommunicatorId,
    /// Channel that the packet travels on.
    pub channel: ChannelId,
    /// Flags.
    pub flags: Flags,
    /// Rank of the sender in the job, one of at most 65,536.
    pub source: Rank,
    /// Number on the lane, for the numbered kinds.
    pub seq: Seq,
    /// Next number that the sender of this packet expects on the same lane in the opposite
    /// direction.
    pub expects: Seq,
    /// Number of the sender's rounds of retransmission, or of the packets of a broadcast that its
    /// root has sent again; a report repeats the newest value it has seen [PM-R18].
    pub epoch: u16,
    /// Socket-buffer space that the sender of this packet advertises to its receiver, in units of
    /// 4,096 bytes of truesize.
    pub credits: u16,
    /// Meaning depends on the kind.
    pub argument: u32,
}

/// First bit of the part of `argument` that says how the barrier combines words, in a first step
/// for the NIC; the bits below it hold the step.
pub const COMBINE_SHIFT: u32 = 24;

/// True if a packet that starts with these bytes is of a kind that carries user data. Only the kind
/// is examined: the packet may still be rejected when it is parsed.
pub fn carries_data(head: &[u8]) -> bool {
    let kind = head.get(at::KIND).and_then(|kind| Kind::from_wire(*kind));
    kind.is_some_and(Kind::carries_data)
}

impl Header {
    /// Header of this kind from `source`, with all other fields zero, for use as a base
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

    /// Word carried by a step of a barrier, in the fields that a step has no other use for:
    /// `expects`, `epoch` and `credits`.
    pub fn word(&self) -> u64 {
        u64::from(self.expects.0) << 32 | u64::from(self.epoch) << 16 | u64::from(self.credits)
    }

    /// Returns this header with `word` in it.
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

/// Reason why bytes are not a valid Omnes packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderError {
    /// Fewer bytes than header and tag occupy.
    TooShort {
        /// Number of bytes given.
        bytes: usize,
    },
    /// The magic number is wrong.
    ForeignMagic,
    /// A version of the wire format other than [`VERSION`].
    UnknownVersion(u8),
    /// An undefined kind.
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

/// Returns the `N` bytes at `offset`. The array is long enough for every field.
fn field<const N: usize>(bytes: &[u8; HEADER_BYTES], offset: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[offset..offset + N]);
    out
}

/// Writes the `N` bytes of `value` at `offset`.
fn set<const N: usize>(bytes: &mut [u8; HEADER_BYTES], offset: usize, value: [u8; N]) {
    bytes[offset..offset + N].copy_from_slice(&value);
}

/// True if a packet that starts with these bytes may have a control body after its tag. Only kind
/// and flags are examined: the packet may still be rejected when it is parsed.
pub fn has_control_body(head: &[u8]) -> bool {
    let kind = head.get(at::KIND).and_then(|kind| Kind::from_wire(*kind));
    kind.zip(head.get(at::FLAGS))
        .is_some_and(|(kind, flags)| control_body_bytes(kind, Flags(*flags)) > 0)
}

/// Upper bound of the length of a packet's control body, in bytes.
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
    /// [`HeaderError`] if the bytes are not a valid packet. The tag is read, not verified.
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

    /// Upper bound of the number of bytes after the tag that the tag covers; a gap map may be
    /// shorter.
    pub fn control_body_bytes(&self) -> usize {
        control_body_bytes(self.kind, self.flags)
    }

    /// Advances this header, and `bytes`, its encoded form, to the next packet of a run.
    pub(crate) fn count_on(&mut self, bytes: &mut [u8; HEADER_BYTES]) {
        self.seq = self.seq.plus(1);
        self.argument = self.argument.wrapping_add(1);
        set(bytes, at::SEQ, self.seq.0.to_be_bytes());
        set(bytes, at::ARGUMENT, self.argument.to_be_bytes());
    }

    /// Encodes the header for the wire, without the tag.
    ///
    /// # Panics
    /// If the source is not one of the 65,536 ranks that a job may have.
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
        fn emitted_header_parses_back_unchanged(header in any_header()) {
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
        fn arbitrary_bytes_parse_or_are_rejected_without_panic(bytes: Vec<u8>) {
            if let Ok((header, _)) = Header::parse(&bytes) {
                prop_assert_eq!(&header.emit()[..], &bytes[..HEADER_BYTES]);
            }
        }
    }

    #[test]
    fn kinds_are_listed_in_the_order_of_their_numbers() {
        for (number, kind) in (1..).zip(Kind::ALL) {
            assert_eq!((kind as u8, Kind::from_wire(number)), (number, Some(kind)));
        }
        assert_eq!(Kind::from_wire(0), None);
        assert_eq!(Kind::from_wire(Kind::ALL.len() as u8 + 1), None);
    }

    #[test]
    fn wrong_magic_version_and_kind_each_have_their_own_error() {
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
