// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The entries for allgathers, blocking and nonblocking. */
#include "shim.h"

/* Of all parts together; longer data are passed: in labs, libomnes was hardly faster for them. */
#define BYTES_MAX ((size_t)512 << 10)

/*
 * True if the call is taken; parts, whose buffers, counts and types are given,
 * is then completed.
 */
static bool takes_allgather(struct shim_group *group, enum shim_way way, struct shim_parts *parts)
{
	size_t bytes_max = way == SHIM_NONBLOCKING ? SHIM_STARTED_BYTES_MAX : BYTES_MAX;

	if (!group)
		return false;
	if (group->standing == SHIM_EXCLUDED || !shim_parts_set(parts, 1, group->size) ||
	    parts->all.bytes > bytes_max)
		return shim_pass(group, SHIM_ALLGATHER);
	return shim_take(group, SHIM_ALLGATHER, way, parts->bytes);
}

SHIM_ENTRY int MPI_Allgather(const void *from, int from_count, MPI_Datatype from_type, void *all,
			     int count, MPI_Datatype type, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_parts parts = { .own = { (void *)from, from_count, from_type },
				    .all = { all, count, type } };

	if (!takes_allgather(group, SHIM_BLOCKING, &parts))
		return PMPI_Allgather(from, from_count, from_type, all, count, type, comm);
	return shim_allgather(group, &parts);
}

SHIM_ENTRY int MPI_Iallgather(const void *from, int from_count, MPI_Datatype from_type, void *all,
			      int count, MPI_Datatype type, MPI_Comm comm, MPI_Request *request)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_parts parts = { .own = { (void *)from, from_count, from_type },
				    .all = { all, count, type } };

	if (!request || !takes_allgather(group, SHIM_NONBLOCKING, &parts))
		return PMPI_Iallgather(from, from_count, from_type, all, count, type, comm,
				       request);
	return shim_iallgather(group, &parts, request);
}

/*
 * The same for parts of any lengths. The call is counted with their average length, rounded up: at
 * 0 bytes it would be passed.
 */
static bool takes_allgatherv(struct shim_group *group, struct shim_gatherv *gather)
{
	if (!group)
		return false;
	if (group->standing == SHIM_EXCLUDED ||
	    !shim_gatherv_set(gather, group->rank, group->size) || gather->bytes > BYTES_MAX)
		return shim_pass(group, SHIM_ALLGATHER);
	return shim_take(group, SHIM_ALLGATHER, SHIM_BLOCKING,
			 (gather->bytes - 1) / (size_t)group->size + 1);
}

SHIM_ENTRY int MPI_Allgatherv(const void *from, int from_count, MPI_Datatype from_type, void *all,
			      const int counts[], const int places[], MPI_Datatype type,
			      MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_gatherv gather = { .own = { (void *)from, from_count, from_type },
				       .all = { all, type, counts, places } };

	if (!takes_allgatherv(group, &gather))
		return PMPI_Allgatherv(from, from_count, from_type, all, counts, places, type,
				       comm);
	return shim_allgatherv(group, &gather);
}

#if MPI_VERSION >= 4
SHIM_ENTRY int MPI_Allgather_c(const void *from, MPI_Count from_count, MPI_Datatype from_type,
			       void *all, MPI_Count count, MPI_Datatype type, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_parts parts = { .own = { (void *)from, from_count, from_type },
				    .all = { all, count, type } };

	if (!takes_allgather(group, SHIM_BLOCKING, &parts))
		return PMPI_Allgather_c(from, from_count, from_type, all, count, type, comm);
	return shim_allgather(group, &parts);
}

SHIM_ENTRY int MPI_Iallgather_c(const void *from, MPI_Count from_count, MPI_Datatype from_type,
				void *all, MPI_Count count, MPI_Datatype type, MPI_Comm comm,
				MPI_Request *request)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_parts parts = { .own = { (void *)from, from_count, from_type },
				    .all = { all, count, type } };

	if (!request || !takes_allgather(group, SHIM_NONBLOCKING, &parts))
		return PMPI_Iallgather_c(from, from_count, from_type, all, count, type, comm,
					 request);
	return shim_iallgather(group, &parts, request);
}

SHIM_ENTRY int MPI_Allgatherv_c(const void *from, MPI_Count from_count, MPI_Datatype from_type,
				void *all, const MPI_Count counts[], const MPI_Aint places[],
				MPI_Datatype type, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_gatherv gather = { .own = { (void *)from, from_count, from_type },
				       .all = { all, type, .large_counts = counts,
						.large_places = places } };

	if (!takes_allgatherv(group, &gather))
		return PMPI_Allgatherv_c(from, from_count, from_type, all, counts, places, type,
					 comm);
	return shim_allgatherv(group, &gather);
}
#endif
