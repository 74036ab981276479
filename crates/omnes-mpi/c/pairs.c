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

/* Counts may be no int where the MPI has calls for that; only there they come to us. */
#if MPI_VERSION >= 4
typedef MPI_Count carried_count;
#define CARRIED(call) PMPI_##call##_c
#else
typedef int carried_count;
#define CARRIED(call) PMPI_##call
#endif

/* Steps under way at once, so that few ranks send to one at a time. */
enum { STEPS_AT_ONCE = 32 };
/* MPIs may have no larger tags. */
enum { TAG_MAX = 32767 };

/* A part on its way: by libomnes, or by the MPI, or none. */
struct message {
	/* By libomnes: in a row in memory of its own if it does not lie so. */
	struct shim_packed row;
	omnes_request *request; /* NULL where there is none */
	omnes_status status;	/* of what came */
	/* By the MPI. */
	bool is_carried;
	MPI_Request carried;
};

/* What goes to the rank so many further on, and comes from the one so many further back. */
struct step {
	struct message sent, come;
};

struct exchange {
	struct shim_group *group;
	const struct shim_pairs *pairs;
	int tag;	/* of all its messages, by libomnes and by the MPI */
	int error;	/* the first one */
	bool is_broken; /* a rank has failed or left: what is on its way may never come */
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

static void note(struct exchange *exchange, int error)
{
	if (exchange->error == MPI_SUCCESS)
		exchange->error = error;
}

/* For what a call of libomnes has returned. A message that is too long breaks nothing else. */
static int error_of(struct exchange *exchange, int failure)
{
	if (failure == OMNES_SUCCESS)
		return MPI_SUCCESS;
	if (failure != OMNES_ERROR_TRUNCATED)
		exchange->is_broken = true;
	return shim_failure_code();
}

/* What stays here: from the caller's one memory to the other. */
static int move_own(const struct exchange *exchange)
{
	int rank = exchange->group->rank;
	struct shim_data sent = part_of(&exchange->pairs->sent, rank);
	struct shim_data come = part_of(&exchange->pairs->come, rank);

	if (exchange->pairs->is_in_place || (sent.bytes == 0 && come.bytes == 0))
		return MPI_SUCCESS;
	if (sent.is_contiguous && sent.bytes == come.bytes && sent.bytes <= INT_MAX)
		return shim_data_spread(sent.buffer, &come);
	return CARRIED(Sendrecv)(sent.buffer, (carried_count)sent.count, sent.type, rank,
				 exchange->tag, come.buffer, (carried_count)come.count, come.type,
				 rank, exchange->tag, exchange->group->carrier, MPI_STATUS_IGNORE);
}

static int receive_start(struct exchange *exchange, struct message *message, int from)
{
	struct shim_data part = part_of(&exchange->pairs->come, from);
	int error;

	if (part.bytes == 0)
		return MPI_SUCCESS;
	if (part.bytes > exchange->pairs->message_max) {
		error = CARRIED(Irecv)(part.buffer, (carried_count)part.count, part.type, from,
				       exchange->tag, exchange->group->carrier, &message->carried);
		message->is_carried = error == MPI_SUCCESS;
		return error;
	}
	error = shim_row_make(&message->row, &part, false);
	if (error != MPI_SUCCESS)
		return error;
	return error_of(exchange,
			omnes_irecv(exchange->group->comm, from, exchange->tag, message->row.bytes,
				    part.bytes, &message->status, &message->request));
}

static int send_start(struct exchange *exchange, struct message *message, int to)
{
	struct shim_data part = part_of(&exchange->pairs->sent, to);
	int error;

	if (part.bytes == 0)
		return MPI_SUCCESS;
	if (part.bytes > exchange->pairs->message_max) {
		error = CARRIED(Isend)(part.buffer, (carried_count)part.count, part.type, to,
				       exchange->tag, exchange->group->carrier, &message->carried);
		message->is_carried = error == MPI_SUCCESS;
		return error;
	}
	error = shim_row_make(&message->row, &part, true);
	if (error != MPI_SUCCESS)
		return error;
	return error_of(exchange, omnes_isend(exchange->group->comm, to, exchange->tag,
					      message->row.bytes, part.bytes, &message->request));
}

/* Puts what came to where it belongs; the MPI knows how, if it is less than there is room for. */
static int message_spread(const struct exchange *exchange, const struct message *message)
{
	const struct shim_data *data = &message->row.data;
	int rank = exchange->group->rank;

	if (data->is_contiguous)
		return MPI_SUCCESS;
	if (message->status.bytes == data->bytes)
		return shim_packed_spread(&message->row);
	return PMPI_Sendrecv(message->row.bytes, (int)message->status.bytes, MPI_BYTE, rank,
			     exchange->tag, data->buffer, (int)data->count, data->type, rank,
			     exchange->tag, exchange->group->carrier, MPI_STATUS_IGNORE);
}

/* Waits for a message of libomnes, if there is one; its memory serves no more. */
static int message_end(struct exchange *exchange, struct message *message, bool comes)
{
	bool is_there = message->request;
	int error = error_of(exchange, omnes_wait(&message->request));

	if (error == MPI_SUCCESS && is_there && comes)
		error = message_spread(exchange, message);
	shim_row_free(&message->row);
	return error;
}

/* The same for one of the MPI. */
static int carried_end(const struct exchange *exchange, struct message *message)
{
	if (!message->is_carried)
		return MPI_SUCCESS;
	if (!exchange->is_broken)
		return PMPI_Wait(&message->carried, MPI_STATUS_IGNORE);
	/* Whoever it is of or for may be gone. */
	PMPI_Cancel(&message->carried);
	return PMPI_Request_free(&message->carried);
}

static void step_start(struct exchange *exchange, struct step *step, int distance)
{
	int rank = exchange->group->rank, size = exchange->group->size;

	note(exchange, receive_start(exchange, &step->come, (rank + size - distance) % size));
	note(exchange, send_start(exchange, &step->sent, (rank + distance) % size));
}

/*
 * A few steps at a time; also after an error, so that all others get what is for
 * them. The MPI's come last: libomnes stands still while the MPI waits.
 */
static void exchange_all(struct exchange *exchange, struct step *steps)
{
	int size = exchange->group->size;

	for (int now = 1; now < size + 2 * STEPS_AT_ONCE; now++) {
		int ended = now - STEPS_AT_ONCE, carried = ended - STEPS_AT_ONCE;

		if (now < size)
			step_start(exchange, &steps[now], now);
		if (ended >= 1 && ended < size) {
			note(exchange, message_end(exchange, &steps[ended].come, true));
			note(exchange, message_end(exchange, &steps[ended].sent, false));
		}
		if (carried >= 1 && carried < size) {
			note(exchange, carried_end(exchange, &steps[carried].come));
			note(exchange, carried_end(exchange, &steps[carried].sent));
		}
	}
}

/*
 * MPI forbids one memory for both sides, but not all MPIs mind, and only one rank may do it:
 * what is sent is copied then, so that it is what was there before the call.
 */
static bool is_one_memory(const struct shim_pairs *pairs)
{
	return pairs->sent.rank != SHIM_NO_RANK && pairs->come.rank != SHIM_NO_RANK &&
	       pairs->sent.parts.buffer && pairs->sent.parts.buffer == pairs->come.parts.buffer;
}

/* Makes what is sent a row of bytes in memory of its own, which is to be freed. */
static int sent_copy(struct shim_pairs *pairs, int size, void **memory)
{
	size_t bytes = shim_pairs_bytes(pairs);
	MPI_Count *counts = *memory = malloc((size_t)size * 2 * sizeof(*counts) + bytes);
	MPI_Aint *places = (MPI_Aint *)(counts + size), place = 0;
	char *row = (char *)(counts + 2 * size);
	int error = counts ? MPI_SUCCESS : MPI_ERR_NO_MEM;

	for (int rank = 0; rank < size && error == MPI_SUCCESS; rank++) {
		struct shim_data part = part_of(&pairs->sent, rank);

		if (!part.is_contiguous && part.bytes > INT_MAX)
			error = MPI_ERR_BUFFER;
		else if (part.bytes > 0)
			error = shim_data_copy(row + place, &part);
		counts[rank] = (MPI_Count)part.bytes;
		places[rank] = place;
		place += (MPI_Aint)part.bytes;
	}
	pairs->sent = (struct shim_side){ .rank = SHIM_EACH_RANK };
	pairs->sent.parts = (struct shim_layout){
		.buffer = row,
		.type = MPI_BYTE,
		.large_counts = counts,
		.large_places = places,
		.count = place,
		.item_bytes = 1,
		.extent = 1,
		.is_contiguous = true,
	};
	return error;
}

static int exchange_apart(struct shim_group *group, const struct shim_pairs *pairs)
{
	struct exchange exchange = { .group = group, .pairs = pairs, .error = MPI_SUCCESS };
	struct step *steps = calloc((size_t)group->size, sizeof(*steps));

	/* What an erroneous call has left there is not taken for that of one soon after it. */
	exchange.tag = (int)(group->exchanges & TAG_MAX);
	if (steps) {
		exchange_all(&exchange, steps);
		note(&exchange, move_own(&exchange));
	} else {
		exchange.error = MPI_ERR_NO_MEM;
	}
	free(steps);
	return exchange.error;
}

int shim_exchange(struct shim_group *group, const struct shim_pairs *pairs)
{
	struct shim_pairs apart = *pairs;
	void *memory = NULL;
	int error = MPI_SUCCESS;

	if (is_one_memory(pairs))
		error = sent_copy(&apart, group->size, &memory);
	if (error == MPI_SUCCESS)
		error = exchange_apart(group, &apart);
	free(memory);
	return error == MPI_SUCCESS ? MPI_SUCCESS : shim_raise_mpi(group->mpi, error);
}
