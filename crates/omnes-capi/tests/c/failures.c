/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Errors that occur only in a job: a barrier that other ranks do not enter, a
 * message too long for its buffer, and a last rank that exits without leaving,
 * which all other ranks detect.
 */
#include "check.h"
#include <unistd.h>

int main(void)
{
	omnes_comm *world = NULL;
	char message[64] = "longer than the buffer", buffer[4], name[32];
	int rank, last, missing[1] = { -1 };

	OK(omnes_init(&world));
	rank = omnes_rank(world);
	last = omnes_size(world) - 1;
	if (rank == last) {
		/* The others have not entered it yet, and wait for this rank's message. */
		CHECK(omnes_barrier_timeout(world, 1) == OMNES_ERROR_BARRIER_TIMEOUT);
		CHECK(omnes_last_error_rank() == -1);
		CHECK(omnes_last_error_missing(NULL, 0) == (size_t)last);
		CHECK(omnes_last_error_missing(missing, 1) == (size_t)last && missing[0] == 0);
		for (int from = 0; from < last; from++)
			OK(omnes_send(world, from, 4, message, 1));
		OK(omnes_barrier_timeout(world, 60000));
		OK(omnes_send(world, 0, 1, message, sizeof(message)));
		/* No other rank needs this rank any more. */
		for (int from = 0; from < last; from++)
			OK(omnes_recv(world, from, 2, buffer, 1, NULL));
		_exit(0);
	}
	OK(omnes_recv(world, last, 4, buffer, 1, NULL));
	OK(omnes_barrier_timeout(world, 60000));
	if (rank == 0) {
		CHECK(omnes_recv(world, last, 1, buffer, sizeof(buffer), NULL) ==
		      OMNES_ERROR_TRUNCATED);
		CHECK(!memcmp(buffer, message, sizeof(buffer)));
	}
	OK(omnes_send(world, last, 2, message, 1));
	CHECK(omnes_recv(world, last, 3, buffer, sizeof(buffer), NULL) ==
	      OMNES_ERROR_PEER_FAILED);
	/* The text names the rank. */
	snprintf(name, sizeof(name), "rank %d", last);
	CHECK(strstr(omnes_last_error(), name) != NULL);
	CHECK(omnes_last_error_rank() == last && omnes_last_error_missing(NULL, 0) == 0);
	(void)omnes_finalize(world);
	return 0;
}
