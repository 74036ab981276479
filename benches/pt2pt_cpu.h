/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * How the machine's processors were used during a measurement: by the ranks, by
 * the kernel's ksoftirqd threads (which work for the ranks' packets), or by
 * others.
 */
#ifndef PT2PT_CPU_H
#define PT2PT_CPU_H

/* CPU times in seconds; wall_s is elapsed time. */
struct cpu_use {
	double own_s;     /* this process, all its threads */
	double all_s;     /* all processes */
	double softirq_s; /* ksoftirqd threads */
	double wall_s;
};

/* cpu_use_read returns the use since some point in the past. */
struct cpu_use cpu_use_read(void);

/* cpu_use_since returns the use since an earlier reading. */
struct cpu_use cpu_use_since(const struct cpu_use *before);

/*
 * cpu_share_of_others returns the share of all processors, in [0,1], that was
 * used by neither this process nor ksoftirqd nor the peer, which used peer_s
 * seconds.
 */
double cpu_share_of_others(const struct cpu_use *used, double peer_s);

#endif
