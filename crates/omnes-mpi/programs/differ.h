/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the parts of differ share: random numbers, datatypes, memory and calls.
 * The program itself is differ.c.
 *
 * What MPI wants to be equal on all ranks is drawn from a generator that they all
 * step alike, the rest from one of the rank's own. Both begin anew with each step,
 * so that any step can be run alone.
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

/* In [0,limit-1]; limit is at least 1. */
static inline int below(uint64_t *generator, int limit)
{
	*generator += 0x9e3779b97f4a7c15u;
	return (int)(hash(*generator) % (uint64_t)limit);
}

static inline int is_one_in(uint64_t *generator, int many)
{
	return below(generator, many) == 0;
}

/* One of a table. */
#define DRAW(generator, table) \
	((table) + below(generator, (int)(sizeof(table) / sizeof(*(table)))))

/* ---- differ_types.c ---- */

/* A type of which others are made. */
struct basic {
	MPI_Datatype type;
	char name[MPI_MAX_OBJECT_NAME];
	int bytes;  /* packed */
	int extent;
	int class;  /* of enum class in differ_types.c */
};

/* Makes what is of the program's own, and frees it. */
void types_begin(void);
void types_end(void);

/* Any. */
const struct basic *basic_draw(uint64_t *generator);
/* Operations on numbers as C has them, or also all others that commute, or all. */
enum ops { OF_NUMBERS, COMMUTATIVE, ANY_OPS };
/* One, and such an operation that has it. */
const struct basic *basic_draw_with_op(uint64_t *generator, enum ops which, MPI_Op *op,
				       char name[32]);
/* True of an operation of the program, which has all types. */
int op_is_own(MPI_Op op);

/* So many elements, packed: any bytes, or numbers so small that no result is rounded. */
enum values { ANY_BYTES, SMALL_NUMBERS };
void basic_fill(const struct basic *basic, void *packed, int elements, enum values values,
		uint64_t *generator);
/* Of packed elements whether a byte has a value (1) or may become anything (2). */
void basic_mask(const struct basic *basic, unsigned char *packed, int elements);

/* ---- differ_memory.c ---- */

enum { RANKS_MAX = 64, GUARD = 64 };

/* How an item's elements lie. */
enum layout {
	ROW,
	COPY,	   /* dup of that */
	APART,	   /* a gap after each element */
	BACKWARDS, /* each element before the last one */
	SWAPPED,   /* the second half before the first, by types of their own */
	WIDE,	   /* a gap before and after */
	HOLLOW,	   /* with a block of none between two, or in the place of the first */
	DOWNWARDS, /* each item before the last one */
	LAYOUTS,
	/*
	 * With negative extents collectives of Open MPI 4.1 hang, as one rank has an error,
	 * and reductions of MPICH 4.0 end with a segmentation fault; those of Open MPI also where
	 * an item's first element is not at its beginning.
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
	MPI_Aint extent, lower, length; /* from item to item; where an item's data begin, and end */
};

/* By one of the first so many layouts. */
struct form form_draw(const struct basic *basic, int elements, int layouts, uint64_t *generator);
/* The basic type itself. */
struct form form_plain(const struct basic *basic);
/* One that is freed by itself. */
struct form form_copy(const struct form *form);

/* Items that lie in a row, from a place among all of them on. */
struct run {
	int count;
	MPI_Aint place;
};

/* Bytes of the caller that MPI is told of. */
struct memory {
	struct form form;
	struct run runs[RANKS_MAX];
	int runs_count;
	size_t bytes;
	char *origin;	   /* the item at place 0 */
	unsigned char *now;    /* all bytes, with what lies around the data */
	unsigned char *before; /* as they were before the call */
	unsigned char *after;  /* as the call has left them */
	unsigned char *mask;   /* 0 around the data, 1 of the data, 2 of what may become anything */
	/* What MPI is told: the same, or MPI_BOTTOM and a type with addresses. */
	void *told;
	MPI_Datatype told_type;
};

/*
 * Takes the runs as they are, and form over. A far one lies at addresses from
 * MPI_BOTTOM; an odd one at no place for its type.
 */
enum where { USUAL, FAR, ODD };
enum where where_draw(uint64_t *generator);
void memory_make(struct memory *memory, const struct form *form, enum where where);
void memory_fill(struct memory *memory, enum values values, uint64_t *generator);
/* What becomes of a run's data from that item on: of no interest, or anything. */
void memory_mask(struct memory *memory, int run, int from, unsigned char mask);
/* As it is now, it is before the call; as the call has left it; and as before again. */
void memory_begin(struct memory *memory);
void memory_keep(struct memory *memory);
void memory_reset(struct memory *memory);
/* The first byte that is not as wanted now, or -1; of one that is only read, as before. */
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

/* As MPI is told of data. */
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
	int counts[RANKS_MAX], places[RANKS_MAX]; /* of what comes, or of all */
	int from_counts[RANKS_MAX], from_places[RANKS_MAX];
	int ranks; /* counts there are */
	MPI_Op op;
};

extern const char *const KIND_NAMES[KINDS];

/* False if the MPI has it not in this way. */
int call_has_way(enum kind kind, enum way way);

/* By MPI_ names, which somebody may stand before, or by PMPI_ ones. */
enum names { MPI, PMPI };
/* What it returns; a started one has a request then. */
int call_make(const struct call *call, enum names names, MPI_Request *request);

/* ---- differ_tasks.c ---- */

/* A communicator as its ranks see it. */
struct comm {
	MPI_Comm comm; /* MPI_COMM_NULL on ranks that are not in it */
	const char *name;
	int rank, size;
	int is_inter;
	int parts; /* size, or that of the other group */
	int all;   /* ranks of both */
	int is_first; /* of two groups */
};

/* A call, and its memory. */
struct task {
	struct call call;
	const struct comm *on;
	struct memory from, to;
	int has_from, has_to; /* memory */
	int is_to_read_only;  /* of a broadcast's root */
	int is_in_place;
	MPI_Request request;
	int results[2]; /* by enum names */
	char op[32];
};

/* Of what is drawn alike on all ranks, and of the rest. */
struct draws {
	uint64_t shared, local;
};

/* Draws one, and makes its memory. */
void task_draw(struct task *task, const struct comm *on, struct draws *draws);
void task_describe(const struct task *task, char *text, size_t bytes);
void task_free(struct task *task);

/* ---- differ_sizes.c ---- */

/* Elements of a part, in items of so many each. */
int elements_draw(const struct task *task, const struct basic *basic, int each,
		  uint64_t *generator);
/* Of so many elements, those of an item: all, one, or what is between. */
int split_draw(int elements, uint64_t *generator);
/* So many counts: all the same, or others up to the usual one. */
void counts_draw(int counts[], int ranks, int usual, uint64_t *shared);

/* ---- differ_parts.c ---- */

void bcast_draw(struct task *task, const struct basic *basic, struct draws *draws);
/* Of gathers, scatters and alltoalls. */
void parts_draw(struct task *task, const struct basic *basic, int elements, uint64_t *local);
void gatherv_draw(struct task *task, const struct basic *basic, struct draws *draws);
/* Of those of any lengths that two ranks know of at a time. */
void pairs_draw(struct task *task, const struct basic *basic, struct draws *draws);

/* ---- differ_reductions.c ---- */

void reduction_draw(struct task *task, struct draws *draws);

#endif
