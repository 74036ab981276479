/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The native form of the firmware, for its callers; see the step functions of
 * the same names without "native".
 *
 * No pointer may be null unless stated. Tables and barriers may hold any
 * values: invalid ones yield OMNES_NONSENSE or change nothing. The memory of an
 * omnes_arrived has the size that barrier_step.h gives.
 */
#ifndef OMNES_NATIVE_H
#define OMNES_NATIVE_H

#include "slot.h"
#include "sum_f64.h"

/*
 * omnes_native_barrier_enter begins barrier `epoch`. Returns an enum
 * omnes_verdict: OMNES_TAKEN, or OMNES_IGNORED if `epoch` is not the one after
 * the newest that is done. `action` then says what to send.
 */
int omnes_native_barrier_enter(struct omnes_barrier *barrier, const struct omnes_arrived *arrived,
			       const struct omnes_barrier_table *table, u32 epoch,
			       const struct omnes_contribution *own,
			       struct omnes_barrier_action *action);

/*
 * omnes_native_barrier_arrive records the message of `step` in barrier `epoch`
 * from member `from`, with the words that it carries. Returns an enum
 * omnes_verdict; any value is possible. `action` then says what to send.
 */
int omnes_native_barrier_arrive(struct omnes_barrier *barrier, const struct omnes_arrived *arrived,
				const struct omnes_barrier_table *table, u32 epoch, u32 step,
				u32 from, const struct omnes_words *carried,
				struct omnes_barrier_action *action);

/*
 * omnes_native_barrier_repeat decides whether member `to`, which misses the
 * message of `step` in barrier `epoch`, gets it again: OMNES_TAKEN if so,
 * OMNES_IGNORED if it has not been sent yet or no member can miss it any more,
 * else OMNES_NONSENSE.
 */
int omnes_native_barrier_repeat(const struct omnes_barrier *barrier,
				const struct omnes_barrier_table *table, u32 epoch, u32 step,
				u32 to);

/*
 * omnes_native_barrier_words fills `words`, which is all 0, with the words of
 * the message of `step`, below OMNES_STEPS_MAX, in barrier `epoch`; with
 * OMNES_STEPS_MAX, with the results of a barrier that is done. `carried` is
 * null if nothing is combined.
 */
void omnes_native_barrier_words(const struct omnes_barrier *barrier,
				const struct omnes_barrier_table *table, const u64 *carried,
				u32 epoch, u32 step, struct omnes_words *words);

/* omnes_native_combined returns two words combined into one by `combine`, an enum
 * omnes_combine, or 0 where that combines nothing. */
u64 omnes_native_combined(u32 combine, u64 a, u64 b);

/* omnes_native_multisend_children fills `run` with the children that this member
 * forwards to when `source`, an index below the table's size, is the root; an empty run
 * for any other source. */
void omnes_native_multisend_children(const struct omnes_multisend_table *table, u32 source,
				     struct omnes_children *run);

/* omnes_native_multisend_child returns the index of the child at `place` of the table,
 * or OMNES_NOBODY if no child is there. */
u32 omnes_native_multisend_child(const struct omnes_multisend_table *table, u32 source, u32 place);

/* omnes_native_multisend_parent returns the index of the member from which this one
 * receives what `source` sends to all, or OMNES_NOBODY if no such member exists. */
u32 omnes_native_multisend_parent(const struct omnes_multisend_table *table, u32 source);

/* omnes_native_tag returns the tag of a packet with `more` words behind it, at most
 * OMNES_CARRIED_MAX - 1: `words` holds its header in memory order, then the receiver's
 * rank, big-endian, then those words as on the wire, then zeros, OMNES_TAGGED_WORDS in
 * all. */
u64 omnes_native_tag(const struct omnes_key *key, const u64 *words, u32 more);

/* omnes_native_sum_f64 returns the bits of the sum of two doubles, given by their
 * bits. */
u64 omnes_native_sum_f64(u64 a, u64 b);

/* A size, an offset or a constant, with the expression that yields it. */
struct omnes_native_fact {
	const char *name;
	u32 value;
};

/* omnes_native_fact_at returns a value that the Rust side must share, for each `index`
 * from 0; null after the last. */
const struct omnes_native_fact *omnes_native_fact_at(u32 index);

#endif
