/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Random collective calls, each by its MPI_ name and by its PMPI_ name, on the same memory with the
 * same initial bytes: the resulting memory must agree in every byte, and so must the errors
 * returned. Numbers are so small that none is rounded.
 *
 *	differ [--seed N] [--first STEP] [--steps N] [--verbose]
 *
 * Prints ok, or what is wrong and how to reproduce it. Steps are independent.
 */
#include "differ.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TASKS_MAX = 4, TEXT_MAX = 600 };

enum { WORLD, DUPLICATE, HALVES, REVERSED, BUT_LAST, SELF, BETWEEN, COMMS };

/* Table from which steps draw: rarely a communicator whose calls are passed. */
static const int OFTEN[] = { WORLD,    WORLD, WORLD, DUPLICATE, DUPLICATE, HALVES,
			     REVERSED, REVERSED, BUT_LAST, SELF, BETWEEN };

static struct comm comms[COMMS];
static int rank, ranks;
static unsigned long long seed;
static long step;
static int is_verbose;

/* ---- communicators ---- */

static void comm_set(int which, MPI_Comm comm, const char *name)
{
	struct comm *on = &comms[which];

	*on = (struct comm){ .comm = comm, .name = name };
	if (comm == MPI_COMM_NULL)
		return;
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	MPI_Comm_rank(comm, &on->rank);
	MPI_Comm_size(comm, &on->size);
	MPI_Comm_test_inter(comm, &on->is_inter);
	on->parts = on->size;
	on->is_first = rank % 2 == 0;
	if (on->is_inter)
		MPI_Comm_remote_size(comm, &on->parts);
	on->all = on->is_inter ? ranks : on->size;
	if (which != WORLD && which != SELF)
		MPI_Comm_set_name(comm, name);
}

static void comms_make(void)
{
	MPI_Comm made;

	comm_set(WORLD, MPI_COMM_WORLD, "the world");
	comm_set(SELF, MPI_COMM_SELF, "itself");
	MPI_Comm_dup(MPI_COMM_WORLD, &made);
	comm_set(DUPLICATE, made, "a copy");
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &made);
	comm_set(HALVES, made, "one of two halves");
	MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &made);
	comm_set(REVERSED, made, "reversed");
	MPI_Comm_split(MPI_COMM_WORLD, rank < ranks - 1 ? 0 : MPI_UNDEFINED, 0, &made);
	comm_set(BUT_LAST, made, "all but the last");
	made = MPI_COMM_NULL;
	if (ranks > 1)
		MPI_Intercomm_create(comms[HALVES].comm, 0, MPI_COMM_WORLD, 1 - rank % 2, 0,
				     &made);
	comm_set(BETWEEN, made, "between two halves");
}

static void comms_free(void)
{
	for (int which = DUPLICATE; which < COMMS; which++)
		if (which != SELF && comms[which].comm != MPI_COMM_NULL)
			MPI_Comm_free(&comms[which].comm);
}

/* ---- comparing ---- */

static void fail(const struct task *task, const char *what, long where)
{
	char text[TEXT_MAX];

	task_describe(task, text, sizeof(text));
	printf("differ: rank %d of %d: wrong: %s, %ld, in step %ld: %s\n"
	       "differ: again: differ --seed %llu --first %ld --steps 1\n",
	       rank, ranks, what, where, step, text, seed, step);
	fflush(stdout);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static void fail_at(const struct task *task, const struct memory *memory, const char *what,
		    long where)
{
	printf("differ: rank %d: byte %ld of %zu (%s): %02x was %02x, wanted %02x\n", rank, where,
	       memory->bytes, memory->mask[where] ? "data" : "gap", memory->after[where],
	       memory->before[where], memory->now[where]);
	fail(task, what, where);
}

static void check(const struct task *task)
{
	int classes[2];
	long wrong;

	for (int names = 0; names < 2; names++)
		MPI_Error_class(task->results[names], &classes[names]);
	if (classes[MPI] != classes[PMPI])
		fail(task, "the class of the error", classes[MPI]);
	wrong = task->has_from ? memory_wrong(&task->from, 1) : -1;
	if (wrong >= 0)
		fail_at(task, &task->from, "a byte of what is sent", wrong);
	wrong = task->has_to ? memory_wrong(&task->to, task->is_to_read_only) : -1;
	if (wrong >= 0)
		fail_at(task, &task->to, "a byte of what comes", wrong);
}

/* ---- calling ---- */

static void both(struct task *task, void (*act)(struct memory *))
{
	if (task->has_from)
		act(&task->from);
	if (task->has_to)
		act(&task->to);
}

static void wait_all(struct task *tasks, int count, uint64_t *local)
{
	int first = below(local, count), is_done;

	for (int i = 0; i < count; i++) {
		struct task *task = &tasks[(first + i) % count];
		int *result = &task->results[MPI];

		if (task->request == MPI_REQUEST_NULL)
			continue;
		if (below(local, 2)) {
			*result = MPI_Wait(&task->request, MPI_STATUS_IGNORE);
			continue;
		}
		do
			*result = MPI_Test(&task->request, &is_done, MPI_STATUS_IGNORE);
		while (!is_done);
	}
}

/* Runs all tasks, first by the MPI_ names, which a library may intercept. */
static void run(struct task *tasks, int count, uint64_t *local)
{
	for (int i = 0; i < count; i++)
		tasks[i].results[MPI] = call_make(&tasks[i].call, MPI, &tasks[i].request);
	wait_all(tasks, count, local);
	for (int i = 0; i < count; i++) {
		both(&tasks[i], memory_keep);
		both(&tasks[i], memory_reset);
	}
	for (int i = 0; i < count; i++) {
		struct task *task = &tasks[i];

		task->results[PMPI] = call_make(&task->call, PMPI, &task->request);
		if (task->request != MPI_REQUEST_NULL)
			PMPI_Wait(&task->request, MPI_STATUS_IGNORE);
	}
}

static void say(const struct task *task)
{
	char text[TEXT_MAX];

	task_describe(task, text, sizeof(text));
	printf("differ: rank %d, step %ld: %s\n", rank, step, text);
	fflush(stdout);
}

static void step_make(void)
{
	static struct task tasks[TASKS_MAX];
	uint64_t shared = hash(seed * 1000003 + (uint64_t)step), local;
	int planned = 1 + below(&shared, TASKS_MAX), count = 0;

	for (int i = 0; i < planned; i++) {
		const struct comm *on = &comms[*DRAW(&shared, OFTEN)];
		struct draws draws = { hash(shared), hash(shared + 1 + (uint64_t)rank) };

		if (on->comm == MPI_COMM_NULL)
			continue;
		task_draw(&tasks[count], on, &draws);
		both(&tasks[count], memory_begin);
		if (is_verbose)
			say(&tasks[count]);
		count++;
	}
	if (count == 0)
		return;
	local = hash(shared + (uint64_t)rank);
	run(tasks, count, &local);
	for (int i = 0; i < count; i++) {
		check(&tasks[i]);
		task_free(&tasks[i]);
	}
}

int main(int argc, char **argv)
{
	long first = 0, steps = 100;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--verbose") == 0)
			is_verbose = 1;
		else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0)
			seed = strtoull(argv[++i], NULL, 10);
		else if (i + 1 < argc && strcmp(argv[i], "--first") == 0)
			first = atol(argv[++i]);
		else if (i + 1 < argc && strcmp(argv[i], "--steps") == 0)
			steps = atol(argv[++i]);
	}
	types_begin();
	comms_make();
	for (step = first; step < first + steps; step++)
		step_make();
	comms_free();
	types_end();
	if (rank == 0)
		printf("differ: ok, seed %llu\n", seed);
	MPI_Finalize();
	return 0;
}
