// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Nonblocking calls. What is under way here is a generalized request to the
 * MPI, so that MPI_Wait, MPI_Test and all of their kin take it among others;
 * the MPI's progress asks it whether it has ended.
 */
#include <stdlib.h>

#include "shim.h"

static void request_free(struct shim_request *request)
{
	if (request->packed.bytes && request->receives)
		PMPI_Type_free(&request->packed.data.type);
	shim_packed_free(&request->packed);
	free(request);
}

/*
 * Packs what the root sends. What others receive is put in its place later,
 * when the caller may have freed the type: a type of their own holds it.
 */
static int request_pack(struct shim_request *request, const struct shim_data *data)
{
	struct shim_packed *packed = &request->packed;
	int error = shim_packed_make(packed, data, !request->receives);

	if (error != MPI_SUCCESS || !request->receives)
		return error;
	error = PMPI_Type_contiguous(1, data->type, &packed->data.type);
	if (error == MPI_SUCCESS)
		error = PMPI_Type_commit(&packed->data.type);
	if (error != MPI_SUCCESS)
		shim_packed_free(packed);
	return error;
}

/* Hands a request that has been started to the MPI. */
static int request_hand_over(struct shim_group *group, struct shim_request *request,
			     MPI_Request *handle)
{
	int error = shim_host_start(request);

	if (error == MPI_SUCCESS) {
		*handle = request->handle;
		return MPI_SUCCESS;
	}
	omnes_wait(&request->under_way);
	request_free(request);
	return shim_failure_pass(group->mpi, error);
}

int shim_ibcast(struct shim_group *group, const struct shim_data *data, int root,
		MPI_Request *handle)
{
	struct shim_request *request = calloc(1, sizeof(*request));
	void *bytes = data->buffer;
	int error;

	if (!request)
		return shim_failure_pass(group->mpi, MPI_ERR_NO_MEM);
	request->receives = root != group->rank;
	if (!shim_data_is_in_a_row(data)) {
		error = request_pack(request, data);
		if (error != MPI_SUCCESS) {
			free(request);
			return shim_failure_pass(group->mpi, error);
		}
		bytes = request->packed.bytes;
	}
	if (omnes_ibcast(group->comm, bytes, data->bytes, root, &request->under_way) !=
	    OMNES_SUCCESS) {
		request_free(request);
		return shim_failure_raise(group->mpi);
	}
	return request_hand_over(group, request, handle);
}

int shim_ibarrier(struct shim_group *group, MPI_Request *handle)
{
	struct shim_request *request = calloc(1, sizeof(*request));

	if (!request)
		return shim_failure_pass(group->mpi, MPI_ERR_NO_MEM);
	if (omnes_ibarrier(group->comm, &request->under_way) != OMNES_SUCCESS) {
		request_free(request);
		return shim_failure_raise(group->mpi);
	}
	return request_hand_over(group, request, handle);
}

bool shim_request_poll(struct shim_request *request)
{
	int is_done;

	if (omnes_test(&request->under_way, &is_done) != OMNES_SUCCESS)
		request->error = shim_failure_code();
	else if (!is_done)
		return false;
	else if (request->packed.bytes && request->receives)
		request->error = shim_packed_spread(&request->packed);
	PMPI_Grequest_complete(request->handle);
	return true;
}

int shim_request_query(void *extra, MPI_Status *status)
{
	struct shim_request *request = extra;

	PMPI_Status_set_elements(status, MPI_BYTE, 0);
	PMPI_Status_set_cancelled(status, 0);
	status->MPI_SOURCE = MPI_UNDEFINED;
	status->MPI_TAG = MPI_UNDEFINED;
	return request->error;
}

int shim_request_free(void *extra)
{
	request_free(extra);
	return MPI_SUCCESS;
}

/* Collective operations cannot be cancelled. */
int shim_request_cancel(void *extra, int complete)
{
	(void)extra, (void)complete;
	return MPI_SUCCESS;
}
