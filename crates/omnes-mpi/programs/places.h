/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Numbers that lie in memory in many ways, as MPI is told of them, for programs
 * that have a name, PROGRAM, to complain under.
 */
#ifndef PLACES_H
#define PLACES_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum layout {
	ROW,	  /* so many numbers */
	CHUNK,	  /* an item of so many */
	APART,	  /* an item with a gap after each number */
	ADDRESS,  /* the same at its own address, from MPI_BOTTOM */
	LAYOUTS
};

static int rank, ranks;

static void expect(int is_right, const char *what, int count, int shift)
{
	if (is_right)
		return;
	printf(PROGRAM ": rank %d: wrong: %s, %d numbers, shift %d\n", rank, what, count, shift);
	fflush(stdout);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Numbers at some memory, as MPI is told of them. */
struct place {
	int *memory;
	void *buffer;
	int count;
	MPI_Datatype type;
	size_t stride; /* from number to number */
	size_t extent; /* numbers from part to part */
};

static struct place place_make(int *memory, int count, enum layout layout)
{
	struct place place = { memory, memory, 1, MPI_INT, layout < APART ? 1 : 2, 0 };
	MPI_Datatype apart;
	MPI_Aint address;
	int one = 1;

	place.extent = (size_t)count * place.stride - (layout < APART ? 0 : 1);
	switch (layout) {
	case ROW:
		place.count = count;
		return place;
	case CHUNK:
		MPI_Type_contiguous(count, MPI_INT, &place.type);
		break;
	case APART:
		MPI_Type_vector(count, 1, 2, MPI_INT, &place.type);
		break;
	default:
		MPI_Type_vector(count, 1, 2, MPI_INT, &apart);
		MPI_Get_address(memory, &address);
		MPI_Type_create_hindexed(1, &one, &address, apart, &place.type);
		MPI_Type_free(&apart);
		place.buffer = MPI_BOTTOM;
	}
	MPI_Type_commit(&place.type);
	return place;
}

static void place_free(struct place *place)
{
	if (place->type != MPI_INT && place->type != MPI_DATATYPE_NULL)
		MPI_Type_free(&place->type);
}

static int number(int from, int i)
{
	return 100000 * (from + 1) + i;
}

/* Puts the caller's numbers from first on into a part. */
static void bring(struct place *place, int part, int count, int first)
{
	for (int i = 0; i < count; i++)
		place->memory[(size_t)part * place->extent + (size_t)i * place->stride] =
			number(rank, first + i);
}

#endif
