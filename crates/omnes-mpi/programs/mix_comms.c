/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Communicators of mix: created in every possible way, freed in any order.
 *
 * One call may create several communicators, of disjoint ranks. They share a
 * slot; a rank knows its own communicator, and ranks that are in none know that
 * the slot is in use.
 */
#include "mix.h"
#include <stdio.h>

enum { KINDS = 11 };

/* Fills in the fields common to all kinds. */
static void describe(struct mix_thread *thread, struct mix_comm *made)
{
	MPI_Group group, world;
	int first = 0, first_in_world;

	made->is_used = 1;
	made->id = mix_hash_of(thread->seed, (uint64_t)thread->step);
	if (made->comm == MPI_COMM_NULL)
		return;
	MPI_Comm_test_inter(made->comm, &made->is_inter);
	MPI_Comm_rank(made->comm, &made->rank);
	MPI_Comm_size(made->comm, &made->local_size);
	made->size = made->local_size;
	MPI_Comm_group(made->comm, &group);
	if (made->is_inter)
		MPI_Comm_remote_size(made->comm, &made->size);
	/* Communicators of one call differ in their members. */
	MPI_Comm_group(thread->base, &world);
	MPI_Group_translate_ranks(group, 1, &first, world, &first_in_world);
	MPI_Group_free(&group);
	MPI_Group_free(&world);
	if (!made->is_inter)
		made->id = mix_hash_of(made->id, (uint64_t)first_in_world);
}

void mix_comms_begin(struct mix_thread *thread, MPI_Comm self)
{
	thread->comms[0] = (struct mix_comm){.comm = thread->base, .is_kept = 1};
	thread->comms[1] = (struct mix_comm){.comm = self, .is_kept = 1};
	for (int i = 0; i < 2; i++)
		describe(thread, &thread->comms[i]);
}

/* Checks that a split has put the ranks in the order of keys. */
static void check_split(struct mix_thread *thread, const struct mix_comm *parent, MPI_Comm made,
			uint64_t draw, int colors)
{
	int color = (int)(mix_hash_of(draw, (uint64_t)parent->rank) % (uint64_t)colors);
	int key = (int)(mix_hash_of(draw + 1, (uint64_t)parent->rank) % 3);
	int before = 0, all = 0, rank, size;

	for (int i = 0; i < parent->size; i++) {
		int other = (int)(mix_hash_of(draw + 1, (uint64_t)i) % 3);

		if ((int)(mix_hash_of(draw, (uint64_t)i) % (uint64_t)colors) != color)
			continue;
		all++;
		before += other < key || (other == key && i < parent->rank);
	}
	MPI_Comm_rank(made, &rank);
	MPI_Comm_size(made, &size);
	if (rank != before || size != all)
		mix_fail(thread, NULL, "split gives another rank or size", rank);
}

/* Splits by a color and a key that every rank can compute for all ranks. */
static MPI_Comm split(struct mix_thread *thread, const struct mix_comm *parent, uint64_t draw)
{
	int colors = 1 + (int)(draw % 3), is_undefined = draw % 5 == 0;
	int color = (int)(mix_hash_of(draw, (uint64_t)parent->rank) % (uint64_t)colors);
	int key = (int)(mix_hash_of(draw + 1, (uint64_t)parent->rank) % 3);
	MPI_Comm made;

	MPI_Comm_split(parent->comm, is_undefined && color == 0 ? MPI_UNDEFINED : color, key,
		       &made);
	if (made != MPI_COMM_NULL)
		check_split(thread, parent, made, draw, colors);
	return made;
}

/* Creates a communicator of the ranks below a limit, called by these alone or by all ranks. */
static MPI_Comm of_group(const struct mix_comm *parent, uint64_t draw, int is_by_members)
{
	int limit = 1 + (int)(draw % (uint64_t)parent->size);
	int range[1][3] = {{limit - 1, 0, -1}}; /* in reverse, so that ranks change */
	MPI_Group all, some;
	MPI_Comm made = MPI_COMM_NULL;

	MPI_Comm_group(parent->comm, &all);
	MPI_Group_range_incl(all, 1, range, &some);
	if (!is_by_members)
		MPI_Comm_create(parent->comm, some, &made);
	else if (parent->rank < limit)
		MPI_Comm_create_group(parent->comm, some, 7, &made);
	MPI_Group_free(&all);
	MPI_Group_free(&some);
	return made;
}

static MPI_Comm cart(const struct mix_comm *parent, uint64_t draw)
{
	int dimensions[2] = {parent->size > 3 ? 2 : 1, parent->size / (parent->size > 3 ? 2 : 1)};
	int periods[2] = {(int)(draw & 1), (int)(draw >> 1 & 1)}, remain[2] = {0, 1};
	MPI_Comm grid, row;

	MPI_Cart_create(parent->comm, 2, dimensions, periods, 0, &grid);
	if (grid == MPI_COMM_NULL || draw >> 2 & 1)
		return grid;
	MPI_Cart_sub(grid, remain, &row);
	MPI_Comm_free(&grid);
	return row;
}

/* Creates an intercommunicator whose groups are the halves of a communicator. */
static MPI_Comm inter(const struct mix_comm *parent, int *side)
{
	int low = parent->size / 2;
	MPI_Comm half, made;

	*side = parent->rank >= low;
	MPI_Comm_split(parent->comm, *side, parent->rank, &half);
	MPI_Intercomm_create(half, 0, parent->comm, *side ? 0 : low, 9, &made);
	MPI_Comm_free(&half);
	return made;
}

static MPI_Comm duplicate(const struct mix_comm *parent, int how)
{
	MPI_Request request;
	MPI_Comm made;

	switch (how % 3) {
	case 0:
		MPI_Comm_dup(parent->comm, &made);
		break;
	case 1:
		MPI_Comm_dup_with_info(parent->comm, MPI_INFO_NULL, &made);
		break;
	default:
		MPI_Comm_idup(parent->comm, &made, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
	return made;
}

/* Creates a communicator from `parent`, all of whose ranks call this with the same numbers. */
static void make(struct mix_thread *thread, const struct mix_comm *parent, int kind,
		 uint64_t draw, struct mix_comm *made)
{
	MPI_Comm merged;

	switch (kind) {
	case 0:
	case 1:
	case 2:
		made->comm = split(thread, parent, draw);
		break;
	case 3:
		MPI_Comm_split_type(parent->comm, MPI_COMM_TYPE_SHARED, parent->rank,
				    MPI_INFO_NULL, &made->comm);
		break;
	case 4:
	case 5:
		made->comm = of_group(parent, draw, kind == 4);
		break;
	case 6:
		made->comm = cart(parent, draw);
		break;
	case 7:
	case 8:
		if (parent->size < 2)
			break;
		made->comm = inter(parent, &made->side);
		if (kind == 7)
			break;
		MPI_Intercomm_merge(made->comm, (int)(draw & 1) ^ made->side, &merged);
		MPI_Comm_free(&made->comm);
		made->comm = merged;
		break;
	default:
		made->comm = duplicate(parent, (int)(draw % 3));
	}
}

static void make_one(struct mix_thread *thread, int slot)
{
	struct mix_comm made = {.comm = MPI_COMM_NULL};
	int from = mix_below(&thread->shared, COMMS_MAX);
	int kind = mix_below(&thread->shared, KINDS);
	uint64_t draw = mix_draw(&thread->shared);
	const struct mix_comm *parent;

	while (!thread->comms[from].is_used)
		from = (from + 1) % COMMS_MAX;
	parent = &thread->comms[from];
	/*
	 * Only the ranks of a slot know whether it holds intercommunicators, so they all decide
	 * alike.
	 */
	if (parent->comm != MPI_COMM_NULL && parent->is_inter)
		made.comm = duplicate(parent, 0), made.side = parent->side;
	else if (parent->comm != MPI_COMM_NULL)
		make(thread, parent, kind, draw, &made);
	describe(thread, &made);
	thread->comms[slot] = made;
}

void mix_comms_change(struct mix_thread *thread)
{
	int slot = 2 + mix_below(&thread->shared, COMMS_MAX - 2);
	struct mix_comm *comm = &thread->comms[slot];

	if (!comm->is_used) {
		make_one(thread, slot);
		return;
	}
	if (comm->held)
		return;
	if (comm->comm != MPI_COMM_NULL)
		mix_free(thread, &comm->comm);
	*comm = (struct mix_comm){.comm = MPI_COMM_NULL};
}

void mix_comms_end(struct mix_thread *thread)
{
	for (int i = 2; i < COMMS_MAX; i++)
		if (thread->comms[i].is_used && thread->comms[i].comm != MPI_COMM_NULL)
			MPI_Comm_free(&thread->comms[i].comm);
}
