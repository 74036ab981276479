/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Broadcasts of differ, gathers and what else moves parts from rank to rank. */
#include "differ.h"

#define IN_PLACE ((struct told){ MPI_IN_PLACE, 0, MPI_BYTE })
#define NOTHING ((struct told){ NULL, 0, MPI_BYTE })

/* Memory for so many parts of so many elements, as items of so many. */
static struct told items_make(struct memory *memory, const struct basic *basic, int elements,
			      int each, int parts, uint64_t *generator)
{
	int count = elements / each;
	int is_plain = each == 1 && is_one_in(generator, 2);
	struct form form = is_plain ? form_plain(basic)
				    : form_draw(basic, each, MOVED_LAYOUTS, generator);

	memory->runs_count = parts;
	for (int part = 0; part < parts; part++)
		memory->runs[part] = (struct run){ count, (MPI_Aint)part * count };
	memory_make(memory, &form, where_draw(generator));
	return (struct told){ memory->told, count, memory->told_type };
}

/*
 * Open MPI 4.1 derives from the size of a rank's type how a broadcast is cut into pieces,
 * or which way an allgatherv goes: where it is not the same on all ranks, they hang.
 */
enum { IS_SIZE_COMMON = IS_OPEN_MPI };

void bcast_draw(struct task *task, const struct basic *basic, struct draws *draws)
{
	int is_root = task->call.root == (task->on->is_inter ? MPI_ROOT : task->on->rank);
	int elements = elements_draw(task, basic, 1, &draws->shared);
	int each = split_draw(elements, IS_SIZE_COMMON ? &draws->shared : &draws->local);

	task->call.to = items_make(&task->to, basic, elements, each, 1, &draws->local);
	task->has_to = 1;
	task->is_to_read_only = is_root;
	memory_fill(&task->to, ANY_BYTES, &draws->local);
}

static void from_draw(struct task *task, const struct basic *basic, int elements, int parts,
		      uint64_t *local)
{
	task->call.from = items_make(&task->from, basic, elements, split_draw(elements, local),
				     parts, local);
	task->has_from = 1;
	memory_fill(&task->from, ANY_BYTES, local);
}

static void to_draw(struct task *task, const struct basic *basic, int elements, int parts,
		    uint64_t *local)
{
	task->call.to = items_make(&task->to, basic, elements, split_draw(elements, local), parts,
				   local);
	task->has_to = 1;
	memory_fill(&task->to, ANY_BYTES, local);
}

void parts_draw(struct task *task, const struct basic *basic, int elements,
		       uint64_t *local)
{
	enum kind kind = task->call.kind;
	int is_root = task->call.root == task->on->rank, parts = task->on->parts;
	int from_parts = kind == SCATTER || kind == ALLTOALL ? parts : 1;
	int to_parts = kind == SCATTER ? 1 : parts;
	int is_rooted = kind == GATHER || kind == SCATTER;

	task->is_in_place = task->is_in_place && (!is_rooted || is_root);
	if (task->is_in_place && kind != SCATTER)
		task->call.from = IN_PLACE;
	else if (kind != SCATTER || is_root)
		from_draw(task, basic, elements, from_parts, local);
	else
		task->call.from = NOTHING;
	if (task->is_in_place && kind == SCATTER)
		task->call.to = IN_PLACE;
	else if (kind != GATHER || is_root)
		to_draw(task, basic, elements, to_parts, local);
	else
		task->call.to = NOTHING;
}

/* Where parts of other lengths lie, with gaps, in any order. */
static void places_draw(struct task *task, uint64_t *local)
{
	struct call *call = &task->call;
	int order[RANKS_MAX], place = below(local, 3), gap = below(local, 3);
	int how = below(local, 3);

	for (int i = 0; i < call->ranks; i++)
		order[i] = how == 1 ? call->ranks - 1 - i : i;
	for (int i = call->ranks - 1; i > 0 && how == 2; i--) {
		int other = below(local, i + 1), swapped = order[i];

		order[i] = order[other];
		order[other] = swapped;
	}
	for (int i = 0; i < call->ranks; i++) {
		call->places[order[i]] = place;
		place += call->counts[order[i]] + gap;
	}
}

void gatherv_draw(struct task *task, const struct basic *basic, struct draws *draws)
{
	struct call *call = &task->call;
	int each = 1 + below(&draws->shared, 3), own;
	/* MPICH 4.0 derives from the extent how parts are cut into pieces, and hangs likewise. */
	uint64_t *items = IS_OPEN_MPI ? &draws->local : &draws->shared;
	struct form form;

	counts_draw(task, elements_draw(task, basic, each, &draws->shared) / each,
		    &draws->shared);
	places_draw(task, &draws->local);
	form = each == 1 && is_one_in(items, 2) ? form_plain(basic)
						: form_draw(basic, each, MOVED_LAYOUTS, items);
	task->to.runs_count = call->ranks;
	for (int i = 0; i < call->ranks; i++)
		task->to.runs[i] = (struct run){ call->counts[i], call->places[i] };
	memory_make(&task->to, &form, where_draw(&draws->local));
	task->has_to = 1;
	memory_fill(&task->to, ANY_BYTES, &draws->local);
	call->to = (struct told){ task->to.told, 0, task->to.told_type };
	if (task->is_in_place) {
		call->from = IN_PLACE;
		return;
	}
	own = call->counts[task->on->rank] * each;
	if (!IS_SIZE_COMMON)
		each = split_draw(own, &draws->local);
	call->from = items_make(&task->from, basic, own, each, 1, &draws->local);
	task->has_from = 1;
	memory_fill(&task->from, ANY_BYTES, &draws->local);
}
