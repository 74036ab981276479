/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * omnes.h - collective communication for clusters on plain Ethernet.
 *
 * A job is a fixed set of ranks, each a process, started by `omnes run`,
 * mpirun, srun, torchrun or by hand with OMNES_RANK, OMNES_SIZE and
 * OMNES_RENDEZVOUS (host:port of rank 0) in the environment:
 *
 *	omnes_comm *world;
 *	double weights[1000];
 *
 *	if (omnes_init(&world) != OMNES_SUCCESS) {
 *		fprintf(stderr, "%s\n", omnes_last_error());
 *		return 1;
 *	}
 *	if (omnes_bcast(world, weights, sizeof(weights), 0) != OMNES_SUCCESS)
 *		fprintf(stderr, "%s\n", omnes_last_error());
 *	omnes_finalize(world);
 *
 * Results. Every function that can fail returns 0 or a negative value of
 * enum omnes_error; omnes_rank() and omnes_size() return their number in place
 * of the 0. A call that fails because of an argument has no effect. NULL is an
 * error wherever a comment does not allow it.
 *
 * A rank that dies or is cut off, if only from long packets, is
 * OMNES_ERROR_PEER_FAILED to the others, and named by omnes_last_error() and
 * omnes_last_error_rank(). A communicator with such a member is broken: every
 * operation on it ends so. Calls that do not fit each other, such as a receive
 * of what nobody sends, may wait for ever. With OMNES_COMPARE=on in the
 * environment of all ranks, each collective call, but those that do not block
 * or have a limit, is compared between them before: its root, length, type and
 * operation. Where they differ, it returns OMNES_ERROR_DISAGREEMENT on all
 * ranks before any data are sent, and omnes_last_error() names both calls.
 *
 * Any operation may also return OMNES_ERROR_EXCLUDED, when the others gave up on
 * the caller; OMNES_ERROR_LEFT, when the caller has left the job; and
 * OMNES_ERROR_INTERNAL. Whatever waits for data of another rank may return
 * OMNES_ERROR_GIVEN_UP, when that has given up its part; whatever sends,
 * OMNES_ERROR_TOO_LARGE; whatever enters a barrier, OMNES_ERROR_BARRIER, when
 * omnesd has taken back what ran it; and whatever is collective
 * OMNES_ERROR_COLLECTIVE_GIVEN_UP: a rank, which omnes_last_error_rank() names,
 * could not end a collective operation, other than a broadcast or a barrier,
 * that it had begun, so the communicator has none any more, on any rank. A
 * program that means to go on keeps a communicator aside to make others of.
 * Comments do not repeat these.
 *
 * Messages are bytes; no conversion is made between machines. A pointer to
 * data may be NULL when the number of bytes is 0. Data must not be written by
 * others during a call, and a buffer not be read either. bytes is at most
 * PTRDIFF_MAX.
 *
 * Threads. All functions may be called from any thread. Calls whose comments
 * say collective must come in the same order on all ranks of a communicator, so
 * from one thread at a time. A communicator must not be in use when it is
 * freed. A signal handler may call omnes_error_text(), and omnes_rank() and
 * omnes_size() of a communicator that is not NULL, nothing else. After fork()
 * the child must not call this library.
 */
#ifndef OMNES_H
#define OMNES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header; omnes_version() tells that of the library. */
#define OMNES_VERSION_MAJOR 0
#define OMNES_VERSION_MINOR 1
#define OMNES_VERSION_PATCH 0

/* What calls return; see omnes_error_text() for a sentence on each. */
enum omnes_error {
	OMNES_SUCCESS = 0,
	OMNES_ERROR_NO_LAUNCHER = -1,
	OMNES_ERROR_VARIABLE = -2,
	OMNES_ERROR_JOIN = -3,
	OMNES_ERROR_RANK = -4,
	OMNES_ERROR_TRUNCATED = -5,
	OMNES_ERROR_PEER_FAILED = -6,
	OMNES_ERROR_PEER_LEFT = -7,
	OMNES_ERROR_EXCLUDED = -8,
	OMNES_ERROR_DISAGREEMENT = -9,
	OMNES_ERROR_TOO_MANY_COMMUNICATORS = -10,
	OMNES_ERROR_NO_MULTICAST = -11,
	OMNES_ERROR_TOO_MANY_SCHEMES = -12,
	OMNES_ERROR_NO_NIC = -13,
	OMNES_ERROR_BARRIER_TIMEOUT = -14,
	OMNES_ERROR_MULTISEND = -15,
	OMNES_ERROR_BARRIER = -16,
	OMNES_ERROR_EXCHANGE = -17,
	OMNES_ERROR_EXCHANGE_FAILED = -18,
	OMNES_ERROR_LENGTH = -19,
	OMNES_ERROR_REDUCTION = -20,
	OMNES_ERROR_INTERRUPTED = -21,
	OMNES_ERROR_ALGORITHM = -22,
	OMNES_ERROR_TOO_LARGE = -23,
	OMNES_ERROR_GIVEN_UP = -24,
	OMNES_ERROR_NOT_ALL = -25,
	OMNES_ERROR_LEFT = -26,
	OMNES_ERROR_REQUEST_OVER = -27,
	OMNES_ERROR_COLLECTIVE_GIVEN_UP = -28,
	OMNES_ERROR_ARGUMENT = -100,
	OMNES_ERROR_INTERNAL = -101
};

/* Elements of a reduction. */
enum omnes_type {
	OMNES_INT8 = 1,
	OMNES_INT16 = 2,
	OMNES_INT32 = 3,
	OMNES_INT64 = 4,
	OMNES_UINT8 = 5,
	OMNES_UINT16 = 6,
	OMNES_UINT32 = 7,
	OMNES_UINT64 = 8,
	OMNES_FLOAT = 9,
	OMNES_DOUBLE = 10
};

/*
 * What a reduction makes of two elements. Integers wrap around; a NaN makes
 * every minimum and maximum a NaN; the last three are for integers only.
 */
enum omnes_op {
	OMNES_SUM = 1,
	OMNES_PRODUCT = 2,
	OMNES_MIN = 3,
	OMNES_MAX = 4,
	OMNES_AND = 5,
	OMNES_OR = 6,
	OMNES_XOR = 7
};

enum {
	/* omnes_recv(): a message of any rank, with any tag. */
	OMNES_ANY_SOURCE = -1,
	OMNES_ANY_TAG = -1,
	/* omnes_comm_split(): this rank joins no part. */
	OMNES_NO_COLOR = -1
};

/* A communicator: ranks 0..size-1 with messages of their own. Opaque. */
typedef struct omnes_comm omnes_comm;

/* What omnes_recv() or omnes_irecv() got, or omnes_probe() found. */
typedef struct omnes_status {
	int source;   /* rank that sent it, in the communicator */
	int tag;      /* its tag, in [0,INT_MAX] */
	size_t bytes; /* its length; of a receive at most that of the buffer */
} omnes_status;

/*
 * omnes_init joins the job that the environment describes and waits until all
 * its ranks did. *world gets the communicator of all ranks; it is set to NULL
 * on failure. End it with omnes_finalize().
 * Errors: OMNES_ERROR_ARGUMENT if world is NULL; OMNES_ERROR_NO_LAUNCHER,
 * OMNES_ERROR_VARIABLE or OMNES_ERROR_RANK if the environment says too little
 * or nothing sensible; OMNES_ERROR_JOIN if the ranks do not find each other;
 * OMNES_ERROR_NO_MULTICAST if OMNES_MULTICAST=on and it does not work;
 * OMNES_ERROR_MULTISEND if OMNES_MULTISEND names a tree that cannot be,
 * OMNES_ERROR_NO_NIC if it insists on slots and a rank got none;
 * OMNES_ERROR_PEER_FAILED.
 */
int omnes_init(omnes_comm **world);

/*
 * omnes_finalize waits for all ranks and until what was sent has arrived,
 * leaves the job, and frees world, also when it returns an error other than
 * OMNES_ERROR_ARGUMENT. Collective, and the last act: communicators made from
 * world can then only be freed. A rank that ends without it counts as failed.
 * After an error that others may not have had, they may be waiting for the
 * caller elsewhere, and it for them here: omnes_abandon() does not wait.
 * Errors: OMNES_ERROR_ARGUMENT, without effect, if world is NULL or did not
 * come from omnes_init(); OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_finalize(omnes_comm *world);

/*
 * omnes_abandon leaves the job without waiting for its ranks, and frees world:
 * whoever waits for the caller gets OMNES_ERROR_PEER_LEFT. For ranks that cannot
 * go on; waits for the last answers for a second at most. Where world is NULL,
 * it leaves all jobs of omnes_comm_exchange(). Not collective. Afterwards
 * the job's other communicators can only be freed, and its requests only be
 * ended with omnes_wait().
 * Errors: OMNES_ERROR_ARGUMENT, without effect, if world did not come from
 * omnes_init().
 */
int omnes_abandon(omnes_comm *world);

/*
 * omnes_rank is the rank of the caller in comm, in [0,size-1].
 * Errors: OMNES_ERROR_ARGUMENT if comm is NULL.
 */
int omnes_rank(const omnes_comm *comm);

/*
 * omnes_size is the number of ranks of comm, at least 1.
 * Errors: OMNES_ERROR_ARGUMENT if comm is NULL.
 */
int omnes_size(const omnes_comm *comm);

/*
 * omnes_send sends one message; when it returns, data may be reused. Messages
 * from one rank to another with one tag arrive in the order sent. to is in
 * [0,size-1], tag in [0,INT_MAX]. A message longer than 16 KiB waits until it
 * has arrived, and one above OMNES_EAGER_BYTES until its receiver has asked for
 * it: two ranks that both send such a message first wait for ever, which
 * omnes_sendrecv() and omnes_isend() do not. As with MPI's standard sends, no
 * more than a limit is kept of messages that nobody receives: of those of up to
 * 16 KiB, 4 MiB at the sender for each receiver, each counted with 128 bytes
 * beside its data, beyond which they too wait until they have arrived; and
 * OMNES_POOL_PACKETS packets at the receiver, of all senders together. A rank's
 * messages to itself are kept without limit.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_TOO_LARGE, without effect, for more
 * bytes than 2^30 packets hold; OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_send(omnes_comm *comm, int to, int tag, const void *data, size_t bytes);

/*
 * omnes_recv waits for the oldest message that matches from and tag and that no
 * receive has taken, and copies it to buffer, which has room for bytes. from is
 * in [0,size-1] or OMNES_ANY_SOURCE, tag in [0,INT_MAX] or OMNES_ANY_TAG. status
 * may be NULL; it is written only on success.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_TRUNCATED if the message is longer
 * than bytes, upon which buffer holds its beginning; OMNES_ERROR_PEER_FAILED;
 * OMNES_ERROR_PEER_LEFT if the rank waited for has left the job.
 */
int omnes_recv(omnes_comm *comm, int from, int tag, void *buffer, size_t bytes,
	       omnes_status *status);

/*
 * omnes_probe waits for the oldest message that matches from and tag and that no
 * receive has taken, as omnes_recv() does, but leaves it where it is. *status
 * says how to receive it: omnes_recv() from its source with its tag gets it,
 * unless another thread's was sooner. status may be NULL.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_probe(omnes_comm *comm, int from, int tag, omnes_status *status);

/*
 * omnes_iprobe does what omnes_probe() does without waiting: *found is 1 if
 * there is such a message, else 0, and *status is written only if it is 1. Moves
 * all operations on.
 * Errors: as omnes_probe().
 */
int omnes_iprobe(omnes_comm *comm, int from, int tag, int *found, omnes_status *status);

/*
 * omnes_sendrecv does what omnes_send() and omnes_recv() do at once, so that
 * ranks may exchange messages of any length: bytes at data go to rank to with
 * tag; the message that matches from and wanted comes to buffer, which has room
 * for so many bytes and does not overlap data. status may be NULL; it is written
 * only on success.
 * Errors: those of both. After one other than OMNES_ERROR_TRUNCATED what has not
 * been sent yet is given up.
 */
int omnes_sendrecv(omnes_comm *comm, int to, int tag, const void *data, size_t bytes,
		   int from, int wanted, void *buffer, size_t room, omnes_status *status);

/*
 * omnes_bcast copies the root's buffer into that of every rank. Collective:
 * all ranks give the same bytes and root, which is in [0,size-1]. The root's
 * buffer is not changed. A rank may return before others have the data.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_TOO_LARGE at the root, as in
 * omnes_send(), upon which others wait until it leaves; OMNES_ERROR_TRUNCATED or
 * OMNES_ERROR_DISAGREEMENT if bytes differs; OMNES_ERROR_PEER_FAILED;
 * OMNES_ERROR_PEER_LEFT.
 */
int omnes_bcast(omnes_comm *comm, void *buffer, size_t bytes, int root);

/*
 * omnes_barrier returns when every rank of comm has called it. Collective.
 * Errors: OMNES_ERROR_ARGUMENT if comm is NULL; OMNES_ERROR_PEER_FAILED;
 * OMNES_ERROR_PEER_LEFT.
 */
int omnes_barrier(omnes_comm *comm);

/*
 * omnes_barrier_within does what omnes_barrier() does, but waits for limit_ms
 * milliseconds at most; if one rank calls it, all do, though limits may differ.
 * When the time is over, omnes_last_error() names the ranks that have not come.
 * The barrier remains entered then, and the next one goes on waiting for it;
 * with OMNES_NIC=off only omnes_barrier_within() does.
 * Errors: OMNES_ERROR_ARGUMENT if comm is NULL; OMNES_ERROR_BARRIER_TIMEOUT;
 * OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_barrier_within(omnes_comm *comm, uint64_t limit_ms);

/*
 * omnes_allreduce combines the data of all ranks, element by element; then they
 * are the same everywhere, bit for bit, and again in each run with the same
 * ranks, nodes, settings and figures of the network, also floats. Collective:
 * all ranks give the same count, type, of enum omnes_type, and op, of enum
 * omnes_op; where counts differ, mostly one rank at least gets an error, and so
 * gives the operation up; but the count chooses the way, so ranks that take
 * different ones, as with 1 to 4 elements and more, may all wait until one leaves.
 * Counts, types and operations are compared with OMNES_COMPARE=on alone.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_REDUCTION for OMNES_AND, OMNES_OR
 * and OMNES_XOR of floats; OMNES_ERROR_TRUNCATED or OMNES_ERROR_DISAGREEMENT if
 * count differs; OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_allreduce(omnes_comm *comm, void *data, size_t count, int type, int op);

/*
 * Combines count elements each of into and from, in pairs, into into; commutative
 * and associative, but for omnes_scan_by() and omnes_exscan_by(), where it need be
 * neither. Must return, and must not call this library.
 */
typedef void (*omnes_combine)(void *into, const void *from, size_t count, void *context);

/*
 * omnes_allreduce_by does what omnes_allreduce() does, by a function, the same
 * on all ranks, for elements of bytes_each bytes, at least 1. context is for
 * the function, and may be NULL. Pointers that the function gets need not be
 * aligned.
 * Errors: those of omnes_allreduce().
 */
int omnes_allreduce_by(omnes_comm *comm, void *data, size_t count, size_t bytes_each,
		       omnes_combine combine, void *context);

/*
 * omnes_reduce combines the data of all ranks at root, in [0,size-1]; those of
 * the others serve as room, and mean nothing afterwards. Otherwise as
 * omnes_allreduce().
 */
int omnes_reduce(omnes_comm *comm, void *data, size_t count, int type, int op, int root);

/* omnes_reduce_by is to omnes_reduce() what omnes_allreduce_by() is to omnes_allreduce(). */
int omnes_reduce_by(omnes_comm *comm, void *data, size_t count, size_t bytes_each,
		    omnes_combine combine, void *context, int root);

/*
 * omnes_reduce_scatter combines the data of all ranks, of which each gets a
 * block: *length elements from *first on hold the result, all others what they
 * held. Blocks follow each other in order of ranks, the first ones longer by an
 * element where not all can be equal. Otherwise as omnes_allreduce().
 */
int omnes_reduce_scatter(omnes_comm *comm, void *data, size_t count, int type, int op,
			 size_t *first, size_t *length);

/*
 * omnes_scan combines the data of the caller and of all ranks before it, in
 * order of ranks and from the left, ((d0 op d1) op d2) op d3 at rank 3, and
 * leaves the result in them: floats have the same bits as from a loop that does
 * the same. Collective: all ranks give the same count, type and op; where counts
 * differ, one rank at least gets an error, and so gives the operation up; where
 * those of some come to 4 KiB at most and those of others to more, all may wait
 * until one leaves.
 * Errors: those of omnes_allreduce().
 */
int omnes_scan(omnes_comm *comm, void *data, size_t count, int type, int op);

/*
 * omnes_scan_by is to omnes_scan() what omnes_allreduce_by() is to
 * omnes_allreduce(). What combine gets as into is of lower ranks than from.
 */
int omnes_scan_by(omnes_comm *comm, void *data, size_t count, size_t bytes_each,
		  omnes_combine combine, void *context);

/*
 * omnes_exscan does what omnes_scan() does with the data of the ranks before the
 * caller alone. Those of rank 0, which has none before it, stay as they are.
 */
int omnes_exscan(omnes_comm *comm, void *data, size_t count, int type, int op);

/* omnes_exscan_by is to omnes_exscan() what omnes_scan_by() is to omnes_scan(). */
int omnes_exscan_by(omnes_comm *comm, void *data, size_t count, size_t bytes_each,
		    omnes_combine combine, void *context);

/*
 * omnes_gather brings own of every rank, bytes bytes each, to root, into all,
 * one after the other in order of ranks. all is not looked at on other ranks,
 * and may be NULL there. own and all do not overlap. Collective: all ranks give
 * the same bytes and root; where bytes differs, ranks that take different ways
 * may all wait until one leaves, but for OMNES_COMPARE=on.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_TRUNCATED or
 * OMNES_ERROR_DISAGREEMENT if bytes differs; OMNES_ERROR_PEER_FAILED;
 * OMNES_ERROR_PEER_LEFT.
 */
int omnes_gather(omnes_comm *comm, const void *own, void *all, size_t bytes, int root);

/*
 * omnes_gatherv does what omnes_gather() does, where bytes may differ between
 * ranks, and be 0. lengths has them all, in order of ranks, and all room for
 * their sum; both are not looked at on other ranks than root, and may be NULL
 * there. Collective: all ranks give the same root.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT;
 * at root alone, OMNES_ERROR_TRUNCATED or OMNES_ERROR_DISAGREEMENT if a rank's
 * bytes are not as in lengths: the contents of all are undefined then, and the
 * communicator goes on.
 */
int omnes_gatherv(omnes_comm *comm, const void *own, size_t bytes, void *all,
		  const size_t *lengths, int root);

/*
 * omnes_allgather does what omnes_gather() does, to all ranks. own may be its
 * place in all, bytes times the caller's rank bytes behind it; else they do not
 * overlap.
 */
int omnes_allgather(omnes_comm *comm, const void *own, void *all, size_t bytes);

/*
 * omnes_allgatherv does what omnes_gatherv() does, to all ranks, which all give
 * the same lengths: else OMNES_ERROR_TRUNCATED or OMNES_ERROR_DISAGREEMENT, or,
 * if they have the same sum, bytes in wrong places. own may be its place in
 * all; else they do not overlap.
 */
int omnes_allgatherv(omnes_comm *comm, const void *own, size_t bytes, void *all,
		     const size_t *lengths);

/*
 * omnes_scatter brings to own of every rank its part, of bytes bytes, of the
 * root's all, where they lie one after the other in order of ranks. all is not
 * looked at on other ranks, and may be NULL there. Otherwise as omnes_gather().
 */
int omnes_scatter(omnes_comm *comm, const void *all, void *own, size_t bytes, int root);

/*
 * omnes_scatterv does what omnes_scatter() does, where bytes may differ between
 * ranks, and be 0. lengths has them all, in order of ranks, and all their sum;
 * both are not looked at on other ranks than root, and may be NULL there.
 * Otherwise as omnes_gatherv(), but OMNES_ERROR_TRUNCATED or
 * OMNES_ERROR_DISAGREEMENT at each rank whose bytes are not as in lengths; if
 * root's own are not, at all ranks that expect any.
 */
int omnes_scatterv(omnes_comm *comm, const void *all, const size_t *lengths, void *own,
		   size_t bytes, int root);

/*
 * omnes_alltoall brings part r of every rank's data, bytes bytes each, to rank
 * r, into buffer, in order of the ranks that sent them. Otherwise as
 * omnes_gather().
 */
int omnes_alltoall(omnes_comm *comm, const void *data, void *buffer, size_t bytes);

/*
 * omnes_alltoallv does what omnes_alltoall() does, where parts may be of any
 * lengths, also 0: data_lengths has those of the caller's data, in order of the
 * ranks that they are for, and buffer_lengths those of what comes, in order of
 * the ranks that send it. Collective. Errors: OMNES_ERROR_ARGUMENT;
 * OMNES_ERROR_TRUNCATED or OMNES_ERROR_DISAGREEMENT at a rank that is sent more
 * or less than it expects; OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_alltoallv(omnes_comm *comm, const void *data, const size_t *data_lengths,
		    void *buffer, const size_t *buffer_lengths);

/*
 * An operation that has been started. It progresses by itself. Every request
 * must be ended by omnes_wait(), or by omnes_test() when that says that it is
 * done, before its job is left by omnes_finalize() or omnes_leave(). A request
 * may outlive its communicator, whose omnes_comm_free() does not touch it. One
 * thread at a time uses a request. Opaque.
 */
typedef struct omnes_request omnes_request;

/*
 * omnes_isend starts what omnes_send() does. data must not change until the
 * request has ended. Never waits for another rank: a message for which
 * omnes_send() would is a request that ends later. *request is NULL on failure.
 * Errors: those of omnes_send().
 */
int omnes_isend(omnes_comm *comm, int to, int tag, const void *data, size_t bytes,
		omnes_request **request);

/*
 * omnes_irecv starts what omnes_recv() does. Receives that match one message
 * get it in the order in which they were started. buffer and *status belong to
 * the library until the request has ended; status may be NULL, and is written
 * when it ends well. Never waits for another rank. *request is NULL on failure.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_irecv(omnes_comm *comm, int from, int tag, void *buffer, size_t bytes,
		omnes_status *status, omnes_request **request);

/*
 * omnes_ibcast starts what omnes_bcast() does. buffer belongs to the library
 * until the request has ended: the root only reads it then, others neither read
 * nor write it. Collective: all ranks start it at the same place among their
 * collective calls on comm; any number may be under way. Never waits for
 * another rank. *request is NULL on failure.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_TOO_LARGE at the root, as in
 * omnes_bcast(); OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_ibcast(omnes_comm *comm, void *buffer, size_t bytes, int root,
		 omnes_request **request);

/*
 * omnes_ibarrier enters a barrier, which has ended when every rank of comm has
 * entered it. Collective, as omnes_ibcast() is, and all enter it by this call:
 * where some call omnes_barrier() ranks may wait for ever. At most 1048576 may be
 * under way. Never waits for another rank. *request is NULL on failure.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_BARRIER if too many are under way;
 * OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_ibarrier(omnes_comm *comm, omnes_request **request);

/*
 * omnes_iallreduce starts what omnes_allreduce() does. data belongs to the
 * library until the request has ended. Collective, as omnes_ibcast() is, and all
 * ranks start it by this call; any number may be under way, also of those below.
 * One that ends with an error is given up, and with it all other collectives of
 * comm. A rank whose call is refused takes no part, and leaves the others waiting
 * until it leaves. Never waits for another rank. *request is NULL on failure.
 * Errors: those of omnes_allreduce(), which omnes_test() and omnes_wait() return
 * but for OMNES_ERROR_ARGUMENT and OMNES_ERROR_REDUCTION.
 */
int omnes_iallreduce(omnes_comm *comm, void *data, size_t count, int type, int op,
		     omnes_request **request);

/* omnes_ireduce starts what omnes_reduce() does; otherwise as omnes_iallreduce(). */
int omnes_ireduce(omnes_comm *comm, void *data, size_t count, int type, int op, int root,
		  omnes_request **request);

/*
 * omnes_ireduce_scatter starts what omnes_reduce_scatter() does; otherwise as
 * omnes_iallreduce(). *first and *length are written at once, unless the call
 * is refused.
 */
int omnes_ireduce_scatter(omnes_comm *comm, void *data, size_t count, int type, int op,
			  size_t *first, size_t *length, omnes_request **request);

/*
 * omnes_igather starts what omnes_gather() does; otherwise as omnes_iallreduce().
 * own and all belong to the library until the request has ended: own is only
 * read, all is not looked at but at the root.
 */
int omnes_igather(omnes_comm *comm, const void *own, void *all, size_t bytes, int root,
		  omnes_request **request);

/*
 * omnes_igatherv starts what omnes_gatherv() does; otherwise as omnes_igather(),
 * but comm goes on after the errors after which it does there. lengths may
 * change as soon as it has returned.
 */
int omnes_igatherv(omnes_comm *comm, const void *own, size_t bytes, void *all,
		   const size_t *lengths, int root, omnes_request **request);

/* omnes_iallgather starts what omnes_allgather() does; otherwise as omnes_igather(). */
int omnes_iallgather(omnes_comm *comm, const void *own, void *all, size_t bytes,
		     omnes_request **request);

/*
 * omnes_iallgatherv starts what omnes_allgatherv() does; otherwise as
 * omnes_igather(). lengths may change as soon as it has returned. If they
 * differ between ranks, all may also wait until one leaves.
 */
int omnes_iallgatherv(omnes_comm *comm, const void *own, size_t bytes, void *all,
		      const size_t *lengths, omnes_request **request);

/* omnes_iscatter starts what omnes_scatter() does; otherwise as omnes_igather(). */
int omnes_iscatter(omnes_comm *comm, const void *all, void *own, size_t bytes, int root,
		   omnes_request **request);

/*
 * omnes_iscatterv starts what omnes_scatterv() does; otherwise as
 * omnes_igatherv(). A root whose call is refused sends nothing.
 */
int omnes_iscatterv(omnes_comm *comm, const void *all, const size_t *lengths, void *own,
		    size_t bytes, int root, omnes_request **request);

/* omnes_ialltoall starts what omnes_alltoall() does; otherwise as omnes_igather(). */
int omnes_ialltoall(omnes_comm *comm, const void *data, void *buffer, size_t bytes,
		    omnes_request **request);

/*
 * omnes_ialltoallv starts what omnes_alltoallv() does; otherwise as
 * omnes_igather(). Lengths may change as soon as it has returned.
 */
int omnes_ialltoallv(omnes_comm *comm, const void *data, const size_t *data_lengths,
		     void *buffer, const size_t *buffer_lengths, omnes_request **request);

/*
 * omnes_test says in *done whether the operation has ended, well or with the
 * error that it returns; *request is freed then, and set to NULL. Where it is
 * NULL, *done is 1. Moves all operations on; never waits for another rank.
 * Errors: OMNES_ERROR_ARGUMENT, without effect, if request or done is NULL;
 * else those of the blocking call.
 */
int omnes_test(omnes_request **request, int *done);

/*
 * omnes_wait waits until the operation has ended, also with an error; *request
 * is freed and set to NULL. Where it is NULL, nothing happens.
 * Errors: OMNES_ERROR_ARGUMENT if request is NULL; else those of the blocking
 * call.
 */
int omnes_wait(omnes_request **request);

/*
 * omnes_wait_all does omnes_wait() for each of count requests, also after an
 * error, of which it returns the first. requests may be NULL if count is 0.
 * Errors: OMNES_ERROR_ARGUMENT if requests is NULL; else those of omnes_wait().
 */
int omnes_wait_all(omnes_request **requests, size_t count);

/*
 * omnes_comm_split parts comm: the ranks that give one color, in [0,INT_MAX],
 * form a new communicator, in the order of key, then of their rank in comm.
 * OMNES_NO_COLOR takes part in no part; *part is then NULL, as it is on
 * failure. Collective. Free the result with omnes_comm_free(). A job makes at
 * most 2^27 - 1 communicators in its life, those that were freed counted.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT;
 * OMNES_ERROR_TOO_MANY_COMMUNICATORS; OMNES_ERROR_NO_NIC if OMNES_MULTISEND
 * insists on slots and a rank of the part got none.
 */
int omnes_comm_split(omnes_comm *comm, int color, int64_t key, omnes_comm **part);

/*
 * omnes_comm_dup makes a communicator of the same ranks whose messages are
 * apart from those of comm. Collective. *copy is NULL on failure. Free it with
 * omnes_comm_free().
 * Errors: those of omnes_comm_split().
 */
int omnes_comm_dup(omnes_comm *comm, omnes_comm **copy);

/*
 * omnes_comm_free frees a communicator of omnes_comm_split(), omnes_comm_dup()
 * or omnes_comm_exchange(); its requests may still be under way. Not collective.
 * Errors: OMNES_ERROR_ARGUMENT, without effect, if comm is NULL or came from
 * omnes_init(), which omnes_finalize() frees.
 */
int omnes_comm_free(omnes_comm *comm);

/*
 * Ranks that can exchange by means of their own, such as those of an MPI
 * communicator; no launcher is needed then.
 */
typedef struct omnes_exchange {
	size_t struct_bytes; /* sizeof(omnes_exchange), so that fields can be added */
	int rank; /* the caller's, in [0,size-1] */
	int size; /* at least 1 */
	/*
	 * Gathers bytes bytes of every rank, in order of ranks, into all, which
	 * has room for size * bytes; collective. Returns 0, or what went wrong.
	 * May be called only during omnes_comm_exchange(), on its thread.
	 */
	int (*allgather)(void *context, const void *mine, void *all, size_t bytes);
	void *context; /* for allgather; may be NULL */
	/*
	 * Called now and then by calls that wait, on their thread; may be NULL.
	 * Heeded by the first communicator of a job, for all of them. It may
	 * call omnes_test(), and nothing else of this library.
	 */
	void (*while_waiting)(void);
} omnes_exchange;

/*
 * omnes_comm_exchange makes a communicator of the ranks that exchange, in the
 * same order. The first one makes them a job, with address and key drawn and
 * told through the exchange; later ones whose ranks are all in one job already
 * share it. At most 8 jobs are possible per process, and more that are larger
 * than all before them. Settings come from the environment, as far as they do
 * not name rank and size. Collective, from any thread. ranks is used during the
 * call only. *comm is NULL on failure. Free it with omnes_comm_free().
 * Errors, the same on all ranks: OMNES_ERROR_EXCHANGE if a rank could not join,
 * which omnes_last_error() names; OMNES_ERROR_TOO_MANY_COMMUNICATORS. On the
 * caller alone: OMNES_ERROR_ARGUMENT; OMNES_ERROR_EXCHANGE_FAILED if allgather
 * fails, which it must then do on all ranks or they wait for ever.
 */
int omnes_comm_exchange(const omnes_exchange *ranks, omnes_comm **comm);

/*
 * omnes_comm_nodes is the number of nodes that the ranks of comm are on, at
 * least 1. Without shared memory (OMNES_SHM=off) every rank counts as a node.
 * Errors: OMNES_ERROR_ARGUMENT if comm is NULL.
 */
int omnes_comm_nodes(const omnes_comm *comm);

/*
 * omnes_leave waits for all ranks of all jobs that omnes_comm_exchange() has
 * made, and until what was sent has arrived, and leaves the jobs; without any it
 * does nothing. Collective over the ranks of these jobs, and the last act:
 * communicators of them can then only be freed. A rank that ends without it
 * counts as failed.
 * Errors: OMNES_ERROR_PEER_FAILED; the jobs are left nevertheless.
 */
int omnes_leave(void);

/*
 * omnes_error_text is a sentence on one value of enum omnes_error, or says
 * that there is no such value. Never NULL; valid for ever.
 */
const char *omnes_error_text(int code);

/*
 * omnes_last_error is the full text of the last call on this thread that
 * failed, with what and where, or "" if none did. Calls that succeed leave it.
 * Never NULL; valid until the next failing call on this thread or its end.
 */
const char *omnes_last_error(void);

/*
 * omnes_last_error_rank is the rank that the error of omnes_last_error() names,
 * in the communicator of the call; -1 if it names none, as most do. For
 * OMNES_ERROR_PEER_FAILED, OMNES_ERROR_PEER_LEFT, OMNES_ERROR_GIVEN_UP,
 * OMNES_ERROR_COLLECTIVE_GIVEN_UP, OMNES_ERROR_EXCHANGE and, where calls do not
 * fit each other, OMNES_ERROR_DISAGREEMENT the rank that is concerned; for OMNES_ERROR_EXCLUDED the
 * one that says so, by its rank in the job.
 */
int omnes_last_error_rank(void);

/*
 * omnes_last_error_missing is the number of ranks that had not come to the
 * barrier, where the error of omnes_last_error() is
 * OMNES_ERROR_BARRIER_TIMEOUT; 0 for others. The first of them, room at most,
 * are written to ranks, which may be NULL where room is 0.
 */
size_t omnes_last_error_missing(int *ranks, size_t room);

/*
 * omnes_version is the version of the library, "MAJOR.MINOR.PATCH". Never
 * NULL; valid for ever.
 */
const char *omnes_version(void);

/*
 * omnes_node is a number that the processes of one node have in common and no
 * others: those of one kernel, network namespace and user, which may share
 * memory. 0 where the kernel does not say.
 */
uint64_t omnes_node(void);

#ifdef __cplusplus
}
#endif
#endif
