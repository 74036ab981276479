/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The native form of the firmware, as others call it; see the step functions
 * of the same names without "native".
 */
#ifndef OMNES_NATIVE_H
#define OMNES_NATIVE_H

#include "slot.h"
#include "sum_f64.h"

int omnes_native_barrier_enter(struct omnes_barrier *barrier, const struct omnes_arrived *arrived,
			       const struct omnes_barrier_table *table, u32 epoch,
			       const struct omnes_contribution *own,
			       struct omnes_barrier_action *action);
int omnes_native_barrier_arrive(struct omnes_barrier *barrier, const struct omnes_arrived *arrived,
				const struct omnes_barrier_table *table, u32 epoch, u32 step,
				u32 from, u64 carried, struct omnes_barrier_action *action);
int omnes_native_barrier_repeat(const struct omnes_barrier *barrier,
				const struct omnes_barrier_table *table, u32 epoch, u32 step,
				u32 to);
u64 omnes_native_barrier_word(const struct omnes_barrier *barrier,
			      const struct omnes_barrier_table *table, const u64 *carried,
			      u32 epoch, u32 step);
u64 omnes_native_combined(u32 combine, u64 a, u64 b);
void omnes_native_spread_children(const struct omnes_spread_table *table, u32 source,
				  struct omnes_spread *run);
u32 omnes_native_spread_child(const struct omnes_spread_table *table, u32 source, u32 place);
u64 omnes_native_tag(const struct omnes_key *key, const u64 *words);
u64 omnes_native_sum_f64(u64 a, u64 b);
/* Sizes and offsets, for comparing them with the Rust side. */
extern const u32 omnes_native_layout[];

#endif
