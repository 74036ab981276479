/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The part that "later" loads, and that uses MPI. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int later_run(const char *what);

/* Calls that may be the first call of all, as no other call precedes them. */
static int has_no_request(void)
{
	int is_done = 0;

	return MPI_Request_get_status(MPI_REQUEST_NULL, &is_done, MPI_STATUS_IGNORE) ==
		       MPI_SUCCESS && is_done;
}

static int collectives(void)
{
	int rank, value;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	value = rank == 0 ? 4711 : 0;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
	return value == 4711;
}

int later_run(const char *what)
{
	int rank, is_right;

	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	is_right = has_no_request() && (strcmp(what, "collectives") || collectives());
	MPI_Finalize();
	if (is_right && rank == 0)
		printf("later: ok\n");
	return !is_right;
}
