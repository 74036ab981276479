// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Nonblocking calls in progress. Each is a generalized request of the MPI, so
 * that MPI_Wait, MPI_Test and all their variants accept it among other
 * requests; the MPI's progress polls it for completion.
 */
#include <stdlib.h>

#include "shim.h"

/* A request that never completes: testing it makes the MPI progress. */
static MPI_Request endless;
static bool is_endless; /* endless is valid */

/* Must not be called from the MPI's free function, during which MPICH holds a lock of its own. */
static void request_let_go(struct shim_request *request)
{
	if (request->spreads)
		PMPI_Type_free(&request->packed.data.type);
	request->spreads = false;
	shim_packed_free(&request->packed);
}

void shim_request_drop(struct shim_request *request)
{
	request_let_go(request);
	free(request);
}

static void request_complete(struct shim_request *request, int failure)
{
	if (failure != OMNES_SUCCESS)
		request->error = shim_failure_code();
	else if (request->spreads)
		request->error = shim_packed_spread(&request->packed);
	request_let_go(request);
	PMPI_Grequest_complete(request->handle);
}

/*
 * Takes the request for one thread, which completes it or puts it back. NULL if another thread has
 * it, or has completed it.
 */
static omnes_request *request_take(struct shim_request *request)
{
	return __atomic_exchange_n(&request->under_way, NULL, __ATOMIC_ACQUIRE);
}

bool shim_request_poll(struct shim_request *request)
{
	omnes_request *taken = request_take(request);
	int is_done, failure;

	if (!taken)
		return false;
	failure = omnes_test(&taken, &is_done);
	if (failure == OMNES_SUCCESS && !is_done) {
		__atomic_store_n(&request->under_way, taken, __ATOMIC_RELEASE);
		return false;
	}
	request_complete(request, failure);
	return true;
}

bool shim_request_wait(struct shim_request *request)
{
	omnes_request *taken = request_take(request);

	if (!taken)
		return false;
	request_complete(request, omnes_wait(&taken));
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
	shim_host_forget(extra);
	shim_request_drop(extra);
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
