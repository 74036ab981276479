// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The entries for reductions at all ranks and at one, blocking and nonblocking. */
#include "shim.h"

/* A reduction that could be taken. */
struct call {
	bool is_of_numbers; /* otherwise the MPI combines */
	struct shim_reduction reduction;
	struct shim_combination combination;
};

/*
 * False if the call cannot be taken. A nonblocking call cannot if the MPI combines: it progresses
 * on a thread of libomnes, which must not call the MPI.
 */
static bool call_set(struct call *call, enum shim_way way, MPI_Count count, MPI_Datatype type,
		     MPI_Op op)
{
	call->is_of_numbers = shim_reduction_set(&call->reduction, count, type, op);
	return call->is_of_numbers ||
	       (way == SHIM_BLOCKING && shim_combination_set(&call->combination, count, type, op));
}

static bool call_place(struct call *call, const void *from, void *data)
{
	return call->is_of_numbers ? shim_reduction_place(&call->reduction, from, data)
				   : shim_combination_place(&call->combination, from, data);
}

static bool call_bring(struct call *call, const void *from)
{
	return call->is_of_numbers ? shim_reduction_bring(&call->reduction, from)
				   : shim_combination_bring(&call->combination, from);
}

static size_t call_bytes(const struct call *call)
{
	return call->is_of_numbers ? call->reduction.bytes : call->combination.brought.bytes;
}

/* True if the call is taken; call is then set. */
static bool takes_allreduce(struct shim_group *group, enum shim_way way, struct call *call,
			    const void *from, void *data, MPI_Count count, MPI_Datatype type,
			    MPI_Op op)
{
	if (!group)
		return false;
	if (group->standing == SHIM_EXCLUDED || !call_set(call, way, count, type, op) ||
	    !call_place(call, from, data) ||
	    (way == SHIM_NONBLOCKING && call_bytes(call) > SHIM_STARTED_BYTES_MAX))
		return shim_pass(group, SHIM_ALLREDUCE);
	return shim_take(group, SHIM_ALLREDUCE, way, call_bytes(call));
}

/* The same for a reduction at root. */
static bool takes_reduce(struct shim_group *group, enum shim_way way, struct call *call,
			 const void *from, void *data, MPI_Count count, MPI_Datatype type,
			 MPI_Op op, int root)
{
	if (!group)
		return false;
	if (group->standing == SHIM_EXCLUDED || root < 0 || root >= group->size ||
	    !call_set(call, way, count, type, op) ||
	    !(root == group->rank ? call_place(call, from, data) : call_bring(call, from)))
		return shim_pass(group, SHIM_REDUCE);
	return shim_take(group, SHIM_REDUCE, way, call_bytes(call));
}

static int allreduce(struct shim_group *group, const struct call *call)
{
	return call->is_of_numbers ? shim_allreduce(group, &call->reduction)
				   : shim_allcombine(group, &call->combination);
}

static int reduce(struct shim_group *group, const struct call *call, int root)
{
	return call->is_of_numbers ? shim_reduce(group, &call->reduction, root)
				   : shim_combine(group, &call->combination, root);
}

SHIM_ENTRY int MPI_Allreduce(const void *from, void *data, int count, MPI_Datatype type, MPI_Op op,
			     MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct call call;

	if (!takes_allreduce(group, SHIM_BLOCKING, &call, from, data, count, type, op))
		return PMPI_Allreduce(from, data, count, type, op, comm);
	return allreduce(group, &call);
}

SHIM_ENTRY int MPI_Iallreduce(const void *from, void *data, int count, MPI_Datatype type,
			      MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
	struct shim_group *group = shim_group_of(comm);
	struct call call;

	if (!request ||
	    !takes_allreduce(group, SHIM_NONBLOCKING, &call, from, data, count, type, op))
		return PMPI_Iallreduce(from, data, count, type, op, comm, request);
	return shim_iallreduce(group, &call.reduction, request);
}

SHIM_ENTRY int MPI_Reduce(const void *from, void *data, int count, MPI_Datatype type, MPI_Op op,
			  int root, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct call call;

	if (!takes_reduce(group, SHIM_BLOCKING, &call, from, data, count, type, op, root))
		return PMPI_Reduce(from, data, count, type, op, root, comm);
	return reduce(group, &call, root);
}

SHIM_ENTRY int MPI_Ireduce(const void *from, void *data, int count, MPI_Datatype type, MPI_Op op,
			   int root, MPI_Comm comm, MPI_Request *request)
{
	struct shim_group *group = shim_group_of(comm);
	struct call call;

	if (!request ||
	    !takes_reduce(group, SHIM_NONBLOCKING, &call, from, data, count, type, op, root))
		return PMPI_Ireduce(from, data, count, type, op, root, comm, request);
	return shim_ireduce(group, &call.reduction, root, request);
}

#if MPI_VERSION >= 4
SHIM_ENTRY int MPI_Allreduce_c(const void *from, void *data, MPI_Count count, MPI_Datatype type,
			       MPI_Op op, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct call call;

	if (!takes_allreduce(group, SHIM_BLOCKING, &call, from, data, count, type, op))
		return PMPI_Allreduce_c(from, data, count, type, op, comm);
	return allreduce(group, &call);
}

SHIM_ENTRY int MPI_Iallreduce_c(const void *from, void *data, MPI_Count count, MPI_Datatype type,
				MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
	struct shim_group *group = shim_group_of(comm);
	struct call call;

	if (!request ||
	    !takes_allreduce(group, SHIM_NONBLOCKING, &call, from, data, count, type, op))
		return PMPI_Iallreduce_c(from, data, count, type, op, comm, request);
	return shim_iallreduce(group, &call.reduction, request);
}

SHIM_ENTRY int MPI_Reduce_c(const void *from, void *data, MPI_Count count, MPI_Datatype type,
			    MPI_Op op, int root, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct call call;

	if (!takes_reduce(group, SHIM_BLOCKING, &call, from, data, count, type, op, root))
		return PMPI_Reduce_c(from, data, count, type, op, root, comm);
	return reduce(group, &call, root);
}

SHIM_ENTRY int MPI_Ireduce_c(const void *from, void *data, MPI_Count count, MPI_Datatype type,
			     MPI_Op op, int root, MPI_Comm comm, MPI_Request *request)
{
	struct shim_group *group = shim_group_of(comm);
	struct call call;

	if (!request ||
	    !takes_reduce(group, SHIM_NONBLOCKING, &call, from, data, count, type, op, root))
		return PMPI_Ireduce_c(from, data, count, type, op, root, comm, request);
	return shim_ireduce(group, &call.reduction, root, request);
}
#endif
