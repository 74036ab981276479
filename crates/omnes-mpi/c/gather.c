// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Gathers at all ranks. Every rank's part is put into its place, from where
 * all of them go round; parts that are to lie apart are packed as a whole.
 */
#include "shim.h"

/* Of all parts together; longer data are passed, which labs showed to be hardly faster here. */
#define BYTES_MAX ((MPI_Count)512 << 10)

bool shim_gather_set(struct shim_gather *gather, int size, const void *from, MPI_Count from_count,
		     MPI_Datatype from_type, void *all, MPI_Count count, MPI_Datatype type)
{
	if (count <= 0 || count > BYTES_MAX ||
	    !shim_data_set(&gather->all, all, count * size, type) ||
	    gather->all.bytes > (size_t)BYTES_MAX)
		return false;
	gather->bytes = gather->all.bytes / (size_t)size;
	gather->is_in_place = from == MPI_IN_PLACE;
	return gather->is_in_place ||
	       (shim_data_set(&gather->own, (void *)from, from_count, from_type) &&
		gather->own.bytes == gather->bytes);
}

/* With all parts in a row at bytes. */
static int allgather(struct shim_group *group, const struct shim_gather *gather, char *bytes)
{
	char *own = bytes + (size_t)group->rank * gather->bytes;
	int error = gather->is_in_place ? MPI_SUCCESS : shim_data_copy(own, &gather->own);

	if (error != MPI_SUCCESS)
		return shim_failure_pass(group->mpi, error);
	if (omnes_allgather(group->comm, own, bytes, gather->bytes) != OMNES_SUCCESS)
		return shim_failure_raise(group->mpi);
	return MPI_SUCCESS;
}

int shim_allgather(struct shim_group *group, const struct shim_gather *gather)
{
	struct shim_packed packed;
	int error;

	if (gather->all.is_in_a_row)
		return allgather(group, gather, gather->all.buffer);
	error = shim_packed_make(&packed, &gather->all, gather->is_in_place);
	if (error != MPI_SUCCESS)
		return shim_failure_pass(group->mpi, error);
	error = allgather(group, gather, packed.bytes);
	if (error == MPI_SUCCESS) {
		error = shim_packed_spread(&packed);
		if (error != MPI_SUCCESS)
			shim_failure_pass(group->mpi, error);
	}
	shim_packed_free(&packed);
	return error;
}
