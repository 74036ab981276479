/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Small packets, put straight into a queue in the memory of the process that
 * they are for, which finds them by looking, without asking the kernel
 * [PM-R10].
 *
 *     wire --> nic_queue_arrived --+--> the queue (small, in its turn)
 *                                  +--> the process's socket (all others)
 *
 * The firmware does not look into the packet. The process decides whose it is
 * and what becomes of it, as with packets from its socket.
 *
 * Order. What goes to the socket is counted in `passed`. Until the process says
 * that it has emptied its sockets since then (`drained`), all that follows goes
 * there too, so that a small packet does not overtake the large one before it.
 * A process that looks at `passed` need not ask the kernel for nothing, either.
 *
 * Sleep. A process that sleeps is woken by its socket, so then all goes there. A
 * packet that was being put into the queue while the process fell asleep goes
 * both ways: the exchange that shows the entry comes before the look at
 * `is_sleeping`, and the process looks at the queue after it has set that.
 * A queue begins asleep, as nobody looks at it yet.
 *
 * Checksums. Of a packet that no device has vouched for, the sum is made here.
 * One that comes from this very machine has the pseudo header's sum in its
 * place; the kernel takes that for right, too.
 *
 * Several processors may be here for one queue; each takes an entry of its own.
 */
#ifndef OMNES_NIC_QUEUE_H
#define OMNES_NIC_QUEUE_H

#include "nic_packet.h"

struct nic_queue_inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct omnes_queue));
};

/* The queue of each socket; a process has many sockets and one queue. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, OMNES_QUEUE_PORTS_MAX);
	__type(key, struct omnes_queue_key);
	__array(values, struct nic_queue_inner);
} nic_queues SEC(".maps");

/* What is read of a packet to find its queue. */
struct nic_address {
	struct nic_tuple tuple;
	u16 magic;
	u8 version;
	u8 kind;
	u32 job;
};
#define ADDRESS_BYTES (sizeof(struct nic_address) - offsetof(struct nic_address, magic))
_Static_assert(ADDRESS_BYTES == OMNES_OFFSET_COMMUNICATOR, "layout of the wire");

/* nic_pseudo_sum is that of a packet's pseudo header. That of IPv4 has the same
 * words, and what maps its addresses adds nothing. */
static __always_inline u32 nic_pseudo_sum(const struct nic_tuple *tuple)
{
	return bpf_csum_diff(0, 0, (__be32 *)tuple->from, sizeof(tuple->from) + sizeof(tuple->to),
			     (u32)tuple->udp.len + bpf_htons(IPPROTO_UDP));
}

/* nic_is_intact tells whether a packet is as it was sent; its data, with zeros
 * up to a multiple of four, are in the entry. */
static __always_inline int nic_is_intact(struct __sk_buff *skb, const struct nic_tuple *tuple,
					 struct omnes_queue_entry *entry, u32 bytes)
{
	u32 sum, at, rest;

	if (bpf_csum_level(skb, BPF_CSUM_LEVEL_QUERY) >= 0)
		return 1;
	sum = nic_pseudo_sum(tuple);
	if (nic_fold(sum) == tuple->udp.check)
		return 1;
	sum = bpf_csum_diff(0, 0, (__be32 *)&tuple->udp, sizeof(tuple->udp), sum);
	/* The helper takes no more at once. */
OMNES_UNROLL
	for (at = 0; at < OMNES_QUEUE_PACKET_BYTES_MAX; at += OMNES_QUEUE_SUM_BYTES) {
		rest = bytes > at ? (bytes - at + 3) & ~3u : 0;
		if (rest > OMNES_QUEUE_SUM_BYTES)
			rest = OMNES_QUEUE_SUM_BYTES;
		if (rest)
			sum = bpf_csum_diff(0, 0, (u32 *)(entry->data + at), rest, sum);
	}
	return nic_fold(sum) == 0xffff;
}

/* nic_queue_put copies a packet's data into the next entry; 0 if it is there.
 * Of a packet that is not intact the entry stays empty. */
static __always_inline int nic_queue_put(struct __sk_buff *skb, struct omnes_queue *queue,
					 const struct nic_tuple *tuple, u32 frame_bytes, u32 bytes)
{
	u32 head = *(volatile u32 *)&queue->head;
	struct omnes_queue_entry *entry;
	int failed;

	if (head - *(volatile u32 *)&queue->tail >= OMNES_QUEUE_ENTRIES ||
	    __sync_val_compare_and_swap(&queue->head, head, head + 1) != head)
		return -1;
	entry = &queue->entries[head & (OMNES_QUEUE_ENTRIES - 1)];
	/* Zeros behind the data, for the sum. */
	*(u32 *)(entry->data + ((bytes & ~3u) & (OMNES_QUEUE_DATA_BYTES - 1))) = 0;
	failed = bpf_skb_load_bytes(skb, frame_bytes, entry->data, bytes) ||
		 !nic_is_intact(skb, tuple, entry, bytes);
	entry->bytes = failed ? 0 : bytes;
	__sync_lock_test_and_set(&queue->seqs[head & (OMNES_QUEUE_ENTRIES - 1)], head + 1);
	return failed;
}

/* A packet of ours that no slot has taken has come from the wire. Not static, so that
 * the verifier looks at it once and not behind all that may have looked at the packet. */
OMNES_VERIFIED_ONCE int nic_queue_arrived(struct __sk_buff *skb, int is_v6)
{
	u32 frame_bytes = is_v6 ? OMNES_FRAME_BYTES_V6 : OMNES_FRAME_BYTES_V4;
	struct nic_address address;
	const struct udphdr *udp = &address.tuple.udp;
	struct omnes_queue_key key = {};
	struct omnes_queue *queue;
	u32 zero = 0;
	u32 bytes;
	void *map;

	if (skb->vlan_present || nic_read(skb, is_v6, &address.tuple, ADDRESS_BYTES))
		return NIC_NEXT;
	key.job = address.job;
	__builtin_memcpy(key.address, address.tuple.to, sizeof(key.address));
	key.port = udp->dest;
	map = bpf_map_lookup_elem(&nic_queues, &key);
	queue = map ? bpf_map_lookup_elem(map, &zero) : 0;
	if (!queue)
		return NIC_NEXT;
	bytes = skb->len - frame_bytes;
	if (bytes >= HEAD_BYTES && bytes <= OMNES_QUEUE_PACKET_BYTES_MAX && !skb->gso_size &&
	    bpf_ntohs(udp->len) == bytes + sizeof(*udp) && udp->check &&
	    !*(volatile u32 *)&queue->is_sleeping &&
	    *(volatile u32 *)&queue->passed == *(volatile u32 *)&queue->drained &&
	    !nic_queue_put(skb, queue, &address.tuple, frame_bytes, bytes) &&
	    !*(volatile u32 *)&queue->is_sleeping)
		return NIC_DROP;
	__sync_fetch_and_add(&queue->passed, 1);
	return NIC_NEXT;
}

#endif
