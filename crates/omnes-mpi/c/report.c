// SPDX-License-Identifier: Apache-2.0 OR MIT
/* What became of a communicator's calls, in one line of its rank 0. */
#include <inttypes.h>
#include <stdio.h>

#include "shim.h"

/* Of all kinds, with numbers of 20 digits. */
#define CALLS_TEXT_MAX 1024

static const char *const NAMES[SHIM_KINDS] = {
	[SHIM_BCAST] = "broadcasts",	 [SHIM_BARRIER] = "barriers",
	[SHIM_ALLREDUCE] = "allreduces", [SHIM_REDUCE] = "reduces",
	[SHIM_ALLGATHER] = "allgathers", [SHIM_GATHER] = "gathers",
	[SHIM_SCATTER] = "scatters",	 [SHIM_ALLTOALL] = "alltoalls",
	[SHIM_REDUCE_SCATTER] = "reduce_scatters", [SHIM_SCAN] = "scans",
};

/* "999 of 1000 broadcasts (4091904 bytes), 12 of 12 barriers": the kinds that were called. */
static void tell_calls(const struct shim_group *group, char text[CALLS_TEXT_MAX])
{
	int length = 0;

	text[0] = '\0';
	for (int kind = 0; kind < SHIM_KINDS; kind++) {
		const struct shim_calls *calls = &group->calls[kind];
		uint64_t all = calls->taken + calls->passed;

		if (all == 0)
			continue;
		length += sprintf(text + length, "%s%" PRIu64 " of %" PRIu64 " %s",
				  length ? ", " : "", calls->taken, all, NAMES[kind]);
		if (calls->bytes > 0)
			length += sprintf(text + length, " (%" PRIu64 " bytes)", calls->bytes);
	}
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
	PMPI_Comm_get_name(group->mpi, name, &length);
	fprintf(stderr, "omnes-mpi: %s, %d ranks: taken %s%s%s\n",
		name[0] ? name : "communicator without a name", group->size, calls,
		group->reason[0] ? "; passed: " : "", group->reason);
}
