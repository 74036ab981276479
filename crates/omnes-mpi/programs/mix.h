/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Declarations shared by the files of mix: random numbers, datatypes,
 * communicators, operations and their completion. The program itself is mix.c.
 *
 * Two kinds of decisions are drawn. The shared ones (operation, communicator,
 * length) come from one generator that all ranks step alike. The local ones
 * (the order in which nonblocking calls start, the completion call, how long a
 * rank dawdles) come from a generator of the rank's own; no result depends on
 * them.
 */
#ifndef MIX_H
#define MIX_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

enum {
	COMMS_MAX = 8,	     /* communicators of a thread at a time */
	ITEMS_MAX = 40,	     /* planned operations of one step */
	PENDING_MAX = 256,   /* requests in progress in a thread */
	BLOCKS_MAX = 4,	     /* blocks of the signature of one element */
	TAG_FIRST = 100,
};

/* ---- random numbers ------------------------------------------------------ */

static inline uint64_t mix_hash(uint64_t value)
{
	value += 0x9e3779b97f4a7c15u;
	value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
	value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
	return value ^ (value >> 31);
}

/* mix_hash_of hashes two numbers to one. */
static inline uint64_t mix_hash_of(uint64_t a, uint64_t b)
{
	return mix_hash(mix_hash(a) + b);
}

/* mix_draw steps a generator. */
static inline uint64_t mix_draw(uint64_t *generator)
{
	*generator += 0x9e3779b97f4a7c15u;
	return mix_hash(*generator);
}

/* mix_below draws a number in [0,limit-1]; limit is at least 1. */
static inline int mix_below(uint64_t *generator, int limit)
{
	return (int)(mix_draw(generator) % (uint64_t)limit);
}

/* ---- communicators ------------------------------------------------------- */

/*
 * A communicator as its ranks see it. id is the same on all its ranks and
 * differs between communicators created by one call. size is that of the remote
 * group if is_inter.
 */
struct mix_comm {
	MPI_Comm comm; /* MPI_COMM_NULL on ranks that are not in it */
	int is_used;   /* by any rank; the same on all ranks */
	int is_inter;
	int is_kept; /* never freed */
	int held;    /* number of messages yet to be received on it */
	int side;    /* of an intercommunicator: 0 or 1 */
	int rank;
	int size;
	int local_size;
	uint64_t id;
};

/* ---- datatypes ----------------------------------------------------------- */

/* One element: blocks of basic types, in this order. */
struct mix_unit {
	int blocks;
	MPI_Datatype basic[BLOCKS_MAX];
	int basic_bytes[BLOCKS_MAX];
	int count[BLOCKS_MAX];
	int bytes; /* of data */
};

/*
 * Memory for `elements` units in some layout, and its description for MPI.
 * image is the expected final content of memory, including bytes between the
 * data.
 */
struct mix_buffer {
	unsigned char *memory;
	unsigned char *image;
	size_t bytes;	   /* of memory and of image */
	void *address;	   /* passed to MPI: may be MPI_BOTTOM */
	int count;	   /* passed to MPI */
	MPI_Datatype type; /* passed to MPI */
	int is_own_type;   /* type is to be freed */
};

/* mix_unit_draw draws a signature. */
struct mix_unit mix_unit_draw(uint64_t *generator);

enum { MIX_DENSE = 0 };

/*
 * mix_buffer_make lays out `elements` units according to `layout` (any number);
 * MIX_DENSE means without holes. The image holds the data of `key`; the memory
 * holds them only if is_sender.
 */
struct mix_buffer mix_buffer_make(const struct mix_unit *unit, size_t elements, uint64_t layout,
				  uint64_t key, int is_sender);

/* mix_buffer_wrong returns the index of the first byte that differs from the image, or -1. */
long mix_buffer_wrong(const struct mix_buffer *buffer);

/* mix_buffer_hash returns a hash of all data received. */
uint64_t mix_buffer_hash(const struct mix_buffer *buffer);

void mix_buffer_free(struct mix_buffer *buffer);

/* ---- operations ---------------------------------------------------------- */

enum mix_kind {
	MIX_BCAST,
	MIX_IBCAST,
	MIX_BARRIER,
	MIX_IBARRIER,
	MIX_TIMED_BARRIER, /* checks by the clock that no rank left early */
	MIX_ALLREDUCE,
	MIX_IALLREDUCE,
	MIX_REDUCE,
	MIX_IREDUCE,
	MIX_ALLGATHER,
	MIX_IALLGATHER,
	MIX_ALLTOALL,
	MIX_IALLTOALL,
	MIX_GATHER,
	MIX_SCATTER,
	MIX_SEND, /* any kind of send, in any kind of receive */
	MIX_LATE, /* the receive of an earlier send that was not waited for */
	MIX_SENDRECV,
	MIX_FREE,  /* the communicator */
	MIX_FENCE, /* all ranks start all items before it before any rank waits */
};

/* An operation of all ranks of a communicator; drawn alike on all of them. */
struct mix_item {
	enum mix_kind kind;
	uint64_t id; /* unique to this item */
	struct mix_comm on;
	int slot;
	int root, from, to; /* ranks in it; from and to may be equal */
	int is_sender, is_receiver; /* this rank's role in a message */
	int send_mode, receive_mode;
	int tag;
	size_t elements;
	struct mix_unit unit;
	int is_late; /* the receive is a later MIX_LATE */
};

/* A request in progress, and the buffer that it fills. */
struct mix_pending {
	MPI_Request request;
	struct mix_item item;
	struct mix_buffer buffer[2];
	int buffers;
	int is_receive; /* of a message, so its status has a meaning */
	int is_send;
	int ready_step; /* not to be waited for before this step */
};

/* State of one thread. */
struct mix_thread {
	uint64_t seed, shared, local, hash;
	int number; /* of the thread */
	int step;
	int world_rank, world_size;
	MPI_Comm base;	     /* of all ranks, for this thread */
	size_t bytes_max;
	int is_one_clock;
	int is_mixed_types; /* ranks of a broadcast describe their data differently */
	int is_early_free;  /* communicators are freed with requests in progress */
	struct mix_comm comms[COMMS_MAX];
	struct mix_item items[ITEMS_MAX];
	int items_count;
	struct mix_item late[ITEMS_MAX];
	int late_count;
	struct mix_pending *pending[PENDING_MAX];
	int pending_count;
	int next_tag;
	long done; /* operations */
};

/* mix_fail reports what is wrong with an operation, and aborts the job. */
void mix_fail(const struct mix_thread *thread, const struct mix_item *item, const char *what,
	      long where);

/* mix_comms_begin gives the thread its first communicators. */
void mix_comms_begin(struct mix_thread *thread, MPI_Comm self);

/* mix_comms_change creates or frees a communicator, as drawn from the shared generator. */
void mix_comms_change(struct mix_thread *thread);

/* mix_comms_end frees the remaining communicators. */
void mix_comms_end(struct mix_thread *thread);

/* mix_is_free_to_move returns whether a rank may reorder the start of this item. */
int mix_is_free_to_move(const struct mix_item *item);

/* mix_is_collective returns whether all ranks of the communicator take part. */
int mix_is_collective(const struct mix_item *item);

/* mix_start executes an item, or starts it if it is nonblocking on this rank. */
void mix_start(struct mix_thread *thread, const struct mix_item *item);

/* mix_completed checks the data of a completed request, and frees it. */
void mix_completed(struct mix_thread *thread, struct mix_pending *pending,
		   const MPI_Status *status);

/* mix_poll tests some of the requests once. */
void mix_poll(struct mix_thread *thread);

/* mix_complete waits for some, or all, of the requests that may be waited for. */
void mix_complete(struct mix_thread *thread, int is_all);

/*
 * mix_free frees a communicator; operations in progress on it continue, if the MPI supports this.
 */
void mix_free(struct mix_thread *thread, MPI_Comm *comm);

#endif
