/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The measuring loop for collectives (collbench.h of the peers) on the minimum
 * of a barrier and a broadcast over the kernel's UDP: a lower bound for a
 * library that sends the same packets, on hosts that are namespaces of one
 * machine.
 *
 * The ranks share memory, from which they know what has happened. In addition
 * each rank makes the system calls that it would have to make: in a barrier one
 * datagram to rank 0, and the last rank one to all; in a small broadcast the
 * root one to all. Nobody reads, checks, answers or repairs these datagrams. In
 * a large broadcast the root sends trains of full data packets to all, and each
 * other rank reads them into its buffer; no packet has a head, none is checked
 * or acknowledged, and the root knows the others' progress from the shared
 * memory. A waiting rank yields its processor between polls, and a rank that has
 * received a small broadcast yields before the first step of the next barrier.
 * Omnes starts the job and gathers the results.
 */
#define _GNU_SOURCE
#include "collbench_backend.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum {
	ROOT_PORT = 15000, /* below the ports that the kernel and jobs choose */
	GROUP_PORT,
	TRAIN_PORT,
	RANKS_MAX = 64,
	SLOTS = 64, /* broadcasts by which a root may be ahead of a receiver */
	SLOT_BYTES = 1400,
	/* Data of a packet of 1,500 bytes, and of a train of such packets. */
	PACKET_BYTES = 1472,
	TRAIN_BYTES = 44 * PACKET_BYTES,
	TRAINS_AHEAD = 8, /* beyond the slowest receiver */
	BUFFER_BYTES = 4 << 20,
	STEP_BYTES = 40, /* of a packet without data */
	LINE_BYTES = 64,
};

/* A number with a cache line of its own. */
struct alone {
	_Alignas(LINE_BYTES) _Atomic uint32_t number;
};

struct shared {
	struct alone entered, released, cast;
	struct alone taken[RANKS_MAX];
	struct alone trains[RANKS_MAX]; /* trains that have been read */
	unsigned char slot[SLOTS][SLOT_BYTES];
};

static int rank, size, has_taken;
static struct shared *shared;
static uint32_t barriers, casts, trains;
static int to_root, to_all, to_train, from_train;
static unsigned char packet[STEP_BYTES + SLOT_BYTES];

/* fail ends the job because a call failed. */
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
	if (has_taken)
		sched_yield();
	has_taken = 0;
	if (rank && send(to_root, packet, STEP_BYTES, 0) < 0)
		fail("a datagram to rank 0");
	if (atomic_fetch_add(&shared->entered.number, 1) + 1 == barriers * (uint32_t)size) {
		if (send(to_all, packet, STEP_BYTES, 0) < 0)
			fail("a datagram to all");
		atomic_store_explicit(&shared->released.number, barriers, memory_order_release);
	}
	wait_for(&shared->released.number, barriers);
}

/* wait_for_all blocks until the root is at most `ahead` beyond what each other rank has
 * counted. */
static void wait_for_all(struct alone *counts, int root, uint32_t count, uint32_t ahead)
{
	for (int to = 0; to < size && count > ahead; to++)
		if (to != root)
			wait_for(&counts[to].number, count - ahead);
}

/* receive reads the next train, which may arrive in several parts. */
static void receive(unsigned char *at, size_t bytes)
{
	while (bytes) {
		ssize_t got = recv(from_train, at, bytes, MSG_DONTWAIT);

		if (got < 0 && errno != EAGAIN)
			fail("a train");
		if (got < 0) {
			sched_yield();
			continue;
		}
		at += got;
		bytes -= (size_t)got;
	}
}

static void bcast_large(unsigned char *buffer, size_t bytes, int root)
{
	for (size_t at = 0; at < bytes; at += TRAIN_BYTES) {
		size_t part = bytes - at < TRAIN_BYTES ? bytes - at : TRAIN_BYTES;

		trains++;
		if (rank == root) {
			wait_for_all(shared->trains, root, trains, TRAINS_AHEAD);
			if (send(to_train, buffer + at, part, 0) < 0)
				fail("a train to all");
		} else {
			receive(buffer + at, part);
		}
		atomic_store_explicit(&shared->trains[rank].number, trains, memory_order_release);
	}
	if (rank == root)
		wait_for_all(shared->trains, root, trains, 0);
}

static void bcast(void *buffer, size_t bytes, int root)
{
	unsigned char *slot;

	if (bytes > SLOT_BYTES) {
		bcast_large(buffer, bytes, root);
		return;
	}
	slot = shared->slot[casts++ % SLOTS];
	if (rank == root) {
		wait_for_all(shared->taken, root, casts, SLOTS);
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
	has_taken = 1;
}

/* share_memory maps a file that rank 0 creates and all ranks open, and that is then
 * unlinked. */
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

/* udp returns a socket bound to an address and port, with this much receive buffer. */
static int udp(struct in_addr address, uint16_t port, int room)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons(port),
				   .sin_addr = address };
	int socket_of = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (socket_of < 0 ||
	    setsockopt(socket_of, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)) ||
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

/* join returns a socket that receives what others send to a port of the group. */
static int join(struct ip_mreq membership, uint16_t port, int room)
{
	int socket_of = udp(membership.imr_multiaddr, port, room);

	if (setsockopt(socket_of, IPPROTO_IP, IP_ADD_MEMBERSHIP, &membership, sizeof(membership)))
		fail("a group");
	return socket_of;
}

/* cast_to returns a socket that sends to a port of the group, but not to this host. */
static int cast_to(struct ip_mreq membership, uint16_t port)
{
	int socket_of = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), off = 0;
	struct in_addr from = membership.imr_interface;

	if (socket_of < 0 ||
	    setsockopt(socket_of, IPPROTO_IP, IP_MULTICAST_IF, &from, sizeof(from)) ||
	    setsockopt(socket_of, IPPROTO_IP, IP_MULTICAST_LOOP, &off, sizeof(off)))
		fail("multicast");
	connect_to(socket_of, membership.imr_multiaddr, port);
	return socket_of;
}

/* open_sockets creates the sockets that datagrams leave from and arrive at, on the
 * address that leads to rank 0. */
static void open_sockets(void)
{
	struct in_addr root, any = { .s_addr = htonl(INADDR_ANY) };
	struct sockaddr_in own;
	struct ip_mreq membership;
	socklen_t length = sizeof(own);
	char host[64] = { 0 };
	const char *at = getenv("OMNES_RENDEZVOUS");
	int on = 1, packet_bytes = PACKET_BYTES;

	if (!at || sscanf(at, "%63[0-9.]", host) != 1 || !inet_aton(host, &root)) {
		fprintf(stderr, "floor: OMNES_RENDEZVOUS must be IPv4 and a port\n");
		stop_job(2);
	}
	own.sin_addr = root;
	to_root = udp(any, ROOT_PORT, 1);
	/* At rank 0 it receives what the others send. */
	if (rank) {
		connect_to(to_root, root, ROOT_PORT);
		if (getsockname(to_root, (struct sockaddr *)&own, &length))
			fail("an address");
	}
	membership.imr_interface = own.sin_addr;
	inet_aton("239.193.7.7", &membership.imr_multiaddr);
	join(membership, GROUP_PORT, 1);
	to_all = cast_to(membership, GROUP_PORT);
	from_train = join(membership, TRAIN_PORT, BUFFER_BYTES);
	to_train = cast_to(membership, TRAIN_PORT);
	if (setsockopt(from_train, IPPROTO_UDP, UDP_GRO, &on, sizeof(on)) ||
	    setsockopt(to_train, IPPROTO_UDP, UDP_SEGMENT, &packet_bytes, sizeof(packet_bytes)))
		fail("trains of packets");
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
