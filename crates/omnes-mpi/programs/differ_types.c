/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Types and operations of differ: predefined ones, in the combinations that the standard allows,
 * and two user-defined operations for all types.
 */
#include "differ.h"
#include <complex.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum class {
	INTEGER = 1,
	FLOATING = 2,
	LONG_DOUBLE = 4,
	LOGICAL = 8,
	COMPLEX = 16,
	PAIR = 32,
	BYTE = 64,
	RECORD = 128, /* user-defined */
};

/* A struct with padding by the compiler. */
struct record {
	char letter;
	double value;
	short digit;
};

enum { BASICS_MAX = 48, VALUE_BYTES = 10 /* of a long double */ };

static struct basic basics[BASICS_MAX];
static int basics_count;
static MPI_Datatype record_type;
static MPI_Op own_ops[2];

/* ---- operations of the program: of any type, as bytes ---- */

static void packed_combine(void *from, void *into, int count, MPI_Datatype type,
			   unsigned char (*combine)(unsigned char, unsigned char))
{
	int size, bytes, position = 0;
	unsigned char *left, *right;

	PMPI_Type_size(type, &size);
	bytes = size * count;
	left = malloc(2 * (size_t)bytes + 1), right = left + bytes;
	PMPI_Pack(from, count, type, left, bytes, &position, MPI_COMM_SELF);
	position = 0;
	PMPI_Pack(into, count, type, right, bytes, &position, MPI_COMM_SELF);
	for (int i = 0; i < bytes; i++)
		right[i] = combine(left[i], right[i]);
	position = 0;
	PMPI_Unpack(right, bytes, &position, into, count, type, MPI_COMM_SELF);
	free(left);
}

static unsigned char sum(unsigned char left, unsigned char right)
{
	return (unsigned char)(left + right);
}

/* Composition of functions x -> a x + b modulo 16: associative, but not commutative. */
static unsigned char chain(unsigned char left, unsigned char right)
{
	int a = left >> 4, b = left & 15;

	return (unsigned char)((a * (right >> 4) & 15) << 4 | ((a * (right & 15) + b) & 15));
}

static void sum_all(void *from, void *into, int *count, MPI_Datatype *type)
{
	packed_combine(from, into, *count, *type, sum);
}

static void chain_all(void *from, void *into, int *count, MPI_Datatype *type)
{
	packed_combine(from, into, *count, *type, chain);
}

int op_is_own(MPI_Op op)
{
	return op == own_ops[0] || op == own_ops[1];
}

/* ---- types ---- */

static void add(MPI_Datatype type, const char *name, int class)
{
	struct basic *basic = &basics[basics_count];
	MPI_Aint lower, extent;

	if (type == MPI_DATATYPE_NULL)
		return;
	MPI_Type_get_extent(type, &lower, &extent);
	MPI_Type_size(type, &basic->bytes);
	basic->extent = (int)extent;
	basic->type = type;
	basic->class = class;
	snprintf(basic->name, sizeof(basic->name), "%s", name);
	basics_count++;
}

static void record_make(void)
{
	MPI_Datatype bare;

	MPI_Type_create_struct(3, (int[]){ 1, 1, 1 },
			       (MPI_Aint[]){ offsetof(struct record, letter),
					     offsetof(struct record, value),
					     offsetof(struct record, digit) },
			       (MPI_Datatype[]){ MPI_CHAR, MPI_DOUBLE, MPI_SHORT }, &bare);
	MPI_Type_create_resized(bare, 0, sizeof(struct record), &record_type);
	MPI_Type_free(&bare);
	MPI_Type_commit(&record_type);
}

void types_begin(void)
{
#define ADD(type, class) add(type, #type, class)
	record_make();
	ADD(MPI_SIGNED_CHAR, INTEGER);
	ADD(MPI_UNSIGNED_CHAR, INTEGER);
	ADD(MPI_SHORT, INTEGER);
	ADD(MPI_UNSIGNED_SHORT, INTEGER);
	ADD(MPI_INT, INTEGER);
	ADD(MPI_UNSIGNED, INTEGER);
	ADD(MPI_LONG, INTEGER);
	ADD(MPI_UNSIGNED_LONG_LONG, INTEGER);
	ADD(MPI_INT8_T, INTEGER);
	ADD(MPI_UINT16_T, INTEGER);
	ADD(MPI_INT64_T, INTEGER);
	ADD(MPI_FLOAT, FLOATING);
	ADD(MPI_DOUBLE, FLOATING);
	ADD(MPI_LONG_DOUBLE, LONG_DOUBLE);
	ADD(MPI_C_BOOL, LOGICAL);
	ADD(MPI_LOGICAL, LOGICAL);
	ADD(MPI_C_FLOAT_COMPLEX, COMPLEX);
	ADD(MPI_C_DOUBLE_COMPLEX, COMPLEX);
	ADD(MPI_FLOAT_INT, PAIR);
	ADD(MPI_DOUBLE_INT, PAIR);
	ADD(MPI_LONG_INT, PAIR);
	ADD(MPI_2INT, PAIR);
	ADD(MPI_SHORT_INT, PAIR);
	ADD(MPI_BYTE, BYTE);
	add(record_type, "record", RECORD);
#undef ADD
	MPI_Op_create(sum_all, 1, &own_ops[0]);
	MPI_Op_create(chain_all, 0, &own_ops[1]);
}

void types_end(void)
{
	MPI_Type_free(&record_type);
	for (int i = 0; i < 2; i++)
		MPI_Op_free(&own_ops[i]);
}

/* Not long doubles, of which MPICH 4.0 transfers only a part. */
const struct basic *basic_draw(uint64_t *generator)
{
	const struct basic *basic = &basics[below(generator, basics_count)];

	return basic->class == LONG_DOUBLE ? basic_draw(generator) : basic;
}

/* ---- types with operations ---- */

static void own_op_draw(uint64_t *generator, enum ops ops, MPI_Op *op, char name[32])
{
	int which = is_one_in(generator, 3) && ops == ANY_OPS;

	*op = own_ops[which];
	strcpy(name, which ? "an own one, not commutative" : "an own one");
}

const struct basic *basic_draw_with_op(uint64_t *generator, enum ops which, MPI_Op *op,
				       char name[32])
{
	const struct {
		MPI_Op op;
		const char *name;
		int classes;
	} ops[] = {
		{ MPI_SUM, "MPI_SUM", INTEGER | FLOATING | LONG_DOUBLE | COMPLEX },
		{ MPI_PROD, "MPI_PROD", INTEGER | FLOATING | LONG_DOUBLE | COMPLEX },
		{ MPI_MIN, "MPI_MIN", INTEGER | FLOATING | LONG_DOUBLE },
		{ MPI_MAX, "MPI_MAX", INTEGER | FLOATING | LONG_DOUBLE },
		{ MPI_BAND, "MPI_BAND", INTEGER | BYTE },
		{ MPI_BOR, "MPI_BOR", INTEGER | BYTE },
		{ MPI_BXOR, "MPI_BXOR", INTEGER | BYTE },
		{ MPI_LAND, "MPI_LAND", INTEGER | LOGICAL },
		{ MPI_LOR, "MPI_LOR", INTEGER | LOGICAL },
		{ MPI_LXOR, "MPI_LXOR", INTEGER | LOGICAL },
		{ MPI_MINLOC, "MPI_MINLOC", PAIR },
		{ MPI_MAXLOC, "MPI_MAXLOC", PAIR },
	};
	const int all = (int)(sizeof(ops) / sizeof(*ops)), of_numbers = 7;
	int count = which == OF_NUMBERS ? of_numbers : all, at = below(generator, count);
	const struct basic *basic;

	do
		basic = &basics[below(generator, basics_count)];
	while (which == OF_NUMBERS && !(basic->class & (INTEGER | FLOATING)));
	if (basic->class == RECORD || (which != OF_NUMBERS && basic->class != LONG_DOUBLE &&
				       is_one_in(generator, 4))) {
		own_op_draw(generator, which, op, name);
		return basic;
	}
	while (!(ops[at].classes & basic->class))
		at = (at + 1) % count;
	*op = ops[at].op;
	strcpy(name, ops[at].name);
	return basic;
}

/* ---- values ---- */

/* Stores a pair, a complex number, or a number, as represented in C. */
static void number_put(const struct basic *basic, unsigned char *at, uint64_t *generator)
{
	int value = below(generator, 3), other = below(generator, 4);
	/* The second part of a pair is an int, at the end when packed. */
	int first_bytes = basic->bytes - (basic->class == PAIR ? (int)sizeof(int) : 0);
	long whole = value;
	long double longest = value + 1;
	float single = (float)value + 1;
	double number = value + 1;
	/* At small angles, so that no product has a part of 0, which has a sign. */
	float complex few = (float)(4 + value) + (float)(other % 2 ? 1 : -1) * I;
	double complex many = 4 + value + (other % 2 ? 1 : -1) * I;

	if (basic->class == PAIR)
		memcpy(at + first_bytes, &other, sizeof(other));
	if (basic->class == COMPLEX)
		memcpy(at, basic->bytes == sizeof(few) ? (void *)&few : (void *)&many,
		       (size_t)basic->bytes);
	else if (basic->class == LONG_DOUBLE)
		memcpy(at, &longest, sizeof(longest));
	else if (basic->type == MPI_FLOAT || basic->type == MPI_FLOAT_INT)
		memcpy(at, &single, sizeof(single));
	else if (basic->type == MPI_DOUBLE || basic->type == MPI_DOUBLE_INT)
		memcpy(at, &number, sizeof(number));
	else if (basic->class == LOGICAL)
		memcpy(at, &(long){ value > 0 }, (size_t)first_bytes);
	else
		memcpy(at, &whole, (size_t)first_bytes);
}

void basic_fill(const struct basic *basic, void *packed, int elements, enum values values,
		uint64_t *generator)
{
	unsigned char *at = packed;

	if (values == SMALL_NUMBERS && basic->class != RECORD) {
		for (int i = 0; i < elements; i++)
			number_put(basic, at + (size_t)i * (size_t)basic->bytes, generator);
		return;
	}
	for (size_t i = 0; i < (size_t)elements * (size_t)basic->bytes; i++)
		at[i] = (unsigned char)below(generator, 256);
}

void basic_mask(const struct basic *basic, unsigned char *packed, int elements)
{
	size_t bytes = (size_t)basic->bytes;

	memset(packed, 1, (size_t)elements * bytes);
	for (int i = 0; i < elements && basic->class == LONG_DOUBLE; i++)
		memset(packed + (size_t)i * bytes + VALUE_BYTES, 2, bytes - VALUE_BYTES);
}
