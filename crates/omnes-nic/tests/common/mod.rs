//! What the tests of the kernel's NIC share: hosts, packets, groups.
#![allow(dead_code, clippy::unwrap_used)] // No test uses everything; a failed unwrap is a failure.

pub mod group;
pub mod hosts;
pub mod packets;
pub mod sniffer;
