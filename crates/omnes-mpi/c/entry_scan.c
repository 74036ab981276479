// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The entries for prefix reductions. */
#include "shim.h"

/* True if the call is taken; reduction is then set. */
static bool takes_scan(struct shim_group *group, struct shim_reduction *reduction,
		       const void *from, void *data, MPI_Count count, MPI_Datatype type, MPI_Op op)
{
	if (!group)
		return false;
	if (group->standing == SHIM_EXCLUDED || !shim_scan_set(reduction, count, type, op) ||
	    !shim_reduction_place(reduction, from, data))
		return shim_pass(group, SHIM_SCAN);
	return shim_take(group, SHIM_SCAN, SHIM_BLOCKING, reduction->bytes);
}

/*
 * The same for exscan, where the first rank gets no result; in place, its numbers are still in
 * data.
 */
static bool takes_exscan(struct shim_group *group, struct shim_reduction *reduction,
			 const void *from, void *data, MPI_Count count, MPI_Datatype type,
			 MPI_Op op)
{
	if (!group || group->rank > 0 || from == MPI_IN_PLACE)
		return takes_scan(group, reduction, from, data, count, type, op);
	if (group->standing == SHIM_EXCLUDED || !shim_scan_set(reduction, count, type, op) ||
	    !shim_reduction_bring(reduction, from))
		return shim_pass(group, SHIM_SCAN);
	return shim_take(group, SHIM_SCAN, SHIM_BLOCKING, reduction->bytes);
}

SHIM_ENTRY int MPI_Scan(const void *from, void *data, int count, MPI_Datatype type, MPI_Op op,
			MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_reduction reduction;

	if (!takes_scan(group, &reduction, from, data, count, type, op))
		return PMPI_Scan(from, data, count, type, op, comm);
	return shim_scan(group, &reduction);
}

SHIM_ENTRY int MPI_Exscan(const void *from, void *data, int count, MPI_Datatype type, MPI_Op op,
			  MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_reduction reduction;

	if (!takes_exscan(group, &reduction, from, data, count, type, op))
		return PMPI_Exscan(from, data, count, type, op, comm);
	return shim_exscan(group, &reduction);
}

#if MPI_VERSION >= 4
SHIM_ENTRY int MPI_Scan_c(const void *from, void *data, MPI_Count count, MPI_Datatype type,
			  MPI_Op op, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_reduction reduction;

	if (!takes_scan(group, &reduction, from, data, count, type, op))
		return PMPI_Scan_c(from, data, count, type, op, comm);
	return shim_scan(group, &reduction);
}

SHIM_ENTRY int MPI_Exscan_c(const void *from, void *data, MPI_Count count, MPI_Datatype type,
			    MPI_Op op, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_reduction reduction;

	if (!takes_exscan(group, &reduction, from, data, count, type, op))
		return PMPI_Exscan_c(from, data, count, type, op, comm);
	return shim_exscan(group, &reduction);
}
#endif
