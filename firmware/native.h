/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The native form of the firmware, as others call it; see the step functions
 * of the same names without "native".
 *
 * No pointer may be null unless it says so. Tables and barriers may hold
 * anything: what makes no sense is OMNES_NONSENSE, or changes nothing. An
 * omnes_arrived has as much memory as barrier_step.h says.
 */
#ifndef OMNES_NATIVE_H
#define OMNES_NATIVE_H

#include "slot.h"
#include "sum_f64.h"

/*
 * omnes_native_barrier_enter begins barrier `epoch`. Returns an enum
 * omnes_verdict: OMNES_TAKEN, or OMNES_IGNORED if it is not the one after the
 * newest that is done. `action` says what to send then.
 */
int omnes_native_barrier_enter(struct omnes_barrier *barrier, const struct omnes_arrived *arrived,
			       const struct omnes_barrier_table *table, u32 epoch,
			       const struct omnes_contribution *own,
			       struct omnes_barrier_action *action);

/*
 * omnes_native_barrier_arrive takes the message of `step` in barrier `epoch`
 * from member `from`, with what it carries. Returns an enum omnes_verdict, each
 * of which is possible. `action` says what to send then.
 */
int omnes_native_barrier_arrive(struct omnes_barrier *barrier, const struct omnes_arrived *arrived,
				const struct omnes_barrier_table *table, u32 epoch, u32 step,
				u32 from, const struct omnes_words *carried,
				struct omnes_barrier_action *action);

/*
 * omnes_native_barrier_repeat tells whether member `to`, which misses the
 * message of `step` in barrier `epoch`, gets it again: OMNES_TAKEN if so,
 * OMNES_IGNORED if it has not been sent yet or nobody can miss it any more,
 * else OMNES_NONSENSE.
 */
int omnes_native_barrier_repeat(const struct omnes_barrier *barrier,
				const struct omnes_barrier_table *table, u32 epoch, u32 step,
				u32 to);

/*
 * omnes_native_barrier_words puts into `words`, which is all 0, those of the
 * message of `step`, below OMNES_STEPS_MAX, in barrier `epoch`; with
 * OMNES_STEPS_MAX, the results of a barrier that is done. `carried` is null
 * where nothing is combined.
 */
void omnes_native_barrier_words(const struct omnes_barrier *barrier,
				const struct omnes_barrier_table *table, const u64 *carried,
				u32 epoch, u32 step, struct omnes_words *words);

/* omnes_native_combined gives the one word that two make by `combine`, an enum
 * omnes_combine; 0 if they are not combined. */
u64 omnes_native_combined(u32 combine, u64 a, u64 b);

/* omnes_native_multisend_children puts into `run` which children this member
 * passes on to where `source`, an index below the table's size, is the root;
 * none for any other. */
void omnes_native_multisend_children(const struct omnes_multisend_table *table, u32 source,
				     struct omnes_children *run);

/* omnes_native_multisend_child gives the index of the child at `place` of the
 * table, or OMNES_NOBODY where there is none. */
u32 omnes_native_multisend_child(const struct omnes_multisend_table *table, u32 source, u32 place);

/* omnes_native_multisend_parent gives the index of the member from which this one has
 * what `source` sends to all, or OMNES_NOBODY where there is none. */
u32 omnes_native_multisend_parent(const struct omnes_multisend_table *table, u32 source);

/* omnes_native_tag gives the tag of a packet with `more` words behind it, at most
 * OMNES_CARRIED_MAX - 1: `words` has its header in memory order, then the
 * receiver's rank, big-endian, then those words as on the wire, then zeros, in
 * all OMNES_TAGGED_WORDS. */
u64 omnes_native_tag(const struct omnes_key *key, const u64 *words, u32 more);

/* omnes_native_sum_f64 gives the bits of the sum of two doubles, given as
 * theirs. */
u64 omnes_native_sum_f64(u64 a, u64 b);

/* A size, an offset or a constant, by the expression that gives it. */
struct omnes_native_fact {
	const char *name;
	u32 value;
};

/* omnes_native_fact_at gives what the Rust side must have too, one by one from
 * `index` 0 on; null behind the last. */
const struct omnes_native_fact *omnes_native_fact_at(u32 index);

#endif
