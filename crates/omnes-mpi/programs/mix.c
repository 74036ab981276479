/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Everything in MPI that interacts with broadcasts and barriers, at random from
 * a seed: communicators, roots, lengths, datatypes, blocking and nonblocking
 * calls, other collectives, messages in flight across them, and every way to
 * complete requests. Each byte received is compared with the byte that follows
 * from the seed. At the end each rank prints a hash of all data received, the
 * same in every correct run with the same seed, steps and ranks.
 *
 * It is a correct MPI program. Within a step, all ranks make blocking calls in
 * the same order; nonblocking calls start in any order, but in the same order
 * per communicator; and no rank waits for anything before a fence, which all
 * ranks pass after starting everything that precedes it. So each wait is for
 * operations that every rank starts without waiting for the waiting rank.
 */
#include "mix.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS_MAX = 16, DAWDLE_US = 300, SKIPPED = 77 };

static const char usage[] =
	"usage: mix [--seed N] [--steps N | --seconds N] [--threads N] [--max-bytes N]\n"
	"           [--one-clock] [--mixed-types] [--early-free] [--quiet]\n"
	"  --seed N       what is done (default 1)\n"
	"  --steps N      steps of some twenty operations (default 200)\n"
	"  --seconds N    steps for so long instead\n"
	"  --threads N    threads with communicators of their own (default 1)\n"
	"  --max-bytes N  longest message (default 4194304)\n"
	"  --one-clock    all ranks read one clock: check by it that barriers hold\n"
	"  --mixed-types  ranks of a broadcast describe the same data by different\n"
	"                 types: legal, but Open MPI 4.1 and MPICH 4.0 cannot do it\n"
	"  --early-free   communicators are freed with requests under way: legal,\n"
	"                 but Open MPI 4.1 cannot do it (default elsewhere)\n"
	"  --quiet        only rank 0 prints, the sum of all hashes\n";

struct options {
	uint64_t seed;
	int steps, seconds, threads, is_one_clock, is_quiet, is_mixed_types, is_early_free;
	size_t bytes_max;
};

static const char *const kind_names[] = {
	[MIX_BCAST] = "MPI_Bcast",
	[MIX_IBCAST] = "MPI_Ibcast",
	[MIX_BARRIER] = "MPI_Barrier",
	[MIX_IBARRIER] = "MPI_Ibarrier",
	[MIX_TIMED_BARRIER] = "timed barrier",
	[MIX_ALLREDUCE] = "MPI_Allreduce",
	[MIX_IALLREDUCE] = "MPI_Iallreduce",
	[MIX_REDUCE] = "MPI_Reduce",
	[MIX_IREDUCE] = "MPI_Ireduce",
	[MIX_ALLGATHER] = "MPI_Allgather",
	[MIX_IALLGATHER] = "MPI_Iallgather",
	[MIX_ALLTOALL] = "MPI_Alltoall",
	[MIX_IALLTOALL] = "MPI_Ialltoall",
	[MIX_GATHER] = "MPI_Gather",
	[MIX_SCATTER] = "MPI_Scatter",
	[MIX_SEND] = "message",
	[MIX_LATE] = "late receive",
	[MIX_SENDRECV] = "MPI_Sendrecv",
	[MIX_FREE] = "MPI_Comm_free",
	[MIX_FENCE] = "fence",
};

void mix_fail(const struct mix_thread *thread, const struct mix_item *item, const char *what,
	      long where)
{
	fprintf(stderr, "mix: seed %llu step %d rank %d thread %d: %s (%ld)",
		(unsigned long long)thread->seed, thread->step, thread->world_rank,
		thread->number, what, where);
	if (item)
		fprintf(stderr, ", in %s of %zu x %d bytes, slot %d%s, rank %d of %d, root %d",
			kind_names[item->kind], item->elements, item->unit.bytes, item->slot,
			item->on.is_inter ? " (between groups)" : "", item->on.rank, item->on.size,
			item->root);
	fprintf(stderr, "\n");
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* ---- planning a step ----------------------------------------------------- */

/* Mostly short, sometimes long. */
static size_t draw_bytes(struct mix_thread *thread)
{
	static const size_t limits[] = {
		1,    64,   64,	  64,	 64,	64,	 1024,	  1024,
		4096, 4096, 4096, 16384, 65536, 1 << 18, 1 << 20, 4 << 20,
	};
	size_t limit = limits[mix_below(&thread->shared, 16)];

	if (limit > 65536 && mix_below(&thread->shared, 3))
		limit = 200;
	if (limit > thread->bytes_max)
		limit = thread->bytes_max;
	return mix_draw(&thread->shared) % (limit + 1);
}

static enum mix_kind draw_kind(struct mix_thread *thread)
{
	static const enum mix_kind kinds[] = {
		MIX_BCAST, MIX_BCAST, MIX_BCAST, MIX_BCAST, MIX_BCAST,
		MIX_BCAST, MIX_IBCAST, MIX_IBCAST, MIX_IBCAST, MIX_IBCAST,
		MIX_IBCAST, MIX_IBCAST, MIX_BARRIER, MIX_BARRIER, MIX_BARRIER,
		MIX_IBARRIER, MIX_IBARRIER, MIX_TIMED_BARRIER, MIX_ALLREDUCE, MIX_IALLREDUCE,
		MIX_REDUCE, MIX_ALLGATHER, MIX_IALLTOALL, MIX_SEND, MIX_SEND,
		MIX_SEND, MIX_SEND, MIX_SEND, MIX_SEND, MIX_SENDRECV,
		MIX_FENCE, MIX_FENCE, MIX_IALLREDUCE, MIX_IREDUCE, MIX_IALLGATHER,
		MIX_ALLTOALL, MIX_GATHER, MIX_SCATTER,
	};

	return kinds[mix_below(&thread->shared, sizeof(kinds) / sizeof(*kinds))];
}

/* Replaces operations that intercommunicators lack, or define differently. */
static void adapt(struct mix_item *item)
{
	const struct mix_comm *on = &item->on;
	int from_size = on->is_inter && on->side == 1 ? on->size : on->local_size;
	int to_size = on->is_inter && on->side == 1 ? on->local_size : on->size;

	if (item->kind == MIX_SEND) {
		item->from %= from_size;
		item->to %= to_size;
		item->is_sender = on->rank == item->from && !(on->is_inter && on->side == 1);
		item->is_receiver = on->rank == item->to && !(on->is_inter && on->side == 0);
		if (item->is_sender && item->is_receiver && !item->is_late)
			item->receive_mode = 1; /* a rank cannot block on itself */
	}
	if (!on->is_inter)
		return;
	switch (item->kind) {
	case MIX_ALLREDUCE:
	case MIX_REDUCE:
	case MIX_ALLGATHER:
	case MIX_ALLTOALL:
	case MIX_GATHER:
	case MIX_SCATTER:
	case MIX_SENDRECV:
		item->kind = MIX_BCAST;
		break;
	case MIX_IALLREDUCE:
	case MIX_IREDUCE:
	case MIX_IALLGATHER:
	case MIX_IALLTOALL:
		item->kind = MIX_IBCAST;
		break;
	default:
		break;
	}
	/* Here MPICH 4.0 delivers nothing from roots other than 0. */
	if (item->kind == MIX_IBCAST)
		item->root = 0;
}

/* Adds an item if this rank takes part in it. All ranks draw all numbers. */
static void plan_item(struct mix_thread *thread, enum mix_kind kind)
{
	uint64_t *shared = &thread->shared;
	struct mix_item item = {.kind = kind, .id = mix_draw(shared)};
	int slot = mix_below(shared, COMMS_MAX);

	while (!thread->comms[slot].is_used)
		slot = (slot + 1) % COMMS_MAX;
	item.slot = slot;
	item.on = thread->comms[slot];
	item.root = mix_below(shared, 1 << 20);
	item.from = mix_below(shared, 1 << 20);
	item.to = mix_below(shared, 1 << 20);
	item.send_mode = mix_below(shared, 5);
	item.receive_mode = mix_below(shared, 3);
	item.unit = mix_unit_draw(shared);
	item.elements = draw_bytes(thread) / (size_t)item.unit.bytes;
	item.tag = thread->next_tag;
	thread->next_tag = TAG_FIRST + (thread->next_tag - TAG_FIRST + 1) % 16000;
	item.is_late = kind == MIX_SEND && mix_below(shared, 3) == 0;
	if (item.is_late) {
		item.send_mode = 2 + item.send_mode % 2;
		thread->late[thread->late_count++] = item;
		thread->comms[slot].held++;
	}
	if (item.on.comm == MPI_COMM_NULL && kind != MIX_FENCE)
		return;
	if (kind != MIX_FENCE)
		adapt(&item);
	if (kind == MIX_SEND && !item.is_sender && !(item.is_receiver && !item.is_late))
		return;
	thread->items[thread->items_count++] = item;
}

/* Adds the receives of the last step's late messages at random positions in this step. */
static void plan_late(struct mix_thread *thread, struct mix_item *late, int count)
{
	for (int i = 0; i < count; i++) {
		struct mix_item item = late[i];

		thread->comms[item.slot].held--;
		if (item.on.comm == MPI_COMM_NULL)
			continue;
		adapt(&item);
		item.kind = MIX_LATE;
		item.is_late = 0;
		if (item.is_receiver)
			thread->items[thread->items_count++] = item;
	}
}

/* Frees a communicator in the middle of the step: operations started on it continue. */
static void plan_free(struct mix_thread *thread)
{
	int slot = mix_below(&thread->shared, COMMS_MAX);
	struct mix_comm *comm = &thread->comms[slot];
	struct mix_item item = {.kind = MIX_FREE, .slot = slot, .on = *comm};

	if (!comm->is_used || comm->is_kept || comm->held)
		return;
	if (comm->comm != MPI_COMM_NULL)
		thread->items[thread->items_count++] = item;
	*comm = (struct mix_comm){.comm = MPI_COMM_NULL};
}

static void plan(struct mix_thread *thread)
{
	struct mix_item late[ITEMS_MAX];
	int late_count = thread->late_count, count = 4 + mix_below(&thread->shared, 16);

	memcpy(late, thread->late, sizeof(late));
	thread->late_count = 0;
	thread->items_count = 0;
	for (int i = 0; i < count; i++) {
		if (i == count / 2)
			plan_late(thread, late, late_count);
		plan_item(thread, draw_kind(thread));
		if (mix_below(&thread->shared, 30) == 0)
			plan_free(thread);
	}
}

/* ---- doing it ------------------------------------------------------------ */

/* True if items[i] may be started now; is_started marks the started items. */
static int is_eligible(const struct mix_thread *thread, const char *is_started, int i)
{
	const struct mix_item *item = &thread->items[i];

	for (int before = 0; before < i; before++) {
		const struct mix_item *other = &thread->items[before];

		if (is_started[before])
			continue;
		if (other->kind == MIX_FENCE || item->kind == MIX_FENCE)
			return 0;
		if (other->slot == item->slot &&
		    (item->kind == MIX_FREE || other->kind == MIX_FREE ||
		     (mix_is_collective(item) && mix_is_collective(other))))
			return 0;
		if (!mix_is_free_to_move(item) && !mix_is_free_to_move(other))
			return 0;
	}
	return 1;
}

/* Sometimes spins, or yields the processor, for a moment. */
static void dawdle(struct mix_thread *thread)
{
	if (mix_below(&thread->local, 12) == 0)
		usleep((useconds_t)mix_below(&thread->local, DAWDLE_US));
}

static void do_items(struct mix_thread *thread)
{
	char is_started[ITEMS_MAX * 2] = {0};

	for (int left = thread->items_count; left > 0; left--) {
		int i = mix_below(&thread->local, thread->items_count);

		while (is_started[i] || !is_eligible(thread, is_started, i))
			i = (i + 1) % thread->items_count;
		is_started[i] = 1;
		dawdle(thread);
		mix_start(thread, &thread->items[i]);
		if (thread->items[i].kind == MIX_FENCE)
			mix_complete(thread, 0);
		else if (mix_below(&thread->local, 4) == 0)
			mix_poll(thread);
	}
}

static void do_step(struct mix_thread *thread)
{
	for (int changes = mix_below(&thread->shared, 3); changes > 0; changes--)
		mix_comms_change(thread);
	plan(thread);
	do_items(thread);
	mix_complete(thread, mix_below(&thread->local, 4) == 0 ||
				     thread->pending_count > PENDING_MAX / 4);
}

/* Receives the messages still in flight and waits for all requests. */
static void finish(struct mix_thread *thread)
{
	struct mix_item late[ITEMS_MAX];
	int count = thread->late_count;

	memcpy(late, thread->late, sizeof(late));
	thread->items_count = thread->late_count = 0;
	plan_late(thread, late, count);
	do_items(thread);
	thread->step += 2; /* no request is deferred any longer */
	mix_complete(thread, 1);
	mix_comms_end(thread);
}

static int goes_on(const struct mix_thread *thread, const struct options *options, double start)
{
	int is_going = thread->step < options->steps;

	if (!options->seconds)
		return is_going;
	/* The ranks' clocks differ: rank 0 decides. */
	is_going = MPI_Wtime() - start < options->seconds;
	MPI_Bcast(&is_going, 1, MPI_INT, 0, thread->base);
	return is_going;
}

struct work {
	struct mix_thread thread;
	const struct options *options;
	MPI_Comm self;
};

static void *run(void *argument)
{
	struct work *work = argument;
	struct mix_thread *thread = &work->thread;
	double start = MPI_Wtime();

	mix_comms_begin(thread, work->self);
	for (thread->step = 0; goes_on(thread, work->options, start); thread->step++)
		do_step(thread);
	finish(thread);
	return NULL;
}

/* ---- the program --------------------------------------------------------- */

static struct options parse(int argc, char **argv)
{
	struct options options = {
		.seed = 1, .steps = 200, .threads = 1, .bytes_max = 4 << 20};

#ifndef OPEN_MPI
	options.is_early_free = 1;
#endif
	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";

		if (!strcmp(argv[i], "--one-clock")) {
			options.is_one_clock = 1;
			continue;
		} else if (!strcmp(argv[i], "--quiet")) {
			options.is_quiet = 1;
			continue;
		} else if (!strcmp(argv[i], "--mixed-types")) {
			options.is_mixed_types = 1;
			continue;
		} else if (!strcmp(argv[i], "--early-free")) {
			options.is_early_free = 1;
			continue;
		} else if (!strcmp(argv[i], "--seed")) {
			options.seed = strtoull(value, NULL, 0);
		} else if (!strcmp(argv[i], "--steps")) {
			options.steps = atoi(value);
		} else if (!strcmp(argv[i], "--seconds")) {
			options.seconds = atoi(value);
		} else if (!strcmp(argv[i], "--threads")) {
			options.threads = atoi(value);
		} else if (!strcmp(argv[i], "--max-bytes")) {
			options.bytes_max = strtoull(value, NULL, 0);
		} else {
			fputs(usage, stderr);
			exit(strcmp(argv[i], "--help") ? 2 : 0);
		}
		i++;
	}
	if (options.threads < 1 || options.threads > THREADS_MAX) {
		fputs(usage, stderr);
		exit(2);
	}
	return options;
}

static void prepare(struct work *work, const struct options *options, int number)
{
	struct mix_thread *thread = &work->thread;

	memset(work, 0, sizeof(*work));
	work->options = options;
	MPI_Comm_rank(MPI_COMM_WORLD, &thread->world_rank);
	MPI_Comm_size(MPI_COMM_WORLD, &thread->world_size);
	thread->number = number;
	thread->seed = options->seed;
	thread->shared = mix_hash_of(options->seed, (uint64_t)number);
	thread->local = mix_hash_of(thread->shared, (uint64_t)thread->world_rank + 1);
	thread->bytes_max = options->bytes_max;
	thread->is_one_clock = options->is_one_clock;
	thread->is_mixed_types = options->is_mixed_types;
	thread->is_early_free = options->is_early_free;
	thread->next_tag = TAG_FIRST;
	thread->base = MPI_COMM_WORLD;
	work->self = MPI_COMM_SELF;
	if (options->threads > 1) {
		MPI_Comm_dup(MPI_COMM_WORLD, &thread->base);
		MPI_Comm_dup(MPI_COMM_SELF, &work->self);
	}
}

static void report(const struct options *options, uint64_t hash, long done)
{
	unsigned long long mine[2] = {hash, (unsigned long long)done}, all[2];
	int rank;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Reduce(mine, all, 2, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (!options->is_quiet)
		printf("mix: rank %d hash %016llx operations %llu\n", rank, mine[0], mine[1]);
	else if (rank == 0)
		printf("mix: seed %llu hash %016llx operations %llu\n",
		       (unsigned long long)options->seed, all[0], all[1]);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct options options = parse(argc, argv);
	static struct work works[THREADS_MAX];
	pthread_t threads[THREADS_MAX];
	uint64_t hash = 0;
	long done = 0;
	int wanted = options.threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, provided;

	MPI_Init_thread(&argc, &argv, wanted, &provided);
	if (provided < wanted) {
		fprintf(stderr, "skipped: needs an MPI with MPI_THREAD_MULTIPLE\n");
		MPI_Finalize();
		return SKIPPED;
	}
	for (int i = 0; i < options.threads; i++)
		prepare(&works[i], &options, i);
	for (int i = 1; i < options.threads; i++)
		pthread_create(&threads[i], NULL, run, &works[i]);
	run(&works[0]);
	for (int i = 0; i < options.threads; i++) {
		if (i > 0)
			pthread_join(threads[i], NULL);
		hash += works[i].thread.hash;
		done += works[i].thread.done;
		if (options.threads > 1) {
			MPI_Comm_free(&works[i].thread.base);
			MPI_Comm_free(&works[i].self);
		}
	}
	report(&options, hash, done);
	MPI_Finalize();
	return 0;
}
