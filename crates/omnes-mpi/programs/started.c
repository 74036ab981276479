/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Nonblocking reductions and gathers mixed with each other and with blocking
 * calls, in orders that MPI allows, but in which a careless library would hang
 * or return wrong results. Each case is printed before it runs. Needs 2 to 16
 * ranks.
 *
 *	started			all cases
 *	started mismatch	mismatched calls, which Omnes reports on all ranks
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	RANKS_MAX = 16,
	BURST = 60, /* of each kind in progress concurrently */
	COUNT_MAX = 500, /* of a call; Omnes takes about half of the calls */
	TAG = 5,
	PAUSE_US = 10000,
};

static int rank, size;

static void check(int is_right, const char *what)
{
	if (is_right)
		return;
	fprintf(stderr, "started: rank %d: wrong: %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* A duplicate on which a blocking call was made, so that nonblocking ones may be taken. */
static MPI_Comm duplicate(void)
{
	MPI_Comm comm;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Barrier(comm);
	return comm;
}

/* ---- calls that are checked ---------------------------------------------- */

enum kind { ALLREDUCE, REDUCE, ALLGATHER, KINDS };

/* A call in progress; `number` distinguishes it from others, and is the same on all ranks. */
struct call {
	enum kind kind;
	int number, count, root;
	int out[COUNT_MAX], in[COUNT_MAX + 1];
};

static int value(int number, int from, int i)
{
	return number * 1000 + from * 100 + i % 97;
}

static int sum(int number, int i)
{
	return size * value(number, 0, i) + 100 * (size * (size - 1) / 2);
}

/* Fills in this rank's input, and marks in its result buffer. */
static void prepare(struct call *call, enum kind kind, int number)
{
	*call = (struct call){ .kind = kind, .number = number, .root = number % size };
	call->count = 1 + number * 37 % (kind == ALLGATHER ? COUNT_MAX / size : COUNT_MAX);
	for (int i = 0; i < call->count; i++)
		call->out[i] = value(number, rank, i);
	memset(call->in, 0x5a, sizeof(call->in));
	if (number % 3 == 0) {
		int place = kind == ALLGATHER ? rank * call->count : 0;

		memcpy(call->in + place, call->out, (size_t)call->count * sizeof(int));
	}
}

/*
 * Every third call is in place, but for MPI_Ireduce only at rank 0, as MPICH 4.0 crashes at others.
 */
static void start(struct call *call, MPI_Comm comm, MPI_Request *request)
{
	int is_in_place = call->number % 3 == 0, is_root = rank == call->root;
	const void *out = is_in_place ? MPI_IN_PLACE : call->out;

	if (call->kind == ALLREDUCE)
		MPI_Iallreduce(out, call->in, call->count, MPI_INT, MPI_SUM, comm, request);
	else if (call->kind == REDUCE)
		MPI_Ireduce(is_root && rank == 0 ? out : call->out, is_root ? call->in : NULL,
			    call->count, MPI_INT, MPI_SUM, call->root, comm, request);
	else
		MPI_Iallgather(out, call->count, MPI_INT, call->in, call->count, MPI_INT, comm,
			       request);
}

static void verify(const struct call *call)
{
	int parts = call->kind == ALLGATHER ? size : 1;

	for (int i = 0; i < call->count; i++)
		check(call->out[i] == value(call->number, rank, i), "what was brought");
	if (call->kind == REDUCE && rank != call->root)
		return;
	for (int part = 0; part < parts; part++)
		for (int i = 0; i < call->count; i++)
			check(call->in[part * call->count + i] ==
				      (parts > 1 ? value(call->number, part, i)
						 : sum(call->number, i)),
			      "what has come");
	check(call->in[parts * call->count] == 0x5a5a5a5a, "what is behind it");
}

/* A blocking call of any kind. */
static void block(MPI_Comm comm, int number)
{
	int own = value(number, rank, 0), got = own, all[RANKS_MAX];

	switch (number % 5) {
	case 0:
		MPI_Barrier(comm);
		return;
	case 1:
		MPI_Bcast(&got, 1, MPI_INT, number % size, comm);
		check(got == value(number, number % size, 0), "a broadcast");
		return;
	case 2:
		MPI_Allreduce(&own, &got, 1, MPI_INT, MPI_SUM, comm);
		check(got == sum(number, 0), "a sum");
		return;
	case 3:
		MPI_Reduce(&own, &got, 1, MPI_INT, MPI_SUM, number % size, comm);
		check(rank != number % size || got == sum(number, 0), "a sum at one rank");
		return;
	default:
		MPI_Allgather(&own, 1, MPI_INT, all, 1, MPI_INT, comm);
		for (int from = 0; from < size; from++)
			check(all[from] == value(number, from, 0), "what was gathered");
	}
}

/* ---- cases --------------------------------------------------------------- */

static struct call calls[2][KINDS * BURST];

static void start_all(int which, MPI_Comm comm, MPI_Request requests[KINDS * BURST])
{
	for (int i = 0; i < KINDS * BURST; i++) {
		prepare(&calls[which][i], (enum kind)(i % KINDS), i / KINDS);
		start(&calls[which][i], comm, &requests[i]);
	}
}

/* Completes requests one by one as they end, all together, some at a time, or the last first. */
static void complete(int how, int which, MPI_Request requests[KINDS * BURST])
{
	static int indices[KINDS * BURST];
	int count = KINDS * BURST, index = 0, is_done = 0, some;

	switch (how) {
	case 0:
		for (int i = 0; i < count; i++) {
			MPI_Waitany(count, requests, &index, MPI_STATUS_IGNORE);
			verify(&calls[which][index]);
		}
		MPI_Waitany(count, requests, &index, MPI_STATUS_IGNORE);
		check(index == MPI_UNDEFINED, "one request too many");
		return;
	case 1:
		while (!is_done)
			MPI_Testall(count, requests, &is_done, MPI_STATUSES_IGNORE);
		break;
	case 2:
		do
			MPI_Waitsome(count, requests, &some, indices, MPI_STATUSES_IGNORE);
		while (some != MPI_UNDEFINED);
		break;
	default:
		for (int i = count - 1; i >= 0; i--)
			MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
	}
	for (int i = 0; i < count; i++)
		verify(&calls[which][i]);
}

static void many_under_way(void)
{
	MPI_Comm comm = duplicate();
	MPI_Request requests[KINDS * BURST];

	for (int how = 0; how < 4; how++) {
		start_all(0, comm, requests);
		complete(how, 0, requests);
	}
	MPI_Comm_free(&comm);
}

/* Blocking calls begin and end while nonblocking ones are in progress. */
static void among_blocking_calls(void)
{
	MPI_Comm comm = duplicate();
	MPI_Request requests[KINDS], barrier;

	for (int turn = 0; turn < 30; turn++) {
		for (int kind = 0; kind < KINDS; kind++) {
			prepare(&calls[0][kind], (enum kind)kind, turn);
			block(comm, turn + kind);
			start(&calls[0][kind], comm, &requests[kind]);
		}
		MPI_Ibarrier(comm, &barrier);
		for (int number = turn; number < turn + 5; number++)
			block(comm, number);
		MPI_Wait(&barrier, MPI_STATUS_IGNORE);
		for (int kind = KINDS - 1; kind >= 0; kind--) {
			MPI_Wait(&requests[kind], MPI_STATUS_IGNORE);
			verify(&calls[0][kind]);
		}
	}
	MPI_Comm_free(&comm);
}

/* Ranks start the calls of two communicators in opposite order. */
static void opposite_order(void)
{
	MPI_Comm comms[2] = { duplicate(), duplicate() };
	MPI_Request requests[2][KINDS * BURST];

	for (int i = 0; i < 2; i++)
		start_all(i ^ (rank % 2), comms[i ^ (rank % 2)], requests[i ^ (rank % 2)]);
	for (int i = 0; i < 2; i++)
		complete(1, i, requests[i]);
	MPI_Comm_free(&comms[1]);
	MPI_Comm_free(&comms[0]);
}

/* Other ranks enter only after they have received a message that is sent after the start. */
static void start_does_not_wait(void)
{
	MPI_Comm comm = duplicate();
	MPI_Request requests[KINDS];
	int message = 17;

	for (int turn = 0; turn < 6; turn++) {
		int first = turn % size;

		for (int kind = 0; kind < KINDS; kind++)
			prepare(&calls[0][kind], (enum kind)kind, turn);
		if (rank != first)
			MPI_Recv(&message, 1, MPI_INT, first, TAG, comm, MPI_STATUS_IGNORE);
		for (int kind = 0; kind < KINDS; kind++)
			start(&calls[0][kind], comm, &requests[kind]);
		for (int to = 0; to < size && rank == first; to++)
			if (to != first)
				MPI_Ssend(&message, 1, MPI_INT, to, TAG, comm);
		MPI_Waitall(KINDS, requests, MPI_STATUSES_IGNORE);
		for (int kind = 0; kind < KINDS; kind++)
			verify(&calls[0][kind]);
	}
	MPI_Comm_free(&comm);
}

/* Nonblocking calls before the first blocking call, waited for after it. */
static void first_is_nonblocking(void)
{
	MPI_Request requests[2];
	MPI_Comm comm;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	for (int i = 0; i < 2; i++) {
		prepare(&calls[0][i], ALLREDUCE, i);
		start(&calls[0][i], comm, &requests[i]);
		block(comm, i);
	}
	MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < 2; i++)
		verify(&calls[0][i]);
	MPI_Comm_free(&comm);
}

/* A late rank finds the data that the others have sent. */
static void late_rank(void)
{
	MPI_Comm comm = duplicate();
	MPI_Request requests[KINDS * BURST];

	for (int late = 0; late < size; late++) {
		if (rank == late)
			usleep(PAUSE_US);
		start_all(0, comm, requests);
		complete(3, 0, requests);
	}
	MPI_Comm_free(&comm);
}

/* Large counts, if the MPI supports them. */
static void long_counts(void)
{
#if MPI_VERSION >= 4
	MPI_Comm comm = duplicate();
	MPI_Request requests[KINDS];
	struct call *call = calls[0];
	int root;

	for (int kind = 0; kind < KINDS; kind++)
		prepare(&call[kind], (enum kind)kind, 1);
	root = call[REDUCE].root;
	MPI_Iallreduce_c(call[0].out, call[0].in, call[0].count, MPI_INT, MPI_SUM, comm,
			 &requests[0]);
	MPI_Ireduce_c(call[1].out, rank == root ? call[1].in : NULL, call[1].count, MPI_INT,
		      MPI_SUM, root, comm, &requests[1]);
	MPI_Iallgather_c(call[2].out, call[2].count, MPI_INT, call[2].in, call[2].count, MPI_INT,
			 comm, &requests[2]);
	MPI_Waitall(KINDS, requests, MPI_STATUSES_IGNORE);
	for (int kind = 0; kind < KINDS; kind++)
		verify(&call[kind]);
	MPI_Comm_free(&comm);
#endif
}

static void errors(void)
{
	MPI_Comm comm = duplicate();
	MPI_Request request;
	int own = 1, got[RANKS_MAX];

	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	check(MPI_Iallreduce(&own, got, -1, MPI_INT, MPI_SUM, comm, &request) != MPI_SUCCESS,
	      "a negative count is not refused");
	check(MPI_Iallreduce(&own, got, 1, MPI_INT, MPI_OP_NULL, comm, &request) != MPI_SUCCESS,
	      "an invalid operation is not refused");
	check(MPI_Ireduce(&own, got, 1, MPI_INT, MPI_SUM, size, comm, &request) != MPI_SUCCESS,
	      "a root beyond the last rank is not refused");
	check(MPI_Iallgather(&own, -1, MPI_INT, got, -1, MPI_INT, comm, &request) != MPI_SUCCESS,
	      "a negative count of parts is not refused");
	prepare(&calls[0][0], ALLREDUCE, 1);
	start(&calls[0][0], comm, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	verify(&calls[0][0]);
	MPI_Comm_free(&comm);
}

/* True if it is an error of Omnes. */
static int is_of_omnes(int error)
{
	char text[MPI_MAX_ERROR_STRING];
	int length;

	if (error == MPI_SUCCESS)
		return 0;
	MPI_Error_string(error, text, &length);
	return strncmp(text, "omnes:", 6) == 0;
}

/* Rank 1 has more elements than the others; all ranks get the error, in whichever call they are. */
static void mismatch(void)
{
	int own[3] = { 1, 1, 1 }, got[3] = { 0, 0, 0 }, error;
	MPI_Request request;
	MPI_Comm comm;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	/* Requests have no communicator whose error handler could be called. */
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	error = MPI_Barrier(comm);
	if (error == MPI_SUCCESS)
		error = MPI_Iallreduce(own, got, 2 + (rank == 1), MPI_INT, MPI_SUM, comm,
				       &request);
	if (error == MPI_SUCCESS) {
		error = MPI_Wait(&request, MPI_STATUS_IGNORE);
		check(request == MPI_REQUEST_NULL, "a request that has failed");
	}
	if (error == MPI_SUCCESS)
		error = MPI_Allreduce(own, got, 1, MPI_INT, MPI_SUM, comm);
	check(is_of_omnes(error), "what Omnes says of what does not fit");
	MPI_Comm_free(&comm);
	block(MPI_COMM_WORLD, 2);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{ "many_under_way", many_under_way },
		{ "among_blocking_calls", among_blocking_calls },
		{ "opposite_order", opposite_order },
		{ "start_does_not_wait", start_does_not_wait },
		{ "first_is_nonblocking", first_is_nonblocking },
		{ "late_rank", late_rank },
		{ "long_counts", long_counts },
		{ "errors", errors },
		{ "mismatch", mismatch },
	};
	size_t count = sizeof(cases) / sizeof(*cases), usual = count - 1;
	int is_named = argc > 1;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	check(size >= 2 && size <= RANKS_MAX, "number of ranks: 2 to 16");
	for (size_t i = is_named ? usual : 0; i < (is_named ? count : usual); i++) {
		if (rank == 0)
			puts(cases[i].name);
		fflush(stdout);
		cases[i].run();
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		puts("started: ok");
	MPI_Finalize();
	return 0;
}
