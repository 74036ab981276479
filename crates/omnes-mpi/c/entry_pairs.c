// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The entries for scatters and all-to-alls of parts of any lengths. MPI_Gatherv is passed: in labs,
 * libomnes was no faster.
 */
#include "shim.h"

/* Displacement of a part that has a buffer of its own. */
static const MPI_Aint BEGINNING;

/* Counts the call even if it is passed here, since other ranks may take it with this number. */
static struct shim_group *group_of(MPI_Comm comm)
{
	struct shim_group *group = shim_group_of(comm);

	if (group)
		group->exchanges++;
	return group;
}

/* True if the call is taken. */
static bool takes(struct shim_group *group, enum shim_kind kind, struct shim_pairs *pairs)
{
	if (!group)
		return false;
	if (group->standing == SHIM_EXCLUDED || !shim_pairs_set(pairs, group->size))
		return shim_pass(group, kind);
	return shim_take_pairs(group, kind, shim_pairs_bytes(pairs));
}

/*
 * Of a scatter: the parts that the root sends, an argument used at the root only, and the part that
 * each rank receives.
 */
static bool takes_scatter(struct shim_group *group, struct shim_pairs *pairs, int root)
{
	if (!group)
		return false;
	if (root < 0 || root >= group->size)
		return shim_pass(group, SHIM_SCATTER);
	pairs->is_in_place = root == group->rank && pairs->come.parts.buffer == MPI_IN_PLACE;
	pairs->come.rank = pairs->is_in_place ? SHIM_NO_RANK : root;
	pairs->sent.rank = root == group->rank ? SHIM_EACH_RANK : SHIM_NO_RANK;
	return takes(group, SHIM_SCATTER, pairs);
}

SHIM_ENTRY int MPI_Scatterv(const void *all, const int counts[], const int places[],
			    MPI_Datatype type, void *to, int to_count, MPI_Datatype to_type,
			    int root, MPI_Comm comm)
{
	struct shim_group *group = group_of(comm);
	struct shim_pairs pairs = { .sent.parts = { (void *)all, type, counts, places },
				    .come.parts = { to, to_type, &to_count,
						    .large_places = &BEGINNING },
				    .message_max = SHIM_SCATTER_BYTES_MAX };

	if (!takes_scatter(group, &pairs, root))
		return PMPI_Scatterv(all, counts, places, type, to, to_count, to_type, root, comm);
	return shim_exchange(group, &pairs);
}

SHIM_ENTRY int MPI_Alltoallv(const void *from, const int from_counts[], const int from_places[],
			     MPI_Datatype from_type, void *to, const int counts[],
			     const int places[], MPI_Datatype type, MPI_Comm comm)
{
	struct shim_group *group = group_of(comm);
	struct shim_pairs pairs = {
		.sent = { { (void *)from, from_type, from_counts, from_places }, SHIM_EACH_RANK },
		.come = { { to, type, counts, places }, SHIM_EACH_RANK },
		.message_max = SHIM_ALLTOALL_BYTES_MAX
	};

	if (!takes(group, SHIM_ALLTOALL, &pairs))
		return PMPI_Alltoallv(from, from_counts, from_places, from_type, to, counts,
				      places, type, comm);
	return shim_exchange(group, &pairs);
}

#if MPI_VERSION >= 4
SHIM_ENTRY int MPI_Scatterv_c(const void *all, const MPI_Count counts[], const MPI_Aint places[],
			      MPI_Datatype type, void *to, MPI_Count to_count,
			      MPI_Datatype to_type, int root, MPI_Comm comm)
{
	struct shim_group *group = group_of(comm);
	struct shim_pairs pairs = { .sent.parts = { (void *)all, type, .large_counts = counts,
						    .large_places = places },
				    .come.parts = { to, to_type, .large_counts = &to_count,
						    .large_places = &BEGINNING },
				    .message_max = SHIM_SCATTER_BYTES_MAX };

	if (!takes_scatter(group, &pairs, root))
		return PMPI_Scatterv_c(all, counts, places, type, to, to_count, to_type, root,
				       comm);
	return shim_exchange(group, &pairs);
}

SHIM_ENTRY int MPI_Alltoallv_c(const void *from, const MPI_Count from_counts[],
			       const MPI_Aint from_places[], MPI_Datatype from_type, void *to,
			       const MPI_Count counts[], const MPI_Aint places[],
			       MPI_Datatype type, MPI_Comm comm)
{
	struct shim_group *group = group_of(comm);
	struct shim_pairs pairs = {
		.sent = { { (void *)from, from_type, .large_counts = from_counts,
			    .large_places = from_places },
			  SHIM_EACH_RANK },
		.come = { { to, type, .large_counts = counts, .large_places = places },
			  SHIM_EACH_RANK },
		.message_max = SHIM_ALLTOALL_BYTES_MAX
	};

	if (!takes(group, SHIM_ALLTOALL, &pairs))
		return PMPI_Alltoallv_c(from, from_counts, from_places, from_type, to, counts,
					places, type, comm);
	return shim_exchange(group, &pairs);
}
#endif
