/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The measuring loop for messages (pt2pt.h) on Omnes. Built by
 * tools/collbench.sh, started like any rank by OMNES_RANK, OMNES_SIZE and
 * OMNES_RENDEZVOUS.
 */
#include "omnes_backend.h"
#include "pt2pt.h"

enum { MESSAGE_TAG = 1 };

static void send_message(int to, const void *data, size_t bytes)
{
	checked(omnes_send(world, to, MESSAGE_TAG, data, bytes), "send");
}

static void receive_message(int from, void *buffer, size_t bytes)
{
	checked(omnes_recv(world, from, MESSAGE_TAG, buffer, bytes, NULL), "recv");
}

int main(int argc, char **argv)
{
	struct pt2pt_backend backend = {
		.impl = "omnes",
		.send = send_message,
		.recv = receive_message,
		.stop = stop_job,
	};
	int status;

	checked(omnes_init(&world), "init");
	backend.rank = checked(omnes_rank(world), "rank");
	backend.size = checked(omnes_size(world), "size");
	status = pt2pt_run(argc, argv, &backend);
	checked(omnes_finalize(world), "finalize");
	return status;
}
