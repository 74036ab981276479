/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The measuring loop for collectives (collbench.h of the peers) on Omnes.
 *
 * The loop's own synchronisation and exchange of results use Omnes as well;
 * they are never timed. Built by tools/collbench.sh, started like any rank by
 * OMNES_RANK, OMNES_SIZE and OMNES_RENDEZVOUS. OMNES_BCAST and OMNES_BARRIER
 * choose an algorithm, for the loop's own calls too.
 */
#include "collbench_backend.h"

static void barrier(void)
{
	checked(omnes_barrier(world), "barrier");
}

static void bcast(void *buffer, size_t bytes, int root)
{
	checked(omnes_bcast(world, buffer, bytes, root), "bcast");
}

int main(int argc, char **argv)
{
	struct backend backend;
	int status;

	checked(omnes_init(&world), "init");
	backend = backend_of("omnes", barrier, bcast);
	status = collbench_main(argc, argv, &backend);
	checked(omnes_finalize(world), "finalize");
	return status;
}
