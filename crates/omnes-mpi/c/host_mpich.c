// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * MPICH: a generalized request may have a function that whoever waits for it
 * calls.
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
				    poll, NULL, request, &request->handle);
}
#endif
