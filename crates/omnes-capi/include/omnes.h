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
 * Results. Functions that can fail return 0 or a negative enum omnes_error;
 * omnes_rank() and omnes_size() return their value instead of 0. A call that is
 * refused because of an argument has no effect. Pointers must not be NULL unless
 * the comment allows it.
 *
 * Failures. If a rank dies or becomes unreachable, even for long packets only,
 * the other ranks get OMNES_ERROR_PEER_FAILED, and omnes_last_error_rank() tells
 * which rank it was: the caller itself, if it is its own long packets that get
 * lost. Every operation that waits for other ranks of a communicator with a
 * failed member returns this error; a message that has arrived can still be
 * received, and a short one be sent to another member.
 *
 * Mismatched calls, such as a receive that no send matches, may block for ever.
 * With OMNES_COMPARE=on on all ranks, the ranks compare root, length, type and
 * operation before each blocking collective (except barriers with a time limit).
 * If these differ, the call returns OMNES_ERROR_MISMATCH on all ranks before
 * any data are sent, and omnes_last_error() describes both calls.
 *
 * Besides the errors listed with each function, any operation may return:
 *
 *	OMNES_ERROR_DECLARED_FAILED	the other ranks have declared the caller failed
 *	OMNES_ERROR_ALREADY_LEFT	the caller has left the job
 *	OMNES_ERROR_INTERNAL	a bug in this library
 *	OMNES_ERROR_PEER_GAVE_UP	(operations that wait for data of another rank)
 *				that rank has abandoned its part
 *	OMNES_ERROR_TOO_LARGE	(operations that send) the message is too long
 *	OMNES_ERROR_BARRIER	(operations that enter a barrier) omnesd has
 *				withdrawn the slot on which the barrier ran
 *	OMNES_ERROR_COLLECTIVES_BROKEN
 *				(collectives) the rank that
 *				omnes_last_error_rank() names could not complete
 *				a collective other than a broadcast or barrier;
 *				no collective works on this communicator any
 *				more, on any rank. To recover, keep a spare
 *				communicator and create others from it.
 *
 * Data. Messages are bytes; nothing is converted between machines. A pointer to
 * data may be NULL if the number of bytes is 0. During a call, no other thread
 * may write to its data, or read or write its buffer. bytes is at most
 * PTRDIFF_MAX.
 *
 * Threads. All functions may be called from any thread. Functions whose comments
 * say collective must be called in the same order on all ranks of a
 * communicator, so from one thread at a time. A communicator must not be in use
 * when it is freed. A signal handler may only call omnes_error_text(), and
 * omnes_rank() and omnes_size() of a communicator that is not NULL. After fork()
 * the child must not call this library.
 */
#ifndef OMNES_H
#define OMNES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header; omnes_version() returns that of the library. */
#define OMNES_VERSION_MAJOR 0
#define OMNES_VERSION_MINOR 1
#define OMNES_VERSION_PATCH 0

/* What functions return; omnes_error_text() has a sentence on each value. */
enum omnes_error {
	OMNES_SUCCESS = 0,
	OMNES_ERROR_NO_LAUNCHER = -1,
	OMNES_ERROR_INVALID_VARIABLE = -2,
	OMNES_ERROR_JOIN = -3,
	OMNES_ERROR_RANK = -4,
	OMNES_ERROR_TRUNCATED = -5,
	OMNES_ERROR_PEER_FAILED = -6,
	OMNES_ERROR_PEER_LEFT = -7,
	OMNES_ERROR_DECLARED_FAILED = -8,
	OMNES_ERROR_MISMATCH = -9,
	OMNES_ERROR_TOO_MANY_COMMUNICATORS = -10,
	OMNES_ERROR_NO_MULTICAST = -11,
	OMNES_ERROR_TOO_MANY_SCHEMES = -12,
	OMNES_ERROR_NO_NIC = -13,
	OMNES_ERROR_BARRIER_TIMEOUT = -14,
	OMNES_ERROR_MULTISEND = -15,
	OMNES_ERROR_BARRIER = -16,
	OMNES_ERROR_EXCHANGE = -17,
	OMNES_ERROR_EXCHANGE_FAILED = -18,
	OMNES_ERROR_BUFFER_LENGTH = -19,
	OMNES_ERROR_REDUCTION = -20,
	OMNES_ERROR_INTERRUPTED = -21,
	OMNES_ERROR_ALGORITHM = -22,
	OMNES_ERROR_TOO_LARGE = -23,
	OMNES_ERROR_PEER_GAVE_UP = -24,
	OMNES_ERROR_NOT_ALL_RANKS = -25,
	OMNES_ERROR_ALREADY_LEFT = -26,
	OMNES_ERROR_REQUEST_FAILED = -27,
	OMNES_ERROR_COLLECTIVES_BROKEN = -28,
	OMNES_ERROR_ARGUMENT = -100,
	OMNES_ERROR_INTERNAL = -101
};

/* Type of the elements of a reduction. */
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
 * Operation of a reduction. Integers wrap around; minimum and maximum are NaN if
 * any element is; the last three (bitwise) are for integers only.
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
	/* omnes_recv(): from any rank, with any tag. */
	OMNES_ANY_SOURCE = -1,
	OMNES_ANY_TAG = -1,
	/* omnes_comm_split(): no communicator (as MPI_UNDEFINED). */
	OMNES_NO_COLOR = -1
};

/* A communicator: ranks 0..size-1 with their own message context. Opaque. */
typedef struct omnes_comm omnes_comm;

/* What omnes_recv() or omnes_irecv() received, or omnes_probe() found. */
typedef struct omnes_status {
	int source;   /* rank that sent it, in the communicator */
	int tag;      /* its tag, in [0,INT_MAX] */
	size_t bytes; /* its length; after a receive at most that of the buffer */
} omnes_status;

/*
 * omnes_init joins the job that the environment describes, and waits until all
 * its ranks have joined. *world gets the communicator of all ranks; it is set
 * to NULL on failure. End it with omnes_finalize() or omnes_abandon(). Each call
 * makes a job of its own, which all ranks must join.
 * Errors: OMNES_ERROR_ARGUMENT if world is NULL; OMNES_ERROR_NO_LAUNCHER,
 * OMNES_ERROR_INVALID_VARIABLE or OMNES_ERROR_RANK if settings in the
 * environment are missing or invalid; OMNES_ERROR_JOIN if the ranks do not find
 * each other; OMNES_ERROR_NO_MULTICAST if OMNES_MULTICAST=on and multicast does
 * not work;
 * OMNES_ERROR_MULTISEND if OMNES_MULTISEND names a tree that is not possible;
 * OMNES_ERROR_NO_NIC if OMNES_MULTISEND requires slots and a rank got none;
 * OMNES_ERROR_PEER_FAILED.
 */
int omnes_init(omnes_comm **world);

/*
 * omnes_finalize waits for all ranks and until everything sent has arrived,
 * leaves the job, and frees world, even if it returns an error other than
 * OMNES_ERROR_ARGUMENT. Collective, and the last operation: communicators
 * created from world can then only be freed. A rank that exits without it
 * counts as failed. After an error that other ranks may not have had, they may
 * be waiting for the caller elsewhere while it waits for them here: use
 * omnes_abandon(), which does not wait.
 * Errors: OMNES_ERROR_ARGUMENT, without effect, if world is NULL or did not
 * come from omnes_init(); OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_finalize(omnes_comm *world);

/*
 * omnes_abandon leaves the job of omnes_init() without waiting for the other
 * ranks, and frees world; ranks that wait for the caller get
 * OMNES_ERROR_PEER_LEFT. For ranks that cannot continue. Waits at most one
 * second for outstanding acknowledgements. If world is NULL, it leaves all jobs
 * of omnes_comm_exchange() instead. Not collective. Afterwards the job's other
 * communicators can only be freed, and its requests only ended with
 * omnes_wait().
 * Errors: OMNES_ERROR_ARGUMENT, without effect, if world did not come from
 * omnes_init().
 */
int omnes_abandon(omnes_comm *world);

/*
 * omnes_rank returns the rank of the caller in comm, in [0,size-1].
 * Errors: OMNES_ERROR_ARGUMENT if comm is NULL.
 */
int omnes_rank(const omnes_comm *comm);

/*
 * omnes_size returns the number of ranks of comm, at least 1.
 * Errors: OMNES_ERROR_ARGUMENT if comm is NULL.
 */
int omnes_size(const omnes_comm *comm);

/*
 * omnes_send sends one message, and returns when data may be reused. Messages
 * from one rank to another with the same tag arrive in the order sent. to is in
 * [0,size-1], tag in [0,INT_MAX].
 *
 * Up to 16 KiB are copied, and the call returns at once. A longer message
 * blocks until it has arrived, and one above OMNES_EAGER_BYTES until the
 * receiver has posted a matching receive: if two ranks both send such a message
 * to each other first, they deadlock; use omnes_sendrecv() or omnes_isend().
 *
 * As with MPI's standard mode, buffering is limited. The sender copies at most
 * 4 MiB per receiver, counting 128 bytes of overhead per message, and blocks
 * beyond that until the message has arrived. The receiver buffers
 * OMNES_POOL_PACKETS packets of unexpected messages, of all senders together.
 * Messages to oneself are buffered without limit.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_TOO_LARGE, without effect, for more
 * bytes than fit into 2^30 packets; OMNES_ERROR_PEER_FAILED;
 * OMNES_ERROR_PEER_LEFT.
 */
int omnes_send(omnes_comm *comm, int to, int tag, const void *data, size_t bytes);

/*
 * omnes_recv waits for the oldest message that matches from and tag and that no
 * receive has taken yet, and copies it to buffer, which has room for bytes.
 * from is in [0,size-1] or OMNES_ANY_SOURCE, tag in [0,INT_MAX] or
 * OMNES_ANY_TAG. status may be NULL; it is written only on success.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_TRUNCATED if the message is longer
 * than bytes: buffer then holds its beginning; OMNES_ERROR_PEER_FAILED;
 * OMNES_ERROR_PEER_LEFT if the rank waited for has left the job.
 */
int omnes_recv(omnes_comm *comm, int from, int tag, void *buffer, size_t bytes,
	       omnes_status *status);

/*
 * omnes_probe waits for the oldest message that matches from and tag and that
 * no receive has taken yet, as omnes_recv() does, but does not take it. *status
 * says how to receive it: omnes_recv() from its source with its tag gets it,
 * unless another thread's receive got it first. status may be NULL.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_probe(omnes_comm *comm, int from, int tag, omnes_status *status);

/*
 * omnes_iprobe is omnes_probe() without waiting: *found is 1 if there is such a
 * message, else 0, and *status is written only if it is 1. Makes progress on
 * all operations.
 * Errors: as omnes_probe().
 */
int omnes_iprobe(omnes_comm *comm, int from, int tag, int *found, omnes_status *status);

/*
 * omnes_sendrecv does what omnes_send() and omnes_recv() do at the same time,
 * so that ranks can exchange messages of any length. It sends bytes bytes of
 * data to rank to with tag, and receives the message that matches from and
 * receive_tag into buffer, which has room for buffer_bytes and must not overlap
 * data.
 * status may be NULL; it is written only on success.
 * Errors: those of both. After an error other than OMNES_ERROR_TRUNCATED, data
 * still arrive if at most 4 MiB of them had not been sent; otherwise their
 * receiver gets OMNES_ERROR_PEER_GAVE_UP.
 */
int omnes_sendrecv(omnes_comm *comm, int to, int tag, const void *data, size_t bytes,
		   int from, int receive_tag, void *buffer, size_t buffer_bytes,
		   omnes_status *status);

/*
 * omnes_bcast copies the root's buffer into that of every rank. Collective: all
 * ranks pass the same bytes and root, which is in [0,size-1]. The root's buffer
 * is only read, and other threads may read it meanwhile. A rank may return
 * before others have the data.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_TOO_LARGE at the root, as in
 * omnes_send(): the others then wait until it leaves; OMNES_ERROR_TRUNCATED or
 * OMNES_ERROR_MISMATCH if bytes differs; OMNES_ERROR_PEER_FAILED;
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
 * omnes_barrier_timeout is omnes_barrier() with a time limit of limit_ms
 * milliseconds. If one rank calls it, all ranks must; limits may differ. On
 * timeout, omnes_last_error() and omnes_last_error_missing() name the ranks
 * that have not arrived. The caller has still entered the barrier, and its next
 * barrier call continues to wait for it (with OMNES_NIC=off only if that is
 * omnes_barrier_timeout(), too).
 * Errors: OMNES_ERROR_ARGUMENT if comm is NULL; OMNES_ERROR_BARRIER_TIMEOUT;
 * OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_barrier_timeout(omnes_comm *comm, uint64_t limit_ms);

/*
 * omnes_allreduce reduces the data of all ranks element by element; afterwards
 * all ranks have the same result, bit for bit. Floats, too, have the same bits
 * in every run with the same ranks, nodes, settings and network measurements.
 * Collective: all ranks pass the same count, the same type of enum omnes_type,
 * and the same op of enum omnes_op. Types and operations that differ are only
 * detected with OMNES_COMPARE=on. If counts differ, usually at least one rank
 * gets an error, which ends the collectives of comm; but the count selects the
 * algorithm, so ranks with different counts may also block until one leaves,
 * for example if some have 1 to 4 elements and others more. Counts of 1 to 4
 * that differ, or a barrier that meets them, may end without an error and with
 * meaningless results.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_REDUCTION for OMNES_AND, OMNES_OR
 * and OMNES_XOR of floats; OMNES_ERROR_TRUNCATED or OMNES_ERROR_MISMATCH if
 * count differs; OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_allreduce(omnes_comm *comm, void *data, size_t count, int type, int op);

/*
 * Combines count elements of into with those of from, pair by pair, and stores
 * the results in into. The operation must be commutative and associative,
 * except in omnes_scan_by() and omnes_exscan_by(), where neither is needed.
 * Must return normally, and must not call this library. The pointers need not
 * be aligned. context is what the caller passed.
 */
typedef void (*omnes_combine)(void *into, const void *from, size_t count, void *context);

/*
 * omnes_allreduce_by is omnes_allreduce() with a function, the same on all
 * ranks, for elements of bytes_each bytes, at least 1. context is passed to the
 * function, and may be NULL.
 * Errors: those of omnes_allreduce().
 */
int omnes_allreduce_by(omnes_comm *comm, void *data, size_t count, size_t bytes_each,
		       omnes_combine combine, void *context);

/*
 * omnes_reduce reduces the data of all ranks into the data of root, which is in
 * [0,size-1]. data of the other ranks are used as scratch space; their contents
 * are undefined afterwards. Otherwise as omnes_allreduce().
 */
int omnes_reduce(omnes_comm *comm, void *data, size_t count, int type, int op, int root);

/* omnes_reduce_by is omnes_reduce() with a function; see omnes_allreduce_by(). */
int omnes_reduce_by(omnes_comm *comm, void *data, size_t count, size_t bytes_each,
		    omnes_combine combine, void *context, int root);

/*
 * omnes_reduce_scatter reduces the data of all ranks; each rank gets a block of
 * the result. The *length elements from *first on hold the caller's block; the
 * others are unchanged. first and length must not be the same place. Blocks
 * follow in order of ranks; if count is not divisible by the number of ranks,
 * the first blocks have one element more. Otherwise as omnes_allreduce().
 */
int omnes_reduce_scatter(omnes_comm *comm, void *data, size_t count, int type, int op,
			 size_t *first, size_t *length);

/*
 * omnes_scan reduces the data of the caller and of all ranks before it, and
 * replaces the caller's data by the result. Data are combined in order of ranks
 * and from the left, ((d0 op d1) op d2) op d3 at rank 3, so floats have the
 * same bits as from a loop that does the same. Collective: all ranks pass the
 * same count, type and op. If counts differ, at least one rank gets an error,
 * which ends the collectives of comm; but if some ranks have at most 4 KiB and
 * others more, all may block until one leaves.
 * Errors: those of omnes_allreduce().
 */
int omnes_scan(omnes_comm *comm, void *data, size_t count, int type, int op);

/*
 * omnes_scan_by is omnes_scan() with a function; see omnes_allreduce_by(). What
 * combine gets as into comes from lower ranks than from.
 */
int omnes_scan_by(omnes_comm *comm, void *data, size_t count, size_t bytes_each,
		  omnes_combine combine, void *context);

/*
 * omnes_exscan is omnes_scan() without the caller's own data: the result is
 * that of the ranks before the caller. No rank is before rank 0, whose data do
 * not change.
 */
int omnes_exscan(omnes_comm *comm, void *data, size_t count, int type, int op);

/* omnes_exscan_by is omnes_exscan() with a function; see omnes_scan_by(). */
int omnes_exscan_by(omnes_comm *comm, void *data, size_t count, size_t bytes_each,
		    omnes_combine combine, void *context);

/*
 * omnes_gather copies own of every rank, bytes bytes each, into all at root,
 * one after the other in order of ranks. all is ignored on other ranks, and may
 * be NULL there. own and all must not overlap. Collective: all ranks pass the
 * same bytes and root. If bytes differs, ranks may block until one leaves,
 * except with OMNES_COMPARE=on.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_TRUNCATED or
 * OMNES_ERROR_MISMATCH if bytes differs; OMNES_ERROR_PEER_FAILED;
 * OMNES_ERROR_PEER_LEFT.
 */
int omnes_gather(omnes_comm *comm, const void *own, void *all, size_t bytes, int root);

/*
 * omnes_gatherv is omnes_gather() with bytes that may differ between ranks, and
 * be 0. lengths has those of all ranks, in order of ranks, and all has room for
 * their sum; both are ignored on ranks other than root, and may be NULL there.
 * Collective: all ranks pass the same root.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT;
 * only at root, OMNES_ERROR_TRUNCATED or OMNES_ERROR_MISMATCH if bytes of a
 * rank is not as in lengths: the contents of all are then undefined, but the
 * communicator can still be used.
 */
int omnes_gatherv(omnes_comm *comm, const void *own, size_t bytes, void *all,
		  const size_t *lengths, int root);

/*
 * omnes_allgather is omnes_gather() to all ranks. own may be the caller's place
 * in all, which begins at rank times bytes; otherwise they must not overlap.
 */
int omnes_allgather(omnes_comm *comm, const void *own, void *all, size_t bytes);

/*
 * omnes_allgatherv is omnes_gatherv() to all ranks. All ranks pass the same
 * lengths; if they differ, OMNES_ERROR_TRUNCATED or OMNES_ERROR_MISMATCH
 * or, if their sums are equal, bytes in wrong places. own may be the caller's
 * place in all; otherwise they must not overlap.
 */
int omnes_allgatherv(omnes_comm *comm, const void *own, size_t bytes, void *all,
		     const size_t *lengths);

/*
 * omnes_scatter copies to own of every rank its part, of bytes bytes, of all at
 * root, in which parts follow each other in order of ranks. all is ignored on
 * other ranks, and may be NULL there. Otherwise as omnes_gather().
 */
int omnes_scatter(omnes_comm *comm, const void *all, void *own, size_t bytes, int root);

/*
 * omnes_scatterv is omnes_scatter() with bytes that may differ between ranks,
 * and be 0. lengths has those of all ranks, in order of ranks, and all has
 * their sum; both are ignored on ranks other than root, and may be NULL there.
 * Otherwise as omnes_gatherv(), but each rank whose bytes is not as in lengths
 * gets OMNES_ERROR_TRUNCATED or OMNES_ERROR_MISMATCH; if that of root is
 * not, all ranks that expect data get it.
 */
int omnes_scatterv(omnes_comm *comm, const void *all, const size_t *lengths, void *own,
		   size_t bytes, int root);

/*
 * omnes_alltoall sends part r of every rank's data, bytes bytes each, to rank
 * r, which gets these parts in buffer, in order of the ranks that sent them.
 * Otherwise as omnes_gather().
 */
int omnes_alltoall(omnes_comm *comm, const void *data, void *buffer, size_t bytes);

/*
 * omnes_alltoallv is omnes_alltoall() with parts of any lengths, including 0:
 * data_lengths has those of the caller's data, in order of the ranks that they
 * are for, and buffer_lengths those of the parts to receive, in order of the
 * ranks that send them. Collective.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_TRUNCATED or
 * OMNES_ERROR_MISMATCH at a rank that is sent more or less than it expects;
 * OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_alltoallv(omnes_comm *comm, const void *data, const size_t *data_lengths,
		    void *buffer, const size_t *buffer_lengths);

/*
 * An operation that has been started. It makes progress by itself. Every
 * request must be ended, by omnes_wait() or by omnes_test() with *done set to
 * 1, before its job is left by omnes_finalize() or omnes_leave(). A request may
 * outlive its communicator: omnes_comm_free() does not affect it. Only one
 * thread may use a request at a time. Opaque.
 */
typedef struct omnes_request omnes_request;

/*
 * omnes_isend starts omnes_send(). data must not change until the request has
 * ended. Never waits for another rank: if omnes_send() would block, the request
 * ends later. *request is NULL on failure.
 * Errors: those of omnes_send().
 */
int omnes_isend(omnes_comm *comm, int to, int tag, const void *data, size_t bytes,
		omnes_request **request);

/*
 * omnes_irecv starts omnes_recv(). Receives that match the same message get it
 * in the order in which they were started. buffer and *status belong to the
 * library until the request has ended; status may be NULL, and is written only
 * on success. Never waits for another rank. *request is NULL on failure.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_irecv(omnes_comm *comm, int from, int tag, void *buffer, size_t bytes,
		omnes_status *status, omnes_request **request);

/*
 * omnes_ibcast starts omnes_bcast(). buffer belongs to the library until the
 * request has ended: until then the root may only read it, and other ranks must
 * not use it. Collective: all ranks start it at the same place among their
 * collective calls on comm; any number may be in progress. Never waits for
 * another rank. *request is NULL on failure.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_TOO_LARGE at the root, as in
 * omnes_bcast(); OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_ibcast(omnes_comm *comm, void *buffer, size_t bytes, int root,
		 omnes_request **request);

/*
 * omnes_ibarrier enters a barrier, which has ended when every rank of comm has
 * entered it. Collective, as omnes_ibcast(), and all ranks must enter it by
 * this function: if some call omnes_barrier(), ranks may block for ever. At
 * most 1048576 may be in progress. Never waits for another rank. *request is
 * NULL on failure.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_BARRIER if too many are in
 * progress; OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_ibarrier(omnes_comm *comm, omnes_request **request);

/*
 * omnes_iallreduce starts omnes_allreduce(). data belongs to the library until
 * the request has ended. Collective, as omnes_ibcast(), and all ranks must
 * start it by this function; any number may be in progress, including those
 * below. If one ends with an error, no collective works on comm any more. A
 * rank whose call is refused takes no part, and the others wait until it
 * leaves; after OMNES_ERROR_ARGUMENT its next call takes the place of the
 * refused one. OMNES_COMPARE does not compare these calls. Never waits for
 * another rank. *request is NULL on failure.
 * Errors: those of omnes_allreduce(); omnes_test() and omnes_wait() return
 * them, except OMNES_ERROR_ARGUMENT and OMNES_ERROR_REDUCTION, which this
 * function returns.
 */
int omnes_iallreduce(omnes_comm *comm, void *data, size_t count, int type, int op,
		     omnes_request **request);

/* omnes_ireduce starts omnes_reduce(); otherwise as omnes_iallreduce(). */
int omnes_ireduce(omnes_comm *comm, void *data, size_t count, int type, int op, int root,
		  omnes_request **request);

/*
 * omnes_ireduce_scatter starts omnes_reduce_scatter(); otherwise as
 * omnes_iallreduce(). *first and *length are written at once, unless the call
 * is refused.
 */
int omnes_ireduce_scatter(omnes_comm *comm, void *data, size_t count, int type, int op,
			  size_t *first, size_t *length, omnes_request **request);

/*
 * omnes_igather starts omnes_gather(); otherwise as omnes_iallreduce(). own and
 * all belong to the library until the request has ended; own is only read, and
 * all is ignored except at the root.
 */
int omnes_igather(omnes_comm *comm, const void *own, void *all, size_t bytes, int root,
		  omnes_request **request);

/*
 * omnes_igatherv starts omnes_gatherv(); otherwise as omnes_igather(), but comm
 * can still be used after the errors after which it can there. lengths may be
 * reused as soon as the call returns.
 */
int omnes_igatherv(omnes_comm *comm, const void *own, size_t bytes, void *all,
		   const size_t *lengths, int root, omnes_request **request);

/* omnes_iallgather starts omnes_allgather(); otherwise as omnes_igather(). */
int omnes_iallgather(omnes_comm *comm, const void *own, void *all, size_t bytes,
		     omnes_request **request);

/*
 * omnes_iallgatherv starts omnes_allgatherv(); otherwise as omnes_igather().
 * lengths may be reused as soon as the call returns. If they differ between
 * ranks, all may block until one leaves.
 */
int omnes_iallgatherv(omnes_comm *comm, const void *own, size_t bytes, void *all,
		      const size_t *lengths, omnes_request **request);

/* omnes_iscatter starts omnes_scatter(); otherwise as omnes_igather(). */
int omnes_iscatter(omnes_comm *comm, const void *all, void *own, size_t bytes, int root,
		   omnes_request **request);

/*
 * omnes_iscatterv starts omnes_scatterv(); otherwise as omnes_igatherv(). A
 * root whose call is refused sends nothing.
 */
int omnes_iscatterv(omnes_comm *comm, const void *all, const size_t *lengths, void *own,
		    size_t bytes, int root, omnes_request **request);

/* omnes_ialltoall starts omnes_alltoall(); otherwise as omnes_igather(). */
int omnes_ialltoall(omnes_comm *comm, const void *data, void *buffer, size_t bytes,
		    omnes_request **request);

/*
 * omnes_ialltoallv starts omnes_alltoallv(); otherwise as omnes_igather(). The
 * lengths may be reused as soon as the call returns.
 */
int omnes_ialltoallv(omnes_comm *comm, const void *data, const size_t *data_lengths,
		     void *buffer, const size_t *buffer_lengths, omnes_request **request);

/*
 * omnes_test sets *done to 1 if the operation has ended, successfully or with
 * the error that it returns; *request is then freed and set to NULL. If
 * *request is NULL, *done is 1. Makes progress on all operations; never waits
 * for another rank.
 * Errors: OMNES_ERROR_ARGUMENT, without effect, if request or done is NULL;
 * otherwise those of the blocking call.
 */
int omnes_test(omnes_request **request, int *done);

/*
 * omnes_wait waits until the operation has ended, even if with an error;
 * *request is then freed and set to NULL. If *request is NULL, it does nothing.
 * Errors: OMNES_ERROR_ARGUMENT if request is NULL; otherwise those of the
 * blocking call.
 */
int omnes_wait(omnes_request **request);

/*
 * omnes_wait_all calls omnes_wait() for each of count requests, even after an
 * error, and returns the first error. requests may be NULL if count is 0.
 * Errors: OMNES_ERROR_ARGUMENT if requests is NULL; otherwise those of
 * omnes_wait().
 */
int omnes_wait_all(omnes_request **requests, size_t count);

/*
 * omnes_comm_split splits comm: ranks that pass the same color, in [0,INT_MAX],
 * form a new communicator, ordered by key, then by rank in comm. For ranks that
 * pass OMNES_NO_COLOR *part is NULL, as it is on failure. Collective. Free the
 * result with omnes_comm_free(). A job can create at most 2^27 - 1
 * communicators in total, including those that were freed.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT;
 * OMNES_ERROR_TOO_MANY_COMMUNICATORS; OMNES_ERROR_NO_NIC if OMNES_MULTISEND
 * requires slots and a rank of the new communicator got none.
 */
int omnes_comm_split(omnes_comm *comm, int color, int64_t key, omnes_comm **part);

/*
 * omnes_comm_dup creates a communicator of the same ranks, with a message
 * context of its own. Collective. *copy is NULL on failure. Free it with
 * omnes_comm_free().
 * Errors: those of omnes_comm_split().
 */
int omnes_comm_dup(omnes_comm *comm, omnes_comm **copy);

/*
 * omnes_comm_free frees a communicator of omnes_comm_split(), omnes_comm_dup()
 * or omnes_comm_exchange(); its requests may still be in progress. Not
 * collective.
 * Errors: OMNES_ERROR_ARGUMENT, without effect, if comm is NULL or came from
 * omnes_init(), which omnes_finalize() frees.
 */
int omnes_comm_free(omnes_comm *comm);

/*
 * Ranks that can exchange data by means of their own, such as those of an MPI
 * communicator; no launcher is needed then.
 */
typedef struct omnes_exchange {
	size_t struct_bytes; /* sizeof(omnes_exchange), so that fields can be added */
	int rank; /* the caller's, in [0,size-1] */
	int size; /* at least 1 */
	/*
	 * Gathers bytes bytes of every rank, in order of ranks, into all, which
	 * has room for size * bytes. Collective. Returns 0, or an error code;
	 * must return normally. Only called during omnes_comm_exchange(), on its
	 * thread.
	 */
	int (*allgather)(void *context, const void *mine, void *all, size_t bytes);
	void *context; /* passed to allgather; may be NULL */
	/*
	 * Called repeatedly by calls that wait, on their thread; may be NULL.
	 * The one of the first communicator of a job is used for all of its
	 * communicators. It may call omnes_test(), but nothing else of this
	 * library, and must return normally.
	 */
	void (*while_waiting)(void);
} omnes_exchange;

/*
 * omnes_comm_exchange creates a communicator of the ranks of an exchange, in
 * the same order. The first one creates a job for them, with an address and a
 * key that are chosen and told through the exchange; later ones whose ranks are
 * all in one job already share that job. A process can have at most 8 jobs, and
 * beyond that only jobs larger than all before them. Settings come from the
 * environment, except rank and size. Collective; may be called from any thread.
 * ranks is only used during the call. *comm is NULL on failure. Free it with
 * omnes_comm_free(), and leave the jobs with omnes_leave().
 * Errors, the same on all ranks: OMNES_ERROR_EXCHANGE if a rank could not join,
 * which omnes_last_error() names; OMNES_ERROR_TOO_MANY_COMMUNICATORS. On the
 * caller only: OMNES_ERROR_ARGUMENT; OMNES_ERROR_EXCHANGE_FAILED if allgather
 * fails, which it must then do on all ranks, or they wait for ever.
 */
int omnes_comm_exchange(const omnes_exchange *ranks, omnes_comm **comm);

/*
 * omnes_comm_nodes returns the number of nodes that the ranks of comm are on,
 * at least 1. Without shared memory (OMNES_SHM=off) every rank counts as a
 * node.
 * Errors: OMNES_ERROR_ARGUMENT if comm is NULL.
 */
int omnes_comm_nodes(const omnes_comm *comm);

/*
 * omnes_leave leaves all jobs of omnes_comm_exchange(): it waits for all their
 * ranks and until everything sent has arrived. Without such jobs it does
 * nothing. Collective over the ranks of these jobs, and the last operation:
 * their communicators can then only be freed. A rank that exits without it
 * counts as failed.
 * Errors: OMNES_ERROR_PEER_FAILED; the caller leaves the jobs nevertheless.
 */
int omnes_leave(void);

/*
 * omnes_error_text returns a sentence on a value of enum omnes_error, or one
 * that says that there is no such value. Never NULL; valid for ever.
 */
const char *omnes_error_text(int code);

/*
 * omnes_last_error returns the full text of the last failure on this thread,
 * with its details, or "" if nothing has failed. Calls that succeed do not
 * change it. Never NULL; valid until the next failing call on this thread, or
 * the end of the thread.
 */
const char *omnes_last_error(void);

/*
 * omnes_last_error_rank returns the rank that the error of omnes_last_error()
 * names, or -1 if it names none, as most do. For OMNES_ERROR_PEER_FAILED,
 * OMNES_ERROR_PEER_LEFT, OMNES_ERROR_PEER_GAVE_UP,
 * OMNES_ERROR_COLLECTIVES_BROKEN, OMNES_ERROR_EXCHANGE and, if calls are
 * mismatched, OMNES_ERROR_MISMATCH, it is the rank concerned, in the
 * communicator of the call; for OMNES_ERROR_DECLARED_FAILED it is the rank that
 * has declared the caller failed, numbered as in the job.
 */
int omnes_last_error_rank(void);

/*
 * omnes_last_error_missing returns the number of ranks that had not arrived at
 * the barrier if the error of omnes_last_error() is
 * OMNES_ERROR_BARRIER_TIMEOUT, otherwise 0. The first of them, at most
 * ranks_max, are written to ranks, which may be NULL if ranks_max is 0.
 */
size_t omnes_last_error_missing(int *ranks, size_t ranks_max);

/*
 * omnes_version returns the version of the library, "MAJOR.MINOR.PATCH". Never
 * NULL; valid for ever.
 */
const char *omnes_version(void);

/*
 * omnes_node returns a number that is the same in all processes of one node and
 * different on other nodes. A node is one kernel, network namespace and user:
 * its processes may share memory. 0 if the kernel does not tell.
 */
uint64_t omnes_node(void);

#ifdef __cplusplus
}
#endif
#endif
