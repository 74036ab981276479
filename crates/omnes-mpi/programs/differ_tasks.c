/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Draws the calls of differ. */
#include "differ.h"
#include <stdio.h>

static const enum kind INTER_KINDS[] = { BCAST, BARRIER, ALLREDUCE, ALLGATHER, ALLTOALL };

static void root_draw(struct task *task, uint64_t *shared)
{
	const struct comm *on = task->on;

	task->call.root = below(shared, on->parts);
	if (on->is_inter)
		task->call.root = !on->is_first ? 0 : on->rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
}

/* Makes arguments invalid on all ranks; some are not used, or in place. */
static void spoil(struct task *task, int is_in_place, uint64_t *shared)
{
	struct call *call = &task->call;

	switch (below(shared, 4)) {
	case 0:
		call->root = task->on->parts;
		return;
	case 1:
		/*
		 * In other calls, Open MPI 4.1 or MPICH 4.0 do not check the count, or not on all
		 * ranks.
		 */
		if (is_in_place ||
		    (call->kind != BCAST && (call->kind < GATHER || call->kind > ALLGATHER)))
			return;
		call->from.count = call->to.count = call->counts[0] = -1;
		return;
	case 2:
		call->from.type = call->to.type = MPI_DATATYPE_NULL;
		return;
	default:
		call->op = MPI_OP_NULL;
	}
}

static const struct basic *moved_draw(enum kind kind, uint64_t *shared)
{
	const struct basic *basic = basic_draw(shared);
	/* MPICH 4.0 overestimates the length of parts with gaps, and returns an error. */
	int is_wrong = !IS_OPEN_MPI && (kind == GATHER || kind == SCATTER) &&
		       basic->bytes != basic->extent;

	return is_wrong ? moved_draw(kind, shared) : basic;
}

void task_draw(struct task *task, const struct comm *on, struct draws *draws)
{
	struct call *call = &task->call;
	const struct basic *basic;
	int is_in_place;

	*task = (struct task){ .on = on, .request = MPI_REQUEST_NULL };
	call->comm = on->comm;
	call->kind = (enum kind)below(&draws->shared, KINDS);
	if (on->is_inter)
		call->kind = *DRAW(&draws->shared, INTER_KINDS);
	call->op = MPI_OP_NULL;
	basic = moved_draw(call->kind, &draws->shared);
	do
		call->way = (enum way)below(&draws->shared, 4);
	while (!call_has_way(call->kind, call->way));
	root_draw(task, &draws->shared);
	is_in_place = task->is_in_place = !on->is_inter && is_one_in(&draws->shared, 3);
	/* At other ranks, MPICH 4.0 crashes with a segmentation fault. */
	if (!IS_OPEN_MPI && call->kind == REDUCE && is_in_place)
		call->root = 0;
	if (call->kind == BARRIER)
		return;
	if (call->kind == BCAST)
		bcast_draw(task, basic, draws);
	else if (call->kind == ALLGATHERV)
		gatherv_draw(task, basic, draws);
	else if (call->kind >= GATHERV && call->kind <= ALLTOALLV)
		pairs_draw(task, basic, draws);
	else if (call->kind >= GATHER && call->kind <= ALLGATHER)
		parts_draw(task, basic, elements_draw(task, basic, 1, &draws->shared),
			   &draws->local);
	else
		reduction_draw(task, draws);
	if (!on->is_inter && is_one_in(&draws->shared, 30))
		spoil(task, is_in_place, &draws->shared);
}

static int describe(char *text, size_t bytes, const char *name, const struct memory *memory,
		    const struct told *told)
{
	return snprintf(text, bytes, "; %s %d of %s, %s of %d%s", name, told->count,
			memory->form.basic->name, memory->form.name, memory->form.elements,
			memory->told == MPI_BOTTOM ? ", from MPI_BOTTOM" : "");
}

void task_describe(const struct task *task, char *text, size_t bytes)
{
	static const char *const WAYS[] = { "", "I, ", "large, ", "I, large, " };
	const struct call *call = &task->call;
	int length = snprintf(text, bytes, "%s (%s%s%s), %s, root %d", KIND_NAMES[call->kind],
			      WAYS[call->way], task->is_in_place ? "in place, " : "",
			      task->op[0] ? task->op : "no operation", task->on->name, call->root);

	if (task->has_from)
		length += describe(text + length, bytes - (size_t)length, "from", &task->from,
				   &call->from);
	if (task->has_to)
		length += describe(text + length, bytes - (size_t)length, "to", &task->to,
				   &call->to);
	for (int i = 0; i < call->ranks && (size_t)length < bytes; i++)
		length += snprintf(text + length, bytes - (size_t)length, " %d@%d, %d@%d",
				   call->from_counts[i], call->from_places[i], call->counts[i],
				   call->places[i]);
}

void task_free(struct task *task)
{
	if (task->has_from)
		memory_free(&task->from);
	if (task->has_to)
		memory_free(&task->to);
}
