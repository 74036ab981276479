// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * MPICH: a generalized request may have functions that whoever looks at it, or
 * waits for it, calls.
 */
#include "shim.h"

#ifdef MPICH
#include <string.h>

bool shim_host_fits(const char *library)
{
	return strncmp(library, "MPICH", 5) == 0;
}

bool shim_host_has_requests(void)
{
	return &PMPIX_Grequest_start != NULL;
}

/* For requests that nobody else is needed for. */
static int wait(int count, void **extras, double timeout_s, MPI_Status *status)
{
	int at;

	(void)timeout_s, (void)status;
	for (at = 0; at < count; at++) {
		struct shim_request *request = extras[at];

		if (request->under_way)
			shim_request_wait(request);
	}
	return MPI_SUCCESS;
}

static int poll(void *extra, MPI_Status *status)
{
	struct shim_request *request = extra;

	(void)status;
	if (request->under_way)
		shim_request_poll(request);
	return MPI_SUCCESS;
}

int shim_host_start(struct shim_request *request)
{
	return PMPIX_Grequest_start(shim_request_query, shim_request_free, shim_request_cancel,
				    poll, wait, request, &request->handle);
}
#endif
