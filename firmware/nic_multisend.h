/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Multi-send in the kernel NIC: a packet to all crosses into the kernel once
 * and leaves once per child of this member in the source's tree [MS-R8, R10].
 *
 *     host --> nic_multisend_sent -----> clones, and the packet itself to the last child
 *     wire --> nic_multisend_arrived --> clones to the children; the packet to the host
 *
 * A child is addressed in one of two ways:
 *   - by IP: with the MAC addresses, IP addresses, TTL and UDP ports of the
 *     child's static packet, and updated checksums;
 *   - by MAC (OMNES_SLOT_BY_MAC): the frame keeps the group's IP address and
 *     goes to the child's MAC address. Nothing else changes.
 *
 * MAC addresses expire after one to two seconds, so that a child that has moved
 * is found again: a packet to an expired address goes by IP.
 *
 * Checksums. IPv4: recomputed. UDP, if the packet has one: in a train (GSO) the
 * field holds the uncomplemented sum of the pseudo header, whatever the device
 * offloads, so it is updated here; for a single packet only the kernel knows
 * whether the data are still to be summed, so its helper updates it.
 *
 * Guarantees: a packet is forwarded only if it is addressed to this host, comes
 * from the parent's address, carries a member's tag and does not originate from
 * this node; only children receive clones. The host's packet is not changed.
 * Assumes: all packets of a train have one source; only the first is checked.
 * If the kernel merges (GRO) packets to all of equal length from two sources
 * that arrive through one neighbour, the whole train follows the first source's
 * tree; members that miss the second source's packets have them repaired.
 * Not done: forwarded packets are not remembered. A replayed packet is
 * forwarded again, along the tree, and each host drops it as a duplicate.
 * Trains of whole frames (rx-gro-list), whose checksums are complete, are not
 * supported.
 */
#ifndef OMNES_NIC_MULTISEND_H
#define OMNES_NIC_MULTISEND_H

#include "nic_packet.h"

/* Maximum age of a learnt address before it is resolved again, in the unit of
 * nic_now. */
#define LEARNT_AGE_MAX 1

/* The headers of a packet on its way to several children. */
struct nic_multisend_headers {
	u32 addresses; /* sums over the packet's current headers */
	u32 ports;
	u32 now;
	u16 is_passed_on; /* it arrived from the wire */
	u16 is_to_group;
	/* As received, but if the packet is forwarded its TTL is already one lower;
	 * nic_multisend_restore undoes that. */
	struct nic_frame original;
};

/* The packet. Functions that are verified once get its headers only: they would lose
 * the other pointers. */
struct nic_multisend_run {
	struct __sk_buff *skb;
	struct nic_packet packet;
	u32 source; /* the tree's root, as an index */
	u32 first;  /* position of the first child in the table */
	struct nic_multisend_headers headers;
};

/* nic_sum adds in one's complement arithmetic. */
static __always_inline u32 nic_sum(u32 one, u32 other)
{
	u64 sum = (u64)one + other;

	return (u32)sum + (u32)(sum >> 32);
}

/* nic_addresses returns the sum of a frame's two IP addresses. */
static __always_inline u32 nic_addresses(const struct nic_frame *frame, int is_v6)
{
	if (!is_v6)
		return nic_sum(frame->v4.ip.saddr, frame->v4.ip.daddr);
	return bpf_csum_diff(0, 0, (__be32 *)&frame->v6.ip.saddr, 2 * sizeof(frame->v6.ip.saddr),
			     0);
}

static __always_inline u32 nic_ports_sum(const struct nic_frame *frame)
{
	return (u32)frame->udp.source + frame->udp.dest;
}

/* nic_ip_check returns the checksum of an IP header whose checksum field is 0. */
static __always_inline u16 nic_ip_check(const struct iphdr *ip)
{
	u32 words[sizeof(struct iphdr) / sizeof(u32)];
	u32 sum = 0, at;

	__builtin_memcpy(words, ip, sizeof(words));
OMNES_UNROLL
	for (at = 0; at < sizeof(words) / sizeof(words[0]); at++)
		sum = nic_sum(sum, words[at]);
	return ~nic_fold(sum);
}

/*
 * nic_multisend_update_checksum updates the UDP checksum for `frame`, in which only ports
 * and addresses have changed. The checksum is then in the packet or, for a
 * train, in `frame`. Returns 0 on success.
 */
static __always_inline int nic_multisend_update_checksum(struct __sk_buff *skb,
					      struct nic_multisend_headers *headers,
					      struct nic_frame *frame, int is_v6)
{
	u32 check_offset = (is_v6 ? OMNES_FRAME_BYTES_V6 : OMNES_FRAME_BYTES_V4) - UDP_CHECK_BYTES;
	u32 addresses = nic_addresses(frame, is_v6);
	u32 ports = nic_ports_sum(frame);

	if (skb->gso_size) {
		u32 sum = nic_sum(nic_sum(headers->original.udp.check, addresses),
				  ~nic_addresses(&headers->original, is_v6));

		if (headers->original.udp.check)
			frame->udp.check = nic_fold(sum);
		return 0;
	}
	if (addresses != headers->addresses &&
	    bpf_l4_csum_replace(skb, check_offset, 0, nic_sum(addresses, ~headers->addresses),
				BPF_F_PSEUDO_HDR | BPF_F_MARK_MANGLED_0))
		return -1;
	headers->addresses = addresses;
	if (ports != headers->ports &&
	    bpf_l4_csum_replace(skb, check_offset, 0, nic_sum(ports, ~headers->ports),
				BPF_F_MARK_MANGLED_0))
		return -1;
	headers->ports = ports;
	return 0;
}

/* nic_frame_load reads a packet's headers; nic_frame_store writes them back, except for
 * the last `without` bytes. Both return 0 on success. */
static __always_inline int nic_frame_load(struct __sk_buff *skb, struct nic_frame *frame, int is_v6)
{
	if (is_v6)
		return bpf_skb_load_bytes(skb, 0, frame->v6.ether.mac_to, OMNES_FRAME_BYTES_V6);
	return bpf_skb_load_bytes(skb, 0, frame->v4.ether.mac_to, OMNES_FRAME_BYTES_V4);
}

static __always_inline int nic_frame_store(struct __sk_buff *skb, const struct nic_frame *frame,
					   int is_v6, const u32 without)
{
	if (is_v6)
		return bpf_skb_store_bytes(skb, 0, frame->v6.ether.mac_to,
					   OMNES_FRAME_BYTES_V6 - without, 0);
	return bpf_skb_store_bytes(skb, 0, frame->v4.ether.mac_to, OMNES_FRAME_BYTES_V4 - without,
				   0);
}

/* nic_multisend_store writes headers that nic_multisend_update_checksum has processed into the
 * packet: for a single packet, all but the checksum. Returns 0 on success. */
static __always_inline int nic_multisend_store(struct __sk_buff *skb, const struct nic_frame *frame,
					       int is_v6)
{
	if (skb->gso_size)
		return nic_frame_store(skb, frame, is_v6, 0);
	return nic_frame_store(skb, frame, is_v6, UDP_CHECK_BYTES);
}

/* What a frame takes from a child's static packet: only MAC addresses, or the IP
 * addresses too and, at the source, the TTL. */
enum nic_multisend_way {
	NIC_BY_MAC,
	NIC_PASSED_ON,
	NIC_FROM_SOURCE,
};

static __always_inline void nic_multisend_to_v4(struct nic_frame *frame, const struct nic_frame *to,
						enum nic_multisend_way way)
{
	__builtin_memcpy(frame->v4.ether.mac_to, to->v4.ether.mac_to, ETH_ALEN);
	__builtin_memcpy(frame->v4.ether.mac_from, to->v4.ether.mac_from, ETH_ALEN);
	if (way == NIC_FROM_SOURCE)
		frame->v4.ip.ttl = to->v4.ip.ttl;
	if (way != NIC_BY_MAC) {
		frame->v4.ip.saddr = to->v4.ip.saddr;
		frame->v4.ip.daddr = to->v4.ip.daddr;
	}
	frame->v4.ip.check = 0;
	frame->v4.ip.check = nic_ip_check(&frame->v4.ip);
}

static __always_inline void nic_multisend_to_v6(struct nic_frame *frame, const struct nic_frame *to,
						enum nic_multisend_way way)
{
	__builtin_memcpy(frame->v6.ether.mac_to, to->v6.ether.mac_to, ETH_ALEN);
	__builtin_memcpy(frame->v6.ether.mac_from, to->v6.ether.mac_from, ETH_ALEN);
	if (way == NIC_FROM_SOURCE)
		frame->v6.ip.hop_limit = to->v6.ip.hop_limit;
	if (way != NIC_BY_MAC) {
		frame->v6.ip.saddr = to->v6.ip.saddr;
		frame->v6.ip.daddr = to->v6.ip.daddr;
	}
}

/* nic_multisend_write addresses the packet to the slot's peer at `index`. Returns the
 * mark that the packet needs, or 0 on failure. */
OMNES_VERIFIED_ONCE u32 nic_multisend_write(struct __sk_buff *skb, const struct omnes_slot *slot,
					    struct nic_multisend_headers *headers, u32 slot_number,
					    u32 index)
{
	enum nic_multisend_way way;
	struct nic_frame frame;
	struct omnes_peer *peer;
	const struct nic_frame *to;
	int is_known;

	if (!slot || !headers)
		return 0;
	peer = nic_peer(slot_number, index);
	if (!peer)
		return 0;
	to = (const struct nic_frame *)peer;
	is_known = peer->is_resolved && headers->now - peer->learnt <= LEARNT_AGE_MAX;
	way = headers->is_passed_on ? NIC_PASSED_ON : NIC_FROM_SOURCE;
	if (is_known && slot->flags & OMNES_SLOT_BY_MAC && headers->is_to_group)
		way = NIC_BY_MAC;
	frame = headers->original;
	if (slot->is_v6)
		nic_multisend_to_v6(&frame, to, way);
	else
		nic_multisend_to_v4(&frame, to, way);
	if (way != NIC_BY_MAC) {
		frame.udp.source = to->udp.source;
		frame.udp.dest = to->udp.dest;
	}
	if (nic_multisend_update_checksum(skb, headers, &frame, slot->is_v6) ||
	    nic_multisend_store(skb, &frame, slot->is_v6))
		return 0;
	return is_known ? MARK_SENT : MARK_RESOLVE | (index & MARK_PEER);
}

/* nic_multisend_to addresses a run's packet to the child at `index`; see
 * nic_multisend_write. */
static __always_inline u32 nic_multisend_to(struct nic_multisend_run *run, u32 index)
{
	return nic_multisend_write(run->skb, run->packet.slot, &run->headers,
				   run->packet.slot_number, index);
}

/* Sends to one child of a run. Counts immediately: counters in the run would make every
 * iteration a new state to the verifier. */
static long nic_multisend_one(u32 number, void *context)
{
	struct nic_multisend_run *run = context;
	struct omnes_page *page = run->packet.page;
	u32 child = omnes_multisend_child(&run->packet.slot->multisend, run->source,
					  run->first + number);
	struct __sk_buff *skb = run->skb;
	u32 mark = child == OMNES_NOBODY ? 0 : nic_multisend_to(run, child);

	skb->mark = mark;
	if (!mark || bpf_clone_redirect(skb, run->packet.slot->ifindex, 0))
		__sync_fetch_and_add(&page->clone_failures, 1);
	else
		__sync_fetch_and_add(&page->clones, 1);
	return 0;
}

/* nic_multisend_clone sends clones to `count` children; the caller has set the source
 * and the first child. Returns 0 on success. */
static __noinline int nic_multisend_clone(struct nic_multisend_run *run, u32 count)
{
	struct nic_multisend_headers *headers;
	int is_v6;

	if (!run || !run->packet.slot)
		return -1;
	is_v6 = run->packet.slot->is_v6;
	headers = &run->headers;
	if (nic_frame_load(run->skb, &headers->original, is_v6))
		return -1;
	/* Slots that name each other as children would forward forever. */
	if (headers->is_passed_on &&
	    (is_v6 ? headers->original.v6.ip.hop_limit-- : headers->original.v4.ip.ttl--) <= 1) {
		__sync_fetch_and_add(&run->packet.page->clone_failures, count);
		return -1;
	}
	headers->is_to_group = nic_is_group(run->packet.tuple.to);
	headers->now = nic_now();
	headers->addresses = nic_addresses(&headers->original, is_v6);
	headers->ports = nic_ports_sum(&headers->original);
	bpf_loop(count, nic_multisend_one, run, 0);
	return 0;
}

/* The tag of a message's first packet covers the envelope, as the tag of a step covers
 * the words behind its header. */
#define ENVELOPE_WORDS (OMNES_ENVELOPE_BYTES / 8)
_Static_assert(8 * ENVELOPE_WORDS == OMNES_ENVELOPE_BYTES, "whole words");
_Static_assert(ENVELOPE_WORDS <= OMNES_CARRIED_MAX - 1, "there is room for it");

/* nic_is_tagged_first returns whether `member` sent the first packet of a train to
 * all. */
static __noinline int nic_is_tagged_first(struct __sk_buff *skb, struct nic_packet *packet,
					  const struct omnes_member *member)
{
	struct nic_behind envelope = {};
	u32 offset, more = 0;
	u64 tag;

	if (!packet || !packet->slot || !member)
		return 0;
	if (packet->head.kind == OMNES_KIND_CAST && packet->head.flags & OMNES_FLAG_FIRST) {
		offset = packet->slot->is_v6 ? STEP_BYTES_V6 : STEP_BYTES_V4;
		if (bpf_skb_load_bytes(skb, offset, &envelope, OMNES_ENVELOPE_BYTES))
			return 0;
		more = ENVELOPE_WORDS;
	}
	tag = nic_tag_long(&member->key, &packet->head, OMNES_RANK_ALL, &envelope, more);
	return packet->head.tag == omnes_be64(tag);
}

/* nic_multisend_restore restores the headers that a readdressed packet arrived with. */
static __always_inline void nic_multisend_restore(struct __sk_buff *skb,
						  struct nic_multisend_headers *headers, int is_v6)
{
	struct nic_frame *original = &headers->original;
	u16 check = original->udp.check;

	/* Restore the sums that the kernel keeps first, then every byte. */
	nic_multisend_update_checksum(skb, headers, original, is_v6);
	original->udp.check = check;
	if (is_v6)
		original->v6.ip.hop_limit++;
	else
		original->v4.ip.ttl++;
	nic_frame_store(skb, original, is_v6, 0);
}

/* nic_multisend_is_from_parent returns whether a packet from `source`, an index, has arrived from
 * this member's parent in the source's tree; a packet by MAC address carries the source's own IP
 * address. Each slot thus has a single input, and packets cannot multiply where slots name each
 * other as children. */
static __always_inline int nic_multisend_is_from_parent(const struct nic_packet *packet, u32 source)
{
	u32 parent = omnes_multisend_parent(&packet->slot->multisend, source);
	int is_by_mac = packet->slot->flags & OMNES_SLOT_BY_MAC &&
			nic_is_group(packet->tuple.to);
	const struct nic_frame *peer;

	if (parent == OMNES_NOBODY)
		return 0;
	peer = (const struct nic_frame *)nic_peer(packet->slot_number,
						  is_by_mac ? source : parent);
	if (!peer)
		return 0;
	if (packet->slot->is_v6)
		return nic_is_same(packet->tuple.from, (const u32 *)&peer->v6.ip.daddr);
	return packet->tuple.from[3] == peer->v4.ip.daddr;
}

/* A packet to all has arrived from the wire. The host gets it whatever becomes of the
 * clones, and checks it itself. */
OMNES_VERIFIED_ONCE int nic_multisend_arrived(struct __sk_buff *skb, int class_of_packet)
{
	struct nic_multisend_run run = { .skb = skb };
	struct nic_packet *packet = &run.packet;
	struct omnes_children children;
	struct omnes_member *member;
	u32 mark = skb->mark;

	/* A packet that the network delivers to everybody needs no forwarding. */
	if (skb->pkt_type != PACKET_HOST || nic_was_seen(skb) ||
	    nic_find(skb, class_of_packet, NIC_INWARD, packet) ||
	    !(packet->slot->flags & OMNES_SLOT_FORWARDS))
		return NIC_NEXT;
	member = nic_member(packet);
	if (!member || member->index == packet->slot->multisend.own)
		return NIC_NEXT;
	children = omnes_multisend_children(&packet->slot->multisend, member->index);
	if (!children.count || !nic_multisend_is_from_parent(packet, member->index))
		return NIC_NEXT;
	if (!nic_is_tagged_first(skb, packet, member)) {
		__sync_fetch_and_add(&packet->page->bad_tags, 1);
		return NIC_NEXT;
	}
	__sync_fetch_and_add(&packet->page->arrived_for_all, 1);
	run.headers.is_passed_on = 1;
	run.source = member->index;
	run.first = children.first;
	if (!nic_multisend_clone(&run, children.count)) {
		nic_multisend_restore(skb, &run.headers, packet->slot->is_v6);
	}
	skb->mark = mark;
	skb->tc_index = INDEX_SEEN;
	return NIC_NEXT;
}

/* The host sends to all. What the host itself forwards for another member it sends to
 * each child separately, so such packets pass unchanged. */
OMNES_VERIFIED_ONCE int nic_multisend_sent(struct __sk_buff *skb, int class_of_packet)
{
	struct nic_multisend_run run = { .skb = skb };
	struct nic_packet *packet = &run.packet;
	struct omnes_children children;
	u32 child, last;

	if (nic_find(skb, class_of_packet, NIC_OUTWARD, packet) ||
	    !nic_is_own(skb, packet) ||
	    packet->head.source != bpf_htons((u16)packet->slot->rank))
		return NIC_NEXT;
	run.source = packet->slot->multisend.own;
	children = omnes_multisend_children(&packet->slot->multisend, run.source);
	if (!children.count)
		return NIC_DROP;
	__sync_fetch_and_add(&packet->page->sent_to_all, 1);
	run.first = children.first;
	if (nic_multisend_clone(&run, children.count - 1))
		return NIC_DROP;
	child = omnes_multisend_child(&packet->slot->multisend, run.source,
				      children.first + children.count - 1);
	last = child == OMNES_NOBODY ? 0 : nic_multisend_to(&run, child);
	if (!last) {
		__sync_fetch_and_add(&packet->page->clone_failures, 1);
		return NIC_DROP;
	}
	/* Also for the hook of a lower interface, if there is one. */
	skb->mark = last;
	if (last == MARK_SENT)
		return NIC_NEXT;
	return bpf_redirect(packet->slot->ifindex, 0);
}

#endif
