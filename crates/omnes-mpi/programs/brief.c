/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Communicators that live for a few calls, and two that live longer: one with
 * many short calls, one with a single long broadcast.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { BRIEF = 50, MANY_CALLS = 40, LONG_BYTES = 100000 };

static int ranks, rank, wrong;

static void sum(MPI_Comm comm, int own)
{
	int all;

	MPI_Allreduce(&own, &all, 1, MPI_INT, MPI_SUM, comm);
	if (all != own * ranks)
		wrong = 1;
}

static MPI_Comm copy_named(const char *name)
{
	MPI_Comm copy;

	MPI_Comm_dup(MPI_COMM_WORLD, &copy);
	MPI_Comm_set_name(copy, name);
	return copy;
}

static void broadcast_long(MPI_Comm comm)
{
	static char bytes[LONG_BYTES];

	memset(bytes, rank == 0 ? 'x' : 0, sizeof(bytes));
	MPI_Bcast(bytes, LONG_BYTES, MPI_CHAR, 0, comm);
	if (bytes[0] != 'x' || memcmp(bytes, bytes + 1, sizeof(bytes) - 1) != 0)
		wrong = 1;
}

int main(int argc, char **argv)
{
	MPI_Comm comm;

	MPI_Init(&argc, &argv);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < BRIEF; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		sum(comm, i);
		if (i % 2)
			MPI_Barrier(comm);
		MPI_Comm_free(&comm);
	}
	comm = copy_named("many");
	for (int i = 0; i < MANY_CALLS; i++)
		sum(comm, i);
	MPI_Comm_free(&comm);
	comm = copy_named("long");
	broadcast_long(comm);
	MPI_Comm_free(&comm);
	if (wrong)
		printf("brief: rank %d found something else\n", rank);
	else if (rank == 0)
		printf("brief: ok\n");
	MPI_Finalize();
	return wrong;
}
