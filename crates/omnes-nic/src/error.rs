//! Why the kernel NIC cannot be used.

use std::io;
use thiserror::Error;

/// Why the kernel NIC cannot be used; the texts are for people and say what would help.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NicError {
    /// The build had no clang, or one that does not know BPF.
    #[error("this build has no kernel NIC: build again with a clang that has a BPF target")]
    NoFirmware,
    /// The process may not load programs.
    #[error(
        "loading the firmware needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN; omnesd can lend a slot"
    )]
    NotPermitted,
    /// The kernel refuses the firmware.
    #[error("the kernel refuses the firmware: {reason}")]
    Refused {
        /// What the kernel says.
        reason: String,
    },
    /// An interface that the firmware cannot be attached to.
    #[error("cannot attach the firmware to interface {interface}: {source}")]
    Attach {
        /// Its index.
        interface: u32,
        /// What the kernel says.
        source: io::Error,
    },
    /// All slots are taken.
    #[error("all {limit} slots of the kernel NIC are in use")]
    Full {
        /// How many there are.
        limit: u32,
    },
    /// The addresses of open queues leave no room for one more.
    #[error("all {limit} addresses for receive queues are in use")]
    QueuesFull {
        /// How many there are.
        limit: usize,
    },
    /// Somebody else has a slot with the same name.
    #[error("job {job:#x} already has a slot for communicator {communicator} at port {port}")]
    Taken {
        /// The job.
        job: u32,
        /// The communicator.
        communicator: u32,
        /// The UDP port.
        port: u16,
    },
    /// A plan that makes no sense.
    #[error("{what}")]
    Plan {
        /// What is wrong.
        what: &'static str,
    },
    /// The node's agent does not lend a slot.
    #[error(transparent)]
    Agent(#[from] crate::agent::AgentError),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel says.
        source: io::Error,
    },
}

/// A negative error number of libbpf as an error.
pub(crate) fn checked(code: i32) -> io::Result<i32> {
    if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(code) }
}
