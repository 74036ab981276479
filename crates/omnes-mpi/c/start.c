// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Start of nonblocking calls that are taken. The caller's memory belongs to the operation until its
 * completion; if that is not possible, the request has memory of its own.
 */
#include <stdlib.h>
#include <string.h>

#include "shim.h"

static struct shim_request *request_make(void)
{
	return calloc(1, sizeof(struct shim_request));
}

/* For a request that was not started. */
static int give_up(struct shim_group *group, struct shim_request *request, int error)
{
	shim_request_drop(request);
	return shim_raise_mpi(group->mpi, error);
}

/* Wraps a started request of libomnes in a request of the MPI, unless the start has failed. */
static int hand_over(struct shim_group *group, struct shim_request *request, int failure,
		     MPI_Request *handle)
{
	int error;

	if (failure != OMNES_SUCCESS) {
		shim_request_drop(request);
		return shim_raise_omnes(group->mpi);
	}
	error = shim_host_start(request);
	if (error == MPI_SUCCESS) {
		*handle = request->handle;
		return MPI_SUCCESS;
	}
	omnes_wait(&request->under_way);
	return give_up(group, request, error);
}

/* Packs data that are only sent. */
static int pack(struct shim_request *request, const struct shim_data *data)
{
	return shim_packed_make(&request->packed, data, true);
}

/*
 * Allocates room for received data, and packs the data into it if fills. They
 * are unpacked later, when the caller may have freed the type: a type of our
 * own keeps it alive.
 */
static int make_room(struct shim_request *request, const struct shim_data *data, bool fills)
{
	struct shim_packed *packed = &request->packed;
	int error = shim_packed_make(packed, data, fills);

	if (error != MPI_SUCCESS)
		return error;
	packed->data.count = 1;
	error = PMPI_Type_contiguous((int)data->count, data->type, &packed->data.type);
	if (error == MPI_SUCCESS) {
		error = PMPI_Type_commit(&packed->data.type);
		if (error != MPI_SUCCESS)
			PMPI_Type_free(&packed->data.type);
	}
	request->spreads = error == MPI_SUCCESS;
	return error;
}

int shim_ibarrier(struct shim_group *group, MPI_Request *handle)
{
	struct shim_request *request = request_make();

	if (!request)
		return shim_raise_mpi(group->mpi, MPI_ERR_NO_MEM);
	return hand_over(group, request, omnes_ibarrier(group->comm, &request->under_way),
			 handle);
}

int shim_ibcast(struct shim_group *group, const struct shim_data *data, int root,
		MPI_Request *handle)
{
	struct shim_request *request = request_make();
	void *bytes = data->buffer;
	int error;

	if (!request)
		return shim_raise_mpi(group->mpi, MPI_ERR_NO_MEM);
	if (!data->is_contiguous) {
		error = root == group->rank ? pack(request, data)
					    : make_room(request, data, false);
		if (error != MPI_SUCCESS)
			return give_up(group, request, error);
		bytes = request->packed.bytes;
	}
	return hand_over(group, request,
			 omnes_ibcast(group->comm, bytes, data->bytes, root,
				      &request->under_way),
			 handle);
}

int shim_iallreduce(struct shim_group *group, const struct shim_reduction *reduction,
		    MPI_Request *handle)
{
	struct shim_request *request = request_make();

	if (!request)
		return shim_raise_mpi(group->mpi, MPI_ERR_NO_MEM);
	shim_reduction_load(reduction, reduction->data);
	return hand_over(group, request,
			 omnes_iallreduce(group->comm, reduction->data, reduction->count,
					  reduction->type, reduction->op, &request->under_way),
			 handle);
}

int shim_ireduce(struct shim_group *group, const struct shim_reduction *reduction, int root,
		 MPI_Request *handle)
{
	struct shim_request *request = request_make();
	void *data = reduction->data;

	if (!request)
		return shim_raise_mpi(group->mpi, MPI_ERR_NO_MEM);
	if (!data) {
		/* The caller's data must not change. */
		data = request->packed.bytes = malloc(reduction->bytes);
		if (!data)
			return give_up(group, request, MPI_ERR_NO_MEM);
	}
	shim_reduction_load(reduction, data);
	return hand_over(group, request,
			 omnes_ireduce(group->comm, data, reduction->count, reduction->type,
				       reduction->op, root, &request->under_way),
			 handle);
}

int shim_iallgather(struct shim_group *group, const struct shim_parts *parts,
		    MPI_Request *handle)
{
	struct shim_request *request = request_make();
	char *bytes = parts->all.buffer, *own;
	int error;

	if (!request)
		return shim_raise_mpi(group->mpi, MPI_ERR_NO_MEM);
	if (!parts->all.is_contiguous) {
		error = make_room(request, &parts->all, parts->is_in_place);
		if (error != MPI_SUCCESS)
			return give_up(group, request, error);
		bytes = request->packed.bytes;
	}
	own = bytes + (size_t)group->rank * parts->bytes;
	error = parts->is_in_place ? MPI_SUCCESS : shim_data_copy(own, &parts->own);
	if (error != MPI_SUCCESS)
		return give_up(group, request, error);
	return hand_over(group, request,
			 omnes_iallgather(group->comm, own, bytes, parts->bytes,
					  &request->under_way),
			 handle);
}
