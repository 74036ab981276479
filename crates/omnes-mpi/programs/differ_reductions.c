/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Reductions of differ. */
#include "differ.h"

/*
 * True if elements may have any layout: for user-defined operations. In other calls than these,
 * such layouts crash Open MPI 4.1 and MPICH 4.0 with segmentation faults.
 */
static int lie_anyhow(const struct call *call)
{
	return op_is_own(call->op) && (call->kind == ALLREDUCE || call->kind == REDUCE) &&
	       (call->way == BLOCKING || call->way == LARGE);
}

/* Mostly, elements have the same layout on all ranks. */
static struct form reduced_form(const struct basic *basic, const struct call *call, int each,
				struct draws *draws)
{
	int is_alike = below(&draws->shared, 4) > 0;
	uint64_t generator = is_alike ? draws->shared : draws->local;

	return lie_anyhow(call) ? form_draw(basic, each, REDUCED_LAYOUTS, &generator)
				: form_plain(basic);
}

/*
 * For both memories, which have the same type, so that at most one of them may be far. In place,
 * Open MPI 4.1 and MPICH 4.0 take far memory for a missing buffer, or crash with segmentation
 * faults.
 */
static enum where reduced_where(const struct call *call, int has_result, uint64_t *local)
{
	enum where where = where_draw(local);
	int is_fit = where == FAR ? lie_anyhow(call) && !has_result : !op_is_own(call->op);

	return is_fit ? where : USUAL;
}

static void reduced_make(struct memory *memory, const struct form *form, int count,
			 enum where where, uint64_t *local)
{
	memory->runs_count = 1;
	memory->runs[0] = (struct run){ count, 0 };
	memory_make(memory, form, where);
	memory_fill(memory, SMALL_NUMBERS, local);
}

/* Draws the result of a rank: some items, all, or none. */
static void result_draw(struct task *task, const struct form *form, int all, int own,
			enum where where, uint64_t *local)
{
	struct call *call = &task->call;
	int is_exscan_first = call->kind == EXSCAN && task->on->rank == 0;

	reduced_make(&task->to, form, task->is_in_place ? all : own, where, local);
	task->has_to = 1;
	if (is_exscan_first)
		memory_mask(&task->to, 0, 0, task->is_in_place ? 2 : 0);
	else if (task->is_in_place && own < all)
		memory_mask(&task->to, 0, own, 0);
	call->to.buffer = task->to.told;
}

static int counts_sum(const struct call *call)
{
	int sum = 0;

	for (int i = 0; i < call->ranks; i++)
		sum += call->counts[i];
	return sum;
}

/* Mostly numbers only, where libraries must not call the MPI, or cannot determine the order. */
static enum ops ops_draw(const struct call *call, uint64_t *shared)
{
	int is_started = call->way == STARTED || call->way == STARTED_LARGE;

	if ((is_started || call->kind >= SCAN) && !is_one_in(shared, 3))
		return OF_NUMBERS;
	/* Blocks with other operations crash MPICH 4.0 with a segmentation fault. */
	return IS_OPEN_MPI || call->kind < REDUCE_SCATTER ? ANY_OPS : COMMUTATIVE;
}

void reduction_draw(struct task *task, struct draws *draws)
{
	struct call *call = &task->call;
	const struct basic *basic = basic_draw_with_op(
		&draws->shared, ops_draw(call, &draws->shared), &call->op, task->op);
	int each = lie_anyhow(call) ? 1 + below(&draws->shared, 3) : 1;
	int count = elements_draw(task, basic, each, &draws->shared) / each;
	struct form form = reduced_form(basic, call, each, draws);
	int has_result = call->kind != REDUCE || task->on->rank == call->root;
	int all = count, own = count;
	enum where where;

	if (call->kind == REDUCE_SCATTER) {
		call->ranks = task->on->parts;
		counts_draw(call->counts, call->ranks, count, &draws->shared);
		all = counts_sum(call), own = call->counts[task->on->rank];
	} else if (call->kind == REDUCE_SCATTER_BLOCK) {
		all = count * task->on->parts;
	}
	task->is_in_place = task->is_in_place && has_result;
	call->from = (struct told){ MPI_IN_PLACE, count, form.type };
	call->to = (struct told){ NULL, count, form.type };
	where = reduced_where(call, has_result, &draws->local);
	if (!task->is_in_place) {
		reduced_make(&task->from, &form, all, where, &draws->local);
		task->has_from = 1;
		call->from.buffer = task->from.told;
		call->from.type = task->from.told_type;
	}
	if (has_result) {
		struct form copy = task->has_from ? form_copy(&form) : form;

		result_draw(task, &copy, all, own, where, &draws->local);
		call->from.type = task->has_from ? call->from.type : task->to.told_type;
	}
}
