/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Messages and collective operations of a job of at least 2 ranks. */
#include "check.h"

enum { LARGE = 1 << 20 };

static unsigned char pattern(size_t index, int salt)
{
	return (unsigned char)(index * 31 + index / 256 + (size_t)salt * 7);
}

static void ring(omnes_comm *comm, int rank, int size)
{
	omnes_status status;
	int token = rank, got = -1;

	if (rank) {
		OK(omnes_recv(comm, rank - 1, 5, &got, sizeof(got), &status));
		CHECK(got == rank - 1 && status.source == rank - 1);
		CHECK(status.tag == 5 && status.bytes == sizeof(got));
	}
	OK(omnes_send(comm, (rank + 1) % size, 5, &token, sizeof(token)));
	if (!rank) {
		OK(omnes_recv(comm, OMNES_ANY_SOURCE, OMNES_ANY_TAG, &got, sizeof(got), &status));
		CHECK(got == size - 1 && status.source == size - 1 && status.tag == 5);
	}
}

/* Tags select messages out of the order in which they were sent. */
static void tags(omnes_comm *comm, int rank)
{
	char first = 'a', second = 'b', got = 0;
	omnes_status status;

	if (rank == 1) {
		OK(omnes_send(comm, 0, 1, &first, 1));
		OK(omnes_send(comm, 0, 2147483647, &second, 1));
		OK(omnes_send(comm, 0, 3, NULL, 0));
	} else if (rank == 0) {
		OK(omnes_recv(comm, 1, 2147483647, &got, 1, &status));
		CHECK(got == 'b' && status.tag == 2147483647);
		OK(omnes_recv(comm, 1, 1, &got, 1, NULL));
		CHECK(got == 'a');
		OK(omnes_recv(comm, 1, 3, NULL, 0, &status));
		CHECK(status.bytes == 0 && status.tag == 3);
	}
}

static void broadcasts(omnes_comm *comm, int rank, int size)
{
	static const size_t sizes[] = { 0, 1, 8, 1471, 65536, LARGE };
	unsigned char *buffer = malloc(LARGE);

	CHECK(buffer != NULL);
	for (int root = 0; root < size; root++) {
		for (size_t k = 0; k < sizeof(sizes) / sizeof(*sizes); k++) {
			for (size_t i = 0; i < sizes[k]; i++)
				buffer[i] = rank == root ? pattern(i, root) : 0xee;
			OK(omnes_bcast(comm, buffer, sizes[k], root));
			for (size_t i = 0; i < sizes[k]; i++)
				CHECK(buffer[i] == pattern(i, root));
		}
	}
	OK(omnes_bcast(comm, NULL, 0, 0));
	free(buffer);
}

static void larger(void *into, const void *from, size_t count, void *context)
{
	++*(int *)context;
	for (size_t i = 0; i < count; i++) {
		uint32_t mine, theirs;

		memcpy(&mine, (char *)into + i * sizeof(mine), sizeof(mine));
		memcpy(&theirs, (const char *)from + i * sizeof(theirs), sizeof(theirs));
		if (theirs > mine)
			memcpy((char *)into + i * sizeof(mine), &theirs, sizeof(theirs));
	}
}

static void reductions(omnes_comm *comm, int rank, int size)
{
	enum { COUNT = 20000 };
	double *data = malloc(COUNT * sizeof(*data));
	uint32_t numbers[2];
	size_t first, length;
	int calls = 0;

	CHECK(data != NULL);
	for (size_t i = 0; i < COUNT; i++)
		data[i] = (double)i + rank;
	OK(omnes_allreduce(comm, data, COUNT, OMNES_DOUBLE, OMNES_SUM));
	for (size_t i = 0; i < COUNT; i++)
		CHECK(data[i] == size * (double)i + size * (size - 1) / 2.0);
	OK(omnes_reduce(comm, data, COUNT, OMNES_DOUBLE, OMNES_MIN, size - 1));
	CHECK(rank < size - 1 || data[7] == size * 7.0 + size * (size - 1) / 2.0);
	for (size_t i = 0; i < COUNT; i++)
		data[i] = rank;
	OK(omnes_reduce_scatter(comm, data, COUNT, OMNES_DOUBLE, OMNES_MAX, &first, &length));
	CHECK(length == (size_t)(COUNT / size + (rank < COUNT % size)));
	CHECK(first == (size_t)(COUNT / size * rank + (rank < COUNT % size ? rank : COUNT % size)));
	for (size_t i = 0; i < COUNT; i++)
		CHECK(data[i] == (i >= first && i < first + length ? size - 1 : rank));
	numbers[0] = 10 + (uint32_t)rank;
	numbers[1] = 10 - (uint32_t)rank;
	OK(omnes_allreduce_by(comm, numbers, 2, sizeof(*numbers), larger, &calls));
	CHECK(numbers[0] == 9 + (uint32_t)size && numbers[1] == 10);
	numbers[0] = (uint32_t)rank;
	OK(omnes_reduce_by(comm, numbers, 1, sizeof(*numbers), larger, &calls, 0));
	CHECK(rank || (numbers[0] == (uint32_t)size - 1 && calls >= 2));
	OK(omnes_allreduce(comm, NULL, 0, OMNES_INT8, OMNES_XOR));
	free(data);
}

/* Appends digits, which shows the order of ranks. */
static void append(void *into, const void *from, size_t count, void *context)
{
	(void)context;
	for (size_t i = 0; i < count; i++) {
		uint32_t mine, theirs;

		memcpy(&mine, (char *)into + i * sizeof(mine), sizeof(mine));
		memcpy(&theirs, (const char *)from + i * sizeof(theirs), sizeof(theirs));
		mine = 10 * mine + theirs;
		memcpy((char *)into + i * sizeof(mine), &mine, sizeof(mine));
	}
}

static void scans(omnes_comm *comm, int rank)
{
	static const uint32_t DIGITS[] = { 1, 12, 123, 1234 };
	enum { COUNT = 20000 };
	double *data = malloc(COUNT * sizeof(*data));
	uint32_t digit = (uint32_t)rank + 1;

	CHECK(data != NULL);
	for (size_t i = 0; i < COUNT; i++)
		data[i] = (double)i + rank;
	OK(omnes_scan(comm, data, COUNT, OMNES_DOUBLE, OMNES_SUM));
	for (size_t i = 0; i < COUNT; i++)
		CHECK(data[i] == (rank + 1) * (double)i + rank * (rank + 1) / 2.0);
	for (size_t i = 0; i < COUNT; i++)
		data[i] = rank;
	OK(omnes_exscan(comm, data, COUNT, OMNES_DOUBLE, OMNES_MAX));
	for (size_t i = 0; i < COUNT; i++)
		CHECK(data[i] == (rank ? rank - 1 : 0));
	OK(omnes_scan_by(comm, &digit, 1, sizeof(digit), append, NULL));
	CHECK(digit == DIGITS[rank]);
	digit = (uint32_t)rank + 1;
	OK(omnes_exscan_by(comm, &digit, 1, sizeof(digit), append, NULL));
	CHECK(digit == DIGITS[rank ? rank - 1 : 0]);
	OK(omnes_scan(comm, NULL, 0, OMNES_INT8, OMNES_XOR));
	free(data);
}

static void gathers(omnes_comm *comm, int rank, int size)
{
	int own = 3 * rank, all[4] = { -1, -1, -1, -1 }, parts[4], got[4];

	CHECK(size <= 4);
	OK(omnes_gather(comm, &own, rank == 1 ? all : NULL, sizeof(own), 1));
	for (int i = 0; i < size; i++)
		CHECK(all[i] == (rank == 1 ? 3 * i : -1));
	OK(omnes_allgather(comm, &own, all, sizeof(own)));
	for (int i = 0; i < size; i++)
		CHECK(all[i] == 3 * i);
	for (int i = 0; i < size; i++)
		all[i] = i == rank ? 5 * i : -1;
	OK(omnes_allgather(comm, &all[rank], all, sizeof(*all)));
	for (int i = 0; i < size; i++)
		CHECK(all[i] == 5 * i);
	own = -1;
	OK(omnes_scatter(comm, rank ? NULL : all, &own, sizeof(own), 0));
	CHECK(own == 5 * rank);
	for (int i = 0; i < size; i++)
		parts[i] = 10 * rank + i;
	OK(omnes_alltoall(comm, parts, got, sizeof(*parts)));
	for (int i = 0; i < size; i++)
		CHECK(got[i] == 10 * i + rank);
}

/* Rank r has r numbers, so rank 0 has none. */
static void varied_gathers(omnes_comm *comm, int rank, int size)
{
	size_t each = sizeof(int), lengths[4], same[4], bytes = (size_t)rank * each;
	int own[4], all[6], parts[12], first = rank * (rank - 1) / 2, is_root = rank == 1;

	for (int i = 0; i < size; i++) {
		lengths[i] = (size_t)i * each;
		same[i] = bytes;
		own[i] = 10 * rank + i;
	}
	memset(all, -1, sizeof(all));
	OK(omnes_gatherv(comm, own, bytes, is_root ? all : NULL, is_root ? lengths : NULL, 1));
	for (int i = 0, k = 0; i < size; i++)
		for (int j = 0; j < i; j++, k++)
			CHECK(all[k] == (is_root ? 10 * i + j : -1));
	OK(omnes_allgatherv(comm, own, bytes, all, lengths));
	for (int i = 0, k = 0; i < size; i++)
		for (int j = 0; j < i; j++, k++)
			CHECK(all[k] == 10 * i + j);
	memset(all, -1, sizeof(all));
	for (int j = 0; j < rank; j++)
		all[first + j] = first + j;
	OK(omnes_allgatherv(comm, all + first, bytes, all, lengths));
	for (int k = 0; k < size * (size - 1) / 2; k++)
		CHECK(all[k] == k);
	OK(omnes_scatterv(comm, rank ? NULL : all, rank ? NULL : lengths, own, bytes, 0));
	for (int j = 0; j < rank; j++)
		CHECK(own[j] == first + j);
	for (int i = 0; i < size * rank; i++)
		parts[i] = 100 * rank + i;
	OK(omnes_alltoallv(comm, parts, same, all, lengths));
	for (int i = 0, k = 0; i < size; i++)
		for (int j = 0; j < i; j++, k++)
			CHECK(all[k] == 100 * i + rank * i + j);
}

/* A rank that expects a different length gets an error, and all ranks can continue. */
static void wrong_lengths(omnes_comm *comm, int rank, int size)
{
	size_t lengths[4] = { 1, 1, 1, 1 };
	char own[2] = { 1, 2 }, all[4];
	int last = size - 1, code;

	code = omnes_gatherv(comm, own, rank == last ? 2 : 1, all, lengths, 0);
	CHECK(code == (rank ? OMNES_SUCCESS : OMNES_ERROR_TRUNCATED));
	code = omnes_scatterv(comm, all, lengths, own, rank == last ? 2 : 1, 0);
	CHECK(code == (rank == last ? OMNES_ERROR_MISMATCH : OMNES_SUCCESS));
	OK(omnes_gatherv(comm, own, 1, all, lengths, 0));
}

/* Separates even and odd ranks, in reverse order, without the last rank. */
static void parts(omnes_comm *comm, int rank, int size)
{
	int is_out = rank == size - 1, number = rank, members, own;
	omnes_comm *part = comm;

	OK(omnes_comm_split(comm, is_out ? OMNES_NO_COLOR : rank % 2, -(int64_t)rank, &part));
	CHECK(is_out == (part == NULL));
	if (is_out)
		return;
	members = omnes_size(part);
	own = omnes_rank(part);
	CHECK(members == (size - 1 - rank % 2 + 1) / 2);
	CHECK(own == members - 1 - rank / 2);
	OK(omnes_bcast(part, &number, sizeof(number), members - 1));
	CHECK(number == rank % 2);
	OK(omnes_barrier(part));
	REFUSED(omnes_finalize(part), "world");
	OK(omnes_comm_free(part));
}

/* A message on a communicator is not received on its duplicate. */
static void copies(omnes_comm *comm, int rank)
{
	omnes_comm *copy = NULL;
	int in_comm = 1, in_copy = 2, got = 0;

	OK(omnes_comm_dup(comm, &copy));
	CHECK(copy != NULL && omnes_rank(copy) == rank);
	if (rank == 1) {
		OK(omnes_send(comm, 0, 9, &in_comm, sizeof(in_comm)));
		OK(omnes_send(copy, 0, 9, &in_copy, sizeof(in_copy)));
	} else if (rank == 0) {
		OK(omnes_recv(copy, OMNES_ANY_SOURCE, 9, &got, sizeof(got), NULL));
		CHECK(got == in_copy);
		OK(omnes_recv(comm, OMNES_ANY_SOURCE, 9, &got, sizeof(got), NULL));
		CHECK(got == in_comm);
	}
	OK(omnes_barrier(copy));
	OK(omnes_comm_free(copy));
}

int main(void)
{
	omnes_comm *world = NULL;
	int rank, size;

	OK(omnes_init(&world));
	rank = omnes_rank(world);
	size = omnes_size(world);
	CHECK(rank == atoi(getenv("OMNES_RANK")) && size == atoi(getenv("OMNES_SIZE")));
	ring(world, rank, size);
	/* Rank 0 receives any message; messages of later tests must not have arrived yet. */
	OK(omnes_barrier(world));
	tags(world, rank);
	broadcasts(world, rank, size);
	reductions(world, rank, size);
	scans(world, rank);
	gathers(world, rank, size);
	varied_gathers(world, rank, size);
	wrong_lengths(world, rank, size);
	parts(world, rank, size);
	copies(world, rank);
	OK(omnes_barrier(world));
	OK(omnes_finalize(world));
	return 0;
}
