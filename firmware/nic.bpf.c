// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * The kernel's form of the NIC: collective protocol and multi-send at the tc
 * hook of an interface.
 *
 * nic_ingress processes what arrives from the wire. A step of a barrier is
 * recorded, and the steps that it enables leave immediately, in the memory of
 * the packet that arrived [CB-R3, R7]; the host sees nothing of it, unless the
 * host sleeps and the barrier is done. A packet to all is cloned to this
 * member's children in the tree, if the slot says so, and goes on to the host.
 * A packet that no slot takes may be put into the memory of its destination
 * process.
 *
 *     wire --> nic_ingress: parse, slot, tag, step --+--> host (not ours, or wake)
 *                                                    +--> a queue in its memory
 *                                                    +--> next step, back to the wire
 *     host --> nic_egress: parse, slot, step --------+--> wire, one per destination
 *
 * nic_egress processes what the host sends. The first message of a barrier says
 * that the host has entered; it leaves if its turn has come, together with all
 * steps enabled before. A packet to all, which the host sends once, is cloned
 * to each of the sender's children [MS-R8, R10].
 *
 * All other packets pass after a few comparisons.
 *
 * MAC addresses are learnt: a packet for a peer whose address is unknown passes
 * this hook a second time, where the kernel's neighbour table is asked, and a
 * third time complete. Repairs always take that path, so a peer that has moved
 * is found again.
 *
 * One file per role: nic_maps.h state, nic_packet.h which slot and member a
 * packet belongs to, nic_barrier.h steps, nic_multisend.h packets to all,
 * nic_queue.h small packets for the process's memory; this file the two entry
 * points.
 */
#include "nic_barrier.h"
#include "nic_queue.h"
#include "nic_multisend.h"

/* A step, or the request for one, has arrived from the wire. */
OMNES_VERIFIED_ONCE int nic_step_ingress(struct __sk_buff *skb, int class_of_packet)
{
	struct nic_packet packet;
	struct omnes_member *member;

	/* Steps that the kernel has merged (GRO) may be for several slots and are not
	 * processed: members ask for the steps that they miss. */
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

/* The parts are separate functions, so that each has the stack to itself. */
SEC("tc")
int nic_ingress(struct __sk_buff *skb)
{
	int class_of_packet = nic_class(skb);
	int verdict;

	switch (class_of_packet) {
	case OMNES_CLASS_STEPS:
	case OMNES_CLASS_STEPS | OMNES_CLASS_V6:
		verdict = nic_step_ingress(skb, class_of_packet);
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

/* nic_resolve has the neighbour table fill in a packet's MAC addresses; the packet then
 * passes this hook again. */
static __always_inline int nic_resolve(struct __sk_buff *skb)
{
	skb->mark = MARK_LEARN | (skb->mark & MARK_PEER);
	return bpf_redirect_neigh(skb->ifindex, 0, 0, 0);
}

/* nic_macs returns the address of a peer's MAC addresses. */
static __always_inline void *nic_macs(const struct nic_packet *packet, struct omnes_peer *peer)
{
	struct nic_frame *frame = (struct nic_frame *)peer;

	return packet->slot->is_v6 ? frame->v6.ether.mac_to : frame->v4.ether.mac_to;
}

/* nic_learn keeps the MAC addresses that the neighbour table has filled in. A packet
 * that it does not recognise is from another firmware, loaded by another process. */
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

/* nic_marked handles packets that a firmware has made. The mark stays on complete
 * packets: another firmware behind this one must recognise them, too. */
static __always_inline int nic_marked(struct __sk_buff *skb)
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
OMNES_VERIFIED_ONCE int nic_step_egress(struct __sk_buff *skb, int class_of_packet)
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
		return nic_marked(skb);
	class_of_packet = nic_class(skb);
	switch (class_of_packet) {
	case OMNES_CLASS_STEPS:
	case OMNES_CLASS_STEPS | OMNES_CLASS_V6:
		return nic_step_egress(skb, class_of_packet);
	case OMNES_CLASS_MULTISEND:
	case OMNES_CLASS_MULTISEND | OMNES_CLASS_V6:
		return nic_multisend_sent(skb, class_of_packet);
	default:
		return NIC_NEXT;
	}
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
