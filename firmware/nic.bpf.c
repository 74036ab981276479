// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * The kernel's form of the NIC: collective protocol and multi-send at the tc
 * hook of an interface.
 *
 * nic_ingress sees what comes from the wire. A step of a barrier is taken in,
 * and what it enables leaves at once, in the memory of the packet that came
 * [CB-R3, R7]; the host sees nothing of it, unless it sleeps and the barrier
 * is done. A packet to all is cloned to this member's children in the tree, if
 * the slot says so, and goes on to the host. What no slot takes may be put into
 * the memory of the process that it is for.
 *
 *     wire --> nic_ingress: parse, slot, tag, step --+--> host (not ours, or wake)
 *                                                    +--> a queue in its memory
 *                                                    +--> next step, back to the wire
 *     host --> nic_egress: parse, slot, step --------+--> wire, one per destination
 *
 * nic_egress sees what the host sends. The first message of a barrier tells
 * that the host has entered; it leaves if it may by now, and with it all that
 * was enabled before. A packet to all, which comes once, is cloned to each of
 * the sender's children [MS-R8, R10].
 *
 * All other packets go on after a few comparisons.
 *
 * MAC addresses are learnt: a packet for a peer whose address is not known
 * goes to this hook once more, where the kernel's neighbour table is asked,
 * and comes by a last time complete. Repairs always take that way, so a peer
 * that has moved is found again.
 *
 * One file per role: nic_maps.h what is kept, nic_packet.h whose a packet is,
 * nic_barrier.h steps, nic_multisend.h packets to all, nic_queue.h small packets
 * for the process's memory; here the two entries.
 */
#include "nic_barrier.h"
#include "nic_queue.h"
#include "nic_multisend.h"

/* A step, or the request for one, has come from the wire. */
OMNES_VERIFIED_ONCE int nic_step_came(struct __sk_buff *skb, int class_of_packet)
{
	struct nic_packet packet;
	struct omnes_member *member;

	/* Several that the kernel has merged (GRO), which may be of several slots: what
	 * their members miss they ask for. */
	if (skb->gso_size || nic_was_seen(skb) ||
	    nic_find(skb, class_of_packet, NIC_INWARD, &packet))
		return NIC_NEXT;
	member = nic_member(&packet);
	if (!member || nic_read_words(skb, &packet) || !nic_is_tagged(&packet, member)) {
		__sync_fetch_and_add(&packet.page->bad_tags, 1);
		return NIC_DROP;
	}
	if (packet.head.kind == OMNES_KIND_STEP)
		return nic_step_arrived(skb, &packet, member->index);
	return nic_step_missed(skb, &packet, member->index);
}

/* The parts have the stack for themselves. */
SEC("tc")
int nic_ingress(struct __sk_buff *skb)
{
	int class_of_packet = nic_class(skb);
	int verdict;

	switch (class_of_packet) {
	case OMNES_CLASS_STEPS:
	case OMNES_CLASS_STEPS | OMNES_CLASS_V6:
		verdict = nic_step_came(skb, class_of_packet);
		if (verdict != NIC_NEXT)
			return verdict;
		break;
	case OMNES_CLASS_MULTISEND:
	case OMNES_CLASS_MULTISEND | OMNES_CLASS_V6:
		verdict = nic_multisend_arrived(skb, class_of_packet);
		if (verdict != NIC_NEXT)
			return verdict;
		break;
	case OMNES_CLASS_OTHERS:
	case OMNES_CLASS_OTHERS | OMNES_CLASS_V6:
		break;
	default:
		return NIC_NEXT;
	}
	return nic_queue_arrived(skb, class_of_packet & OMNES_CLASS_V6);
}

/* nic_resolve asks the neighbour table for a packet's MAC addresses; it comes
 * back to this hook with them. */
static __always_inline int nic_resolve(struct __sk_buff *skb)
{
	skb->mark = MARK_LEARN | (skb->mark & MARK_PEER);
	return bpf_redirect_neigh(skb->ifindex, 0, 0, 0);
}

/* nic_macs gives where the MAC addresses of a peer stand. */
static __always_inline void *nic_macs(const struct nic_packet *packet, struct omnes_peer *peer)
{
	struct nic_frame *frame = (struct nic_frame *)peer;

	return packet->slot->is_v6 ? frame->v6.ether.mac_to : frame->v4.ether.mac_to;
}

/* nic_learn keeps the MAC addresses that the neighbour table gave. What it does
 * not know is another firmware's, loaded by another process. */
OMNES_VERIFIED_ONCE int nic_learn(struct __sk_buff *skb)
{
	u32 index = skb->mark & MARK_PEER;
	struct nic_packet packet;
	struct omnes_peer *peer;
	int class_of_packet = nic_class(skb);

	if (class_of_packet < 0 || nic_find(skb, class_of_packet, NIC_OUTWARD, &packet))
		return NIC_NEXT;
	skb->mark = MARK_SENT;
	peer = nic_peer(packet.slot_number, index);
	if (peer && !bpf_skb_load_bytes(skb, 0, nic_macs(&packet, peer), 2 * ETH_ALEN)) {
		peer->learnt = nic_now();
		peer->is_resolved = 1;
	}
	return NIC_NEXT;
}

/* nic_made is for packets that a firmware has made. The mark stays on what is
 * complete: another firmware behind this one must know it, too. */
static __always_inline int nic_made(struct __sk_buff *skb)
{
	switch (skb->mark & MARK_MASK) {
	case MARK_SENT:
		return NIC_NEXT;
	case MARK_RESOLVE:
		return nic_resolve(skb);
	default:
		return nic_learn(skb);
	}
}

/* The host sends a step. */
OMNES_VERIFIED_ONCE int nic_step_sent(struct __sk_buff *skb, int class_of_packet)
{
	struct nic_packet packet;

	if (nic_find(skb, class_of_packet, NIC_OUTWARD, &packet) || !nic_is_own(skb, &packet) ||
	    packet.head.kind != OMNES_KIND_STEP || nic_read_words(skb, &packet))
		return NIC_NEXT;
	return nic_step_entered(skb, &packet);
}

SEC("tc")
int nic_egress(struct __sk_buff *skb)
{
	u32 mark = skb->mark & MARK_MASK;
	int class_of_packet;

	if (mark == MARK_SENT || mark == MARK_RESOLVE || mark == MARK_LEARN)
		return nic_made(skb);
	class_of_packet = nic_class(skb);
	switch (class_of_packet) {
	case OMNES_CLASS_STEPS:
	case OMNES_CLASS_STEPS | OMNES_CLASS_V6:
		return nic_step_sent(skb, class_of_packet);
	case OMNES_CLASS_MULTISEND:
	case OMNES_CLASS_MULTISEND | OMNES_CLASS_V6:
		return nic_multisend_sent(skb, class_of_packet);
	default:
		return NIC_NEXT;
	}
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
