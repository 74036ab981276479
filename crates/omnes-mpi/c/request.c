// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Nonblocking calls. What is under way here is a generalized request to the
 * MPI, so that MPI_Wait, MPI_Test and all of their kin take it among others;
 * the MPI's progress asks it whether it has ended.
 */
#include <stdlib.h>

#include "shim.h"

/* A request that never ends: who asks for it lets the MPI move on. */
static MPI_Request endless;
static bool is_endless; /* it is there */

/* Not from the MPI's free function, where MPICH holds a lock of its own. */
static void request_let_go(struct shim_request *request)
{
	if (request->packed.bytes && request->receives)
		PMPI_Type_free(&request->packed.data.type);
	shim_packed_free(&request->packed);
}

static void request_free(struct shim_request *request)
{
	request_let_go(request);
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
	packed->data.count = 1;
	error = PMPI_Type_contiguous((int)data->count, data->type, &packed->data.type);
	if (error == MPI_SUCCESS) {
		error = PMPI_Type_commit(&packed->data.type);
		if (error != MPI_SUCCESS)
			PMPI_Type_free(&packed->data.type);
	}
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
	if (!data->is_in_a_row) {
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

static void request_complete(struct shim_request *request, int failure)
{
	if (failure != OMNES_SUCCESS)
		request->error = shim_failure_code();
	else if (request->packed.bytes && request->receives)
		request->error = shim_packed_spread(&request->packed);
	request_let_go(request);
	PMPI_Grequest_complete(request->handle);
}

bool shim_request_poll(struct shim_request *request)
{
	int is_done, failure = omnes_test(&request->under_way, &is_done);

	if (failure == OMNES_SUCCESS && !is_done)
		return false;
	request_complete(request, failure);
	return true;
}

void shim_request_wait(struct shim_request *request)
{
	request_complete(request, omnes_wait(&request->under_way));
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
	shim_host_forget(extra);
	request_free(extra);
	return MPI_SUCCESS;
}

/* Collective operations cannot be cancelled. */
int shim_request_cancel(void *extra, int complete)
{
	(void)extra, (void)complete;
	return MPI_SUCCESS;
}

static int endless_query(void *extra, MPI_Status *status)
{
	static struct shim_request nothing;

	(void)extra;
	return shim_request_query(&nothing, status);
}

static int endless_free(void *extra)
{
	(void)extra;
	return MPI_SUCCESS;
}

int shim_requests_begin(void)
{
	int error = PMPI_Grequest_start(endless_query, endless_free, shim_request_cancel, NULL,
					&endless);

	__atomic_store_n(&is_endless, error == MPI_SUCCESS, __ATOMIC_RELEASE);
	return error;
}

void shim_requests_move(void)
{
	int is_done;

	if (__atomic_load_n(&is_endless, __ATOMIC_ACQUIRE))
		PMPI_Request_get_status(endless, &is_done, MPI_STATUS_IGNORE);
}

void shim_requests_end(void)
{
	__atomic_store_n(&is_endless, false, __ATOMIC_RELEASE);
	PMPI_Grequest_complete(endless);
	PMPI_Wait(&endless, MPI_STATUS_IGNORE);
}
