/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Whose a packet is: which slot it concerns, and which member has sent it.
 *
 * Order, cheapest first: magic number and addresses in the packet, the port's
 * slot, the sender's key, the tag. Nothing is written before the tag is right.
 */
#ifndef OMNES_NIC_PACKET_H
#define OMNES_NIC_PACKET_H

#include "nic_maps.h"

/* What tells a packet's class: the frame and the header up to its marks. */
struct nic_start {
	u16 in_front;
	u8 frame[OMNES_FRAME_BYTES];
	u8 head[OMNES_OFFSET_SOURCE];
};
#define START_BYTES (OMNES_FRAME_BYTES + OMNES_OFFSET_SOURCE)

/* nic_fold gives a sum in one's complement, in 16 bits. */
static __always_inline u16 nic_fold(u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (u16)(sum + (sum >> 16));
}

/* nic_is_udp tells whether a frame is IPv4 without options, whole, and UDP. */
static __always_inline int nic_is_udp(const void *frame)
{
	const struct ethhdr *eth = frame;
	const struct iphdr *ip = frame + ETH_HLEN;

	return eth->h_proto == bpf_htons(ETH_P_IP) && ip->protocol == IPPROTO_UDP &&
	       *(const u8 *)ip == 0x45 && !(ip->frag_off & bpf_htons(0x3fff));
}

/* nic_class_of_head gives the class of a packet whose frame is UDP, or -1. */
static __always_inline int nic_class_of_head(const void *start)
{
	const struct nic_head *head = start;

	if (head->magic != bpf_htons(OMNES_MAGIC) || head->version != OMNES_VERSION)
		return -1;
	if (head->kind == OMNES_KIND_STEP || head->kind == OMNES_KIND_STEP_NACK)
		return OMNES_CLASS_STEPS;
	if ((head->kind == OMNES_KIND_CAST || head->kind == OMNES_KIND_CAST_CODED ||
	     head->kind == OMNES_KIND_HELLO) &&
	    head->flags & OMNES_FLAG_GROUP)
		return OMNES_CLASS_SPREAD;
	return OMNES_CLASS_OTHERS;
}

/* nic_class_scattered is nic_class for packets whose first bytes do not lie
 * together: a train leaves with its data in pages behind the UDP header. */
static __noinline int nic_class_scattered(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data;
	void *end = (void *)(long)skb->data_end;
	struct nic_start start = {};

	if (skb->len < STEP_BYTES || (data + OMNES_FRAME_BYTES <= end && !nic_is_udp(data)))
		return -1;
	if (bpf_skb_load_bytes(skb, 0, start.frame, START_BYTES) || !nic_is_udp(start.frame))
		return -1;
	return nic_class_of_head(start.head);
}

/* nic_class tells from the first bytes whether a packet may concern a slot:
 * its class, or -1. Two comparisons for most packets that are not ours. */
static __always_inline int nic_class(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data;
	void *end = (void *)(long)skb->data_end;

	if (data + STEP_BYTES > end)
		return nic_class_scattered(skb);
	if (*(u16 *)(data + OMNES_FRAME_BYTES) != bpf_htons(OMNES_MAGIC) || !nic_is_udp(data))
		return -1;
	return nic_class_of_head(data + OMNES_FRAME_BYTES);
}

/* Which of a packet's ports is this host's. */
enum nic_way {
	NIC_INWARD,
	NIC_OUTWARD,
};

/* nic_is_group tells whether an address is a group's. */
static __always_inline int nic_is_group(u32 address)
{
	return (address & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000);
}

/* nic_find fills `packet` for the slot at this host's port; 0 if there is one.
 * A frame of a virtual LAN belongs to that LAN's own interface, what is for
 * another address to whoever has that. */
static __always_inline int nic_find(struct __sk_buff *skb, int class_of_packet, enum nic_way way,
				    struct nic_packet *packet)
{
	struct omnes_port_key key = {};
	u32 zero = 0;
	u32 *number;
	void *pages;

	if (skb->vlan_present || bpf_skb_load_bytes(skb, READ_OFFSET, packet, READ_BYTES))
		return -1;
	key.job = packet->head.job;
	key.communicator = packet->head.communicator;
	key.channel = packet->head.channel;
	key.class_of_packet = class_of_packet;
	key.port = way == NIC_INWARD ? packet->udp.dest : packet->udp.source;
	number = bpf_map_lookup_elem(&nic_ports, &key);
	if (!number)
		return -1;
	packet->slot_number = *number;
	packet->has_ended = 0;
	packet->slot = bpf_map_lookup_elem(&nic_slots, &packet->slot_number);
	pages = bpf_map_lookup_elem(&nic_pages, &packet->slot_number);
	if (!packet->slot || !pages)
		return -1;
	if (way == NIC_INWARD && packet->address_to != packet->slot->address &&
	    !nic_is_group(packet->address_to))
		return -1;
	packet->page = bpf_map_lookup_elem(pages, &zero);
	return packet->page ? 0 : -1;
}

/* nic_is_own tells whether a packet on its way out comes from the slot's very
 * socket: not from another address with the same port, not passed through. */
static __always_inline int nic_is_own(struct __sk_buff *skb, const struct nic_packet *packet)
{
	return skb->sk && packet->address_from == packet->slot->address &&
	       packet->udp.source == packet->slot->port;
}

/* nic_member gives the member that a packet says it is from, if there is one. */
static __always_inline struct omnes_member *nic_member(const struct nic_packet *packet)
{
	struct omnes_member_key key = { packet->slot_number, bpf_ntohs(packet->head.source) };

	return bpf_map_lookup_elem(&nic_members, &key);
}

/* What a tag covers; with the envelope only where one follows the tag. */
struct nic_tagged {
	u64 header[OMNES_HEADER_BYTES / 8];
	u32 to;
	u8 envelope[OMNES_ENVELOPE_BYTES];
	u32 behind;
};
#define TAGGED_BYTES offsetof(struct nic_tagged, envelope)
#define TAGGED_FIRST_BYTES offsetof(struct nic_tagged, behind)

/* nic_tag gives the tag, in host order, of a packet without control body;
 * `to` is the receiver's rank. */
static __always_inline u64 nic_tag(const struct omnes_key *key, const struct nic_head *head, u32 to)
{
	struct nic_tagged tagged = {};

	__builtin_memcpy(tagged.header, head, OMNES_HEADER_BYTES);
	tagged.to = bpf_htonl(to);
	return omnes_siphash(key, tagged.header, TAGGED_BYTES);
}

/* nic_is_tagged tells whether a packet without control body is from `member`
 * and for this slot. */
static __always_inline int nic_is_tagged(const struct nic_packet *packet,
					 const struct omnes_member *member)
{
	u32 to = packet->head.flags & OMNES_FLAG_GROUP ? OMNES_RANK_ALL : packet->slot->rank;

	return nic_tag(&member->key, &packet->head, to) == omnes_be64(packet->head.tag);
}

/* nic_now gives the time by which addresses grow old, in units of 2^30 ns. */
static __always_inline u32 nic_now(void)
{
	return (u32)(bpf_ktime_get_coarse_ns() >> 30);
}

static __always_inline struct omnes_peer *nic_peer(const struct nic_packet *packet, u32 index)
{
	void *peers = bpf_map_lookup_elem(&nic_peers, &packet->slot_number);

	return peers ? bpf_map_lookup_elem(peers, &index) : 0;
}

#endif
