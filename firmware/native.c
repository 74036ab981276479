// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * The native form of the firmware: the step functions under names that the
 * crate omnes-firmware calls, and what its tests compare with the Rust side.
 */
#include <stddef.h>

#include "native.h"
#include "wire.h"

int omnes_native_barrier_enter(struct omnes_barrier *barrier, const struct omnes_arrived *arrived,
			       const struct omnes_barrier_table *table, u32 epoch,
			       const struct omnes_contribution *own,
			       struct omnes_barrier_action *action)
{
	return omnes_barrier_enter(barrier, arrived, table, epoch, own, action);
}

int omnes_native_barrier_arrive(struct omnes_barrier *barrier, const struct omnes_arrived *arrived,
				const struct omnes_barrier_table *table, u32 epoch, u32 step,
				u32 from, u64 carried, struct omnes_barrier_action *action)
{
	return omnes_barrier_arrive(barrier, arrived, table, epoch, step, from, carried, action);
}

int omnes_native_barrier_repeat(const struct omnes_barrier *barrier,
				const struct omnes_barrier_table *table, u32 epoch, u32 step,
				u32 to)
{
	return omnes_barrier_repeat(barrier, table, epoch, step, to);
}

u64 omnes_native_barrier_word(const struct omnes_barrier *barrier,
			      const struct omnes_barrier_table *table, const u64 *carried,
			      u32 epoch, u32 step)
{
	struct omnes_making making = omnes_barrier_word(barrier, table, carried, epoch, step);
	u32 index;

	for (index = 0; index < OMNES_WORDS_MAX; index++) {
		if (omnes_make(&making, index))
			break;
	}
	return making.word;
}

u64 omnes_native_combined(u32 combine, u64 a, u64 b)
{
	return omnes_combined(combine, a, b);
}

void omnes_native_spread_children(const struct omnes_spread_table *table, u32 source,
				  struct omnes_spread *run)
{
	*run = omnes_spread_children(table, source);
}

u32 omnes_native_spread_child(const struct omnes_spread_table *table, u32 source, u32 place)
{
	return omnes_spread_child(table, source, place);
}

/* The tag of a header without control body: 32 bytes and the receiver. */
u64 omnes_native_tag(const struct omnes_key *key, const u64 *words)
{
	return omnes_siphash(key, words, OMNES_HEADER_BYTES + 4);
}

u64 omnes_native_sum_f64(u64 a, u64 b)
{
	return omnes_sum_f64(a, b);
}

/* Sizes and offsets, in the order of omnes-firmware's test of them. */
const u32 omnes_native_layout[] = {
	sizeof(struct omnes_key),
	sizeof(struct omnes_barrier_table),
	offsetof(struct omnes_barrier_table, step),
	sizeof(struct omnes_barrier),
	offsetof(struct omnes_barrier, record),
	offsetof(struct omnes_barrier, own),
	sizeof(struct omnes_arrived),
	offsetof(struct omnes_arrived, words),
	sizeof(struct omnes_contribution),
	offsetof(struct omnes_contribution, word),
	OMNES_COMBINE_SUM_F64,
	OMNES_COMBINE_KNOWN,
	sizeof(struct omnes_barrier_action),
	sizeof(struct omnes_spread_table),
	offsetof(struct omnes_spread_table, child),
	sizeof(struct omnes_port_key),
	sizeof(struct omnes_member),
	sizeof(struct omnes_slot),
	offsetof(struct omnes_slot, address),
	offsetof(struct omnes_slot, port),
	offsetof(struct omnes_slot, key),
	offsetof(struct omnes_slot, barrier),
	offsetof(struct omnes_slot, spread),
	sizeof(struct omnes_peer),
	offsetof(struct omnes_peer, frame),
	offsetof(struct omnes_peer, rank),
	offsetof(struct omnes_peer, learnt),
	sizeof(struct omnes_page),
	offsetof(struct omnes_page, arrived),
	offsetof(struct omnes_page, packets_in),
	offsetof(struct omnes_page, clone_failures),
	offsetof(struct omnes_page, result),
	offsetof(struct omnes_page, is_sleeping),
	offsetof(struct omnes_page, is_lost),
	OMNES_QUEUE_PORTS_MAX,
	sizeof(struct omnes_queue_key),
	sizeof(struct omnes_queue_entry),
	offsetof(struct omnes_queue_entry, data),
	sizeof(struct omnes_queue),
	offsetof(struct omnes_queue, passed),
	offsetof(struct omnes_queue, tail),
	offsetof(struct omnes_queue, is_sleeping),
	offsetof(struct omnes_queue, turns),
	offsetof(struct omnes_queue, entries),
	0,
};
