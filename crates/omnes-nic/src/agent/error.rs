//! Why the agent lends nothing.

use std::io;
use thiserror::Error;

/// Why the agent lends nothing; the messages are for people and say what would help.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AgentError {
    /// No process listens.
    #[error("no agent in this network namespace; start omnesd as root")]
    Absent,
    /// The listening process is not root, and would get the job's keys if it were trusted.
    #[error("process {pid} of user {uid} claims to be the agent, which must run as root")]
    NotRoot {
        /// Its user.
        uid: u32,
        /// Its process number; 0 if it is in another process namespace.
        pid: i32,
    },
    /// The agent refuses the request.
    #[error("omnesd refuses: {reason}")]
    Refused {
        /// Why.
        reason: String,
    },
    /// The agent has ended or has closed the connection.
    #[error("omnesd has gone")]
    Gone,
    /// The agent has not answered in time.
    #[error("omnesd has not answered within {} s", super::limits::ANSWER_WAIT.as_secs())]
    Silent,
    /// The agent's answer is invalid.
    #[error("omnesd sent an answer that this program cannot parse: use the same version of both")]
    Nonsense,
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}
