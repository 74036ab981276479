/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Calls of differ, by MPI_ and PMPI_ names. */
#include "differ.h"

const char *const KIND_NAMES[KINDS] = {
	[BCAST] = "Bcast",
	[BARRIER] = "Barrier",
	[ALLREDUCE] = "Allreduce",
	[REDUCE] = "Reduce",
	[GATHER] = "Gather",
	[SCATTER] = "Scatter",
	[ALLTOALL] = "Alltoall",
	[ALLGATHER] = "Allgather",
	[ALLGATHERV] = "Allgatherv",
	[GATHERV] = "Gatherv",
	[SCATTERV] = "Scatterv",
	[ALLTOALLV] = "Alltoallv",
	[SCAN] = "Scan",
	[EXSCAN] = "Exscan",
	[REDUCE_SCATTER] = "Reduce_scatter",
	[REDUCE_SCATTER_BLOCK] = "Reduce_scatter_block",
};

int call_has_way(enum kind kind, enum way way)
{
	int is_started = kind <= REDUCE || kind == ALLGATHER;

	if (way == STARTED)
		return is_started;
#if MPI_VERSION >= 4
	return kind != BARRIER && (way != STARTED_LARGE || is_started);
#else
	return way == BLOCKING;
#endif
}

/* A function by either name. */
#define BOTH(name) (names == MPI ? MPI_##name : PMPI_##name)

/* Arguments common to many calls. */
#define FROM call->from.buffer, call->from.count, call->from.type
#define TO call->to.buffer, call->to.count, call->to.type
#define BUFFERS call->from.buffer, call->to.buffer
#define NUMBERS BUFFERS, call->from.count, call->from.type, call->op
#define COUNTED BUFFERS, call->counts, call->from.type, call->op
#define COMM call->comm
#define ROOT call->root, call->comm

static int blocking(const struct call *call, enum names names)
{
	switch (call->kind) {
	case BCAST:
		return BOTH(Bcast)(TO, ROOT);
	case BARRIER:
		return BOTH(Barrier)(COMM);
	case ALLREDUCE:
		return BOTH(Allreduce)(NUMBERS, COMM);
	case REDUCE:
		return BOTH(Reduce)(NUMBERS, ROOT);
	case GATHER:
		return BOTH(Gather)(FROM, TO, ROOT);
	case SCATTER:
		return BOTH(Scatter)(FROM, TO, ROOT);
	case ALLTOALL:
		return BOTH(Alltoall)(FROM, TO, COMM);
	case ALLGATHER:
		return BOTH(Allgather)(FROM, TO, COMM);
	case ALLGATHERV:
		return BOTH(Allgatherv)(FROM, call->to.buffer, call->counts, call->places,
					call->to.type, COMM);
	case GATHERV:
		return BOTH(Gatherv)(FROM, call->to.buffer, call->counts, call->places,
				     call->to.type, ROOT);
	case SCATTERV:
		return BOTH(Scatterv)(call->from.buffer, call->from_counts, call->from_places,
				      call->from.type, TO, ROOT);
	case ALLTOALLV:
		return BOTH(Alltoallv)(call->from.buffer, call->from_counts, call->from_places,
				       call->from.type, call->to.buffer, call->counts,
				       call->places, call->to.type, COMM);
	case SCAN:
		return BOTH(Scan)(NUMBERS, COMM);
	case EXSCAN:
		return BOTH(Exscan)(NUMBERS, COMM);
	case REDUCE_SCATTER:
		return BOTH(Reduce_scatter)(COUNTED, COMM);
	default:
		return BOTH(Reduce_scatter_block)(NUMBERS, COMM);
	}
}

static int started(const struct call *call, enum names names, MPI_Request *request)
{
	switch (call->kind) {
	case BCAST:
		return BOTH(Ibcast)(TO, ROOT, request);
	case BARRIER:
		return BOTH(Ibarrier)(COMM, request);
	case ALLREDUCE:
		return BOTH(Iallreduce)(NUMBERS, COMM, request);
	case REDUCE:
		return BOTH(Ireduce)(NUMBERS, ROOT, request);
	default:
		return BOTH(Iallgather)(FROM, TO, COMM, request);
	}
}

#if MPI_VERSION >= 4
static int large_counted(const struct call *call, enum names names)
{
	MPI_Count counts[RANKS_MAX], from_counts[RANKS_MAX];
	MPI_Aint places[RANKS_MAX], from_places[RANKS_MAX];

	for (int i = 0; i < call->ranks; i++) {
		counts[i] = call->counts[i], places[i] = call->places[i];
		from_counts[i] = call->from_counts[i], from_places[i] = call->from_places[i];
	}
	switch (call->kind) {
	case ALLGATHERV:
		return BOTH(Allgatherv_c)(FROM, call->to.buffer, counts, places, call->to.type,
					  COMM);
	case GATHERV:
		return BOTH(Gatherv_c)(FROM, call->to.buffer, counts, places, call->to.type, ROOT);
	case SCATTERV:
		return BOTH(Scatterv_c)(call->from.buffer, from_counts, from_places,
					call->from.type, TO, ROOT);
	case ALLTOALLV:
		return BOTH(Alltoallv_c)(call->from.buffer, from_counts, from_places,
					 call->from.type, call->to.buffer, counts, places,
					 call->to.type, COMM);
	default:
		return BOTH(Reduce_scatter_c)(BUFFERS, counts, call->from.type, call->op, COMM);
	}
}

static int large(const struct call *call, enum names names)
{
	switch (call->kind) {
	case BCAST:
		return BOTH(Bcast_c)(TO, ROOT);
	case ALLREDUCE:
		return BOTH(Allreduce_c)(NUMBERS, COMM);
	case REDUCE:
		return BOTH(Reduce_c)(NUMBERS, ROOT);
	case GATHER:
		return BOTH(Gather_c)(FROM, TO, ROOT);
	case SCATTER:
		return BOTH(Scatter_c)(FROM, TO, ROOT);
	case ALLTOALL:
		return BOTH(Alltoall_c)(FROM, TO, COMM);
	case ALLGATHER:
		return BOTH(Allgather_c)(FROM, TO, COMM);
	case SCAN:
		return BOTH(Scan_c)(NUMBERS, COMM);
	case EXSCAN:
		return BOTH(Exscan_c)(NUMBERS, COMM);
	case REDUCE_SCATTER_BLOCK:
		return BOTH(Reduce_scatter_block_c)(NUMBERS, COMM);
	default:
		return large_counted(call, names);
	}
}

static int started_large(const struct call *call, enum names names, MPI_Request *request)
{
	switch (call->kind) {
	case BCAST:
		return BOTH(Ibcast_c)(TO, ROOT, request);
	case ALLREDUCE:
		return BOTH(Iallreduce_c)(NUMBERS, COMM, request);
	case REDUCE:
		return BOTH(Ireduce_c)(NUMBERS, ROOT, request);
	default:
		return BOTH(Iallgather_c)(FROM, TO, COMM, request);
	}
}
#endif

int call_make(const struct call *call, enum names names, MPI_Request *request)
{
	switch (call->way) {
	case STARTED:
		return started(call, names, request);
#if MPI_VERSION >= 4
	case LARGE:
		return large(call, names);
	case STARTED_LARGE:
		return started_large(call, names, request);
#endif
	default:
		return blocking(call, names);
	}
}
