// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The calls that are taken over: gathers at all ranks, blocking and not. */
#include "shim.h"

/* True if the call is taken; gather is set then. */
static bool takes_allgather(struct shim_group *group, enum shim_way way,
			    struct shim_gather *gather, const void *from, MPI_Count from_count,
			    MPI_Datatype from_type, void *all, MPI_Count count, MPI_Datatype type)
{
	if (!group)
		return false;
	if (group->standing == SHIM_PASSED ||
	    !shim_gather_set(gather, group->size, from, from_count, from_type, all, count, type) ||
	    (way == SHIM_NONBLOCKING && gather->all.bytes > SHIM_STARTED_BYTES_MAX))
		return shim_pass(group, SHIM_ALLGATHER);
	return shim_is_taken(group, SHIM_ALLGATHER, way, gather->bytes);
}

SHIM_ENTRY int MPI_Allgather(const void *from, int from_count, MPI_Datatype from_type, void *all,
			     int count, MPI_Datatype type, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_gather gather;

	if (!takes_allgather(group, SHIM_BLOCKING, &gather, from, from_count, from_type, all,
			     count, type))
		return PMPI_Allgather(from, from_count, from_type, all, count, type, comm);
	return shim_allgather(group, &gather);
}

SHIM_ENTRY int MPI_Iallgather(const void *from, int from_count, MPI_Datatype from_type, void *all,
			      int count, MPI_Datatype type, MPI_Comm comm, MPI_Request *request)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_gather gather;

	if (!request || !takes_allgather(group, SHIM_NONBLOCKING, &gather, from, from_count,
					 from_type, all, count, type))
		return PMPI_Iallgather(from, from_count, from_type, all, count, type, comm,
				       request);
	return shim_iallgather(group, &gather, request);
}

#if MPI_VERSION >= 4
SHIM_ENTRY int MPI_Allgather_c(const void *from, MPI_Count from_count, MPI_Datatype from_type,
			       void *all, MPI_Count count, MPI_Datatype type, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_gather gather;

	if (!takes_allgather(group, SHIM_BLOCKING, &gather, from, from_count, from_type, all,
			     count, type))
		return PMPI_Allgather_c(from, from_count, from_type, all, count, type, comm);
	return shim_allgather(group, &gather);
}

SHIM_ENTRY int MPI_Iallgather_c(const void *from, MPI_Count from_count, MPI_Datatype from_type,
				void *all, MPI_Count count, MPI_Datatype type, MPI_Comm comm,
				MPI_Request *request)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_gather gather;

	if (!request || !takes_allgather(group, SHIM_NONBLOCKING, &gather, from, from_count,
					 from_type, all, count, type))
		return PMPI_Iallgather_c(from, from_count, from_type, all, count, type, comm,
					 request);
	return shim_iallgather(group, &gather, request);
}
#endif
