/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Compares MPI_Reduce_scatter_block and MPI_Reduce_scatter with PMPI_Reduce_scatter_block on the
 * same numbers, which are so small that none is rounded: results must agree in every bit. Prints
 * ok, or what is wrong.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 16, COUNT_MAX = 2000, ROOM = RANKS_MAX * COUNT_MAX * 8, UNTOUCHED = 0x5a };

static const char *name;
static int rank, ranks, count;

static void expect(int is_right, const char *what)
{
	if (is_right)
		return;
	printf("blocks: rank %d: wrong: %s (%s, %d numbers for each)\n", rank, what, name, count);
	fflush(stdout);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Stores number i of this rank. */
typedef void filler(void *room, int i);

#define NUMBERS(name, type)                                          \
	static void name(void *room, int i)                          \
	{                                                            \
		((type *)room)[i] = (type)(i % 7 + rank * (i % 3 + 1)); \
	}

NUMBERS(bytes, unsigned char)
NUMBERS(ints, int)
NUMBERS(doubles, double)

/* Counts that are all equal. */
static int counts[RANKS_MAX];

static void compare(MPI_Datatype type, MPI_Op op, filler *fill)
{
	static _Alignas(16) unsigned char from[ROOM], own[ROOM], wanted[ROOM], got[ROOM];
	int size;
	size_t block, all;

	MPI_Type_size(type, &size);
	block = (size_t)count * (size_t)size, all = block * (size_t)ranks;
	for (int i = 0; i < count * ranks; i++)
		fill(from, i);
	for (int i = 0; i < ranks; i++)
		counts[i] = count;
	memcpy(own, from, all);
	PMPI_Reduce_scatter_block(from, wanted, count, type, op, MPI_COMM_WORLD);

	memset(got, UNTOUCHED, ROOM);
	MPI_Reduce_scatter_block(own, got, count, type, op, MPI_COMM_WORLD);
	expect(memcmp(got, wanted, block) == 0, "a block");
	expect(got[block] == UNTOUCHED, "what is behind a block");
	memset(got, UNTOUCHED, ROOM);
	MPI_Reduce_scatter(own, got, counts, type, op, MPI_COMM_WORLD);
	expect(memcmp(got, wanted, block) == 0, "a block whose count is in a list");
	expect(got[block] == UNTOUCHED, "what is behind a block whose count is in a list");
	expect(memcmp(own, from, all) == 0, "what was brought");

	memcpy(got, from, all);
	MPI_Reduce_scatter_block(MPI_IN_PLACE, got, count, type, op, MPI_COMM_WORLD);
	expect(memcmp(got, wanted, block) == 0, "a block in place");
	memcpy(got, from, all);
	MPI_Reduce_scatter(MPI_IN_PLACE, got, counts, type, op, MPI_COMM_WORLD);
	expect(memcmp(got, wanted, block) == 0, "a block in place whose count is in a list");
}

static void equal(void)
{
	static const int all_counts[] = { 1, 2, 31, 32, 33, 100, 200 };

	for (size_t c = 0; c < sizeof(all_counts) / sizeof(*all_counts); c++) {
		count = all_counts[c];
		name = "MPI_UNSIGNED_CHAR";
		compare(MPI_UNSIGNED_CHAR, MPI_BXOR, bytes);
		name = "MPI_INT";
		compare(MPI_INT, MPI_SUM, ints);
		compare(MPI_INT, MPI_MIN, ints);
		name = "MPI_DOUBLE";
		compare(MPI_DOUBLE, MPI_SUM, doubles);
		compare(MPI_DOUBLE, MPI_MAX, doubles);
	}
}

/* Blocks too long to be taken. */
static void long_block(void)
{
	double *data, *result;

	name = "a long one", count = 8192 / ranks + 1;
	data = malloc((size_t)count * (size_t)ranks * sizeof(*data));
	result = malloc((size_t)count * sizeof(*result));
	for (int i = 0; i < count * ranks; i++)
		data[i] = i;
	MPI_Reduce_scatter_block(data, result, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	expect(result[count - 1] == (double)ranks * (count * (rank + 1) - 1), "a block");
	free(data);
	free(result);
}

/* Calls that are passed to the MPI. */
static void others(void)
{
	static int numbers[RANKS_MAX * (RANKS_MAX + 1)], sums[RANKS_MAX + 1];
	int first = 0, lengths[RANKS_MAX], one = 1, all[RANKS_MAX];

	name = "others", count = 1;
	for (int i = 0; i < ranks; i++) {
		lengths[i] = i + 1;
		first += i < rank ? i + 1 : 0;
		all[i] = one;
	}
	for (int i = 0; i < ranks * (ranks + 1) / 2; i++)
		numbers[i] = i;
	MPI_Reduce_scatter(numbers, sums, lengths, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i <= rank; i++)
		expect(sums[i] == ranks * (first + i), "a block of another length than others");
	MPI_Reduce_scatter_block(all, &one, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
	expect(one == 1, "a logical operation");
	long_block();
	MPI_Reduce_scatter_block(NULL, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	expect(MPI_Reduce_scatter_block(numbers, sums, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD) !=
	       MPI_SUCCESS, "an invalid operation is not refused");
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	equal();
	others();
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		puts("blocks: ok");
	MPI_Finalize();
	return 0;
}
