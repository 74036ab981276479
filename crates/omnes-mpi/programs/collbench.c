/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A benchmark of the collectives listed in the usage below, nonblocking ones with MPI_Wait, in
 * plain MPI: the same loop measures any library that implements them.
 *
 * The time of an iteration is the longest time that any rank spends in the
 * call, as in OSU's programs and in "omnes bench". Before each iteration the
 * ranks synchronize in MPI_Barrier, as the benchmarks of MPI libraries do, or,
 * with --sync messages, in a barrier of point-to-point messages, which no
 * library accelerates.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	SIZES_MAX = 32,
	MEET_TAG = 32000,
	STALE = 128, /* added to a value, for bytes that belong to no part */
	PASSED_CALLS = 200000, /* per turn of --passed */
	PASSED_TURNS = 9,
};

static const char usage[] =
	"usage: collbench [OPTIONS]\n"
	"  --ops LIST        of bcast,ibcast,barrier,ibarrier,allreduce,reduce,\n"
	"                    allgather,reduce_scatter,iallreduce,ireduce,iallgather,\n"
	"                    gather,scatter,alltoall,allgatherv,gatherv,scatterv,\n"
	"                    alltoallv,scan\n"
	"                    (default: the first four)\n"
	"  --sizes LIST      bytes of a broadcast, of floats to sum, or of one part of\n"
	"                    those for each rank, with k and m (default 8,1k,64k,1m)\n"
	"  --iterations N    per point (default: what fits --budget, 5 to 1000)\n"
	"  --warmup N        iterations before (default 5)\n"
	"  --budget S        seconds per point (default 0.5)\n"
	"  --root N|turns    root of what has one (default 0); turns: each in its turn\n"
	"  --sync barrier|messages  how ranks meet before an iteration (default barrier)\n"
	"  --check           fill and verify every buffer in each iteration, outside the\n"
	"                    timed part (default: in one more, after those that count)\n"
	"  --passed          instead: nanoseconds of calls that are not worth\n"
	"                    accelerating, an empty MPI_Bcast and an MPI_Barrier on\n"
	"                    MPI_COMM_SELF\n"
	"  --json            one JSON line per point instead of a table\n"
	"Status: 0; 1 if data were wrong; 2 for wrong usage.\n";

struct options {
	const char *ops;
	size_t sizes[SIZES_MAX];
	int sizes_count, iterations, warmup, root, is_turns, is_check, is_passed, is_json;
	int is_messages; /* synchronize by messages */
	double budget_s;
};

struct point {
	const char *op;
	size_t bytes;
	int iterations;
	long errors;
	double *longest_us; /* per iteration; sorted */
};

static int rank, size;

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void *allocate(size_t bytes)
{
	void *memory = malloc(bytes ? bytes : 1);

	if (!memory) {
		fprintf(stderr, "collbench: no memory for %zu bytes\n", bytes);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	return memory;
}

/* A dissemination barrier of point-to-point messages. */
static void meet(void)
{
	for (int distance = 1; distance < size; distance *= 2)
		MPI_Sendrecv(NULL, 0, MPI_BYTE, (rank + distance) % size, MEET_TAG, NULL, 0,
			     MPI_BYTE, (rank + size - distance) % size, MEET_TAG, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
}

/* ---- the operations ------------------------------------------------------ */

/* Send buffer of a rank: in place at the root only. */
static const void *brought(const void *buffer, int root)
{
	return rank == root ? MPI_IN_PLACE : buffer;
}

/* True if op is one of these calls. */
static int call_reduction(const char *op, void *buffer, int floats, int root)
{
	if (!strcmp(op, "allreduce"))
		MPI_Allreduce(MPI_IN_PLACE, buffer, floats, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	else if (!strcmp(op, "reduce"))
		MPI_Reduce(brought(buffer, root), rank == root ? buffer : NULL, floats, MPI_FLOAT,
			   MPI_SUM, root, MPI_COMM_WORLD);
	else if (!strcmp(op, "reduce_scatter"))
		MPI_Reduce_scatter_block(MPI_IN_PLACE, buffer, floats, MPI_FLOAT, MPI_SUM,
					 MPI_COMM_WORLD);
	else if (!strcmp(op, "scan"))
		MPI_Scan(MPI_IN_PLACE, buffer, floats, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	else
		return 0;
	return 1;
}

/* Equal parts, with the calls for parts of any lengths; true if op is one of these calls. */
static int call_any_parts(const char *op, unsigned char *buffer, int bytes, int root)
{
	unsigned char *own = buffer + (size_t)rank * (size_t)bytes;
	int counts[size], places[size];

	for (int part = 0; part < size; part++) {
		counts[part] = bytes;
		places[part] = part * bytes;
	}
	if (!strcmp(op, "allgatherv"))
		MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_BYTE, buffer, counts, places, MPI_BYTE,
			       MPI_COMM_WORLD);
	else if (!strcmp(op, "gatherv"))
		MPI_Gatherv(brought(own, root), bytes, MPI_BYTE, buffer, counts, places, MPI_BYTE,
			    root, MPI_COMM_WORLD);
	else if (!strcmp(op, "scatterv"))
		MPI_Scatterv(buffer, counts, places, MPI_BYTE, rank == root ? MPI_IN_PLACE : own,
			     bytes, MPI_BYTE, root, MPI_COMM_WORLD);
	else if (!strcmp(op, "alltoallv"))
		MPI_Alltoallv(buffer, counts, places, MPI_BYTE,
			      buffer + (size_t)size * (size_t)bytes, counts, places, MPI_BYTE,
			      MPI_COMM_WORLD);
	else
		return 0;
	return 1;
}

/* True if op is one of these calls. */
static int call_parts(const char *op, unsigned char *buffer, int bytes, int root)
{
	unsigned char *own = buffer + (size_t)rank * (size_t)bytes;

	if (!strcmp(op, "allgather"))
		MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, buffer, bytes, MPI_BYTE, MPI_COMM_WORLD);
	else if (!strcmp(op, "gather"))
		MPI_Gather(brought(own, root), bytes, MPI_BYTE, buffer, bytes, MPI_BYTE, root,
			   MPI_COMM_WORLD);
	else if (!strcmp(op, "scatter"))
		MPI_Scatter(buffer, bytes, MPI_BYTE, rank == root ? MPI_IN_PLACE : own, bytes,
			    MPI_BYTE, root, MPI_COMM_WORLD);
	else if (!strcmp(op, "alltoall")) /* not in place, for which MPIs use slower algorithms */
		MPI_Alltoall(buffer, bytes, MPI_BYTE, buffer + (size_t)size * (size_t)bytes, bytes,
			     MPI_BYTE, MPI_COMM_WORLD);
	else
		return call_any_parts(op, buffer, bytes, root);
	return 1;
}

/* True if op is a blocking call. */
static int call_blocking(const char *op, void *buffer, size_t bytes, int root)
{
	if (!strcmp(op, "bcast"))
		MPI_Bcast(buffer, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD);
	else if (!strcmp(op, "barrier"))
		MPI_Barrier(MPI_COMM_WORLD);
	else
		return call_reduction(op, buffer, (int)(bytes / sizeof(float)), root) ||
		       call_parts(op, buffer, (int)bytes, root);
	return 1;
}

static void call(const char *op, void *buffer, size_t bytes, int root)
{
	int floats = (int)(bytes / sizeof(float));
	MPI_Request request;

	if (call_blocking(op, buffer, bytes, root))
		return;
	if (!strcmp(op, "ibcast"))
		MPI_Ibcast(buffer, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD, &request);
	else if (!strcmp(op, "iallreduce"))
		MPI_Iallreduce(MPI_IN_PLACE, buffer, floats, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
			       &request);
	else if (!strcmp(op, "ireduce"))
		MPI_Ireduce(brought(buffer, root), rank == root ? buffer : NULL, floats,
			    MPI_FLOAT, MPI_SUM, root, MPI_COMM_WORLD, &request);
	else if (!strcmp(op, "iallgather"))
		MPI_Iallgather(MPI_IN_PLACE, 0, MPI_BYTE, buffer, (int)bytes, MPI_BYTE,
			       MPI_COMM_WORLD, &request);
	else
		MPI_Ibarrier(MPI_COMM_WORLD, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* ---- their data ---------------------------------------------------------- */

static void fill(unsigned char *buffer, size_t bytes, int value)
{
	for (size_t i = 0; i < bytes; i++)
		buffer[i] = (unsigned char)(i * 7 + (size_t)value);
}

static long wrong_bytes(const unsigned char *buffer, size_t bytes, int value)
{
	long wrong = 0;

	for (size_t i = 0; i < bytes; i++)
		wrong += buffer[i] != (unsigned char)(i * 7 + (size_t)value);
	return wrong;
}

static void fill_numbers(float *numbers, size_t count, int value)
{
	for (size_t i = 0; i < count; i++)
		numbers[i] = (float)(i % 8 + (size_t)value);
}

static int is_alltoall(const char *op)
{
	return !strncmp(op, "alltoall", strlen("alltoall"));
}

/* Number of parts in the buffer, each with the bytes of a point. */
static int parts_of(const char *op)
{
	if (is_alltoall(op))
		return 2 * size; /* for each rank, then from each */
	return strstr(op, "gather") || strstr(op, "scatter") ? size : 1;
}

/* Number of a part among the parts of all ranks, each of which has different bytes. */
static int number_of(const char *op, int part)
{
	if (!is_alltoall(op))
		return part;
	return part < size ? rank * size + part : (part - size) * size + rank;
}

/* True if this rank has the part before the call. */
static int is_brought(const char *op, int part, int root)
{
	if (is_alltoall(op))
		return part < size;
	return strstr(op, "gather") ? part == rank : rank == root;
}

/* True if this rank has the part after the call. */
static int is_held(const char *op, int part, int root)
{
	int is_at_root = !strncmp(op, "gather", strlen("gather")) ||
			 !strncmp(op, "scatter", strlen("scatter"));

	return !is_at_root || rank == root || part == rank;
}

static int is_reduction(const char *op)
{
	return strstr(op, "reduce") || strstr(op, "scan");
}

/* Fills in this rank's input of an iteration, and stale values where it receives data. */
static void prepare(const struct point *point, unsigned char *buffer, int iteration, int root)
{
	for (int part = 0; part < parts_of(point->op); part++) {
		unsigned char *place = buffer + (size_t)part * point->bytes;
		int value = iteration + number_of(point->op, part);

		if (is_reduction(point->op))
			fill_numbers((float *)place, point->bytes / sizeof(float), value + rank);
		else
			fill(place, point->bytes,
			     is_brought(point->op, part, root) ? value : value + STALE);
	}
}

/* Number of wrong elements after a reduction; floats represent all sums exactly. */
static long wrong_sums(const struct point *point, const float *numbers, int iteration, int root)
{
	int is_at_root = !strcmp(point->op, "reduce") || !strcmp(point->op, "ireduce");
	/* Input of a reduction at another rank is unchanged. */
	int is_own = is_at_root && rank != root;
	int first = is_own ? rank : 0;
	int last = is_own || !strcmp(point->op, "scan") ? rank : size - 1;
	int value = iteration + (strcmp(point->op, "reduce_scatter") ? 0 : rank);
	long wrong = 0;

	for (size_t i = 0; i < point->bytes / sizeof(float); i++) {
		int sum = 0;

		for (int from = first; from <= last; from++)
			sum += (int)(i % 8) + value + from;
		wrong += numbers[i] != (float)sum;
	}
	return wrong;
}

/* Number of wrong values after an iteration. */
static long verify(const struct point *point, const unsigned char *buffer, int iteration, int root)
{
	long wrong = 0;

	if (is_reduction(point->op))
		return wrong_sums(point, (const float *)buffer, iteration, root);
	for (int part = 0; part < parts_of(point->op); part++)
		if (is_held(point->op, part, root))
			wrong += wrong_bytes(buffer + (size_t)part * point->bytes, point->bytes,
					     iteration + number_of(point->op, part));
	return wrong;
}

/* ---- the loop ------------------------------------------------------------ */

/*
 * Runs one iteration, and checks its data if is_checked; returns this rank's time in the call in
 * us.
 */
static double iterate(const struct options *options, struct point *point, unsigned char *buffer,
		      int iteration, int is_checked)
{
	int root = options->is_turns ? iteration % size : options->root;
	double start, end;

	if (is_checked)
		prepare(point, buffer, iteration, root);
	if (options->is_messages)
		meet();
	else
		MPI_Barrier(MPI_COMM_WORLD);
	start = now_us();
	call(point->op, buffer, point->bytes, root);
	end = now_us();
	if (is_checked)
		point->errors += verify(point, buffer, iteration, root);
	return end - start;
}

static int ascending(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

/* Number of iterations that fit into the budget of the slowest rank; the same on all ranks. */
static int iterations_for(const struct options *options, double one_us)
{
	double slowest_us, count;

	if (options->iterations)
		return options->iterations;
	MPI_Allreduce(&one_us, &slowest_us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	count = options->budget_s * 1e6 / (slowest_us + 1);
	return count < 5 ? 5 : count > 1000 ? 1000 : (int)count;
}

/* Measures one point; afterwards rank 0 has its times. */
static void measure(const struct options *options, struct point *point)
{
	int parts = parts_of(point->op);
	unsigned char *buffer = allocate(point->bytes * (size_t)parts);
	double start = now_us(), *times;
	long errors;

	memset(buffer, 1, point->bytes * (size_t)parts);
	for (int i = 0; i < options->warmup; i++)
		iterate(options, point, buffer, i, options->is_check);
	point->iterations = iterations_for(options, (now_us() - start) / (options->warmup + 1));
	times = allocate(sizeof(*times) * (size_t)point->iterations);
	point->longest_us = allocate(sizeof(*times) * (size_t)point->iterations);
	for (int i = 0; i < point->iterations; i++)
		times[i] = iterate(options, point, buffer, i, options->is_check);
	if (!options->is_check)
		iterate(options, point, buffer, point->iterations, 1);
	MPI_Reduce(times, point->longest_us, point->iterations, MPI_DOUBLE, MPI_MAX, 0,
		   MPI_COMM_WORLD);
	errors = point->errors;
	MPI_Allreduce(&errors, &point->errors, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	qsort(point->longest_us, (size_t)point->iterations, sizeof(*times), ascending);
	free(times);
	free(buffer);
}

/* ---- calls that are passed ----------------------------------------------- */

static void empty_broadcast(void)
{
	MPI_Bcast(NULL, 0, MPI_BYTE, 0, MPI_COMM_SELF);
}

static void empty_broadcast_of_all(void)
{
	MPI_Bcast(NULL, 0, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void own_barrier(void)
{
	MPI_Barrier(MPI_COMM_SELF);
}

/* Median over turns of the time of one call in nanoseconds. */
static double passed_ns(void (*function)(void))
{
	double turns[PASSED_TURNS];

	for (int turn = 0; turn < PASSED_TURNS; turn++) {
		double start = now_us();

		for (int i = 0; i < PASSED_CALLS; i++)
			function();
		turns[turn] = (now_us() - start) * 1e3 / PASSED_CALLS;
	}
	qsort(turns, PASSED_TURNS, sizeof(*turns), ascending);
	return turns[PASSED_TURNS / 2];
}

static void measure_passed(const struct options *options)
{
	static const struct {
		const char *name;
		void (*function)(void);
	} calls[] = {
		{"bcast_empty_self", empty_broadcast},
		{"bcast_empty_world", empty_broadcast_of_all},
		{"barrier_self", own_barrier},
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		double ns;

		meet();
		ns = passed_ns(calls[i].function);
		if (rank)
			continue;
		if (options->is_json)
			printf("{\"op\": \"%s\", \"n\": %d, \"passed_ns\": %.2f}\n", calls[i].name,
			       size, ns);
		else
			printf("%-18s %8.1f ns\n", calls[i].name, ns);
	}
}

/* ---- output and command line --------------------------------------------- */

static double quantile(const struct point *point, double part)
{
	return point->longest_us[(int)(part * (point->iterations - 1) + 0.5)];
}

static void print_point(const struct options *options, const struct point *point)
{
	double median = quantile(point, 0.5), high = quantile(point, 0.99);

	if (rank)
		return;
	if (options->is_json)
		printf("{\"op\": \"%s\", \"n\": %d, \"bytes\": %zu, \"iters\": %d, "
		       "\"median_us\": %.2f, \"p99_us\": %.2f, \"min_us\": %.2f, "
		       "\"errors\": %ld}\n",
		       point->op, size, point->bytes, point->iterations, median, high,
		       point->longest_us[0], point->errors);
	else
		printf("%-14s %9zu %6d %12.1f %12.1f %12.1f %7ld\n", point->op, point->bytes,
		       point->iterations, median, high, point->longest_us[0], point->errors);
	fflush(stdout);
}

/* True if the comma-separated list contains the word. */
static int holds(const char *list, const char *word)
{
	size_t length = strlen(word);

	for (; list; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL)
		if (!strncmp(list, word, length) && (list[length] == ',' || !list[length]))
			return 1;
	return 0;
}

static void usage_exit(int status)
{
	fputs(usage, status ? stderr : stdout);
	exit(status);
}

static void parse_sizes(struct options *options, const char *text)
{
	options->sizes_count = 0;
	while (*text) {
		char *end;
		size_t value = strtoull(text, &end, 10);

		if (end == text || options->sizes_count == SIZES_MAX)
			usage_exit(2);
		if (*end == 'k' || *end == 'm')
			value <<= *end++ == 'k' ? 10 : 20;
		options->sizes[options->sizes_count++] = value;
		text = end + (*end == ',');
	}
}

static struct options parse(int argc, char **argv)
{
	struct options options = {
		.ops = "bcast,ibcast,barrier,ibarrier", .warmup = 5, .budget_s = 0.5};

	parse_sizes(&options, "8,1k,64k,1m");
	for (int i = 1; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "";

		if (!strcmp(argv[i], "--check"))
			options.is_check = 1;
		else if (!strcmp(argv[i], "--passed"))
			options.is_passed = 1;
		else if (!strcmp(argv[i], "--json"))
			options.is_json = 1;
		else if (!strcmp(argv[i], "--help"))
			usage_exit(0);
		else if (++i >= argc)
			usage_exit(2);
		else if (!strcmp(argv[i - 1], "--ops"))
			options.ops = value;
		else if (!strcmp(argv[i - 1], "--sizes"))
			parse_sizes(&options, value);
		else if (!strcmp(argv[i - 1], "--iterations"))
			options.iterations = atoi(value);
		else if (!strcmp(argv[i - 1], "--warmup"))
			options.warmup = atoi(value);
		else if (!strcmp(argv[i - 1], "--budget"))
			options.budget_s = atof(value);
		else if (!strcmp(argv[i - 1], "--sync"))
			options.is_messages = !strcmp(value, "messages");
		else if (!strcmp(argv[i - 1], "--root") && !strcmp(value, "turns"))
			options.is_turns = 1;
		else if (!strcmp(argv[i - 1], "--root"))
			options.root = atoi(value);
		else
			usage_exit(2);
	}
	return options;
}

static long measure_all(const struct options *options)
{
	static const char *const ops[] = {
		"bcast", "ibcast", "barrier", "ibarrier", "allreduce", "reduce", "allgather",
		"iallreduce", "ireduce", "iallgather", "reduce_scatter", "gather", "scatter",
		"alltoall", "allgatherv", "gatherv", "scatterv", "alltoallv", "scan",
	};
	long errors = 0;

	if (rank == 0 && !options->is_json)
		printf("%-14s %9s %6s %12s %12s %12s %7s\n", "operation", "bytes", "times",
		       "median us", "p99 us", "min us", "errors");
	for (size_t op = 0; op < sizeof(ops) / sizeof(*ops); op++) {
		int has_data = !strstr(ops[op], "barrier");
		int points = has_data ? options->sizes_count : 1;

		for (int i = 0; i < points && holds(options->ops, ops[op]); i++) {
			struct point point = {.op = ops[op]};

			if (has_data)
				point.bytes = options->sizes[i];
			measure(options, &point);
			print_point(options, &point);
			errors += point.errors;
			free(point.longest_us);
		}
	}
	return errors;
}

int main(int argc, char **argv)
{
	struct options options = parse(argc, argv);
	long errors = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (options.root < 0 || options.root >= size) {
		fprintf(stderr, "collbench: root %d of %d ranks\n", options.root, size);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	if (options.is_passed)
		measure_passed(&options);
	else
		errors = measure_all(&options);
	MPI_Finalize();
	return errors ? 1 : 0;
}
