//! Errors of the public interface.

use crate::collective::Collective;
use crate::given_up::collective_of;
use omnes_net::{NetError, OperationError};
use thiserror::Error as ThisError;

/// Errors of the operations of this library. Every message names the value concerned and, where
/// there is one, the remedy.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The environment does not say which rank this is.
    #[error(
        "no launcher found: start the program with 'omnes run -n 8 -- PROGRAM', mpirun, srun or \
         torchrun, or set OMNES_RANK, OMNES_SIZE and OMNES_RENDEZVOUS"
    )]
    NoLauncher,
    /// An environment variable has an invalid value, or is required and not set.
    #[error("{name}{}: {reason}", shown(.value))]
    InvalidVariable {
        /// Name of the variable.
        name: String,
        /// Value of the variable; empty if it is not set.
        value: String,
        /// The reason why the value is invalid.
        reason: String,
    },
    /// This rank could not join the job.
    #[error(transparent)]
    Join(NetError),
    /// A rank outside the communicator.
    #[error("rank {rank} is not in a communicator of {size} ranks")]
    RankOutOfRange {
        /// The rank that was passed.
        rank: u32,
        /// Number of ranks of the communicator.
        size: u32,
    },
    /// A message is longer than the buffer for it, which holds its beginning.
    #[error(
        "message of {bytes} bytes is longer than the buffer of {capacity} bytes, which now holds \
         its beginning: use a larger buffer or send less"
    )]
    Truncated {
        /// Length of the message.
        bytes: u64,
        /// Length of the buffer.
        capacity: u64,
    },
    /// A message exceeds the maximum length; nothing was sent.
    #[error("message of {bytes} bytes is too long: at most {limit} can be sent; split it")]
    TooLarge {
        /// Length of the message.
        bytes: u64,
        /// The maximum length, which depends on the packet size of the network.
        limit: u64,
    },
    /// A rank of the communicator has died or is unreachable.
    #[error(
        "rank {rank} has failed: it ended without leaving the job, or was silent for \
         four fifths of OMNES_PEER_TIMEOUT; if it is still running, raise that timeout, or look \
         whether a firewall or NAT drops UDP packets between the hosts"
    )]
    PeerFailed {
        /// The failed rank, numbered as in the communicator, or as in the job if it is not a
        /// member.
        rank: u32,
    },
    /// Long packets do not reach a rank, although short ones do, so the rank counts as failed.
    #[error(
        "packets of {bytes} bytes do not reach rank {rank}, though shorter ones do: some link or \
         switch on the way has a smaller MTU than the hosts' links; set the same MTU everywhere, \
         or OMNES_MTU={}",
        shorter(*bytes)
    )]
    MtuBlackHole {
        /// The rank, numbered as in the communicator, or as in the job if it is not a member. It is
        /// this rank's own if the others have declared this rank failed.
        rank: u32,
        /// Length of the job's longest IP packets.
        bytes: u32,
    },
    /// The rank that this rank waited for has left the job.
    #[error("rank {rank} has left the job")]
    PeerLeft {
        /// The rank that has left, numbered as in the communicator.
        rank: u32,
    },
    /// Another rank has abandoned an operation whose data this rank waited for: its wait was
    /// interrupted, its request was dropped, or the operation failed on that rank.
    #[error(
        "rank {rank} stopped sending what this rank waits for: its call was interrupted or its \
         request dropped; see that rank's own error"
    )]
    PeerGaveUp {
        /// The rank that gave up, numbered as in the communicator.
        rank: u32,
    },
    /// A rank could not complete a collective operation; the error that it got says why. Messages
    /// of later collectives could not be distinguished from those of this one, so collective
    /// operations no longer work on the communicator.
    #[error(
        "rank {rank} could not complete {collective} on this communicator, so no collective works \
         on it any more: create another one with split or dup from a communicator that still works"
    )]
    CollectivesBroken {
        /// That rank, numbered as in the communicator; this rank's own after its own error.
        rank: u32,
        /// The operation that could not be completed.
        collective: Collective,
    },
    /// The other ranks have declared this rank failed.
    #[error(
        "rank {by} has declared this rank failed, because it did not answer in time; the job \
         continues without it; if it was only slow, raise OMNES_PEER_TIMEOUT; if it has just \
         started, a firewall or NAT may drop UDP packets between the hosts"
    )]
    DeclaredFailed {
        /// The rank that declared it, numbered as in the job.
        by: u32,
    },
    /// Something that must be the same on all ranks of a communicator differs between them.
    #[error("{what} differs between the ranks of the communicator")]
    Mismatch {
        /// What differs.
        what: &'static str,
    },
    /// Ranks called different collective operations, or the same one with different roots, lengths,
    /// types or operations. Detected only if calls are compared
    /// ([`Config::compare_calls`](crate::Config::compare_calls)). The same on all ranks; the calls
    /// have had no effect.
    #[error(
        "rank {rank} called {call}, rank 0 {first}: all ranks must call the same collective \
         operations in the same order, with the same roots, lengths, types and operations"
    )]
    CallMismatch {
        /// The lowest rank whose call differs from rank 0's.
        rank: u32,
        /// The call of that rank, such as `reduce of 3 f64 by sum with root 1`.
        call: String,
        /// The call of rank 0.
        first: String,
    },
    /// Ranks have passed different lengths to a collective operation.
    #[error(
        "received {received} bytes where this rank expects {expected}: all ranks must pass the \
         same lengths"
    )]
    LengthMismatch {
        /// Number of bytes that another rank sent.
        received: u64,
        /// Length of this rank's buffer for them.
        expected: u64,
    },
    /// The length of a collective operation's buffer is not that of one part per rank.
    #[error("{name} has {bytes} bytes; one part per rank would need {expected}")]
    BufferLength {
        /// Name of the parameter.
        name: &'static str,
        /// Length of the buffer in bytes.
        bytes: usize,
        /// Required length in bytes.
        expected: usize,
    },
    /// A list of lengths does not have one entry per rank.
    #[error("{name} has {count} entries, but the communicator has {ranks} ranks")]
    LengthsCount {
        /// Name of the parameter.
        name: &'static str,
        /// Number of entries.
        count: usize,
        /// Number of ranks of the communicator.
        ranks: u32,
    },
    /// A buffer of a collective operation cannot be divided into equal parts, one per rank.
    #[error("{name} has {bytes} bytes, which cannot be divided into {ranks} equal parts")]
    NotDivisible {
        /// Name of the parameter.
        name: &'static str,
        /// Length of the buffer in bytes.
        bytes: usize,
        /// Number of ranks of the communicator.
        ranks: u32,
    },
    /// The operation does not apply to the element type, or no operation has that name.
    #[error("reduction: {reason}")]
    Reduction {
        /// The reason.
        reason: String,
    },
    /// Multicast is required, but does not work.
    #[error("OMNES_MULTICAST=on, but {reason}")]
    NoMulticast {
        /// The reason.
        reason: String,
    },
    /// A barrier or multi-send through the kernel NIC is required, but not available on all ranks.
    #[error("the kernel NIC is required, but not available: {reason}")]
    NoNic {
        /// The reason.
        reason: String,
    },
    /// The requested multi-send is not possible.
    #[error("multi-send: {reason}")]
    MultiSend {
        /// The reason.
        reason: String,
    },
    /// A barrier could not be entered or completed.
    #[error("barrier: {reason}")]
    Barrier {
        /// The reason.
        reason: String,
    },
    /// Some ranks did not enter a barrier within the time limit.
    #[error("the barrier is not complete after {ms} ms; missing: {}", list(missing))]
    BarrierTimeout {
        /// The time limit, in milliseconds.
        ms: u64,
        /// Ranks of the communicator that had not entered when queried; empty if all had, and
        /// packets were still in flight.
        missing: Vec<u32>,
    },
    /// A communicator has been used with more multicast policies than it can distinguish.
    #[error(
        "too many broadcast schemes on one communicator: at most {limit}; use another \
         communicator, such as a dup, for more"
    )]
    TooManySchemes {
        /// The limit.
        limit: u32,
    },
    /// The ranks of an exchange could not form a communicator; the same on all of them.
    #[error("rank {rank}: {reason}")]
    Exchange {
        /// The rank that could not join, numbered as in the exchange.
        rank: u32,
        /// The reason that this rank reports.
        reason: String,
    },
    /// The program's own exchange, from which a communicator was to be created, failed.
    #[error("the exchange between the ranks has failed: {reason}")]
    ExchangeFailed {
        /// The reason that the exchange reports.
        reason: String,
    },
    /// The program's callback ended the wait ([`WhileWaiting::every`](crate::WhileWaiting::every)),
    /// and the operation is abandoned.
    ///
    /// After a broadcast, the ranks to which this rank would have forwarded the data, or more than
    /// 4 MiB of its own that had not been sent, get [`Error::PeerGaveUp`]; all others get the data,
    /// and later broadcasts are not affected. A send of which at most 4 MiB had not been sent still
    /// arrives; otherwise its receiver gets that error, too. A barrier continues, except one over
    /// messages ([`BarrierForm::Channel`](crate::BarrierForm)). After such a barrier, and after any
    /// other collective, collective operations no longer work on the communicator:
    /// [`Self::CollectivesBroken`].
    #[error("the wait was interrupted")]
    Interrupted,
    /// An invalid algorithm, such as a tree of radix 1.
    #[error("algorithm: {reason}")]
    Algorithm {
        /// The reason.
        reason: String,
    },
    /// The job cannot create any more communicators.
    #[error(
        "too many communicators: a job can create {limit} in total, including those that were \
         freed; reuse them"
    )]
    TooManyCommunicators {
        /// The limit.
        limit: u32,
    },
    /// A job can only be left through the communicator of all its ranks.
    #[error(
        "finalize: this communicator has {size} of the job's {job} ranks; call it on the \
         communicator of all ranks"
    )]
    NotAllRanks {
        /// Number of ranks of the communicator.
        size: u32,
        /// Ranks of the job.
        job: u32,
    },
    /// This rank has left the job.
    #[error("this rank has left the job: no operation can start after finalize() or abandon()")]
    AlreadyLeft,
    /// A request was tested or waited for again after it had ended with an error.
    #[error("the request has already ended with an error and cannot be used again")]
    RequestFailed,
    /// An invalid setting of [`Config`](crate::Config).
    #[error("{name} is {value}, must be {allowed}")]
    InvalidConfig {
        /// Name of the field.
        name: &'static str,
        /// Value of the field.
        value: String,
        /// The values allowed.
        allowed: String,
    },
}

/// Length of packets that may pass if packets of `bytes` bytes do not: the maximum of Ethernet, or
/// the minimum that IPv6 requires of any network.
fn shorter(bytes: u32) -> u32 {
    if bytes > 1500 { 1500 } else { 1280 }
}

/// A variable's value as text that follows its name.
fn shown(value: &str) -> String {
    if value.is_empty() { " is not set".to_owned() } else { format!("={value}") }
}

/// Ranks as text: all if there are few, else the first ones.
fn list(ranks: &[u32]) -> String {
    const SHOWN: usize = 16;
    let shown: Vec<String> = ranks.iter().take(SHOWN).map(|rank| format!("rank {rank}")).collect();
    match ranks.len() {
        0 => "no rank; packets are still in flight".to_owned(),
        count if count > SHOWN => format!("{} and {} more", shown.join(", "), count - SHOWN),
        _ => shown.join(", "),
    }
}

impl From<NetError> for Error {
    fn from(error: NetError) -> Self {
        match error {
            NetError::Interrupted => Self::Interrupted,
            error => Self::Join(error),
        }
    }
}

impl Error {
    /// A negative number per kind of error, for interfaces without enums.
    pub fn code(&self) -> i32 {
        match self {
            Self::NoLauncher => -1,
            Self::InvalidVariable { .. } | Self::InvalidConfig { .. } => -2,
            Self::Join(_) => -3,
            Self::RankOutOfRange { .. } => -4,
            Self::Truncated { .. } => -5,
            Self::PeerFailed { .. } | Self::MtuBlackHole { .. } => -6,
            Self::PeerLeft { .. } => -7,
            Self::DeclaredFailed { .. } => -8,
            Self::Mismatch { .. } | Self::LengthMismatch { .. } | Self::CallMismatch { .. } => -9,
            Self::TooManyCommunicators { .. } => -10,
            Self::NoMulticast { .. } => -11,
            Self::TooManySchemes { .. } => -12,
            Self::NoNic { .. } => -13,
            Self::BarrierTimeout { .. } => -14,
            Self::MultiSend { .. } => -15,
            Self::Barrier { .. } => -16,
            Self::Exchange { .. } => -17,
            Self::ExchangeFailed { .. } => -18,
            Self::BufferLength { .. } | Self::LengthsCount { .. } | Self::NotDivisible { .. } => {
                -19
            }
            Self::Reduction { .. } => -20,
            Self::Interrupted => -21,
            Self::Algorithm { .. } => -22,
            Self::TooLarge { .. } => -23,
            Self::PeerGaveUp { .. } => -24,
            Self::NotAllRanks { .. } => -25,
            Self::AlreadyLeft => -26,
            Self::RequestFailed => -27,
            Self::CollectivesBroken { .. } => -28,
        }
    }

    /// The rank that the error names, if it names one: of the communicator, or of the job for
    /// [`Self::DeclaredFailed`].
    pub fn rank(&self) -> Option<u32> {
        match *self {
            Self::CallMismatch { rank, .. }
            | Self::PeerFailed { rank }
            | Self::MtuBlackHole { rank, .. }
            | Self::PeerLeft { rank }
            | Self::PeerGaveUp { rank }
            | Self::CollectivesBroken { rank, .. }
            | Self::Exchange { rank, .. }
            | Self::DeclaredFailed { by: rank } => Some(rank),
            _ => None,
        }
    }

    /// True if a message has arrived that is longer or shorter than the buffer for it.
    pub(crate) fn is_of_length(&self) -> bool {
        matches!(self, Self::Truncated { .. } | Self::LengthMismatch { .. })
    }

    /// True if the error means that a rank is gone, or takes part in no further collective: ranks
    /// that wait for this one find that out by themselves.
    pub(crate) fn is_detected_by_all(&self) -> bool {
        matches!(
            self,
            Self::PeerFailed { .. }
                | Self::MtuBlackHole { .. }
                | Self::PeerLeft { .. }
                | Self::DeclaredFailed { .. }
                | Self::CollectivesBroken { .. }
        )
    }

    /// Converts an operation's error; `number` converts a rank of the job to a rank of the
    /// communicator.
    pub(crate) fn from_operation(error: OperationError, number: impl Fn(u32) -> u32) -> Self {
        match error {
            OperationError::Collective(_) | OperationError::NicLost => {
                Self::Barrier { reason: error.to_string() }
            }
            OperationError::PeerFailed { rank } => Self::PeerFailed { rank: number(rank.0) },
            OperationError::MtuBlackHole { rank, bytes } => {
                Self::MtuBlackHole { rank: number(rank.0), bytes }
            }
            OperationError::PeerLeft { rank } => Self::PeerLeft { rank: number(rank.0) },
            OperationError::GivenUp { rank } => Self::PeerGaveUp { rank: number(rank.0) },
            OperationError::Notice { rank, tag } => {
                Self::CollectivesBroken { rank: number(rank.0), collective: collective_of(tag) }
            }
            OperationError::Excluded { by } => Self::DeclaredFailed { by: by.0 },
            OperationError::Truncated { bytes, capacity } => Self::Truncated { bytes, capacity },
            OperationError::Short { bytes, expected } => {
                Self::LengthMismatch { received: bytes, expected }
            }
            OperationError::TooLarge { bytes, bytes_max } => {
                Self::TooLarge { bytes, limit: bytes_max }
            }
            OperationError::Broadcast(_) | OperationError::NoMulticast { .. } => {
                Self::Mismatch { what: "the group of a broadcast" }
            }
            OperationError::Interrupted => Self::Interrupted,
            // Only abandoned operations end like this, and no caller waits for an abandoned
            // operation.
            OperationError::Released => Self::RequestFailed,
        }
    }
}
