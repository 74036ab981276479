//! What the tests of the kernel NIC share: hosts, packets, groups.
#![allow(dead_code, clippy::unwrap_used)] // No test uses everything; a failed unwrap is a failure.

/// The tests of `ipv6.rs` are the other tests again, over IPv6.
pub const IS_V6: bool = is_same(env!("CARGO_CRATE_NAME"), "ipv6");

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

pub mod group;
pub mod hosts;
pub mod packets;
#[path = "../../src/root.rs"]
pub mod root;
pub mod sniffer;
