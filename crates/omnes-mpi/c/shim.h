/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the files of the shim share. The way of a call:
 *
 *	entry*.c    MPI_Bcast and its like; fortran.c their Fortran names
 *	group.c     what is known of a communicator, and who takes a call
 *	meet.c      once per communicator: who is there, and the way to them
 *	data.c      count and datatype as bytes, packed where they lie apart
 *	reduce.c    reductions: the numbers and operations that are taken
 *	combine.c   those of others, which the MPI combines itself
 *	scan.c      reductions up to each rank
 *	gather.c    gathers at all ranks: where the parts lie
 *	layout.c    parts of any lengths, as one rank has them
 *	gatherv.c   gathers of such parts at all ranks
 *	parts.c     parts that meet at one rank, come from one, or change places
 *	pairs.c     the same of any lengths, of which two ranks know at a time
 *	start.c     nonblocking calls: what they need until they have ended
 *	request.c   those under way, as generalized requests
 *	host_*.c    what only one MPI has: how a request gets to its end
 *	failure.c   errors, as the communicator's error handler gets them
 *	report.c    what was taken and passed, for who asks
 *	begin.c     what is made once per process, and MPI_Finalize
 *	attach.c    the way to an MPI that comes later than we do
 *
 * A call that is not taken goes to its PMPI_ twin. Whether one is taken follows
 * from what MPI guarantees to be equal on all ranks, and from what they have
 * told each other when they met, so all ranks decide alike.
 *
 * A `failure` is a result of libomnes, an `error` one of MPI.
 */
#ifndef OMNES_SHIM_H
#define OMNES_SHIM_H

#include <mpi.h>
#include <omnes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mpi_weak.h"

/* In the place of the MPI's own function. */
#define SHIM_ENTRY __attribute__((visibility("default")))

/* Another version of what ranks tell each other when they meet. */
#define SHIM_PROTOCOL 6

/* Calls that are taken, or passed, together; nonblocking ones are of the kind of their twins. */
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
 * False if there is no MPI to be found. In each entry before anything of the
 * MPI is called, whatever becomes of the call: nobody may have come here before.
 */
bool shim_attach(void);

#ifdef OPEN_MPI
/*
 * Open MPI's handles are addresses of its variables, which the loader cannot
 * fill in where the MPI comes late.
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

/* What the environment says; see docs/MPI.md. */
struct shim_settings {
	bool takes[SHIM_KINDS];
	bool one_node; /* also where all ranks are on one node */
	bool report;
};

extern struct shim_settings shim_settings;
extern int shim_comm_key; /* attribute of communicators: struct shim_group */
extern int shim_type_key; /* attribute of datatypes: whether they lie in a row */

/* A communicator of this process alone, whose errors are returned: to pack with. */
extern MPI_Comm shim_private;

/* True while calls may be taken: MPI runs, and all could be made. */
bool shim_begin(void);
/* MPI_Finalize: from then on everything is passed, and jobs are left when the MPI has ended. */
int shim_finalize(void);

/* ---- group.c ---- */

enum shim_standing {
	SHIM_UNMET,   /* its ranks have not met yet: everything goes to the MPI */
	SHIM_TAKEN,   /* they have, and comm is the way to them */
	SHIM_EXCLUDED /* everything goes to the MPI */
};

struct shim_calls {
	uint64_t taken;
	uint64_t passed;
	uint64_t bytes; /* of those taken */
};

/* What is known of a communicator; freed with it. */
struct shim_group {
	MPI_Comm mpi; /* whose attribute it is */
	enum shim_standing standing;
	int rank; /* the caller's */
	int size;
	omnes_comm *comm; /* NULL unless taken */
	/* The MPI's, for parts that are too long for that; MPI_COMM_NULL until there are pairs. */
	MPI_Comm carrier;
	bool has_tried_carrier;
	unsigned calls_unmet; /* blocking ones before its ranks met: the same on all of them */
	unsigned exchanges; /* of pairs so far, passed ones too: the same on all ranks */
	bool takes[SHIM_KINDS];
	bool takes_requests;
	char reason[200]; /* why everything is passed */
	struct shim_calls calls[SHIM_KINDS];
	struct shim_group *next;
};

/*
 * The ranks of MPI_COMM_WORLD meet in its first blocking call; those of others
 * in this one, or in the first of so many bytes. A meeting takes as long as
 * some twenty calls save, and communicators that last for a call are common.
 * A build for tests may set 1.
 */
#ifndef SHIM_MEETING_CALLS
#define SHIM_MEETING_CALLS 16
#endif
#define SHIM_MEETING_BYTES ((size_t)65536)

/* Taken calls of a thread between two in which the MPI moves on, beside those that wait. */
#define SHIM_CALLS_PER_MOVE 32

enum shim_way { SHIM_BLOCKING, SHIM_NONBLOCKING };

/*
 * Longer data that a nonblocking call combines or gathers for all ranks are passed.
 * They go up a tree and down another; what fits into no single packet was in
 * labs of 4 and 8 hosts no faster than what the MPIs do.
 */
#define SHIM_STARTED_BYTES_MAX ((size_t)1024)

/* NULL where calls are passed without being counted. */
struct shim_group *shim_group_of(MPI_Comm comm);

/*
 * The predicate, for a call of so many bytes that could be taken; counts it. A
 * blocking one lets the ranks of a communicator meet if it is time to; that is
 * why a nonblocking one is passed until then.
 */
bool shim_take(struct shim_group *group, enum shim_kind kind, enum shim_way way, size_t bytes);
/* The same of a blocking call whose parts only two ranks know of, also if the caller has none. */
bool shim_take_pairs(struct shim_group *group, enum shim_kind kind, size_t bytes);
/* Counts a call that could not; false. */
bool shim_pass(struct shim_group *group, enum shim_kind kind);

/* Ends all groups there are; their memory stays until their communicators are freed. */
void shim_groups_end(void);

/* A communicator that the program frees. */
struct shim_freeing {
	MPI_Comm comm;
	struct shim_freeing *outer;
};

/*
 * Around the MPI's freeing of *comm. Its group ends, and until then it has
 * none on this thread: what delete callbacks of the program call is passed on
 * all ranks, whether their attributes came before ours or after.
 */
void shim_freeing_begin(struct shim_freeing *freeing, const MPI_Comm *comm);
void shim_freeing_end(const struct shim_freeing *freeing);

int shim_group_delete(MPI_Comm comm, int key, void *value, void *extra);

/* ---- meet.c ---- */

/* Collective, blocking: afterwards the group is taken or passed. */
void shim_group_meet(struct shim_group *group);

/* ---- data.c ---- */

struct shim_data {
	void *buffer;
	MPI_Count count;
	MPI_Datatype type;
	size_t bytes;	    /* of the data, without gaps */
	bool is_contiguous; /* they lie in memory as they are sent */
};

/*
 * False if MPI would refuse these arguments, or they are more bytes than its
 * packing can count.
 */
bool shim_data_set(struct shim_data *data, void *buffer, MPI_Count count, MPI_Datatype type);

/* Puts the data at bytes, in a row; they may lie there. MPI_SUCCESS, or an error of MPI. */
int shim_data_copy(void *bytes, const struct shim_data *data);
/* The other way. */
int shim_data_spread(const void *bytes, const struct shim_data *data);

/* Data that lie apart, and memory in which they lie in a row. */
struct shim_packed {
	void *bytes;
	struct shim_data data;
};

/*
 * Makes that memory, and fills it if fills. data.type need not live on.
 * MPI_SUCCESS, or an error of MPI.
 */
int shim_packed_make(struct shim_packed *packed, const struct shim_data *data, bool fills);
/* Puts what came to where it belongs. MPI_SUCCESS, or an error of MPI. */
int shim_packed_spread(const struct shim_packed *packed);
void shim_packed_free(struct shim_packed *packed);

/* The same, but where the data lie in a row already: they serve as they are then. */
int shim_row_make(struct shim_packed *row, const struct shim_data *data, bool fills);
void shim_row_free(struct shim_packed *row);

/* ---- reduce.c ---- */

/* A reduction as libomnes has it. */
struct shim_reduction {
	const void *from; /* NULL if the numbers are in data already */
	void *data;	  /* where the result goes; NULL where none does */
	size_t count;
	size_t bytes;
	int type; /* of enum omnes_type */
	int op;	  /* of enum omnes_op */
};

/* Before all others, when the MPI is there. */
void shim_reduce_begin(void);

/* True of a type of MPI's own that C has as an integer. */
bool shim_is_c_integer(MPI_Datatype type);

/*
 * False if it is one that is not taken, as its count, type and operation say,
 * which are the same on all ranks, or one that MPI refuses.
 */
bool shim_reduction_set(struct shim_reduction *reduction, MPI_Count count, MPI_Datatype type,
			MPI_Op op);
/* Where the numbers are, and the result goes. False if MPI would refuse it. */
bool shim_reduction_place(struct shim_reduction *reduction, const void *from, void *data);
/* The same of a rank that gets no result. */
bool shim_reduction_bring(struct shim_reduction *reduction, const void *from);
/* Puts the caller's numbers into data, where they are reduced. */
void shim_reduction_load(const struct shim_reduction *reduction, void *data);

int shim_allreduce(struct shim_group *group, const struct shim_reduction *reduction);
int shim_reduce(struct shim_group *group, const struct shim_reduction *reduction, int root);
/* Of equal blocks of all numbers, of which each rank gets its own. */
int shim_reduce_scatter(struct shim_group *group, const struct shim_reduction *reduction);

/* ---- combine.c ---- */

/* A reduction of which only the MPI knows what becomes of two elements. */
struct shim_combination {
	struct shim_data brought; /* buffer: where the elements are */
	void *result;		  /* where it goes */
	bool has_result;	  /* at this rank */
	MPI_Op op;
};

/* Before all others, when the MPI is there. */
void shim_combine_begin(void);

/*
 * False if the MPI may refuse it, or must keep the order of ranks; as count, type
 * and operation say, which are the same on all ranks.
 */
bool shim_combination_set(struct shim_combination *combination, MPI_Count count, MPI_Datatype type,
			  MPI_Op op);
/* Where the elements are, and the result goes; false as for a reduction of numbers. */
bool shim_combination_place(struct shim_combination *combination, const void *from, void *data);
/* The same of a rank that gets no result. */
bool shim_combination_bring(struct shim_combination *combination, const void *from);

int shim_allcombine(struct shim_group *group, const struct shim_combination *combination);
int shim_combine(struct shim_group *group, const struct shim_combination *combination, int root);

/* ---- scan.c ---- */

/* As shim_reduction_set(), of a reduction up to each rank. */
bool shim_scan_set(struct shim_reduction *reduction, MPI_Count count, MPI_Datatype type,
		   MPI_Op op);

int shim_scan(struct shim_group *group, const struct shim_reduction *reduction);
/* Without the caller's own numbers. Where there is no data, nothing is written. */
int shim_exscan(struct shim_group *group, const struct shim_reduction *reduction);

/* ---- gather.c ---- */

/*
 * Parts of equal length: of each rank for all or one of them, of one for all, or
 * of each for each.
 */
struct shim_parts {
	struct shim_data own; /* the caller's, unless it is in its place in all */
	struct shim_data all; /* where the caller has all */
	size_t bytes;	      /* of a part, the same on all ranks */
	bool is_in_place;
};

/*
 * Of what own and all say, in buffer, type and count of a part: so many parts in
 * own, and in all, or none there. False for no data, and for what MPI refuses.
 */
bool shim_parts_set(struct shim_parts *parts, int own_count, int all_count);

int shim_allgather(struct shim_group *group, const struct shim_parts *parts);

/* ---- layout.c ---- */

/* Parts of any lengths, one of each rank, where one rank has them all. */
struct shim_layout {
	void *buffer;
	MPI_Datatype type;
	/* Of each part, in items of that type; the large ones where these are NULL. */
	const int *counts, *places;
	const MPI_Count *large_counts;
	const MPI_Aint *large_places;
	MPI_Count count;    /* of all parts, or INT64_MAX if they are more */
	size_t item_bytes;  /* without gaps */
	MPI_Aint extent;    /* from one item to the next */
	bool is_contiguous; /* items that follow each other */
};

/* Of the first six; false for what MPI refuses. */
bool shim_layout_set(struct shim_layout *layout, int parts);
/* A rank's part: its bytes may be more than what can be packed. */
struct shim_data shim_layout_part(const struct shim_layout *layout, int rank);
/* True if all parts lie one after the other as they are sent. */
bool shim_layout_is_a_row(const struct shim_layout *layout, int parts);

/* ---- gatherv.c ---- */

/* Parts of any lengths of each rank, for all of them. */
struct shim_gatherv {
	struct shim_data own; /* the caller's, unless it has none or it is in its place in all */
	struct shim_layout all;
	size_t bytes; /* of all */
	bool is_in_place;
};

/* Of buffer, count and type of own, and of what all is told; otherwise as shim_parts_set(). */
bool shim_gatherv_set(struct shim_gatherv *gather, int rank, int size);

int shim_allgatherv(struct shim_group *group, const struct shim_gatherv *gather);

/* ---- parts.c ---- */

/*
 * Of a part: longer ones are passed, or are messages of the MPI where only two
 * ranks know of them (pairs.c). Labs showed libomnes to be hardly faster there,
 * or slower.
 */
#define SHIM_SCATTER_BYTES_MAX ((size_t)4 << 10)
#define SHIM_ALLTOALL_BYTES_MAX ((size_t)4 << 10)

/* own is what a rank brings or gets, all what the root has. */
int shim_gather(struct shim_group *group, const struct shim_parts *parts, int root);
int shim_scatter(struct shim_group *group, const struct shim_parts *parts, int root);
/* own is sent, and all comes. */
int shim_alltoall(struct shim_group *group, const struct shim_parts *parts);

/* ---- pairs.c ---- */

enum { SHIM_NO_RANK = -1, SHIM_EACH_RANK = -2 };

/* What a rank sends, or what comes to it: a part of each rank, of one alone, or of none. */
struct shim_side {
	struct shim_layout parts;
	int rank; /* or SHIM_EACH_RANK, or SHIM_NO_RANK */
};

struct shim_pairs {
	struct shim_side sent, come;
	bool is_in_place;   /* what the caller has for itself stays where it is */
	size_t message_max; /* bytes of a part that libomnes carries; the MPI does longer ones */
};

/* Of what both sides are told; false for what MPI refuses. */
bool shim_pairs_set(struct shim_pairs *pairs, int size);
/* Bytes that the caller sends. */
size_t shim_pairs_bytes(const struct shim_pairs *pairs);

int shim_exchange(struct shim_group *group, const struct shim_pairs *pairs);

/* ---- request.c ---- */

/* Before and after all others; an error of MPI. */
int shim_requests_begin(void);
void shim_requests_end(void);

/* Lets the MPI move on, as it must while a call waits here for another rank; nothing at its end. */
void shim_requests_move(void);

struct shim_request {
	omnes_request *under_way; /* NULL once it has ended, and while a thread looks at it */
	MPI_Request handle;
	struct shim_packed packed; /* memory of its own; its bytes are NULL where it has none */
	bool spreads;		   /* what comes there, by a type of its own */
	int error;		   /* what MPI_Wait returns */
	struct shim_request *next;
};

/* Frees one that the MPI has not, or not any more, and that is not under way. */
void shim_request_drop(struct shim_request *request);

/*
 * Completes the request if it has ended; true if so. The owner may free it from
 * then on. False also if another thread looks at it.
 */
bool shim_request_poll(struct shim_request *request);
/* Completes it when it has ended; the MPI moves on meanwhile. False if another thread has it. */
bool shim_request_wait(struct shim_request *request);

/* For MPI_Grequest_start; extra is the struct shim_request. */
int shim_request_query(void *extra, MPI_Status *status);
int shim_request_free(void *extra);
int shim_request_cancel(void *extra, int complete);

/* ---- start.c ---- */

/* Each starts a call that is taken, and gives the caller a request of the MPI. */
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

/* True if the library that runs is the MPI this file was built for. */
bool shim_host_fits(const char *library);

/*
 * False for what is no handle of that kind, as far as can be seen: the MPI must
 * not be asked about it, as it might tell the error handler of MPI_COMM_WORLD.
 */
bool shim_host_is_datatype(MPI_Datatype type);
bool shim_host_is_op(MPI_Op op);

/* True if the MPI can bring requests to their end from within its progress. */
bool shim_host_has_requests(void);

/* Makes the MPI's request, which from now on owns ours. An error of MPI. */
int shim_host_start(struct shim_request *request);
/* The MPI has let go of the request. */
void shim_host_forget(struct shim_request *request);

/* ---- failure.c ---- */

/*
 * Lets the communicator's error handler have an error of libomnes, of which
 * omnes_last_error() tells. What the call is to return.
 */
int shim_raise_omnes(MPI_Comm comm);
/* The same for an error of MPI. */
int shim_raise_mpi(MPI_Comm comm, int error);
/* The error of MPI that stands for one of libomnes. */
int shim_failure_code(void);

/* ---- report.c ---- */

/* Says what became of the group's calls, if somebody wants to know. */
void shim_report(const struct shim_group *group);
/* Those that were not worth a line each, when all have ended. */
void shim_report_small(void);

#endif /* OMNES_SHIM_H */
