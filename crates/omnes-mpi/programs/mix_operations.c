/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The operations of mix: starting them, and checking the received data.
 */
#include "mix.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	LONGS_MAX = 256, /* of collectives other than broadcasts */
	/* Bytes of a message with holes. MPICH 4.0 takes longer ones for truncated where it cuts
	   them amid a number. */
	HOLES_BYTES_MAX = 4096,
};

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int mix_is_collective(const struct mix_item *item)
{
	return item->kind != MIX_SEND && item->kind != MIX_LATE && item->kind != MIX_SENDRECV;
}

/* Modes of sends: MPI_Send, MPI_Ssend, then nonblocking ones. Of receives: MPI_Recv first. */
static int is_blocking_send(const struct mix_item *item)
{
	return item->send_mode < 2;
}

static int is_blocking_receive(const struct mix_item *item)
{
	return item->receive_mode < 1;
}

int mix_is_free_to_move(const struct mix_item *item)
{
	switch (item->kind) {
	case MIX_IBCAST:
	case MIX_IBARRIER:
	case MIX_IALLREDUCE:
	case MIX_IREDUCE:
	case MIX_IALLGATHER:
	case MIX_IALLTOALL:
		return 1;
	case MIX_SEND:
		/* The peer of a blocking call must not start later: all ranks keep the order. */
		if (item->is_late)
			return 1;
		return !is_blocking_send(item) && !is_blocking_receive(item);
	default:
		return 0;
	}
}

/* ---- requests ------------------------------------------------------------ */

static struct mix_pending *pending_new(struct mix_thread *thread, const struct mix_item *item)
{
	struct mix_pending *pending = calloc(1, sizeof(*pending));

	if (!pending)
		mix_fail(thread, item, "no memory", 0);
	pending->request = MPI_REQUEST_NULL;
	pending->item = *item;
	return pending;
}

/* Records a started request; sometimes frees the type while MPI still needs it. */
static void pending_add(struct mix_thread *thread, struct mix_pending *pending)
{
	for (int i = 0; i < pending->buffers; i++) {
		if (!pending->buffer[i].is_own_type || mix_below(&thread->local, 3))
			continue;
		MPI_Type_free(&pending->buffer[i].type);
		pending->buffer[i].is_own_type = 0;
	}
	if (thread->pending_count == PENDING_MAX)
		mix_fail(thread, &pending->item, "too many requests", PENDING_MAX);
	thread->pending[thread->pending_count++] = pending;
}

static void check_status(struct mix_thread *thread, const struct mix_pending *pending,
			 const MPI_Status *status)
{
	const struct mix_item *item = &pending->item;
	const struct mix_buffer *buffer = &pending->buffer[0];
	int count, is_cancelled;

	/* MPICH does not change the status of a nonblocking collective. */
	if (!pending->is_send && !pending->is_receive)
		return;
	MPI_Test_cancelled(status, &is_cancelled);
	if (is_cancelled)
		mix_fail(thread, item, "the status says it was cancelled", 0);
	if (!pending->is_receive)
		return;
	if (status->MPI_SOURCE != item->from)
		mix_fail(thread, item, "the status has another source", status->MPI_SOURCE);
	if (status->MPI_TAG != item->tag)
		mix_fail(thread, item, "the status has another tag", status->MPI_TAG);
	/* A count is in units of the receive's type, which may have been freed. */
	if (buffer->type == MPI_DATATYPE_NULL || item->elements == 0)
		return;
	MPI_Get_count(status, buffer->type, &count);
	if (count != buffer->count)
		mix_fail(thread, item, "the status has another count", count);
}

void mix_completed(struct mix_thread *thread, struct mix_pending *pending,
		   const MPI_Status *status)
{
	uint64_t hash = mix_hash_of(pending->item.id, (uint64_t)pending->buffers);

	if (status)
		check_status(thread, pending, status);
	for (int i = 0; i < pending->buffers; i++) {
		long wrong = mix_buffer_wrong(&pending->buffer[i]);

		if (wrong >= 0)
			mix_fail(thread, &pending->item, "a byte is wrong", wrong);
		hash = mix_hash_of(hash, mix_buffer_hash(&pending->buffer[i]));
		mix_buffer_free(&pending->buffer[i]);
	}
	/* A sum, since requests complete in any order. */
	thread->hash += hash;
	thread->done++;
	free(pending);
}

/* ---- broadcasts and barriers --------------------------------------------- */

/* The root argument in an intercommunicator: item->root is in the group of side 0. */
static int root_to_name(const struct mix_item *item, int *is_sender)
{
	const struct mix_comm *on = &item->on;
	int root = item->root % (on->is_inter && on->side == 1 ? on->size : on->local_size);

	*is_sender = on->rank == root && on->side == 0;
	if (!on->is_inter)
		*is_sender = on->rank == root;
	if (!on->is_inter || on->side == 1)
		return root;
	return *is_sender ? MPI_ROOT : MPI_PROC_NULL;
}

static void broadcast(struct mix_thread *thread, const struct mix_item *item)
{
	struct mix_pending *pending = pending_new(thread, item);
	int is_sender, root = root_to_name(item, &is_sender);
	int is_bystander = root == MPI_PROC_NULL;
	struct mix_buffer *buffer = &pending->buffer[0];
	uint64_t layout = item->id;

	if (thread->is_mixed_types)
		layout = mix_hash_of(item->id, (uint64_t)thread->world_rank);
	*buffer = mix_buffer_make(&item->unit, item->elements, layout,
				  mix_hash_of(item->id, item->on.id), is_sender || is_bystander);
	pending->buffers = 1;
	if (item->kind == MIX_BCAST) {
		MPI_Bcast(buffer->address, buffer->count, buffer->type, root, item->on.comm);
		mix_completed(thread, pending, NULL);
		return;
	}
	MPI_Ibcast(buffer->address, buffer->count, buffer->type, root, item->on.comm,
		   &pending->request);
	pending_add(thread, pending);
}

/* No rank may leave before the last rank has entered. */
static void timed_barrier(struct mix_thread *thread, const struct mix_item *item)
{
	double entered = now_s(), left, last;
	MPI_Request request;

	if (item->root % 2) {
		MPI_Barrier(item->on.comm);
	} else {
		MPI_Ibarrier(item->on.comm, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
	left = now_s();
	MPI_Allreduce(&entered, &last, 1, MPI_DOUBLE, MPI_MAX, item->on.comm);
	/* On intercommunicators, MPI_Ibarrier of Open MPI 4.1 releases ranks too early. */
	if (thread->is_one_clock && !item->on.is_inter && left < last)
		mix_fail(thread, item, "a barrier was left before all had entered, ns",
			 (long)((last - left) * 1e9));
}

static void barrier(struct mix_thread *thread, const struct mix_item *item)
{
	struct mix_pending *pending;

	switch (item->kind) {
	case MIX_BARRIER:
		MPI_Barrier(item->on.comm);
		break;
	case MIX_TIMED_BARRIER:
		timed_barrier(thread, item);
		break;
	default:
		pending = pending_new(thread, item);
		MPI_Ibarrier(item->on.comm, &pending->request);
		pending_add(thread, pending);
		return;
	}
	thread->done++;
}

/* ---- other collectives, of intracommunicators ---------------------------- */

static int64_t value(const struct mix_item *item, int rank, size_t i)
{
	return (int64_t)(mix_hash_of(item->id + item->on.id, (uint64_t)rank * 4096 + i) >> 16);
}

/* Creates a buffer for `count` numbers; the caller fills in the image. */
static struct mix_buffer numbers(struct mix_thread *thread, const struct mix_item *item,
				 size_t count)
{
	struct mix_buffer buffer = {.count = (int)count, .type = MPI_INT64_T};

	buffer.bytes = count * sizeof(int64_t);
	buffer.memory = calloc(buffer.bytes + 1, 1);
	buffer.image = calloc(buffer.bytes + 1, 1);
	if (!buffer.memory || !buffer.image)
		mix_fail(thread, item, "no memory", 0);
	buffer.address = buffer.memory;
	return buffer;
}

/* Input of each rank; it must not change. */
static void bring(const struct mix_item *item, struct mix_buffer *buffer)
{
	int64_t *numbers = (int64_t *)buffer->image;

	for (int i = 0; i < buffer->count; i++)
		numbers[i] = value(item, item->on.rank, (size_t)i);
	memcpy(buffer->memory, buffer->image, buffer->bytes);
}

static void expect_sum(const struct mix_item *item, struct mix_buffer *buffer)
{
	int64_t *numbers = (int64_t *)buffer->image;

	for (int i = 0; i < buffer->count; i++)
		for (int rank = 0; rank < item->on.size; rank++)
			numbers[i] += value(item, rank, (size_t)i);
}

static int is_reduction_at_one(const struct mix_item *item)
{
	return item->kind == MIX_REDUCE || item->kind == MIX_IREDUCE;
}

static void reduction(struct mix_thread *thread, const struct mix_item *item)
{
	struct mix_pending *pending = pending_new(thread, item);
	size_t elements = item->elements % LONGS_MAX;
	int root = item->root % item->on.size, count = (int)elements;
	MPI_Comm comm = item->on.comm;
	void *mine, *sum;

	pending->buffers = 2;
	pending->buffer[0] = numbers(thread, item, elements);
	pending->buffer[1] = numbers(thread, item, elements);
	bring(item, &pending->buffer[0]);
	if (!is_reduction_at_one(item) || item->on.rank == root)
		expect_sum(item, &pending->buffer[1]);
	mine = pending->buffer[0].memory;
	sum = pending->buffer[1].memory;
	switch (item->kind) {
	case MIX_IALLREDUCE:
		MPI_Iallreduce(mine, sum, count, MPI_INT64_T, MPI_SUM, comm, &pending->request);
		pending_add(thread, pending);
		return;
	case MIX_IREDUCE:
		MPI_Ireduce(mine, sum, count, MPI_INT64_T, MPI_SUM, root, comm,
			    &pending->request);
		pending_add(thread, pending);
		return;
	case MIX_REDUCE:
		MPI_Reduce(mine, sum, count, MPI_INT64_T, MPI_SUM, root, comm);
		break;
	default:
		MPI_Allreduce(mine, sum, count, MPI_INT64_T, MPI_SUM, comm);
	}
	mix_completed(thread, pending, NULL);
}

static int is_alltoall(const struct mix_item *item)
{
	return item->kind == MIX_ALLTOALL || item->kind == MIX_IALLTOALL;
}

/* Gathers transfer `count` numbers of each rank, alltoalls different ones to each rank. */
static void exchange(struct mix_thread *thread, const struct mix_item *item)
{
	struct mix_pending *pending = pending_new(thread, item);
	int size = item->on.size, rank = item->on.rank, is_all = is_alltoall(item);
	size_t elements = item->elements % (LONGS_MAX / 8);
	struct mix_buffer *out = &pending->buffer[0], *in = &pending->buffer[1];
	int count = (int)elements;

	pending->buffers = 2;
	*out = numbers(thread, item, is_all ? elements * (size_t)size : elements);
	*in = numbers(thread, item, elements * (size_t)size);
	bring(item, out);
	for (int from = 0; from < size; from++) {
		int64_t *part = (int64_t *)in->image + (size_t)from * elements;
		size_t first = is_all ? (size_t)rank * elements : 0;

		for (size_t i = 0; i < elements; i++)
			part[i] = value(item, from, first + i);
	}
	if (item->kind == MIX_ALLGATHER) {
		MPI_Allgather(out->memory, count, MPI_INT64_T, in->memory, count, MPI_INT64_T,
			      item->on.comm);
		mix_completed(thread, pending, NULL);
		return;
	}
	if (item->kind == MIX_ALLTOALL) {
		MPI_Alltoall(out->memory, count, MPI_INT64_T, in->memory, count, MPI_INT64_T,
			     item->on.comm);
		mix_completed(thread, pending, NULL);
		return;
	}
	if (is_all)
		MPI_Ialltoall(out->memory, count, MPI_INT64_T, in->memory, count, MPI_INT64_T,
			      item->on.comm, &pending->request);
	else
		MPI_Iallgather(out->memory, count, MPI_INT64_T, in->memory, count, MPI_INT64_T,
			       item->on.comm, &pending->request);
	pending_add(thread, pending);
}

/* Gathers numbers at the root, or scatters them from it. */
static void at_root(struct mix_thread *thread, const struct mix_item *item)
{
	struct mix_pending *pending = pending_new(thread, item);
	int size = item->on.size, root = item->root % size, count;
	int is_root = item->on.rank == root, is_gather = item->kind == MIX_GATHER;
	size_t elements = item->elements % (LONGS_MAX / 8);
	size_t own = elements, all = is_root ? elements * (size_t)size : 0;
	struct mix_buffer *out = &pending->buffer[0], *in = &pending->buffer[1];

	count = (int)elements;
	pending->buffers = 2;
	*out = numbers(thread, item, is_gather ? own : all);
	*in = numbers(thread, item, is_gather ? all : own);
	bring(item, out);
	for (int i = 0; i < in->count; i++)
		((int64_t *)in->image)[i] =
			is_gather ? value(item, i / count, (size_t)(i % count))
				  : value(item, root, (size_t)item->on.rank * elements + (size_t)i);
	if (is_gather)
		MPI_Gather(out->memory, count, MPI_INT64_T, in->memory, count, MPI_INT64_T, root,
			   item->on.comm);
	else
		MPI_Scatter(out->memory, count, MPI_INT64_T, in->memory, count, MPI_INT64_T, root,
			    item->on.comm);
	mix_completed(thread, pending, NULL);
}

/* ---- messages ------------------------------------------------------------ */

/* Creates a pending request with the message, in a layout of this side's own. */
static struct mix_pending *message(struct mix_thread *thread, const struct mix_item *item,
				   int is_sender)
{
	struct mix_pending *pending = pending_new(thread, item);
	uint64_t layout = mix_hash_of(item->id + 1 + (uint64_t)is_sender,
				      (uint64_t)thread->world_rank);
	uint64_t key = mix_hash_of(item->id, (uint64_t)item->tag);

	if (item->elements * (size_t)item->unit.bytes > HOLES_BYTES_MAX)
		layout = MIX_DENSE;
	pending->buffer[0] = mix_buffer_make(&item->unit, item->elements, layout,
					     mix_hash_of(key, item->on.id), is_sender);
	pending->buffers = 1;
	pending->is_receive = !is_sender;
	pending->is_send = is_sender;
	return pending;
}

static void send(struct mix_thread *thread, const struct mix_item *item)
{
	struct mix_pending *pending = message(thread, item, 1);
	const struct mix_buffer *data = &pending->buffer[0];
	MPI_Comm comm = item->on.comm;

	switch (item->send_mode) {
	case 0:
		MPI_Send(data->address, data->count, data->type, item->to, item->tag, comm);
		break;
	case 1:
		MPI_Ssend(data->address, data->count, data->type, item->to, item->tag, comm);
		break;
	case 2:
		MPI_Issend(data->address, data->count, data->type, item->to, item->tag, comm,
			   &pending->request);
		break;
	default:
		MPI_Isend(data->address, data->count, data->type, item->to, item->tag, comm,
			  &pending->request);
	}
	if (is_blocking_send(item)) {
		mix_completed(thread, pending, NULL);
		return;
	}
	pending->ready_step = item->is_late ? thread->step + 2 : thread->step;
	pending_add(thread, pending);
}

static void receive(struct mix_thread *thread, const struct mix_item *item)
{
	struct mix_pending *pending = message(thread, item, 0);
	const struct mix_buffer *data = &pending->buffer[0];
	int from = item->receive_mode % 2 ? item->from : MPI_ANY_SOURCE;
	MPI_Status status;

	if (is_blocking_receive(item)) {
		MPI_Recv(data->address, data->count, data->type, from, item->tag, item->on.comm,
			 &status);
		mix_completed(thread, pending, &status);
		return;
	}
	MPI_Irecv(data->address, data->count, data->type, from, item->tag, item->on.comm,
		  &pending->request);
	pending_add(thread, pending);
}

/* A ring of all ranks: each sends to the next and receives from the previous one. */
static void send_and_receive(struct mix_thread *thread, const struct mix_item *item)
{
	struct mix_item out = *item, in = *item;
	struct mix_pending *sent, *received;
	int rank = item->on.rank, size = item->on.size;
	MPI_Status status;

	out.tag = in.tag = item->tag;
	out.to = (rank + 1) % size;
	in.from = (rank + size - 1) % size;
	out.id = mix_hash_of(item->id, (uint64_t)rank);
	in.id = mix_hash_of(item->id, (uint64_t)in.from);
	sent = message(thread, &out, 1);
	received = message(thread, &in, 0);
	MPI_Sendrecv(sent->buffer[0].address, sent->buffer[0].count, sent->buffer[0].type, out.to,
		     out.tag, received->buffer[0].address, received->buffer[0].count,
		     received->buffer[0].type, in.from, in.tag, item->on.comm, &status);
	mix_completed(thread, sent, NULL);
	mix_completed(thread, received, &status);
}

/* ---- all ----------------------------------------------------------------- */

void mix_start(struct mix_thread *thread, const struct mix_item *item)
{
	MPI_Comm comm = item->on.comm;

	switch (item->kind) {
	case MIX_BCAST:
	case MIX_IBCAST:
		broadcast(thread, item);
		break;
	case MIX_BARRIER:
	case MIX_IBARRIER:
	case MIX_TIMED_BARRIER:
		barrier(thread, item);
		break;
	case MIX_ALLREDUCE:
	case MIX_IALLREDUCE:
	case MIX_REDUCE:
	case MIX_IREDUCE:
		reduction(thread, item);
		break;
	case MIX_ALLGATHER:
	case MIX_IALLGATHER:
	case MIX_ALLTOALL:
	case MIX_IALLTOALL:
		exchange(thread, item);
		break;
	case MIX_GATHER:
	case MIX_SCATTER:
		at_root(thread, item);
		break;
	case MIX_SEND:
		/* To itself: the receive precedes the send. */
		if (item->is_receiver && !item->is_late)
			receive(thread, item);
		if (item->is_sender)
			send(thread, item);
		break;
	case MIX_LATE:
		receive(thread, item);
		break;
	case MIX_SENDRECV:
		send_and_receive(thread, item);
		break;
	case MIX_FREE:
		mix_free(thread, &comm);
		break;
	case MIX_FENCE:
		break;
	}
}
