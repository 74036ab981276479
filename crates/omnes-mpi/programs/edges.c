/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Edge cases that a library that takes over broadcasts and barriers may
 * overlook. Each of them is legal, or rejected by MPI with an error after which
 * the program continues. Ends with "edges: ok" from within MPI_Finalize. Needs
 * at least 2 ranks.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	LARGE = 64 << 20, /* far beyond an MPI's eager limit */
	FAILURES = 3000,  /* more than an MPI has error codes */
	TEXTS = 200,	  /* number of different error texts */
	BARRIERS = 1100,  /* more than any program has in progress */
	TAG = 7,
};

static int rank, size;

static void check(int is_right, const char *what)
{
	if (is_right)
		return;
	fprintf(stderr, "edges: rank %d: wrong: %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The MPI progresses in MPI_Wait for a barrier that depends on its messages. */
static void message_under_ibarrier(MPI_Comm comm)
{
	char *memory = calloc(LARGE, 1);
	MPI_Request message = MPI_REQUEST_NULL, barrier;

	check(memory != NULL, "memory");
	if (rank == 0)
		MPI_Isend(memory, LARGE, MPI_CHAR, 1, TAG, comm, &message);
	if (rank == 1)
		MPI_Recv(memory, LARGE, MPI_CHAR, 0, TAG, comm, MPI_STATUS_IGNORE);
	MPI_Ibarrier(comm, &barrier);
	MPI_Wait(&barrier, MPI_STATUS_IGNORE);
	MPI_Wait(&message, MPI_STATUS_IGNORE);
	free(memory);
}

/* Types returned by MPI that must not be freed, within derived types. */
static void fortran_types(MPI_Comm comm)
{
	double values[4] = {0, 0, 0, rank == 0 ? 7 : 0};
	MPI_Datatype real, reals;

	MPI_Type_create_f90_real(15, 300, &real);
	MPI_Type_contiguous(4, real, &reals);
	MPI_Type_commit(&reals);
	MPI_Bcast(values, 1, reals, 0, comm);
	MPI_Type_free(&reals);
	check(values[3] == 7, "a type made of a Fortran type");
}

/* Large counts, if the MPI supports them. */
static void long_counts(MPI_Comm comm)
{
#if MPI_VERSION >= 4
	MPI_Count count = 3;
	MPI_Request request;
	int values[3] = {0, 0, rank == 0 ? 7 : 0};

	MPI_Bcast_c(values, count, MPI_INT, 0, comm);
	check(values[2] == 7, "a long count");
	values[2] = rank == 1 ? 8 : 0;
	MPI_Ibcast_c(values, count, MPI_INT, 1, comm, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	check(values[2] == 8, "a long count, nonblocking");
#else
	(void)comm;
#endif
}

/* Types from constructors with large counts: alone, and within others. */
static void long_types(MPI_Comm comm)
{
#if MPI_VERSION >= 4
	int values[6];
	MPI_Datatype row, rows, comb;

	MPI_Type_contiguous_c(3, MPI_INT, &row);
	MPI_Type_commit(&row);
	values[2] = rank == 0 ? 7 : 0;
	MPI_Bcast(values, 1, row, 0, comm);
	check(values[2] == 7, "a long row");
	MPI_Type_contiguous(2, row, &rows);
	MPI_Type_commit(&rows);
	values[5] = rank == 0 ? 8 : 0;
	MPI_Bcast(values, 1, rows, 0, comm);
	check(values[5] == 8, "a row of long rows");
	MPI_Type_vector_c(3, 1, 2, MPI_INT, &comb);
	MPI_Type_commit(&comb);
	values[3] = rank;
	values[4] = rank == 0 ? 9 : 0;
	MPI_Bcast(values, 1, comb, 0, comm);
	check(values[4] == 9 && values[3] == rank, "a long comb");
	MPI_Type_free(&row);
	MPI_Type_free(&rows);
	MPI_Type_free(&comb);
#else
	(void)comm;
#endif
}

/* MPI rejects uncommitted types, on every rank. */
static void uncommitted_types(MPI_Comm comm)
{
	int values[8] = {0};
	MPI_Datatype row, comb;

	MPI_Type_contiguous(3, MPI_INT, &row);
	check(MPI_Bcast(values, 1, row, 0, comm) != MPI_SUCCESS, "a row that is not committed");
	MPI_Type_free(&row);
	MPI_Type_vector(3, 1, 2, MPI_INT, &comb);
	check(MPI_Bcast(values, 1, comb, 0, comm) != MPI_SUCCESS, "a comb that is not committed");
	MPI_Type_free(&comb);
}

/*
 * Handles of the wrong kind are reported to the communicator's error handler, and to no other one.
 */
static void wrong_handles(MPI_Comm comm)
{
#ifdef MPICH
	int value = 1, sum, error, class;

	error = MPI_Allreduce(&value, &sum, 1, MPI_INT, (MPI_Op)MPI_INT, comm);
	MPI_Error_class(error, &class);
	check(class == MPI_ERR_OP, "a type as an operation");
	error = MPI_Bcast(&value, 1, (MPI_Datatype)MPI_SUM, 0, comm);
	MPI_Error_class(error, &class);
	check(class == MPI_ERR_TYPE, "an operation as a type");
#else
	(void)comm; /* Open MPI dereferences such handles. */
#endif
}

/* A program that continues after errors may have any number of errors, with any number of texts. */
static void many_failures(MPI_Comm comm)
{
	char text[MPI_MAX_ERROR_STRING];
	int values[TEXTS + 2] = {0}, length = 0;

	for (int i = 0; i < FAILURES; i++) {
		int error = MPI_Bcast(values, rank == 0 ? 2 + i % TEXTS : 1, MPI_INT, 0, comm);

		check(rank == 0 || error != MPI_SUCCESS, "a message that does not fit");
		if (rank != 0)
			MPI_Error_string(error, text, &length);
		check(rank == 0 || length > 0, "a text");
		MPI_Barrier(comm);
	}
}

/*
 * Rank 0 enters all barriers before any can complete, and then waits for those that have completed
 * at rank 1.
 */
static void many_barriers(MPI_Comm comm)
{
	MPI_Request *barriers = malloc(BARRIERS * sizeof(*barriers));
	int entered = rank, ended = rank;

	check(barriers != NULL, "memory");
	if (rank == 1)
		MPI_Recv(&entered, 1, MPI_INT, 0, TAG, comm, MPI_STATUS_IGNORE);
	for (int i = 0; i < BARRIERS; i++)
		MPI_Ibarrier(comm, &barriers[i]);
	if (rank == 0) {
		MPI_Send(&entered, 1, MPI_INT, 1, TAG, comm);
		MPI_Recv(&ended, 1, MPI_INT, 1, TAG, comm, MPI_STATUS_IGNORE);
	}
	MPI_Waitall(BARRIERS, barriers, MPI_STATUSES_IGNORE);
	if (rank == 1)
		MPI_Send(&ended, 1, MPI_INT, 0, TAG, comm);
	free(barriers);
	check(entered == (rank == 1 ? 0 : rank) && ended == (rank == 0 ? 1 : rank), "messages");
}

/* As many may be in progress when blocking calls follow. */
static void reduction_after_many_barriers(MPI_Comm comm)
{
	MPI_Request *barriers = malloc(BARRIERS * sizeof(*barriers));
	int one = 1, sum = 0;

	check(barriers != NULL, "memory");
	for (int i = 0; i < BARRIERS; i++)
		MPI_Ibarrier(comm, &barriers[i]);
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
	MPI_Barrier(comm);
	MPI_Waitall(BARRIERS, barriers, MPI_STATUSES_IGNORE);
	free(barriers);
	check(sum == size, "a reduction after many barriers");
}

/* Delete callbacks of a communicator being freed may communicate on it. */
static int at_free(MPI_Comm comm, int key, void *value, void *extra)
{
	int one = 1, sum = 0;

	(void)key, (void)value, (void)extra;
	MPI_Barrier(comm);
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
	check(sum == size, "a reduction in MPI_Comm_free");
	return MPI_SUCCESS;
}

/*
 * Attributes set before the first call, after it, or before it on some ranks: in any order relative
 * to the library's own.
 */
static void callbacks_of_free(void)
{
	int key;

	MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_free, &key, NULL);
	for (int i = 0; i < 6; i++) {
		int is_early = i % 3 == 2 ? rank % 2 : i % 3;
		MPI_Comm comm;

		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		if (is_early)
			MPI_Comm_set_attr(comm, key, NULL);
		MPI_Barrier(comm);
		if (!is_early)
			MPI_Comm_set_attr(comm, key, NULL);
		if (i < 3)
			MPI_Comm_free(&comm);
		else
			MPI_Comm_disconnect(&comm);
		check(comm == MPI_COMM_NULL, "what is freed");
	}
	MPI_Comm_free_keyval(&key);
}

/* Delete callbacks of MPI_COMM_SELF may communicate, too, on other communicators. */
static int at_finalize(MPI_Comm self, int key, void *value, void *extra)
{
	int root_says = rank == 0 ? 9 : 0;

	(void)self, (void)key, (void)value, (void)extra;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Bcast(&root_says, 1, MPI_INT, 0, MPI_COMM_WORLD);
	check(root_says == 9, "a broadcast in MPI_Finalize");
	if (rank == 0)
		puts("edges: ok");
	return MPI_SUCCESS;
}

/* A callback on rank 0 alone may send a message that another rank needs to reach MPI_Finalize. */
static int at_finalize_send(MPI_Comm self, int key, void *value, void *extra)
{
	int word = 7;

	(void)self, (void)key, (void)value, (void)extra;
	MPI_Send(&word, 1, MPI_INT, 1, TAG, MPI_COMM_WORLD);
	return MPI_SUCCESS;
}

static void callback_of_one_rank(void)
{
	int key, word;

	if (rank == 0) {
		MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_finalize_send, &key, NULL);
		MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
	}
	if (rank == 1) {
		MPI_Recv(&word, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		check(word == 7, "a message from within MPI_Finalize");
	}
}

int main(int argc, char **argv)
{
	MPI_Comm comm;
	int key;

	MPI_Init(&argc, &argv);
	if (argc > 1 && strcmp(argv[1], "late") == 0) {
		/* No call that a library takes over is made before MPI_Finalize. */
		MPI_Comm_rank(MPI_COMM_WORLD, &rank);
		MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_finalize, &key, NULL);
		MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
		return MPI_Finalize();
	}
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	check(size >= 2, "needs 2 ranks");
	/* On this rank alone, so that a library's setup has no common order. */
	if (rank == 0)
		MPI_Barrier(MPI_COMM_SELF);
	MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_finalize, &key, NULL);
	MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Barrier(comm);
	message_under_ibarrier(comm);
	many_barriers(comm);
	reduction_after_many_barriers(comm);
	fortran_types(comm);
	long_counts(comm);
	long_types(comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	uncommitted_types(comm);
	wrong_handles(comm);
	many_failures(comm);
	MPI_Comm_free(&comm);
	callbacks_of_free();
	MPI_Barrier(MPI_COMM_WORLD);
	callback_of_one_rank();
	MPI_Finalize();
	return 0;
}
