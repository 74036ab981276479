/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Implements pt2pt_cpu.h, from /proc/stat, getrusage() and /proc/PID/schedstat. */
#define _GNU_SOURCE
#include "pt2pt_cpu.h"
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* ksoftirqd threads are among the first processes of a machine. */
enum { SOFTIRQ_PID_MAX = 1000, SOFTIRQ_THREADS_MAX = 64 };

static double seconds_of(struct timeval time)
{
	return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

static double all_seconds(void)
{
	/* user nice system idle iowait irq softirq */
	unsigned long long ticks[7] = { 0 };
	FILE *file = fopen("/proc/stat", "r");
	int fields;

	if (!file)
		return 0;
	fields = fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu", ticks, ticks + 1, ticks + 2,
			ticks + 3, ticks + 4, ticks + 5, ticks + 6);
	fclose(file);
	if (fields != 7)
		return 0;
	return (double)(ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) /
	       (double)sysconf(_SC_CLK_TCK);
}

/* find_softirq_threads fills pids; returns their number. */
static int find_softirq_threads(int *pids)
{
	int found = 0;

	for (int pid = 2; pid < SOFTIRQ_PID_MAX && found < SOFTIRQ_THREADS_MAX; pid++) {
		char path[64], name[64] = "";
		FILE *file;

		snprintf(path, sizeof(path), "/proc/%d/comm", pid);
		file = fopen(path, "r");
		if (!file)
			continue;
		if (fgets(name, sizeof(name), file) && !strncmp(name, "ksoftirqd/", 10))
			pids[found++] = pid;
		fclose(file);
	}
	return found;
}

static double softirq_seconds(void)
{
	static int pids[SOFTIRQ_THREADS_MAX], count = -1;
	double sum = 0;

	if (count < 0)
		count = find_softirq_threads(pids);
	for (int i = 0; i < count; i++) {
		unsigned long long run_ns;
		char path[64];
		FILE *file;

		snprintf(path, sizeof(path), "/proc/%d/schedstat", pids[i]);
		file = fopen(path, "r");
		if (!file)
			continue;
		if (fscanf(file, "%llu", &run_ns) == 1)
			sum += (double)run_ns / 1e9;
		fclose(file);
	}
	return sum;
}

struct cpu_use cpu_use_read(void)
{
	struct cpu_use use;
	struct rusage usage;
	struct timespec time;

	getrusage(RUSAGE_SELF, &usage);
	use.own_s = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
	use.all_s = all_seconds();
	use.softirq_s = softirq_seconds();
	clock_gettime(CLOCK_MONOTONIC, &time);
	use.wall_s = (double)time.tv_sec + (double)time.tv_nsec / 1e9;
	return use;
}

struct cpu_use cpu_use_since(const struct cpu_use *before)
{
	struct cpu_use use = cpu_use_read();

	use.own_s -= before->own_s;
	use.all_s -= before->all_s;
	use.softirq_s -= before->softirq_s;
	use.wall_s -= before->wall_s;
	return use;
}

double cpu_share_of_others(const struct cpu_use *used, double peer_s)
{
	double others = used->all_s - used->softirq_s - used->own_s - peer_s;
	double share = others / (used->wall_s * (double)sysconf(_SC_NPROCESSORS_ONLN));

	return share < 0 ? 0 : share > 1 ? 1 : share;
}
