// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Open MPI: its progress engine calls us, no matter which call is waiting, and
 * we poll all requests in progress.
 */
#include "shim.h"

#ifdef OPEN_MPI
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

/* opal_progress_register() of libopen-pal: registers a callback for every round of progress. */
typedef int (*progress_register_fn)(int (*callback)(void));

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shim_request *under_way;
static bool is_registered;

static progress_register_fn progress_register(void)
{
	return (progress_register_fn)dlsym(RTLD_DEFAULT, "opal_progress_register");
}

bool shim_host_fits(const char *library)
{
	return strncmp(library, "Open MPI", 8) == 0;
}

bool shim_host_is_datatype(MPI_Datatype type)
{
	return type && type != MPI_DATATYPE_NULL;
}

bool shim_host_is_op(MPI_Op op)
{
	return op != NULL;
}

bool shim_host_has_requests(void)
{
	return progress_register() != NULL;
}

/* Returns the number of requests that have completed. */
static int on_progress(void)
{
	struct shim_request **place = &under_way;
	int ended = 0;

	/*
	 * This is called often; if the lock is held, another thread, or a caller on this one, is
	 * polling.
	 */
	if (!__atomic_load_n(&under_way, __ATOMIC_RELAXED) || pthread_mutex_trylock(&lock) != 0)
		return 0;
	while (*place) {
		struct shim_request *request = *place, *next = request->next;

		/* Its owner may free it as soon as it is complete. */
		if (shim_request_poll(request)) {
			*place = next;
			ended++;
		} else {
			place = &request->next;
		}
	}
	pthread_mutex_unlock(&lock);
	return ended;
}

int shim_host_start(struct shim_request *request)
{
	int error;

	pthread_mutex_lock(&lock);
	if (!is_registered) {
		progress_register()(on_progress);
		is_registered = true;
	}
	error = PMPI_Grequest_start(shim_request_query, shim_request_free, shim_request_cancel,
				    request, &request->handle);
	if (error == MPI_SUCCESS) {
		request->next = under_way;
		__atomic_store_n(&under_way, request, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&lock);
	return error;
}

/* Only requests in progress are in our list. */
void shim_host_forget(struct shim_request *request)
{
	(void)request;
}
#endif
