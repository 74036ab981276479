// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The calls that are taken over: reductions at all ranks and at one, blocking and not. */
#include "shim.h"

/* True if the call is taken; reduction is set then. */
static bool takes_allreduce(struct shim_group *group, enum shim_way way,
			    struct shim_reduction *reduction, const void *from, void *data,
			    MPI_Count count, MPI_Datatype type, MPI_Op op)
{
	if (!group)
		return false;
	if (group->standing == SHIM_PASSED ||
	    !shim_reduction_set(reduction, count, type, op) ||
	    !shim_reduction_place(reduction, from, data) ||
	    (way == SHIM_NONBLOCKING && reduction->bytes > SHIM_STARTED_BYTES_MAX))
		return shim_pass(group, SHIM_ALLREDUCE);
	return shim_is_taken(group, SHIM_ALLREDUCE, way, reduction->bytes);
}

/* The same of one whose result only root gets. */
static bool takes_reduce(struct shim_group *group, enum shim_way way,
			 struct shim_reduction *reduction, const void *from, void *data,
			 MPI_Count count, MPI_Datatype type, MPI_Op op, int root)
{
	if (!group)
		return false;
	if (group->standing == SHIM_PASSED || root < 0 || root >= group->size ||
	    !shim_reduction_set(reduction, count, type, op) ||
	    !(root == group->rank ? shim_reduction_place(reduction, from, data)
				  : shim_reduction_bring(reduction, from)))
		return shim_pass(group, SHIM_REDUCE);
	return shim_is_taken(group, SHIM_REDUCE, way, reduction->bytes);
}

SHIM_ENTRY int MPI_Allreduce(const void *from, void *data, int count, MPI_Datatype type, MPI_Op op,
			     MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_reduction reduction;

	if (!takes_allreduce(group, SHIM_BLOCKING, &reduction, from, data, count, type, op))
		return PMPI_Allreduce(from, data, count, type, op, comm);
	return shim_allreduce(group, &reduction);
}

SHIM_ENTRY int MPI_Iallreduce(const void *from, void *data, int count, MPI_Datatype type,
			      MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_reduction reduction;

	if (!request ||
	    !takes_allreduce(group, SHIM_NONBLOCKING, &reduction, from, data, count, type, op))
		return PMPI_Iallreduce(from, data, count, type, op, comm, request);
	return shim_iallreduce(group, &reduction, request);
}

SHIM_ENTRY int MPI_Reduce(const void *from, void *data, int count, MPI_Datatype type, MPI_Op op,
			  int root, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_reduction reduction;

	if (!takes_reduce(group, SHIM_BLOCKING, &reduction, from, data, count, type, op, root))
		return PMPI_Reduce(from, data, count, type, op, root, comm);
	return shim_reduce(group, &reduction, root);
}

SHIM_ENTRY int MPI_Ireduce(const void *from, void *data, int count, MPI_Datatype type, MPI_Op op,
			   int root, MPI_Comm comm, MPI_Request *request)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_reduction reduction;

	if (!request ||
	    !takes_reduce(group, SHIM_NONBLOCKING, &reduction, from, data, count, type, op, root))
		return PMPI_Ireduce(from, data, count, type, op, root, comm, request);
	return shim_ireduce(group, &reduction, root, request);
}

#if MPI_VERSION >= 4
SHIM_ENTRY int MPI_Allreduce_c(const void *from, void *data, MPI_Count count, MPI_Datatype type,
			       MPI_Op op, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_reduction reduction;

	if (!takes_allreduce(group, SHIM_BLOCKING, &reduction, from, data, count, type, op))
		return PMPI_Allreduce_c(from, data, count, type, op, comm);
	return shim_allreduce(group, &reduction);
}

SHIM_ENTRY int MPI_Iallreduce_c(const void *from, void *data, MPI_Count count, MPI_Datatype type,
				MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_reduction reduction;

	if (!request ||
	    !takes_allreduce(group, SHIM_NONBLOCKING, &reduction, from, data, count, type, op))
		return PMPI_Iallreduce_c(from, data, count, type, op, comm, request);
	return shim_iallreduce(group, &reduction, request);
}

SHIM_ENTRY int MPI_Reduce_c(const void *from, void *data, MPI_Count count, MPI_Datatype type,
			    MPI_Op op, int root, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_reduction reduction;

	if (!takes_reduce(group, SHIM_BLOCKING, &reduction, from, data, count, type, op, root))
		return PMPI_Reduce_c(from, data, count, type, op, root, comm);
	return shim_reduce(group, &reduction, root);
}

SHIM_ENTRY int MPI_Ireduce_c(const void *from, void *data, MPI_Count count, MPI_Datatype type,
			     MPI_Op op, int root, MPI_Comm comm, MPI_Request *request)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_reduction reduction;

	if (!request ||
	    !takes_reduce(group, SHIM_NONBLOCKING, &reduction, from, data, count, type, op, root))
		return PMPI_Ireduce_c(from, data, count, type, op, root, comm, request);
	return shim_ireduce(group, &reduction, root, request);
}
#endif
