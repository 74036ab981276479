/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The measuring loop for collectives (collbench.h of the peers) on as little
 * as a barrier or a small broadcast can be: what no library can go below on
 * hosts that are namespaces of one machine.
 *
 * The ranks share memory and know from it what has happened. Beside that each
 * makes the system calls that it would have to make: in a barrier one datagram
 * to rank 0, and the last rank one to all; in a small broadcast the root one to
 * all. Nobody reads, checks, answers or repairs them. A large broadcast is
 * copies alone: one in at the root, one out at each other rank, piece by piece.
 * Who waits gives its processor away between looks. Omnes starts the job and
 * gathers the results.
 */
#define _GNU_SOURCE
#include "collbench_backend.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum {
	ROOT_PORT = 15000, /* below those that the kernel and jobs choose */
	GROUP_PORT,
	RANKS_MAX = 64,
	SLOTS = 64, /* broadcasts that a root may be ahead of a receiver */
	SLOT_BYTES = 1400,
	LARGE_BYTES = 16 << 20,
	PIECE_BYTES = 64 << 10,
	STEP_BYTES = 40, /* of a packet without data */
	LINE_BYTES = 64,
};

/* A number that has its cache line for itself. */
struct alone {
	_Alignas(LINE_BYTES) _Atomic uint32_t number;
};

struct shared {
	struct alone entered, released;
	struct alone cast, pieces;
	struct alone taken[RANKS_MAX];
	unsigned char slot[SLOTS][SLOT_BYTES];
	unsigned char large[LARGE_BYTES];
};

static int rank, size;
static struct shared *shared;
static uint32_t barriers, casts, pieces;
static int to_root, to_all;
static unsigned char packet[STEP_BYTES + SLOT_BYTES];

/* fail ends the job for want of something. */
static void fail(const char *what)
{
	perror(what);
	stop_job(1);
}

static void wait_for(_Atomic uint32_t *number, uint32_t least)
{
	while ((int32_t)(atomic_load_explicit(number, memory_order_acquire) - least) < 0)
		sched_yield();
}

static void barrier(void)
{
	barriers++;
	if (rank && send(to_root, packet, STEP_BYTES, 0) < 0)
		fail("a datagram to rank 0");
	if (atomic_fetch_add(&shared->entered.number, 1) + 1 == barriers * (uint32_t)size) {
		if (send(to_all, packet, STEP_BYTES, 0) < 0)
			fail("a datagram to all");
		atomic_store_explicit(&shared->released.number, barriers, memory_order_release);
	}
	wait_for(&shared->released.number, barriers);
}

/* wait_for_receivers lets a root be no more than `ahead` broadcasts ahead. */
static void wait_for_receivers(int root, uint32_t ahead)
{
	for (int to = 0; to < size && casts > ahead; to++)
		if (to != root)
			wait_for(&shared->taken[to].number, casts - ahead);
}

static void bcast_large(unsigned char *buffer, size_t bytes, int root)
{
	if (bytes > LARGE_BYTES) {
		fprintf(stderr, "floor: broadcasts of up to %d bytes, not %zu\n", LARGE_BYTES,
			bytes);
		stop_job(2);
	}
	if (rank == root)
		wait_for_receivers(root, 1);
	for (size_t at = 0; at < bytes; at += PIECE_BYTES) {
		size_t part = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;

		pieces++;
		if (rank == root) {
			memcpy(shared->large + at, buffer + at, part);
			atomic_store_explicit(&shared->pieces.number, pieces, memory_order_release);
		} else {
			wait_for(&shared->pieces.number, pieces);
			memcpy(buffer + at, shared->large + at, part);
		}
	}
	atomic_store_explicit(&shared->taken[rank].number, casts, memory_order_release);
}

static void bcast(void *buffer, size_t bytes, int root)
{
	unsigned char *slot = shared->slot[casts++ % SLOTS];

	if (bytes > SLOT_BYTES) {
		bcast_large(buffer, bytes, root);
		return;
	}
	if (rank == root) {
		wait_for_receivers(root, SLOTS);
		memcpy(slot, buffer, bytes);
		memcpy(packet + STEP_BYTES, buffer, bytes);
		if (send(to_all, packet, STEP_BYTES + bytes, 0) < 0)
			fail("a datagram to all");
		atomic_store_explicit(&shared->cast.number, casts, memory_order_release);
		atomic_store_explicit(&shared->taken[rank].number, casts, memory_order_release);
		return;
	}
	wait_for(&shared->cast.number, casts);
	memcpy(buffer, slot, bytes);
	atomic_store_explicit(&shared->taken[rank].number, casts, memory_order_release);
}

/* share_memory maps a file that rank 0 makes and all ranks open, and nobody
 * finds afterwards. */
static void share_memory(void)
{
	char path[] = "/tmp/omnes-floor-XXXXXX";
	int file = rank ? -1 : mkstemp(path);

	if (!rank && (file < 0 || ftruncate(file, sizeof(struct shared))))
		fail(path);
	share(path, sizeof(path));
	if (rank && (file = open(path, O_RDWR | O_CLOEXEC)) < 0)
		fail(path);
	shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (shared == MAP_FAILED)
		fail(path);
	checked(omnes_barrier(world), "barrier");
	if (!rank)
		unlink(path);
	close(file);
}

/* udp gives a socket bound to an address and port, which keeps next to nothing of what
 * comes in. */
static int udp(struct in_addr address, uint16_t port)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(port),
				   .sin_addr = address };
	int socket_of = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), little = 1;

	if (socket_of < 0 ||
	    setsockopt(socket_of, SOL_SOCKET, SO_RCVBUF, &little, sizeof(little)) ||
	    bind(socket_of, (struct sockaddr *)&own, sizeof(own)))
		fail("a UDP socket");
	return socket_of;
}

static void connect_to(int socket_of, struct in_addr address, uint16_t port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port),
				  .sin_addr = address };

	if (connect(socket_of, (struct sockaddr *)&to, sizeof(to)))
		fail("an address");
}

/* open_sockets makes what the datagrams leave by and come to, on the address
 * that leads to rank 0. */
static void open_sockets(void)
{
	struct in_addr root, group, any = { .s_addr = htonl(INADDR_ANY) };
	struct sockaddr_in own;
	struct ip_mreq membership;
	socklen_t length = sizeof(own);
	char host[64] = { 0 };
	const char *at = getenv("OMNES_RENDEZVOUS");
	int off = 0, from_all;

	if (!at || sscanf(at, "%63[0-9.]", host) != 1 || !inet_aton(host, &root)) {
		fprintf(stderr, "floor: OMNES_RENDEZVOUS must be IPv4 and a port\n");
		stop_job(2);
	}
	inet_aton("239.193.7.7", &group);
	own.sin_addr = root;
	to_root = udp(any, ROOT_PORT);
	/* At rank 0 it takes in what the others send. */
	if (rank) {
		connect_to(to_root, root, ROOT_PORT);
		if (getsockname(to_root, (struct sockaddr *)&own, &length))
			fail("an address");
	}
	from_all = udp(group, GROUP_PORT);
	membership = (struct ip_mreq){ .imr_multiaddr = group, .imr_interface = own.sin_addr };
	to_all = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (setsockopt(from_all, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof(membership)) ||
	    setsockopt(to_all, IPPROTO_IP, IP_MULTICAST_IF, &own.sin_addr, sizeof(own.sin_addr)) ||
	    setsockopt(to_all, IPPROTO_IP, IP_MULTICAST_LOOP, &off, sizeof(off)))
		fail("multicast");
	connect_to(to_all, group, GROUP_PORT);
}

int main(int argc, char **argv)
{
	struct backend backend;
	int status;

	checked(omnes_init(&world), "init");
	backend = backend_of("floor", barrier, bcast);
	rank = backend.rank;
	size = backend.n;
	if (size > RANKS_MAX) {
		fprintf(stderr, "floor: up to %d ranks\n", RANKS_MAX);
		stop_job(2);
	}
	share_memory();
	open_sockets();
	checked(omnes_barrier(world), "barrier");
	status = collbench_main(argc, argv, &backend);
	checked(omnes_finalize(world), "finalize");
	return status;
}
