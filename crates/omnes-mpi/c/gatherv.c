// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Allgathers of parts of any lengths. They are gathered in contiguous memory, which is allocated if
 * the caller's parts are not contiguous.
 */
#include <limits.h>
#include <stdlib.h>

#include "shim.h"

bool shim_gatherv_set(struct shim_gatherv *gather, int rank, int size)
{
	struct shim_layout *all = &gather->all;
	struct shim_data *own = &gather->own, part;

	if (!shim_layout_set(all, size) || all->count == 0 || all->item_bytes == 0 ||
	    (size_t)all->count > INT_MAX / all->item_bytes)
		return false;
	gather->bytes = (size_t)all->count * all->item_bytes;
	gather->is_in_place = own->buffer == MPI_IN_PLACE;
	part = shim_layout_part(all, rank);
	if (gather->is_in_place || part.count == 0)
		return true;
	return shim_data_set(own, own->buffer, own->count, own->type) && own->bytes == part.bytes;
}

/* Memory that a call needs: length of each rank's part in bytes, and all parts, contiguous. */
struct room {
	size_t *lengths;
	char *bytes; /* NULL if out of memory */
	bool is_own; /* bytes is not the caller's memory */
};

static struct room room_make(const struct shim_gatherv *gather, int size)
{
	size_t lengths_bytes = (size_t)size * sizeof(size_t);
	struct room room = { .is_own = !shim_layout_is_a_row(&gather->all, size) };

	room.lengths = malloc(lengths_bytes + (room.is_own ? gather->bytes : 0));
	if (!room.lengths)
		return room;
	room.bytes = room.is_own ? (char *)room.lengths + lengths_bytes : gather->all.buffer;
	for (int rank = 0; rank < size; rank++)
		room.lengths[rank] = shim_layout_part(&gather->all, rank).bytes;
	return room;
}

/* Copies the caller's part to its place among all parts. */
static int bring(const struct shim_gatherv *gather, char *bytes, int rank)
{
	struct shim_data part = shim_layout_part(&gather->all, rank);

	if (part.count == 0)
		return MPI_SUCCESS;
	return shim_data_copy(bytes, gather->is_in_place ? &part : &gather->own);
}

/* Unpacks the received parts to their places. */
static int spread(const struct shim_group *group, const struct shim_gatherv *gather,
		  const struct room *room)
{
	const char *bytes = room->bytes;
	int error = MPI_SUCCESS;

	for (int rank = 0; rank < group->size && error == MPI_SUCCESS; rank++) {
		struct shim_data part = shim_layout_part(&gather->all, rank);
		bool is_there = gather->is_in_place && rank == group->rank;

		if (part.count > 0 && !is_there)
			error = shim_data_spread(bytes, &part);
		bytes += part.bytes;
	}
	return error;
}

static int gather_in(struct shim_group *group, const struct shim_gatherv *gather,
		     const struct room *room)
{
	char *own = room->bytes;
	int error;

	for (int rank = 0; rank < group->rank; rank++)
		own += room->lengths[rank];
	error = bring(gather, own, group->rank);
	if (error != MPI_SUCCESS)
		return shim_raise_mpi(group->mpi, error);
	if (omnes_allgatherv(group->comm, own, room->lengths[group->rank], room->bytes,
			     room->lengths) != OMNES_SUCCESS)
		return shim_raise_omnes(group->mpi);
	error = room->is_own ? spread(group, gather, room) : MPI_SUCCESS;
	return error == MPI_SUCCESS ? MPI_SUCCESS : shim_raise_mpi(group->mpi, error);
}

int shim_allgatherv(struct shim_group *group, const struct shim_gatherv *gather)
{
	struct room room = room_make(gather, group->size);
	int error;

	if (!room.bytes)
		return shim_raise_mpi(group->mpi, MPI_ERR_NO_MEM);
	error = gather_in(group, gather, &room);
	free(room.lengths);
	return error;
}
