//! What the agent allows a process, a user, and all users together.
//!
//! These limits keep a hostile process from exhausting what others need: slots, memory,
//! descriptors, time.

use crate::plan::QUEUE_SOCKETS_MAX;
use omnes_firmware::KERNEL_GROUP_MAX;
use omnes_firmware::slot::QUEUE_PORTS_MAX;
use std::time::Duration;

/// Version of the protocol between agent and processes, and of the pages and queues that the
/// firmware shares with them; both sides must have the same.
pub const PROTOCOL_VERSION: u32 = 8;
/// Maximum length of a request, and of an answer, in bytes.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Time for which a request may stay incomplete, or an answer unread.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Time after which a process stops waiting for the agent.
pub const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Maximum number of concurrent connections.
pub const CONNECTIONS_MAX: usize = 512;
/// Maximum number of concurrent connections of one user.
pub const CONNECTIONS_PER_USER_MAX: usize = 64;
/// Slots of one user, unless the agent is configured otherwise. A user may keep as many pages of
/// slots that were taken back.
pub const SLOTS_PER_USER: u32 = 32;
/// Maximum number of receive queues of one user, at 132 KiB each, and as many that were taken back
/// and are kept.
pub const QUEUES_PER_USER_MAX: usize = 128;
/// Ports that one user's queues may take together: a quarter of all, so that others find some left.
pub const QUEUE_PORTS_PER_USER_MAX: usize = QUEUE_PORTS_MAX / 4;
/// Maximum number of ranks whose packets a slot accepts.
pub const MEMBERS_MAX: usize = 4 * KERNEL_GROUP_MAX;
/// Maximum number of such ranks in all slots of one user; the firmware has room for twice as many.
pub const MEMBERS_PER_USER_MAX: usize = 8 * KERNEL_GROUP_MAX;
/// New connections that are accepted before requests are handled; of these, one of each user.
pub const CONNECTIONS_PER_TURN: usize = 16;
/// Bytes of one process that are read before those of others.
pub const BYTES_PER_TURN: usize = 1 << 16;
/// Maximum number of descriptors with a request: the sockets of a slot or a queue, and their
/// group's.
pub const DESCRIPTORS_MAX: usize = QUEUE_SOCKETS_MAX + 1;

// Maximum bytes of a peer and of a member in a request; a test checks them.
pub(super) const PEER_BYTES_MAX: usize = 63;
pub(super) const MEMBER_BYTES_MAX: usize = 112;
// The longest permitted plan fits, with room for its other fields.
const _: () = assert!(
    KERNEL_GROUP_MAX * PEER_BYTES_MAX + MEMBERS_MAX * MEMBER_BYTES_MAX + 1024 <= LINE_BYTES_MAX
);
// One slot may have the maximum number of members.
const _: () = assert!(MEMBERS_MAX <= MEMBERS_PER_USER_MAX);
