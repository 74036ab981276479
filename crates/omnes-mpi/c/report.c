// SPDX-License-Identifier: Apache-2.0 OR MIT
/* What became of a communicator's calls, in one line of its rank 0. */
#include <inttypes.h>
#include <stdio.h>

#include "shim.h"

static uint64_t all_of(const struct shim_calls *calls)
{
	return calls->taken + calls->passed;
}

void shim_report(const struct shim_group *group)
{
	const struct shim_calls *bcasts = &group->bcasts, *barriers = &group->barriers;
	const struct shim_calls *allreduces = &group->allreduces;
	char name[MPI_MAX_OBJECT_NAME] = "";
	int length;

	if (!shim_settings.report || group->rank != 0 ||
	    all_of(bcasts) + all_of(barriers) + all_of(allreduces) == 0)
		return;
	PMPI_Comm_get_name(group->mpi, name, &length);
	fprintf(stderr,
		"omnes-mpi: %s, %d ranks: %" PRIu64 " of %" PRIu64 " broadcasts taken (%" PRIu64
		" bytes), %" PRIu64 " of %" PRIu64 " barriers, %" PRIu64 " of %" PRIu64
		" allreduces%s%s\n",
		name[0] ? name : "communicator without a name", group->size,
		bcasts->taken, all_of(bcasts), bcasts->bytes, barriers->taken, all_of(barriers),
		allreduces->taken, all_of(allreduces),
		group->reason[0] ? "; passed: " : "", group->reason);
}
