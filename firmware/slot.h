/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * What user space and the kernel NIC share: one slot per member of a group.
 *
 * It has three parts with different owners. The *slot* and the *peers* are
 * written by the process that loaded the firmware, and say what the member may
 * send and to whom; the *state* is the firmware's own; the *page* is mapped by
 * the member's process, and each of its fields says who writes it.
 */
#ifndef OMNES_SLOT_H
#define OMNES_SLOT_H

#include "barrier_step.h"
#include "siphash.h"
#include "multisend_step.h"

#define OMNES_SLOTS_MAX 64
/* Sockets that a member sends through: the one that receives its packets, and its
 * doorbell. */
#define OMNES_SENDERS 2
/* Ethernet, IP and UDP headers, for either version of IP. */
#define OMNES_FRAME_BYTES_V4 42
#define OMNES_FRAME_BYTES_V6 62
/* The peer entry for the group's multicast address. */
#define OMNES_PEER_GROUP OMNES_KERNEL_GROUP_MAX
#define OMNES_PEERS_MAX (OMNES_KERNEL_GROUP_MAX + 1)
/* A lock, a barrier's state, and the bits and words of its two records. */
#define OMNES_STATE_BYTES 4488

/* Part of the key by which packets find a slot. */
enum omnes_class {
	OMNES_CLASS_STEPS = 0,
	OMNES_CLASS_MULTISEND = 1,
	OMNES_CLASS_OTHERS = 2, /* these find a queue */
};
/* Added to the class of packets over IPv6, which find other slots than those over
 * IPv4. */
#define OMNES_CLASS_V6 4

/* An IPv6 address in network byte order, or an IPv4 address mapped to one:
 * ::ffff:a.b.c.d. */
#define OMNES_ADDRESS_WORDS 4

/* `port` is a UDP port of this host in network byte order: the one that the member's
 * packets leave from and arrive at. */
struct omnes_port_key {
	u32 job;
	u32 communicator;
	u8 channel;
	u8 class_of_packet; /* an omnes_class, with or without OMNES_CLASS_V6 */
	u16 port;
};
_Static_assert(sizeof(struct omnes_port_key) == 12, "layout shared with Rust");

/* A rank of the job that may send to the slot, and its index in the group: several
 * ranks may share the index of their node. */
struct omnes_member_key {
	u32 slot;
	u32 rank;
};
struct omnes_member {
	u32 index;
	u32 reserved;
	struct omnes_key key;
};
_Static_assert(sizeof(struct omnes_member) == 24, "layout shared with Rust");

enum omnes_slot_flags {
	OMNES_SLOT_FORWARDS = 1, /* forward arriving packets to the children */
	OMNES_SLOT_BY_MAC = 2,   /* to the group's address at each child's MAC */
};

struct omnes_slot {
	u32 job;
	u32 communicator;
	u8 channel;
	u8 flags;
	u16 port; /* of the member's socket, with its address, in network byte order */
	u32 address[OMNES_ADDRESS_WORDS];
	u32 rank; /* this member's, in the job */
	u32 ifindex;
	u32 is_v6; /* all members have IPv6 addresses; else IPv4 ones */
	struct omnes_key key;
	u64 senders[OMNES_SENDERS]; /* cookies of the sockets that the host's packets leave by:
				     * 0 for none; all 0 for any socket that has the address */
	struct omnes_barrier_table barrier;
	struct omnes_multisend_table multisend;
};
_Static_assert(sizeof(struct omnes_slot) == 72 + 552 + 6160, "layout shared with Rust");

/* The static packet's headers for one peer [CB-R3]. They are aligned to the end of
 * their field: those of IPv4, which are shorter, begin later. The field begins two
 * bytes after a multiple of four, so that words are aligned. MAC addresses are filled
 * in once known. The place of the UDP checksum holds what its computation needs: over
 * IPv6 the uncomplemented sum of the pseudo header, and over IPv4, where steps have no
 * checksum, 0. */
struct omnes_peer {
	u16 is_resolved;
	u8 frame[OMNES_FRAME_BYTES_V6];
	u32 rank;
	u32 learnt; /* when the MAC addresses were learnt, in units of 2^30 ns */
};
_Static_assert(sizeof(struct omnes_peer) == 72, "layout shared with Rust");

/* Mapped by the member's process. */
struct omnes_page {
	/* Written by the firmware: */
	u32 entered;
	u32 done;
	u32 at;
	u32 arrived_count;
	u64 arrived[OMNES_KERNEL_ARRIVED_WORDS];
	u64 packets_in;
	u64 packets_out;
	u64 repeated;
	u64 duplicates;
	u64 ignored;
	u64 nonsense;
	u64 bad_tags;
	u64 wakes;
	u64 clones;
	u64 clone_failures;
	u64 results[OMNES_CARRIED_MAX]; /* of barrier `done`, if it combines words */
	/* Written by the process: */
	u32 is_sleeping; /* pass on the packet that ends the barrier */
	/* Written by the lender of the slot: */
	u32 is_lost; /* the slot was taken back */
	/* Written by the firmware: trains to all with children that it has seen leave and
	 * arrive. */
	u64 sent_to_all;
	u64 arrived_for_all;
};
_Static_assert(sizeof(struct omnes_page) == 16 + 128 + 80 + 56, "layout shared with Rust");

/* ---- the receive queue ---------------------------------------------------- */

#define OMNES_QUEUE_ENTRIES 64
#define OMNES_QUEUE_DATA_BYTES 2048
/* Larger packets go through the socket; 1 KiB of user data fits. */
#define OMNES_QUEUE_PACKET_BYTES_MAX 1152
#define OMNES_QUEUE_SUM_BYTES 512
#define OMNES_QUEUE_PORTS_MAX 4096

/* The key by which packets find a queue: their destination, in network byte order. The address
 * is part of it, because a host may forward packets of the job to the same port of another
 * host. */
struct omnes_queue_key {
	u32 job;
	u32 address[OMNES_ADDRESS_WORDS];
	u16 port;
	u16 reserved;
};
_Static_assert(sizeof(struct omnes_queue_key) == 24, "layout shared with Rust");

/* One packet, from Omnes's header on; empty if `bytes` is 0. */
struct omnes_queue_entry {
	u32 bytes;
	u32 reserved;
	u8 data[OMNES_QUEUE_DATA_BYTES];
};

/* Mapped by the process. A waiting process polls `passed` and `seqs`: fields that are written
 * while an entry is filled have cache lines of their own. */
struct omnes_queue {
	/* Written by the firmware: */
	u32 head; /* entries taken */
	u32 reserved[15];
	u32 passed; /* packets that went on to the sockets */
	u32 reserved2[15];
	/* Written by the process: */
	u32 tail;	 /* entries read */
	u32 drained;	 /* value of `passed` whose packets have been read */
	u32 is_sleeping; /* all packets go to the sockets */
	u32 reserved3[13];
	/* Written by the firmware: for each filled entry, one more than its position in the
	 * order of all. */
	u32 seqs[OMNES_QUEUE_ENTRIES];
	struct omnes_queue_entry entries[OMNES_QUEUE_ENTRIES];
};
_Static_assert(sizeof(struct omnes_queue) ==
		       192 + OMNES_QUEUE_ENTRIES * (12 + OMNES_QUEUE_DATA_BYTES),
	       "layout shared with Rust");

#endif
