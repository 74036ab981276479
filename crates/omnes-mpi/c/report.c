// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Reports the calls of a communicator, taken and passed, in one line of its
 * rank 0. Some programs have many communicators that were not worth a meeting:
 * these share a line.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

#include "shim.h"

/* Room for all kinds of calls, with numbers of 20 digits. */
#define CALLS_TEXT_MAX 1024

static const char *const NAMES[SHIM_KINDS] = {
	[SHIM_BCAST] = "broadcasts",	 [SHIM_BARRIER] = "barriers",
	[SHIM_ALLREDUCE] = "allreduces", [SHIM_REDUCE] = "reduces",
	[SHIM_ALLGATHER] = "allgathers", [SHIM_GATHER] = "gathers",
	[SHIM_SCATTER] = "scatters",	 [SHIM_ALLTOALL] = "alltoalls",
	[SHIM_REDUCE_SCATTER] = "reduce_scatters", [SHIM_SCAN] = "scans",
};

static struct {
	pthread_mutex_t lock;
	unsigned communicators;
	uint64_t calls[SHIM_KINDS];
} small = { .lock = PTHREAD_MUTEX_INITIALIZER };

static uint64_t all_calls(const struct shim_group *group, int kind)
{
	return group->calls[kind].taken + group->calls[kind].passed;
}

/* "999 of 1000 broadcasts (4091904 bytes), 12 of 12 barriers": the kinds with calls. */
static void tell_calls(const struct shim_group *group, char text[CALLS_TEXT_MAX])
{
	int length = 0;

	text[0] = '\0';
	for (int kind = 0; kind < SHIM_KINDS; kind++) {
		const struct shim_calls *calls = &group->calls[kind];
		uint64_t all = all_calls(group, kind);

		if (all == 0)
			continue;
		length += sprintf(text + length, "%s%" PRIu64 " of %" PRIu64 " %s",
				  length ? ", " : "", calls->taken, all, NAMES[kind]);
		if (calls->bytes > 0)
			length += sprintf(text + length, " (%" PRIu64 " bytes)", calls->bytes);
	}
}

static bool is_small(const struct shim_group *group)
{
	return group->mpi != MPI_COMM_WORLD &&
	       (group->size == 1 || group->standing == SHIM_UNMET);
}

static void add_to_small(const struct shim_group *group)
{
	pthread_mutex_lock(&small.lock);
	small.communicators++;
	for (int kind = 0; kind < SHIM_KINDS; kind++)
		small.calls[kind] += all_calls(group, kind);
	pthread_mutex_unlock(&small.lock);
}

void shim_report(const struct shim_group *group)
{
	char name[MPI_MAX_OBJECT_NAME] = "", calls[CALLS_TEXT_MAX];
	int length;

	if (!shim_settings.report || group->rank != 0)
		return;
	tell_calls(group, calls);
	if (!calls[0])
		return;
	if (is_small(group)) {
		add_to_small(group);
		return;
	}
	PMPI_Comm_get_name(group->mpi, name, &length);
	fprintf(stderr, "omnes-mpi: %s, %d ranks: taken %s%s%s\n",
		name[0] ? name : "communicator without a name", group->size, calls,
		group->reason[0] ? "; passed: " : "", group->reason);
}

void shim_report_small(void)
{
	char text[CALLS_TEXT_MAX];
	int rank, length = 0;

	/* Every rank has such communicators; one rank's report is enough. */
	if (!small.communicators || PMPI_Comm_rank(MPI_COMM_WORLD, &rank) != MPI_SUCCESS || rank)
		return;
	for (int kind = 0; kind < SHIM_KINDS; kind++)
		if (small.calls[kind] > 0)
			length += sprintf(text + length, "%s%" PRIu64 " %s", length ? ", " : "",
					  small.calls[kind], NAMES[kind]);
	fprintf(stderr, "omnes-mpi: %u communicators of one rank or of fewer than %d calls: "
		"passed %s\n", small.communicators, SHIM_MEETING_CALLS, text);
}
