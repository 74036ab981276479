// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Parts of any lengths between each two ranks, of which only those two know:
 * no two need to decide alike but they. Short ones are messages of libomnes,
 * longer ones of the MPI, on a communicator that only these have; of none there
 * is no message.
 */
#include <limits.h>
#include <stdlib.h>

#include "shim.h"

/* Steps whose messages may be under way at once, so that few meet at one rank. */
enum { STEPS_AT_ONCE = 32 };
enum { CARRIER_TAG = 0 };

/* A short part, in a row in memory of its own if it does not lie so. */
struct message {
	struct shim_packed row;
	omnes_request *request; /* NULL where there is none */
	omnes_status status;	/* of what came */
};

struct exchange {
	struct shim_group *group;
	const struct shim_pairs *pairs;
	int tag;
	struct message *sent, *come; /* of each rank */
	MPI_Request *long_ones;	     /* up to two of each rank */
	int longs;
};

static bool side_set(struct shim_side *side, int size)
{
	if (side->rank == SHIM_NO_RANK)
		return true;
	/* In place of more than one part, everything would need memory besides. */
	return side->parts.buffer != MPI_IN_PLACE &&
	       shim_layout_set(&side->parts, side->rank == SHIM_EACH_RANK ? size : 1);
}

bool shim_pairs_set(struct shim_pairs *pairs, int size)
{
	return side_set(&pairs->sent, size) && side_set(&pairs->come, size);
}

size_t shim_pairs_bytes(const struct shim_pairs *pairs)
{
	const struct shim_layout *sent = &pairs->sent.parts;

	return pairs->sent.rank == SHIM_NO_RANK ? 0 : (size_t)sent->count * sent->item_bytes;
}

/* For a rank, or from it; of 0 bytes if there is none. */
static struct shim_data part_of(const struct shim_side *side, int rank)
{
	if (side->rank == SHIM_EACH_RANK)
		return shim_layout_part(&side->parts, rank);
	if (side->rank == rank)
		return shim_layout_part(&side->parts, 0);
	return (struct shim_data){ 0 };
}

static bool is_short(const struct exchange *exchange, const struct shim_data *part)
{
	return part->bytes > 0 && part->bytes <= exchange->pairs->message_max;
}

static bool is_long(const struct exchange *exchange, const struct shim_data *part)
{
	return part->bytes > exchange->pairs->message_max;
}

/* The first error of several. */
static int first(int error, int later)
{
	return error != MPI_SUCCESS ? error : later;
}

/* What stays here: from the caller's one memory to the other. */
static int move_own(const struct exchange *exchange)
{
	int rank = exchange->group->rank;
	struct shim_data sent = part_of(&exchange->pairs->sent, rank);
	struct shim_data come = part_of(&exchange->pairs->come, rank);

	if (exchange->pairs->is_in_place || (sent.bytes == 0 && come.bytes == 0))
		return MPI_SUCCESS;
	if (sent.is_in_a_row && sent.bytes == come.bytes && sent.bytes <= INT_MAX)
		return shim_data_spread(sent.buffer, &come);
	return PMPI_Sendrecv(sent.buffer, (int)sent.count, sent.type, rank, CARRIER_TAG,
			     come.buffer, (int)come.count, come.type, rank, CARRIER_TAG,
			     exchange->group->carrier, MPI_STATUS_IGNORE);
}

/* Starts all long parts; the MPI has its own means against too many at once. */
static int start_long(struct exchange *exchange)
{
	MPI_Comm carrier = exchange->group->carrier;
	int size = exchange->group->size, error = MPI_SUCCESS;

	for (int step = 1; step < size && error == MPI_SUCCESS; step++) {
		int from = (exchange->group->rank + size - step) % size;
		struct shim_data part = part_of(&exchange->pairs->come, from);

		if (is_long(exchange, &part))
			error = PMPI_Irecv(part.buffer, (int)part.count, part.type, from,
					   CARRIER_TAG, carrier,
					   &exchange->long_ones[exchange->longs++]);
	}
	for (int step = 1; step < size && error == MPI_SUCCESS; step++) {
		int to = (exchange->group->rank + step) % size;
		struct shim_data part = part_of(&exchange->pairs->sent, to);

		if (is_long(exchange, &part))
			error = PMPI_Isend(part.buffer, (int)part.count, part.type, to,
					   CARRIER_TAG, carrier,
					   &exchange->long_ones[exchange->longs++]);
	}
	return error;
}

static int end_long(struct exchange *exchange)
{
	int error = MPI_SUCCESS;

	for (int i = 0; i < exchange->longs; i++)
		error = first(error, PMPI_Wait(&exchange->long_ones[i], MPI_STATUS_IGNORE));
	return error;
}

/* For a call that has failed: whoever these are for may be gone. */
static void give_up_long(struct exchange *exchange)
{
	for (int i = 0; i < exchange->longs; i++) {
		PMPI_Cancel(&exchange->long_ones[i]);
		PMPI_Request_free(&exchange->long_ones[i]);
	}
}

static int start_receive(struct exchange *exchange, int from)
{
	struct shim_data part = part_of(&exchange->pairs->come, from);
	struct message *message = &exchange->come[from];
	int error;

	if (!is_short(exchange, &part))
		return MPI_SUCCESS;
	error = shim_row_make(&message->row, &part, false);
	if (error == MPI_SUCCESS &&
	    omnes_irecv(exchange->group->comm, from, exchange->tag, message->row.bytes, part.bytes,
			&message->status, &message->request) != OMNES_SUCCESS)
		error = shim_failure_code();
	return error;
}

static int start_send(struct exchange *exchange, int to)
{
	struct shim_data part = part_of(&exchange->pairs->sent, to);
	struct message *message = &exchange->sent[to];
	int error;

	if (!is_short(exchange, &part))
		return MPI_SUCCESS;
	error = shim_row_make(&message->row, &part, true);
	if (error == MPI_SUCCESS &&
	    omnes_isend(exchange->group->comm, to, exchange->tag, message->row.bytes, part.bytes,
			&message->request) != OMNES_SUCCESS)
		error = shim_failure_code();
	return error;
}

/* Waits for what was started, if it was; its memory serves no more. */
static int end_send(struct message *message)
{
	int failure = omnes_wait(&message->request);

	shim_row_free(&message->row);
	return failure == OMNES_SUCCESS ? MPI_SUCCESS : shim_failure_code();
}

static int end_receive(struct message *message)
{
	size_t wanted = message->row.data.bytes;
	bool is_there = message->request;
	int failure = omnes_wait(&message->request), error = MPI_SUCCESS;

	if (failure != OMNES_SUCCESS)
		error = shim_failure_code();
	else if (is_there && message->status.bytes != wanted)
		error = MPI_ERR_TRUNCATE;
	else if (is_there && !message->row.data.is_in_a_row)
		error = shim_packed_spread(&message->row);
	shim_row_free(&message->row);
	return error;
}

/*
 * Short parts to the next ranks, and from those before, a few steps at a time.
 * Also after an error, so that all the others get theirs.
 */
static int exchange_short(struct exchange *exchange)
{
	int rank = exchange->group->rank, size = exchange->group->size, error = MPI_SUCCESS;

	for (int step = 1; step < size + STEPS_AT_ONCE; step++) {
		int ended = step - STEPS_AT_ONCE;

		if (step < size) {
			error = first(error, start_receive(exchange, (rank + size - step) % size));
			error = first(error, start_send(exchange, (rank + step) % size));
		}
		if (ended >= 1 && ended < size) {
			error = first(error,
				      end_receive(&exchange->come[(rank + size - ended) % size]));
			error = first(error, end_send(&exchange->sent[(rank + ended) % size]));
		}
	}
	return error;
}

/* The long ones are under way meanwhile. */
static int exchange_all(struct exchange *exchange)
{
	int error = start_long(exchange);

	if (error == MPI_SUCCESS)
		error = move_own(exchange);
	if (error == MPI_SUCCESS)
		error = exchange_short(exchange);
	if (error != MPI_SUCCESS) {
		give_up_long(exchange);
		return error;
	}
	return end_long(exchange);
}

int shim_exchange(struct shim_group *group, const struct shim_pairs *pairs)
{
	size_t size = (size_t)group->size;
	struct exchange exchange = { .group = group, .pairs = pairs };
	struct message *messages = calloc(2 * size, sizeof(*messages) + sizeof(MPI_Request));
	int error = MPI_ERR_NO_MEM;

	/* What an erroneous call has left there is never taken for another one's. */
	exchange.tag = (int)(group->exchanges++ & INT_MAX);
	if (messages) {
		exchange.sent = messages;
		exchange.come = messages + size;
		exchange.long_ones = (MPI_Request *)(messages + 2 * size);
		error = exchange_all(&exchange);
	}
	free(messages);
	return error == MPI_SUCCESS ? MPI_SUCCESS : shim_failure_pass(group->mpi, error);
}
