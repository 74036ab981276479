// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Parts of any lengths between pairs of ranks. Only its two ranks know the
 * length of a part, so only these must decide alike. Short parts are messages
 * of libomnes, longer ones are messages of the MPI on a communicator used for
 * nothing else; for empty parts no message is sent.
 */
#include <limits.h>
#include <stdlib.h>

#include "shim.h"

/* Counts may exceed an int if the MPI has calls for large counts; only then do we get them. */
#if MPI_VERSION >= 4
typedef MPI_Count carried_count;
#define CARRIED(call) PMPI_##call##_c
#else
typedef int carried_count;
#define CARRIED(call) PMPI_##call
#endif

/* Steps in progress concurrently, limited so that few ranks send to one rank at a time. */
enum { STEPS_AT_ONCE = 32 };
/* The largest tag that all MPIs support. */
enum { TAG_MAX = 32767 };

/* A part in flight: a message of libomnes, of the MPI, or none. */
struct message {
	/* By libomnes: packed in separate memory unless it is contiguous. */
	struct shim_packed row;
	omnes_request *request; /* NULL if there is none */
	omnes_status status;	/* of the received message */
	/* By the MPI. */
	bool is_carried;
	MPI_Request carried;
};

/*
 * In step d, the rank sends to the rank d places ahead, and receives from the rank d places behind.
 */
struct step {
	struct message sent, come;
};

struct exchange {
	struct shim_group *group;
	const struct shim_pairs *pairs;
	int tag;	/* of all messages of this exchange, by libomnes and by the MPI */
	int error;	/* the first error */
	bool is_broken; /* a rank has failed or left: messages in flight may never arrive */
};

static bool side_set(struct shim_side *side, int size)
{
	if (side->rank == SHIM_NO_RANK)
		return true;
	/* In-place exchange of several parts would need extra memory for all of them. */
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

/* The part for a rank, or from it; of 0 bytes if there is none. */
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

/*
 * Maps the result of a libomnes call to an error. A message that is too long does not break the
 * exchange.
 */
static int error_of(struct exchange *exchange, int failure)
{
	if (failure == OMNES_SUCCESS)
		return MPI_SUCCESS;
	if (failure != OMNES_ERROR_TRUNCATED)
		exchange->is_broken = true;
	return shim_failure_code();
}

/* Copies the caller's part for itself. */
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

/* Unpacks a received message to its place; if it is shorter than its room, the MPI does so. */
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

/* Waits for a message of libomnes, if there is one, and frees its memory. */
static int message_end(struct exchange *exchange, struct message *message, bool comes)
{
	bool is_there = message->request;
	int error = error_of(exchange, omnes_wait(&message->request));

	if (error == MPI_SUCCESS && is_there && comes)
		error = message_spread(exchange, message);
	shim_row_free(&message->row);
	return error;
}

/* Waits for a message of the MPI, if there is one. */
static int carried_end(const struct exchange *exchange, struct message *message)
{
	if (!message->is_carried)
		return MPI_SUCCESS;
	if (!exchange->is_broken)
		return PMPI_Wait(&message->carried, MPI_STATUS_IGNORE);
	/* The sender or receiver may be gone. */
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
 * Runs a few steps at a time; it continues after an error, so that all other ranks get their parts.
 * Messages of the MPI are waited for last: libomnes makes no progress while the MPI waits.
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
 * MPI forbids the same buffer for both sides, but not all MPIs enforce this, and perhaps only one
 * rank does so: then the data to send are copied, so that their contents before the call are sent.
 */
static bool is_one_memory(const struct shim_pairs *pairs)
{
	return pairs->sent.rank != SHIM_NO_RANK && pairs->come.rank != SHIM_NO_RANK &&
	       pairs->sent.parts.buffer && pairs->sent.parts.buffer == pairs->come.parts.buffer;
}

/* Copies the data to send to contiguous memory, which the caller frees. */
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

	/*
	 * Tags differ, so that messages left by an erroneous call are not taken for those of a
	 * later one.
	 */
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
