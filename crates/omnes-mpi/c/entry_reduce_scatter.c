// SPDX-License-Identifier: Apache-2.0 OR MIT
/* The entries for reduce-scatters with blocks of equal length. */
#include "shim.h"

/* Of all blocks together; for longer data, libomnes was slower than the MPI. */
#define BYTES_MAX ((size_t)8 << 10)

/* True if the call is taken; reduction is then set, for all blocks. */
static bool takes_blocks(struct shim_group *group, struct shim_reduction *reduction,
			 const void *from, void *data, MPI_Count count, MPI_Datatype type,
			 MPI_Op op)
{
	if (!group)
		return false;
	/* Longer blocks are passed, and must not overflow here. */
	if (group->standing == SHIM_EXCLUDED || count > INT32_MAX ||
	    !shim_reduction_set(reduction, count * group->size, type, op) ||
	    reduction->bytes > BYTES_MAX || !shim_reduction_place(reduction, from, data))
		return shim_pass(group, SHIM_REDUCE_SCATTER);
	return shim_take(group, SHIM_REDUCE_SCATTER, SHIM_BLOCKING, reduction->bytes);
}

SHIM_ENTRY int MPI_Reduce_scatter_block(const void *from, void *data, int count, MPI_Datatype type,
					MPI_Op op, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_reduction reduction;

	if (!takes_blocks(group, &reduction, from, data, count, type, op))
		return PMPI_Reduce_scatter_block(from, data, count, type, op, comm);
	return shim_reduce_scatter(group, &reduction);
}

/* NAME returns the common length of all blocks, or -1 if they differ. */
#define DEFINE_COMMON_COUNT(NAME, TYPE)                                                            \
	static MPI_Count NAME(const struct shim_group *group, const TYPE *counts)                  \
	{                                                                                          \
		for (int rank = 1; group && counts && rank < group->size; rank++)                  \
			if (counts[rank] != counts[0])                                             \
				return -1;                                                         \
		return group && counts ? counts[0] : -1;                                           \
	}

DEFINE_COMMON_COUNT(common_count, int)

SHIM_ENTRY int MPI_Reduce_scatter(const void *from, void *data, const int counts[],
				  MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_reduction reduction;

	if (!takes_blocks(group, &reduction, from, data, common_count(group, counts), type, op))
		return PMPI_Reduce_scatter(from, data, counts, type, op, comm);
	return shim_reduce_scatter(group, &reduction);
}

#if MPI_VERSION >= 4
SHIM_ENTRY int MPI_Reduce_scatter_block_c(const void *from, void *data, MPI_Count count,
					  MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_reduction reduction;

	if (!takes_blocks(group, &reduction, from, data, count, type, op))
		return PMPI_Reduce_scatter_block_c(from, data, count, type, op, comm);
	return shim_reduce_scatter(group, &reduction);
}

DEFINE_COMMON_COUNT(common_large_count, MPI_Count)

SHIM_ENTRY int MPI_Reduce_scatter_c(const void *from, void *data, const MPI_Count counts[],
				    MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_reduction reduction;

	if (!takes_blocks(group, &reduction, from, data, common_large_count(group, counts), type,
			  op))
		return PMPI_Reduce_scatter_c(from, data, counts, type, op, comm);
	return shim_reduce_scatter(group, &reduction);
}
#endif
