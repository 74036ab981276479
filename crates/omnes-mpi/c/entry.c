// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The entries for broadcasts and barriers, blocking and nonblocking. Each call goes to libomnes or
 * to its PMPI_ twin, and is counted. The entries that free a communicator end its group first;
 * after PMPI_Finalize(), the ranks leave their jobs.
 */
#include "shim.h"

/* True if the call is taken; data is then set. */
static bool takes_bcast(struct shim_group *group, enum shim_way way, struct shim_data *data,
			int root)
{
	if (!group)
		return false;
	/* Arguments of calls that are passed in any case are not examined. */
	if (group->standing == SHIM_EXCLUDED || data->count == 0 || root < 0 ||
	    root >= group->size || !shim_data_set(data, data->buffer, data->count, data->type))
		return shim_pass(group, SHIM_BCAST);
	return shim_take(group, SHIM_BCAST, way, data->bytes);
}

static int bcast_packed(struct shim_group *group, const struct shim_data *data, int root)
{
	struct shim_packed packed;
	bool is_root = root == group->rank;
	int error, failure;

	error = shim_packed_make(&packed, data, is_root);
	if (error != MPI_SUCCESS)
		return shim_raise_mpi(group->mpi, error);
	failure = omnes_bcast(group->comm, packed.bytes, data->bytes, root);
	if (failure == OMNES_SUCCESS && !is_root)
		error = shim_packed_spread(&packed);
	shim_packed_free(&packed);
	if (failure != OMNES_SUCCESS)
		return shim_raise_omnes(group->mpi);
	return error == MPI_SUCCESS ? MPI_SUCCESS : shim_raise_mpi(group->mpi, error);
}

static int bcast(struct shim_group *group, const struct shim_data *data, int root)
{
	if (!data->is_contiguous)
		return bcast_packed(group, data, root);
	if (omnes_bcast(group->comm, data->buffer, data->bytes, root) != OMNES_SUCCESS)
		return shim_raise_omnes(group->mpi);
	return MPI_SUCCESS;
}

SHIM_ENTRY int MPI_Finalize(void)
{
	shim_attach();
	return shim_finalize();
}

SHIM_ENTRY int MPI_Comm_free(MPI_Comm *comm)
{
	struct shim_freeing freeing;
	int error;

	shim_freeing_begin(&freeing, comm);
	error = PMPI_Comm_free(comm);
	shim_freeing_end(&freeing);
	return error;
}

SHIM_ENTRY int MPI_Comm_disconnect(MPI_Comm *comm)
{
	struct shim_freeing freeing;
	int error;

	shim_freeing_begin(&freeing, comm);
	error = PMPI_Comm_disconnect(comm);
	shim_freeing_end(&freeing);
	return error;
}

SHIM_ENTRY int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_data data = { .buffer = buffer, .count = count, .type = type };

	if (!takes_bcast(group, SHIM_BLOCKING, &data, root))
		return PMPI_Bcast(buffer, count, type, root, comm);
	return bcast(group, &data, root);
}

SHIM_ENTRY int MPI_Ibcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm,
			  MPI_Request *request)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_data data = { .buffer = buffer, .count = count, .type = type };

	if (!request || !takes_bcast(group, SHIM_NONBLOCKING, &data, root))
		return PMPI_Ibcast(buffer, count, type, root, comm, request);
	return shim_ibcast(group, &data, root, request);
}

SHIM_ENTRY int MPI_Barrier(MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);

	if (!group || !shim_take(group, SHIM_BARRIER, SHIM_BLOCKING, 0))
		return PMPI_Barrier(comm);
	if (omnes_barrier(group->comm) != OMNES_SUCCESS)
		return shim_raise_omnes(group->mpi);
	return MPI_SUCCESS;
}

SHIM_ENTRY int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request)
{
	struct shim_group *group = shim_group_of(comm);

	if (!request || !group || !shim_take(group, SHIM_BARRIER, SHIM_NONBLOCKING, 0))
		return PMPI_Ibarrier(comm, request);
	return shim_ibarrier(group, request);
}

#if MPI_VERSION >= 4
SHIM_ENTRY int MPI_Bcast_c(void *buffer, MPI_Count count, MPI_Datatype type, int root,
			   MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_data data = { .buffer = buffer, .count = count, .type = type };

	if (!takes_bcast(group, SHIM_BLOCKING, &data, root))
		return PMPI_Bcast_c(buffer, count, type, root, comm);
	return bcast(group, &data, root);
}

SHIM_ENTRY int MPI_Ibcast_c(void *buffer, MPI_Count count, MPI_Datatype type, int root,
			    MPI_Comm comm, MPI_Request *request)
{
	struct shim_group *group = shim_group_of(comm);
	struct shim_data data = { .buffer = buffer, .count = count, .type = type };

	if (!request || !takes_bcast(group, SHIM_NONBLOCKING, &data, root))
		return PMPI_Ibcast_c(buffer, count, type, root, comm, request);
	return shim_ibcast(group, &data, root, request);
}
#endif
