/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Small packets, put directly into a queue in the memory of their destination
 * process, which finds them by polling, without a system call [PM-R10].
 *
 *     wire --> nic_queue_arrived --+--> the queue (small, in order)
 *                                  +--> the process's socket (all others)
 *
 * The firmware does not inspect the packet's content. The process decides which
 * rank it is for and what becomes of it, as with packets from its socket.
 *
 * Order. Packets to the socket are counted in `passed`. Until the process
 * reports that it has drained its sockets since then (`drained`), all later
 * packets go there too, so that a small packet does not overtake the large one
 * before it. A process that polls `passed` also avoids system calls that would
 * find nothing.
 *
 * Sleep. A sleeping process is woken by its socket, so all packets go there. A
 * packet that is put into the queue while the process falls asleep goes both
 * ways: the exchange that publishes the entry precedes the read of
 * `is_sleeping`, and the process polls the queue after it has set that. A queue
 * begins asleep, because no process polls it yet.
 *
 * Checksums. The checksum of a packet that no device has verified is verified
 * here. A packet from this machine holds the pseudo header's sum instead; the
 * kernel accepts that, too.
 *
 * Several processors may serve one queue concurrently; each takes an entry of
 * its own.
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

/* nic_pseudo_sum returns the sum of a packet's pseudo header. Over IPv4 it covers the
 * same words: the prefix of the mapped addresses adds nothing. */
static __always_inline u32 nic_pseudo_sum(const struct nic_tuple *tuple)
{
	return bpf_csum_diff(0, 0, (__be32 *)tuple->from, sizeof(tuple->from) + sizeof(tuple->to),
			     (u32)tuple->udp.len + bpf_htons(IPPROTO_UDP));
}

/* nic_is_intact returns whether a packet is as it was sent; the entry holds its data,
 * with zeros up to a multiple of four. */
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
	/* The limit of one call of the helper. */
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

/* nic_queue_put copies a packet's data into the next entry; returns 0 on success. The
 * entry of a packet that is not intact stays empty. */
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
	/* Zeros after the data, for the sum. */
	*(u32 *)(entry->data + ((bytes & ~3u) & (OMNES_QUEUE_DATA_BYTES - 1))) = 0;
	failed = bpf_skb_load_bytes(skb, frame_bytes, entry->data, bytes) ||
		 !nic_is_intact(skb, tuple, entry, bytes);
	entry->bytes = failed ? 0 : bytes;
	__sync_lock_test_and_set(&queue->seqs[head & (OMNES_QUEUE_ENTRIES - 1)], head + 1);
	return failed;
}

/* An Omnes packet that no slot has taken has arrived from the wire. Not static, so that
 * the verifier checks it once and not after each path that a packet may have taken
 * before. */
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
