/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A rank dies while the others are in a broadcast, a barrier or a reduction.
 * The job must end with an error; how soon depends on the MPI.
 *
 *	deadrank kill|exit|abort bcast|barrier|ibcast|iallreduce [RANK]
 *
 * RANK (default: the last) kills itself with SIGKILL, or calls exit(3) or
 * MPI_Abort, after a few collectives of all ranks. In broadcasts it is the
 * root, since otherwise no rank would wait for it.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BEFORE = 10, STATUS = 3, BYTES = 1 << 20 };

static unsigned char buffer[BYTES];

static void collective(const char *operation, int root)
{
	MPI_Request request;
	int sum = 1;

	if (!strcmp(operation, "barrier")) {
		MPI_Barrier(MPI_COMM_WORLD);
	} else if (!strcmp(operation, "bcast")) {
		MPI_Bcast(buffer, BYTES, MPI_BYTE, root, MPI_COMM_WORLD);
	} else if (!strcmp(operation, "iallreduce")) {
		MPI_Iallreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	} else {
		MPI_Ibcast(buffer, BYTES, MPI_BYTE, root, MPI_COMM_WORLD, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
}

static void die(const char *how)
{
	if (!strcmp(how, "kill"))
		raise(SIGKILL);
	if (!strcmp(how, "abort"))
		MPI_Abort(MPI_COMM_WORLD, STATUS);
	exit(STATUS);
}

static int is_one_of(const char *word, const char *const *words)
{
	for (; *words; words++)
		if (!strcmp(word, *words))
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	static const char *const deaths[] = {"kill", "exit", "abort", NULL};
	static const char *const operations[] = {"bcast", "barrier", "ibcast", "iallreduce", NULL};
	int rank, size, victim;

	if (argc < 3 || !is_one_of(argv[1], deaths) || !is_one_of(argv[2], operations)) {
		fputs("usage: deadrank kill|exit|abort bcast|barrier|ibcast|iallreduce [RANK]\n",
		      stderr);
		return 2;
	}
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	victim = argc > 3 ? atoi(argv[3]) : size - 1;
	for (int i = 0; i < BEFORE; i++)
		collective(argv[2], i % size);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == victim)
		die(argv[1]);
	collective(argv[2], victim);
	/* Not reached: the other ranks wait for something that never happens. */
	printf("deadrank: rank %d outlived it\n", rank);
	MPI_Finalize();
	return 0;
}
