/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Operations that are started, tested and waited for; finally, a rank that
 * exits without leaving, while the others have operations in progress.
 */
#include "check.h"
#include <unistd.h>

enum { COUNT = 500, BYTES = 3000, LARGE = 1 << 20, BARRIERS = 5 };

static unsigned char pattern(size_t index, int salt)
{
	return (unsigned char)(index * 31 + index / 256 + (size_t)salt * 7);
}

static void fill(unsigned char *data, size_t bytes, int salt)
{
	for (size_t i = 0; i < bytes; i++)
		data[i] = pattern(i, salt);
}

static void expect(const unsigned char *data, size_t bytes, int salt)
{
	for (size_t i = 0; i < bytes; i++)
		CHECK(data[i] == pattern(i, salt));
}

/* Tests the request until the operation has completed. */
static void ask(omnes_request **request)
{
	int done = 0;

	while (!done) {
		CHECK(*request != NULL);
		OK(omnes_test(request, &done));
	}
	CHECK(*request == NULL);
}

/*
 * Rank 0 starts all broadcasts, with barriers among them, before the others
 * start any, which they do when they receive its message.
 */
static void many(omnes_comm *comm, int rank, int size)
{
	static unsigned char data[COUNT][BYTES];
	omnes_request *casts[COUNT], *barriers[BARRIERS];

	if (rank)
		OK(omnes_recv(comm, 0, 1, NULL, 0, NULL));
	for (int k = 0; k < COUNT; k++) {
		if (rank == 0)
			fill(data[k], BYTES, k);
		OK(omnes_ibcast(comm, data[k], BYTES, 0, &casts[k]));
		if (k % (COUNT / BARRIERS) == 0)
			OK(omnes_ibarrier(comm, &barriers[k / (COUNT / BARRIERS)]));
	}
	for (int to = 1; rank == 0 && to < size; to++)
		OK(omnes_send(comm, to, 1, NULL, 0));
	/* Last requests first. */
	for (int k = COUNT; k-- > 0;) {
		if (rank % 2)
			ask(&casts[k]);
		else
			OK(omnes_wait(&casts[k]));
		CHECK(casts[k] == NULL);
		expect(data[k], BYTES, k);
	}
	for (int k = 0; k < BARRIERS; k++)
		OK(omnes_wait(&barriers[k]));
}

/* Several broadcasts from every root, of all lengths, among blocking calls. */
static void mixed(omnes_comm *comm, int rank, int size)
{
	static const size_t sizes[] = { 0, 1, 1471, 65537, LARGE };
	enum { SIZES = sizeof(sizes) / sizeof(*sizes) };
	omnes_request *requests[SIZES], *barrier;
	unsigned char *data[SIZES];
	int number;

	for (int root = 0; root < size; root++) {
		for (size_t k = 0; k < SIZES; k++) {
			data[k] = malloc(sizes[k] + 1);
			CHECK(data[k] != NULL);
			memset(data[k], 0xee, sizes[k]);
			if (rank == root)
				fill(data[k], sizes[k], (int)k);
			OK(omnes_ibcast(comm, data[k], sizes[k], root, &requests[k]));
		}
		OK(omnes_ibarrier(comm, &barrier));
		number = rank == root ? root : -1;
		OK(omnes_bcast(comm, &number, sizeof(number), root));
		CHECK(number == root);
		OK(omnes_barrier(comm));
		ask(&barrier);
		for (size_t k = 0; k < SIZES; k++) {
			ask(&requests[k]);
			expect(data[k], sizes[k], (int)k);
			free(data[k]);
		}
	}
}

/* Each rank sends to the next before it receives, including messages too long to be buffered. */
static void messages(omnes_comm *comm, int rank, int size)
{
	static const size_t sizes[] = { 0, 5, 70000, LARGE };
	enum { SIZES = sizeof(sizes) / sizeof(*sizes) };
	static unsigned char out[SIZES][LARGE], in[SIZES][LARGE];
	omnes_request *sends[SIZES], *receives[SIZES];
	int next = (rank + 1) % size, before = (rank + size - 1) % size;
	omnes_status status[SIZES];

	for (int k = 0; k < SIZES; k++) {
		fill(out[k], sizes[k], rank + k);
		OK(omnes_isend(comm, next, 10 + k, out[k], sizes[k], &sends[k]));
	}
	for (int k = SIZES; k-- > 0;)
		OK(omnes_irecv(comm, k % 2 ? before : OMNES_ANY_SOURCE, 10 + k, in[k], LARGE,
			       &status[k], &receives[k]));
	for (int k = 0; k < SIZES; k++) {
		if (k % 2)
			ask(&receives[k]);
		else
			OK(omnes_wait(&receives[k]));
		CHECK(status[k].source == before && status[k].tag == 10 + k);
		CHECK(status[k].bytes == sizes[k]);
		expect(in[k], sizes[k], before + k);
		ask(&sends[k]);
	}
	OK(omnes_isend(comm, next, 3, out[1], 5, &sends[0]));
	OK(omnes_irecv(comm, OMNES_ANY_SOURCE, OMNES_ANY_TAG, in[0], 4, NULL, &receives[0]));
	CHECK(omnes_wait(&receives[0]) == OMNES_ERROR_TRUNCATED);
	OK(omnes_wait(&sends[0]));

	/* The first error is returned, and all requests have completed. */
	for (int k = 0; k < SIZES; k++) {
		OK(omnes_isend(comm, next, 20 + k, out[k], sizes[k], &sends[k]));
		OK(omnes_irecv(comm, before, 20 + k, in[k], k == 1 ? 4 : LARGE, &status[k],
			       &receives[k]));
	}
	CHECK(omnes_wait_all(receives, SIZES) == OMNES_ERROR_TRUNCATED);
	OK(omnes_wait_all(sends, SIZES));
	for (int k = 0; k < SIZES; k++)
		CHECK(sends[k] == NULL && receives[k] == NULL);
	expect(in[3], sizes[3], before + 3);
	OK(omnes_wait_all(receives, SIZES));
	OK(omnes_wait_all(NULL, 0));
	CHECK(omnes_wait_all(NULL, 1) == OMNES_ERROR_ARGUMENT);
}

/* All ranks send to the next rank and receive from the previous one, at any length. */
static void around(omnes_comm *comm, int rank, int size)
{
	static char out[LARGE], in[LARGE];
	int after = (rank + 1) % size, before = (rank + size - 1) % size;
	omnes_status status;

	memset(out, rank, sizeof(out));
	OK(omnes_sendrecv(comm, after, 30, out, sizeof(out), before, 30, in, sizeof(in),
			  &status));
	CHECK(status.source == before && status.tag == 30 && status.bytes == sizeof(in));
	CHECK(in[0] == before && in[LARGE - 1] == before);
	OK(omnes_sendrecv(comm, after, 31, out, 3, OMNES_ANY_SOURCE, 31, in, 3, NULL));
	CHECK(omnes_sendrecv(comm, after, 32, out, 3, before, 32, in, 2, NULL) ==
	      OMNES_ERROR_TRUNCATED);
	CHECK(omnes_sendrecv(comm, size, 33, out, 3, before, 33, in, 3, NULL) ==
	      OMNES_ERROR_ARGUMENT);
}

/* All reductions and gathers, concurrently. */
static void collectives(omnes_comm *comm, int rank, int size)
{
	enum { PARTS = 64, EACH = 6 };
	int64_t sum[1000], one[1000];
	unsigned char own[PARTS], all[PARTS], every[PARTS], given[PARTS], got[1], out[PARTS],
		in[PARTS];
	omnes_request *requests[EACH];

	CHECK(size <= PARTS);
	for (int k = 0; k < 1000; k++)
		sum[k] = one[k] = (int64_t)k * rank;
	for (int k = 0; k < size; k++) {
		given[k] = 100 + k;
		out[k] = 10 * rank + k;
	}
	own[0] = rank;
	every[rank] = rank;
	OK(omnes_iallreduce(comm, sum, 1000, OMNES_INT64, OMNES_SUM, &requests[0]));
	OK(omnes_ireduce(comm, one, 1000, OMNES_INT64, OMNES_MAX, size - 1, &requests[1]));
	OK(omnes_igather(comm, own, rank ? NULL : all, 1, 0, &requests[2]));
	OK(omnes_iallgather(comm, every + rank, every, 1, &requests[3]));
	OK(omnes_iscatter(comm, rank ? NULL : given, got, 1, 0, &requests[4]));
	OK(omnes_ialltoall(comm, out, in, 1, &requests[5]));
	OK(omnes_barrier(comm));
	ask(&requests[3]);
	OK(omnes_wait_all(requests, EACH));
	CHECK(sum[999] == (int64_t)999 * size * (size - 1) / 2);
	CHECK(rank != size - 1 || one[999] == (int64_t)999 * (size - 1));
	CHECK(got[0] == 100 + rank);
	for (int k = 0; k < size; k++) {
		CHECK(rank || all[k] == k);
		CHECK(every[k] == k && in[k] == 10 * k + rank);
	}
	CHECK(omnes_iallreduce(comm, sum, 1, OMNES_FLOAT, OMNES_XOR, requests) ==
	      OMNES_ERROR_REDUCTION);
	CHECK(omnes_igather(comm, NULL, all, 1, 0, requests) == OMNES_ERROR_ARGUMENT);
	CHECK(omnes_ialltoall(comm, out, in, 1, NULL) == OMNES_ERROR_ARGUMENT);
	CHECK(requests[0] == NULL);
}

/* Reduce-scatter, and calls with r bytes at rank r, concurrently. */
static void parts(omnes_comm *comm, int rank, int size)
{
	enum { PARTS = 64, EACH = 5 };
	size_t first, length, lengths[PARTS], equal[PARTS];
	int64_t sum[1000];
	unsigned char own[PARTS], all[PARTS * PARTS], every[PARTS * PARTS], given[PARTS * PARTS],
		got[PARTS], out[PARTS * PARTS], in[PARTS * PARTS];
	omnes_request *requests[EACH];

	CHECK(size <= PARTS);
	for (int k = 0; k < 1000; k++)
		sum[k] = (int64_t)k * rank;
	for (int k = 0, at = 0; k < size; at += k++) {
		lengths[k] = k;
		equal[k] = rank;
		memset(given + at, 100 + k, k);
		memset(out + at, rank, k);
	}
	memset(own, rank, sizeof(own));
	OK(omnes_ireduce_scatter(comm, sum, 1000, OMNES_INT64, OMNES_SUM, &first, &length,
				 &requests[0]));
	OK(omnes_igatherv(comm, own, rank, rank ? NULL : all, rank ? NULL : lengths, 0,
			  &requests[1]));
	OK(omnes_iallgatherv(comm, own, rank, every, lengths, &requests[2]));
	OK(omnes_iscatterv(comm, rank ? NULL : given, rank ? NULL : lengths, got, rank, 0,
			   &requests[3]));
	/* Every rank has k bytes for rank k. */
	OK(omnes_ialltoallv(comm, out, lengths, in, equal, &requests[4]));
	memset(lengths, 0, sizeof(lengths));
	OK(omnes_wait_all(requests, EACH));
	CHECK(length == (size_t)(1000 / size + (rank < 1000 % size)));
	for (size_t k = 0; k < 1000; k++) {
		int is_mine = k >= first && k < first + length;

		CHECK(sum[k] == (int64_t)k * (is_mine ? size * (size - 1) / 2 : rank));
	}
	for (int k = 0, at = 0; k < size; k++) {
		for (int each = 0; each < k; each++, at++)
			CHECK((rank || all[at] == k) && every[at] == k);
		CHECK(k >= rank || got[k] == 100 + rank);
		for (int each = 0; each < rank; each++)
			CHECK(in[k * rank + each] == k);
	}
	CHECK(omnes_iallgatherv(comm, own, 1, every, NULL, requests) == OMNES_ERROR_ARGUMENT);
	CHECK(omnes_igatherv(comm, own, 1, all, lengths, size, requests) == OMNES_ERROR_ARGUMENT);
	CHECK(omnes_iscatterv(comm, given, NULL, got, 1, rank, requests) == OMNES_ERROR_ARGUMENT);
	CHECK(omnes_ialltoallv(comm, out, NULL, in, equal, requests) == OMNES_ERROR_ARGUMENT);
	CHECK(omnes_ireduce_scatter(comm, sum, 1, OMNES_INT64, OMNES_SUM, NULL, &length,
				    requests) == OMNES_ERROR_ARGUMENT);
	CHECK(requests[0] == NULL);
}

/* Probing reports the length of a message before it is received. */
static void probes(omnes_comm *comm, int rank, int size)
{
	int after = (rank + 1) % size, before = (rank + size - 1) % size, found = 7;
	unsigned char out[100], in[100];
	omnes_status status = { -7, -7, 0 }, again;

	memset(out, rank, sizeof(out));
	OK(omnes_iprobe(comm, before, 41, &found, &status));
	CHECK(found == 0 && status.source == -7);
	OK(omnes_send(comm, after, 40, out, sizeof(out)));
	OK(omnes_probe(comm, OMNES_ANY_SOURCE, 40, &status));
	CHECK(status.source == before && status.tag == 40 && status.bytes == sizeof(out));
	OK(omnes_iprobe(comm, before, OMNES_ANY_TAG, &found, &again));
	CHECK(found == 1 && again.source == before && again.bytes == sizeof(out));
	OK(omnes_recv(comm, status.source, status.tag, in, sizeof(in), NULL));
	CHECK(in[0] == before && in[99] == before);
	OK(omnes_iprobe(comm, before, 40, &found, NULL));
	CHECK(found == 0);
	CHECK(omnes_probe(comm, size, 40, &status) == OMNES_ERROR_ARGUMENT);
	CHECK(omnes_iprobe(comm, before, 40, NULL, NULL) == OMNES_ERROR_ARGUMENT);
}

/* A barrier that the last rank enters only after the others have timed out. */
static void missed(omnes_comm *comm, int rank, int last)
{
	char name[32];

	snprintf(name, sizeof(name), "%d", last);
	if (rank == last) {
		for (int from = 0; from < last; from++)
			OK(omnes_recv(comm, from, 4, NULL, 0, NULL));
	} else {
		CHECK(omnes_barrier_timeout(comm, 50) == OMNES_ERROR_BARRIER_TIMEOUT);
		CHECK(strstr(omnes_last_error(), name) != NULL);
		OK(omnes_send(comm, last, 4, NULL, 0));
	}
	OK(omnes_barrier_timeout(comm, 60000));
}

/* A NULL request counts as completed. */
static void nothing(void)
{
	omnes_request *none = NULL;
	int done = 0;

	OK(omnes_test(&none, &done));
	CHECK(done == 1 && none == NULL);
	OK(omnes_wait(&none));
}

/* Requests of a communicator that is freed right after one completes, with others in progress. */
static void of_a_copy(omnes_comm *comm, int rank)
{
	omnes_comm *copy = NULL;
	omnes_request *request, *later, *barrier;
	int number = rank ? 0 : 4711, other = rank ? 0 : 4712;

	OK(omnes_comm_dup(comm, &copy));
	OK(omnes_ibcast(copy, &number, sizeof(number), 0, &request));
	OK(omnes_wait(&request));
	CHECK(number == 4711);
	OK(omnes_ibcast(copy, &other, sizeof(other), 0, &later));
	OK(omnes_ibarrier(copy, &barrier));
	OK(omnes_comm_free(copy));
	OK(omnes_barrier(comm));
	OK(omnes_wait(&later));
	CHECK(other == 4712);
	OK(omnes_wait(&barrier));
}

/* Waits for the error of a request that cannot succeed. */
static void expect_failure(omnes_request **request, int asks, int last)
{
	int code = OMNES_SUCCESS, done = 0;
	char name[32];

	if (asks) {
		while (!done)
			code = omnes_test(request, &done);
	} else {
		code = omnes_wait(request);
	}
	CHECK(code == OMNES_ERROR_PEER_FAILED);
	CHECK(*request == NULL);
	snprintf(name, sizeof(name), "rank %d", last);
	CHECK(strstr(omnes_last_error(), name) != NULL);
}

int main(void)
{
	static unsigned char small[8], large[LARGE];
	omnes_request *requests[4];
	omnes_comm *world = NULL;
	int rank, size, last;

	OK(omnes_init(&world));
	rank = omnes_rank(world);
	size = omnes_size(world);
	last = size - 1;
	nothing();
	many(world, rank, size);
	mixed(world, rank, size);
	of_a_copy(world, rank);
	messages(world, rank, size);
	around(world, rank, size);
	probes(world, rank, size);
	collectives(world, rank, size);
	parts(world, rank, size);
	missed(world, rank, last);
	if (rank == last) {
		/* All other ranks have started operations that can no longer complete. */
		for (int from = 0; from < last; from++)
			OK(omnes_recv(world, from, 2, NULL, 0, NULL));
		_exit(0);
	}
	OK(omnes_ibcast(world, small, sizeof(small), last, &requests[0]));
	OK(omnes_ibcast(world, large, sizeof(large), last, &requests[1]));
	OK(omnes_ibarrier(world, &requests[2]));
	OK(omnes_ibarrier(world, &requests[3]));
	OK(omnes_send(world, last, 2, NULL, 0));
	for (int k = 0; k < 4; k++)
		expect_failure(&requests[k], k % 2, last);
	(void)omnes_finalize(world);
	return 0;
}
