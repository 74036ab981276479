/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The measuring loop for collectives (collbench.h of the peers) on Omnes.
 *
 * The loop's own synchronisation and exchange of results use Omnes as well;
 * they are never timed. Built by tools/collbench.sh, started like any rank by
 * OMNES_RANK, OMNES_SIZE and OMNES_RENDEZVOUS. OMNES_BCAST and OMNES_BARRIER
 * choose an algorithm, for the loop's own calls too.
 */
#include "collbench.h"
#include "omnes_backend.h"
#include <string.h>

enum { GATHER_TAG = 1 };

static int rank, size;

static void barrier(void)
{
	checked(omnes_barrier(world), "barrier");
}

static void bcast(void *buffer, size_t bytes, int root)
{
	checked(omnes_bcast(world, buffer, bytes, root), "bcast");
}

static void allgather(const void *in, void *out, size_t bytes)
{
	checked(omnes_allgather(world, in, out, bytes), "allgather");
}

static void allreduce(const float *in, float *out, size_t count)
{
	memcpy(out, in, count * sizeof(*in));
	checked(omnes_allreduce(world, out, count, OMNES_FLOAT, OMNES_SUM), "allreduce");
}

static void share(void *buffer, size_t bytes)
{
	checked(omnes_bcast(world, buffer, bytes, 0), "share");
}

/*
 * gather brings count numbers of every rank to rank 0, rank after rank; out is
 * used there alone.
 */
static void gather(const double *in, double *out, size_t count)
{
	size_t bytes = count * sizeof(*in);

	if (rank) {
		checked(omnes_send(world, 0, GATHER_TAG, in, bytes), "gather");
		return;
	}
	memcpy(out, in, bytes);
	for (int from = 1; from < size; from++)
		checked(omnes_recv(world, from, GATHER_TAG, out + from * count, bytes, NULL),
			"gather");
}

int main(int argc, char **argv)
{
	struct backend backend = {
		.impl = "omnes",
		.barrier = barrier,
		.bcast = bcast,
		.allgather = allgather,
		.allreduce = allreduce,
		.sync = barrier,
		.share = share,
		.gather = gather,
		.stop = stop_job,
	};
	int status;

	checked(omnes_init(&world), "init");
	rank = backend.rank = checked(omnes_rank(world), "rank");
	size = backend.n = checked(omnes_size(world), "size");
	status = collbench_main(argc, argv, &backend);
	checked(omnes_finalize(world), "finalize");
	return status;
}
