/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Multi-send: to which members a member forwards what a source sends to all.
 *
 * One table holds a tree over the members' indices relative to the source, so
 * it serves every source [MS-R15, R16]. The source itself, and a member that
 * forwards for it, look up their own children.
 *
 * Pure functions, no loop.
 */
#ifndef OMNES_MULTISEND_STEP_H
#define OMNES_MULTISEND_STEP_H

#include "barrier_step.h"

/*
 * The children of relative index r are child[first[r]] up to, not including,
 * child[first[r + 1]], as relative indices, in the order of sending; parent[r]
 * is the parent of r, for every r but 0. `size` is at most
 * OMNES_KERNEL_GROUP_MAX, `own` is below `size`.
 */
struct omnes_multisend_table {
	u32 size;
	u32 own;
	u16 first[OMNES_KERNEL_GROUP_MAX + 4];
	u16 child[OMNES_KERNEL_GROUP_MAX];
	u16 parent[OMNES_KERNEL_GROUP_MAX];
};
_Static_assert(sizeof(struct omnes_multisend_table) == 6160, "layout shared with Rust");

/* A run of entries of `child`. */
struct omnes_children {
	u32 first;
	u32 count;
};

/*
 * omnes_multisend_relative returns this member's index relative to `source`, or
 * OMNES_NOBODY for a source outside the group.
 */
static __always_inline u32 omnes_multisend_relative(const struct omnes_multisend_table *table,
						    u32 source)
{
	u32 relative;

	if (source >= table->size || table->own >= table->size ||
	    table->size > OMNES_KERNEL_GROUP_MAX)
		return OMNES_NOBODY;
	relative = table->own >= source ? table->own - source : table->own + table->size - source;
	return relative < OMNES_KERNEL_GROUP_MAX ? relative : OMNES_NOBODY;
}

/*
 * omnes_multisend_children returns the run of this member's children in the
 * tree of `source`; an empty run for a source outside the group.
 */
static __always_inline struct omnes_children
omnes_multisend_children(const struct omnes_multisend_table *table, u32 source)
{
	struct omnes_children none = { 0, 0 };
	struct omnes_children run;
	u32 relative = omnes_multisend_relative(table, source);
	u32 end;

	if (relative >= OMNES_KERNEL_GROUP_MAX)
		return none;
	run.first = table->first[relative];
	end = table->first[relative + 1];
	run.count = end > run.first ? end - run.first : 0;
	return run;
}

/* omnes_multisend_absolute returns the member index of a `relative` one, or OMNES_NOBODY
 * if the table is invalid. */
static __always_inline u32 omnes_multisend_absolute(const struct omnes_multisend_table *table,
						    u32 source, u32 relative)
{
	u32 index = relative + source;

	if (index >= table->size)
		index -= table->size;
	return index < table->size ? index : OMNES_NOBODY;
}

/*
 * omnes_multisend_parent returns the index of the member from which this one
 * receives what `source` sends to all; OMNES_NOBODY at the source itself, and
 * for a source outside the group.
 */
static __always_inline u32 omnes_multisend_parent(const struct omnes_multisend_table *table,
						  u32 source)
{
	u32 relative = omnes_multisend_relative(table, source);

	if (!relative || relative >= OMNES_KERNEL_GROUP_MAX)
		return OMNES_NOBODY;
	return omnes_multisend_absolute(table, source, table->parent[relative]);
}

/*
 * omnes_multisend_child returns the index of the child at `place` of the
 * table's `child`, or OMNES_NOBODY if the table is invalid.
 */
static __always_inline u32 omnes_multisend_child(const struct omnes_multisend_table *table,
						 u32 source, u32 place)
{
	if (place >= OMNES_KERNEL_GROUP_MAX)
		return OMNES_NOBODY;
	return omnes_multisend_absolute(table, source, table->child[place]);
}

#endif
