/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Compares MPI_Gatherv, MPI_Scatterv and MPI_Alltoallv with their PMPI_ twins, on parts of all
 * lengths in the same call, including 0: numbers have many memory layouts, different on each rank.
 * All memory must agree, including the gaps between the numbers. Then tests uncommon calls,
 * including one buffer for both sides, unless the argument is plain: MPIs reject that, or do as
 * they like. With argument many, runs only an alltoallv, of any number of ranks. Prints ok, or what
 * is wrong.
 */
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define PROGRAM "pairs"
#include "items.h"

enum {
	RANKS_MAX = 8,
	COUNT_MAX = 6000,
	NUMBERS_MAX = RANKS_MAX * (COUNT_MAX + 3) * 2, /* with gaps, and numbers between them */
	SHIFTS = 40,
	COMMS = 20,
	BLOCK = 16384, /* numbers, so that an address in blocks fits into an int */
	BLOCK_BYTES = BLOCK * 4,
	LATE_US = 200000, /* delay of a late rank */
};

enum call { GATHERV, SCATTERV, ALLTOALLV, CALLS };

static const char *const NAMES[CALLS] = { "gatherv", "scatterv", "alltoallv" };

/* Around 4 and 16 KiB, the limits of short parts. */
static const int COUNTS[] = { 0, 1, 300, 1024, 1025, 0, 4096, 4097, COUNT_MAX, 77, 0 };

static int sent_memory[NUMBERS_MAX], got_memory[NUMBERS_MAX], wanted_memory[NUMBERS_MAX];

/* Number of elements sent from one rank to another. */
static int count_of(int from, int to, int shift)
{
	/* Sometimes all parts are short, or long, or empty. */
	if (shift % 8 == 7)
		return COUNTS[shift / 8];
	return COUNTS[(from * 5 + to * 3 + shift) % (int)(sizeof(COUNTS) / sizeof(*COUNTS))];
}

/* One side of a call: parts to or from each rank, or one rank only. */
struct side {
	int *memory;
	void *buffer;
	MPI_Datatype item;
	size_t stride;
	int counts[RANKS_MAX], places[RANKS_MAX];
};

/* Places parts in order with gaps, or in reverse, or contiguously. */
static void side_place(struct side *side, int shift)
{
	int is_reverse = shift % 3 == 1, gap = shift % 3 == 2 ? 0 : 1, next = 0;

	for (int i = 0; i < ranks; i++) {
		int part = is_reverse ? ranks - 1 - i : i;

		side->places[part] = next;
		next += side->counts[part] + gap * (1 + part % 3);
	}
}

static struct side side_make(int *memory, int shift)
{
	enum layout layout = (enum layout)((rank + shift) % LAYOUTS);
	struct side side = { .memory = memory, .stride = layout < APART ? 1 : 2 };

	side.item = item_make(memory, layout, &side.buffer);
	return side;
}

static void side_fill(const struct side *side)
{
	for (int part = 0; part < ranks; part++)
		for (int i = 0; i < side->counts[part]; i++)
			side->memory[((size_t)side->places[part] + (size_t)i) * side->stride] =
				number(rank, part * COUNT_MAX + i);
}

/* MPI_ names, which a library may intercept, or PMPI_ names. */
#define BOTH(name) (is_ours ? MPI_##name : PMPI_##name)

static void make(int is_ours, enum call which, const void *from, const struct side *sent, void *to,
		 const struct side *come, int root)
{
	if (which == GATHERV)
		BOTH(Gatherv)(from, sent->counts[root], sent->item, to, come->counts, come->places,
			      come->item, root, MPI_COMM_WORLD);
	else if (which == SCATTERV)
		BOTH(Scatterv)(from, sent->counts, sent->places, sent->item, to,
			       come->counts[root], come->item, root, MPI_COMM_WORLD);
	else
		BOTH(Alltoallv)(from, sent->counts, sent->places, sent->item, to, come->counts,
				come->places, come->item, MPI_COMM_WORLD);
}

/* Compares the library with the MPI, with the same initial memory. */
static void compare(enum call which, int shift, int root, int wants_in_place)
{
	struct side sent = side_make(sent_memory, shift), got = side_make(got_memory, shift / 4);
	struct side wanted = side_make(wanted_memory, shift / 4);
	int is_in_place = wants_in_place && (which == ALLTOALLV || rank == root);
	void *from = is_in_place && which != SCATTERV ? MPI_IN_PLACE : sent.buffer;
	void *to = got.buffer, *wanted_to = wanted.buffer;

	for (int other = 0; other < ranks; other++) {
		/* In place, sent and received parts must have the same length. */
		int less = which == ALLTOALLV && is_in_place && other < rank;

		sent.counts[other] = count_of(less ? other : rank, less ? rank : other, shift);
		less = which == ALLTOALLV && is_in_place && rank < other;
		got.counts[other] = count_of(less ? rank : other, less ? other : rank, shift);
	}
	memcpy(wanted.counts, got.counts, sizeof(got.counts));
	/* A single part is at the beginning of its memory. */
	side_place(&sent, shift), side_place(&got, shift / 2), side_place(&wanted, shift / 2);
	if (which == GATHERV)
		sent.places[root] = 0;
	memset(sent_memory, 0x3c, sizeof(sent_memory));
	memset(got_memory, 0x5a, sizeof(got_memory));
	memset(wanted_memory, 0x5a, sizeof(wanted_memory));
	side_fill(&sent);
	if (is_in_place && which != SCATTERV)
		side_fill(&got), side_fill(&wanted);
	if (is_in_place && which == SCATTERV)
		to = wanted_to = MPI_IN_PLACE;
	make(0, which, from, &sent, wanted_to, &wanted, root);
	make(1, which, from, &sent, to, &got, root);
	expect(memcmp(got_memory, wanted_memory, sizeof(got_memory)) == 0, NAMES[which], root,
	       shift);
	if (which == ALLTOALLV && !is_in_place)
		for (int other = 0; other < ranks; other++)
			expect(got.counts[other] == 0 ||
				       got_memory[(size_t)got.places[other] * got.stride] ==
					       number(other, rank * COUNT_MAX),
			       "a number of an alltoallv", other, shift);
	item_free(&sent.item), item_free(&got.item), item_free(&wanted.item);
}

/* No rank has any data, so no rank has a buffer. */
static void nothing(void)
{
	int none[RANKS_MAX] = { 0 };

	MPI_Gatherv(NULL, 0, MPI_INT, NULL, none, none, MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Scatterv(NULL, none, none, MPI_INT, NULL, 0, MPI_INT, 0, MPI_COMM_WORLD);
	/* MPICH takes two NULL pointers for the same buffer. */
	MPI_Alltoallv(sent_memory, none, none, MPI_INT, got_memory, none, none, MPI_INT,
		      MPI_COMM_WORLD);
}

/* Many communicators concurrently, each with long parts, too. */
static void communicators(void)
{
	MPI_Comm comms[COMMS];
	int counts[RANKS_MAX], places[RANKS_MAX];

	for (int i = 0; i < ranks; i++) {
		counts[i] = i % 2 ? 10 : 5000;
		places[i] = i * COUNT_MAX;
	}
	for (int c = 0; c < COMMS; c++)
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[c]);
	for (int c = 0; c < COMMS; c++) {
		for (int to = 0; to < ranks; to++)
			sent_memory[places[to]] = number(to, c);
		MPI_Scatterv(sent_memory, counts, places, MPI_INT, got_memory, counts[rank],
			     MPI_INT, c % ranks, comms[c]);
		expect(got_memory[0] == number(rank, c), "a communicator's number", rank, c);
	}
	for (int c = 0; c < COMMS; c++)
		MPI_Comm_free(&comms[(c * 7) % COMMS]);
}

/* A part that stays in place may exceed all memory, and only the root knows its length. */
static void long_counts(void)
{
#if MPI_VERSION >= 4
	MPI_Count counts[RANKS_MAX];
	MPI_Aint places[RANKS_MAX];

	for (int i = 0; i < ranks; i++) {
		counts[i] = i ? 1 : (MPI_Count)3000000000;
		places[i] = i;
		sent_memory[i] = number(i, 0);
	}
	MPI_Scatterv_c(sent_memory, counts, places, MPI_INT, rank ? got_memory : MPI_IN_PLACE, 1,
		       MPI_INT, 0, MPI_COMM_WORLD);
	expect(!rank || got_memory[0] == number(rank, 0), "what goes beside a long part", rank, 0);
#endif
}

/* Creates blocks; on request, their places are absolute addresses, relative to MPI_BOTTOM. */
static int *blocks_make(int is_absolute, void **buffer, int places[])
{
	int *memory = aligned_alloc(BLOCK_BYTES, (size_t)ranks * BLOCK_BYTES);

	expect(memory != NULL, "memory", ranks, 0);
	*buffer = is_absolute ? MPI_BOTTOM : memory;
	for (int i = 0; i < ranks; i++) {
		places[i] = i + (is_absolute ? (int)((uintptr_t)memory / BLOCK_BYTES) : 0);
		memory[i * BLOCK] = number(rank, i);
	}
	return memory;
}

static void absolute_places(MPI_Datatype block, int teller)
{
	int ones[RANKS_MAX], from_places[RANKS_MAX], to_places[RANKS_MAX], last = ranks - 1;
	void *from_buffer, *to_buffer;
	int *from = blocks_make(rank == teller, &from_buffer, from_places);
	/* MPICH takes two MPI_BOTTOM arguments for the same buffer. */
	int *to = blocks_make(rank == last - teller && 2 * teller != last, &to_buffer, to_places);

	for (int i = 0; i < ranks; i++)
		ones[i] = 1;
	MPI_Scatterv(from_buffer, ones, from_places, block, to, 1, block, teller, MPI_COMM_WORLD);
	expect(to[0] == number(teller, rank), "a block of a scatterv", teller, 0);
	MPI_Alltoallv(from_buffer, ones, from_places, block, to_buffer, ones, to_places, block,
		      MPI_COMM_WORLD);
	expect(to[last * BLOCK] == number(last, rank), "a block of an alltoallv", teller, 0);
	MPI_Allgatherv(from, 1, block, to_buffer, ones, to_places, block, MPI_COMM_WORLD);
	expect(to[last * BLOCK] == number(last, 0), "a block of an allgatherv", teller, 0);
	free(from), free(to);
}

/* Places are absolute addresses, on one rank only. */
static void addresses(void)
{
	MPI_Datatype block;

	MPI_Type_contiguous(BLOCK, MPI_INT, &block);
	MPI_Type_commit(&block);
	for (int teller = 0; teller < ranks; teller++)
		absolute_places(block, teller);
	MPI_Type_free(&block);
}

/* The same for short parts, whose addresses exceed an int. */
static void long_addresses(void)
{
#if MPI_VERSION >= 4
	MPI_Count counts[RANKS_MAX];
	MPI_Aint sent[RANKS_MAX], come[RANKS_MAX];
	char from[RANKS_MAX], to[RANKS_MAX];

	for (int i = 0; i < ranks; i++) {
		counts[i] = 1;
		sent[i] = come[i] = i;
		from[i] = (char)(rank + i);
		if (rank == 0)
			MPI_Get_address(&from[i], &sent[i]);
		if (rank == 1)
			MPI_Get_address(&to[i], &come[i]);
	}
	MPI_Alltoallv_c(rank == 0 ? MPI_BOTTOM : from, counts, sent, MPI_BYTE,
			rank == 1 ? MPI_BOTTOM : to, counts, come, MPI_BYTE, MPI_COMM_WORLD);
	for (int i = 0; i < ranks; i++)
		expect(to[i] == rank + i, "a byte at an address", i, 0);
#endif
}

/* Forbidden by MPI, but accepted by MPIs: more room than data, as for a message. */
static void more_room(int shift, int count, int room)
{
	int counts[RANKS_MAX], places[RANKS_MAX];
	struct side come = side_make(got_memory, shift);

	for (int i = 0; i < ranks; i++) {
		counts[i] = count;
		places[i] = i * COUNT_MAX;
		sent_memory[places[i] + count - 1] = number(i, count);
	}
	memset(got_memory, 0x5a, sizeof(got_memory));
	MPI_Scatterv(sent_memory, counts, places, MPI_INT, come.buffer, room, come.item, 0,
		     MPI_COMM_WORLD);
	expect(got_memory[(size_t)(count - 1) * come.stride] == number(rank, count),
	       "a number before more room", count, room);
	expect(got_memory[(size_t)count * come.stride] == 0x5a5a5a5a, "the room behind it", count,
	       room);
	item_free(&come.item);
}

/* The same, if the room is one item, and only a part of it is received. */
static void larger_item(void)
{
	int counts[RANKS_MAX], places[RANKS_MAX];
	MPI_Datatype apart;

	for (int i = 0; i < ranks; i++) {
		counts[i] = 3;
		places[i] = i;
		sent_memory[i] = number(i, 0);
	}
	MPI_Type_vector(5, 1, 2, MPI_INT, &apart);
	MPI_Type_commit(&apart);
	memset(got_memory, 0x5a, sizeof(got_memory));
	MPI_Scatterv(sent_memory, counts, places, MPI_INT, got_memory, 1, apart, 0,
		     MPI_COMM_WORLD);
	expect(got_memory[0] == number(rank, 0) && got_memory[6] == 0x5a5a5a5a,
	       "a part of an item", 3, 5);
	MPI_Type_free(&apart);
}

/* Forbidden by MPI: one buffer for both sides. The contents before the call are sent. */
static void one_memory(enum layout layout)
{
	int counts[RANKS_MAX], places[RANKS_MAX], root = ranks - 1;
	struct side side = { .memory = got_memory, .stride = layout < APART ? 1 : 2 };

	side.item = item_make(got_memory, layout, &side.buffer);
	for (int i = 0; i < ranks; i++) {
		side.counts[i] = counts[i] = (rank + i) % 2 ? 10 : 5000;
		side.places[i] = places[i] = i * COUNT_MAX;
	}
	side_fill(&side);
	MPI_Alltoallv(side.buffer, counts, places, side.item, side.buffer, counts, places,
		      side.item, MPI_COMM_WORLD);
	for (int i = 0; i < ranks; i++)
		expect(got_memory[(size_t)places[i] * side.stride] == number(i, rank * COUNT_MAX),
		       "a number of an alltoallv in one memory", i, layout);
	side_fill(&side);
	MPI_Scatterv(side.buffer, counts, places, side.item, side.buffer,
		     (root + rank) % 2 ? 10 : 5000, side.item, root, MPI_COMM_WORLD);
	expect(got_memory[0] == number(root, rank * COUNT_MAX),
	       "a number of a scatterv in one memory", root, layout);
	item_free(&side.item);
}

static void errors(void)
{
	int ones[RANKS_MAX], places[RANKS_MAX] = { 0 }, less_than_none[RANKS_MAX];

	for (int i = 0; i < RANKS_MAX; i++) {
		ones[i] = 1;
		less_than_none[i] = -1;
	}
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	expect(MPI_Gatherv(sent_memory, 1, MPI_INT, got_memory, ones, places, MPI_INT, ranks,
			   MPI_COMM_WORLD) != MPI_SUCCESS,
	       "an invalid root is not refused", ranks, 0);
	expect(MPI_Scatterv(sent_memory, ones, places, MPI_INT, got_memory, 1, MPI_INT, ranks,
			    MPI_COMM_WORLD) != MPI_SUCCESS,
	       "an invalid root is not refused", ranks, 1);
	expect(MPI_Scatterv(sent_memory, less_than_none, places, MPI_INT, got_memory, -1, MPI_INT,
			    0, MPI_COMM_WORLD) != MPI_SUCCESS,
	       "a negative count is not refused", -1, 0);
	expect(MPI_Alltoallv(sent_memory, less_than_none, places, MPI_INT, got_memory,
			     less_than_none, places, MPI_INT, MPI_COMM_WORLD) != MPI_SUCCESS,
	       "a negative count is not refused", -1, 1);
}

/*
 * A call that is invalid on one rank, without which the others can complete, does not affect the
 * next call.
 */
static void error_of_one(void)
{
	int counts[RANKS_MAX], places[RANKS_MAX], error;

	for (int i = 0; i < ranks; i++) {
		counts[i] = rank == 0 ? -1 : i > 0;
		places[i] = i;
	}
	error = MPI_Alltoallv(sent_memory, counts, places, MPI_INT, got_memory, counts, places,
			      MPI_INT, MPI_COMM_WORLD);
	expect((error == MPI_SUCCESS) == (rank > 0), "an error of one rank", error, 0);
	for (int i = 0; i < ranks; i++) {
		counts[i] = 1;
		sent_memory[i] = number(rank, i);
	}
	MPI_Alltoallv(sent_memory, counts, places, MPI_INT, got_memory, counts, places, MPI_INT,
		      MPI_COMM_WORLD);
	expect(got_memory[0] == number(0, rank), "a number after an error of one rank", 0, 0);
}

/*
 * Rank 0 is sent more than it has room for, which is an error there; its exchange with rank 1,
 * which is late, completes nevertheless.
 */
static void too_much(void)
{
	int sent[RANKS_MAX] = { 0 }, come[RANKS_MAX] = { 0 }, places[RANKS_MAX] = { 0 };
	int last = ranks - 1, error;

	if (rank == 0)
		come[last] = 5000, come[1] = sent[1] = 20000;
	if (rank == 1)
		sent[0] = come[0] = 20000;
	if (rank == last)
		sent[0] = 20000;
	places[1] = 20000;
	sent_memory[0] = sent_memory[20000] = number(rank, 0);
	if (rank == 1)
		usleep(LATE_US);
	error = MPI_Alltoallv(sent_memory, sent, places, MPI_INT, got_memory, come, places,
			      MPI_INT, MPI_COMM_WORLD);
	expect((error == MPI_SUCCESS) == (rank > 0), "an error of too much", error, 0);
	expect(rank != 1 || got_memory[0] == number(0, 0), "what comes from there", 0, 0);
	expect(rank > 0 || got_memory[20000] == number(1, 0), "what comes there", 0, 0);
}

/* One alltoallv of all lengths, with more ranks than concurrent steps of an exchange. */
static void many(void)
{
	enum { LENGTHS = 4, PART = 1100 };
	static const int LENGTH[LENGTHS] = { 0, 1, 300, PART };
	int *counts = calloc(3 * (size_t)ranks, sizeof(*counts)), *places = counts + ranks;
	int *got_counts = places + ranks;
	int *from = calloc(2 * (size_t)ranks, PART * sizeof(*from)), *to = from + ranks * PART;

	expect(counts && from, "memory", ranks, 0);
	for (int other = 0; other < ranks; other++) {
		counts[other] = LENGTH[(rank + 3 * other) % LENGTHS];
		got_counts[other] = LENGTH[(other + 3 * rank) % LENGTHS];
		places[other] = other * PART;
		for (int i = 0; i < counts[other]; i++)
			from[places[other] + i] = number(rank, other + i);
	}
	MPI_Alltoallv(from, counts, places, MPI_INT, to, got_counts, places, MPI_INT,
		      MPI_COMM_WORLD);
	for (int other = 0; other < ranks; other++)
		for (int i = 0; i < PART; i++)
			expect(to[places[other] + i] ==
				       (i < got_counts[other] ? number(other, rank + i) : 0),
			       "a number among many ranks", other, i);
	free(counts), free(from);
}

int main(int argc, char **argv)
{
	int is_plain = argc > 1 && strcmp(argv[1], "plain") == 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc > 1 && strcmp(argv[1], "many") == 0) {
		many();
		if (rank == 0)
			puts("pairs: ok");
		return MPI_Finalize();
	}
	expect(ranks <= RANKS_MAX, "more ranks than it is for", ranks, 0);
	for (int shift = 0; shift < SHIFTS; shift++)
		for (int which = 0; which < CALLS; which++)
			for (int in_place = 0; in_place < 2; in_place++)
				compare((enum call)which, shift, shift % ranks, in_place);
	nothing();
	communicators();
	long_counts();
	addresses();
	long_addresses();
	for (int shift = 0; shift < LAYOUTS; shift++)
		more_room(shift, 10, 100), more_room(shift, 5000, 5500);
	larger_item();
	for (int layout = 0; !is_plain && layout < ADDRESS; layout++)
		one_memory((enum layout)layout);
	errors();
	if (!is_plain)
		error_of_one();
	if (!is_plain && ranks > 2)
		too_much();
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		puts("pairs: ok");
	MPI_Finalize();
	return 0;
}
