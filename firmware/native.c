// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/*
 * The native form of the firmware: the step functions under names that the
 * crate omnes-firmware calls, and the facts that its tests compare with the
 * Rust side.
 */
#include <stddef.h>

#include "native.h"
#include "tag.h"

int omnes_native_barrier_enter(struct omnes_barrier *barrier, const struct omnes_arrived *arrived,
			       const struct omnes_barrier_table *table, u32 epoch,
			       const struct omnes_contribution *own,
			       struct omnes_barrier_action *action)
{
	return omnes_barrier_enter(barrier, arrived, table, epoch, own, action);
}

int omnes_native_barrier_arrive(struct omnes_barrier *barrier, const struct omnes_arrived *arrived,
				const struct omnes_barrier_table *table, u32 epoch, u32 step,
				u32 from, const struct omnes_words *carried,
				struct omnes_barrier_action *action)
{
	return omnes_barrier_arrive(barrier, arrived, table, epoch, step, from, carried, action);
}

int omnes_native_barrier_repeat(const struct omnes_barrier *barrier,
				const struct omnes_barrier_table *table, u32 epoch, u32 step,
				u32 to)
{
	return omnes_barrier_repeat(barrier, table, epoch, step, to);
}

void omnes_native_barrier_words(const struct omnes_barrier *barrier,
				const struct omnes_barrier_table *table, const u64 *carried,
				u32 epoch, u32 step, struct omnes_words *words)
{
	struct omnes_word_fold fold;
	u32 which, index;

	words->more = barrier->own[epoch & 1].words.more & (OMNES_CARRIED_MAX - 1);
	for (which = 0; which <= words->more; which++) {
		fold = omnes_barrier_word(barrier, table, carried, epoch, step, which);
		for (index = 0; index < OMNES_COMBINING_MEMBERS_MAX; index++) {
			if (omnes_word_fold_next(&fold, index))
				break;
		}
		words->word[which] = fold.word;
	}
}

u64 omnes_native_combined(u32 combine, u64 a, u64 b)
{
	return omnes_combined(combine, a, b);
}

void omnes_native_multisend_children(const struct omnes_multisend_table *table, u32 source,
				     struct omnes_children *run)
{
	*run = omnes_multisend_children(table, source);
}

u32 omnes_native_multisend_child(const struct omnes_multisend_table *table, u32 source, u32 place)
{
	return omnes_multisend_child(table, source, place);
}

u32 omnes_native_multisend_parent(const struct omnes_multisend_table *table, u32 source)
{
	return omnes_multisend_parent(table, source);
}

u64 omnes_native_tag(const struct omnes_key *key, const u64 *words, u32 more)
{
	return omnes_tag(key, words, more);
}

u64 omnes_native_sum_f64(u64 a, u64 b)
{
	return omnes_sum_f64(a, b);
}

#define FACT(expression)                                                                           \
	{                                                                                          \
		#expression, (u32)(expression)                                                     \
	}

static const struct omnes_native_fact facts[] = {
	FACT(OMNES_GROUP_MAX),
	FACT(OMNES_KERNEL_GROUP_MAX),
	FACT(OMNES_STEPS_MAX),
	FACT(OMNES_COMBINING_MEMBERS_MAX),
	FACT(OMNES_CARRIED_MAX),
	FACT(sizeof(struct omnes_key)),
	FACT(sizeof(struct omnes_barrier_table)),
	FACT(offsetof(struct omnes_barrier_table, step)),
	FACT(sizeof(struct omnes_barrier)),
	FACT(offsetof(struct omnes_barrier, record)),
	FACT(offsetof(struct omnes_barrier, own)),
	FACT(sizeof(struct omnes_arrived)),
	FACT(offsetof(struct omnes_arrived, bit_words)),
	FACT(sizeof(struct omnes_contribution)),
	FACT(offsetof(struct omnes_contribution, words)),
	FACT(sizeof(struct omnes_words)),
	FACT(offsetof(struct omnes_words, more)),
	FACT(OMNES_COMBINE_SUM_F64),
	FACT(OMNES_COMBINE_KNOWN),
	FACT(sizeof(struct omnes_barrier_action)),
	FACT(sizeof(struct omnes_multisend_table)),
	FACT(offsetof(struct omnes_multisend_table, child)),
	FACT(offsetof(struct omnes_multisend_table, parent)),
	FACT(OMNES_SLOTS_MAX),
	FACT(OMNES_SENDERS),
	FACT(OMNES_PEER_GROUP),
	FACT(OMNES_STATE_BYTES),
	FACT(sizeof(struct omnes_port_key)),
	FACT(OMNES_CLASS_STEPS),
	FACT(OMNES_CLASS_MULTISEND),
	FACT(OMNES_CLASS_V6),
	FACT(sizeof(struct omnes_member_key)),
	FACT(sizeof(struct omnes_member)),
	FACT(OMNES_SLOT_FORWARDS),
	FACT(OMNES_SLOT_BY_MAC),
	FACT(sizeof(struct omnes_slot)),
	FACT(offsetof(struct omnes_slot, address)),
	FACT(offsetof(struct omnes_slot, port)),
	FACT(offsetof(struct omnes_slot, is_v6)),
	FACT(offsetof(struct omnes_slot, key)),
	FACT(offsetof(struct omnes_slot, senders)),
	FACT(offsetof(struct omnes_slot, barrier)),
	FACT(offsetof(struct omnes_slot, multisend)),
	FACT(sizeof(struct omnes_peer)),
	FACT(OMNES_FRAME_BYTES_V4),
	FACT(OMNES_FRAME_BYTES_V6),
	FACT(offsetof(struct omnes_peer, frame)),
	FACT(offsetof(struct omnes_peer, rank)),
	FACT(offsetof(struct omnes_peer, learnt)),
	FACT(sizeof(struct omnes_page)),
	FACT(offsetof(struct omnes_page, arrived)),
	FACT(offsetof(struct omnes_page, packets_in)),
	FACT(offsetof(struct omnes_page, clone_failures)),
	FACT(offsetof(struct omnes_page, results)),
	FACT(offsetof(struct omnes_page, is_sleeping)),
	FACT(offsetof(struct omnes_page, is_lost)),
	FACT(offsetof(struct omnes_page, arrived_for_all)),
	FACT(OMNES_QUEUE_ENTRIES),
	FACT(OMNES_QUEUE_DATA_BYTES),
	FACT(OMNES_QUEUE_PORTS_MAX),
	FACT(OMNES_QUEUE_PACKET_BYTES_MAX),
	FACT(sizeof(struct omnes_queue_key)),
	FACT(sizeof(struct omnes_queue_entry)),
	FACT(offsetof(struct omnes_queue_entry, data)),
	FACT(sizeof(struct omnes_queue)),
	FACT(offsetof(struct omnes_queue, passed)),
	FACT(offsetof(struct omnes_queue, tail)),
	FACT(offsetof(struct omnes_queue, is_sleeping)),
	FACT(offsetof(struct omnes_queue, seqs)),
	FACT(offsetof(struct omnes_queue, entries)),
};

const struct omnes_native_fact *omnes_native_fact_at(u32 index)
{
	return index < sizeof(facts) / sizeof(facts[0]) ? &facts[index] : NULL;
}
