/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Communicators of ranks that exchange data by other means: children of one
 * process, in memory shared with it. No launcher, no address, no key.
 */
#include "check.h"
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, ROW_BYTES = 4096, BOARDS = 16 };

/* Where the ranks of one communicator write the data they exchange. */
struct board {
	atomic_int arrived, turn, is_broken;
	char rows[RANKS][ROW_BYTES];
};

/* A rank's access to a board. */
struct seat {
	struct board *board;
	int rank, size;
	int fails_at; /* number of the call that fails, from 1; 0 for none */
	int calls;
};

static struct board *boards;
static int me; /* rank of this process among all processes */

static int meet(struct seat *seat)
{
	struct board *board = seat->board;
	int turn = atomic_load(&board->turn);

	if (atomic_fetch_add(&board->arrived, 1) + 1 == seat->size) {
		atomic_store(&board->arrived, 0);
		atomic_store(&board->turn, turn + 1);
	}
	while (atomic_load(&board->turn) == turn) {
		if (atomic_load(&board->is_broken))
			return 5;
		sched_yield();
	}
	return 0;
}

static int is_joined;

static void count_wait(void)
{
	atomic_fetch_add(&boards[8].turn, 1);
	if (me == 1)
		atomic_fetch_add(&boards[7].turn, is_joined);
}

static int allgather(void *context, const void *mine, void *all, size_t bytes)
{
	struct seat *seat = context;

	CHECK(bytes > 0 && bytes <= ROW_BYTES);
	if (++seat->calls == seat->fails_at) {
		atomic_store(&seat->board->is_broken, 1);
		return 5;
	}
	memcpy(seat->board->rows[seat->rank], mine, bytes);
	if (meet(seat))
		return 5;
	for (int rank = 0; rank < seat->size; rank++)
		memcpy((char *)all + (size_t)rank * bytes, seat->board->rows[rank], bytes);
	if (meet(seat))
		return 5;
	/* Delays the last rank, so that the others wait for it while they join. */
	if (me == RANKS - 1)
		usleep(5000);
	return 0;
}

/* Creates a communicator of these ranks, which include this one; NULL and a result on failure. */
static omnes_comm *try_exchange(int board, const int *members, int size, int fails_at, int *result)
{
	struct seat seat = { .board = &boards[board], .size = size, .fails_at = fails_at };
	omnes_exchange ranks = { .struct_bytes = sizeof(ranks), .size = size,
				 .allgather = allgather, .context = &seat,
				 .while_waiting = count_wait };
	omnes_comm *comm = NULL;

	while (members[seat.rank] != me)
		seat.rank++;
	ranks.rank = seat.rank;
	*result = omnes_comm_exchange(&ranks, &comm);
	CHECK((*result == OMNES_SUCCESS) == (comm != NULL));
	return comm;
}

/* Messages between the members arrive, and their ranks are as expected. */
static void use(omnes_comm *comm, const int *members, int size)
{
	int rank = omnes_rank(comm), told, got;

	CHECK(omnes_size(comm) == size && members[rank] == me);
	for (int root = 0; root < size; root++) {
		told = rank == root ? me : -1;
		OK(omnes_bcast(comm, &told, sizeof(told), root));
		CHECK(told == members[root]);
	}
	OK(omnes_send(comm, (rank + 1) % size, 3, &me, sizeof(me)));
	OK(omnes_recv(comm, (rank + size - 1) % size, 3, &got, sizeof(got), NULL));
	CHECK(got == members[(rank + size - 1) % size]);
	OK(omnes_barrier(comm));
}

/* Creates a communicator and uses it immediately; NULL for ranks that are not members. */
static omnes_comm *exchange(int board, const int *members, int size)
{
	omnes_comm *comm = NULL;
	int result;

	for (int rank = 0; rank < size; rank++) {
		if (members[rank] == me) {
			comm = try_exchange(board, members, size, 0, &result);
			OK(result);
			use(comm, members, size);
		}
	}
	return comm;
}

/* Number of jobs of this process: each has a thread of this name. */
static int jobs(void)
{
	FILE *names = popen("cat /proc/$PPID/task/*/comm", "r");
	char name[64];
	int count = 0;

	CHECK(names != NULL);
	while (fgets(name, sizeof(name), names))
		count += !strcmp(name, "omnes-progress\n");
	pclose(names);
	return count;
}

/*
 * Waits until there are count jobs: a thread sets its name, and exits, only when it is scheduled.
 */
static int becomes(int count)
{
	for (int looks = 0; jobs() != count; looks++) {
		if (looks == 500)
			return 0;
		usleep(20000);
	}
	return 1;
}

/* The threads of jobs that were left exit by themselves. */
static void wait_for_end(void)
{
	CHECK(becomes(0));
}

static const int all[] = { 0, 1, 2, 3 }, reversed[] = { 3, 2, 1, 0 };
static const int low[] = { 0, 1 }, high[] = { 2, 3 }, odd[] = { 1, 3 }, middle[] = { 2, 1 };

/* All later communicators share the first one's job. */
static void share(void)
{
	omnes_comm *comms[6] = { NULL }, *copy, *part;
	int nodes = strcmp(getenv("OMNES_SHM"), "off") ? 1 : RANKS;

	comms[0] = exchange(0, all, RANKS);
	CHECK(atomic_load(&boards[8].turn) > 0);
	/* Also called on the communicator: rank 0 enters once rank 1 is seen waiting. */
	is_joined = 1;
	while (me == 0 && !atomic_load(&boards[7].turn))
		sched_yield();
	OK(omnes_barrier(comms[0]));
	CHECK(omnes_comm_nodes(comms[0]) == nodes);
	comms[1] = exchange(1, low, 2);
	comms[2] = exchange(2, high, 2);
	comms[3] = exchange(3, odd, 2);
	comms[4] = exchange(4, reversed, RANKS);
	comms[5] = exchange(0, all, RANKS);
	CHECK(becomes(1));
	REFUSED(omnes_finalize(comms[0]), "omnes_comm_free");
	OK(omnes_comm_dup(comms[4], &copy));
	use(copy, reversed, RANKS);
	OK(omnes_comm_split(comms[0], me % 2 ? 0 : OMNES_NO_COLOR, 0, &part));
	if (part)
		use(part, odd, 2);
	OK(omnes_comm_free(copy));
	if (part)
		OK(omnes_comm_free(part));
	/* A different order on each rank; the job continues without its first communicator. */
	for (int k = 0; k < 6; k++) {
		int which = (k + me) % 6;
		if (which != 3 && comms[which])
			OK(omnes_comm_free(comms[which]));
	}
	if (comms[3])
		use(comms[3], odd, 2);
	comms[1] = exchange(5, low, 2);
	CHECK(becomes(1));
	OK(omnes_leave());
	wait_for_end();
	/* After the job has been left, communicators can only be freed. */
	if (comms[3])
		OK(omnes_comm_free(comms[3]));
	if (comms[1])
		OK(omnes_comm_free(comms[1]));
	OK(omnes_leave());
	/* A new job replaces it. */
	comms[0] = exchange(6, all, RANKS);
	CHECK(becomes(1));
	OK(omnes_leave());
	OK(omnes_comm_free(comms[0]));
}

/* Ranks that have never been in a common job create a new one. */
static void grow(void)
{
	omnes_comm *own = exchange(me < 2 ? 0 : 1, me < 2 ? low : high, 2);
	omnes_comm *between = exchange(2, middle, 2), *world;

	CHECK(becomes(between ? 2 : 1));
	world = exchange(3, all, RANKS);
	CHECK(becomes(between ? 3 : 2));
	OK(omnes_comm_free(world));
	world = exchange(4, reversed, RANKS);
	own = exchange(me < 2 ? 5 : 6, me < 2 ? low : high, 2);
	CHECK(becomes(between ? 3 : 2));
	OK(omnes_leave());
	wait_for_end();
	if (between)
		OK(omnes_comm_free(between));
	OK(omnes_comm_free(own));
	OK(omnes_comm_free(world));
}

/* If one rank fails to join, all ranks fail, and each gets the rank and the reason. */
static void fail(void)
{
	int result;

	if (me == 2)
		setenv("OMNES_INTERFACE", "nonsense0", 1);
	CHECK(!try_exchange(0, all, RANKS, 0, &result));
	CHECK(result == OMNES_ERROR_EXCHANGE);
	CHECK(strstr(omnes_last_error(), "rank 2: OMNES_INTERFACE=nonsense0: no address here"));
	unsetenv("OMNES_INTERFACE");
	if (me == 1)
		setenv("OMNES_EAGER_BYTES", "many", 1);
	CHECK(!try_exchange(1, all, RANKS, 0, &result));
	CHECK(result == OMNES_ERROR_EXCHANGE);
	CHECK(strstr(omnes_last_error(), "rank 1: OMNES_EAGER_BYTES=many: "));
	unsetenv("OMNES_EAGER_BYTES");
	/* Listening at this address is impossible, which only rank 0 detects. */
	setenv("OMNES_RENDEZVOUS", "192.0.2.77", 1);
	CHECK(!try_exchange(2, all, RANKS, 0, &result));
	CHECK(result == OMNES_ERROR_EXCHANGE);
	CHECK(strstr(omnes_last_error(), "rank 0: rank 0 cannot listen at '192.0.2.77'"));
	setenv("OMNES_RENDEZVOUS", "127.0.0.1", 1);
	/* Detected only after all ranks have met. */
	if (me == 3)
		setenv("OMNES_EAGER_BYTES", "1000", 1);
	CHECK(!try_exchange(3, all, RANKS, 0, &result));
	CHECK(result == OMNES_ERROR_EXCHANGE);
	CHECK(strstr(omnes_last_error(), "OMNES_EAGER_BYTES is 1000 on rank 3"));
	unsetenv("OMNES_EAGER_BYTES");
	if (me == 3)
		setenv("OMNES_JOB_KEY", "0123456789abcdef0123456789abcdef", 1);
	CHECK(!try_exchange(4, all, RANKS, 0, &result));
	CHECK(result == OMNES_ERROR_EXCHANGE);
	CHECK(strstr(omnes_last_error(), "rank 3: OMNES_JOB_KEY differs"));
	wait_for_end();
	setenv("OMNES_JOB_KEY", "0123456789abcdef0123456789abcdef", 1);
	OK(omnes_comm_free(exchange(5, all, RANKS)));
	OK(omnes_leave());
}

/* A failing exchange is an error, no matter which call of allgather fails. */
static void breaks(void)
{
	int result, is_over = 0;

	for (int call = 1; call < BOARDS && !is_over; call++) {
		omnes_comm *comm = try_exchange(call, all, RANKS, me == 1 ? call : 0, &result);

		if (comm) {
			/* call exceeds the number of calls made. */
			CHECK(call > 5);
			OK(omnes_comm_free(comm));
			is_over = 1;
		} else {
			CHECK(result == OMNES_ERROR_EXCHANGE_FAILED);
			CHECK(strstr(omnes_last_error(), "allgather returned 5"));
			CHECK(becomes(0));
		}
	}
	CHECK(is_over);
	OK(omnes_leave());
}

/*
 * A rank exits without leaving; communicators without it still work, and all ranks get the error.
 */
static void die(void)
{
	omnes_comm *world = exchange(0, all, RANKS);
	omnes_comm *pair = exchange(1, low, 2);
	struct seat seat = { .board = &boards[2], .size = RANKS };

	/* Must not exit while others are still in a barrier that it has already left. */
	CHECK(!meet(&seat));
	if (me == 3)
		_exit(0);
	CHECK(omnes_barrier(world) == OMNES_ERROR_PEER_FAILED);
	CHECK(strstr(omnes_last_error(), "rank 3"));
	if (pair) {
		use(pair, low, 2);
		pair = exchange(1, low, 2);
	}
	CHECK(omnes_leave() == OMNES_ERROR_PEER_FAILED);
	CHECK(strstr(omnes_last_error(), "rank 3"));
	wait_for_end();
}

/* A rank returns after it was silent for too long: the others create a new job with it. */
static void give_up(void)
{
	omnes_comm *first, *second;
	atomic_int *pid = (atomic_int *)boards[5].rows[0];

	if (me > 1)
		return;
	setenv("OMNES_PEER_TIMEOUT", "1s", 1);
	first = exchange(0, low, 2);
	if (me == 1) {
		atomic_store(pid, getpid());
		raise(SIGSTOP);
	} else {
		while (!atomic_load(pid))
			sched_yield();
		CHECK(omnes_barrier(first) == OMNES_ERROR_PEER_FAILED);
		kill(atomic_load(pid), SIGCONT);
	}
	unsetenv("OMNES_PEER_TIMEOUT");
	second = exchange(1, low, 2);
	CHECK(becomes(2));
	use(second, low, 2);
	CHECK(omnes_leave() != OMNES_SUCCESS);
	wait_for_end();
	OK(omnes_comm_free(first));
	OK(omnes_comm_free(second));
}

int main(int count, char **arguments)
{
	static const struct {
		const char *name;
		void (*body)(void);
	} scenarios[] = {
		{ "share", share }, { "grow", grow }, { "fail", fail },
		{ "breaks", breaks }, { "die", die }, { "give_up", give_up },
	};
	int status, is_good = 1;

	CHECK(count == 2);
	boards = mmap(NULL, BOARDS * sizeof(*boards), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(boards != MAP_FAILED);
	for (me = 0; me < RANKS; me++) {
		if (fork())
			continue;
		for (size_t k = 0; k < sizeof(scenarios) / sizeof(*scenarios); k++) {
			if (!strcmp(scenarios[k].name, arguments[1])) {
				scenarios[k].body();
				exit(0);
			}
		}
		exit(2);
	}
	while (wait(&status) > 0)
		is_good = is_good && WIFEXITED(status) && !WEXITSTATUS(status);
	return !is_good;
}
