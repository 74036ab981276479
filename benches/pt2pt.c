/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The measuring loop of pt2pt.h.
 *
 * latency: rank 0 sends a message and waits until rank 1 has sent it back; half
 * of that time is one sample. bandwidth: rank 0 sends a window of messages and
 * waits for an answer without data, which says that all are in the memory of
 * rank 1; that time divided by the window is one sample. Both calls block, so a
 * library shows what it does by itself and not what a program can overlap.
 *
 * Rank 0 takes the times and decides on the number of iterations; rank 1
 * follows. The data of one round before and one after the timed rounds are
 * checked, byte by byte, by the receiving rank.
 */
#define _GNU_SOURCE
#include "pt2pt.h"
#include "pt2pt_cpu.h"
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LIST_MAX = 32, WARMUP_ROUNDS = 5, ROOT = 0, ECHO = 1 };

static const char USAGE[] =
	"options:\n"
	"  --ops LIST       of latency,bandwidth (default: both)\n"
	"  --sizes LIST     message sizes in bytes, with k and m for KiB and MiB\n"
	"                   (default: 8 for latency, 4m for bandwidth)\n"
	"  --window K       messages before an answer in bandwidth (default 8)\n"
	"  --budget S       seconds a point is measured for (default 0.5)\n"
	"  --warmup S       seconds before that (default 0.3): in its first moments a\n"
	"                   job loads what it needs\n"
	"  --min-iters K    at least K iterations (default 5)\n"
	"  --max-iters K    at most K iterations (default 10000)\n"
	"  --impl NAME      name in the output\n"
	"  --tag KEY=VALUE  goes into every output line; may be repeated\n"
	"One JSON line per point, from rank 0. median_us p99_us min_us mean_us are\n"
	"of one way (latency) or per message (bandwidth); MBps is 10^6 bytes per\n"
	"second at the median; other_cpu is the share of the machine's CPU time that\n"
	"neither the two ranks nor ksoftirqd used but others did; errors is the\n"
	"number of wrong bytes.\n";

enum op { LATENCY, BANDWIDTH, OPS };

static const char *const OP_NAMES[OPS] = { "latency", "bandwidth" };

struct options {
	int ops[OPS];
	size_t sizes[LIST_MAX];
	int sizes_count; /* 0: each operation's own */
	int window, iters_min, iters_max;
	double budget_s, warmup_s;
	const char *impl;
	char tags[512];
};

/* One point: an operation at one size. */
struct point {
	const struct pt2pt_backend *backend;
	const struct options *options;
	enum op op;
	size_t bytes;
	int window; /* messages per iteration */
	unsigned char *buffer;
};

static double now_us(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

/* take allocates bytes, at least 1, or ends the job if it cannot. */
static void *take(const struct pt2pt_backend *backend, size_t bytes)
{
	void *memory = malloc(bytes ? bytes : 1);

	if (!memory) {
		fprintf(stderr, "pt2pt: no memory for %zu bytes\n", bytes);
		backend->stop(1);
		exit(1);
	}
	return memory;
}

/* agree copies rank 0's bytes at value to rank 1. */
static void agree(const struct pt2pt_backend *backend, void *value, size_t bytes)
{
	if (backend->rank == ROOT)
		backend->send(ECHO, value, bytes);
	else
		backend->recv(ROOT, value, bytes);
}

/* report returns rank 1's number at rank 0, and 0 at rank 1. */
static double report(const struct pt2pt_backend *backend, double number)
{
	if (backend->rank == ROOT) {
		backend->recv(ECHO, &number, sizeof(number));
		return number;
	}
	backend->send(ROOT, &number, sizeof(number));
	return 0;
}

/* ---- one iteration ---------------------------------------------------- */

static void round_trip(const struct point *point)
{
	const struct pt2pt_backend *backend = point->backend;

	if (backend->rank == ROOT) {
		backend->send(ECHO, point->buffer, point->bytes);
		backend->recv(ECHO, point->buffer, point->bytes);
	} else {
		backend->recv(ROOT, point->buffer, point->bytes);
		backend->send(ROOT, point->buffer, point->bytes);
	}
}

static void window_of_messages(const struct point *point)
{
	const struct pt2pt_backend *backend = point->backend;

	for (int i = 0; i < point->window; i++) {
		if (backend->rank == ROOT)
			backend->send(ECHO, point->buffer, point->bytes);
		else
			backend->recv(ROOT, point->buffer, point->bytes);
	}
	if (backend->rank == ROOT)
		backend->recv(ECHO, NULL, 0);
	else
		backend->send(ROOT, NULL, 0);
}

/* iterate runs one iteration; returns the time per message, in us. */
static double iterate(const struct point *point)
{
	double start = now_us();

	if (point->op == LATENCY)
		round_trip(point);
	else
		window_of_messages(point);
	return (now_us() - start) / (point->op == LATENCY ? 2 : point->window);
}

/* ---- checks ----------------------------------------------------------- */

static unsigned char pattern(size_t index, unsigned salt)
{
	unsigned long long mixed = (index + salt) * 0x9e3779b97f4a7c15ull;

	return (unsigned char)(mixed >> 56);
}

/*
 * wrong_bytes runs one round trip with known data; returns the number of wrong
 * bytes received here. The echo inverts every byte, so that rank 0 cannot
 * mistake what it has sent for what came back.
 */
static double wrong_bytes(const struct point *point, unsigned salt)
{
	const struct pt2pt_backend *backend = point->backend;
	double wrong = 0;

	for (size_t i = 0; i < point->bytes; i++)
		point->buffer[i] = backend->rank == ROOT ? pattern(i, salt) : 0xee;
	if (backend->rank == ROOT) {
		backend->send(ECHO, point->buffer, point->bytes);
		backend->recv(ECHO, point->buffer, point->bytes);
		for (size_t i = 0; i < point->bytes; i++)
			wrong += point->buffer[i] != (unsigned char)~pattern(i, salt);
		return wrong;
	}
	backend->recv(ROOT, point->buffer, point->bytes);
	for (size_t i = 0; i < point->bytes; i++) {
		wrong += point->buffer[i] != pattern(i, salt);
		point->buffer[i] = (unsigned char)~point->buffer[i];
	}
	backend->send(ROOT, point->buffer, point->bytes);
	return wrong;
}

/* ---- a point ---------------------------------------------------------- */

static int ascending(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

/* quantile returns a quantile of samples in ascending order, by nearest rank. */
static double quantile(const double *samples, int count, double share)
{
	int index = (int)ceil(share * count) - 1;

	return samples[index < 0 ? 0 : index];
}

static double median(const double *samples, int count)
{
	int half = count / 2;

	return count % 2 ? samples[half] : (samples[half - 1] + samples[half]) / 2;
}

/* print_point runs at rank 0 and sorts samples. */
static void print_point(const struct point *point, double *samples, int iters, double other_cpu,
			double errors)
{
	const struct options *options = point->options;
	double sum = 0, middle;

	qsort(samples, (size_t)iters, sizeof(*samples), ascending);
	for (int i = 0; i < iters; i++)
		sum += samples[i];
	middle = median(samples, iters);
	printf("{\"impl\": \"%s\"%s, \"op\": \"%s\", \"n\": %d, \"bytes\": %zu, \"iters\": %d",
	       options->impl, options->tags, OP_NAMES[point->op], point->backend->size,
	       point->bytes, iters);
	printf(", \"median_us\": %.2f, \"p99_us\": %.2f, \"min_us\": %.2f, \"mean_us\": %.2f",
	       middle, quantile(samples, iters, 0.99), samples[0], sum / iters);
	if (point->op == BANDWIDTH)
		printf(", \"window\": %d, \"MBps\": %.3f", point->window,
		       (double)point->bytes / middle);
	printf(", \"other_cpu\": %.3f, \"errors\": %.0f}\n", other_cpu, errors);
	fflush(stdout);
}

/* warm_up iterates for the warm-up time. */
static void warm_up(const struct point *point)
{
	double start = now_us();
	int goes_on;

	do {
		for (int i = 0; i < WARMUP_ROUNDS; i++)
			iterate(point);
		goes_on = now_us() - start < point->options->warmup_s * 1e6;
		agree(point->backend, &goes_on, sizeof(goes_on));
	} while (goes_on);
}

/* choose_iters returns the iterations that fit the budget; the same on both ranks. */
static int choose_iters(const struct point *point)
{
	const struct options *options = point->options;
	double start, each_us, fitting;
	int iters = options->iters_min, warmup = WARMUP_ROUNDS;

	start = now_us();
	iterate(point);
	/* A slow point needs no more warm-up than the first iteration. */
	if (now_us() - start > options->budget_s * 1e6 / 10)
		warmup = 1;
	agree(point->backend, &warmup, sizeof(warmup));
	start = now_us();
	for (int i = 0; i < warmup; i++)
		iterate(point);
	each_us = (now_us() - start) / warmup;
	fitting = options->budget_s * 1e6 / (each_us > 0.1 ? each_us : 0.1);
	if (fitting > iters)
		iters = fitting > options->iters_max ? options->iters_max : (int)fitting;
	agree(point->backend, &iters, sizeof(iters));
	return iters;
}

/* measure runs one point; returns the number of wrong bytes, on rank 0. */
static double measure(struct point *point)
{
	const struct pt2pt_backend *backend = point->backend;
	struct cpu_use before, used;
	double errors, other, *samples;
	int iters;

	point->buffer = take(backend, point->bytes);
	errors = wrong_bytes(point, 1);
	warm_up(point);
	iters = choose_iters(point);
	samples = take(backend, (size_t)iters * sizeof(*samples));
	before = cpu_use_read();
	for (int i = 0; i < iters; i++)
		samples[i] = iterate(point);
	used = cpu_use_since(&before);
	other = cpu_share_of_others(&used, report(backend, used.own_s));
	errors += wrong_bytes(point, 2);
	errors += report(backend, errors);
	if (backend->rank == ROOT)
		print_point(point, samples, iters, other, errors);
	free(samples);
	free(point->buffer);
	return errors;
}

/* ---- the command line ------------------------------------------------- */

/* parse_size reads a size at *text and moves past it; 0 if none is there. */
static int parse_size(const char **text, size_t *bytes)
{
	char *end;
	double number = strtod(*text, &end);

	if (end == *text || number < 0)
		return 0;
	if (*end == 'k' || *end == 'K') {
		number *= 1 << 10;
		end++;
	} else if (*end == 'm' || *end == 'M') {
		number *= 1 << 20;
		end++;
	}
	*bytes = (size_t)number;
	*text = end;
	return 1;
}

static int parse_sizes(const char *text, struct options *options)
{
	options->sizes_count = 0;
	do {
		if (options->sizes_count == LIST_MAX)
			return 0;
		if (!parse_size(&text, &options->sizes[options->sizes_count++]))
			return 0;
	} while (*text++ == ',');
	return !text[-1];
}

static int parse_ops(const char *text, struct options *options)
{
	memset(options->ops, 0, sizeof(options->ops));
	for (;;) {
		size_t length = strcspn(text, ",");
		int op = 0;

		while (op < OPS && (strlen(OP_NAMES[op]) != length ||
				    strncmp(text, OP_NAMES[op], length)))
			op++;
		if (op == OPS)
			return 0;
		options->ops[op] = 1;
		if (!text[length])
			return 1;
		text += length + 1;
	}
}

/* add_tag appends KEY=VALUE as JSON; numbers stay numbers. 0 for an invalid tag. */
static int add_tag(const char *text, struct options *options)
{
	const char *equals = strchr(text, '='), *quote;
	size_t used = strlen(options->tags), room = sizeof(options->tags) - used;
	char *end;
	int length;

	if (!equals || equals == text || strpbrk(text, "\"\\"))
		return 0;
	(void)strtod(equals + 1, &end);
	quote = equals[1] && !*end ? "" : "\"";
	length = snprintf(options->tags + used, room, ", \"%.*s\": %s%s%s", (int)(equals - text),
			  text, quote, equals + 1, quote);
	return length >= 0 && (size_t)length < room;
}

/* parse_options fills options; 0 for wrong usage. */
static int parse_options(int argc, char **argv, struct options *options)
{
	static const struct option names[] = {
		{ "ops", 1, NULL, 'o' },       { "sizes", 1, NULL, 's' },
		{ "window", 1, NULL, 'w' },    { "budget", 1, NULL, 'b' },
		{ "min-iters", 1, NULL, 'm' }, { "max-iters", 1, NULL, 'M' },
		{ "impl", 1, NULL, 'i' },      { "tag", 1, NULL, 't' },
		{ "warmup", 1, NULL, 'u' },
		{ NULL, 0, NULL, 0 },
	};
	int name, good = 1;

	while ((name = getopt_long(argc, argv, "", names, NULL)) != -1) {
		switch (name) {
		case 'o': good &= parse_ops(optarg, options); break;
		case 's': good &= parse_sizes(optarg, options); break;
		case 'w': options->window = atoi(optarg); break;
		case 'b': options->budget_s = atof(optarg); break;
		case 'm': options->iters_min = atoi(optarg); break;
		case 'M': options->iters_max = atoi(optarg); break;
		case 'u': options->warmup_s = atof(optarg); break;
		case 'i': options->impl = optarg; break;
		case 't': good &= add_tag(optarg, options); break;
		default: good = 0;
		}
	}
	return good && optind == argc && options->window > 0 && options->iters_min > 0 &&
	       options->iters_max >= options->iters_min;
}

int pt2pt_run(int argc, char **argv, const struct pt2pt_backend *backend)
{
	static const size_t own_sizes[OPS] = { 8, 4 << 20 };
	struct options options = { .ops = { 1, 1 }, .window = 8, .iters_min = 5,
				   .iters_max = 10000, .budget_s = 0.5, .warmup_s = 0.3,
				   .impl = backend->impl };
	double errors = 0;

	if (!parse_options(argc, argv, &options) || backend->size != 2) {
		if (backend->rank == ROOT)
			fprintf(stderr, "%s%s", backend->size == 2 ? "" : "pt2pt: needs 2 ranks\n",
				USAGE);
		return 2;
	}
	for (int op = 0; op < OPS; op++) {
		int count = options.sizes_count ? options.sizes_count : 1;

		for (int i = 0; options.ops[op] && i < count; i++) {
			struct point point = { .backend = backend, .options = &options,
					       .op = (enum op)op, .window = options.window };

			point.bytes = options.sizes_count ? options.sizes[i] : own_sizes[op];
			errors += measure(&point);
		}
	}
	return errors > 0;
}
