// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * State created once per process, at the first call, and destroyed when
 * MPI_Finalize begins: at the same point on all ranks, so that they also decide
 * alike about calls in the program's delete callbacks. No rank waits for others
 * there: callbacks may send messages that other ranks need to reach
 * MPI_Finalize.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

struct shim_settings shim_settings;
int shim_comm_key = MPI_KEYVAL_INVALID;
int shim_type_key = MPI_KEYVAL_INVALID;
MPI_Comm shim_private;

/* True between the first call and MPI_Finalize, if initialization succeeded. */
static bool is_ready;
/* True from MPI_Finalize on, even if it is the first call. */
static bool is_over;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool is_set(const char *variable, const char *value)
{
	const char *set = getenv(variable);

	return set && strcmp(set, value) == 0;
}

/* OMNES_MPI names one kind of calls, or "off"; other values are ignored. */
static bool is_wanted(enum shim_kind kind)
{
	static const char *const NAMES[SHIM_KINDS] = {
		[SHIM_BCAST] = "bcast",		[SHIM_BARRIER] = "barrier",
		[SHIM_ALLREDUCE] = "allreduce", [SHIM_REDUCE] = "reduce",
		[SHIM_ALLGATHER] = "allgather", [SHIM_GATHER] = "gather",
		[SHIM_SCATTER] = "scatter",	[SHIM_ALLTOALL] = "alltoall",
		[SHIM_REDUCE_SCATTER] = "reduce_scatter", [SHIM_SCAN] = "scan",
	};

	if (is_set("OMNES_MPI", "off"))
		return false;
	for (int named = 0; named < SHIM_KINDS; named++)
		if (is_set("OMNES_MPI", NAMES[named]))
			return named == (int)kind;
	return true;
}

static void settings_read(void)
{
	for (int kind = 0; kind < SHIM_KINDS; kind++)
		shim_settings.takes[kind] = is_wanted(kind);
	shim_settings.one_node = is_set("OMNES_MPI_ONE_NODE", "on");
	shim_settings.report = is_set("OMNES_MPI_REPORT", "on");
}

static int nothing_copy(MPI_Comm comm, int key, void *extra, void *value, void *copy, int *copies)
{
	(void)comm, (void)key, (void)extra, (void)value, (void)copy;
	*copies = 0;
	return MPI_SUCCESS;
}

static int type_nothing_copy(MPI_Datatype type, int key, void *extra, void *value, void *copy,
			     int *copies)
{
	(void)type, (void)key, (void)extra, (void)value, (void)copy;
	*copies = 0;
	return MPI_SUCCESS;
}

static int type_nothing_delete(MPI_Datatype type, int key, void *value, void *extra)
{
	(void)type, (void)key, (void)value, (void)extra;
	return MPI_SUCCESS;
}

/* Passes all calls from then on. False if they were passed before. */
static bool close_all(void)
{
	__atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
	if (!__atomic_exchange_n(&is_ready, false, __ATOMIC_ACQ_REL))
		return false;
	shim_groups_end();
	return true;
}

static void free_all(void)
{
	shim_requests_end();
	PMPI_Comm_free(&shim_private);
}

int shim_finalize(void)
{
	bool has_jobs = close_all();
	int error;

	if (has_jobs)
		free_all();
	error = PMPI_Finalize();
	/* Ranks that are no longer reachable are not waited for; the MPI has reported them. */
	if (has_jobs)
		omnes_leave();
	return error;
}

/*
 * For programs that call PMPI_Finalize, whose return we cannot observe:
 * callbacks of the program that run after this one cannot help other ranks to
 * get here.
 */
static int self_delete(MPI_Comm comm, int key, void *value, void *extra)
{
	(void)comm, (void)key, (void)value, (void)extra;
	if (close_all()) {
		omnes_leave();
		free_all();
	}
	return MPI_SUCCESS;
}

static bool is_our_mpi(void)
{
	/* Room for another MPI's text, which may be longer than ours: MPICH's needs 8 KiB. */
	char library[8192];
	int length;

	return PMPI_Get_library_version(library, &length) == MPI_SUCCESS &&
	       shim_host_fits(library);
}

static void make_all(void)
{
	static int self_key = MPI_KEYVAL_INVALID;

	settings_read();
	if (!is_our_mpi())
		return;
	/* Not PMPI_Comm_dup(), which would copy attributes of others. */
	if (PMPI_Comm_split(MPI_COMM_SELF, 0, 0, &shim_private) != MPI_SUCCESS ||
	    PMPI_Comm_set_errhandler(shim_private, MPI_ERRORS_RETURN) != MPI_SUCCESS ||
	    PMPI_Comm_create_keyval(nothing_copy, shim_group_delete, &shim_comm_key, NULL) !=
		    MPI_SUCCESS ||
	    PMPI_Type_create_keyval(type_nothing_copy, type_nothing_delete, &shim_type_key,
				    NULL) != MPI_SUCCESS ||
	    shim_requests_begin() != MPI_SUCCESS ||
	    PMPI_Comm_create_keyval(nothing_copy, self_delete, &self_key, NULL) != MPI_SUCCESS ||
	    PMPI_Comm_set_attr(MPI_COMM_SELF, self_key, NULL) != MPI_SUCCESS)
		return;
	shim_reduce_begin();
	shim_combine_begin();
	__atomic_store_n(&is_ready, true, __ATOMIC_RELEASE);
}

bool shim_begin(void)
{
	int has_begun = 0, has_ended = 0;

	if (__atomic_load_n(&is_ready, __ATOMIC_ACQUIRE))
		return true;
	if (__atomic_load_n(&is_over, __ATOMIC_ACQUIRE) || !shim_attach())
		return false;
	/* The MPI reports calls that are too early or too late. */
	PMPI_Initialized(&has_begun);
	PMPI_Finalized(&has_ended);
	if (!has_begun || has_ended)
		return false;
	pthread_once(&once, make_all);
	return __atomic_load_n(&is_ready, __ATOMIC_ACQUIRE);
}
