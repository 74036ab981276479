/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Definitions shared by programs; PROGRAM is the name in their error messages. */
#ifndef NUMBERS_H
#define NUMBERS_H

#include <mpi.h>
#include <stdio.h>
#include <string.h>

/* Memory layout of numbers. */
enum layout {
	ROW,	  /* contiguous numbers */
	CHUNK,	  /* one item of all numbers */
	APART,	  /* one item with a gap after each number */
	ADDRESS,  /* the same with an absolute address, from MPI_BOTTOM */
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

static int number(int from, int i)
{
	return 100000 * (from + 1) + i;
}

#endif
