// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Prefix reductions, of the same types and operations as other reductions, but of shorter data. */
#include <stdlib.h>
#include <string.h>

#include "shim.h"

/*
 * Longer data are passed: in labs of 4 and 8 hosts, data that do not fit into a
 * single packet were slower than with Open MPI, which also forwards them from
 * rank to rank.
 */
#define BYTES_MAX ((size_t)1024)

typedef int scan_function(omnes_comm *comm, void *data, size_t count, int type, int op);

bool shim_scan_set(struct shim_reduction *reduction, MPI_Count count, MPI_Datatype type, MPI_Op op)
{
	return shim_reduction_set(reduction, count, type, op) && reduction->bytes <= BYTES_MAX;
}

static int scan(struct shim_group *group, const struct shim_reduction *reduction,
		scan_function *function)
{
	shim_reduction_load(reduction, reduction->data);
	if (function(group->comm, reduction->data, reduction->count, reduction->type,
		     reduction->op) != OMNES_SUCCESS)
		return shim_raise_omnes(group->mpi);
	return MPI_SUCCESS;
}

int shim_scan(struct shim_group *group, const struct shim_reduction *reduction)
{
	return scan(group, reduction, omnes_scan);
}

int shim_exscan(struct shim_group *group, const struct shim_reduction *reduction)
{
	struct shim_reduction through = *reduction;
	int error;

	if (reduction->data)
		return scan(group, reduction, omnes_exscan);
	/* The first rank's data must not change. */
	through.data = malloc(reduction->bytes);
	if (!through.data)
		return shim_raise_mpi(group->mpi, MPI_ERR_NO_MEM);
	error = scan(group, &through, omnes_exscan);
	free(through.data);
	return error;
}
