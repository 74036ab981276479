/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Legal MPI programs on which a careless library that takes over broadcasts and
 * barriers would hang, or return wrong results. Each case has a name, which is
 * printed before it runs: the last name printed is that of a hanging case.
 * Needs at least 2 ranks.
 *
 *	progress		all cases that this MPI supports by itself
 *	progress CASE...	only these cases
 *	progress --list		names of the cases
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	LARGE = 8 << 20, /* far beyond an MPI's eager limit */
	BURST = 200,
	TAG = 5,
	PAUSE_US = 20000,
	BEHIND_US = 200,
};

static int rank, size;

static void check(int is_right, const char *what)
{
	if (is_right)
		return;
	fprintf(stderr, "progress: rank %d: wrong: %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned char *large(int value)
{
	unsigned char *memory = malloc(LARGE);

	check(memory != NULL, "memory");
	memset(memory, value, LARGE);
	return memory;
}

static void check_large(const unsigned char *memory, int value, const char *what)
{
	for (int i = 0; i < LARGE; i++)
		check(memory[i] == value, what);
}

static MPI_Comm duplicate(void)
{
	MPI_Comm comm;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	return comm;
}

/* A blocking broadcast with a check. */
static void broadcast(MPI_Comm comm, int root, int value)
{
	int mine, got;

	MPI_Comm_rank(comm, &mine);
	got = mine == root ? value : -1;
	MPI_Bcast(&got, 1, MPI_INT, root, comm);
	check(got == value, "the value of a broadcast");
}

/* ---- communicators ------------------------------------------------------- */

static void part_before_world(void)
{
	MPI_Comm part;
	int size_of_part;

	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &part);
	MPI_Comm_size(part, &size_of_part);
	for (int root = 0; root < size_of_part; root++)
		broadcast(part, root, root + 40);
	MPI_Barrier(part);
	broadcast(MPI_COMM_WORLD, size - 1, 7);
	broadcast(part, 0, 9);
	MPI_Comm_free(&part);
}

/* Ranks start with different ones of two unused communicators. */
static void first_is_nonblocking(void)
{
	MPI_Comm a = duplicate(), b = duplicate();
	MPI_Request requests[2];
	int values[2] = {rank ? -1 : 1, rank ? -1 : 2};

	if (rank % 2)
		usleep(PAUSE_US);
	MPI_Ibcast(&values[0], 1, MPI_INT, 0, a, &requests[0]);
	if (rank)
		MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
	broadcast(a, size - 1, 3);
	MPI_Ibarrier(b, &requests[1]);
	if (!rank)
		MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
	MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
	check(values[0] == 1, "the first broadcast of a communicator");
	MPI_Barrier(b);
	MPI_Comm_free(&a);
	MPI_Comm_free(&b);
}

/*
 * A blocking collective triggers setup while other ranks still have a nonblocking one in progress.
 */
static void start_beside_nonblocking(void)
{
	MPI_Comm a = duplicate(), b = duplicate();
	MPI_Request request;
	int value = rank == size - 1 ? 11 : -1;

	if (rank % 2) {
		MPI_Ibcast(&value, 1, MPI_INT, size - 1, a, &request);
		broadcast(b, 0, 12);
	} else {
		broadcast(b, 0, 12);
		MPI_Ibcast(&value, 1, MPI_INT, size - 1, a, &request);
	}
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	check(value == 11, "a broadcast beside another communicator's first");
	MPI_Comm_free(&b);
	MPI_Comm_free(&a);
}

static void opposite_order(void)
{
	MPI_Comm comms[2] = {duplicate(), duplicate()};
	MPI_Request requests[2 * BURST];
	int values[2][BURST];

	for (int turn = 0; turn < 2; turn++) {
		if (turn) { /* the second time after setup */
			broadcast(comms[0], 0, 1);
			broadcast(comms[1], 0, 2);
		}
		for (int i = 0; i < 2; i++) {
			int which = i ^ (rank % 2);

			for (int k = 0; k < BURST; k++) {
				values[which][k] = rank ? -1 : which * BURST + k;
				MPI_Ibcast(&values[which][k], 1, MPI_INT, 0, comms[which],
					   &requests[i * BURST + k]);
			}
		}
		MPI_Waitall(2 * BURST, requests, MPI_STATUSES_IGNORE);
		for (int i = 0; i < 2 * BURST; i++)
			check(values[i / BURST][i % BURST] == i, "broadcasts in opposite order");
	}
	MPI_Comm_free(&comms[1]);
	MPI_Comm_free(&comms[0]);
}

static void free_under_way(int is_used_before)
{
	for (int turn = 0; turn < 10; turn++) {
		MPI_Comm comm = duplicate();
		MPI_Request requests[2];
		int value = rank ? -1 : turn;

		if (is_used_before)
			broadcast(comm, 1, 5);
		MPI_Ibcast(&value, 1, MPI_INT, 0, comm, &requests[0]);
		MPI_Ibarrier(comm, &requests[1]);
		MPI_Comm_free(&comm);
		check(comm == MPI_COMM_NULL, "a freed communicator");
		MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
		check(value == turn, "a broadcast whose communicator was freed");
	}
}

static void free_with_broadcast_under_way(void)
{
	free_under_way(1);
}

static void free_unused_with_broadcast_under_way(void)
{
	free_under_way(0);
}

static void many_communicators(void)
{
	enum { AT_ONCE = 40, TURNS = 5 };
	MPI_Comm comms[AT_ONCE];

	for (int turn = 0; turn < TURNS; turn++) {
		for (int i = 0; i < AT_ONCE; i++) {
			comms[i] = duplicate();
			broadcast(comms[i], i % size, i);
		}
		for (int i = 0; i < AT_ONCE; i++)
			broadcast(comms[(i * 7) % AT_ONCE], 0, i);
		for (int i = 0; i < AT_ONCE; i++)
			MPI_Comm_free(&comms[i]);
	}
}

static void between_groups(void)
{
	int low = size / 2, side = rank >= low, value = rank == 0 ? 31 : -1;
	int root = side ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
	MPI_Comm half, inter;

	MPI_Comm_split(MPI_COMM_WORLD, side, rank, &half);
	MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, side ? 0 : low, TAG, &inter);
	MPI_Bcast(&value, 1, MPI_INT, root, inter);
	MPI_Barrier(inter);
	check(!side || value == 31, "a broadcast to the other group");
	broadcast(half, 0, 32);
	MPI_Comm_free(&inter);
	MPI_Comm_free(&half);
}

/* ---- messages across collectives ----------------------------------------- */

/* The sender blocks in a broadcast whose root first waits for the message. */
static void send_under_broadcast(void)
{
	for (int turn = 0; turn < 3; turn++) {
		unsigned char *memory = large(rank == size - 1 ? 21 : 0);
		MPI_Request request;

		if (rank == size - 1)
			MPI_Isend(memory, LARGE, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request);
		if (rank == 0) {
			usleep(PAUSE_US);
			MPI_Recv(memory, LARGE, MPI_BYTE, size - 1, TAG, MPI_COMM_WORLD,
				 MPI_STATUS_IGNORE);
			check_large(memory, 21, "a message sent under a broadcast");
		}
		broadcast(MPI_COMM_WORLD, 0, turn);
		if (rank == size - 1)
			MPI_Wait(&request, MPI_STATUS_IGNORE);
		free(memory);
	}
}

/* The receiver blocks in a barrier that the senders enter after their messages. */
static void receive_under_barrier(void)
{
	unsigned char *memory = large(rank);
	MPI_Request request = MPI_REQUEST_NULL;

	if (rank == 0)
		MPI_Irecv(memory, LARGE, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
	if (rank == 1) {
		usleep(PAUSE_US);
		MPI_Ssend(memory, LARGE, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	if (rank == 0)
		check_large(memory, 1, "a message received under a barrier");
	free(memory);
}

/* The sender waits for a request of a barrier that the receiver enters after the message. */
static void send_under_request(void)
{
	unsigned char *memory = large(rank == 0 ? 22 : 0);
	MPI_Request message = MPI_REQUEST_NULL, request;

	if (rank == 0)
		MPI_Isend(memory, LARGE, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &message);
	if (rank == 1) {
		usleep(PAUSE_US);
		MPI_Recv(memory, LARGE, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		check_large(memory, 22, "a message sent under a request");
	}
	MPI_Ibarrier(MPI_COMM_WORLD, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Wait(&message, MPI_STATUS_IGNORE);
	free(memory);
}

/* A root that runs ahead: its broadcasts must not wait for ranks that need its message first. */
static void broadcasts_then_send(void)
{
	static int values[BURST];
	MPI_Request requests[BURST];
	int message = rank ? -1 : 17;

	for (int turn = 0; turn < 2; turn++) {
		if (rank)
			MPI_Recv(&message, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (int i = 0; i < BURST; i++) {
			values[i] = rank ? -1 : i;
			MPI_Ibcast(&values[i], 1, MPI_INT, 0, MPI_COMM_WORLD, &requests[i]);
		}
		for (int to = 1; to < size && rank == 0; to++)
			MPI_Ssend(&message, 1, MPI_INT, to, TAG, MPI_COMM_WORLD);
		MPI_Waitall(BURST, requests, MPI_STATUSES_IGNORE);
		for (int i = 0; i < BURST; i++)
			check(values[i] == i, "broadcasts before a message");
		check(message == 17, "a message after broadcasts");
		broadcast(MPI_COMM_WORLD, 0, turn);
	}
}

/* A rank that has sent everything enters a nonblocking barrier, and receives until it completes. */
static void barrier_and_messages(void)
{
	for (int turn = 0; turn < 20; turn++) {
		MPI_Request sent, barrier = MPI_REQUEST_NULL;
		int to = (rank + 1 + turn) % size, value = rank, got, is_there, is_sent = 0;
		int is_over = 0, received = 0;
		MPI_Status status;

		MPI_Issend(&value, 1, MPI_INT, to, TAG + 1, MPI_COMM_WORLD, &sent);
		while (!is_over) {
			MPI_Iprobe(MPI_ANY_SOURCE, TAG + 1, MPI_COMM_WORLD, &is_there, &status);
			if (is_there) {
				MPI_Recv(&got, 1, MPI_INT, status.MPI_SOURCE, TAG + 1,
					 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
				check(got == status.MPI_SOURCE, "a message beside a barrier");
				received++;
			}
			if (is_sent) {
				MPI_Test(&barrier, &is_over, MPI_STATUS_IGNORE);
				continue;
			}
			MPI_Test(&sent, &is_sent, MPI_STATUS_IGNORE);
			if (is_sent)
				MPI_Ibarrier(MPI_COMM_WORLD, &barrier);
		}
		check(received == 1, "all messages are there when the barrier ends");
		MPI_Barrier(MPI_COMM_WORLD);
	}
}

/* The target of a one-sided access blocks in a barrier. */
static void window_under_barrier(void)
{
	int *memory, value = 51;
	MPI_Win window;

	MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory,
			 &window);
	*memory = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 1) {
		usleep(PAUSE_US);
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
		MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, window);
		MPI_Win_unlock(0, window);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
	MPI_Get(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, window);
	MPI_Win_unlock(0, window);
	check(value == 51, "what was put during a barrier");
	MPI_Win_free(&window);
}

/* The root is far ahead of a rank that computes. */
static void root_runs_ahead(void)
{
	if (rank == size - 1)
		usleep(5 * PAUSE_US);
	for (int i = 0; i < 2000; i++)
		broadcast(MPI_COMM_WORLD, 0, i);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* A rank whose broadcasts have already arrived never waits, but its sends must make progress. */
static void send_under_calls_that_wait_for_nothing(void)
{
	unsigned char *memory = large(rank == 0 ? 77 : 0);
	MPI_Request request = MPI_REQUEST_NULL;
	int is_done = 0;

	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		MPI_Isend(memory, LARGE, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &request);
	else if (rank == 1)
		MPI_Irecv(memory, LARGE, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request);
	while (!is_done) {
		if (rank == 1)
			MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
		else
			usleep(BEHIND_US);
		MPI_Bcast(&is_done, 1, MPI_INT, 1, MPI_COMM_WORLD);
	}
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	if (rank == 1)
		check_large(memory, 77, "what was sent under calls that wait for nothing");
	free(memory);
}

/* ---- requests ------------------------------------------------------------ */

static int query(void *state, MPI_Status *status)
{
	(void)state;
	MPI_Status_set_elements(status, MPI_BYTE, 3);
	MPI_Status_set_cancelled(status, 0);
	status->MPI_SOURCE = MPI_UNDEFINED;
	status->MPI_TAG = MPI_UNDEFINED;
	return MPI_SUCCESS;
}

static int freed(void *state)
{
	++*(int *)state;
	return MPI_SUCCESS;
}

static int cancelled(void *state, int is_complete)
{
	(void)state, (void)is_complete;
	return MPI_SUCCESS;
}

/* All kinds of requests in one array, some of them the program's generalized requests. */
static void requests_of_all_kinds(void)
{
	int to = (rank + 1) % size, from = (rank + size - 1) % size;
	int out = rank, in, value, frees = 0, count;
	MPI_Request requests[6], own;
	MPI_Status statuses[6];

	MPI_Send_init(&out, 1, MPI_INT, to, TAG, MPI_COMM_WORLD, &requests[0]);
	MPI_Recv_init(&in, 1, MPI_INT, from, TAG, MPI_COMM_WORLD, &requests[1]);
	requests[5] = MPI_REQUEST_NULL;
	for (int turn = 0; turn < 10; turn++) {
		value = rank ? -1 : turn;
		in = -1;
		MPI_Startall(2, requests);
		MPI_Ibcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD, &requests[2]);
		MPI_Grequest_start(query, freed, cancelled, &frees, &own);
		requests[3] = own;
		MPI_Ibarrier(MPI_COMM_WORLD, &requests[4]);
		MPI_Grequest_complete(own);
		MPI_Waitall(6, requests, statuses);
		check(value == turn && in == from, "requests of all kinds");
		check(frees == turn + 1, "a generalized request is freed once");
		MPI_Get_count(&statuses[3], MPI_BYTE, &count);
		check(count == 3, "the status of a generalized request");
		check(requests[2] == MPI_REQUEST_NULL && requests[4] == MPI_REQUEST_NULL,
		      "requests of collectives are gone");
		check(requests[0] != MPI_REQUEST_NULL, "a persistent request stays");
	}
	MPI_Request_free(&requests[0]);
	MPI_Request_free(&requests[1]);
}

/* ---- attributes and errors ----------------------------------------------- */

static int copies, deletes;

static int copy(MPI_Comm comm, int keyval, void *extra, void *value, void *copied, int *is_kept)
{
	(void)comm, (void)keyval, (void)extra;
	*(void **)copied = value;
	*is_kept = 1;
	copies++;
	return MPI_SUCCESS;
}

static int delete(MPI_Comm comm, int keyval, void *value, void *extra)
{
	(void)comm, (void)keyval, (void)value, (void)extra;
	deletes++;
	return MPI_SUCCESS;
}

static void attributes(void)
{
	MPI_Comm comm = duplicate(), second;
	int keyval, is_set, mark;
	void *value;

	copies = deletes = 0;
	MPI_Comm_create_keyval(copy, delete, &keyval, NULL);
	MPI_Comm_set_attr(comm, keyval, &mark);
	broadcast(comm, 0, 1);
	MPI_Comm_dup(comm, &second);
	broadcast(second, 0, 2);
	MPI_Comm_get_attr(second, keyval, &value, &is_set);
	check(is_set && value == &mark && copies == 1 && deletes == 0, "a copied attribute");
	MPI_Comm_free(&comm);
	check(deletes == 1, "an attribute is deleted once");
	broadcast(second, 1, 3);
	MPI_Comm_delete_attr(second, keyval);
	broadcast(second, 1, 4);
	MPI_Comm_free(&second);
	check(deletes == 2, "a deleted attribute is not deleted again");
	MPI_Comm_free_keyval(&keyval);
}

static int handled;

static void handle(MPI_Comm *comm, int *code, ...)
{
	(void)comm, (void)code;
	handled++;
}

static void expect(int code, int expected, const char *what)
{
	int class = -1;

	MPI_Error_class(code, &class);
	check(class == expected, what);
}

static void errors(void)
{
	MPI_Comm comm = duplicate();
	MPI_Request request;
	MPI_Errhandler handler;
	int value = 1;

	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	for (int turn = 0; turn < 2; turn++) {
		expect(MPI_Bcast(&value, 1, MPI_INT, size, comm), MPI_ERR_ROOT, "a root too high");
		expect(MPI_Bcast(&value, 1, MPI_INT, -7, comm), MPI_ERR_ROOT, "a negative root");
		expect(MPI_Bcast(&value, -1, MPI_INT, 0, comm), MPI_ERR_COUNT, "a negative count");
		expect(MPI_Bcast(&value, 1, MPI_DATATYPE_NULL, 0, comm), MPI_ERR_TYPE, "no type");
		expect(MPI_Ibcast(&value, 1, MPI_INT, size, comm, &request), MPI_ERR_ROOT,
		       "a root too high of MPI_Ibcast");
		expect(MPI_Ibcast(&value, -1, MPI_INT, 0, comm, &request), MPI_ERR_COUNT,
		       "a negative count of MPI_Ibcast");
		broadcast(comm, 0, 60); /* everything still works, and is set up by now */
		MPI_Barrier(comm);
	}
	MPI_Comm_create_errhandler(handle, &handler);
	MPI_Comm_set_errhandler(comm, handler);
	handled = 0;
	MPI_Bcast(&value, 1, MPI_INT, size, comm);
	check(handled == 1, "the program's own handler is called once");
	broadcast(comm, 0, 61);
	MPI_Errhandler_free(&handler);
	MPI_Comm_free(&comm);
}

static void nothing_to_send(void)
{
	MPI_Datatype empty;
	MPI_Request request;
	int value = rank;

	MPI_Type_contiguous(0, MPI_INT, &empty);
	MPI_Type_commit(&empty);
	MPI_Bcast(&value, 0, MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Bcast(NULL, 0, MPI_INT, size - 1, MPI_COMM_WORLD);
	MPI_Bcast(&value, 3, empty, 0, MPI_COMM_WORLD);
	MPI_Ibcast(NULL, 0, MPI_INT, 0, MPI_COMM_WORLD, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Bcast(&value, 0, MPI_INT, 0, MPI_COMM_SELF);
	MPI_Barrier(MPI_COMM_SELF);
	check(value == rank, "an empty broadcast changes nothing");
	MPI_Type_free(&empty);
}

/* ---- threads ------------------------------------------------------------- */

static MPI_Comm threads_comm[2];

static void *second_thread(void *argument)
{
	(void)argument;
	/* The order of threads differs between ranks, so each thread must progress alone. */
	for (int i = 0; i < BURST; i++) {
		broadcast(threads_comm[1], i % size, i);
		MPI_Barrier(threads_comm[1]);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t thread;
	int provided, value = rank;

	MPI_Query_thread(&provided);
	if (provided < MPI_THREAD_MULTIPLE) {
		if (rank == 0)
			printf("skipped: needs MPI_THREAD_MULTIPLE\n");
		return;
	}
	threads_comm[0] = duplicate();
	threads_comm[1] = duplicate();
	if (rank % 2)
		pthread_create(&thread, NULL, second_thread, NULL);
	/* Even ranks run both parts one after the other on one thread, odd ranks concurrently. */
	if (rank % 2 == 0) {
		for (int to = 1; to < size; to += 2)
			MPI_Send(&value, 1, MPI_INT, to, TAG, threads_comm[0]);
		second_thread(NULL);
	} else {
		/* While the other thread is in its broadcasts. */
		for (int from = 0; from < size; from += 2)
			MPI_Recv(&value, 1, MPI_INT, from, TAG, threads_comm[0],
				 MPI_STATUS_IGNORE);
		pthread_join(thread, NULL);
	}
	broadcast(threads_comm[0], 0, 71);
	MPI_Comm_free(&threads_comm[0]);
	MPI_Comm_free(&threads_comm[1]);
}

/* ---- the program --------------------------------------------------------- */

/* MPI still works while MPI_Finalize deletes the attributes of MPI_COMM_SELF. */
static int at_finalize(MPI_Comm comm, int keyval, void *value, void *extra)
{
	(void)comm, (void)keyval, (void)value, (void)extra;
	broadcast(MPI_COMM_WORLD, 0, 81);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("progress: ok\n");
	fflush(stdout);
	return MPI_SUCCESS;
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"part_before_world", part_before_world}, /* so it must be first */
	{"first_is_nonblocking", first_is_nonblocking},
	{"start_beside_nonblocking", start_beside_nonblocking},
	{"opposite_order", opposite_order},
	{"send_under_broadcast", send_under_broadcast},
	{"receive_under_barrier", receive_under_barrier},
	{"send_under_request", send_under_request},
	{"broadcasts_then_send", broadcasts_then_send},
	{"barrier_and_messages", barrier_and_messages},
	{"window_under_barrier", window_under_barrier},
	{"root_runs_ahead", root_runs_ahead},
	{"send_under_calls_that_wait_for_nothing", send_under_calls_that_wait_for_nothing},
	{"many_communicators", many_communicators},
	{"between_groups", between_groups},
	{"requests_of_all_kinds", requests_of_all_kinds},
	{"attributes", attributes},
	{"errors", errors},
	{"nothing_to_send", nothing_to_send},
	{"threads", threads},
	{"free_with_broadcast_under_way", free_with_broadcast_under_way},
	{"free_unused_with_broadcast_under_way", free_unused_with_broadcast_under_way},
};

enum {
	CASES = sizeof(cases) / sizeof(*cases),
#ifdef OPEN_MPI
	/* The last two are legal, but crash Open MPI 4.1 by itself, so they run only if named. */
	USUAL = CASES - 2,
#else
	USUAL = CASES,
#endif
};

static int is_wanted(int argc, char **argv, int which)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], cases[which].name))
			return 1;
	return argc < 2 && which < USUAL;
}

/* Thread level that the requested cases need. */
static int threads_wanted(int argc, char **argv)
{
	for (int i = 0; i < CASES; i++)
		if (cases[i].run == threads && is_wanted(argc, argv, i))
			return MPI_THREAD_MULTIPLE;
	return MPI_THREAD_SINGLE;
}

int main(int argc, char **argv)
{
	int keyval, provided;

	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (int i = 0; i < CASES; i++)
			puts(cases[i].name);
		return 0;
	}
	MPI_Init_thread(&argc, &argv, threads_wanted(argc, argv), &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	check(size > 1, "number of ranks: at least 2");
	MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_finalize, &keyval, NULL);
	MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
	for (int i = 0; i < CASES; i++) {
		if (!is_wanted(argc, argv, i))
			continue;
		if (rank == 0)
			printf("%s\n", cases[i].name);
		fflush(stdout);
		cases[i].run();
	}
	/* The root may leave before the others have the data; MPI_Finalize must deliver them. */
	broadcast(MPI_COMM_WORLD, 0, 80);
	MPI_Finalize();
	return 0;
}
