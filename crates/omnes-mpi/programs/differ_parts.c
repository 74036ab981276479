/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Broadcasts, gathers, scatters and all-to-alls of differ. */
#include "differ.h"

#define IN_PLACE ((struct told){ MPI_IN_PLACE, 0, MPI_BYTE })
#define NOTHING ((struct told){ NULL, 0, MPI_BYTE })

/* Memory for parts of so many elements, as items of `each` elements. */
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
 * Open MPI 4.1 derives the segments of a broadcast, and the algorithm of an allgatherv, from the
 * size of a rank's type: if it is not the same on all ranks, they hang.
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

/* Draws places for parts of different lengths, with gaps, in any order. */
static void places_draw(int places[], const int counts[], int ranks, uint64_t *local)
{
	int order[RANKS_MAX], place = below(local, 3), gap = below(local, 3);
	int how = below(local, 3);

	for (int i = 0; i < ranks; i++)
		order[i] = how == 1 ? ranks - 1 - i : i;
	for (int i = ranks - 1; i > 0 && how == 2; i--) {
		int other = below(local, i + 1), swapped = order[i];

		order[i] = order[other];
		order[other] = swapped;
	}
	for (int i = 0; i < ranks; i++) {
		places[order[i]] = place;
		place += counts[order[i]] + gap;
	}
}

/* Memory for parts of any lengths, in items of `each` elements. */
static struct told runs_make(struct memory *memory, const struct basic *basic, int each,
			     const int counts[], const int places[], int ranks, uint64_t *items,
			     uint64_t *local)
{
	struct form form = each == 1 && is_one_in(items, 2)
				   ? form_plain(basic)
				   : form_draw(basic, each, MOVED_LAYOUTS, items);

	memory->runs_count = ranks;
	for (int i = 0; i < ranks; i++)
		memory->runs[i] = (struct run){ counts[i], places[i] };
	memory_make(memory, &form, where_draw(local));
	memory_fill(memory, ANY_BYTES, local);
	return (struct told){ memory->told, 0, memory->told_type };
}

void gatherv_draw(struct task *task, const struct basic *basic, struct draws *draws)
{
	struct call *call = &task->call;
	int each = 1 + below(&draws->shared, 3), own;
	/* MPICH 4.0 derives the segments of parts from the extent, and hangs in the same way. */
	uint64_t *items = IS_OPEN_MPI ? &draws->local : &draws->shared;

	call->ranks = task->on->parts;
	counts_draw(call->counts, call->ranks,
		    elements_draw(task, basic, each, &draws->shared) / each, &draws->shared);
	places_draw(call->places, call->counts, call->ranks, &draws->local);
	call->to = runs_make(&task->to, basic, each, call->counts, call->places, call->ranks,
			     items, &draws->local);
	task->has_to = 1;
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

/* The side of the root, with the parts of all ranks, instead of a rank's single part. */
static void root_side_draw(struct task *task, const struct basic *basic, int each,
			   struct draws *draws)
{
	struct call *call = &task->call;
	int is_gather = call->kind == GATHERV;
	int *counts = is_gather ? call->counts : call->from_counts;
	int *places = is_gather ? call->places : call->from_places;
	struct memory *memory = is_gather ? &task->to : &task->from;

	places_draw(places, counts, call->ranks, &draws->local);
	*(is_gather ? &call->to : &call->from) = runs_make(memory, basic, each, counts, places,
							   call->ranks, &draws->local,
							   &draws->local);
	*(is_gather ? &task->has_to : &task->has_from) = 1;
}

static void rooted_pairs_draw(struct task *task, const struct basic *basic, int each, int usual,
			      struct draws *draws)
{
	struct call *call = &task->call;
	int is_gather = call->kind == GATHERV, is_root = call->root == task->on->rank;
	int *counts = is_gather ? call->counts : call->from_counts, own;

	counts_draw(counts, call->ranks, usual, &draws->shared);
	own = counts[task->on->rank] * each;
	call->from = call->to = NOTHING;
	if (is_root)
		root_side_draw(task, basic, each, draws);
	task->is_in_place = task->is_in_place && is_root;
	if (task->is_in_place)
		*(is_gather ? &call->from : &call->to) = IN_PLACE;
	else if (is_gather)
		from_draw(task, basic, own, 1, &draws->local);
	else
		to_draw(task, basic, own, 1, &draws->local);
}

static void alltoallv_draw(struct task *task, const struct basic *basic, int each, int usual,
			   struct draws *draws)
{
	struct call *call = &task->call;
	int counts[RANKS_MAX], rank = task->on->rank;

	task->is_in_place = 0;
	for (int from = 0; from < call->ranks; from++) {
		counts_draw(counts, call->ranks, usual, &draws->shared);
		call->counts[from] = counts[rank];
		for (int to = 0; from == rank && to < call->ranks; to++)
			call->from_counts[to] = counts[to];
	}
	places_draw(call->from_places, call->from_counts, call->ranks, &draws->local);
	places_draw(call->places, call->counts, call->ranks, &draws->local);
	call->from = runs_make(&task->from, basic, each, call->from_counts, call->from_places,
			       call->ranks, &draws->local, &draws->local);
	call->to = runs_make(&task->to, basic, each, call->counts, call->places, call->ranks,
			     &draws->local, &draws->local);
	task->has_from = task->has_to = 1;
}

void pairs_draw(struct task *task, const struct basic *basic, struct draws *draws)
{
	int each = 1 + below(&draws->shared, 3);
	int usual = elements_draw(task, basic, each, &draws->shared) / each;

	task->call.ranks = task->on->parts;
	if (task->call.kind == ALLTOALLV)
		alltoallv_draw(task, basic, each, usual, draws);
	else
		rooted_pairs_draw(task, basic, each, usual, draws);
}
