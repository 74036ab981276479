//! What can go wrong, as a caller sees it.

use crate::collective::Collective;
use crate::given_up::collective_of;
use omnes_net::{NetError, OperationError};
use thiserror::Error as ThisError;

/// Every error names the value and the way out.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// Nothing in the environment says which rank this is.
    #[error(
        "no launcher found: start the program with 'omnes run -n 8 -- PROGRAM', mpirun, srun or \
         torchrun, or set OMNES_RANK, OMNES_SIZE and OMNES_RENDEZVOUS"
    )]
    NoLauncher,
    /// A variable has a value that makes no sense, or is not set and must be.
    #[error("{name}{}: {reason}", shown(.value))]
    Variable {
        /// Its name.
        name: String,
        /// Its value; empty where it is not set.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The job could not be joined.
    #[error(transparent)]
    Join(NetError),
    /// A rank outside the communicator.
    #[error("rank {rank} is not in a communicator of {size} ranks")]
    RankOutOfRange {
        /// What was asked for.
        rank: u32,
        /// Ranks there are.
        size: u32,
    },
    /// A message longer than the memory for it.
    #[error(
        "message of {bytes} bytes does not fit into the buffer of {capacity} bytes, which holds \
         its beginning: give a longer one, or send less"
    )]
    Truncated {
        /// Length of the message.
        bytes: u64,
        /// Length of the buffer.
        capacity: u64,
    },
    /// A message longer than any can be; nothing of it was sent.
    #[error("message of {bytes} bytes, at most {limit} can be sent: send it in parts")]
    TooLarge {
        /// Length of the message.
        bytes: u64,
        /// The limit, which the network's packets give.
        limit: u64,
    },
    /// A rank of the communicator has died or is cut off.
    #[error(
        "rank {rank} has failed: it ended without leaving the job, or was silent for \
         four fifths of OMNES_PEER_TIMEOUT; if it is alive, raise that"
    )]
    PeerFailed {
        /// Its rank in the communicator, or in the job where it is not a member.
        rank: u32,
    },
    /// Long packets do not get to a rank, which answers short ones: it is given up.
    #[error(
        "packets of {bytes} bytes do not get to rank {rank}, though shorter ones do: some link or \
         switch on the way passes on shorter packets than the hosts' links are set to; set the MTU \
         of all alike, or OMNES_MTU={}",
        shorter(*bytes)
    )]
    MtuBlackHole {
        /// Its rank in the communicator, or in the job where it is not a member; it is this rank's
        /// own where the others say so of it.
        rank: u32,
        /// Length of the job's longest IP packets.
        bytes: u32,
    },
    /// The rank that was waited for has left the job.
    #[error("rank {rank} has left the job")]
    PeerLeft {
        /// Its rank in the communicator.
        rank: u32,
    },
    /// A rank has given up an operation whose data this rank waited for: its wait was interrupted,
    /// its request dropped, or it could not go on itself.
    #[error(
        "rank {rank} has given up what it was sending: its call was interrupted, or its request \
         dropped; look for its own error"
    )]
    GivenUp {
        /// Its rank in the communicator.
        rank: u32,
    },
    /// A rank has given up a collective operation half-way, as it could not end it; its own error
    /// says why. No other collective operation can be told from it any more on this communicator,
    /// so there is none.
    #[error(
        "rank {rank} has given up a call of {collective} on this communicator, which has no \
         collective operations any more: make another one, by split or dup of one that still has"
    )]
    CollectiveGivenUp {
        /// Its rank in the communicator; this one's after its own error.
        rank: u32,
        /// What it has given up.
        collective: Collective,
    },
    /// The others have given up on this rank.
    #[error(
        "rank {by} says that this rank has failed: it did not answer in time; the job goes on \
         without it; if it was only slow, raise OMNES_PEER_TIMEOUT"
    )]
    Excluded {
        /// Who says so, by its rank in the job.
        by: u32,
    },
    /// The ranks of a communicator disagree about something that must be the same on all.
    #[error("{what} differs between the ranks of the communicator")]
    Disagreement {
        /// What differs.
        what: &'static str,
    },
    /// Ranks call different collective operations, or one with different roots, lengths, types or
    /// operations, where calls are compared ([`Config::compares`](crate::Config::compares)). The
    /// same on all ranks; nothing of the calls was done.
    #[error(
        "rank {rank} called {call}, rank 0 {first}: all ranks must call the same collective \
         operations in the same order, with the same roots, lengths, types and operations"
    )]
    CallsDiffer {
        /// The first rank that did not call the same as rank 0.
        rank: u32,
        /// What it called, such as `reduce of 3 f64 by sum with root 1`.
        call: String,
        /// What rank 0 called.
        first: String,
    },
    /// Ranks have given a collective operation different lengths.
    #[error("{came} bytes came and this rank expects {expected}: ranks must give the same lengths")]
    LengthDiffers {
        /// Bytes that another rank has sent.
        came: u64,
        /// Bytes of this rank's memory for them.
        expected: u64,
    },
    /// Memory of a collective operation that is not as long as one part per rank.
    #[error("{name} has {bytes} bytes; one part per rank would be {expected}")]
    Length {
        /// Name of the parameter.
        name: &'static str,
        /// Its length.
        bytes: usize,
        /// The length it should have.
        expected: usize,
    },
    /// Lengths of parts that are not one per rank.
    #[error("{name} has {count} numbers, one per rank would be {ranks}")]
    Lengths {
        /// Name of the parameter.
        name: &'static str,
        /// How many it has.
        count: usize,
        /// Ranks of the communicator.
        ranks: u32,
    },
    /// Memory of a collective operation that cannot be parted among the ranks.
    #[error("{name} has {bytes} bytes, which are not {ranks} equal parts")]
    UnequalParts {
        /// Name of the parameter.
        name: &'static str,
        /// Its length.
        bytes: usize,
        /// Ranks of the communicator.
        ranks: u32,
    },
    /// An operation that is not for the elements to be reduced, or a name of none.
    #[error("reduction: {reason}")]
    Reduction {
        /// Why.
        reason: String,
    },
    /// The job insists on multicast, and it does not work.
    #[error("OMNES_MULTICAST=on, but {reason}")]
    NoMulticast {
        /// Why.
        reason: String,
    },
    /// A barrier or a multi-send by the kernel's NIC was insisted on, and not all ranks have it.
    #[error("the kernel's network interface is insisted on and not to be had: {reason}")]
    NoNic {
        /// Why.
        reason: String,
    },
    /// A multi-send that cannot be.
    #[error("multi-send: {reason}")]
    MultiSend {
        /// Why.
        reason: String,
    },
    /// A barrier that cannot be entered.
    #[error("barrier: {reason}")]
    Barrier {
        /// Why.
        reason: String,
    },
    /// Ranks have not come to a barrier in time.
    #[error("the barrier is not over after {ms} ms; not there: {}", list(missing))]
    BarrierTimeout {
        /// The time given, in milliseconds.
        ms: u64,
        /// Ranks of the communicator that had not entered when asked; none if all had, and packets
        /// were on their way.
        missing: Vec<u32>,
    },
    /// A communicator has been used with more multicast policies than it can tell apart.
    #[error(
        "too many broadcast schemes on one communicator: at most {limit}; use another \
         communicator, such as a dup, for more"
    )]
    TooManySchemes {
        /// The limit.
        limit: u32,
    },
    /// Ranks that exchange could not become a communicator; the same on all of them.
    #[error("rank {rank}: {reason}")]
    Exchange {
        /// The rank that could not, among those that exchange.
        rank: u32,
        /// What it says.
        reason: String,
    },
    /// The exchange that ranks were to become a communicator by does not work.
    #[error("the exchange between the ranks has failed: {reason}")]
    ExchangeFailed {
        /// What it says.
        reason: String,
    },
    /// What the program does while it waits has ended the wait
    /// ([`WhileWaiting::every`](crate::WhileWaiting::every)). What was waited for is given up.
    /// Those to whom this rank would have passed a broadcast on get [`Error::GivenUp`], all others
    /// the data, and later broadcasts bring their own. Barriers go on, but for those over messages
    /// ([`BarrierForm::Channel`](crate::BarrierForm)). With those and other collectives, the
    /// communicator's are over: [`Self::CollectiveGivenUp`].
    #[error("the wait was interrupted")]
    Interrupted,
    /// An invalid algorithm, such as a tree of radix 1.
    #[error("algorithm: {reason}")]
    Algorithm {
        /// Why.
        reason: String,
    },
    /// No number is left for another communicator.
    #[error(
        "too many communicators: a job makes {limit} in its life, those that were freed counted; \
         keep and reuse them"
    )]
    TooManyCommunicators {
        /// The limit.
        limit: u32,
    },
    /// The job can be left on the communicator of all its ranks only.
    #[error(
        "finalize: this communicator has {size} of the job's {job} ranks; call it on the \
         communicator of all ranks"
    )]
    NotAll {
        /// Ranks of the communicator.
        size: u32,
        /// Ranks of the job.
        job: u32,
    },
    /// This rank has left the job itself.
    #[error("this rank has left the job: nothing starts after finalize() or abandon()")]
    Left,
    /// A request was asked, or waited for, once more after its error.
    #[error("the request has already ended with an error and cannot be used again")]
    RequestOver,
    /// An invalid setting of [`Config`](crate::Config).
    #[error("{name} is {value}, must be {allowed}")]
    Setting {
        /// Name of the field.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        allowed: String,
    },
}

/// Length of packets that may get through where those of `bytes` do not: Ethernet's, or what IPv6
/// asks of any network.
fn shorter(bytes: u32) -> u32 {
    if bytes > 1500 { 1500 } else { 1280 }
}

/// A variable's value behind its name.
fn shown(value: &str) -> String {
    if value.is_empty() { " is not set".to_owned() } else { format!("={value}") }
}

/// Ranks for people: all of a few, the first of many.
fn list(ranks: &[u32]) -> String {
    const SHOWN: usize = 16;
    let shown: Vec<String> = ranks.iter().take(SHOWN).map(|rank| format!("rank {rank}")).collect();
    match ranks.len() {
        0 => "nobody, packets are under way".to_owned(),
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
            Self::Variable { .. } | Self::Setting { .. } => -2,
            Self::Join(_) => -3,
            Self::RankOutOfRange { .. } => -4,
            Self::Truncated { .. } => -5,
            Self::PeerFailed { .. } | Self::MtuBlackHole { .. } => -6,
            Self::PeerLeft { .. } => -7,
            Self::Excluded { .. } => -8,
            Self::Disagreement { .. } | Self::LengthDiffers { .. } | Self::CallsDiffer { .. } => -9,
            Self::TooManyCommunicators { .. } => -10,
            Self::NoMulticast { .. } => -11,
            Self::TooManySchemes { .. } => -12,
            Self::NoNic { .. } => -13,
            Self::BarrierTimeout { .. } => -14,
            Self::MultiSend { .. } => -15,
            Self::Barrier { .. } => -16,
            Self::Exchange { .. } => -17,
            Self::ExchangeFailed { .. } => -18,
            Self::Length { .. } | Self::Lengths { .. } | Self::UnequalParts { .. } => -19,
            Self::Reduction { .. } => -20,
            Self::Interrupted => -21,
            Self::Algorithm { .. } => -22,
            Self::TooLarge { .. } => -23,
            Self::GivenUp { .. } => -24,
            Self::NotAll { .. } => -25,
            Self::Left => -26,
            Self::RequestOver => -27,
            Self::CollectiveGivenUp { .. } => -28,
        }
    }

    /// The rank that the error names, if it names one: of the communicator, or of the job for
    /// [`Self::Excluded`].
    pub fn rank(&self) -> Option<u32> {
        match *self {
            Self::CallsDiffer { rank, .. }
            | Self::PeerFailed { rank }
            | Self::MtuBlackHole { rank, .. }
            | Self::PeerLeft { rank }
            | Self::GivenUp { rank }
            | Self::CollectiveGivenUp { rank, .. }
            | Self::Exchange { rank, .. }
            | Self::Excluded { by: rank } => Some(rank),
            _ => None,
        }
    }

    /// True if a message has come that is longer or shorter than the memory for it.
    pub(crate) fn is_of_length(&self) -> bool {
        matches!(self, Self::Truncated { .. } | Self::LengthDiffers { .. })
    }

    /// True if a rank is no more, or takes part in no collective any more, which all that wait for
    /// this one hear by themselves.
    pub(crate) fn is_heard_by_all(&self) -> bool {
        matches!(
            self,
            Self::PeerFailed { .. }
                | Self::MtuBlackHole { .. }
                | Self::PeerLeft { .. }
                | Self::Excluded { .. }
                | Self::CollectiveGivenUp { .. }
        )
    }

    /// An operation's error, with ranks as the communicator numbers them.
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
            OperationError::GivenUp { rank } => Self::GivenUp { rank: number(rank.0) },
            OperationError::Notice { rank, tag } => {
                Self::CollectiveGivenUp { rank: number(rank.0), collective: collective_of(tag) }
            }
            OperationError::Excluded { by } => Self::Excluded { by: by.0 },
            OperationError::Truncated { bytes, capacity } => Self::Truncated { bytes, capacity },
            OperationError::Short { bytes, expected } => {
                Self::LengthDiffers { came: bytes, expected }
            }
            OperationError::TooLarge { bytes, bytes_max } => {
                Self::TooLarge { bytes, limit: bytes_max }
            }
            OperationError::Broadcast(_) | OperationError::NoMulticast { .. } => {
                Self::Disagreement { what: "the group of a broadcast" }
            }
            OperationError::Interrupted => Self::Interrupted,
            // Only operations that were given up end like this, and nobody waits for those.
            OperationError::Released => Self::RequestOver,
        }
    }
}
