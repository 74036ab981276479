/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Declarations shared by the files of differ: random numbers, datatypes, memory
 * and calls. The program itself is differ.c.
 *
 * Arguments that MPI requires to be equal on all ranks are drawn from a generator that all ranks
 * step alike, other choices from a generator of the rank's own. Both restart with each step, so
 * that any step can be run alone.
 */
#ifndef DIFFER_H
#define DIFFER_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#ifdef OPEN_MPI
enum { IS_OPEN_MPI = 1 };
#else
enum { IS_OPEN_MPI = 0 };
#endif

/* ---- random numbers ---- */

static inline uint64_t hash(uint64_t value)
{
	value += 0x9e3779b97f4a7c15u;
	value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
	value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
	return value ^ (value >> 31);
}

/* Draws a number in [0,limit-1]; limit is at least 1. */
static inline int below(uint64_t *generator, int limit)
{
	*generator += 0x9e3779b97f4a7c15u;
	return (int)(hash(*generator) % (uint64_t)limit);
}

static inline int is_one_in(uint64_t *generator, int many)
{
	return below(generator, many) == 0;
}

/* Draws an entry of a table. */
#define DRAW(generator, table) \
	((table) + below(generator, (int)(sizeof(table) / sizeof(*(table)))))

/* ---- differ_types.c ---- */

/* A type from which others are derived. */
struct basic {
	MPI_Datatype type;
	char name[MPI_MAX_OBJECT_NAME];
	int bytes;  /* packed */
	int extent;
	int class;  /* of enum class in differ_types.c */
};

/* Create and free user-defined types and operations. */
void types_begin(void);
void types_end(void);

/* Draws any type. */
const struct basic *basic_draw(uint64_t *generator);
/* Operations on the number types of C, also all other commutative ones, or all. */
enum ops { OF_NUMBERS, COMMUTATIVE, ANY_OPS };
/* Draws a type, and an operation of this class that is defined for it. */
const struct basic *basic_draw_with_op(uint64_t *generator, enum ops which, MPI_Op *op,
				       char name[32]);
/* True for a user-defined operation, which is defined for all types. */
int op_is_own(MPI_Op op);

/* Contents of packed elements: any bytes, or numbers so small that no result is rounded. */
enum values { ANY_BYTES, SMALL_NUMBERS };
void basic_fill(const struct basic *basic, void *packed, int elements, enum values values,
		uint64_t *generator);
/* Marks whether a byte of packed elements has a value (1) or may become anything (2). */
void basic_mask(const struct basic *basic, unsigned char *packed, int elements);

/* ---- differ_memory.c ---- */

enum { RANKS_MAX = 64, GUARD = 64 };

/* Memory layout of an item's elements. */
enum layout {
	ROW,
	COPY,	   /* dup of ROW */
	APART,	   /* a gap after each element */
	BACKWARDS, /* each element before the last one */
	SWAPPED,   /* the second half before the first, each with its own type */
	WIDE,	   /* a gap before and after */
	HOLLOW,	   /* with an empty block between two, or instead of the first */
	DOWNWARDS, /* each item before the last one */
	LAYOUTS,
	/*
	 * With negative extents, collectives of Open MPI 4.1 hang, as one rank has an error, and
	 * reductions of MPICH 4.0 crash with a segmentation fault; reductions of Open MPI do so
	 * also if an item's first element is not at its address.
	 */
#ifdef OPEN_MPI
	MOVED_LAYOUTS = DOWNWARDS,
	REDUCED_LAYOUTS = HOLLOW
#else
	MOVED_LAYOUTS = LAYOUTS,
	REDUCED_LAYOUTS = DOWNWARDS
#endif
};

/* Items of a type, each of so many elements. */
struct form {
	const struct basic *basic;
	int elements;
	MPI_Datatype type;
	char name[32];
	MPI_Aint extent, lower, length; /* from item to item; begin and length of an item's data */
};

/* Draws one of the first `layouts` layouts. */
struct form form_draw(const struct basic *basic, int elements, int layouts, uint64_t *generator);
/* The basic type itself. */
struct form form_plain(const struct basic *basic);
/* A copy that is freed separately. */
struct form form_copy(const struct form *form);

/* Consecutive items, starting at a place among all items. */
struct run {
	int count;
	MPI_Aint place;
};

/* Memory of the caller that is passed to MPI. */
struct memory {
	struct form form;
	struct run runs[RANKS_MAX];
	int runs_count;
	size_t bytes;
	char *origin;	   /* the item at place 0 */
	unsigned char *now;    /* all bytes, including those around the data */
	unsigned char *before; /* as they were before the call */
	unsigned char *after;  /* as the call has left them */
	unsigned char *mask;   /* 0: around the data, 1: data, 2: may become anything */
	/*
	 * Arguments passed to MPI: origin and the form's type, or MPI_BOTTOM and a type with
	 * addresses.
	 */
	void *told;
	MPI_Datatype told_type;
};

/*
 * Uses the runs as they are, and takes ownership of form. FAR memory is
 * described by addresses relative to MPI_BOTTOM; ODD memory is not aligned for
 * its type.
 */
enum where { USUAL, FAR, ODD };
enum where where_draw(uint64_t *generator);
void memory_make(struct memory *memory, const struct form *form, enum where where);
void memory_fill(struct memory *memory, enum values values, uint64_t *generator);
/* Sets the mask of a run's data, starting at this item. */
void memory_mask(struct memory *memory, int run, int from, unsigned char mask);
/* Save the bytes before the call and after it, and restore the bytes before the call. */
void memory_begin(struct memory *memory);
void memory_keep(struct memory *memory);
void memory_reset(struct memory *memory);
/* Index of the first byte that is not as expected now (if read-only: as before), or -1. */
long memory_wrong(const struct memory *memory, int is_read_only);
void memory_free(struct memory *memory);

/* ---- differ_calls.c ---- */

enum kind {
	BCAST,
	BARRIER,
	ALLREDUCE,
	REDUCE,
	GATHER,
	SCATTER,
	ALLTOALL,
	ALLGATHER,
	ALLGATHERV,
	GATHERV,
	SCATTERV,
	ALLTOALLV,
	SCAN,
	EXSCAN,
	REDUCE_SCATTER,
	REDUCE_SCATTER_BLOCK,
	KINDS
};

enum way { BLOCKING, STARTED, LARGE, STARTED_LARGE };

/* Arguments that describe data to MPI. */
struct told {
	void *buffer;
	int count; /* of a part */
	MPI_Datatype type;
};

struct call {
	enum kind kind;
	enum way way;
	MPI_Comm comm;
	int root;
	struct told from, to;
	int counts[RANKS_MAX], places[RANKS_MAX]; /* of the received parts, or of all parts */
	int from_counts[RANKS_MAX], from_places[RANKS_MAX];
	int ranks; /* number of counts */
	MPI_Op op;
};

extern const char *const KIND_NAMES[KINDS];

/* False if the MPI lacks this variant of the call. */
int call_has_way(enum kind kind, enum way way);

/* MPI_ names, which a library may intercept, or PMPI_ names. */
enum names { MPI, PMPI };
/* Makes the call and returns its result; a nonblocking call sets the request. */
int call_make(const struct call *call, enum names names, MPI_Request *request);

/* ---- differ_tasks.c ---- */

/* A communicator as its ranks see it. */
struct comm {
	MPI_Comm comm; /* MPI_COMM_NULL on ranks that are not in it */
	const char *name;
	int rank, size;
	int is_inter;
	int parts; /* size, or size of the other group */
	int all;   /* number of ranks in both groups */
	int is_first; /* in the first of two groups */
};

/* A call, and its memory. */
struct task {
	struct call call;
	const struct comm *on;
	struct memory from, to;
	int has_from, has_to; /* there is such memory */
	int is_to_read_only;  /* true for a broadcast's root */
	int is_in_place;
	MPI_Request request;
	int results[2]; /* indexed by enum names */
	char op[32];
};

/* Generators of choices that are the same on all ranks, and of local choices. */
struct draws {
	uint64_t shared, local;
};

/* Draws a task, and allocates its memory. */
void task_draw(struct task *task, const struct comm *on, struct draws *draws);
void task_describe(const struct task *task, char *text, size_t bytes);
void task_free(struct task *task);

/* ---- differ_sizes.c ---- */

/* Draws the number of elements of a part, a multiple of `each`. */
int elements_draw(const struct task *task, const struct basic *basic, int each,
		  uint64_t *generator);
/* Draws the number of elements per item: all, one, or between. */
int split_draw(int elements, uint64_t *generator);
/* Draws the counts of all ranks: all equal, or different, up to the usual one. */
void counts_draw(int counts[], int ranks, int usual, uint64_t *shared);

/* ---- differ_parts.c ---- */

void bcast_draw(struct task *task, const struct basic *basic, struct draws *draws);
/* For gathers, scatters and alltoalls. */
void parts_draw(struct task *task, const struct basic *basic, int elements, uint64_t *local);
void gatherv_draw(struct task *task, const struct basic *basic, struct draws *draws);
/* For parts of any lengths, each known to two ranks only. */
void pairs_draw(struct task *task, const struct basic *basic, struct draws *draws);

/* ---- differ_reductions.c ---- */

void reduction_draw(struct task *task, struct draws *draws);

#endif
