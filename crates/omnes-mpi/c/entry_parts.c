// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The entries for gathers, scatters and all-to-alls of parts of equal length. */
#include "shim.h"

/* Of a part; longer parts are passed: in labs, libomnes was hardly faster for them, or slower. */
#define GATHER_BYTES_MAX ((size_t)16 << 10)

/*
 * True if the call is taken; parts, whose buffers, counts and types are given, is then completed.
 * own_count and all_count are the numbers of parts in own and in all; all_count is 0 on ranks that
 * have no all.
 */
static bool takes(struct shim_group *group, enum shim_kind kind, struct shim_parts *parts,
		  int own_count, int all_count, size_t bytes_max)
{
	if (group->standing == SHIM_EXCLUDED || !shim_parts_set(parts, own_count, all_count) ||
	    parts->bytes > bytes_max)
		return shim_pass(group, kind);
	return shim_take(group, kind, SHIM_BLOCKING, parts->bytes);
}

static bool takes_at(struct shim_group *group, enum shim_kind kind, struct shim_parts *parts,
		     int root, size_t bytes_max)
{
	if (!group)
		return false;
	if (root < 0 || root >= group->size)
		return shim_pass(group, kind);
	return takes(group, kind, parts, 1, root == group->rank ? group->size : 0, bytes_max);
}

SHIM_ENTRY int MPI_Gather(const void *from, int from_count, MPI_Datatype from_type, void *all,
			  int count, MPI_Datatype type, int root, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_parts parts = { .own = { (void *)from, from_count, from_type },
				    .all = { all, count, type } };

	if (!takes_at(group, SHIM_GATHER, &parts, root, GATHER_BYTES_MAX))
		return PMPI_Gather(from, from_count, from_type, all, count, type, root, comm);
	return shim_gather(group, &parts, root);
}

SHIM_ENTRY int MPI_Scatter(const void *all, int count, MPI_Datatype type, void *to, int to_count,
			   MPI_Datatype to_type, int root, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_parts parts = { .own = { to, to_count, to_type },
				    .all = { (void *)all, count, type } };

	if (!takes_at(group, SHIM_SCATTER, &parts, root, SHIM_SCATTER_BYTES_MAX))
		return PMPI_Scatter(all, count, type, to, to_count, to_type, root, comm);
	return shim_scatter(group, &parts, root);
}

SHIM_ENTRY int MPI_Alltoall(const void *from, int from_count, MPI_Datatype from_type, void *to,
			    int count, MPI_Datatype type, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_parts parts = { .own = { (void *)from, from_count, from_type },
				    .all = { to, count, type } };

	if (!group || !takes(group, SHIM_ALLTOALL, &parts, group->size, group->size,
			     SHIM_ALLTOALL_BYTES_MAX))
		return PMPI_Alltoall(from, from_count, from_type, to, count, type, comm);
	return shim_alltoall(group, &parts);
}

#if MPI_VERSION >= 4
SHIM_ENTRY int MPI_Gather_c(const void *from, MPI_Count from_count, MPI_Datatype from_type,
			    void *all, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_parts parts = { .own = { (void *)from, from_count, from_type },
				    .all = { all, count, type } };

	if (!takes_at(group, SHIM_GATHER, &parts, root, GATHER_BYTES_MAX))
		return PMPI_Gather_c(from, from_count, from_type, all, count, type, root, comm);
	return shim_gather(group, &parts, root);
}

SHIM_ENTRY int MPI_Scatter_c(const void *all, MPI_Count count, MPI_Datatype type, void *to,
			     MPI_Count to_count, MPI_Datatype to_type, int root, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_parts parts = { .own = { to, to_count, to_type },
				    .all = { (void *)all, count, type } };

	if (!takes_at(group, SHIM_SCATTER, &parts, root, SHIM_SCATTER_BYTES_MAX))
		return PMPI_Scatter_c(all, count, type, to, to_count, to_type, root, comm);
	return shim_scatter(group, &parts, root);
}

SHIM_ENTRY int MPI_Alltoall_c(const void *from, MPI_Count from_count, MPI_Datatype from_type,
			      void *to, MPI_Count count, MPI_Datatype type, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_parts parts = { .own = { (void *)from, from_count, from_type },
				    .all = { to, count, type } };

	if (!group || !takes(group, SHIM_ALLTOALL, &parts, group->size, group->size,
			     SHIM_ALLTOALL_BYTES_MAX))
		return PMPI_Alltoall_c(from, from_count, from_type, to, count, type, comm);
	return shim_alltoall(group, &parts);
}
#endif
