/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * pt2pt - one measuring loop for messages between two ranks, for several
 * libraries.
 *
 * A program for a library fills in a struct pt2pt_backend and calls
 * pt2pt_run(); the loop, the statistics, the data checks and the JSON lines are
 * then the same for all libraries (pt2pt.c).
 */
#ifndef PT2PT_H
#define PT2PT_H

#include <stddef.h>

struct pt2pt_backend {
	/* Name in the output unless --impl overrides it. */
	const char *impl;
	/* Rank of this process and number of ranks, which must be 2. */
	int rank, size;
	/* Blocking calls to and from the other rank; messages keep their
	 * order. An error ends the job. */
	void (*send)(int to, const void *data, size_t bytes);
	void (*recv)(int from, void *buffer, size_t bytes);
	/* Ends all ranks; status is in [1,255]. */
	void (*stop)(int status);
};

/*
 * pt2pt_run measures what the command line asks for; see --help. Returns the
 * status for exit(): 0, 1 if data arrived wrong, 2 for wrong usage.
 */
int pt2pt_run(int argc, char **argv, const struct pt2pt_backend *backend);

#endif
