/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Compares MPI_Scan and MPI_Exscan with PMPI_Scan and PMPI_Exscan on the same numbers, also in
 * place, for C types and operations of reductions: integers must agree in every bit, floats except
 * for rounding. Prints ok, or what is wrong.
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { COUNT_MAX = 128, BYTES_MAX = COUNT_MAX * 8 };

static int rank, ranks;

static void expect(int is_right, const char *what, int count, int size)
{
	if (is_right)
		return;
	printf("scans: rank %d: wrong: %s (%d numbers of %d bytes)\n", rank, what, count, size);
	fflush(stdout);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Stores numbers that differ by rank. */
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

static int are_equal(const char *got, const char *wanted, int count, int size, int is_float)
{
	if (!is_float)
		return memcmp(got, wanted, (size_t)count * (size_t)size) == 0;
	for (int i = 0; i < count; i++) {
		float single[2];
		double real[2];

		memcpy(single, got + i * size, 4), memcpy(single + 1, wanted + i * size, 4);
		real[0] = single[0], real[1] = single[1];
		if (size == 8)
			memcpy(real, got + i * size, 8), memcpy(real + 1, wanted + i * size, 8);
		if (fabs(real[0] - real[1]) > 1e-5 * fabs(real[1]))
			return 0;
	}
	return 1;
}

static void compare(MPI_Datatype type, MPI_Op op, int count, int is_float)
{
	static char from[BYTES_MAX], own[BYTES_MAX], wanted[BYTES_MAX], got[BYTES_MAX + 1];
	char place = 0x5a;
	size_t bytes;
	int size;

	MPI_Type_size(type, &size);
	bytes = (size_t)count * (size_t)size;
	fill(from, count, size, is_float);
	memcpy(own, from, bytes);
	PMPI_Scan(own, wanted, count, type, op, MPI_COMM_WORLD);
	memset(got, 0x5a, sizeof(got));
	MPI_Scan(own, got, count, type, op, MPI_COMM_WORLD);
	expect(are_equal(got, wanted, count, size, is_float), "a scan", count, size);
	expect(got[bytes] == 0x5a, "what is behind a scan", count, size);
	memcpy(got, from, bytes);
	MPI_Scan(MPI_IN_PLACE, got, count, type, op, MPI_COMM_WORLD);
	expect(are_equal(got, wanted, count, size, is_float), "a scan in place", count, size);

	memset(wanted, 0x5a, sizeof(wanted));
	PMPI_Exscan(own, wanted, count, type, op, MPI_COMM_WORLD);
	memset(got, 0x5a, sizeof(got));
	MPI_Exscan(own, got, count, type, op, MPI_COMM_WORLD);
	if (rank == 0)
		expect(got[0] == 0x5a && !memcmp(got, got + 1, bytes), "memory of rank 0", count,
		       size);
	else
		expect(are_equal(got, wanted, count, size, is_float), "an exscan", count, size);
	expect(got[bytes] == 0x5a, "what is behind an exscan", count, size);
	memcpy(got, from, bytes);
	MPI_Exscan(MPI_IN_PLACE, got, count, type, op, MPI_COMM_WORLD);
	expect(are_equal(got, rank ? wanted : from, count, size, is_float), "an exscan in place",
	       count, size);
	/* The result buffer of rank 0 is not accessed, but MPICH rejects NULL. */
	MPI_Exscan(own, rank ? got : &place, count, type, op, MPI_COMM_WORLD);
	expect(place == 0x5a && (!rank || are_equal(got, wanted, count, size, is_float)),
	       "an exscan without memory at rank 0", count, size);
	expect(memcmp(own, from, bytes) == 0, "numbers that were brought", count, size);
}

static void known(void)
{
	const struct {
		MPI_Datatype type;
		int is_float;
	} types[] = {
		{ MPI_DOUBLE, 1 }, { MPI_FLOAT, 1 }, { MPI_INT, 0 }, { MPI_UNSIGNED_CHAR, 0 },
		{ MPI_SHORT, 0 }, { MPI_INT64_T, 0 }, { MPI_UINT64_T, 0 },
	};
	const MPI_Op ops[] = { MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_BAND, MPI_BOR, MPI_BXOR };
	const int counts[] = { 1, 3, 100, COUNT_MAX };

	for (size_t t = 0; t < sizeof(types) / sizeof(*types); t++)
		for (int op = 0; op < (types[t].is_float ? 4 : 7); op++)
			for (int c = 0; c < 4; c++)
				compare(types[t].type, ops[op], counts[c], types[t].is_float);
}

/* On a communicator of one rank, of some ranks in a different order, and of no numbers. */
static void others(void)
{
	int number = rank, sum = -1, place;
	MPI_Comm half;

	MPI_Scan(&number, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
	expect(sum == rank, "a scan of one rank", 1, 4);
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
	MPI_Comm_rank(half, &place);
	number = 1 << place;
	MPI_Exscan(&number, &sum, 1, MPI_INT, MPI_SUM, half);
	expect(sum == (place ? number - 1 : rank), "an exscan of some ranks", 1, 4);
	MPI_Comm_free(&half);
	MPI_Scan(NULL, NULL, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

/* Calls that are passed to the MPI: long data, and errors. */
static void passed(void)
{
	static double long_data[COUNT_MAX + 1];
	int number = 1, sum;

	MPI_Scan(MPI_IN_PLACE, long_data, COUNT_MAX + 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	expect(MPI_Scan(&number, &sum, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD) != MPI_SUCCESS,
	       "an invalid operation is not refused", 1, 4);
	/* A negative count aborts MPICH. */
	expect(MPI_Exscan(&number, &sum, 1, MPI_DATATYPE_NULL, MPI_SUM, MPI_COMM_WORLD) !=
	       MPI_SUCCESS, "an invalid type is not refused", 1, 4);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	known();
	others();
	passed();
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		puts("scans: ok");
	MPI_Finalize();
	return 0;
}
