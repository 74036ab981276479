/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Numbers in many memory layouts, and their description for MPI. */
#ifndef PLACES_H
#define PLACES_H

#include "numbers.h"

/* Numbers in some memory, and their description for MPI. */
struct place {
	int *memory;
	void *buffer;
	int count;
	MPI_Datatype type;
	size_t stride; /* distance of numbers */
	size_t extent; /* distance of parts, in numbers */
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

/* Stores the caller's numbers, starting with number first, in a part. */
static void bring(struct place *place, int part, int count, int first)
{
	for (int i = 0; i < count; i++)
		place->memory[(size_t)part * place->extent + (size_t)i * place->stride] =
			number(rank, first + i);
}

#endif
