//! What user space and the kernel NIC share: `firmware/slot.h`. All words are host-endian.

use crate::{COMBINING_MEMBERS_MAX, KERNEL_GROUP_MAX, Key, barrier, multisend};
use omnes_wire::CARRIED_MAX;

/// Number of slots of one loaded firmware.
pub const SLOTS_MAX: u32 = 64;
/// Sockets that a member sends through: the one that receives its packets, and its doorbell.
pub const SENDERS: usize = 2;
/// Bytes of Ethernet, IPv4 and UDP headers.
pub const FRAME_BYTES_V4: usize = 42;
/// Bytes of Ethernet, IPv6 and UDP headers.
pub const FRAME_BYTES_V6: usize = 62;
/// The peer entry for the group's multicast address.
pub const PEER_GROUP: u32 = KERNEL_GROUP_MAX as u32;
/// Bytes of a lock, a barrier's state, and the bits and words of its two records in the kernel's
/// map.
pub const STATE_BYTES: usize = 8
    + barrier::STATE_BYTES
    + 2 * KERNEL_GROUP_MAX / 8
    + 2 * 8 * COMBINING_MEMBERS_MAX * CARRIED_MAX;

/// Part of the key by which packets find a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Class {
    /// Steps of barriers.
    Steps = 0,
    /// Packets to all.
    MultiSend = 1,
}

/// Added to a [`Class`] for packets over IPv6, which find other slots than those over IPv4.
pub const CLASS_V6: u8 = 4;

/// The key by which packets find a slot. `job`, `communicator` and `port` are in network byte
/// order.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortKey {
    /// The job's number.
    pub job: u32,
    /// The communicator's number.
    pub communicator: u32,
    /// The header's channel; 0 for packets to all, whatever their channel.
    pub channel: u8,
    /// A [`Class`], with or without [`CLASS_V6`].
    pub class: u8,
    /// UDP port of this host.
    pub port: u16,
}

/// The key of a sender to a slot.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberKey {
    /// The slot.
    pub slot: u32,
    /// The rank in the job.
    pub rank: u32,
}

/// A rank that may send to a slot.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its index in the group.
    pub index: u32,
    /// Always 0.
    pub reserved: u32,
    /// Its key.
    pub key: Key,
}

/// Flag: forward arriving packets to the children.
pub const SLOT_FORWARDS: u8 = 1;
/// Flag: send to the group's address at each child's MAC address.
pub const SLOT_BY_MAC: u8 = 2;

/// A member of a group: its identity and its tasks.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// The job's number, in network byte order.
    pub job: u32,
    /// The communicator's number, in network byte order.
    pub communicator: u32,
    /// The header's channel.
    pub channel: u8,
    /// [`SLOT_FORWARDS`], [`SLOT_BY_MAC`].
    pub flags: u8,
    /// The port of the member's socket, in network byte order.
    pub port: u16,
    /// The socket's IPv6 address, or its IPv4 address mapped to one.
    pub address: [u8; 16],
    /// This member's rank in the job.
    pub rank: u32,
    /// The interface that it sends through.
    pub interface: u32,
    /// 1 if the members have IPv6 addresses, 0 if IPv4 ones.
    pub is_v6: u32,
    /// Its key.
    pub key: Key,
    /// Cookies of the sockets that the host's packets leave by: 0 for none; all 0 for any socket
    /// that has the address.
    pub senders: [u64; SENDERS],
    /// What the member does in a barrier.
    pub barrier: barrier::Table,
    /// The children to which the member forwards packets to all.
    pub multisend: multisend::Table,
}

/// The headers of packets for one peer.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// 1 if the MAC addresses of `frame` are known.
    pub is_resolved: u16,
    /// Ethernet, IP and UDP headers; the shorter ones of IPv4 at the end.
    pub frame: [u8; FRAME_BYTES_V6],
    /// The rank in the job.
    pub rank: u32,
    /// When the MAC addresses were learnt, in units of 2^30 ns since the machine's start.
    pub learnt: u32,
}

/// Counters of a slot, in the order of the page's fields.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Steps, and requests to send one again, that arrived with a valid tag.
    pub packets_in: u64,
    /// Steps sent, without retransmissions.
    pub packets_out: u64,
    /// Steps sent again because a member missed them.
    pub repeated: u64,
    /// Of `packets_in`, those that had arrived before.
    pub duplicates: u64,
    /// Of `packets_in`, those that were of no use when they arrived.
    pub ignored: u64,
    /// Of `packets_in`, those that no correct member sends.
    pub nonsense: u64,
    /// Packets from a sender that the slot does not know, or with a wrong tag or length.
    pub bad_tags: u64,
    /// Packets passed on to wake the process.
    pub wakes: u64,
    /// Copies of packets to all that left for children; the source's last child gets the packet
    /// itself, which is not counted.
    pub clones: u64,
    /// Copies that could not be sent.
    pub clone_failures: u64,
}

impl Counters {
    /// Adds the counters of another slot.
    pub fn add(&mut self, other: &Self) {
        self.packets_in += other.packets_in;
        self.packets_out += other.packets_out;
        self.repeated += other.repeated;
        self.duplicates += other.duplicates;
        self.ignored += other.ignored;
        self.nonsense += other.nonsense;
        self.bad_tags += other.bad_tags;
        self.wakes += other.wakes;
        self.clones += other.clones;
        self.clone_failures += other.clone_failures;
    }
}

/// What the process maps: the firmware writes all but `is_sleeping` and `is_lost`, while the
/// process reads.
#[repr(C)]
#[derive(Debug)]
pub struct Page {
    /// Newest barrier entered.
    pub entered: u32,
    /// Newest barrier done.
    pub done: u32,
    /// The waiting step.
    pub at: u32,
    /// Number of members that have arrived in barrier `entered`, if this member waits for all.
    pub arrived_count: u32,
    /// Which members have arrived, a bit for each index of the group.
    pub arrived: [u64; KERNEL_GROUP_MAX / 64],
    /// The slot's counters.
    pub counters: Counters,
    /// Result of barrier `done`, if it combines words.
    pub results: [u64; CARRIED_MAX],
    /// Written by the process: not 0 if it sleeps, and needs the packet that ends the barrier.
    pub is_sleeping: u32,
    /// Written by the lender of the slot: not 0 if it was taken back.
    pub is_lost: u32,
    /// Number of trains to all that the firmware has seen leave.
    pub sent_to_all: u64,
    /// Number of arriving trains that the firmware has seen and that this member forwards.
    pub arrived_for_all: u64,
}

// ---- the receive queue ------------------------------------------------------------------

/// Number of packets that a queue holds.
pub const QUEUE_ENTRIES: u32 = 64;
/// Room for one packet.
pub const QUEUE_DATA_BYTES: usize = 2048;
/// Maximum number of addresses of all queues together.
pub const QUEUE_PORTS_MAX: usize = 4096;
/// Largest packet, with its header, that a queue takes; larger ones go through the socket.
pub const QUEUE_PACKET_BYTES_MAX: usize = 1152;

/// The key by which packets find a queue; all in network byte order.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueKey {
    /// The job's number.
    pub job: u32,
    /// Address of this host, or the group's: IPv6, or an IPv4 address mapped to it.
    pub address: [u8; 16],
    /// UDP port at that address.
    pub port: u16,
    /// Always 0.
    pub reserved: u16,
}

/// One packet of a queue.
#[repr(C)]
#[derive(Debug)]
pub struct QueueEntry {
    /// Bytes of the packet; 0 for a packet that was not intact.
    pub bytes: u32,
    /// Always 0.
    pub reserved: u32,
    /// The packet, from its header on.
    pub data: [u8; QUEUE_DATA_BYTES],
}

/// A process's receive queue, as mapped.
#[repr(C)]
#[derive(Debug)]
pub struct Queue {
    /// Entries taken, written by the firmware.
    pub head: u32,
    /// Always 0.
    pub reserved: [u32; 15],
    /// Packets that the firmware has let go on to the sockets.
    pub passed: u32,
    /// Always 0.
    pub reserved2: [u32; 15],
    /// Entries read, written by the process.
    pub tail: u32,
    /// Written by the process: the value of `passed` whose packets it has read.
    pub drained: u32,
    /// Written by the process: not 0 if it sleeps, and needs all packets through its sockets.
    pub is_sleeping: u32,
    /// Always 0.
    pub reserved3: [u32; 13],
    /// For each filled entry, one more than its position in the order of all packets.
    pub seqs: [u32; QUEUE_ENTRIES as usize],
    /// The packets.
    pub entries: [QueueEntry; QUEUE_ENTRIES as usize],
}
