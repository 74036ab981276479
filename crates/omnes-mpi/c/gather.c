// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Gathers at all ranks. Every rank's part is put into its place, from where
 * all of them go round; parts that are to lie apart are packed as a whole.
 */
#include <limits.h>

#include "shim.h"

/* So many parts that were told of. False for none, and for what MPI refuses. */
static bool parts_set(struct shim_data *data, int parts)
{
	return data->count > 0 && data->count <= INT_MAX &&
	       shim_data_set(data, data->buffer, data->count * parts, data->type);
}

bool shim_gather_set(struct shim_gather *gather, int own_parts, int parts)
{
	if (parts > 0 && !parts_set(&gather->all, parts))
		return false;
	gather->is_in_place = parts > 0 && gather->own.buffer == MPI_IN_PLACE;
	if (!gather->is_in_place && !parts_set(&gather->own, own_parts))
		return false;
	gather->bytes = parts > 0 ? gather->all.bytes / (size_t)parts : gather->own.bytes;
	return gather->is_in_place || gather->own.bytes == gather->bytes * (size_t)own_parts;
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
