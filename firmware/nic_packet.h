/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Which slot a packet concerns, and which member has sent it.
 *
 * Checks in order of cost, cheapest first: magic number and addresses in the
 * packet, the port's slot, the sender's key, the tag. Nothing is written before
 * the tag has been verified.
 */
#ifndef OMNES_NIC_PACKET_H
#define OMNES_NIC_PACKET_H

#include "nic_maps.h"

/* The bytes that determine a packet's class: the frame, and the header up to its flags.
 * Every Omnes packet has at least as many bytes, over IPv4 too. */
struct nic_start {
	u16 in_front;
	u8 bytes[OMNES_FRAME_BYTES_V6 + OMNES_OFFSET_SOURCE];
};
#define START_BYTES (OMNES_FRAME_BYTES_V6 + OMNES_OFFSET_SOURCE)
_Static_assert(START_BYTES <= STEP_BYTES_V4, "it is there");

/* nic_fold folds a one's complement sum into 16 bits. */
static __always_inline u16 nic_fold(u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (u16)(sum + (sum >> 16));
}

/* nic_is_v6 returns whether a frame's type is IPv6. */
static __always_inline int nic_is_v6(const void *frame)
{
	return ((const struct ethhdr *)frame)->h_proto == bpf_htons(ETH_P_IPV6);
}

/* nic_is_udp_v4 returns whether a frame is IPv4 without options, unfragmented, and
 * UDP. */
static __always_inline int nic_is_udp_v4(const void *frame)
{
	const struct ethhdr *eth = frame;
	const struct iphdr *ip = frame + ETH_HLEN;

	return eth->h_proto == bpf_htons(ETH_P_IP) && ip->protocol == IPPROTO_UDP &&
	       *(const u8 *)ip == 0x45 && !(ip->frag_off & bpf_htons(0x3fff));
}

/* nic_is_udp_v6 returns whether an IPv6 frame is UDP without an extension header before
 * it: fragments and options have one. */
static __always_inline int nic_is_udp_v6(const void *frame)
{
	const struct ipv6hdr *ip = frame + ETH_HLEN;

	return ip->nexthdr == IPPROTO_UDP && *(const u8 *)ip >> 4 == 6;
}

/* nic_class_of_head returns the class of a packet whose frame is UDP, or -1. */
static __always_inline int nic_class_of_head(const void *start)
{
	const struct nic_head *head = start;

	if (head->version != OMNES_VERSION)
		return -1;
	if (head->kind == OMNES_KIND_STEP || head->kind == OMNES_KIND_STEP_NACK)
		return OMNES_CLASS_STEPS;
	if ((head->kind == OMNES_KIND_CAST || head->kind == OMNES_KIND_CAST_CODED ||
	     head->kind == OMNES_KIND_HELLO) &&
	    head->flags & OMNES_FLAG_GROUP)
		return OMNES_CLASS_MULTISEND;
	return OMNES_CLASS_OTHERS;
}

/* nic_class_of returns the class of a packet by its first START_BYTES bytes, with
 * OMNES_CLASS_V6 if it is IPv6, or -1. */
static __always_inline int nic_class_of(const void *start)
{
	const void *head = start + OMNES_FRAME_BYTES_V4;
	int class_of_head;

	if (!nic_is_v6(start)) {
		if (*(const u16 *)head != bpf_htons(OMNES_MAGIC) || !nic_is_udp_v4(start))
			return -1;
		return nic_class_of_head(head);
	}
	head = start + OMNES_FRAME_BYTES_V6;
	if (*(const u16 *)head != bpf_htons(OMNES_MAGIC) || !nic_is_udp_v6(start))
		return -1;
	class_of_head = nic_class_of_head(head);
	return class_of_head < 0 ? -1 : class_of_head | OMNES_CLASS_V6;
}

/* nic_class_scattered is nic_class for packets whose first bytes are not contiguous: a
 * train leaves with its data in pages behind the UDP header. */
OMNES_VERIFIED_ONCE int nic_class_scattered(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data;
	void *end = (void *)(long)skb->data_end;
	struct nic_start start = {};

	if (skb->len < STEP_BYTES_V4)
		return -1;
	if (data + OMNES_FRAME_BYTES_V4 <= end &&
	    !(nic_is_v6(data) ? nic_is_udp_v6(data) : nic_is_udp_v4(data)))
		return -1;
	if (bpf_skb_load_bytes(skb, 0, start.bytes, START_BYTES))
		return -1;
	return nic_class_of(start.bytes);
}

/* nic_class decides by the first bytes whether a packet may concern a slot: returns its
 * class, with OMNES_CLASS_V6 if it is IPv6, or -1. Three comparisons for most packets
 * that are not Omnes's. */
static __always_inline int nic_class(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data;
	void *end = (void *)(long)skb->data_end;

	if (data + STEP_BYTES_V4 > end)
		return nic_class_scattered(skb);
	return nic_class_of(data);
}

/* Which of a packet's ports belongs to this host. */
enum nic_direction {
	NIC_INWARD,
	NIC_OUTWARD,
};

/* nic_is_same returns whether two addresses are equal. */
static __always_inline int nic_is_same(const u32 *one, const u32 *other)
{
	return !((one[0] ^ other[0]) | (one[1] ^ other[1]) | (one[2] ^ other[2]) |
		 (one[3] ^ other[3]));
}

/* nic_is_group returns whether an address is a multicast group's. */
static __always_inline int nic_is_group(const u32 *address)
{
	if (address[0] | address[1] | (address[2] ^ bpf_htonl(0xffff)))
		return (address[0] & bpf_htonl(0xff000000)) == bpf_htonl(0xff000000);
	return (address[3] & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000);
}

/* nic_read reads a packet's addresses and UDP header into `tuple`, and the `bytes`
 * bytes that follow behind it; `bytes` is a constant, and there must be room. Returns 0
 * on success. */
static __always_inline int nic_read(struct __sk_buff *skb, int is_v6, struct nic_tuple *tuple,
				    u32 bytes)
{
	if (is_v6)
		return bpf_skb_load_bytes(skb, TUPLE_OFFSET_V6, tuple, sizeof(*tuple) + bytes);
	if (bpf_skb_load_bytes(skb, TUPLE_OFFSET_V4, (void *)tuple + TUPLE_GAP_V4,
			       sizeof(*tuple) - TUPLE_GAP_V4 + bytes))
		return -1;
	tuple->from[3] = tuple->to[2];
	tuple->from[2] = tuple->to[2] = bpf_htonl(0xffff);
	tuple->from[1] = tuple->to[1] = 0;
	tuple->from[0] = tuple->to[0] = 0;
	return 0;
}

/* nic_was_seen returns whether a slot has already processed this packet at a lower
 * interface. */
static __always_inline int nic_was_seen(const struct __sk_buff *skb)
{
	return skb->tc_index == INDEX_SEEN;
}

/* nic_page returns the page of a slot, or null. */
static __always_inline struct omnes_page *nic_page(u32 slot_number)
{
	void *pages = bpf_map_lookup_elem(&nic_pages, &slot_number);
	u32 zero = 0;

	return pages ? bpf_map_lookup_elem(pages, &zero) : 0;
}

/* nic_find fills `packet` for the slot at this host's port; returns 0 if such a slot
 * exists. A frame of a virtual LAN belongs to that LAN's own interface, and a packet
 * for another address to the owner of that address. */
static __always_inline int nic_find(struct __sk_buff *skb, int class_of_packet,
				    enum nic_direction direction, struct nic_packet *packet)
{
	struct omnes_port_key key = {};
	u32 *number;

	if (skb->vlan_present ||
	    nic_read(skb, class_of_packet & OMNES_CLASS_V6, &packet->tuple, HEAD_BYTES))
		return -1;
	key.job = packet->head.job;
	key.communicator = packet->head.communicator;
	/* Packets to all share a slot, whichever of the communicator's policies they
	 * follow. */
	if ((class_of_packet & ~OMNES_CLASS_V6) != OMNES_CLASS_MULTISEND)
		key.channel = packet->head.channel;
	key.class_of_packet = class_of_packet;
	key.port = direction == NIC_INWARD ? packet->tuple.udp.dest : packet->tuple.udp.source;
	number = bpf_map_lookup_elem(&nic_ports, &key);
	if (!number)
		return -1;
	packet->slot_number = *number;
	packet->slot = bpf_map_lookup_elem(&nic_slots, &packet->slot_number);
	packet->page = nic_page(packet->slot_number);
	if (!packet->slot || !packet->page)
		return -1;
	if (direction == NIC_INWARD && !nic_is_same(packet->tuple.to, packet->slot->address) &&
	    !nic_is_group(packet->tuple.to))
		return -1;
	return 0;
}

/* nic_is_own returns whether a packet on its way out comes from the slot's own sockets:
 * not from another address with the same port, not forwarded, and not from another
 * socket that claims the address. */
static __always_inline int nic_is_own(struct __sk_buff *skb, const struct nic_packet *packet)
{
	const struct omnes_slot *slot = packet->slot;
	u64 cookie;

	if (!skb->sk || !nic_is_same(packet->tuple.from, slot->address) ||
	    packet->tuple.udp.source != slot->port)
		return 0;
	if (!slot->senders[0])
		return 1;
	cookie = bpf_get_socket_cookie(skb);
	return cookie == slot->senders[0] || cookie == slot->senders[1];
}

/* nic_scratch returns this processor's scratch memory. Nothing else uses it until this
 * packet has been processed: the hooks that its clones pass on their way out make no
 * steps. Assumes that one packet's program is not preempted by another's on the same
 * processor, as may happen on a kernel with PREEMPT_RT: a step may then leave with
 * another step's words, and a tag that is valid for them. */
static __always_inline struct nic_scratch *nic_scratch(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&nic_scratches, &zero);
}

/* nic_behind_load reads the words behind a header that ends at `offset`; returns 0 on
 * success. */
OMNES_VERIFIED_ONCE int nic_behind_load(struct __sk_buff *skb, struct nic_behind *behind,
					u32 offset, u32 more)
{
	u32 i;

	if (!behind)
		return -1;
OMNES_UNROLL
	for (i = 0; i < OMNES_CARRIED_MAX - 1; i++) {
		behind->word[i] = 0;
		if (i < more && bpf_skb_load_bytes(skb, offset + 8 * i, &behind->word[i], 8))
			return -1;
	}
	return 0;
}

/* nic_behind_store writes the words behind a header that ends at `offset` into `skb`,
 * which is already long enough; returns 0 on success. */
OMNES_VERIFIED_ONCE int nic_behind_store(struct __sk_buff *skb, const struct nic_behind *behind,
					u32 offset, u32 more)
{
	u32 i;

	if (!behind)
		return -1;
OMNES_UNROLL
	for (i = 0; i < OMNES_CARRIED_MAX - 1; i++) {
		if (i < more && bpf_skb_store_bytes(skb, offset + 8 * i, &behind->word[i], 8, 0))
			return -1;
	}
	return 0;
}

/* nic_read_words reads the words behind a header; returns 0 if the packet's length
 * matches its flags. */
static __always_inline int nic_read_words(struct __sk_buff *skb, struct nic_packet *packet)
{
	u32 bytes = packet->slot->is_v6 ? STEP_BYTES_V6 : STEP_BYTES_V4;
	u32 more = packet->head.flags & OMNES_FLAG_WORDS_MASK;
	struct nic_scratch *scratch;

	packet->more = more;
	if (skb->len != bytes + 8 * more)
		return -1;
	if (!more)
		return 0;
	scratch = nic_scratch();
	if (!scratch || packet->head.kind != OMNES_KIND_STEP)
		return -1;
	return nic_behind_load(skb, &scratch->behind, bytes, more);
}

/* nic_words_in returns what a step that has been read carries, except how it is
 * combined. */
static __always_inline struct omnes_contribution *nic_words_in(const struct nic_packet *packet)
{
	struct nic_scratch *scratch = nic_scratch();
	struct omnes_words *came;
	u32 i;

	if (!scratch)
		return 0;
	came = &scratch->came.words;
	came->more = packet->more;
	if (packet->more) {
OMNES_UNROLL
		for (i = 1; i < OMNES_CARRIED_MAX; i++)
			came->word[i] = omnes_be64(scratch->behind.word[i - 1]);
	} else {
		__builtin_memset(came->word, 0, sizeof(came->word));
	}
	came->word[0] = (u64)bpf_ntohl(packet->head.word[0]) << 32 |
			bpf_ntohl(packet->head.word[1]);
	return &scratch->came;
}

/* nic_member returns the member that a packet names as its sender, or null. */
static __always_inline struct omnes_member *nic_member(const struct nic_packet *packet)
{
	struct omnes_member_key key = { packet->slot_number, bpf_ntohs(packet->head.source) };

	return bpf_map_lookup_elem(&nic_members, &key);
}

/* nic_tag returns the tag, in host order, of a packet without control body; `to` is the
 * receiver's rank. The call leaves `to` in the tag's field. */
static __always_inline u64 nic_tag(const struct omnes_key *key, struct nic_head *head, u32 to)
{
	head->tag = omnes_be64((u64)to << 32);
	return omnes_tag(key, head->words, 0);
}

/* nic_tag_long is nic_tag for a packet whose tag also covers `more` words behind its
 * header; the words of `behind` after those are 0. */
OMNES_VERIFIED_ONCE u64 nic_tag_long(const struct omnes_key *key, const struct nic_head *head,
				     u32 to, const struct nic_behind *behind, u32 more)
{
	struct nic_scratch *scratch = nic_scratch();
	const u32 *halves = (const u32 *)behind;
	const u32 at = OMNES_HEADER_BYTES / 4;
	struct nic_tagged_step *tagged;
	u32 i;

	if (!key || !head || !behind || !scratch)
		return 0;
	tagged = &scratch->tagged;
OMNES_UNROLL
	for (i = 0; i < OMNES_HEADER_BYTES / 8; i++)
		tagged->words[i] = head->words[i];
	tagged->halves[at] = bpf_htonl(to);
OMNES_UNROLL
	for (i = 0; i < 2 * (OMNES_CARRIED_MAX - 1); i++)
		tagged->halves[at + 1 + i] = halves[i];
	/* Makes the compiler read the words again one by one: the stack has no room for
	 * all. */
	barrier();
	return omnes_tag(key, tagged->words, more);
}

/* nic_is_tagged returns whether a step, or the request for one, is from `member` and
 * for this slot. */
static __always_inline int nic_is_tagged(struct nic_packet *packet,
					 const struct omnes_member *member)
{
	u32 to = packet->head.flags & OMNES_FLAG_GROUP ? OMNES_RANK_ALL : packet->slot->rank;
	struct nic_scratch *scratch;
	u64 tag = packet->head.tag;
	u64 right;

	if (packet->more) {
		scratch = nic_scratch();
		return scratch && tag == omnes_be64(nic_tag_long(&member->key, &packet->head, to,
								 &scratch->behind, packet->more));
	}
	right = omnes_be64(nic_tag(&member->key, &packet->head, to));
	packet->head.tag = tag;
	return tag == right;
}

/* nic_now returns the time by which addresses age, in units of 2^30 ns. */
static __always_inline u32 nic_now(void)
{
	return (u32)(bpf_ktime_get_coarse_ns() >> 30);
}

static __always_inline struct omnes_peer *nic_peer(u32 slot_number, u32 index)
{
	void *peers = bpf_map_lookup_elem(&nic_peers, &slot_number);

	return peers ? bpf_map_lookup_elem(peers, &index) : 0;
}

#endif
