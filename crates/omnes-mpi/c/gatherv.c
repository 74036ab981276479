// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Gathers at all ranks of parts of any lengths. They go round in a row, which is
 * made where the caller has them otherwise.
 */
#include <limits.h>
#include <stdlib.h>

#include "shim.h"

static MPI_Count count_of(const struct shim_gatherv *gather, int rank)
{
	return gather->counts ? gather->counts[rank] : gather->large_counts[rank];
}

static MPI_Aint place_of(const struct shim_gatherv *gather, int rank)
{
	return gather->places ? gather->places[rank] : gather->large_places[rank];
}

/* Items of all parts, or 0 for what MPI refuses. */
static MPI_Count count_all(const struct shim_gatherv *gather, int size)
{
	MPI_Count all = 0;

	if ((!gather->counts && !gather->large_counts) ||
	    (!gather->places && !gather->large_places))
		return 0;
	for (int rank = 0; rank < size; rank++) {
		MPI_Count count = count_of(gather, rank);

		if (count < 0 || count > INT_MAX)
			return 0;
		all += count;
	}
	return all;
}

bool shim_gatherv_set(struct shim_gatherv *gather, int rank, int size)
{
	MPI_Count all = count_all(gather, size);
	struct shim_data *own = &gather->own;

	if (all == 0 || !shim_data_set(&gather->all, gather->all.buffer, all, gather->all.type))
		return false;
	gather->item_bytes = gather->all.bytes / (size_t)all;
	gather->is_in_place = own->buffer == MPI_IN_PLACE;
	if (gather->is_in_place || count_of(gather, rank) == 0)
		return true;
	return shim_data_set(own, own->buffer, own->count, own->type) &&
	       own->bytes == (size_t)count_of(gather, rank) * gather->item_bytes;
}

/* Where a rank's part belongs. */
static struct shim_data part_of(const struct shim_gatherv *gather, int rank, MPI_Aint extent)
{
	struct shim_data part = gather->all;

	part.buffer = (char *)gather->all.buffer + place_of(gather, rank) * extent;
	part.count = count_of(gather, rank);
	part.bytes = (size_t)part.count * gather->item_bytes;
	return part;
}

/* True if the caller has all parts as they go round. */
static bool are_in_a_row(const struct shim_gatherv *gather, int size)
{
	MPI_Count next = 0;

	for (int rank = 0; rank < size && gather->all.is_in_a_row; rank++) {
		MPI_Count count = count_of(gather, rank);

		if (count > 0 && place_of(gather, rank) != next)
			return false;
		next += count;
	}
	return gather->all.is_in_a_row;
}

/* What a call needs besides: bytes of each rank's part, and all of them in a row. */
struct room {
	size_t *lengths;
	char *bytes; /* NULL where there is no memory */
	bool is_own; /* not the caller's */
};

static struct room room_make(const struct shim_gatherv *gather, int size)
{
	size_t lengths_bytes = (size_t)size * sizeof(size_t);
	struct room room = { .is_own = !are_in_a_row(gather, size) };

	room.lengths = malloc(lengths_bytes + (room.is_own ? gather->all.bytes : 0));
	if (!room.lengths)
		return room;
	room.bytes = room.is_own ? (char *)room.lengths + lengths_bytes : gather->all.buffer;
	for (int rank = 0; rank < size; rank++)
		room.lengths[rank] = (size_t)count_of(gather, rank) * gather->item_bytes;
	return room;
}

/* The caller's part, to its place among all. */
static int bring(const struct shim_gatherv *gather, char *bytes, int rank, MPI_Aint extent)
{
	struct shim_data own = gather->is_in_place ? part_of(gather, rank, extent) : gather->own;

	return count_of(gather, rank) > 0 ? shim_data_copy(bytes, &own) : MPI_SUCCESS;
}

/* The parts that came, to where they belong. */
static int spread(const struct shim_group *group, const struct shim_gatherv *gather,
		  const struct room *room, MPI_Aint extent)
{
	const char *bytes = room->bytes;
	int error = MPI_SUCCESS;

	for (int rank = 0; rank < group->size && error == MPI_SUCCESS; rank++) {
		struct shim_data part = part_of(gather, rank, extent);
		bool is_there = gather->is_in_place && rank == group->rank;

		if (part.count > 0 && !is_there)
			error = shim_data_spread(bytes, &part);
		bytes += room->lengths[rank];
	}
	return error;
}

static int gather_in(struct shim_group *group, const struct shim_gatherv *gather,
		     const struct room *room, MPI_Aint extent)
{
	char *own = room->bytes;
	int error;

	for (int rank = 0; rank < group->rank; rank++)
		own += room->lengths[rank];
	error = bring(gather, own, group->rank, extent);
	if (error != MPI_SUCCESS)
		return shim_failure_pass(group->mpi, error);
	if (omnes_allgatherv(group->comm, own, room->lengths[group->rank], room->bytes,
			     room->lengths) != OMNES_SUCCESS)
		return shim_failure_raise(group->mpi);
	error = room->is_own ? spread(group, gather, room, extent) : MPI_SUCCESS;
	return error == MPI_SUCCESS ? MPI_SUCCESS : shim_failure_pass(group->mpi, error);
}

int shim_allgatherv(struct shim_group *group, const struct shim_gatherv *gather)
{
	MPI_Count lower, extent;
	struct room room;
	int error = PMPI_Type_get_extent_x(gather->all.type, &lower, &extent);

	if (error != MPI_SUCCESS)
		return shim_failure_pass(group->mpi, error);
	room = room_make(gather, group->size);
	if (!room.bytes)
		return shim_failure_pass(group->mpi, MPI_ERR_NO_MEM);
	error = gather_in(group, gather, &room, (MPI_Aint)extent);
	free(room.lengths);
	return error;
}
