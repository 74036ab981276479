// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Maps errors of libomnes to errors of MPI: an error class and codes of our
 * own, with the text of the last failure.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "shim.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int failure_class = MPI_ERR_OTHER;

/* Codes cannot be released, and MPICH has few. */
#define CODES_MAX 100
static int codes;
static int last_code;
static char last_text[MPI_MAX_ERROR_STRING];

int shim_failure_code(void)
{
	char text[MPI_MAX_ERROR_STRING];
	int code = MPI_ERR_OTHER;

	snprintf(text, sizeof(text), "omnes: %s", omnes_last_error());
	pthread_mutex_lock(&lock);
	if (failure_class == MPI_ERR_OTHER && PMPI_Add_error_class(&failure_class) == MPI_SUCCESS)
		PMPI_Add_error_string(failure_class,
				      "omnes: a call has failed, too many before it");
	if (strcmp(text, last_text) == 0) {
		code = last_code;
	} else if (codes == CODES_MAX) {
		code = failure_class;
	} else if (PMPI_Add_error_code(failure_class, &code) == MPI_SUCCESS &&
		   PMPI_Add_error_string(code, text) == MPI_SUCCESS) {
		codes++;
		last_code = code;
		strcpy(last_text, text);
	}
	pthread_mutex_unlock(&lock);
	return code;
}

int shim_raise_mpi(MPI_Comm comm, int error)
{
	PMPI_Comm_call_errhandler(comm, error);
	return error;
}

int shim_raise_omnes(MPI_Comm comm)
{
	return shim_raise_mpi(comm, shim_failure_code());
}
