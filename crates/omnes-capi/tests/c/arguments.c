/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Every detectably invalid argument is rejected, without effect. */
#include "check.h"
#include <assert.h>
#include <limits.h>
#include <sys/resource.h>

static_assert(OMNES_SUCCESS == 0, "tests of the form if (call) must work");

/* Never called: the arguments are rejected first. */
static int never(void *context, const void *mine, void *all, size_t bytes)
{
	(void)context, (void)mine, (void)all, (void)bytes;
	exit(1);
}

static void refused_exchanges(omnes_comm **out)
{
	omnes_exchange ranks = { .rank = 0, .size = 1, .allgather = never };

	REFUSED(omnes_comm_exchange(NULL, out), "ranks");
	REFUSED(omnes_comm_exchange(&ranks, NULL), "comm");
	REFUSED(omnes_comm_exchange(&ranks, out), "struct_bytes is 0");
	ranks.struct_bytes = sizeof(ranks) + 1;
	REFUSED(omnes_comm_exchange(&ranks, out), "struct_bytes");
	ranks.struct_bytes = sizeof(ranks);
	ranks.size = 0;
	REFUSED(omnes_comm_exchange(&ranks, out), "size");
	ranks.size = 2;
	ranks.rank = 2;
	REFUSED(omnes_comm_exchange(&ranks, out), "rank");
	ranks.rank = -1;
	REFUSED(omnes_comm_exchange(&ranks, out), "rank");
	ranks.rank = 0;
	ranks.size = INT_MAX;
	CHECK(omnes_comm_exchange(&ranks, out) == OMNES_ERROR_EXCHANGE_FAILED);
	CHECK(strstr(omnes_last_error(), "cannot allocate") && *out == NULL);
	ranks.allgather = NULL;
	REFUSED(omnes_comm_exchange(&ranks, out), "allgather");
}

static void refused_without_a_job(void)
{
	omnes_request *request = NULL;
	omnes_comm *out = NULL;
	char byte;
	int done = 7;

	CHECK(!strcmp(omnes_last_error(), ""));
	REFUSED(omnes_init(NULL), "world");
	REFUSED(omnes_finalize(NULL), "NULL");
	REFUSED(omnes_rank(NULL), "comm");
	REFUSED(omnes_size(NULL), "comm");
	REFUSED(omnes_send(NULL, 0, 0, &byte, 1), "comm");
	REFUSED(omnes_recv(NULL, 0, 0, &byte, 1, NULL), "comm");
	REFUSED(omnes_bcast(NULL, &byte, 1, 0), "comm");
	REFUSED(omnes_barrier(NULL), "comm");
	REFUSED(omnes_allreduce(NULL, &byte, 1, OMNES_INT8, OMNES_SUM), "comm");
	REFUSED(omnes_scan(NULL, &byte, 1, OMNES_INT8, OMNES_SUM), "comm");
	REFUSED(omnes_allgather(NULL, &byte, &byte, 1), "comm");
	REFUSED(omnes_alltoall(NULL, &byte, &byte, 1), "comm");
	REFUSED(omnes_gatherv(NULL, &byte, 1, &byte, NULL, 0), "comm");
	REFUSED(omnes_scatterv(NULL, &byte, NULL, &byte, 1, 0), "comm");
	REFUSED(omnes_allgatherv(NULL, &byte, 1, &byte, NULL), "comm");
	REFUSED(omnes_alltoallv(NULL, &byte, NULL, &byte, NULL), "comm");
	REFUSED(omnes_ibcast(NULL, &byte, 1, 0, &request), "comm");
	REFUSED(omnes_ibarrier(NULL, &request), "comm");
	REFUSED(omnes_isend(NULL, 0, 0, &byte, 1, &request), "comm");
	REFUSED(omnes_irecv(NULL, 0, 0, &byte, 1, NULL, &request), "comm");
	REFUSED(omnes_barrier_timeout(NULL, 1), "comm");
	REFUSED(omnes_test(NULL, &done), "request");
	REFUSED(omnes_test(&request, NULL), "done");
	REFUSED(omnes_wait(NULL), "request");
	CHECK(done == 7 && request == NULL);
	REFUSED(omnes_comm_split(NULL, 0, 0, &out), "comm");
	REFUSED(omnes_comm_dup(NULL, &out), "comm");
	REFUSED(omnes_comm_free(NULL), "comm");
	refused_exchanges(&out);
	CHECK(omnes_comm_nodes(NULL) == OMNES_ERROR_ARGUMENT);
	OK(omnes_leave());
	CHECK(out == NULL);
}

static void refused_in_a_job(omnes_comm *world, int size)
{
	omnes_request *request = (omnes_request *)world;
	omnes_comm *out = world;
	size_t huge[4] = { SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX };
	char byte = 0;

	REFUSED(omnes_send(world, -1, 0, &byte, 1), "to");
	REFUSED(omnes_send(world, size, 0, &byte, 1), "to");
	REFUSED(omnes_send(world, 0, -1, &byte, 1), "tag");
	REFUSED(omnes_send(world, 0, 0, NULL, 1), "data");
	REFUSED(omnes_send(world, 0, 0, &byte, SIZE_MAX), "bytes");
	REFUSED(omnes_recv(world, -2, 0, &byte, 1, NULL), "from");
	REFUSED(omnes_recv(world, size, 0, &byte, 1, NULL), "from");
	REFUSED(omnes_recv(world, 0, INT_MIN, &byte, 1, NULL), "tag");
	REFUSED(omnes_recv(world, 0, 0, NULL, 1, NULL), "buffer");
	REFUSED(omnes_recv(world, 0, 0, &byte, SIZE_MAX, NULL), "bytes");
	REFUSED(omnes_allreduce(world, &byte, 1, 0, OMNES_SUM), "type");
	REFUSED(omnes_allreduce(world, &byte, 1, OMNES_INT8, 8), "op");
	REFUSED(omnes_allreduce(world, NULL, 10, OMNES_INT64, OMNES_SUM),
		"data is NULL, but 80 bytes are needed there");
	REFUSED(omnes_allreduce(world, &byte, 1, OMNES_DOUBLE + 1, OMNES_SUM),
		"type is 11; values of enum omnes_type are 1 to 10");
	REFUSED(omnes_allgather(world, &byte, &byte, SIZE_MAX), "bytes is ");
	REFUSED(omnes_allreduce(world, &byte, SIZE_MAX, OMNES_INT16, OMNES_SUM), "count");
	REFUSED(omnes_allreduce_by(world, &byte, 1, 1, NULL, NULL), "combine");
	REFUSED(omnes_reduce(world, &byte, 1, OMNES_INT8, OMNES_SUM, size), "root");
	REFUSED(omnes_reduce_scatter(world, &byte, 1, OMNES_INT8, OMNES_SUM, NULL, NULL), "first");
	REFUSED(omnes_scan(world, &byte, 1, OMNES_INT8, 0), "op");
	REFUSED(omnes_exscan(world, NULL, 1, OMNES_INT8, OMNES_SUM), "data is NULL");
	REFUSED(omnes_scan_by(world, &byte, 1, 1, NULL, NULL), "combine");
	REFUSED(omnes_gather(world, &byte, &byte, 1, -1), "root");
	REFUSED(omnes_scatter(world, &byte, &byte, 1, size), "root");
	REFUSED(omnes_alltoall(world, &byte, NULL, 1), "buffer");
	REFUSED(omnes_gatherv(world, &byte, 1, &byte, huge, size), "root");
	REFUSED(omnes_gatherv(world, &byte, 1, &byte, NULL, omnes_rank(world)), "lengths is NULL");
	REFUSED(omnes_scatterv(world, &byte, huge, &byte, 1, -1), "root");
	REFUSED(omnes_scatterv(world, &byte, NULL, &byte, 1, omnes_rank(world)), "lengths is NULL");
	REFUSED(omnes_allgatherv(world, &byte, 1, &byte, NULL), "lengths is NULL");
	REFUSED(omnes_allgatherv(world, &byte, 1, &byte, huge),
		size > 1 ? "the sum of lengths exceeds the address space" : "all would have");
	REFUSED(omnes_alltoallv(world, &byte, NULL, &byte, huge), "data_lengths is NULL");
	REFUSED(omnes_alltoallv(world, &byte, huge, &byte, NULL), "buffer_lengths is NULL");
	CHECK(omnes_allreduce(world, &byte, 0, OMNES_FLOAT, OMNES_AND) == OMNES_ERROR_REDUCTION);
	REFUSED(omnes_bcast(world, &byte, 1, -1), "root");
	REFUSED(omnes_bcast(world, &byte, 1, size), "root");
	REFUSED(omnes_bcast(world, NULL, 1, 0), "buffer");
	REFUSED(omnes_ibcast(world, &byte, 1, size, &request), "root");
	CHECK(request == NULL);
	REFUSED(omnes_ibcast(world, NULL, 1, 0, &request), "buffer");
	REFUSED(omnes_ibcast(world, &byte, 1, 0, NULL), "request");
	REFUSED(omnes_ibarrier(world, NULL), "request");
	REFUSED(omnes_isend(world, size, 0, &byte, 1, &request), "to");
	REFUSED(omnes_isend(world, 0, -1, &byte, 1, &request), "tag");
	REFUSED(omnes_isend(world, 0, 0, NULL, 1, &request), "data");
	REFUSED(omnes_isend(world, 0, 0, &byte, 1, NULL), "request");
	REFUSED(omnes_irecv(world, size, 0, &byte, 1, NULL, &request), "from");
	REFUSED(omnes_irecv(world, 0, -2, &byte, 1, NULL, &request), "tag");
	REFUSED(omnes_irecv(world, 0, 0, NULL, 1, NULL, &request), "buffer");
	REFUSED(omnes_irecv(world, 0, 0, &byte, 1, NULL, NULL), "request");
	REFUSED(omnes_comm_split(world, -2, 0, &out), "color");
	CHECK(out == NULL);
	REFUSED(omnes_comm_split(world, 0, 0, NULL), "part");
	REFUSED(omnes_comm_dup(world, NULL), "copy");
	REFUSED(omnes_comm_free(world), "omnes_finalize");
}

static void texts(void)
{
	for (int code = -32; code <= 1; code++)
		CHECK(strlen(omnes_error_text(code)) > 0);
	CHECK(strcmp(omnes_error_text(OMNES_SUCCESS), omnes_error_text(OMNES_ERROR_ARGUMENT)));
	CHECK(!strcmp(omnes_error_text(INT_MIN), omnes_error_text(1)));
	CHECK(!strcmp(omnes_version(), getenv("TEST_VERSION")));
	CHECK(omnes_last_error_rank() == -1 && omnes_last_error_missing(NULL, 0) == 0);
}

/* Makes an oversized exchange run out of memory even if the machine overcommits. */
static void limit_memory(void)
{
	struct rlimit limit = { .rlim_cur = (rlim_t)1 << 40, .rlim_max = (rlim_t)1 << 40 };

	OK(setrlimit(RLIMIT_AS, &limit));
}

int main(void)
{
	omnes_comm *world = NULL;
	int ours = 7, got = 0, rank;

	limit_memory();
	refused_without_a_job();
	texts();
	OK(omnes_init(&world));
	rank = omnes_rank(world);
	refused_in_a_job(world, omnes_size(world));

	/* The rejected calls have left the job unchanged. */
	if (rank == 0)
		OK(omnes_send(world, 1, 0, &ours, sizeof(ours)));
	if (rank == 1) {
		OK(omnes_recv(world, 0, 0, &got, sizeof(got), NULL));
		CHECK(got == ours);
	}
	OK(omnes_barrier(world));
	OK(omnes_finalize(world));
	return 0;
}
