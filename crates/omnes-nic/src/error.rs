//! Why the kernel NIC cannot be used.

use std::io;
use thiserror::Error;

/// Why the kernel NIC cannot be used; the messages are for people and say what would help.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NicError {
    /// The build had no clang, or one without BPF support.
    #[error("this build has no kernel NIC: build again with a clang that has a BPF target")]
    NoFirmware,
    /// The process may not load programs.
    #[error(
        "loading the firmware needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN; omnesd can lend a slot"
    )]
    NotPermitted,
    /// The kernel rejects the firmware.
    #[error("the kernel refuses the firmware: {reason}")]
    Refused {
        /// The kernel's message.
        reason: String,
    },
    /// The firmware cannot be attached to an interface.
    #[error("cannot attach the firmware to interface {interface}: {source}")]
    Attach {
        /// The interface's index.
        interface: u32,
        /// The kernel's error.
        source: io::Error,
    },
    /// All slots are in use.
    #[error("all {limit} slots of the kernel NIC are in use")]
    Full {
        /// Number of slots.
        limit: u32,
    },
    /// The addresses of open queues leave no room for another queue.
    #[error("all {limit} addresses for receive queues are in use")]
    QueuesFull {
        /// Maximum number of addresses.
        limit: usize,
    },
    /// Another owner has a slot with the same name.
    #[error("job {job:#x} already has a slot for communicator {communicator} at port {port}")]
    Taken {
        /// The job.
        job: u32,
        /// The communicator.
        communicator: u32,
        /// The UDP port.
        port: u16,
    },
    /// The plan is invalid.
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
        /// What was attempted.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Converts a negative error number of libbpf to an error.
pub(crate) fn checked(code: i32) -> io::Result<i32> {
    if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(code) }
}
