/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Multi-send: to whom a member passes on what a source sends to all.
 *
 * One table holds a tree over the members' indices relative to the source, so
 * it serves every source [MS-R15, R16]. The source itself, and whoever passes
 * on for it, asks for its own children.
 *
 * Pure function, no loop.
 */
#ifndef OMNES_MULTISEND_STEP_H
#define OMNES_MULTISEND_STEP_H

#include "barrier_step.h"

/*
 * The children of relative index r are child[first[r]] up to, not including,
 * child[first[r + 1]], as relative indices, in the order of sending. `size` is
 * at most OMNES_KERNEL_GROUP_MAX, `own` below it.
 */
struct omnes_multisend_table {
	u32 size;
	u32 own;
	u16 first[OMNES_KERNEL_GROUP_MAX + 4];
	u16 child[OMNES_KERNEL_GROUP_MAX];
};
_Static_assert(sizeof(struct omnes_multisend_table) == 4112, "layout shared with Rust");

/* A run of `child`. */
struct omnes_children {
	u32 first;
	u32 count;
};

/*
 * omnes_multisend_children gives the run of this member's children where
 * `source` is the root; no children for a source beyond the group.
 */
static __always_inline struct omnes_children
omnes_multisend_children(const struct omnes_multisend_table *table, u32 source)
{
	struct omnes_children none = { 0, 0 };
	struct omnes_children run;
	u32 relative, end;

	if (source >= table->size || table->own >= table->size ||
	    table->size > OMNES_KERNEL_GROUP_MAX)
		return none;
	relative = table->own >= source ? table->own - source : table->own + table->size - source;
	if (relative >= OMNES_KERNEL_GROUP_MAX)
		return none;
	run.first = table->first[relative];
	end = table->first[relative + 1];
	run.count = end > run.first ? end - run.first : 0;
	return run;
}

/*
 * omnes_multisend_child gives the index of the child at place `place` of a run,
 * or OMNES_NOBODY where the table makes no sense.
 */
static __always_inline u32 omnes_multisend_child(const struct omnes_multisend_table *table,
						 u32 source, u32 place)
{
	u32 child;

	if (place >= OMNES_KERNEL_GROUP_MAX)
		return OMNES_NOBODY;
	child = table->child[place] + source;
	if (child >= table->size)
		child -= table->size;
	return child < table->size ? child : OMNES_NOBODY;
}

#endif
