/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * What the parts of the kernel NIC share: maps, marks and the layout of a
 * packet.
 */
#ifndef OMNES_NIC_MAPS_H
#define OMNES_NIC_MAPS_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <stddef.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "slot.h"
#include "tag.h"

/* The offsetof of bpf_helpers.h is not a constant expression. */
#undef offsetof
#define offsetof(type, member) __builtin_offsetof(type, member)

/* Replaces `static` for a function that the verifier checks once per program instead of
 * at each call. The verifier then assumes nothing about the arguments: numbers may have
 * any value, pointers may be null, and pointers stored in memory that an argument points
 * to are lost. A call costs up to 20 ns, so code that every packet runs is inline. */
#define OMNES_VERIFIED_ONCE __attribute__((noinline))

/* Verdicts: continue with the next program or the stack, or drop. */
#define NIC_NEXT TC_ACT_UNSPEC
#define NIC_DROP TC_ACT_SHOT

#define HEAD_BYTES (OMNES_HEADER_BYTES + OMNES_TAG_BYTES)
#define STEP_BYTES_V4 (OMNES_FRAME_BYTES_V4 + HEAD_BYTES)
#define STEP_BYTES_V6 (OMNES_FRAME_BYTES_V6 + HEAD_BYTES)
/* A frame ends with its UDP checksum. */
#define UDP_CHECK_BYTES 2

/* skb->mark of packets that this firmware has made, by which the egress hook recognises
 * them. Other hosts cannot set it, since crossing a link clears it, nor can
 * unprivileged users. The low bits name the peer. */
#define MARK_MASK 0xffffe000u
#define MARK_SENT 0x4f6d2000u
#define MARK_RESOLVE 0x4f6d4000u
#define MARK_LEARN 0x4f6d6000u
#define MARK_PEER 0x00001fffu

/* skb->tc_index of packets that a slot has processed and passed on to the host: a
 * firmware on an interface above this one (a macvlan) sees them again. Unlike the mark,
 * it is not used by routing or filter rules. */
#define INDEX_SEEN 0x4f6d

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4 * OMNES_SLOTS_MAX);
	__type(key, struct omnes_port_key);
	__type(value, u32);
} nic_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OMNES_SLOTS_MAX);
	__type(key, u32);
	__type(value, struct omnes_slot);
} nic_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16 * OMNES_KERNEL_GROUP_MAX);
	__type(key, struct omnes_member_key);
	__type(value, struct omnes_member);
} nic_members SEC(".maps");

/* Not mapped into any process, because a map with a lock cannot be. The lock also
 * protects what the page shows and the counters of arriving steps. */
struct nic_state {
	struct bpf_spin_lock lock;
	u32 reserved;
	struct omnes_barrier barrier;
	u64 arrived[2 * OMNES_KERNEL_ARRIVED_WORDS];
	u64 carried[2 * OMNES_COMBINING_MEMBERS_MAX * OMNES_CARRIED_MAX];
};
_Static_assert(sizeof(struct nic_state) == OMNES_STATE_BYTES, "layout shared with Rust");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OMNES_SLOTS_MAX);
	__type(key, u32);
	__type(value, struct nic_state);
} nic_states SEC(".maps");

struct nic_peers_inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OMNES_PEERS_MAX);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct omnes_peer));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, OMNES_SLOTS_MAX);
	__type(key, u32);
	__array(values, struct nic_peers_inner);
} nic_peers SEC(".maps");

struct nic_page_inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct omnes_page));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, OMNES_SLOTS_MAX);
	__type(key, u32);
	__array(values, struct nic_page_inner);
} nic_pages SEC(".maps");

/* The headers in front of Omnes's own. With two bytes before them, every field is
 * aligned to its size. */
struct nic_ether {
	u16 in_front;
	u8 mac_to[ETH_ALEN];
	u8 mac_from[ETH_ALEN];
	u16 protocol;
};
struct nic_frame {
	union {
		struct {
			u32 unused[(OMNES_FRAME_BYTES_V6 - OMNES_FRAME_BYTES_V4) / 4];
			struct nic_ether ether;
			struct iphdr ip;
		} v4;
		struct {
			struct nic_ether ether; /* for a peer, is_resolved is in front */
			struct ipv6hdr ip;
		} v6;
		u64 words[7]; /* unit of copying */
	};
	struct udphdr udp;
};
_Static_assert(sizeof(struct nic_frame) == 2 + OMNES_FRAME_BYTES_V6, "layout of the wire");
_Static_assert(sizeof(struct nic_frame) - offsetof(struct nic_frame, v4.ether.mac_to) ==
		       OMNES_FRAME_BYTES_V4,
	       "layout of the wire");
_Static_assert(offsetof(struct nic_frame, v6.ether.mac_to) == offsetof(struct omnes_peer, frame),
	       "a peer begins with a frame");

/* A packet's header and tag, as on the wire. While the tag is computed, its field holds
 * the receiver's rank, which the tag covers. */
struct nic_head {
	union {
		struct {
			u16 magic;
			u8 version;
			u8 kind;
			u32 job;
			u32 communicator;
			u8 channel;
			u8 flags;
			u16 source;
			u32 seq;
			union {
				struct {
					u32 expects;
					u16 epoch;
					u16 credits;
				};
				u32 word[2]; /* of a step: its first word, high half first */
			};
			u32 argument;
			u64 tag;
		};
		u64 words[HEAD_BYTES / 8]; /* what the tag is computed from */
	};
};
_Static_assert(sizeof(struct nic_head) == HEAD_BYTES, "layout of the wire");
_Static_assert(offsetof(struct nic_head, magic) == OMNES_OFFSET_MAGIC, "layout of the wire");
_Static_assert(offsetof(struct nic_head, version) == OMNES_OFFSET_VERSION, "layout of the wire");
_Static_assert(offsetof(struct nic_head, kind) == OMNES_OFFSET_KIND, "layout of the wire");
_Static_assert(offsetof(struct nic_head, job) == OMNES_OFFSET_JOB, "layout of the wire");
_Static_assert(offsetof(struct nic_head, communicator) == OMNES_OFFSET_COMMUNICATOR,
	       "layout of the wire");
_Static_assert(offsetof(struct nic_head, channel) == OMNES_OFFSET_CHANNEL, "layout of the wire");
_Static_assert(offsetof(struct nic_head, flags) == OMNES_OFFSET_FLAGS, "layout of the wire");
_Static_assert(offsetof(struct nic_head, source) == OMNES_OFFSET_SOURCE, "layout of the wire");
_Static_assert(offsetof(struct nic_head, seq) == OMNES_OFFSET_SEQ, "layout of the wire");
_Static_assert(offsetof(struct nic_head, word) == OMNES_OFFSET_EXPECTS, "layout of the wire");
_Static_assert(offsetof(struct nic_head, argument) == OMNES_OFFSET_ARGUMENT, "layout of the wire");
_Static_assert(offsetof(struct nic_head, tag) == OMNES_OFFSET_TAG, "layout of the wire");

/* Addresses and ports of a packet, and the rest of its UDP header; see OMNES_ADDRESS_WORDS. */
struct nic_tuple {
	u32 from[OMNES_ADDRESS_WORDS];
	u32 to[OMNES_ADDRESS_WORDS];
	struct udphdr udp;
};
/* Their position on the wire, where IPv4 addresses have one word. */
#define TUPLE_OFFSET_V4 (ETH_HLEN + offsetof(struct iphdr, saddr))
#define TUPLE_OFFSET_V6 (ETH_HLEN + offsetof(struct ipv6hdr, saddr))
#define TUPLE_GAP_V4 offsetof(struct nic_tuple, to[OMNES_ADDRESS_WORDS - 2])
_Static_assert(TUPLE_OFFSET_V4 + sizeof(struct nic_tuple) - TUPLE_GAP_V4 == OMNES_FRAME_BYTES_V4,
	       "layout of the wire");
_Static_assert(TUPLE_OFFSET_V6 + sizeof(struct nic_tuple) == OMNES_FRAME_BYTES_V6,
	       "layout of the wire");

/* A packet that concerns a slot. What is read from the packet in one piece stands
 * first. */
struct nic_packet {
	struct nic_tuple tuple;
	struct nic_head head;
	u32 slot_number;
	u32 more; /* words behind the header */
	struct omnes_slot *slot;
	struct omnes_page *page;
};
_Static_assert(offsetof(struct nic_packet, slot_number) == sizeof(struct nic_tuple) + HEAD_BYTES,
	       "layout of the wire");

/* A step to send, with the words behind its header as on the wire, and the headers of a
 * packet that goes on to the host: one per processor, because the stack has no room for
 * it. */
struct nic_behind {
	u64 word[OMNES_CARRIED_MAX - 1];
};
struct nic_static {
	struct nic_frame frame;
	struct nic_head head;
	struct nic_behind behind;
};
_Static_assert(offsetof(struct nic_static, head) == sizeof(struct nic_frame),
	       "no gaps before the header");

/* What the tag of a step with words behind its header covers: the header, the
 * receiver's rank, those words, and zeros. */
struct nic_tagged_step {
	union {
		u32 halves[2 * OMNES_TAGGED_WORDS];
		u64 words[OMNES_TAGGED_WORDS];
	};
};
_Static_assert(OMNES_CARRIED_MAX == OMNES_FLAG_WORDS_MASK + 1, "the flags count them");

struct nic_scratch {
	struct nic_static step;
	struct nic_tagged_step tagged;
	struct nic_behind behind; /* of the packet, as they arrived, and zeros */
	struct omnes_contribution came; /* what the packet carries */
	struct omnes_words words;	/* what is sent, or the result */
	u8 frame[OMNES_FRAME_BYTES_V6];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct nic_scratch);
} nic_scratches SEC(".maps");

#endif
