/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Declarations shared by the files of the shim. Path of a call:
 *
 *	entry*.c    MPI_Bcast and related functions; fortran.c: their Fortran names
 *	group.c     state of a communicator, and the decision who carries out a call
 *	meet.c      once per communicator: its ranks agree and join libomnes
 *	data.c      count and datatype as bytes, packed unless contiguous
 *	reduce.c    reductions of the types and operations that libomnes supports
 *	combine.c   other reductions, whose elements the MPI combines
 *	scan.c      prefix reductions
 *	gather.c    allgathers of parts of equal length
 *	layout.c    memory layout of parts of any lengths at one rank
 *	gatherv.c   allgathers of parts of any lengths
 *	parts.c     gathers, scatters and all-to-alls of parts of equal length
 *	pairs.c     the same of any lengths, each known only to its two ranks
 *	start.c     start of nonblocking calls, and the memory they need
 *	request.c   nonblocking calls in progress, as generalized requests
 *	host_*.c    code for one MPI only: how requests are completed
 *	failure.c   errors, as passed to the communicator's error handler
 *	report.c    report of the calls taken and passed, on demand
 *	begin.c     initialization once per process, and MPI_Finalize
 *	attach.c    attaching to an MPI that is loaded after the shim
 *
 * A call is either taken (carried out by libomnes) or passed to its PMPI_ twin.
 * The decision depends only on arguments that MPI requires to be equal on all
 * ranks, and on what the ranks exchanged when they met, so all ranks decide
 * alike.
 *
 * A `failure` is a result of libomnes, an `error` is one of MPI.
 */
#ifndef OMNES_SHIM_H
#define OMNES_SHIM_H

#include <mpi.h>
#include <omnes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mpi_weak.h"

/* Exported in place of the MPI's own function. */
#define SHIM_ENTRY __attribute__((visibility("default")))

/* Version of the data that ranks exchange when they meet. */
#define SHIM_PROTOCOL 6

/* Kinds of calls, taken or passed together; a nonblocking call is of its blocking twin's kind. */
enum shim_kind {
	SHIM_BCAST,
	SHIM_BARRIER,
	SHIM_ALLREDUCE,
	SHIM_REDUCE,
	SHIM_ALLGATHER,
	SHIM_GATHER,
	SHIM_SCATTER,
	SHIM_ALLTOALL,
	SHIM_REDUCE_SCATTER,
	SHIM_SCAN, /* and exscan */
	SHIM_KINDS
};

/* ---- attach.c ---- */

/*
 * False if no MPI can be found. Every entry calls it before any function of the MPI, even if it
 * passes the call: it may be the first call of all.
 */
bool shim_attach(void);

#ifdef OPEN_MPI
/*
 * Open MPI's handles are addresses of its variables, which the loader cannot
 * resolve if the MPI is loaded after the shim.
 */
struct shim_handles {
	void *byte;
	void *uint64;
	void *datatype_null;
	void *comm_null;
	void *comm_self;
	void *comm_world;
	void *errors_return;
	void *min;
};

extern struct shim_handles shim_handles;

#undef MPI_BYTE
#undef MPI_UINT64_T
#undef MPI_DATATYPE_NULL
#undef MPI_COMM_NULL
#undef MPI_COMM_SELF
#undef MPI_COMM_WORLD
#undef MPI_ERRORS_RETURN
#undef MPI_MIN
#define MPI_BYTE ((MPI_Datatype)shim_handles.byte)
#define MPI_UINT64_T ((MPI_Datatype)shim_handles.uint64)
#define MPI_DATATYPE_NULL ((MPI_Datatype)shim_handles.datatype_null)
#define MPI_COMM_NULL ((MPI_Comm)shim_handles.comm_null)
#define MPI_COMM_SELF ((MPI_Comm)shim_handles.comm_self)
#define MPI_COMM_WORLD ((MPI_Comm)shim_handles.comm_world)
#define MPI_ERRORS_RETURN ((MPI_Errhandler)shim_handles.errors_return)
#define MPI_MIN ((MPI_Op)shim_handles.min)
#endif

/* ---- begin.c ---- */

/* Settings from the environment; see docs/MPI.md. */
struct shim_settings {
	bool takes[SHIM_KINDS];
	bool one_node; /* take calls even if all ranks are on one node */
	bool report;
};

extern struct shim_settings shim_settings;
extern int shim_comm_key; /* attribute of communicators: struct shim_group */
extern int shim_type_key; /* attribute of datatypes: whether they are contiguous */

/* A communicator of this process alone, with MPI_ERRORS_RETURN, for packing. */
extern MPI_Comm shim_private;

/* True while calls may be taken: MPI is initialized, and so is the shim. */
bool shim_begin(void);
/* MPI_Finalize: passes all later calls, and leaves the jobs when PMPI_Finalize has returned. */
int shim_finalize(void);

/* ---- group.c ---- */

enum shim_standing {
	SHIM_UNMET,   /* its ranks have not met yet: all calls are passed */
	SHIM_TAKEN,   /* its ranks have met, and comm connects them */
	SHIM_EXCLUDED /* all calls are passed */
};

struct shim_calls {
	uint64_t taken;
	uint64_t passed;
	uint64_t bytes; /* of the calls taken */
};

/* State of a communicator; freed with it. */
struct shim_group {
	MPI_Comm mpi; /* the communicator whose attribute this is */
	enum shim_standing standing;
	int rank; /* the caller's rank */
	int size;
	omnes_comm *comm; /* NULL unless taken */
	/* The MPI's, for parts too long for comm; MPI_COMM_NULL before the first pairs. */
	MPI_Comm carrier;
	bool has_tried_carrier;
	unsigned calls_unmet; /* blocking calls before the ranks met: the same on all ranks */
	unsigned exchanges; /* calls with pairs so far, taken or passed: the same on all ranks */
	bool takes[SHIM_KINDS];
	bool takes_requests;
	char reason[200]; /* why all calls are passed */
	struct shim_calls calls[SHIM_KINDS];
	struct shim_group *next;
};

/*
 * The ranks of MPI_COMM_WORLD meet in its first blocking call; those of other
 * communicators in blocking call number SHIM_MEETING_CALLS, or in an earlier
 * one of at least SHIM_MEETING_BYTES. A meeting costs as much time as about
 * twenty calls save, and communicators used for a single call are common. Test
 * builds may set 1.
 */
#ifndef SHIM_MEETING_CALLS
#define SHIM_MEETING_CALLS 16
#endif
#define SHIM_MEETING_BYTES ((size_t)65536)

/* Taken calls of a thread per poll of the MPI's progress; waiting calls poll it, too. */
#define SHIM_CALLS_PER_MOVE 32

enum shim_way { SHIM_BLOCKING, SHIM_NONBLOCKING };

/*
 * Nonblocking calls that combine or gather longer data for all ranks are passed. libomnes sends the
 * data up one tree and down another; in labs of 4 and 8 hosts, data that do not fit into a single
 * packet were no faster than with the MPIs.
 */
#define SHIM_STARTED_BYTES_MAX ((size_t)1024)

/* NULL if calls are passed without being counted. */
struct shim_group *shim_group_of(MPI_Comm comm);

/*
 * Decides whether a call of so many bytes that could be taken is taken, and
 * counts it. A blocking call makes the ranks of a communicator meet when it is
 * time to; nonblocking calls are passed until then.
 */
bool shim_take(struct shim_group *group, enum shim_kind kind, enum shim_way way, size_t bytes);
/* The same for a blocking call whose parts are each known to two ranks only; bytes may be 0. */
bool shim_take_pairs(struct shim_group *group, enum shim_kind kind, size_t bytes);
/* Counts a call that cannot be taken; false. */
bool shim_pass(struct shim_group *group, enum shim_kind kind);

/* Ends all groups; their memory stays allocated until their communicators are freed. */
void shim_groups_end(void);

/* A communicator that the program is freeing. */
struct shim_freeing {
	MPI_Comm comm;
	struct shim_freeing *outer;
};

/*
 * Called before and after the MPI frees *comm. The first ends the group of
 * *comm; between the two, *comm has no group on this thread, so calls from the
 * program's delete callbacks are passed on all ranks, whether their attributes
 * were set before ours or after.
 */
void shim_freeing_begin(struct shim_freeing *freeing, const MPI_Comm *comm);
void shim_freeing_end(const struct shim_freeing *freeing);

int shim_group_delete(MPI_Comm comm, int key, void *value, void *extra);

/* ---- meet.c ---- */

/* Collective, blocking: afterwards the group's standing is SHIM_TAKEN or SHIM_EXCLUDED. */
void shim_group_meet(struct shim_group *group);

/* ---- data.c ---- */

struct shim_data {
	void *buffer;
	MPI_Count count;
	MPI_Datatype type;
	size_t bytes;	    /* of the data, without gaps */
	bool is_contiguous; /* sent as they are in memory, without packing */
};

/*
 * False if MPI would reject these arguments, or the data have more bytes than
 * MPI's packing can count.
 */
bool shim_data_set(struct shim_data *data, void *buffer, MPI_Count count, MPI_Datatype type);

/*
 * Copies the data to bytes, contiguously; they may already be there. Returns MPI_SUCCESS or an
 * error of MPI.
 */
int shim_data_copy(void *bytes, const struct shim_data *data);
/* Copies contiguous bytes to the data's place. */
int shim_data_spread(const void *bytes, const struct shim_data *data);

/* Noncontiguous data, and memory that holds them contiguously. */
struct shim_packed {
	void *bytes;
	struct shim_data data;
};

/*
 * Allocates this memory, and packs the data into it if fills. Returns
 * MPI_SUCCESS or an error of MPI. Later, only shim_packed_spread() needs
 * data.type.
 */
int shim_packed_make(struct shim_packed *packed, const struct shim_data *data, bool fills);
/* Unpacks received data to their place. MPI_SUCCESS, or an error of MPI. */
int shim_packed_spread(const struct shim_packed *packed);
void shim_packed_free(struct shim_packed *packed);

/* The same, but contiguous data are used in place. */
int shim_row_make(struct shim_packed *row, const struct shim_data *data, bool fills);
void shim_row_free(struct shim_packed *row);

/* ---- reduce.c ---- */

/* A reduction in terms of libomnes. */
struct shim_reduction {
	const void *from; /* NULL if the numbers are already in data */
	void *data;	  /* where the result goes; NULL if this rank gets none */
	size_t count;
	size_t bytes;
	int type; /* an enum omnes_type */
	int op;	  /* an enum omnes_op */
};

/* Called before all others, once the MPI is initialized. */
void shim_reduce_begin(void);

/* True for a predefined MPI type that is an integer type of C. */
bool shim_is_c_integer(MPI_Datatype type);

/*
 * False if its count, type and operation, which are the same on all ranks, do
 * not let it be taken, or MPI rejects it.
 */
bool shim_reduction_set(struct shim_reduction *reduction, MPI_Count count, MPI_Datatype type,
			MPI_Op op);
/* Sets where the numbers are, and where the result goes. False if MPI would reject them. */
bool shim_reduction_place(struct shim_reduction *reduction, const void *from, void *data);
/* The same for a rank that gets no result. */
bool shim_reduction_bring(struct shim_reduction *reduction, const void *from);
/* Copies the caller's numbers to data, where they are reduced. */
void shim_reduction_load(const struct shim_reduction *reduction, void *data);

int shim_allreduce(struct shim_group *group, const struct shim_reduction *reduction);
int shim_reduce(struct shim_group *group, const struct shim_reduction *reduction, int root);
/* The numbers are divided into equal blocks, and each rank gets its own block of the result. */
int shim_reduce_scatter(struct shim_group *group, const struct shim_reduction *reduction);

/* ---- combine.c ---- */

/* A reduction for which only the MPI can combine two elements. */
struct shim_combination {
	struct shim_data brought; /* its buffer holds the elements */
	void *result;		  /* where the result goes */
	bool has_result;	  /* true if this rank gets the result */
	MPI_Op op;
};

/* Called before all others, once the MPI is initialized. */
void shim_combine_begin(void);

/*
 * False if the MPI may reject it, or must combine in rank order; this depends on count, type and
 * operation, which are the same on all ranks.
 */
bool shim_combination_set(struct shim_combination *combination, MPI_Count count, MPI_Datatype type,
			  MPI_Op op);
/* Sets where the elements are, and where the result goes; false as for a reduction of numbers. */
bool shim_combination_place(struct shim_combination *combination, const void *from, void *data);
/* The same for a rank that gets no result. */
bool shim_combination_bring(struct shim_combination *combination, const void *from);

int shim_allcombine(struct shim_group *group, const struct shim_combination *combination);
int shim_combine(struct shim_group *group, const struct shim_combination *combination, int root);

/* ---- scan.c ---- */

/* Like shim_reduction_set(), for a prefix reduction. */
bool shim_scan_set(struct shim_reduction *reduction, MPI_Count count, MPI_Datatype type,
		   MPI_Op op);

int shim_scan(struct shim_group *group, const struct shim_reduction *reduction);
/* Without the caller's own numbers. If data is NULL, nothing is written. */
int shim_exscan(struct shim_group *group, const struct shim_reduction *reduction);

/* ---- gather.c ---- */

/*
 * Parts of equal length: from each rank to all ranks or to one, from one to all, or from each to
 * each.
 */
struct shim_parts {
	struct shim_data own; /* the caller's part, unless it is in place in all */
	struct shim_data all; /* all parts, if the caller has them */
	size_t bytes;	      /* of a part, the same on all ranks */
	bool is_in_place;
};

/*
 * Completes own and all, whose buffer, type and count describe one part: own has own_count parts,
 * and all has all_count, or none. False if there are no data, and for arguments that MPI rejects.
 */
bool shim_parts_set(struct shim_parts *parts, int own_count, int all_count);

int shim_allgather(struct shim_group *group, const struct shim_parts *parts);

/* ---- layout.c ---- */

/* Parts of any lengths, one of each rank, in the memory of one rank. */
struct shim_layout {
	void *buffer;
	MPI_Datatype type;
	/* Of each part, in items of type; if one of these is NULL, its large variant applies. */
	const int *counts, *places;
	const MPI_Count *large_counts;
	const MPI_Aint *large_places;
	MPI_Count count;    /* of all parts, at most INT64_MAX */
	size_t item_bytes;  /* without gaps */
	MPI_Aint extent;    /* from one item to the next */
	bool is_contiguous; /* consecutive items have no gaps */
};

/* Sets the other fields from the first six; false for arguments that MPI rejects. */
bool shim_layout_set(struct shim_layout *layout, int parts);
/* A rank's part; it may have more bytes than can be packed. */
struct shim_data shim_layout_part(const struct shim_layout *layout, int rank);
/* True if all parts are contiguous in rank order, as they are sent. */
bool shim_layout_is_a_row(const struct shim_layout *layout, int parts);

/* ---- gatherv.c ---- */

/* Parts of any lengths from each rank to all ranks. */
struct shim_gatherv {
	struct shim_data own; /* the caller's part, unless it has none or it is in place in all */
	struct shim_layout all;
	size_t bytes; /* of all parts */
	bool is_in_place;
};

/*
 * Set from buffer, count and type of own and the first six fields of all; otherwise like
 * shim_parts_set().
 */
bool shim_gatherv_set(struct shim_gatherv *gather, int rank, int size);

int shim_allgatherv(struct shim_group *group, const struct shim_gatherv *gather);

/* ---- parts.c ---- */

/*
 * Maximum length of a part: longer parts are passed, or are messages of the MPI
 * if only two ranks know their length (pairs.c). In labs, libomnes was hardly
 * faster for longer parts, or slower.
 */
#define SHIM_SCATTER_BYTES_MAX ((size_t)4 << 10)
#define SHIM_ALLTOALL_BYTES_MAX ((size_t)4 << 10)

/* own is the part that a rank sends or receives, all the parts of the root. */
int shim_gather(struct shim_group *group, const struct shim_parts *parts, int root);
int shim_scatter(struct shim_group *group, const struct shim_parts *parts, int root);
/* own is sent, and all is received. */
int shim_alltoall(struct shim_group *group, const struct shim_parts *parts);

/* ---- pairs.c ---- */

enum { SHIM_NO_RANK = -1, SHIM_EACH_RANK = -2 };

/* What a rank sends, or receives: a part for, or from, each rank, one rank only, or none. */
struct shim_side {
	struct shim_layout parts;
	int rank; /* or SHIM_EACH_RANK, or SHIM_NO_RANK */
};

struct shim_pairs {
	struct shim_side sent, come;
	bool is_in_place;   /* the caller's part for itself stays in place */
	size_t message_max; /* longest part by libomnes, in bytes; the MPI sends longer ones */
};

/* Completes both sides; false for arguments that MPI rejects. */
bool shim_pairs_set(struct shim_pairs *pairs, int size);
/* Number of bytes that the caller sends. */
size_t shim_pairs_bytes(const struct shim_pairs *pairs);

int shim_exchange(struct shim_group *group, const struct shim_pairs *pairs);

/* ---- request.c ---- */

/* Called before and after all others; the first returns MPI_SUCCESS or an error of MPI. */
int shim_requests_begin(void);
void shim_requests_end(void);

/*
 * Makes the MPI progress, as it must while a call waits here for another rank; no effect once
 * requests have ended.
 */
void shim_requests_move(void);

struct shim_request {
	/* NULL once completed, and while a thread polls it. */
	omnes_request *under_way;
	MPI_Request handle;
	struct shim_packed packed; /* the request's own memory; bytes is NULL if none */
	bool spreads;		   /* on completion, packed is unpacked with its type */
	int error;		   /* what MPI_Wait returns */
	struct shim_request *next;
};

/* Frees a request that the MPI does not hold (any more), and that is not in progress. */
void shim_request_drop(struct shim_request *request);

/*
 * Completes the request if its operation has completed, and returns true; the
 * owner may free it from then on. False also if another thread is polling it.
 */
bool shim_request_poll(struct shim_request *request);
/*
 * Waits for the operation, while the MPI progresses, and completes the request. False if another
 * thread has it.
 */
bool shim_request_wait(struct shim_request *request);

/* For MPI_Grequest_start; extra is the struct shim_request. */
int shim_request_query(void *extra, MPI_Status *status);
int shim_request_free(void *extra);
int shim_request_cancel(void *extra, int complete);

/* ---- start.c ---- */

/* Each function starts a call that is taken, and gives the caller a request of the MPI. */
int shim_ibcast(struct shim_group *group, const struct shim_data *data, int root,
		MPI_Request *handle);
int shim_ibarrier(struct shim_group *group, MPI_Request *handle);
int shim_iallreduce(struct shim_group *group, const struct shim_reduction *reduction,
		    MPI_Request *handle);
int shim_ireduce(struct shim_group *group, const struct shim_reduction *reduction, int root,
		 MPI_Request *handle);
int shim_iallgather(struct shim_group *group, const struct shim_parts *parts,
		    MPI_Request *handle);

/* ---- host_openmpi.c, host_mpich.c ---- */

/* True if the running MPI library is the one this file was built for. */
bool shim_host_fits(const char *library);

/*
 * False for a value that is recognizably not a valid handle of this kind. The
 * MPI must not be asked about such a value, as it might call the error handler
 * of MPI_COMM_WORLD.
 */
bool shim_host_is_datatype(MPI_Datatype type);
bool shim_host_is_op(MPI_Op op);

/* True if the MPI can complete requests from within its progress. */
bool shim_host_has_requests(void);

/* Creates the MPI's request, which from then on owns ours. MPI_SUCCESS, or an error of MPI. */
int shim_host_start(struct shim_request *request);
/* Called when the MPI has released the request. */
void shim_host_forget(struct shim_request *request);

/* ---- failure.c ---- */

/*
 * Calls the communicator's error handler with the error described by
 * omnes_last_error(), and returns the error code for the
 * MPI call to return.
 */
int shim_raise_omnes(MPI_Comm comm);
/* The same for an error of MPI. */
int shim_raise_mpi(MPI_Comm comm, int error);
/* The error code of MPI that represents the last error of libomnes. */
int shim_failure_code(void);

/* ---- report.c ---- */

/* Reports how many of the group's calls were taken and passed, if reports are enabled. */
void shim_report(const struct shim_group *group);
/* Reports the groups that were not worth a line each, when all have ended. */
void shim_report_small(void);

#endif /* OMNES_SHIM_H */
