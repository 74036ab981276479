/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Compares MPI_Allgather and MPI_Iallgather with PMPI_Allgather, on numbers in
 * many memory layouts, different on each rank: all memory must agree, including
 * the gaps between the numbers. Prints ok, or what is wrong.
 */
#define PROGRAM "gathers"
#include "places.h"
#include <stdlib.h>

enum {
	RANKS_MAX = 8,
	COUNT_MAX = 4000,
	NUMBERS_MAX = RANKS_MAX * COUNT_MAX * 2, /* with as many in the gaps */
	LONG_COUNT = 200000,			 /* longer than the calls that are taken */
};

static void expect_all(const struct place *place, int count, int shift)
{
	for (int from = 0; from < ranks; from++)
		for (int i = 0; i < count; i++)
			expect(place->memory[(size_t)from * place->extent +
					     (size_t)i * place->stride] == number(from, i),
			       "a number", count, shift);
}

static int from_memory[COUNT_MAX * 2], got_memory[NUMBERS_MAX], wanted_memory[NUMBERS_MAX];

enum how {
	BLOCKING,
	STARTED,
	FREED, /* like STARTED, but the types are freed before it completes */
	HOWS
};

static void gather(enum how how, void *buffer, struct place *from, struct place *got)
{
	MPI_Request request;

	if (how == BLOCKING) {
		MPI_Allgather(buffer, from->count, from->type, got->buffer, got->count, got->type,
			      MPI_COMM_WORLD);
		return;
	}
	MPI_Iallgather(buffer, from->count, from->type, got->buffer, got->count, got->type,
		       MPI_COMM_WORLD, &request);
	if (how == FREED)
		place_free(from), place_free(got);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* Compares the library with the MPI, with the same initial memory. */
static void compare(enum how how, int count, int shift, int is_in_place)
{
	struct place from = place_make(from_memory, count, (enum layout)((rank + shift) % LAYOUTS));
	enum layout layout = (enum layout)((rank / 2 + shift / LAYOUTS) % LAYOUTS);
	struct place got = place_make(got_memory, count, layout);
	struct place wanted = place_make(wanted_memory, count, layout);
	void *buffer = is_in_place ? MPI_IN_PLACE : from.buffer;

	memset(got_memory, 0x5a, sizeof(got_memory));
	memset(wanted_memory, 0x5a, sizeof(wanted_memory));
	bring(&from, 0, count, 0);
	if (is_in_place) {
		bring(&got, rank, count, 0);
		bring(&wanted, rank, count, 0);
	}
	PMPI_Allgather(buffer, from.count, from.type, wanted.buffer, wanted.count, wanted.type,
		       MPI_COMM_WORLD);
	gather(how, buffer, &from, &got);
	expect_all(&got, count, shift);
	expect(memcmp(got_memory, wanted_memory, sizeof(got_memory)) == 0,
	       "what lies between the numbers", count, shift);
	place_free(&from), place_free(&got), place_free(&wanted);
}

/* Calls that are passed to the MPI. */
static void others(void)
{
	int *long_ones = calloc((size_t)ranks, LONG_COUNT * sizeof(int)), nothing = 7;

	if (!long_ones)
		MPI_Abort(MPI_COMM_WORLD, 1);
	long_ones[(size_t)rank * LONG_COUNT] = rank + 1;
	MPI_Allgather(MPI_IN_PLACE, 0, MPI_INT, long_ones, LONG_COUNT, MPI_INT, MPI_COMM_WORLD);
	for (int from = 0; from < ranks; from++)
		expect(long_ones[(size_t)from * LONG_COUNT] == from + 1, "long data", LONG_COUNT,
		       0);
	free(long_ones);
	MPI_Allgather(&nothing, 0, MPI_INT, &nothing, 0, MPI_INT, MPI_COMM_WORLD);
	expect(nothing == 7, "nothing", 0, 0);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	expect(MPI_Allgather(&nothing, -1, MPI_INT, &nothing, -1, MPI_INT, MPI_COMM_WORLD) !=
	       MPI_SUCCESS, "a negative count is not refused", -1, 0);
}

int main(int argc, char **argv)
{
	static const int counts[] = { 1, 3, 100, COUNT_MAX };

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	expect(ranks <= RANKS_MAX, "more ranks than it is for", ranks, 0);
	for (int c = 0; c < 4; c++)
		for (int shift = 0; shift < LAYOUTS * LAYOUTS; shift++)
			for (int how = 0; how < HOWS; how++) {
				compare((enum how)how, counts[c], shift, 0);
				compare((enum how)how, counts[c], shift, 1);
			}
	others();
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		puts("gathers: ok");
	MPI_Finalize();
	return 0;
}
