//! What the agent allows a process, a user, and all together.
//!
//! They keep a hostile process from taking what others need: slots, memory, descriptors, time.

use crate::plan::QUEUE_SOCKETS_MAX;
use omnes_firmware::KERNEL_GROUP_MAX;
use omnes_firmware::slot::QUEUE_PORTS_MAX;
use std::time::Duration;

/// Version of what agent and processes say to each other, and of the pages and queues that the
/// firmware shares with them; both must have the same.
pub const PROTOCOL_VERSION: u32 = 8;
/// Longest request, and longest answer, in bytes.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Time for which a request may stay incomplete, or an answer unread.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Time after which a process does not wait for the agent any more.
pub const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Connections at once.
pub const CONNECTIONS_MAX: usize = 512;
/// Of these, those of one user.
pub const CONNECTIONS_PER_USER_MAX: usize = 64;
/// Slots of one user, unless the agent is told otherwise. As many pages of slots that were taken
/// back may be kept.
pub const SLOTS_PER_USER: u32 = 32;
/// Receive queues of one user, at 132 KiB each, and as many that were taken back and are kept.
pub const QUEUES_PER_USER_MAX: usize = 128;
/// Ports that one user's queues may take together: a quarter of all, so that others find some
/// left.
pub const QUEUE_PORTS_PER_USER_MAX: usize = QUEUE_PORTS_MAX / 4;
/// Ranks whose packets a slot takes.
pub const MEMBERS_MAX: usize = 4 * KERNEL_GROUP_MAX;
/// Such ranks in all slots of one user; the firmware has room for twice as many.
pub const MEMBERS_PER_USER_MAX: usize = 8 * KERNEL_GROUP_MAX;
/// New connections that are taken before requests are handled; of these, one of each user.
pub const CONNECTIONS_PER_TURN: usize = 16;
/// Bytes of one process that are read before those of others.
pub const BYTES_PER_TURN: usize = 1 << 16;
/// Descriptors that come with a request: the sockets of a slot or a queue, and their group's.
pub const DESCRIPTORS_MAX: usize = QUEUE_SOCKETS_MAX + 1;

// Bytes of the longest peer and the longest member in a request; a test compares.
pub(super) const PEER_BYTES_MAX: usize = 63;
pub(super) const MEMBER_BYTES_MAX: usize = 112;
// The longest plan that may be asked for fits, with room for its other fields.
const _: () = assert!(
    KERNEL_GROUP_MAX * PEER_BYTES_MAX + MEMBERS_MAX * MEMBER_BYTES_MAX + 1024 <= LINE_BYTES_MAX
);
// One slot may have as many members as are allowed at all.
const _: () = assert!(MEMBERS_MAX <= MEMBERS_PER_USER_MAX);
