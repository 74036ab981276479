// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The first blocking call on a communicator: its ranks tell each other where
 * they are and what they want, and all decide alike from what all have said.
 * Everything goes through the MPI and this very communicator.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

/*
 * What ranks say of themselves; they learn the smallest of each. Of a number
 * and its complement that tells whether all have said the same.
 */
enum saying {
	SAYS_VERSION,
	SAYS_NOT_VERSION,
	SAYS_NODE,
	SAYS_NOT_NODE,
	SAYS_BCAST,
	SAYS_BARRIER,
	SAYS_REQUESTS,
	SAYS_ONE_NODE,
	SAYINGS
};

#define FNV_BASIS 0xcbf29ce484222325u
#define FNV_PRIME 0x100000001b3u

static uint64_t digest(uint64_t state, const void *bytes, size_t count)
{
	const unsigned char *at = bytes;

	while (count--)
		state = (state ^ *at++) * FNV_PRIME;
	return state;
}

/* The same for processes of one kernel and network namespace only. */
static uint64_t this_node(void)
{
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
	char boot[64] = "";
	struct stat network;
	uint64_t node = FNV_BASIS;
	pid_t process = getpid();

	if (file) {
		if (fgets(boot, sizeof(boot), file))
			node = digest(node, boot, strlen(boot));
		fclose(file);
	}
	/* Without the name of its kernel no node is the same as another. */
	if (!boot[0] || stat("/proc/self/ns/net", &network) != 0)
		return digest(node, &process, sizeof(process));
	return digest(node, &network.st_ino, sizeof(network.st_ino));
}

static void say(uint64_t says[SAYINGS])
{
	const char *version = omnes_version();
	uint32_t protocol = SHIM_PROTOCOL;

	says[SAYS_VERSION] = digest(FNV_BASIS, &protocol, sizeof(protocol));
	says[SAYS_VERSION] = digest(says[SAYS_VERSION], version, strlen(version));
	says[SAYS_NOT_VERSION] = ~says[SAYS_VERSION];
	says[SAYS_NODE] = this_node();
	says[SAYS_NOT_NODE] = ~says[SAYS_NODE];
	says[SAYS_BCAST] = shim_settings.takes_bcast;
	says[SAYS_BARRIER] = shim_settings.takes_barrier;
	says[SAYS_REQUESTS] = shim_host_has_requests();
	says[SAYS_ONE_NODE] = shim_settings.one_node;
}

/* NULL if the ranks may join, else why not; the same on all of them. */
static const char *decide(struct shim_group *group, const uint64_t all[SAYINGS])
{
	bool is_one_node = all[SAYS_NODE] == ~all[SAYS_NOT_NODE];

	if (all[SAYS_VERSION] != ~all[SAYS_NOT_VERSION])
		return "its ranks have different versions of libomnes";
	group->takes_bcast = all[SAYS_BCAST];
	group->takes_barrier = all[SAYS_BARRIER];
	group->takes_requests = all[SAYS_REQUESTS];
	if (!group->takes_bcast && !group->takes_barrier)
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

/* The MPI must move on while a call waits here for another rank. */
static void move_mpi_on(void)
{
	int is_there;

	PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, shim_private, &is_there, MPI_STATUS_IGNORE);
}

/* NULL, or why it did not work. */
static const char *join(struct shim_group *group)
{
	omnes_exchange exchange = {
		.rank = group->rank,
		.size = group->size,
		.allgather = allgather,
		.context = &group->mpi,
		.while_waiting = move_mpi_on,
	};

	if (omnes_comm_exchange(&exchange, &group->comm) == OMNES_SUCCESS)
		return NULL;
	group->comm = NULL;
	return omnes_last_error();
}

void shim_group_meet(struct shim_group *group)
{
	uint64_t says[SAYINGS], all[SAYINGS];
	const char *obstacle;

	say(says);
	if (PMPI_Allreduce(says, all, SAYINGS, MPI_UINT64_T, MPI_MIN, group->mpi) != MPI_SUCCESS)
		obstacle = "the MPI's allreduce failed";
	else
		obstacle = decide(group, all);
	if (!obstacle)
		obstacle = join(group);
	group->standing = obstacle ? SHIM_PASSED : SHIM_TAKEN;
	snprintf(group->reason, sizeof(group->reason), "%s", obstacle ? obstacle : "");
}
