/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Reductions with operations that only the MPI supports: logical operations,
 * MPI_MINLOC and MPI_MAXLOC on all pair types, complex numbers, long double,
 * and user-defined operations on contiguous and noncontiguous types. Compares
 * MPI_Allreduce and MPI_Reduce with PMPI_Allreduce on the same data, which must
 * agree in every bit: all numbers are so small that none is rounded. Prints ok,
 * or what is wrong.
 */
#include <complex.h>
#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 16, COUNT_MAX = 1000, EXTENT_MAX = 64, UNTOUCHED = 0x5a };
enum { ROOM = COUNT_MAX * EXTENT_MAX };

static const char *name;
static int rank, ranks, count, op_number;

static void expect(int is_right, const char *what)
{
	if (is_right)
		return;
	printf("combinations: rank %d: wrong: %s (%s, operation %d, %d elements)\n", rank, what,
	       name, op_number, count);
	fflush(stdout);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Stores element i of this rank at its place. */
typedef void filler(void *at, int i);

/* A number from 0 to 2, different on each rank. */
static int number(int i)
{
	return (i * 7 + rank * 5 + i / 3) % 3;
}

#define NUMBERS(name, type, first)               \
	static void name(void *at, int i)        \
	{                                        \
		*(type *)at = first + number(i); \
	}

NUMBERS(chars, signed char, 0)
NUMBERS(shorts, short, 0)
NUMBERS(ints, int, 0)
NUMBERS(longs, long, 0)
NUMBERS(long_doubles, long double, 1)

static void bools(void *at, int i)
{
	*(bool *)at = number(i) > 0;
}

static void logicals(void *at, int i)
{
	*(int *)at = number(i) > 0;
}

#define COMPLEX(name, type)                                                     \
	static void name(void *at, int i)                                       \
	{                                                                       \
		type *parts = at;                                               \
		/* At small angles, so that no product has a part of 0, which has a sign. */ \
		parts[0] = (type)(4 + number(i)), parts[1] = (type)(i % 2 ? 1 : -1); \
	}

COMPLEX(complexes, float)
COMPLEX(double_complexes, double)
COMPLEX(long_double_complexes, long double)

/* Pairs of values, many of which are equal, and locations, some of which are equal. */
#define PAIRS(name, type, where)                        \
	static void name(void *at, int i)               \
	{                                               \
		struct { type value; where place; } *pair = at; \
		pair->value = (type)number(i);          \
		pair->place = (where)((ranks - rank) / 2); \
	}

PAIRS(float_ints, float, int)
PAIRS(double_ints, double, int)
PAIRS(long_ints, long, int)
PAIRS(two_ints, int, int)
PAIRS(short_ints, short, int)
PAIRS(long_double_ints, long double, int)
PAIRS(two_floats, float, float)
PAIRS(two_doubles, double, double)

static void around_ints(void *at, int i);

/* A type, and the memory layout of its elements. */
static MPI_Datatype type;
static MPI_Aint lower, extent;
/* For each byte of memory for count elements, whether it belongs to an element. */
static unsigned char is_data[ROOM];

static void *at_place(void *room)
{
	return (char *)room - lower;
}

/* Determines the memory layout of the type. */
static void look_at_type(void)
{
	static char ones[ROOM];
	int size, bytes, position = 0;
	MPI_Aint extent_is, lower_is;

	MPI_Type_size(type, &size);
	MPI_Type_get_true_extent(type, &lower, &extent_is);
	MPI_Type_get_extent(type, &lower_is, &extent);
	expect(extent * count <= ROOM && extent_is <= EXTENT_MAX, "room");
	bytes = size * count;
	memset(ones, 1, sizeof(ones));
	memset(is_data, 0, sizeof(is_data));
	MPI_Unpack(ones, bytes, &position, at_place(is_data), count, type, MPI_COMM_SELF);
}

static int are_equal(const unsigned char *got, const unsigned char *wanted)
{
	for (size_t i = 0; i < ROOM; i++)
		if (is_data[i] && got[i] != wanted[i])
			return 0;
	return 1;
}

/* Required even where the MPI changes the gaps. */
static int are_gaps_untouched(const unsigned char *got)
{
	for (size_t i = 0; i < ROOM; i++)
		if (!is_data[i] && got[i] != UNTOUCHED)
			return 0;
	return 1;
}

static int is_plain; /* the MPI alone, which may change gaps */

/*
 * Reduces at a different rank each time; every third time in place, at rank 0,
 * since MPICH 4.0 crashes with a segmentation fault at other ranks.
 */
static void compare_at_root(const unsigned char *from, const unsigned char *wanted, MPI_Op op)
{
	static _Alignas(64) unsigned char got[ROOM], own[ROOM];
	static int turn;
	int is_in_place = ++turn % 3 == 0, root = is_in_place ? 0 : turn % ranks;
	int is_root = rank == root;

	memcpy(own, from, ROOM);
	if (is_root && is_in_place)
		memcpy(got, from, ROOM);
	else
		memset(got, UNTOUCHED, ROOM);
	MPI_Reduce(is_root && is_in_place ? MPI_IN_PLACE : at_place(own),
		   is_root ? at_place(got) : NULL, count, type, op, root, MPI_COMM_WORLD);
	expect(!is_root || are_equal(got, wanted), "a result at one rank");
	expect(is_plain || are_gaps_untouched(got), "what lies around a result at one rank");
	expect(memcmp(own, from, ROOM) == 0, "what was brought to one rank");
}

static void compare(MPI_Op op, filler *fill)
{
	static _Alignas(64) unsigned char from[ROOM], got[ROOM], wanted[ROOM], own[ROOM];

	look_at_type();
	memset(from, UNTOUCHED, ROOM);
	for (size_t i = 0; i < ROOM; i++)
		if (is_data[i])
			from[i] = 0; /* including the padding of a long double */
	for (int i = 0; i < count; i++)
		fill((char *)at_place(from) + i * extent, i);
	memcpy(own, from, ROOM);
	memset(wanted, UNTOUCHED, ROOM);
	PMPI_Allreduce(at_place(from), at_place(wanted), count, type, op, MPI_COMM_WORLD);
	memset(got, UNTOUCHED, ROOM);
	MPI_Allreduce(at_place(from), at_place(got), count, type, op, MPI_COMM_WORLD);
	expect(are_equal(got, wanted), "a result");
	expect(is_plain || are_gaps_untouched(got), "what lies around a result");
	memcpy(got, from, ROOM);
	MPI_Allreduce(MPI_IN_PLACE, at_place(got), count, type, op, MPI_COMM_WORLD);
	expect(are_equal(got, wanted), "a result in place");
	expect(is_plain || are_gaps_untouched(got), "what lies around a result in place");
	expect(memcmp(own, from, ROOM) == 0, "what was brought");
	compare_at_root(from, wanted, op);
}

static const int counts[] = { 1, 2, 17, COUNT_MAX };

static void compare_all(MPI_Op op, filler *fill)
{
	/* Open MPI 4.1 writes out of bounds if many elements have data before their address. */
	size_t different = sizeof(counts) / sizeof(*counts) - (fill == around_ints);

	for (size_t c = 0; c < different; c++) {
		count = counts[c];
		compare(op, fill);
	}
}

enum operations { LOGICAL, PLACES, SUMS, OF_ALL, BITS };

/* Predefined operations that only the MPI supports. */
static void predefined(void)
{
#define TYPE(type, operations, fill) { type, #type, operations, fill }
	const struct {
		MPI_Datatype type;
		const char *name;
		enum operations operations;
		filler *fill;
	} types[] = {
		TYPE(MPI_INT, LOGICAL, ints),
		TYPE(MPI_LONG, LOGICAL, longs),
		TYPE(MPI_SHORT, LOGICAL, shorts),
		TYPE(MPI_SIGNED_CHAR, LOGICAL, chars),
		TYPE(MPI_UNSIGNED_CHAR, LOGICAL, chars),
		TYPE(MPI_UNSIGNED, LOGICAL, ints),
		TYPE(MPI_UINT64_T, LOGICAL, longs),
		TYPE(MPI_C_BOOL, LOGICAL, bools),
		TYPE(MPI_LOGICAL, LOGICAL, logicals),
		TYPE(MPI_FLOAT_INT, PLACES, float_ints),
		TYPE(MPI_DOUBLE_INT, PLACES, double_ints),
		TYPE(MPI_LONG_INT, PLACES, long_ints),
		TYPE(MPI_2INT, PLACES, two_ints),
		TYPE(MPI_SHORT_INT, PLACES, short_ints),
		TYPE(MPI_LONG_DOUBLE_INT, PLACES, long_double_ints),
		TYPE(MPI_2INTEGER, PLACES, two_ints),
		TYPE(MPI_2REAL, PLACES, two_floats),
		TYPE(MPI_2DOUBLE_PRECISION, PLACES, two_doubles),
		TYPE(MPI_C_FLOAT_COMPLEX, SUMS, complexes),
		TYPE(MPI_C_DOUBLE_COMPLEX, SUMS, double_complexes),
		TYPE(MPI_C_LONG_DOUBLE_COMPLEX, SUMS, long_double_complexes),
		TYPE(MPI_COMPLEX, SUMS, complexes),
		TYPE(MPI_DOUBLE_COMPLEX, SUMS, double_complexes),
		TYPE(MPI_LONG_DOUBLE, OF_ALL, long_doubles),
		TYPE(MPI_BYTE, BITS, chars),
	};
#undef TYPE
	const MPI_Op ops[][5] = {
		[LOGICAL] = { MPI_LAND, MPI_LOR, MPI_LXOR, MPI_OP_NULL },
		[PLACES] = { MPI_MINLOC, MPI_MAXLOC, MPI_OP_NULL },
		[SUMS] = { MPI_SUM, MPI_PROD, MPI_OP_NULL },
		[OF_ALL] = { MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_OP_NULL },
		[BITS] = { MPI_BAND, MPI_BOR, MPI_BXOR, MPI_OP_NULL },
	};

	for (size_t t = 0; t < sizeof(types) / sizeof(*types); t++) {
		const MPI_Op *of_type = ops[types[t].operations];

		type = types[t].type, name = types[t].name;
		for (op_number = 0; of_type[op_number] != MPI_OP_NULL; op_number++)
			compare_all(of_type[op_number], types[t].fill);
	}
}

/* An element of three numbers. */
static void three_ints(void *at, int i)
{
	for (int k = 0; k < 3; k++)
		((int *)at)[k] = number(i + k);
}

/* Sums of the last digits of numbers. */
static void add_digits(void *from, void *into, int *length, MPI_Datatype *of)
{
	int size;

	MPI_Type_size(*of, &size);
	expect(*length > 0 && *length <= count && size == 3 * (int)sizeof(int),
	       "what an operation gets");
	for (int i = 0; i < 3 * *length; i++)
		((int *)into)[i] = (((int *)into)[i] + ((int *)from)[i]) % 10;
}

/* A struct with gaps, all of them padding by the compiler. */
struct item {
	char letter;
	double value;
	short digit;
};

static void items(void *at, int i)
{
	struct item *item = at;

	item->letter = (char)('a' + number(i));
	item->value = number(i + 1);
	item->digit = (short)number(i + 2);
}

/* A different operation for each part. */
static void join_items(void *from, void *into, int *length, MPI_Datatype *of)
{
	struct item *left = from, *right = into;

	(void)of;
	expect((size_t)right % _Alignof(struct item) == 0 &&
	       (size_t)left % _Alignof(struct item) == 0, "where an operation finds its elements");
	for (int i = 0; i < *length; i++) {
		right[i].letter = left[i].letter > right[i].letter ? left[i].letter
								   : right[i].letter;
		right[i].value += left[i].value;
		right[i].digit ^= left[i].digit;
	}
}

/* Doubles at 0, 16 and 32 of 48 bytes. */
static void columns(void *at, int i)
{
	for (int k = 0; k < 3; k++)
		((double *)at)[2 * k] = number(i + k);
}

static void add_columns(void *from, void *into, int *length, MPI_Datatype *of)
{
	(void)of;
	for (int i = 0; i < *length; i++)
		for (int k = 0; k < 3; k++)
			((double *)into)[6 * i + 2 * k] += ((double *)from)[6 * i + 2 * k];
}

/* An int before the element's address, and one at it. */
static void around_ints(void *at, int i)
{
	((int *)at)[-1] = number(i), ((int *)at)[0] = number(i + 1);
}

static void add_around(void *from, void *into, int *length, MPI_Datatype *of)
{
	(void)of;
	for (int i = 0; i < *length; i++)
		for (int k = -1; k < 1; k++)
			((int *)into)[4 * i + k] += ((int *)from)[4 * i + k];
}

/* Selects the second of two elements, whichever rank has it: not commutative. */
static void first_of(void *from, void *into, int *length, MPI_Datatype *of)
{
	int size;

	MPI_Type_size(*of, &size);
	memcpy(into, from, (size_t)*length * (size_t)size);
}

static MPI_Datatype resized(MPI_Datatype inner, MPI_Aint begin, MPI_Aint length)
{
	MPI_Datatype made;

	MPI_Type_create_resized(inner, begin, length, &made);
	MPI_Type_free(&inner);
	MPI_Type_commit(&made);
	return made;
}

static MPI_Datatype item_type(void)
{
	MPI_Datatype made;

	MPI_Type_create_struct(3, (int[]){ 1, 1, 1 },
			       (MPI_Aint[]){ offsetof(struct item, letter),
					     offsetof(struct item, value),
					     offsetof(struct item, digit) },
			       (MPI_Datatype[]){ MPI_CHAR, MPI_DOUBLE, MPI_SHORT }, &made);
	return resized(made, 0, sizeof(struct item));
}

static void by_program(const char *what, MPI_User_function *function, int is_commutative,
		       MPI_Datatype made, filler *fill)
{
	MPI_Op op;

	name = what, type = made;
	op_number = 0;
	MPI_Type_commit(&type);
	MPI_Op_create(function, is_commutative, &op);
	compare_all(op, fill);
	MPI_Op_free(&op);
	MPI_Type_free(&type);
}

/* User-defined operations. */
static void own(void)
{
	MPI_Datatype made;

	MPI_Type_contiguous(3, MPI_INT, &made);
	by_program("three ints", add_digits, 1, made, three_ints);
	by_program("a struct", join_items, 1, item_type(), items);
	MPI_Type_vector(3, 1, 2, MPI_DOUBLE, &made);
	by_program("columns", add_columns, 1, resized(made, 0, 48), columns);
	MPI_Type_indexed(2, (int[]){ 1, 1 }, (int[]){ -1, 0 }, MPI_INT, &made);
	by_program("before its place", add_around, 1, resized(made, -4, 16), around_ints);
	MPI_Type_contiguous(3, MPI_INT, &made);
	by_program("not commutative", first_of, 0, made, three_ints);
}

#ifndef OPEN_MPI
/* A result, its rank, and padding to a multiple of cache lines. */
struct roomy {
	double value;
	int rank;
	char room[244];
};

/* Copies whole structs, including their padding. */
static void best_of(void *from, void *into, int *length, MPI_Datatype *of)
{
	struct roomy *left = from, *right = into;

	(void)of;
	for (int i = 0; i < *length; i++)
		if (left[i].value > right[i].value)
			right[i] = left[i];
}

/* Open MPI 4.1 itself allocates no memory for the padding of the last struct. */
static void structs_with_room(void)
{
	static struct roomy brought[COUNT_MAX], best[COUNT_MAX];
	MPI_Datatype made;
	MPI_Op op;

	name = "structs with room";
	MPI_Type_create_struct(2, (int[]){ 1, 1 },
			       (MPI_Aint[]){ 0, offsetof(struct roomy, rank) },
			       (MPI_Datatype[]){ MPI_DOUBLE, MPI_INT }, &made);
	made = resized(made, 0, sizeof(struct roomy));
	MPI_Op_create(best_of, 1, &op);
	for (int c = 0; c < 4; c++) {
		count = counts[c];
		for (int i = 0; i < count; i++)
			brought[i] = (struct roomy){ (rank + i) % ranks, rank, "room" };
		MPI_Allreduce(brought, best, count, made, op, MPI_COMM_WORLD);
		for (int i = 0; i < count; i++)
			expect((best[i].rank + i) % ranks == ranks - 1, "the best");
	}
	MPI_Op_free(&op);
	MPI_Type_free(&made);
}
#endif

static void add_apart(void *from, void *into, int *length, MPI_Datatype *of)
{
	MPI_Aint begin, each, unused;

	MPI_Type_get_extent(*of, &unused, &each);
	MPI_Type_get_true_extent(*of, &begin, &unused);
	for (int i = 0; i < *length; i++) {
		MPI_Aint at = begin + i * each;

		*(int *)((char *)into + at) += *(int *)((char *)from + at);
	}
}

/* The same ints on all ranks, with different gaps between them on each. */
static void layouts_that_differ(void)
{
	static int room[COUNT_MAX * RANKS_MAX];
	int each = rank + 1;
	MPI_Datatype made;
	MPI_Op op;

	name = "gaps that differ", count = COUNT_MAX;
	for (int i = 0; i < count; i++)
		room[i * each] = rank + i;
	MPI_Type_contiguous(1, MPI_INT, &made);
	made = resized(made, 0, each * (MPI_Aint)sizeof(int));
	MPI_Op_create(add_apart, 1, &op);
	MPI_Allreduce(MPI_IN_PLACE, room, count, made, op, MPI_COMM_WORLD);
	for (int i = 0; i < count * each; i++)
		expect(room[i] ==
		       (i % each ? 0 : ranks * (i / each) + ranks * (ranks - 1) / 2), "a result");
	MPI_Op_free(&op);
	MPI_Type_free(&made);
}

static void bring_ints(int *room)
{
	for (int i = 0; i < 2 * count; i++)
		room[i] = i % 2 ? UNTOUCHED : rank + i;
}

static void expect_sums(const int *room, const char *what)
{
	for (int i = 0; i < 2 * count; i++)
		expect(room[i] == (i % 2 ? UNTOUCHED : ranks * i + ranks * (ranks - 1) / 2), what);
}

/* Every second rank describes its data by absolute addresses in its type, with MPI_BOTTOM. */
static void addresses_that_differ(void)
{
	static int room[2 * COUNT_MAX], result[2 * COUNT_MAX];
	int is_far = rank % 2;
	void *place = is_far ? MPI_BOTTOM : room;
	MPI_Datatype made, told;
	MPI_Aint address = 0;
	MPI_Op op;

	name = "addresses that differ", count = COUNT_MAX;
	MPI_Type_contiguous(1, MPI_INT, &made);
	made = resized(made, 0, 2 * (MPI_Aint)sizeof(int));
	if (is_far)
		MPI_Get_address(room, &address);
	MPI_Type_create_hindexed(1, (int[]){ 1 }, &address, made, &told);
	MPI_Type_commit(&told);
	MPI_Op_create(add_apart, 1, &op);
	bring_ints(room), bring_ints(result);
	MPI_Reduce(place, rank == 0 ? result : NULL, count, told, op, 0, MPI_COMM_WORLD);
	if (rank == 0)
		expect_sums(result, "a result at one rank");
	/* In place, Open MPI 4.1 and MPICH 4.0 take MPI_BOTTOM for a missing buffer. */
	if (!is_plain) {
		MPI_Allreduce(MPI_IN_PLACE, place, count, told, op, MPI_COMM_WORLD);
		expect_sums(room, "a result");
		bring_ints(room);
		MPI_Reduce(rank == 1 ? MPI_IN_PLACE : place, rank == 1 ? place : NULL, count, told,
			   op, 1, MPI_COMM_WORLD);
		if (rank == 1)
			expect_sums(room, "a result in place");
	}
	MPI_Op_free(&op);
	MPI_Type_free(&told);
	MPI_Type_free(&made);
}

/* Passed. */
static void nonblocking(void)
{
	int number = 1, all = 0;
	struct { double value; int rank; } pair = { rank, rank }, least;
	MPI_Request requests[2];

	name = "nonblocking", count = 1;
	MPI_Iallreduce(&number, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD, &requests[0]);
	MPI_Ireduce(&pair, rank == 0 ? &least : NULL, 1, MPI_DOUBLE_INT, MPI_MINLOC, 0,
		    MPI_COMM_WORLD, &requests[1]);
	MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	expect(all == 1 && (rank != 0 || least.rank == 0), "a result of a nonblocking call");
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	is_plain = argc > 1 && strcmp(argv[1], "plain") == 0;
	predefined();
	own();
#ifndef OPEN_MPI
	structs_with_room();
#endif
	layouts_that_differ();
	addresses_that_differ();
	nonblocking();
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		puts("combinations: ok");
	MPI_Finalize();
	return 0;
}
