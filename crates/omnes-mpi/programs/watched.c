/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Two threads of each rank poll one request until both have seen that it has
 * completed, which MPI allows only with MPI_Request_get_status; then one of
 * them completes it. Needs at least 2 ranks.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>

enum { TURNS = 5000 };

static int rank, size;
static MPI_Request request;
static pthread_barrier_t both;

static void check(int is_right, const char *what)
{
	if (is_right)
		return;
	fprintf(stderr, "watched: rank %d: wrong: %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Polls the request between two synchronizations of the threads. */
static void watch(void)
{
	int has_ended = 0;

	pthread_barrier_wait(&both);
	while (!has_ended)
		MPI_Request_get_status(request, &has_ended, MPI_STATUS_IGNORE);
	pthread_barrier_wait(&both);
}

static void *watch_all(void *unused)
{
	for (int turn = 0; turn < TURNS; turn++)
		watch();
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t other;
	int level, value, is_done;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	check(level == MPI_THREAD_MULTIPLE, "the level of threads");
	check(size >= 2, "needs 2 ranks");
	MPI_Barrier(MPI_COMM_WORLD);
	pthread_barrier_init(&both, NULL, 2);
	pthread_create(&other, NULL, watch_all, NULL);
	for (int turn = 0; turn < TURNS; turn++) {
		value = rank == turn % size ? turn : -1;
		if (turn % 2)
			MPI_Ibcast(&value, 1, MPI_INT, turn % size, MPI_COMM_WORLD, &request);
		else
			MPI_Ibarrier(MPI_COMM_WORLD, &request);
		watch();
		MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
		check(is_done && request == MPI_REQUEST_NULL, "ended, then not");
		check(turn % 2 == 0 || value == turn, "the value of a broadcast");
	}
	pthread_join(other, NULL);
	MPI_Finalize();
	if (rank == 0)
		puts("watched: ok");
	return 0;
}
