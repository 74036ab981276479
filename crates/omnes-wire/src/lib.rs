//! The wire format of Omnes packets: the only crate that knows byte offsets.
//!
//! Every packet starts with one fixed [`Header`] of 32 bytes and an 8-byte [`Tag`], both
//! big-endian. The control body of a packet (envelope, report, words or gap map) follows and is
//! covered by the tag. User data are last and covered by the UDP checksum only, since a SipHash
//! over them would cost more than sending them, unless the job encrypts them.
//!
//! ```text
//!  0        2         3      4     8              12        13      14       16
//!  | magic  | version | kind | job | communicator | channel | flags | source |
//! 16    20        24      26        28         32    40
//!  | seq | expects | epoch | credits | argument | tag | body ...
//! ```
//!
//! Guarantees: parsing never panics and never reads past the given bytes; emitting a parsed header
//! yields the same bytes. Assumes nothing about the sender: a parsed header is *not* trusted until
//! its tag has been checked with [`SenderKey::verify`].

#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

mod body;
mod coded;
#[doc(hidden)]
pub mod fuzz;
mod header;
mod instant;
mod rank;
mod run;
mod seq;
mod tag;

pub use body::{
    CARRIED_MAX, CAST_REPORT_BYTES, CastReport, ENVELOPE_BYTES, Envelope, GAP_MAP_BITS,
    GAP_MAP_BYTES, GapMap, Words,
};
pub use coded::CodedSet;
pub use header::{
    COMBINE_SHIFT, COMMUNICATOR_OFFSET, Flags, HEADER_BYTES, Header, HeaderError, JOB_OFFSET, Kind,
    MAGIC, MAGIC_OFFSET, PACKET_OVERHEAD_BYTES, SOURCE_OFFSET, TAG_BYTES, VERSION, carries_data,
    has_control_body,
};
pub use instant::Instant;
pub use rank::{ChannelId, CommunicatorId, JobId, Rank};
pub use run::TaggedRun;
pub use seq::Seq;
pub use tag::{JobKey, KeyError, SenderKey, Tag};
