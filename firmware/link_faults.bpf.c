// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Link faults of a lab: loss, duplication, delay and reordering on the way from
 * a host to the switch, and loss on the way back.
 *
 * link_ingress runs on the ingress of every switch port and of every hold
 * device (a TAP device of that port, whose other end is the hold loop in user
 * space, since a program cannot keep a packet):
 *
 *     host --> port: link_draw ----+--> bridge
 *                ^                 | held
 *                | marked          v
 *       hold device: link_return <-- hold loop (delay, reorder)
 *
 * It is one program, so that its attachment to the ports keeps all of it loaded
 * until a hold device is created.
 *
 * link_egress runs on the egress of every switch port, after the bridge and
 * before the port's queue: each copy of a flooded packet is lost independently.
 *
 * A packet that returns carries LINK_PASSED in skb->mark and is let through;
 * the mark survives, since all this is one network namespace, and a host cannot
 * set it, since crossing a veth clears it.
 *
 * Every decision is a function of (seed, port, number of the packet on its port
 * and in its direction, kind of fault): the same traffic with the same seed
 * meets the same faults. Only users' IP packets meet faults: packets that the
 * network sends by itself and at its own times (ARP, neighbour discovery, group
 * reports) pass and are not counted, or no run could be repeated.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <stddef.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define LINK_PORTS_MAX 256
#define LINK_PASSED 0x6f6d6e65u
/* Group bit of the source address: never set in a real frame, so it can mark a frame to
 * be overtaken for the hold loop; the loop clears it. */
#define LINK_OVERTAKEN_BIT 0x01

/* ICMPv6 types 133 to 137: neighbour discovery. */
#define NEIGHBOUR_TYPE_FIRST 133
#define NEIGHBOUR_TYPE_LAST 137

/* All below FAULT_KINDS, the distance between consecutive packet numbers in a draw. */
enum fault_kind {
	FAULT_RECEIVE_LOSS = 0,
	FAULT_LOSS = 1,
	FAULT_DUPLICATE = 2,
	FAULT_REORDER = 3,
	FAULT_KINDS = 4
};

/* Written by user space. Thresholds are out of 2^32, both ends included. */
struct link_config {
	__u64 seed;
	__u64 delay_ns;
	__u64 loss_threshold;
	__u64 duplicate_threshold;
	__u64 reorder_threshold;
	__u64 port_index_first; /* interface index of port 0 */
	__u64 hold_index_first; /* interface index of hold device 0 */
	__u64 ports;
	__u64 receive_loss_threshold;
};
_Static_assert(sizeof(struct link_config) == 72, "layout shared with Rust");

struct link_port {
	/* From the host: */
	__u64 packets;
	__u64 dropped;
	__u64 duplicated;
	__u64 delayed;
	__u64 reordered;
	/* To the host; those dropped are among those received: */
	__u64 received;
	__u64 receive_dropped;
};
_Static_assert(sizeof(struct link_port) == 56, "layout shared with Rust");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct link_config);
} link_configs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LINK_PORTS_MAX);
	__type(key, __u32);
	__type(value, struct link_port);
} link_ports SEC(".maps");

/* link_config_read returns the one configuration; NULL never happens, but the verifier
 * requires the check. */
static __always_inline struct link_config *link_config_read(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&link_configs, &zero);
}

/* link_is_user returns whether a packet is IP and not the network's own. */
static __always_inline int link_is_user(struct __sk_buff *skb)
{
	__u8 kind, type;

	if (skb->protocol == bpf_htons(ETH_P_IP))
		return !bpf_skb_load_bytes(skb, ETH_HLEN + offsetof(struct iphdr, protocol),
					   &kind, 1) &&
		       kind != IPPROTO_IGMP;
	if (skb->protocol != bpf_htons(ETH_P_IPV6) ||
	    bpf_skb_load_bytes(skb, ETH_HLEN + offsetof(struct ipv6hdr, nexthdr), &kind, 1))
		return 0;
	/* Only group reports have hop-by-hop options. */
	if (kind == IPPROTO_HOPOPTS)
		return 0;
	if (kind != IPPROTO_ICMPV6 ||
	    bpf_skb_load_bytes(skb, ETH_HLEN + sizeof(struct ipv6hdr), &type, 1))
		return 1;
	return type < NEIGHBOUR_TYPE_FIRST || type > NEIGHBOUR_TYPE_LAST;
}

/* link_fault_drawn returns whether packet number `number` of port `port` meets the
 * fault; `threshold` is in [0, 2^32]. The mixing is that of splitmix64. */
static __always_inline int link_fault_drawn(__u64 seed, __u64 port, __u64 number,
					    enum fault_kind kind, __u64 threshold)
{
	__u64 x = seed + (port << 40) + number * FAULT_KINDS + kind;
	int round;

	/* Twice: with one round, neighbouring numbers under related seeds
	 * would share too much. */
#pragma unroll
	for (round = 0; round < 2; round++) {
		x += 0x9e3779b97f4a7c15ull;
		x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
		x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
		x ^= x >> 31;
	}
	return (x >> 32) < threshold;
}

/* link_duplicate_send sends a copy to interface `index`, marked so that no faults are
 * drawn for it again if that is the port itself. Returns 0 when sent. */
static __always_inline long link_duplicate_send(struct __sk_buff *skb, __u32 index, __u64 flags)
{
	long failed;

	skb->mark = LINK_PASSED;
	failed = bpf_clone_redirect(skb, index, flags);
	skb->mark = 0;
	return failed;
}

/* link_overtaken_set tells the hold loop to let later frames pass this one. */
static __always_inline void link_overtaken_set(struct __sk_buff *skb)
{
	__u32 offset = offsetof(struct ethhdr, h_source);
	__u8 first;

	if (bpf_skb_load_bytes(skb, offset, &first, 1))
		return;
	first |= LINK_OVERTAKEN_BIT;
	bpf_skb_store_bytes(skb, offset, &first, 1, 0);
}

/* link_draw applies its faults to a packet fresh from the host of port `index`; returns
 * a TC_ACT verdict. */
static __always_inline int link_draw(struct __sk_buff *skb, const struct link_config *config,
				     struct link_port *port, __u32 index)
{
	__u64 seed = config->seed;
	__u64 number = __sync_fetch_and_add(&port->packets, 1);
	__u32 hold = (__u32)config->hold_index_first + index;
	int delayed = config->delay_ns != 0;
	int overtaken;

	if (link_fault_drawn(seed, index, number, FAULT_LOSS, config->loss_threshold)) {
		__sync_fetch_and_add(&port->dropped, 1);
		return TC_ACT_SHOT;
	}
	overtaken = link_fault_drawn(seed, index, number, FAULT_REORDER, config->reorder_threshold);
	if (link_fault_drawn(seed, index, number, FAULT_DUPLICATE, config->duplicate_threshold) &&
	    !link_duplicate_send(skb, delayed ? hold : skb->ifindex, delayed ? 0 : BPF_F_INGRESS))
		__sync_fetch_and_add(&port->duplicated, 1);

	if (delayed)
		__sync_fetch_and_add(&port->delayed, 1);
	if (overtaken) {
		__sync_fetch_and_add(&port->reordered, 1);
		link_overtaken_set(skb);
	}
	return delayed || overtaken ? bpf_redirect(hold, 0) : TC_ACT_OK;
}

/* link_return returns a held packet to port `index`, where it came from, as if it
 * arrived there now; returns a TC_ACT verdict. */
static __always_inline int link_return(struct __sk_buff *skb, const struct link_config *config,
				       __u32 index)
{
	skb->mark = LINK_PASSED;
	return bpf_redirect((__u32)config->port_index_first + index, BPF_F_INGRESS);
}

SEC("tc")
int link_ingress(struct __sk_buff *skb)
{
	struct link_config *config = link_config_read();
	struct link_port *port;
	__u32 index;

	if (skb->mark == LINK_PASSED) {
		skb->mark = 0;
		return TC_ACT_OK;
	}
	if (!config)
		return TC_ACT_OK;
	index = skb->ifindex - (__u32)config->hold_index_first;
	if (index < config->ports)
		return link_return(skb, config, index);
	if (!link_is_user(skb))
		return TC_ACT_OK;
	index = skb->ifindex - (__u32)config->port_index_first;
	port = bpf_map_lookup_elem(&link_ports, &index);
	return port ? link_draw(skb, config, port, index) : TC_ACT_OK;
}

SEC("tc")
int link_egress(struct __sk_buff *skb)
{
	struct link_config *config = link_config_read();
	struct link_port *port;
	__u64 number;
	__u32 index;

	if (!config || !link_is_user(skb))
		return TC_ACT_OK;
	index = skb->ifindex - (__u32)config->port_index_first;
	port = bpf_map_lookup_elem(&link_ports, &index);
	if (!port)
		return TC_ACT_OK;
	number = __sync_fetch_and_add(&port->received, 1);
	if (!link_fault_drawn(config->seed, index, number, FAULT_RECEIVE_LOSS,
			      config->receive_loss_threshold))
		return TC_ACT_OK;
	__sync_fetch_and_add(&port->receive_dropped, 1);
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
