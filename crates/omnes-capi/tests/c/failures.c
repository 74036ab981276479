/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Errors that only show in a job: a message too long for its buffer, and a
 * last rank that ends without taking leave, which all others get to know.
 */
#include "check.h"
#include <unistd.h>

int main(void)
{
	omnes_comm *world = NULL;
	char message[64] = "longer than the buffer", buffer[4], name[32];
	int rank, last;

	OK(omnes_init(&world));
	rank = omnes_rank(world);
	last = omnes_size(world) - 1;
	if (rank == last) {
		OK(omnes_send(world, 0, 1, message, sizeof(message)));
		/* All others are done with what needs this rank. */
		for (int from = 0; from < last; from++)
			OK(omnes_recv(world, from, 2, buffer, 1, NULL));
		_exit(0);
	}
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
	(void)omnes_finalize(world);
	return 0;
}
