/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A rank that is the only one with an error leaves without the other ranks,
 * which get an error from the call in which they are waiting.
 */
#include "check.h"

int main(void)
{
	omnes_comm *world = NULL, *copy = NULL;
	omnes_request *request = NULL;
	double data[8] = { 0 };
	int rank, last, result;

	OK(omnes_abandon(NULL));
	OK(omnes_init(&world));
	OK(omnes_comm_dup(world, &copy));
	REFUSED(omnes_abandon(copy), "omnes_comm_free");
	rank = omnes_rank(world);
	last = omnes_size(world) - 1;
	OK(omnes_barrier(world));
	if (rank == last) {
		OK(omnes_ibcast(copy, data, sizeof(data), 0, &request));
		OK(omnes_abandon(world));
		CHECK(omnes_wait(&request) != OMNES_SUCCESS);
		OK(omnes_comm_free(copy));
		return 0;
	}
	result = omnes_allreduce(world, data, 8, OMNES_DOUBLE, OMNES_SUM);
	CHECK(result == OMNES_ERROR_PEER_LEFT);
	result = omnes_finalize(world);
	CHECK(result == OMNES_SUCCESS || result == OMNES_ERROR_PEER_LEFT);
	OK(omnes_comm_free(copy));
	return 0;
}
