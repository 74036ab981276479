/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Compares MPI_Allreduce, MPI_Reduce and their nonblocking variants with
 * PMPI_Allreduce on the same numbers, for all C types and operations of
 * reductions: integers must agree in every bit, floats except for rounding,
 * NaNs in being NaN. Prints ok, or what is wrong.
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONG_COUNT = 8192, COUNT_MAX = 9000 };

static const char *type_name;
static int rank, ranks, op_number;

static void expect(int is_right, const char *what)
{
	if (is_right)
		return;
	printf("reductions: rank %d: wrong: %s (%s, operation %d)\n", rank, what, type_name,
	       op_number);
	fflush(stdout);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Stores numbers that differ by rank. Products of bytes wrap around, alike on all ranks. */
static void fill(char *data, int count, int size, int is_float)
{
	for (int i = 0; i < count; i++, data += size) {
		long long number = 1 + (i + rank) % 2 + 2 * ((i + rank) % 5 == 0);
		float single = (float)number / 3;
		double real = (double)number / 3;

		if (is_float)
			memcpy(data, size == 4 ? (void *)&single : (void *)&real, (size_t)size);
		else
			memcpy(data, &number, (size_t)size); /* little-endian */
	}
}

static int is_close(double a, double b)
{
	return (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-5 * fabs(b);
}

static int are_equal(const char *got, const char *wanted, int count, int size, int is_float)
{
	if (!is_float)
		return memcmp(got, wanted, (size_t)count * (size_t)size) == 0;
	for (int i = 0; i < count; i++) {
		const char *left = got + i * size, *right = wanted + i * size;
		float single[2];
		double real[2];

		memcpy(single, left, 4), memcpy(single + 1, right, 4);
		if (size == 4) {
			real[0] = single[0], real[1] = single[1];
		} else {
			memcpy(real, left, 8), memcpy(real + 1, right, 8);
		}
		if (!is_close(real[0], real[1]))
			return 0;
	}
	return 1;
}

/*
 * The same at a different rank each time; every third time in place, at rank 0,
 * since MPICH 4.0 crashes with a segmentation fault at other ranks.
 */
static void compare_at_root(const char *from, const char *wanted, int count, MPI_Datatype type,
			    MPI_Op op, int size, int is_float)
{
	static char got[COUNT_MAX * 8], own[COUNT_MAX * 8];
	static int turn;
	int is_in_place = ++turn % 3 == 0, root = is_in_place ? 0 : turn % ranks;
	int is_root = rank == root;
	size_t bytes = (size_t)count * (size_t)size;

	memcpy(own, from, bytes);
	memset(got, 0x5a, sizeof(got));
	if (is_root && is_in_place)
		memcpy(got, from, bytes);
	MPI_Reduce(is_root && is_in_place ? MPI_IN_PLACE : own, is_root ? got : NULL, count, type,
		   op, root, MPI_COMM_WORLD);
	expect(!is_root || are_equal(got, wanted, count, size, is_float),
	       "a result at one rank");
	expect(got[bytes] == 0x5a && (is_root || got[0] == 0x5a),
	       "what is behind a result at one rank");
	expect(memcmp(own, from, bytes) == 0, "numbers that were brought");
}

/* The same nonblocking: at all ranks, in place, and at one rank, all in progress concurrently. */
static void compare_started(const char *from, const char *wanted, int count, MPI_Datatype type,
			    MPI_Op op, int size, int is_float)
{
	enum { ALL, PLACE, ONE, CALLS };
	static char got[CALLS][COUNT_MAX * 8], own[COUNT_MAX * 8];
	static int turn;
	MPI_Request requests[CALLS];
	int is_in_place = ++turn % 3 == 0, root = is_in_place ? 0 : turn % ranks;
	int is_root = rank == root;
	size_t bytes = (size_t)count * (size_t)size;

	memcpy(own, from, bytes);
	memset(got, 0x5a, sizeof(got));
	memcpy(got[PLACE], from, bytes);
	if (is_root && is_in_place)
		memcpy(got[ONE], from, bytes);
	MPI_Iallreduce(own, got[ALL], count, type, op, MPI_COMM_WORLD, &requests[ALL]);
	MPI_Iallreduce(MPI_IN_PLACE, got[PLACE], count, type, op, MPI_COMM_WORLD,
		       &requests[PLACE]);
	MPI_Ireduce(is_root && is_in_place ? MPI_IN_PLACE : own, is_root ? got[ONE] : NULL, count,
		    type, op, root, MPI_COMM_WORLD, &requests[ONE]);
	MPI_Waitall(CALLS, requests, MPI_STATUSES_IGNORE);
	for (int call = 0; call < CALLS; call++) {
		int has_result = call != ONE || is_root;

		expect(!has_result || are_equal(got[call], wanted, count, size, is_float),
		       "a result of a nonblocking call");
		expect(got[call][bytes] == 0x5a && (has_result || got[call][0] == 0x5a),
		       "what is behind a result of a nonblocking call");
	}
	expect(memcmp(own, from, bytes) == 0, "numbers that were brought to a nonblocking call");
}

static void compare(MPI_Datatype type, MPI_Op op, int count, int is_float)
{
	static char from[COUNT_MAX * 8], got[COUNT_MAX * 8], wanted[COUNT_MAX * 8];
	int size;

	MPI_Type_size(type, &size);
	fill(from, count, size, is_float);
	PMPI_Allreduce(from, wanted, count, type, op, MPI_COMM_WORLD);
	expect(ranks < 2 || count < 3 || memcmp(from, wanted, (size_t)(count * size)),
	       "numbers that all ranks have in common test nothing");
	memset(got, 0x5a, sizeof(got));
	MPI_Allreduce(from, got, count, type, op, MPI_COMM_WORLD);
	expect(are_equal(got, wanted, count, size, is_float), "a result");
	expect(got[count * size] == 0x5a, "what is behind a result");
	memcpy(got, from, (size_t)count * (size_t)size);
	MPI_Allreduce(MPI_IN_PLACE, got, count, type, op, MPI_COMM_WORLD);
	expect(are_equal(got, wanted, count, size, is_float), "a result in place");
	compare_at_root(from, wanted, count, type, op, size, is_float);
	/* A few long reductions suffice: they are slow if there are more ranks than cores. */
	if (count < LONG_COUNT || op == MPI_SUM)
		compare_started(from, wanted, count, type, op, size, is_float);
}

#define TYPE(type, is_float) { type, #type, is_float }

static void known(void)
{
	const struct {
		MPI_Datatype type;
		const char *name;
		int is_float;
	} types[] = {
		TYPE(MPI_DOUBLE, 1), TYPE(MPI_FLOAT, 1), TYPE(MPI_INT, 0), TYPE(MPI_LONG, 0),
		TYPE(MPI_LONG_LONG, 0), TYPE(MPI_SHORT, 0), TYPE(MPI_SIGNED_CHAR, 0),
		TYPE(MPI_UNSIGNED, 0), TYPE(MPI_UNSIGNED_LONG, 0), TYPE(MPI_UNSIGNED_LONG_LONG, 0),
		TYPE(MPI_UNSIGNED_SHORT, 0), TYPE(MPI_UNSIGNED_CHAR, 0), TYPE(MPI_INT8_T, 0),
		TYPE(MPI_INT16_T, 0), TYPE(MPI_INT32_T, 0), TYPE(MPI_INT64_T, 0),
		TYPE(MPI_UINT8_T, 0), TYPE(MPI_UINT16_T, 0), TYPE(MPI_UINT32_T, 0),
		TYPE(MPI_UINT64_T, 0), TYPE(MPI_REAL8, 1), TYPE(MPI_INTEGER8, 0), TYPE(MPI_AINT, 0),
	};
	const MPI_Op ops[] = { MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX,
			       MPI_BAND, MPI_BOR, MPI_BXOR };
	const int counts[] = { 1, 3, 128, 1000, LONG_COUNT };

	for (size_t t = 0; t < sizeof(types) / sizeof(*types); t++) {
		type_name = types[t].name;
		for (op_number = 0; op_number < (types[t].is_float ? 4 : 7); op_number++)
			for (int c = 0; c < 5; c++)
				compare(types[t].type, ops[op_number], counts[c],
					types[t].is_float);
	}
}

static void larger_of(void *from, void *into, int *count, MPI_Datatype *type)
{
	(void)type;
	for (int i = 0; i < *count; i++)
		if (((int *)from)[i] > ((int *)into)[i])
			((int *)into)[i] = ((int *)from)[i];
}

/* Elements that the MPI combines, and calls that are passed to it: long data, and errors. */
static void others(void)
{
	struct { double value; int rank; } own = { 1.0 / (rank + 1), rank }, least;
	int number = rank, largest = -1, all = 0, yes = 1;
	double not_a_number = NAN;
	MPI_Op op;

	type_name = "others";
	MPI_Allreduce(&own, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD);
	expect(least.rank == ranks - 1, "MPI_MINLOC");
	MPI_Allreduce(&yes, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
	expect(all == 1, "MPI_LAND");
	MPI_Op_create(larger_of, 1, &op);
	MPI_Allreduce(&number, &largest, 1, MPI_INT, op, MPI_COMM_WORLD);
	expect(largest == ranks - 1, "an operation of the program");
	MPI_Op_free(&op);
	compare(MPI_DOUBLE, MPI_SUM, LONG_COUNT + 1, 1);
	MPI_Allreduce(MPI_IN_PLACE, &not_a_number, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	expect(isnan(not_a_number), "a NaN");
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	expect(MPI_Allreduce(&own.value, &least.value, 1, MPI_DOUBLE, MPI_BAND, MPI_COMM_WORLD) !=
	       MPI_SUCCESS, "a bitwise operation on floats is not refused");
	expect(MPI_Allreduce(&number, &largest, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD) !=
	       MPI_SUCCESS, "an invalid operation is not refused");
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	known();
	others();
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		puts("reductions: ok");
	MPI_Finalize();
	return 0;
}
