/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * The native form of the firmware, as others call it; see the step functions
 * of the same names without "native".
 */
#ifndef OMNES_NATIVE_H
#define OMNES_NATIVE_H

#include "slot.h"

int omnes_native_barrier_enter(struct omnes_barrier *barrier, const struct omnes_arrived *arrived,
			       const struct omnes_barrier_table *table, u32 epoch,
			       struct omnes_barrier_action *action);
int omnes_native_barrier_arrive(struct omnes_barrier *barrier, const struct omnes_arrived *arrived,
				const struct omnes_barrier_table *table, u32 epoch, u32 step,
				u32 from, struct omnes_barrier_action *action);
int omnes_native_barrier_repeat(const struct omnes_barrier *barrier,
				const struct omnes_barrier_table *table, u32 epoch, u32 step,
				u32 to);
void omnes_native_spread_children(const struct omnes_spread_table *table, u32 source,
				  struct omnes_spread *run);
u32 omnes_native_spread_child(const struct omnes_spread_table *table, u32 source, u32 place);
u64 omnes_native_tag(const struct omnes_key *key, const u64 *words);
/* Sizes and offsets, for comparing them with the Rust side. */
extern const u32 omnes_native_layout[];

#endif
