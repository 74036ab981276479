/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Lengths of the data of differ. */
#include "differ.h"

enum { BYTES_MAX = 640 << 10 /* of a call's data on one rank */ };

/* Draws a length above which libraries often treat data differently, in particular in this call. */
static int limit_draw(const struct task *task, uint64_t *generator)
{
	static const int LIMITS[] = { 256, 1024, 4096, 16384, 65536, 524288 };
	static const int LIMITS_OF[KINDS] = {
		[BCAST] = 16384,
		[ALLREDUCE] = 65536,
		[REDUCE] = 65536,
		[GATHER] = 16384,
		[SCATTER] = 4096,
		[ALLTOALL] = 4096,
		[ALLGATHER] = 524288,
		[ALLGATHERV] = 524288,
		[GATHERV] = 16384,
		[SCATTERV] = 4096,
		[ALLTOALLV] = 4096,
		[SCAN] = 1024,
		[EXSCAN] = 1024,
		[REDUCE_SCATTER] = 8192,
		[REDUCE_SCATTER_BLOCK] = 8192,
	};
	int is_started = task->call.way == STARTED || task->call.way == STARTED_LARGE;

	if (is_one_in(generator, 4))
		return *DRAW(generator, LIMITS);
	return is_started || is_one_in(generator, 4) ? 1024 : LIMITS_OF[task->call.kind];
}

/* Bytes of a part: none, few, or around a limit of a part, or of all parts. */
static int bytes_draw(const struct task *task, uint64_t *generator)
{
	int limit = limit_draw(task, generator), all = task->on->all;

	switch (below(generator, 16)) {
	case 0:
		return 0;
	case 1:
	case 2:
	case 3:
		return 1 + below(generator, 100);
	case 4:
		return limit;
	case 5:
		return limit + 1 + below(generator, limit / 4);
	case 6:
	case 7:
		return limit / all;
	case 8:
		return limit / all + below(generator, 64);
	case 9:
	case 10:
		return below(generator, limit);
	default:
		return 1 + below(generator, limit / all);
	}
}

/*
 * In Open MPI 4.1, a rank's longer data for itself lose their end if there are gaps on both sides.
 */
enum { OWN_BYTES_MAX = 64 << 10 };

static int bytes_max_of(const struct task *task)
{
	int bytes_max = BYTES_MAX / task->on->all, kind = (int)task->call.kind;
	int is_own = kind >= GATHER && kind <= ALLTOALLV;

	return IS_OPEN_MPI && is_own && bytes_max > OWN_BYTES_MAX ? OWN_BYTES_MAX : bytes_max;
}

int elements_draw(const struct task *task, const struct basic *basic, int each,
		  uint64_t *generator)
{
	int bytes = bytes_draw(task, generator), item = basic->bytes * each;
	int bytes_max = bytes_max_of(task);
	/* Exactly at a limit, or one item above. */
	int more = bytes % item ? 1 : below(generator, 2);
	int items = bytes / item + (bytes > 0 ? more : 0);

	return (items * item > bytes_max ? bytes_max / item : items) * each;
}

int split_draw(int elements, uint64_t *generator)
{
	int each = elements;

	if (elements == 0 || is_one_in(generator, 3))
		return 1;
	if (is_one_in(generator, 2))
		return elements;
	for (each = 2 + below(generator, 6); elements % each; each--)
		;
	return each;
}

void counts_draw(int counts[], int ranks, int usual, uint64_t *shared)
{
	int is_even = below(shared, 3) > 0;

	for (int rank = 0; rank < ranks; rank++)
		counts[rank] = is_even || is_one_in(shared, 2) ? usual : below(shared, usual + 1);
}
