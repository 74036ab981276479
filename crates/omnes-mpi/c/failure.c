// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Errors of libomnes as errors of MPI: a class and a code of their own, whose
 * text is that of the last failure.
 */
#include <pthread.h>
#include <stdio.h>

#include "shim.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int failure_class = MPI_ERR_OTHER;

int shim_failure_code(void)
{
	char text[MPI_MAX_ERROR_STRING];
	int code;

	snprintf(text, sizeof(text), "omnes: %s", omnes_last_error());
	pthread_mutex_lock(&lock);
	if (failure_class == MPI_ERR_OTHER)
		PMPI_Add_error_class(&failure_class);
	/* Failures are rare, and few survive one: each has a code of its own. */
	if (PMPI_Add_error_code(failure_class, &code) != MPI_SUCCESS ||
	    PMPI_Add_error_string(code, text) != MPI_SUCCESS)
		code = MPI_ERR_OTHER;
	pthread_mutex_unlock(&lock);
	return code;
}

int shim_failure_pass(MPI_Comm comm, int error)
{
	PMPI_Comm_call_errhandler(comm, error);
	return error;
}

int shim_failure_raise(MPI_Comm comm)
{
	return shim_failure_pass(comm, shim_failure_code());
}
