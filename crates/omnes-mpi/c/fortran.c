// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Fortran entries that do not call the C entry.
 *
 * In Open MPI, no Fortran entry does. All names of an entry are the same
 * function; "use mpi_f08" calls the name that begins with ompi_. In MPICH, the
 * entries of "use mpi_f08" without a buffer call the PMPI_ twin; all others
 * call the C entry, which is taken over already.
 */
#define _GNU_SOURCE /* dladdr */
#include "shim.h"

static void set_error(MPI_Fint *error, int value)
{
	if (error)
		*error = value;
}

#ifdef OPEN_MPI
#include <dlfcn.h>
#include <string.h>
#include <strings.h>

/* The names by which compilers call an entry. Attributes before the type apply to all of them. */
#define NAMES(lower, upper, inner)                                                            \
	extern __attribute__((alias(#inner), visibility("default"))) __typeof__(inner) lower, \
		lower##_, lower##__, upper

/* Fortran's MPI_BOTTOM and MPI_IN_PLACE are variables, whose names depend on the compiler. */
#define VARIABLE(name, NAME)                        \
	extern int name##_ __attribute__((weak));   \
	extern int name __attribute__((weak));      \
	extern int name##__ __attribute__((weak));  \
	extern int NAME __attribute__((weak));      \
	static const int *const name##_is[] = { &name##_, &name, &name##__, &NAME }

VARIABLE(mpi_fortran_bottom, MPI_FORTRAN_BOTTOM);
VARIABLE(mpi_fortran_in_place, MPI_FORTRAN_IN_PLACE);

enum { NAMES_OF_VARIABLE = 4 };

/*
 * True if the buffer is the variable. The variable of an MPI loaded by dlopen()
 * is not resolved under any name here, but the loader knows the symbol at its
 * address.
 */
static bool is_variable(const void *buffer, const int *const addresses[], const char *name)
{
	bool is_known = false;
	Dl_info found;

	for (int i = 0; i < NAMES_OF_VARIABLE; i++) {
		if (addresses[i] && buffer == addresses[i])
			return true;
		is_known = is_known || addresses[i];
	}
	return !is_known && buffer && dladdr(buffer, &found) && found.dli_saddr == buffer &&
	       strncasecmp(found.dli_sname, name, strlen(name)) == 0;
}

static void *c_buffer(void *buffer)
{
	return is_variable(buffer, mpi_fortran_bottom_is, "mpi_fortran_bottom") ? MPI_BOTTOM
										: buffer;
}

static void *c_place(void *buffer)
{
	if (is_variable(buffer, mpi_fortran_in_place_is, "mpi_fortran_in_place"))
		return MPI_IN_PLACE;
	return c_buffer(buffer);
}

static MPI_Op c_op(const MPI_Fint *op)
{
	shim_attach();
	return PMPI_Op_f2c(*op);
}

static MPI_Comm c_comm(const MPI_Fint *comm)
{
	shim_attach();
	return PMPI_Comm_f2c(*comm);
}

static MPI_Datatype c_type(const MPI_Fint *type)
{
	shim_attach();
	return PMPI_Type_f2c(*type);
}

/* One count per rank. Fortran integers that differ from C's int are not supported. */
static const int *c_counts(const MPI_Fint *counts)
{
	_Static_assert(sizeof(MPI_Fint) == sizeof(int), "counts are read where they are");
	return (const int *)counts;
}

static void set_started(MPI_Fint *request, MPI_Request started, MPI_Fint *error, int result)
{
	if (result == MPI_SUCCESS)
		*request = PMPI_Request_c2f(started);
	set_error(error, result);
}

SHIM_ENTRY void ompi_bcast_f(void *buffer, MPI_Fint *count, MPI_Fint *type, MPI_Fint *root,
			MPI_Fint *comm, MPI_Fint *error)
{
	set_error(error,
		  MPI_Bcast(c_buffer(buffer), *count, c_type(type), *root, c_comm(comm)));
}
NAMES(mpi_bcast, MPI_BCAST, ompi_bcast_f);

SHIM_ENTRY void ompi_ibcast_f(void *buffer, MPI_Fint *count, MPI_Fint *type, MPI_Fint *root,
			 MPI_Fint *comm, MPI_Fint *request, MPI_Fint *error)
{
	MPI_Request started;
	int result = MPI_Ibcast(c_buffer(buffer), *count, c_type(type), *root, c_comm(comm),
				&started);

	set_started(request, started, error, result);
}
NAMES(mpi_ibcast, MPI_IBCAST, ompi_ibcast_f);

SHIM_ENTRY void ompi_barrier_f(MPI_Fint *comm, MPI_Fint *error)
{
	set_error(error, MPI_Barrier(c_comm(comm)));
}
NAMES(mpi_barrier, MPI_BARRIER, ompi_barrier_f);

SHIM_ENTRY void ompi_ibarrier_f(MPI_Fint *comm, MPI_Fint *request, MPI_Fint *error)
{
	MPI_Request started;
	int result = MPI_Ibarrier(c_comm(comm), &started);

	set_started(request, started, error, result);
}
NAMES(mpi_ibarrier, MPI_IBARRIER, ompi_ibarrier_f);

SHIM_ENTRY void ompi_allreduce_f(void *from, void *data, MPI_Fint *count, MPI_Fint *type,
				 MPI_Fint *op, MPI_Fint *comm, MPI_Fint *error)
{
	set_error(error, MPI_Allreduce(c_place(from), c_buffer(data), *count, c_type(type),
				       c_op(op), c_comm(comm)));
}
NAMES(mpi_allreduce, MPI_ALLREDUCE, ompi_allreduce_f);

SHIM_ENTRY void ompi_iallreduce_f(void *from, void *data, MPI_Fint *count, MPI_Fint *type,
				  MPI_Fint *op, MPI_Fint *comm, MPI_Fint *request, MPI_Fint *error)
{
	MPI_Request started;
	int result = MPI_Iallreduce(c_place(from), c_buffer(data), *count, c_type(type), c_op(op),
				    c_comm(comm), &started);

	set_started(request, started, error, result);
}
NAMES(mpi_iallreduce, MPI_IALLREDUCE, ompi_iallreduce_f);

SHIM_ENTRY void ompi_reduce_f(void *from, void *data, MPI_Fint *count, MPI_Fint *type,
			      MPI_Fint *op, MPI_Fint *root, MPI_Fint *comm, MPI_Fint *error)
{
	set_error(error, MPI_Reduce(c_place(from), c_buffer(data), *count, c_type(type), c_op(op),
				    *root, c_comm(comm)));
}
NAMES(mpi_reduce, MPI_REDUCE, ompi_reduce_f);

SHIM_ENTRY void ompi_ireduce_f(void *from, void *data, MPI_Fint *count, MPI_Fint *type,
			       MPI_Fint *op, MPI_Fint *root, MPI_Fint *comm, MPI_Fint *request,
			       MPI_Fint *error)
{
	MPI_Request started;
	int result = MPI_Ireduce(c_place(from), c_buffer(data), *count, c_type(type), c_op(op),
				 *root, c_comm(comm), &started);

	set_started(request, started, error, result);
}
NAMES(mpi_ireduce, MPI_IREDUCE, ompi_ireduce_f);

SHIM_ENTRY void ompi_reduce_scatter_block_f(void *from, void *data, MPI_Fint *count,
					    MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm,
					    MPI_Fint *error)
{
	set_error(error, MPI_Reduce_scatter_block(c_place(from), c_buffer(data), *count,
						  c_type(type), c_op(op), c_comm(comm)));
}
NAMES(mpi_reduce_scatter_block, MPI_REDUCE_SCATTER_BLOCK, ompi_reduce_scatter_block_f);

SHIM_ENTRY void ompi_reduce_scatter_f(void *from, void *data, MPI_Fint *counts, MPI_Fint *type,
				      MPI_Fint *op, MPI_Fint *comm, MPI_Fint *error)
{
	set_error(error, MPI_Reduce_scatter(c_place(from), c_buffer(data), c_counts(counts),
					    c_type(type), c_op(op), c_comm(comm)));
}
NAMES(mpi_reduce_scatter, MPI_REDUCE_SCATTER, ompi_reduce_scatter_f);

SHIM_ENTRY void ompi_scan_f(void *from, void *data, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op,
			    MPI_Fint *comm, MPI_Fint *error)
{
	set_error(error, MPI_Scan(c_place(from), c_buffer(data), *count, c_type(type), c_op(op),
				  c_comm(comm)));
}
NAMES(mpi_scan, MPI_SCAN, ompi_scan_f);

SHIM_ENTRY void ompi_exscan_f(void *from, void *data, MPI_Fint *count, MPI_Fint *type,
			      MPI_Fint *op, MPI_Fint *comm, MPI_Fint *error)
{
	set_error(error, MPI_Exscan(c_place(from), c_buffer(data), *count, c_type(type), c_op(op),
				    c_comm(comm)));
}
NAMES(mpi_exscan, MPI_EXSCAN, ompi_exscan_f);

SHIM_ENTRY void ompi_allgather_f(void *from, MPI_Fint *from_count, MPI_Fint *from_type, void *all,
				 MPI_Fint *count, MPI_Fint *type, MPI_Fint *comm, MPI_Fint *error)
{
	set_error(error, MPI_Allgather(c_place(from), *from_count, c_type(from_type),
				       c_buffer(all), *count, c_type(type), c_comm(comm)));
}
NAMES(mpi_allgather, MPI_ALLGATHER, ompi_allgather_f);

SHIM_ENTRY void ompi_iallgather_f(void *from, MPI_Fint *from_count, MPI_Fint *from_type, void *all,
				  MPI_Fint *count, MPI_Fint *type, MPI_Fint *comm,
				  MPI_Fint *request, MPI_Fint *error)
{
	MPI_Request started;
	int result = MPI_Iallgather(c_place(from), *from_count, c_type(from_type), c_buffer(all),
				    *count, c_type(type), c_comm(comm), &started);

	set_started(request, started, error, result);
}
NAMES(mpi_iallgather, MPI_IALLGATHER, ompi_iallgather_f);

SHIM_ENTRY void ompi_allgatherv_f(void *from, MPI_Fint *from_count, MPI_Fint *from_type, void *all,
				  MPI_Fint *counts, MPI_Fint *places, MPI_Fint *type,
				  MPI_Fint *comm, MPI_Fint *error)
{
	set_error(error, MPI_Allgatherv(c_place(from), *from_count, c_type(from_type),
					c_buffer(all), counts, places, c_type(type),
					c_comm(comm)));
}
NAMES(mpi_allgatherv, MPI_ALLGATHERV, ompi_allgatherv_f);

SHIM_ENTRY void ompi_gather_f(void *from, MPI_Fint *from_count, MPI_Fint *from_type, void *all,
			      MPI_Fint *count, MPI_Fint *type, MPI_Fint *root, MPI_Fint *comm,
			      MPI_Fint *error)
{
	set_error(error, MPI_Gather(c_place(from), *from_count, c_type(from_type), c_buffer(all),
				    *count, c_type(type), *root, c_comm(comm)));
}
NAMES(mpi_gather, MPI_GATHER, ompi_gather_f);

SHIM_ENTRY void ompi_scatter_f(void *all, MPI_Fint *count, MPI_Fint *type, void *to,
			       MPI_Fint *to_count, MPI_Fint *to_type, MPI_Fint *root,
			       MPI_Fint *comm, MPI_Fint *error)
{
	set_error(error, MPI_Scatter(c_buffer(all), *count, c_type(type), c_place(to), *to_count,
				     c_type(to_type), *root, c_comm(comm)));
}
NAMES(mpi_scatter, MPI_SCATTER, ompi_scatter_f);

SHIM_ENTRY void ompi_alltoall_f(void *from, MPI_Fint *from_count, MPI_Fint *from_type, void *to,
				MPI_Fint *count, MPI_Fint *type, MPI_Fint *comm, MPI_Fint *error)
{
	set_error(error, MPI_Alltoall(c_place(from), *from_count, c_type(from_type), c_buffer(to),
				      *count, c_type(type), c_comm(comm)));
}
NAMES(mpi_alltoall, MPI_ALLTOALL, ompi_alltoall_f);

SHIM_ENTRY void ompi_scatterv_f(void *all, MPI_Fint *counts, MPI_Fint *places, MPI_Fint *type,
				void *to, MPI_Fint *to_count, MPI_Fint *to_type, MPI_Fint *root,
				MPI_Fint *comm, MPI_Fint *error)
{
	set_error(error, MPI_Scatterv(c_buffer(all), c_counts(counts), c_counts(places),
				      c_type(type), c_place(to), *to_count, c_type(to_type), *root,
				      c_comm(comm)));
}
NAMES(mpi_scatterv, MPI_SCATTERV, ompi_scatterv_f);

SHIM_ENTRY void ompi_alltoallv_f(void *from, MPI_Fint *from_counts, MPI_Fint *from_places,
				 MPI_Fint *from_type, void *to, MPI_Fint *counts, MPI_Fint *places,
				 MPI_Fint *type, MPI_Fint *comm, MPI_Fint *error)
{
	set_error(error, MPI_Alltoallv(c_place(from), c_counts(from_counts), c_counts(from_places),
				       c_type(from_type), c_buffer(to), c_counts(counts),
				       c_counts(places), c_type(type), c_comm(comm)));
}
NAMES(mpi_alltoallv, MPI_ALLTOALLV, ompi_alltoallv_f);

SHIM_ENTRY void ompi_comm_free_f(MPI_Fint *comm, MPI_Fint *error)
{
	MPI_Comm freed = c_comm(comm);
	int result = MPI_Comm_free(&freed);

	if (result == MPI_SUCCESS)
		*comm = PMPI_Comm_c2f(freed);
	set_error(error, result);
}
NAMES(mpi_comm_free, MPI_COMM_FREE, ompi_comm_free_f);

SHIM_ENTRY void ompi_comm_disconnect_f(MPI_Fint *comm, MPI_Fint *error)
{
	MPI_Comm freed = c_comm(comm);
	int result = MPI_Comm_disconnect(&freed);

	if (result == MPI_SUCCESS)
		*comm = PMPI_Comm_c2f(freed);
	set_error(error, result);
}
NAMES(mpi_comm_disconnect, MPI_COMM_DISCONNECT, ompi_comm_disconnect_f);

SHIM_ENTRY void ompi_finalize_f(MPI_Fint *error)
{
	set_error(error, MPI_Finalize());
}
NAMES(mpi_finalize, MPI_FINALIZE, ompi_finalize_f);

#else

/* Handles are ints, the same as in C, as are statuses. An omitted error argument is NULL. */

SHIM_ENTRY void mpi_barrier_f08_(MPI_Fint *comm, MPI_Fint *error)
{
	set_error(error, MPI_Barrier(*comm));
}

SHIM_ENTRY void mpi_ibarrier_f08_(MPI_Fint *comm, MPI_Fint *request, MPI_Fint *error)
{
	set_error(error, MPI_Ibarrier(*comm, request));
}

/* MPI_STATUS_IGNORE is an ordinary status here, which is never read. */
SHIM_ENTRY void mpi_request_get_status_f08_(MPI_Fint *request, MPI_Fint *is_done,
					    MPI_Status *status, MPI_Fint *error)
{
	int flag = 0;

	set_error(error, MPI_Request_get_status(*request, &flag, status));
	*is_done = flag != 0;
}

SHIM_ENTRY void mpi_comm_free_f08_(MPI_Fint *comm, MPI_Fint *error)
{
	set_error(error, MPI_Comm_free(comm));
}

SHIM_ENTRY void mpi_comm_disconnect_f08_(MPI_Fint *comm, MPI_Fint *error)
{
	set_error(error, MPI_Comm_disconnect(comm));
}

SHIM_ENTRY void mpi_finalize_f08_(MPI_Fint *error)
{
	set_error(error, MPI_Finalize());
}

#endif
