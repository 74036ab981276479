/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Compares MPI_Gather, MPI_Scatter, MPI_Alltoall and MPI_Allgatherv with their PMPI_ twins, on
 * numbers in many memory layouts, different on each rank: all memory must agree, including the gaps
 * between the numbers. Then tests calls with one buffer for both sides, unless the argument is
 * plain: MPIs reject them, or do as they like. Prints ok, or what is wrong.
 */
#define PROGRAM "parts"
#include "places.h"
#include "items.h"

enum {
	RANKS_MAX = 8,
	COUNT_MAX = 900,
	NUMBERS_MAX = RANKS_MAX * COUNT_MAX * 2, /* with as many in the gaps */
	LONG_COUNT = 20000,			 /* longer than the calls that are taken */
};

enum call { GATHER, SCATTER, ALLTOALL, CALLS };

static const char *const NAMES[CALLS] = { "gather", "scatter", "alltoall" };

/* Memory that is sent, and memory filled by the library and by the MPI. */
static int sent_memory[NUMBERS_MAX], got_memory[NUMBERS_MAX], wanted_memory[NUMBERS_MAX];

typedef int parts_call(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, int, MPI_Comm);

static int alltoall(const void *from, int from_count, MPI_Datatype from_type, void *to, int count,
		    MPI_Datatype type, int root, MPI_Comm comm)
{
	(void)root;
	return MPI_Alltoall(from, from_count, from_type, to, count, type, comm);
}

static int wanted_alltoall(const void *from, int from_count, MPI_Datatype from_type, void *to,
			   int count, MPI_Datatype type, int root, MPI_Comm comm)
{
	(void)root;
	return PMPI_Alltoall(from, from_count, from_type, to, count, type, comm);
}

static parts_call *const OURS[CALLS] = { MPI_Gather, MPI_Scatter, alltoall };
static parts_call *const THEIRS[CALLS] = { PMPI_Gather, PMPI_Scatter, wanted_alltoall };

/* Stores the numbers of all parts, which differ. */
static void bring_all(struct place *place, int count)
{
	for (int part = 0; part < ranks; part++)
		bring(place, part, count, part * COUNT_MAX);
}

/* Makes a call, with the same initial memory. */
static void make(parts_call *call, enum call which, struct place *sent, struct place *got,
		 int root, int is_in_place)
{
	void *from = sent->buffer, *to = got->buffer;

	if (is_in_place && which != SCATTER)
		from = MPI_IN_PLACE;
	else if (is_in_place)
		to = MPI_IN_PLACE;
	call(from, sent->count, sent->type, to, got->count, got->type, root, MPI_COMM_WORLD);
}

static void compare(enum call which, int count, int shift, int root, int wants_in_place)
{
	enum layout layout = (enum layout)((rank / 2 + shift / LAYOUTS) % LAYOUTS);
	struct place sent = place_make(sent_memory, count, (enum layout)((rank + shift) % LAYOUTS));
	struct place got = place_make(got_memory, count, layout);
	struct place wanted = place_make(wanted_memory, count, layout);
	int is_in_place = wants_in_place && (which == ALLTOALL || rank == root);

	memset(sent_memory, 0x3c, sizeof(sent_memory));
	memset(got_memory, 0x5a, sizeof(got_memory));
	memset(wanted_memory, 0x5a, sizeof(wanted_memory));
	bring_all(&sent, count);
	if (is_in_place && which != SCATTER)
		bring_all(&got, count), bring_all(&wanted, count);
	make(THEIRS[which], which, &sent, &wanted, root, is_in_place);
	make(OURS[which], which, &sent, &got, root, is_in_place);
	expect(memcmp(got_memory, wanted_memory, sizeof(got_memory)) == 0, NAMES[which], count,
	       shift);
	if (which == ALLTOALL)
		for (int from = 0; from < ranks; from++)
			expect(got.memory[(size_t)from * got.extent] ==
				       number(from, rank * COUNT_MAX),
			       "a number of an alltoall", count, shift);
	place_free(&sent), place_free(&got), place_free(&wanted);
}

/* Parts of different lengths on each rank, some of them empty, in reverse order with gaps. */
static void compare_any_lengths(int most, int shift, int is_in_place)
{
	enum layout layout = (enum layout)((rank + shift) % LAYOUTS);
	struct place sent = place_make(sent_memory, most, ROW);
	int counts[RANKS_MAX], places[RANKS_MAX], next = 0;
	size_t stride = layout < APART ? 1 : 2;
	void *got, *wanted;
	MPI_Datatype got_item = item_make(got_memory, layout, &got);
	MPI_Datatype wanted_item = item_make(wanted_memory, layout, &wanted);

	for (int from = ranks - 1; from >= 0; from--) {
		counts[from] = (from * 7 + shift) % 3 == 0 ? 0 : most - from;
		places[from] = next;
		next += counts[from] + from % 2;
	}
	/* With odd shifts, in order and without gaps. */
	for (int from = 0; shift % 2 && from < ranks; from++)
		places[from] = from ? places[from - 1] + counts[from - 1] : 0;
	memset(got_memory, 0x5a, sizeof(got_memory));
	memset(wanted_memory, 0x5a, sizeof(wanted_memory));
	bring(&sent, 0, most, 0);
	for (int i = 0; is_in_place && i < counts[rank]; i++)
		got_memory[((size_t)places[rank] + (size_t)i) * stride] =
			wanted_memory[((size_t)places[rank] + (size_t)i) * stride] =
				number(rank, i);
	PMPI_Allgatherv(is_in_place ? MPI_IN_PLACE : sent_memory, counts[rank], MPI_INT, wanted,
			counts, places, wanted_item, MPI_COMM_WORLD);
	MPI_Allgatherv(is_in_place ? MPI_IN_PLACE : sent_memory, counts[rank], MPI_INT, got, counts,
		       places, got_item, MPI_COMM_WORLD);
	expect(memcmp(got_memory, wanted_memory, sizeof(got_memory)) == 0, "allgatherv", most,
	       shift);
	for (int from = 0; from < ranks; from++)
		expect(counts[from] == 0 || got_memory[(size_t)places[from] * stride] ==
						    number(from, 0),
		       "a number of an allgatherv", most, shift);
	item_free(&got_item), item_free(&wanted_item);
}

/* Fewer bytes than ranks, but not none. */
static void one_byte(void)
{
	int counts[RANKS_MAX] = { 1 }, places[RANKS_MAX] = { 0 };
	char sent = 7, got = 0;

	MPI_Allgatherv(&sent, counts[rank], MPI_BYTE, &got, counts, places, MPI_BYTE,
		       MPI_COMM_WORLD);
	expect(got == 7, "an allgatherv of one byte", 1, 0);
}

/* Fills the parts with numbers that identify their rank and part. */
static void fill(int count)
{
	for (int part = 0; part < ranks; part++)
		for (int i = 0; i < count; i++)
			got_memory[part * count + i] = number(rank, part * COUNT_MAX + i);
}

/* Forbidden by MPI: the contents before the call are sent. */
static void one_memory(int count)
{
	int root = ranks - 1, *all = got_memory;

	fill(count);
	MPI_Gather(rank == root ? all : all + count, count, MPI_INT, all, count, MPI_INT, root,
		   MPI_COMM_WORLD);
	for (int part = 0; rank == root && part < ranks; part++)
		expect(all[part * count] == number(part, part < root ? COUNT_MAX : 0),
		       "a gather in one memory", count, part);
	fill(count);
	MPI_Scatter(all, count, MPI_INT, all, count, MPI_INT, root, MPI_COMM_WORLD);
	expect(all[count - 1] == number(root, rank * COUNT_MAX + count - 1),
	       "a scatter in one memory", count, 0);
	expect(rank < root || all[count] == number(root, COUNT_MAX), "what is sent", count, 0);
	fill(count);
	MPI_Alltoall(all, count, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD);
	for (int part = 0; part < ranks; part++)
		expect(all[part * count] == number(part, rank * COUNT_MAX),
		       "an alltoall in one memory", count, part);
}

/* Calls that are passed to the MPI. */
static void others(void)
{
	static int sent[LONG_COUNT * RANKS_MAX], got[LONG_COUNT * RANKS_MAX];
	int nothing = 7, counts[RANKS_MAX] = { 0 }, places[RANKS_MAX] = { 0 };

	sent[0] = rank + 1;
	MPI_Gather(sent, LONG_COUNT, MPI_INT, got, LONG_COUNT, MPI_INT, 0, MPI_COMM_WORLD);
	expect(rank > 0 || got[LONG_COUNT] == 2, "a long gather", LONG_COUNT, 0);
	MPI_Scatter(sent, LONG_COUNT, MPI_INT, got, LONG_COUNT, MPI_INT, 0, MPI_COMM_WORLD);
	expect(rank > 0 || got[0] == 1, "a long scatter", LONG_COUNT, 0);
	MPI_Alltoall(sent, LONG_COUNT, MPI_INT, got, LONG_COUNT, MPI_INT, MPI_COMM_WORLD);
	expect(rank > 0 || got[LONG_COUNT] == 2, "a long alltoall", LONG_COUNT, 0);
	MPI_Gather(&nothing, 0, MPI_INT, &nothing, 0, MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Allgatherv(&nothing, 0, MPI_INT, &nothing, counts, places, MPI_INT, MPI_COMM_WORLD);
	expect(nothing == 7, "nothing", 0, 0);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	expect(MPI_Gather(&nothing, -1, MPI_INT, &nothing, -1, MPI_INT, 0, MPI_COMM_WORLD) !=
	       MPI_SUCCESS, "a negative count is not refused", -1, 0);
	expect(MPI_Scatter(&nothing, 1, MPI_INT, &nothing, 1, MPI_INT, ranks, MPI_COMM_WORLD) !=
	       MPI_SUCCESS, "an invalid root is not refused", 1, 0);
}

int main(int argc, char **argv)
{
	static const int counts[] = { 1, 3, 100, COUNT_MAX };

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	expect(ranks <= RANKS_MAX, "more ranks than it is for", ranks, 0);
	for (int c = 0; c < 4; c++)
		for (int shift = 0; shift < LAYOUTS * LAYOUTS; shift++)
			for (int in_place = 0; in_place < 2; in_place++) {
				for (int which = 0; which < CALLS; which++)
					compare((enum call)which, counts[c], shift, shift % ranks,
						in_place);
				compare_any_lengths(counts[c] + RANKS_MAX, shift, in_place);
			}
	for (int c = 0; (argc < 2 || strcmp(argv[1], "plain") != 0) && c < 4; c++)
		one_memory(counts[c]);
	one_byte();
	others();
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		puts("parts: ok");
	MPI_Finalize();
	return 0;
}
