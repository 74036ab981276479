/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What measuring programs whose job is started by Omnes share with the peers'
 * loop: its untimed exchange of results, and the operations that none of them
 * replaces.
 */
#ifndef OMNES_COLLBENCH_BACKEND_H
#define OMNES_COLLBENCH_BACKEND_H

#include "collbench.h"
#include "omnes_backend.h"
#include <string.h>

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
 * gather collects count numbers of every rank at rank 0, rank after rank; out
 * is used only there.
 */
static void gather(const double *in, double *out, size_t count)
{
	checked(omnes_gather(world, in, out, count * sizeof(*in), 0), "gather");
}

/*
 * backend_of returns a backend with this name and its own barrier and
 * broadcast; the job must have begun.
 */
static struct backend backend_of(const char *impl, void (*barrier)(void),
				 void (*bcast)(void *buffer, size_t bytes, int root))
{
	return (struct backend){
		.impl = impl,
		.rank = checked(omnes_rank(world), "rank"),
		.n = checked(omnes_size(world), "size"),
		.barrier = barrier,
		.bcast = bcast,
		.allgather = allgather,
		.allreduce = allreduce,
		.sync = barrier,
		.share = share,
		.gather = gather,
		.stop = stop_job,
	};
}

#endif
