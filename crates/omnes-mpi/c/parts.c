// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Gathers, scatters and all-to-alls of parts of equal length. libomnes requires
 * contiguous parts, and separate memory for sent and received data.
 */
#include <stdlib.h>
#include <string.h>

#include "shim.h"

/* Allocates memory with a copy of length bytes at bytes. */
static int copy_make(struct shim_packed *row, const void *bytes, size_t length)
{
	*row = (struct shim_packed){ .bytes = malloc(length) };
	if (!row->bytes)
		return MPI_ERR_NO_MEM;
	memcpy(row->bytes, bytes, length);
	return MPI_SUCCESS;
}

/* For a call that was not started. */
static int give_up(struct shim_group *group, struct shim_packed *row, int error)
{
	shim_row_free(row);
	return shim_raise_mpi(group->mpi, error);
}

/* After the call: frees memory that was only sent. */
static int end_sent(struct shim_group *group, struct shim_packed *row, int failure)
{
	shim_row_free(row);
	return failure == OMNES_SUCCESS ? MPI_SUCCESS : shim_raise_omnes(group->mpi);
}

/* After the call: unpacks received data to their place. */
static int end_come(struct shim_group *group, struct shim_packed *row, int failure)
{
	int error = MPI_SUCCESS;

	if (failure == OMNES_SUCCESS && !row->data.is_contiguous)
		error = shim_packed_spread(row);
	if (error != MPI_SUCCESS)
		return give_up(group, row, error);
	return end_sent(group, row, failure);
}

static bool overlap(const struct shim_data *a, const struct shim_data *b)
{
	uintptr_t a_begin = (uintptr_t)a->buffer, b_begin = (uintptr_t)b->buffer;

	return a_begin < b_begin + b->bytes && b_begin < a_begin + a->bytes;
}

/*
 * The caller's own part. MPI forbids that it overlaps all without MPI_IN_PLACE, but not all MPIs
 * enforce this, and perhaps only one rank does so: then the part gets separate memory, so that its
 * contents before the call are sent.
 */
static struct shim_data own_of(const struct shim_parts *parts)
{
	struct shim_data own = parts->own;

	if (parts->all.is_contiguous && overlap(&own, &parts->all))
		own.is_contiguous = false;
	return own;
}

/*
 * The data that the caller sends, separate from all; in_place is their address if they are in
 * place.
 */
static int sent_make(struct shim_packed *sent, const struct shim_parts *parts,
		     const char *in_place, size_t length)
{
	struct shim_data own = own_of(parts);

	if (parts->is_in_place)
		return copy_make(sent, in_place, length);
	return shim_row_make(sent, &own, true);
}

static int gather_here(struct shim_group *group, const struct shim_parts *parts)
{
	struct shim_packed all, own;
	int error = shim_row_make(&all, &parts->all, parts->is_in_place), failure;

	if (error != MPI_SUCCESS)
		return shim_raise_mpi(group->mpi, error);
	error = sent_make(&own, parts, (char *)all.bytes + (size_t)group->rank * parts->bytes,
			  parts->bytes);
	if (error != MPI_SUCCESS)
		return give_up(group, &all, error);
	failure = omnes_gather(group->comm, own.bytes, all.bytes, parts->bytes, group->rank);
	shim_row_free(&own);
	return end_come(group, &all, failure);
}

int shim_gather(struct shim_group *group, const struct shim_parts *parts, int root)
{
	struct shim_packed own;
	int error;

	if (root == group->rank)
		return gather_here(group, parts);
	error = shim_row_make(&own, &parts->own, true);
	if (error != MPI_SUCCESS)
		return shim_raise_mpi(group->mpi, error);
	return end_sent(group, &own,
			omnes_gather(group->comm, own.bytes, NULL, parts->bytes, root));
}

static int scatter_from_here(struct shim_group *group, const struct shim_parts *parts)
{
	size_t place = (size_t)group->rank * parts->bytes;
	struct shim_data own_data = own_of(parts);
	struct shim_packed all, own;
	int error = shim_row_make(&all, &parts->all, true), failure;

	if (error != MPI_SUCCESS)
		return shim_raise_mpi(group->mpi, error);
	/*
	 * A part that stays in place is received nevertheless, into memory that is then discarded.
	 */
	if (parts->is_in_place)
		error = copy_make(&own, (char *)all.bytes + place, parts->bytes);
	else
		error = shim_row_make(&own, &own_data, false);
	if (error != MPI_SUCCESS)
		return give_up(group, &all, error);
	failure = omnes_scatter(group->comm, all.bytes, own.bytes, parts->bytes, group->rank);
	shim_row_free(&all);
	return parts->is_in_place ? end_sent(group, &own, failure)
				  : end_come(group, &own, failure);
}

int shim_scatter(struct shim_group *group, const struct shim_parts *parts, int root)
{
	struct shim_packed own;
	int error;

	if (root == group->rank)
		return scatter_from_here(group, parts);
	error = shim_row_make(&own, &parts->own, false);
	if (error != MPI_SUCCESS)
		return shim_raise_mpi(group->mpi, error);
	return end_come(group, &own,
			omnes_scatter(group->comm, NULL, own.bytes, parts->bytes, root));
}

int shim_alltoall(struct shim_group *group, const struct shim_parts *parts)
{
	struct shim_packed all, own;
	int error = shim_row_make(&all, &parts->all, parts->is_in_place), failure;

	if (error != MPI_SUCCESS)
		return shim_raise_mpi(group->mpi, error);
	error = sent_make(&own, parts, all.bytes, parts->all.bytes);
	if (error != MPI_SUCCESS)
		return give_up(group, &all, error);
	failure = omnes_alltoall(group->comm, own.bytes, all.bytes, parts->bytes);
	shim_row_free(&own);
	return end_come(group, &all, failure);
}
