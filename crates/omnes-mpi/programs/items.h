/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Numbers in memory that are described to MPI one by one. */
#ifndef ITEMS_H
#define ITEMS_H

#include "numbers.h"

/* Creates a type for single numbers of this memory, and sets the buffer to pass to MPI. */
static MPI_Datatype item_make(int *memory, enum layout layout, void **buffer)
{
	MPI_Datatype item, moved;
	MPI_Aint address;
	int one = 1;

	*buffer = memory;
	if (layout == ROW)
		return MPI_INT;
	if (layout == CHUNK) {
		MPI_Type_contiguous(1, MPI_INT, &item);
	} else {
		MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &item);
	}
	if (layout == ADDRESS) {
		MPI_Get_address(memory, &address);
		MPI_Type_create_hindexed(1, &one, &address, item, &moved);
		MPI_Type_free(&item);
		item = moved;
		*buffer = MPI_BOTTOM;
	}
	MPI_Type_commit(&item);
	return item;
}

static void item_free(MPI_Datatype *item)
{
	if (*item != MPI_INT)
		MPI_Type_free(item);
}

#endif
