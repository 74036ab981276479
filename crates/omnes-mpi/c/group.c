// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The state of a communicator, stored as its attribute, and the decision
 * whether a call is taken.
 *
 * A duplicate of a communicator starts without a group. Collective calls on one
 * communicator are serialized, so a group needs no lock; only the list of all
 * groups does.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

static struct shim_group *groups;
static pthread_mutex_t groups_lock = PTHREAD_MUTEX_INITIALIZER;

static void pass(struct shim_group *group, const char *reason)
{
	group->standing = SHIM_EXCLUDED;
	snprintf(group->reason, sizeof(group->reason), "%s", reason);
}

static struct shim_group *group_make(MPI_Comm comm)
{
	struct shim_group *group = calloc(1, sizeof(*group));
	int is_inter;

	if (!group)
		return NULL;
	group->mpi = comm;
	group->carrier = MPI_COMM_NULL;
	if (PMPI_Comm_test_inter(comm, &is_inter) != MPI_SUCCESS ||
	    PMPI_Comm_size(comm, &group->size) != MPI_SUCCESS ||
	    PMPI_Comm_rank(comm, &group->rank) != MPI_SUCCESS ||
	    PMPI_Comm_set_attr(comm, shim_comm_key, group) != MPI_SUCCESS) {
		free(group);
		return NULL;
	}
	if (is_inter)
		pass(group, "it joins two groups");
	else if (group->size == 1)
		pass(group, "it has one rank");
	pthread_mutex_lock(&groups_lock);
	group->next = groups;
	groups = group;
	pthread_mutex_unlock(&groups_lock);
	return group;
}

/* On this thread, innermost first: a delete callback may free other communicators. */
static _Thread_local struct shim_freeing *freeings;

static bool is_freed(MPI_Comm comm)
{
	const struct shim_freeing *freeing = freeings;

	while (freeing && freeing->comm != comm)
		freeing = freeing->outer;
	return freeing;
}

struct shim_group *shim_group_of(MPI_Comm comm)
{
	struct shim_group *group;
	int has_group;

	if (!shim_begin() || !comm || comm == MPI_COMM_NULL || is_freed(comm))
		return NULL;
	if (PMPI_Comm_get_attr(comm, shim_comm_key, &group, &has_group) != MPI_SUCCESS)
		return NULL;
	return has_group ? group : group_make(comm);
}

bool shim_pass(struct shim_group *group, enum shim_kind kind)
{
	group->calls[kind].passed++;
	return false;
}

/* Counts a blocking call before the ranks have met; true if they should meet now. */
static bool is_time_to_meet(struct shim_group *group, size_t bytes)
{
	group->calls_unmet++;
	return group->mpi == MPI_COMM_WORLD || bytes >= SHIM_MEETING_BYTES ||
	       group->calls_unmet >= SHIM_MEETING_CALLS;
}

/* Makes the ranks meet if it is time to; true if they take such calls. */
static bool may_take(struct shim_group *group, enum shim_kind kind, enum shim_way way,
		     size_t bytes)
{
	if (group->standing == SHIM_UNMET && way == SHIM_BLOCKING &&
	    is_time_to_meet(group, bytes))
		shim_group_meet(group);
	return group->standing == SHIM_TAKEN && group->takes[kind] &&
	       (way == SHIM_BLOCKING || group->takes_requests);
}

/*
 * Without this, calls that do not wait would never make the MPI progress, and
 * sends of a rank that makes no other calls would stall.
 */
static void let_mpi_move(void)
{
	static _Thread_local unsigned int calls;

	if (++calls % SHIM_CALLS_PER_MOVE == 0)
		shim_requests_move();
}

/* Counts a call that is taken; returns true. */
static bool take(struct shim_group *group, enum shim_kind kind, size_t bytes)
{
	let_mpi_move();
	group->calls[kind].taken++;
	group->calls[kind].bytes += bytes;
	return true;
}

bool shim_take(struct shim_group *group, enum shim_kind kind, enum shim_way way, size_t bytes)
{
	if ((bytes == 0 && kind != SHIM_BARRIER) || !may_take(group, kind, way, bytes))
		return shim_pass(group, kind);
	return take(group, kind, bytes);
}

/*
 * Collective. An MPI that runs out of communicators does so on all ranks; this
 * is not an error of the program.
 */
static void carrier_make(struct shim_group *group)
{
	MPI_Errhandler handler;

	group->has_tried_carrier = true;
	if (PMPI_Comm_get_errhandler(group->mpi, &handler) != MPI_SUCCESS)
		return;
	PMPI_Comm_set_errhandler(group->mpi, MPI_ERRORS_RETURN);
	/* Not PMPI_Comm_dup(), which would copy attributes of others. */
	if (PMPI_Comm_split(group->mpi, 0, group->rank, &group->carrier) != MPI_SUCCESS)
		group->carrier = MPI_COMM_NULL;
	PMPI_Comm_set_errhandler(group->mpi, handler);
	PMPI_Errhandler_free(&handler);
	if (group->carrier != MPI_COMM_NULL)
		PMPI_Comm_set_errhandler(group->carrier, MPI_ERRORS_RETURN);
}

bool shim_take_pairs(struct shim_group *group, enum shim_kind kind, size_t bytes)
{
	if (!may_take(group, kind, SHIM_BLOCKING, 0))
		return shim_pass(group, kind);
	if (!group->has_tried_carrier)
		carrier_make(group);
	return group->carrier == MPI_COMM_NULL ? shim_pass(group, kind) : take(group, kind, bytes);
}

/* Requests that are still in progress keep what they need of the group. */
static void group_end(struct shim_group *group)
{
	shim_report(group);
	if (group->comm)
		omnes_comm_free(group->comm);
	group->comm = NULL;
	if (group->carrier != MPI_COMM_NULL)
		PMPI_Comm_free(&group->carrier);
	pass(group, "it has ended");
}

void shim_groups_end(void)
{
	pthread_mutex_lock(&groups_lock);
	while (groups) {
		struct shim_group *group = groups;

		groups = group->next;
		group_end(group);
	}
	pthread_mutex_unlock(&groups_lock);
	shim_report_small();
}

/* True if the group was listed, and so has not ended. */
static bool group_unlist(struct shim_group *group)
{
	struct shim_group **place;
	bool was_there = false;

	pthread_mutex_lock(&groups_lock);
	for (place = &groups; *place && *place != group; place = &(*place)->next)
		;
	if (*place) {
		*place = group->next;
		was_there = true;
	}
	pthread_mutex_unlock(&groups_lock);
	return was_there;
}

void shim_freeing_begin(struct shim_freeing *freeing, const MPI_Comm *comm)
{
	struct shim_group *group;
	int has_group;

	*freeing = (struct shim_freeing){ .outer = freeings };
	/* MPI refuses to free predefined communicators. */
	if (shim_begin() && comm && *comm && *comm != MPI_COMM_NULL && *comm != MPI_COMM_WORLD &&
	    PMPI_Comm_get_attr(*comm, shim_comm_key, &group, &has_group) == MPI_SUCCESS) {
		freeing->comm = *comm;
		if (has_group && group_unlist(group))
			group_end(group);
	}
	freeings = freeing;
}

void shim_freeing_end(const struct shim_freeing *freeing)
{
	freeings = freeing->outer;
}

int shim_group_delete(MPI_Comm comm, int key, void *value, void *extra)
{
	(void)comm, (void)key, (void)extra;
	if (group_unlist(value))
		group_end(value);
	free(value);
	return MPI_SUCCESS;
}
