/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Who used the machine's processors during a measurement: the ranks, the
 * kernel's ksoftirqd threads (which work for the ranks' packets), or others.
 */
#ifndef PT2PT_CPU_H
#define PT2PT_CPU_H

/* CPU times in seconds; wall_s is time on the clock. */
struct cpu_use {
	double own_s;     /* this process, all its threads */
	double all_s;     /* everybody */
	double softirq_s; /* ksoftirqd threads */
	double wall_s;
};

/* cpu_use_read is the use since some point in the past. */
struct cpu_use cpu_use_read(void);

/* cpu_use_since is the use since an earlier reading. */
struct cpu_use cpu_use_since(const struct cpu_use *before);

/*
 * cpu_share_of_others is the share of all processors, in [0,1], that neither
 * this process nor ksoftirqd nor the peer, which used peer_s seconds, used.
 */
double cpu_share_of_others(const struct cpu_use *used, double peer_s);

#endif
