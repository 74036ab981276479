// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Allgathers of parts of equal length. Every rank's part is copied to its place
 * among all parts, and gathered in place; if the parts are not contiguous, all
 * of them are packed together.
 */
#include <limits.h>

#include "shim.h"

/*
 * Completes data, which describe one part, for so many parts. False if there are none, and for
 * arguments that MPI rejects.
 */
static bool data_of_parts(struct shim_data *data, int parts)
{
	return data->count > 0 && data->count <= INT_MAX &&
	       shim_data_set(data, data->buffer, data->count * parts, data->type);
}

bool shim_parts_set(struct shim_parts *parts, int own_count, int all_count)
{
	if (all_count > 0 && !data_of_parts(&parts->all, all_count))
		return false;
	parts->is_in_place = all_count > 0 && parts->own.buffer == MPI_IN_PLACE;
	if (!parts->is_in_place && !data_of_parts(&parts->own, own_count))
		return false;
	parts->bytes = all_count > 0 ? parts->all.bytes / (size_t)all_count : parts->own.bytes;
	return parts->is_in_place || parts->own.bytes == parts->bytes * (size_t)own_count;
}

/* With all parts contiguous at bytes. */
static int allgather(struct shim_group *group, const struct shim_parts *parts, char *bytes)
{
	char *own = bytes + (size_t)group->rank * parts->bytes;
	int error = parts->is_in_place ? MPI_SUCCESS : shim_data_copy(own, &parts->own);

	if (error != MPI_SUCCESS)
		return shim_raise_mpi(group->mpi, error);
	if (omnes_allgather(group->comm, own, bytes, parts->bytes) != OMNES_SUCCESS)
		return shim_raise_omnes(group->mpi);
	return MPI_SUCCESS;
}

int shim_allgather(struct shim_group *group, const struct shim_parts *parts)
{
	struct shim_packed packed;
	int error;

	if (parts->all.is_contiguous)
		return allgather(group, parts, parts->all.buffer);
	error = shim_packed_make(&packed, &parts->all, parts->is_in_place);
	if (error != MPI_SUCCESS)
		return shim_raise_mpi(group->mpi, error);
	error = allgather(group, parts, packed.bytes);
	if (error == MPI_SUCCESS) {
		error = shim_packed_spread(&packed);
		if (error != MPI_SUCCESS)
			shim_raise_mpi(group->mpi, error);
	}
	shim_packed_free(&packed);
	return error;
}
