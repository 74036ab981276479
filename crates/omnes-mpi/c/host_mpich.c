// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * MPICH: a generalized request may have functions that all calls that test it,
 * or wait for it, call. Only MPI_Request_get_status does not, so it is taken
 * over, too.
 */
#include "shim.h"

#ifdef MPICH
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shim_request *requests;

bool shim_host_fits(const char *library)
{
	return strncmp(library, "MPICH", 5) == 0;
}

/* Checks the upper bits of a handle: its storage class, 0 if invalid, and its kind of object. */
static bool is_of(int handle, unsigned kind)
{
	unsigned bits = (unsigned)handle;

	return bits >> 30 != 0 && (bits >> 26 & 15) == kind;
}

bool shim_host_is_datatype(MPI_Datatype type)
{
	return is_of(type, 3);
}

bool shim_host_is_op(MPI_Op op)
{
	return is_of(op, 6);
}

bool shim_host_has_requests(void)
{
	return dlsym(RTLD_DEFAULT, "PMPIX_Grequest_start") != NULL;
}

static int request_poll(void *extra, MPI_Status *status)
{
	struct shim_request *request = extra;

	(void)status;
	/* MPI_Wait polls nothing else: the MPI progresses only if we make it. */
	if (__atomic_load_n(&request->under_way, __ATOMIC_RELAXED) && !shim_request_poll(request))
		shim_requests_move();
	return MPI_SUCCESS;
}

/* For sets of requests that are all ours. */
static int request_wait(int count, void **extras, double timeout_s, MPI_Status *status)
{
	int at;

	(void)timeout_s, (void)status;
	for (at = 0; at < count; at++) {
		/* If another thread polls it, MPI_Waitall calls us again. */
		if (!shim_request_wait(extras[at]))
			shim_requests_move();
	}
	return MPI_SUCCESS;
}

int shim_host_start(struct shim_request *request)
{
	int error = PMPIX_Grequest_start(shim_request_query, shim_request_free,
					 shim_request_cancel, request_poll, request_wait, request,
					 &request->handle);

	if (error != MPI_SUCCESS)
		return error;
	pthread_mutex_lock(&lock);
	request->next = requests;
	requests = request;
	pthread_mutex_unlock(&lock);
	return MPI_SUCCESS;
}

void shim_host_forget(struct shim_request *request)
{
	struct shim_request **place = &requests;

	pthread_mutex_lock(&lock);
	while (*place && *place != request)
		place = &(*place)->next;
	if (*place)
		*place = request->next;
	pthread_mutex_unlock(&lock);
}

/* NULL if it is not one of ours. */
static struct shim_request *request_of(MPI_Request handle)
{
	struct shim_request *request;

	pthread_mutex_lock(&lock);
	for (request = requests; request && request->handle != handle; request = request->next)
		;
	pthread_mutex_unlock(&lock);
	return request;
}

SHIM_ENTRY int MPI_Request_get_status(MPI_Request handle, int *is_done, MPI_Status *status)
{
	struct shim_request *request = request_of(handle);

	shim_attach();
	if (request)
		request_poll(request, NULL);
	return PMPI_Request_get_status(handle, is_done, status);
}
#endif
