// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * In one of the first blocking calls on a communicator, its ranks exchange
 * their nodes and settings through the MPI on this communicator, and make the
 * same decision from the combined values.
 */
#include <stdio.h>
#include <stdlib.h>

#include "shim.h"

/*
 * Values that each rank contributes; all ranks get the minimum of each. The
 * minima of a number and of its complement show whether all ranks have the same
 * number.
 */
enum saying {
	SAYS_PROTOCOL,
	SAYS_NOT_PROTOCOL,
	SAYS_NODE,
	SAYS_NOT_NODE,
	SAYS_REQUESTS,
	SAYS_ONE_NODE,
	SAYS_KINDS, /* from here on: for each kind of calls, whether to take it */
	/* The same number in all versions, so that versions can detect that they differ. */
	SAYINGS = 16
};

_Static_assert(SAYS_KINDS + SHIM_KINDS <= SAYINGS, "all that is said has its place");

static void say(uint64_t says[SAYINGS])
{
	says[SAYS_PROTOCOL] = SHIM_PROTOCOL;
	says[SAYS_NOT_PROTOCOL] = ~says[SAYS_PROTOCOL];
	says[SAYS_NODE] = omnes_node();
	says[SAYS_NOT_NODE] = ~says[SAYS_NODE];
	says[SAYS_REQUESTS] = shim_host_has_requests();
	says[SAYS_ONE_NODE] = shim_settings.one_node;
	for (int kind = 0; kind < SHIM_KINDS; kind++)
		says[SAYS_KINDS + kind] = shim_settings.takes[kind];
}

/* NULL if the ranks may join, otherwise the obstacle; the same on all ranks. */
static const char *decide(struct shim_group *group, const uint64_t all[SAYINGS])
{
	/* 0 means unknown: a rank that does not know its node counts as alone on one. */
	bool is_one_node = all[SAYS_NODE] != 0 && all[SAYS_NODE] == ~all[SAYS_NOT_NODE];
	bool takes_some = false;

	/* Different versions of libomnes are detected when the ranks join. */
	if (all[SAYS_PROTOCOL] != ~all[SAYS_NOT_PROTOCOL])
		return "its ranks have different versions of this library";
	group->takes_requests = all[SAYS_REQUESTS];
	for (int kind = 0; kind < SHIM_KINDS; kind++) {
		group->takes[kind] = all[SAYS_KINDS + kind];
		takes_some = takes_some || group->takes[kind];
	}
	if (!takes_some)
		return "OMNES_MPI=off";
	if (is_one_node && !all[SAYS_ONE_NODE])
		return "all its ranks are on one node";
	return NULL;
}

static int allgather(void *context, const void *mine, void *all, size_t bytes)
{
	MPI_Comm *comm = context;
	int count = (int)bytes;

	return PMPI_Allgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, *comm) != MPI_SUCCESS;
}

/* NULL on success, otherwise the reason for the failure. */
static const char *join(struct shim_group *group)
{
	omnes_exchange exchange = {
		.struct_bytes = sizeof(exchange),
		.rank = group->rank,
		.size = group->size,
		.allgather = allgather,
		.context = &group->mpi,
		.while_waiting = shim_requests_move,
	};

	if (omnes_comm_exchange(&exchange, &group->comm) == OMNES_SUCCESS)
		return NULL;
	group->comm = NULL;
	return omnes_last_error();
}

/* False if some rank is not in this MPI_COMM_WORLD: it may call MPI_Finalize at another time. */
static bool is_of_one_world(MPI_Comm comm, int size)
{
	int *own = calloc(2 * (size_t)size, sizeof(int)), *in_world = own + size, rank;
	MPI_Group group, world;

	if (!own)
		return false;
	for (rank = 0; rank < size; rank++)
		own[rank] = rank;
	PMPI_Comm_group(comm, &group);
	PMPI_Comm_group(MPI_COMM_WORLD, &world);
	PMPI_Group_translate_ranks(group, size, own, world, in_world);
	PMPI_Group_free(&group);
	PMPI_Group_free(&world);
	for (rank = 0; rank < size && in_world[rank] != MPI_UNDEFINED; rank++)
		;
	free(own);
	return rank == size;
}

void shim_group_meet(struct shim_group *group)
{
	uint64_t says[SAYINGS] = { 0 }, all[SAYINGS];
	const char *obstacle;

	say(says);
	if (!is_of_one_world(group->mpi, group->size))
		obstacle = "its ranks are of several worlds";
	else if (PMPI_Allreduce(says, all, SAYINGS, MPI_UINT64_T, MPI_MIN, group->mpi) !=
		 MPI_SUCCESS)
		obstacle = "the MPI's allreduce failed";
	else
		obstacle = decide(group, all);
	if (!obstacle)
		obstacle = join(group);
	group->standing = obstacle ? SHIM_EXCLUDED : SHIM_TAKEN;
	snprintf(group->reason, sizeof(group->reason), "%s", obstacle ? obstacle : "");
}
