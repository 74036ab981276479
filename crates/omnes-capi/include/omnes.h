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
 * omnes_rank() and omnes_size() return their value instead of 0. A call
 * rejected because of an argument has no effect. Pointers must not be NULL
 * unless the comment of the function allows it.
 *
 * Failures. If a rank dies or becomes unreachable, even if only for long
 * packets, the other ranks get OMNES_ERROR_PEER_FAILED, and
 * omnes_last_error_rank() returns the failed rank: the caller itself, if it is
 * the caller's own long packets that are lost. Every operation that waits for
 * other ranks of a communicator with a failed member returns this error; a
 * message that has already arrived can still be received, and a short message
 * can still be sent to another member.
 *
 * Mismatched calls, such as a receive that no send matches, may block forever.
 * With OMNES_COMPARE=on on all ranks, the ranks compare root, length, type and
 * operation before each blocking collective (except barriers with a time
 * limit). If any of these differ, the call returns OMNES_ERROR_MISMATCH on all
 * ranks before any data are sent, and omnes_last_error() describes both calls.
 *
 * In addition to the errors listed for each function, any operation may return:
 *
 *	OMNES_ERROR_DECLARED_FAILED	the other ranks have declared the caller failed
 *	OMNES_ERROR_ALREADY_LEFT	the caller has left the job
 *	OMNES_ERROR_INTERNAL	a bug in this library
 *	OMNES_ERROR_PEER_GAVE_UP	(operations that wait for another rank's data)
 *				that rank has abandoned its part
 *	OMNES_ERROR_TOO_LARGE	(operations that send) the message is too long
 *	OMNES_ERROR_BARRIER	(operations that enter a barrier) omnesd has
 *				withdrawn the slot that the barrier used
 *	OMNES_ERROR_COLLECTIVES_BROKEN
 *				(collectives) the rank that
 *				omnes_last_error_rank() returns could not complete
 *				a collective other than a broadcast or barrier;
 *				no collective works on this communicator any
 *				more, on any rank. To recover, keep a spare
 *				communicator and create others from it.
 *
 * Data. Messages are sequences of bytes and are never converted between
 * machines. A pointer to data may be NULL if the number of bytes is 0. During a
 * call, other threads must not write to its data, nor read or write its buffer.
 * bytes is at most PTRDIFF_MAX.
 *
 * Threads. All functions may be called from any thread. Functions documented as
 * collective must be called in the same order on all ranks of a communicator,
 * and so by one thread at a time. A communicator must not be in use when it is
 * freed. A signal handler may call only omnes_error_text(), and omnes_rank()
 * and omnes_size() on a communicator that is not NULL. After fork() the child
 * must not call this library.
 */
#ifndef OMNES_H
#define OMNES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header; omnes_version() returns the library's. */
#define OMNES_VERSION_MAJOR 0
#define OMNES_VERSION_MINOR 1
#define OMNES_VERSION_PATCH 0

/* Result codes; omnes_error_text() describes each of them. */
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

/* Element type of a reduction. */
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
 * Operation of a reduction. Integers wrap around; minimum and maximum are NaN
 * if any element is NaN; the last three operations are bitwise and for integers
 * only.
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
	/* omnes_recv(): any sender, any tag. */
	OMNES_ANY_SOURCE = -1,
	OMNES_ANY_TAG = -1,
	/* omnes_comm_split(): no communicator (like MPI_UNDEFINED). */
	OMNES_NO_COLOR = -1
};

/* A communicator: ranks 0..size-1 with their own message context. Opaque. */
typedef struct omnes_comm omnes_comm;

/* A message that was received, or found by omnes_probe() or omnes_iprobe(). */
typedef struct omnes_status {
	int source;   /* rank of the sender in the communicator */
	int tag;      /* tag, in [0,INT_MAX] */
	size_t bytes; /* length; after a receive at most that of the buffer */
} omnes_status;

/*
 * omnes_init joins the job described by the environment, and waits until all
 * its ranks have joined. *world is set to the communicator of all ranks, or to
 * NULL on failure. Release it with omnes_finalize() or omnes_abandon(). Each
 * call creates a separate job, which all ranks must join.
 * Errors: OMNES_ERROR_ARGUMENT if world is NULL; OMNES_ERROR_NO_LAUNCHER,
 * OMNES_ERROR_INVALID_VARIABLE or OMNES_ERROR_RANK if settings in the
 * environment are missing or invalid; OMNES_ERROR_JOIN if the ranks do not find
 * each other; OMNES_ERROR_NO_MULTICAST if OMNES_MULTICAST=on and multicast does
 * not work; OMNES_ERROR_MULTISEND if OMNES_MULTISEND names an impossible tree;
 * OMNES_ERROR_NO_NIC if OMNES_MULTISEND requires slots and a rank got none;
 * OMNES_ERROR_PEER_FAILED.
 */
int omnes_init(omnes_comm **world);

/*
 * omnes_finalize waits until all ranks have called it and everything sent has
 * arrived, leaves the job, and frees world, even if it returns an error other
 * than OMNES_ERROR_ARGUMENT. Collective, and the last operation: afterwards,
 * communicators created from world can only be freed. A rank that exits without
 * calling it counts as failed. After an error that other ranks may not have
 * seen, they may be waiting for the caller in another call while the caller
 * waits for them here: use omnes_abandon(), which does not wait.
 * Errors: OMNES_ERROR_ARGUMENT, without effect, if world is NULL or was not
 * created by omnes_init(); OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_finalize(omnes_comm *world);

/*
 * omnes_abandon leaves the job of world without waiting for the other ranks,
 * and frees world; ranks waiting for the caller get OMNES_ERROR_PEER_LEFT. It
 * is meant for ranks that cannot continue. It waits at most one second for
 * outstanding acknowledgements. If world is NULL, it leaves all jobs created by
 * omnes_comm_exchange() instead. Not collective. Afterwards, the job's other
 * communicators can only be freed, and its requests only completed with
 * omnes_wait().
 * Errors: OMNES_ERROR_ARGUMENT, without effect, if world was not created by
 * omnes_init().
 */
int omnes_abandon(omnes_comm *world);

/*
 * omnes_rank returns the caller's rank in comm, in [0,size-1].
 * Errors: OMNES_ERROR_ARGUMENT if comm is NULL.
 */
int omnes_rank(const omnes_comm *comm);

/*
 * omnes_size returns the number of ranks in comm, at least 1.
 * Errors: OMNES_ERROR_ARGUMENT if comm is NULL.
 */
int omnes_size(const omnes_comm *comm);

/*
 * omnes_send sends one message, and returns when data may be reused. Messages
 * from one rank to another with the same tag arrive in the order in which they
 * are sent. to is in [0,size-1], tag in [0,INT_MAX].
 *
 * A message of up to 16 KiB is copied, and the call returns immediately. A
 * longer message blocks the caller until it has arrived, and one longer than
 * OMNES_EAGER_BYTES until the receiver has posted a matching receive: two ranks
 * that first send such messages to each other deadlock; use omnes_sendrecv() or
 * omnes_isend().
 *
 * As with MPI's standard mode, buffering is limited. The sender copies at most
 * 4 MiB per receiver, counting 128 bytes of overhead per message, and beyond
 * that blocks until the message has arrived. The receiver buffers
 * OMNES_POOL_PACKETS packets of unexpected messages from all senders together.
 * Messages of a rank to itself are buffered without limit.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_TOO_LARGE, without effect, for more
 * bytes than fit into 2^30 packets; OMNES_ERROR_PEER_FAILED;
 * OMNES_ERROR_PEER_LEFT.
 */
int omnes_send(omnes_comm *comm, int to, int tag, const void *data, size_t bytes);

/*
 * omnes_recv waits for the oldest message that matches from and tag and has not
 * been received yet, and copies it to buffer, which has room for bytes bytes.
 * from is in [0,size-1] or OMNES_ANY_SOURCE, tag in [0,INT_MAX] or
 * OMNES_ANY_TAG. status may be NULL; it is written only on success.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_TRUNCATED if the message is longer
 * than bytes: buffer then holds the beginning of the message;
 * OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT if the rank waited for has
 * left the job.
 */
int omnes_recv(omnes_comm *comm, int from, int tag, void *buffer, size_t bytes,
	       omnes_status *status);

/*
 * omnes_probe waits for a message like omnes_recv(), but does not receive it:
 * omnes_recv() with the source and tag in *status gets this message, unless
 * another thread receives it first. status may be NULL.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_probe(omnes_comm *comm, int from, int tag, omnes_status *status);

/*
 * omnes_iprobe is omnes_probe() without waiting: *found is set to 1 if there is
 * such a message, otherwise to 0; *status is written only if *found is 1. Makes
 * progress on all operations.
 * Errors: those of omnes_probe().
 */
int omnes_iprobe(omnes_comm *comm, int from, int tag, int *found, omnes_status *status);

/*
 * omnes_sendrecv performs omnes_send() and omnes_recv() concurrently, so that
 * ranks can exchange messages of any length. It sends bytes bytes of data to
 * rank to with tag, and receives the message that matches from and receive_tag
 * into buffer, which has room for buffer_bytes bytes and must not overlap data.
 * status may be NULL; it is written only on success.
 * Errors: those of omnes_send() and omnes_recv(). After an error other than
 * OMNES_ERROR_TRUNCATED, data still arrive if at most 4 MiB of data were still
 * unsent; otherwise the receiver gets OMNES_ERROR_PEER_GAVE_UP.
 */
int omnes_sendrecv(omnes_comm *comm, int to, int tag, const void *data, size_t bytes,
		   int from, int receive_tag, void *buffer, size_t buffer_bytes,
		   omnes_status *status);

/*
 * omnes_bcast copies the root's buffer into the buffer of every other rank.
 * Collective: all ranks pass the same bytes and the same root, in [0,size-1].
 * The root's buffer is only read, and other threads may read it during the
 * call. The call may return on one rank before other ranks have the data.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_TOO_LARGE at the root, as in
 * omnes_send(): the other ranks then wait until the root leaves;
 * OMNES_ERROR_TRUNCATED or OMNES_ERROR_MISMATCH if bytes differs;
 * OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
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
 * timeout, omnes_last_error() and omnes_last_error_missing() report the ranks
 * that have not entered the barrier. The caller has still entered it, and the
 * caller's next barrier call resumes waiting for it (with OMNES_NIC=off, only
 * if that call is omnes_barrier_timeout(), too).
 * Errors: OMNES_ERROR_ARGUMENT if comm is NULL; OMNES_ERROR_BARRIER_TIMEOUT;
 * OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_barrier_timeout(omnes_comm *comm, uint64_t limit_ms);

/*
 * omnes_allreduce reduces the data of all ranks element by element and stores
 * the result, identical bit for bit, in the data of every rank. Floating-point
 * results, too, are bit-identical in every run with the same ranks, nodes,
 * settings and network measurements. Collective: all ranks pass the same count,
 * the same type of enum omnes_type, and the same op of enum omnes_op. Types and
 * operations that differ are detected only with OMNES_COMPARE=on. If counts
 * differ, usually at least one rank gets an error, after which no collective
 * works on comm; but the count selects the algorithm, so ranks with different
 * counts may also block until one of them leaves, for example if some pass 1 to
 * 4 elements and others more. Different counts of 1 to 4, or such a call
 * matched by a barrier, may return meaningless results without an error.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_REDUCTION for OMNES_AND, OMNES_OR
 * and OMNES_XOR on floating-point types; OMNES_ERROR_TRUNCATED or
 * OMNES_ERROR_MISMATCH if count differs; OMNES_ERROR_PEER_FAILED;
 * OMNES_ERROR_PEER_LEFT.
 */
int omnes_allreduce(omnes_comm *comm, void *data, size_t count, int type, int op);

/*
 * Combines count elements of into with those of from, pair by pair, and stores
 * the results in into. The operation must be commutative and associative,
 * except for omnes_scan_by() and omnes_exscan_by(), which require neither. The
 * function must return normally, and must not call this library. The pointers
 * need not be aligned. context is the pointer passed along with the function.
 */
typedef void (*omnes_combine)(void *into, const void *from, size_t count, void *context);

/*
 * omnes_allreduce_by is omnes_allreduce() with a user-defined operation, the
 * same on all ranks, on elements of bytes_each bytes, at least 1. context is
 * passed to combine, and may be NULL.
 * Errors: those of omnes_allreduce().
 */
int omnes_allreduce_by(omnes_comm *comm, void *data, size_t count, size_t bytes_each,
		       omnes_combine combine, void *context);

/*
 * omnes_reduce reduces the data of all ranks into the data of root, in
 * [0,size-1]. On the other ranks, data is used as scratch space, and its
 * contents are undefined afterwards. Otherwise like omnes_allreduce().
 */
int omnes_reduce(omnes_comm *comm, void *data, size_t count, int type, int op, int root);

/* omnes_reduce_by is omnes_reduce() with combine; see omnes_allreduce_by(). */
int omnes_reduce_by(omnes_comm *comm, void *data, size_t count, size_t bytes_each,
		    omnes_combine combine, void *context, int root);

/*
 * omnes_reduce_scatter reduces the data of all ranks; each rank gets one block
 * of the result, in place: the *length elements of data starting at index
 * *first. The other elements are unchanged. first and length must not be equal.
 * The blocks are in rank order; if count is not divisible by the number of
 * ranks, the first blocks have one more element. Otherwise like
 * omnes_allreduce().
 */
int omnes_reduce_scatter(omnes_comm *comm, void *data, size_t count, int type, int op,
			 size_t *first, size_t *length);

/*
 * omnes_scan reduces the data of the caller and of all lower ranks, and
 * replaces the caller's data with the result. Data are combined in rank order
 * from the left, ((d0 op d1) op d2) op d3 at rank 3, so floating-point results
 * are bit-identical to those of a sequential loop. Collective: all ranks pass
 * the same count, type and op. If counts differ, at least one rank gets an
 * error, after which no collective works on comm; but if some ranks have at
 * most 4 KiB and others more, all may block until one leaves.
 * Errors: those of omnes_allreduce().
 */
int omnes_scan(omnes_comm *comm, void *data, size_t count, int type, int op);

/*
 * omnes_scan_by is omnes_scan() with an operation as in omnes_allreduce_by().
 * The into argument of combine holds data of lower ranks than from.
 */
int omnes_scan_by(omnes_comm *comm, void *data, size_t count, size_t bytes_each,
		  omnes_combine combine, void *context);

/*
 * omnes_exscan is omnes_scan() without the caller's own data: only the data of
 * lower ranks are reduced. The data of rank 0 do not change.
 */
int omnes_exscan(omnes_comm *comm, void *data, size_t count, int type, int op);

/* omnes_exscan_by is omnes_exscan() with an operation as in omnes_scan_by(). */
int omnes_exscan_by(omnes_comm *comm, void *data, size_t count, size_t bytes_each,
		    omnes_combine combine, void *context);

/*
 * omnes_gather copies own of every rank, bytes bytes each, into all at root,
 * contiguously and in rank order. all is ignored on other ranks, and may be
 * NULL there. own and all must not overlap. Collective: all ranks pass the same
 * bytes and root. If bytes differs, ranks may block until one of them leaves,
 * except with OMNES_COMPARE=on.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_TRUNCATED or
 * OMNES_ERROR_MISMATCH if bytes differs; OMNES_ERROR_PEER_FAILED;
 * OMNES_ERROR_PEER_LEFT.
 */
int omnes_gather(omnes_comm *comm, const void *own, void *all, size_t bytes, int root);

/*
 * omnes_gatherv is omnes_gather() with bytes that may differ between ranks, and
 * be 0. lengths holds the bytes of each rank, in rank order, and all has room
 * for their sum; both are ignored on ranks other than root, and may be NULL
 * there. Collective: all ranks pass the same root.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT;
 * only at root, OMNES_ERROR_TRUNCATED or OMNES_ERROR_MISMATCH if a rank's bytes
 * differs from its entry in lengths: the contents of all are then undefined,
 * but the communicator can still be used.
 */
int omnes_gatherv(omnes_comm *comm, const void *own, size_t bytes, void *all,
		  const size_t *lengths, int root);

/*
 * omnes_allgather is omnes_gather() to all ranks. own may be the caller's block
 * of all, at offset rank * bytes; otherwise own and all must not overlap.
 */
int omnes_allgather(omnes_comm *comm, const void *own, void *all, size_t bytes);

/*
 * omnes_allgatherv is omnes_gatherv() to all ranks. All ranks pass the same
 * lengths; if they differ, the call returns OMNES_ERROR_TRUNCATED or
 * OMNES_ERROR_MISMATCH or, if their sums are equal, misplaced data; after these
 * errors no collective works on comm any more. A rank whose own bytes differ from
 * its lengths gets OMNES_ERROR_MISMATCH and does not participate: the other ranks
 * wait until it calls again or leaves. own may be the caller's block of all;
 * otherwise own and all must not overlap.
 */
int omnes_allgatherv(omnes_comm *comm, const void *own, size_t bytes, void *all,
		     const size_t *lengths);

/*
 * omnes_scatter copies block r of all at root, bytes bytes, into own of rank r,
 * for every rank r. The blocks are contiguous and in rank order. all is ignored
 * on other ranks, and may be NULL there. Otherwise like omnes_gather().
 */
int omnes_scatter(omnes_comm *comm, const void *all, void *own, size_t bytes, int root);

/*
 * omnes_scatterv is omnes_scatter() with bytes that may differ between ranks,
 * and be 0. lengths holds the bytes of each rank, in rank order, and all has
 * their sum; both are ignored on ranks other than root, and may be NULL there.
 * Otherwise like omnes_gatherv(), but each rank whose bytes differs from its
 * entry in lengths gets OMNES_ERROR_TRUNCATED or OMNES_ERROR_MISMATCH; if the
 * root's bytes differs, all ranks that expect data get this error.
 */
int omnes_scatterv(omnes_comm *comm, const void *all, const size_t *lengths, void *own,
		   size_t bytes, int root);

/*
 * omnes_alltoall sends block r of every rank's data, bytes bytes each, to rank
 * r, which receives these blocks in buffer, in order of their senders.
 * Otherwise like omnes_gather().
 */
int omnes_alltoall(omnes_comm *comm, const void *data, void *buffer, size_t bytes);

/*
 * omnes_alltoallv is omnes_alltoall() with blocks of any lengths, including 0:
 * data_lengths holds the lengths of the blocks to send, in order of their
 * receivers, and buffer_lengths the lengths of the blocks to receive, in order
 * of their senders. Collective.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_TRUNCATED or OMNES_ERROR_MISMATCH
 * at a rank that is sent more or fewer bytes than it expects;
 * OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_alltoallv(omnes_comm *comm, const void *data, const size_t *data_lengths,
		    void *buffer, const size_t *buffer_lengths);

/*
 * A nonblocking operation. It makes progress by itself. Every request must be
 * completed, by omnes_wait() or by omnes_test() that sets *done to 1, before
 * omnes_finalize() or omnes_leave() leaves its job. A request may outlive its
 * communicator: omnes_comm_free() does not affect it. Only one thread may use a
 * request at a time. Opaque.
 */
typedef struct omnes_request omnes_request;

/*
 * omnes_isend starts omnes_send(). data must not change until the request has
 * completed. Never waits for another rank: if omnes_send() would block, the
 * request completes later. *request is set to NULL on failure.
 * Errors: those of omnes_send().
 */
int omnes_isend(omnes_comm *comm, int to, int tag, const void *data, size_t bytes,
		omnes_request **request);

/*
 * omnes_irecv starts omnes_recv(). Receives that match the same messages get
 * them in the order in which they were started. buffer and *status belong to
 * the library until the request has completed; status may be NULL, and is
 * written only on success. Never waits for another rank. *request is set to
 * NULL on failure.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_irecv(omnes_comm *comm, int from, int tag, void *buffer, size_t bytes,
		omnes_status *status, omnes_request **request);

/*
 * omnes_ibcast starts omnes_bcast(). buffer belongs to the library until the
 * request has completed: until then the root may only read it, and other ranks
 * must not use it. Collective: all ranks start it at the same point in their
 * order of collective calls on comm; any number may be in progress. Never waits
 * for another rank. *request is set to NULL on failure.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_TOO_LARGE at the root, as in
 * omnes_bcast(); OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_ibcast(omnes_comm *comm, void *buffer, size_t bytes, int root,
		 omnes_request **request);

/*
 * omnes_ibarrier enters a barrier, which completes when every rank of comm has
 * entered it. Collective like omnes_ibcast(), and all ranks must enter it with
 * this function: if some call omnes_barrier(), ranks may block forever. At most
 * 1048576 may be in progress. Never waits for another rank. *request is set to
 * NULL on failure.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_BARRIER if too many are in
 * progress; OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT.
 */
int omnes_ibarrier(omnes_comm *comm, omnes_request **request);

/*
 * omnes_iallreduce starts omnes_allreduce(). data belongs to the library until
 * the request has completed. Collective like omnes_ibcast(), and all ranks must
 * start it with this function; any number may be in progress, including the
 * operations below. If one completes with an error, no collective works on comm
 * any more. A rank whose call is rejected does not participate, and the other
 * ranks wait until it leaves; after OMNES_ERROR_ARGUMENT its next call takes
 * the place of the rejected one. OMNES_COMPARE does not apply to these calls.
 * Never waits for another rank. *request is set to NULL on failure.
 * Errors: those of omnes_allreduce(); omnes_test() and omnes_wait() return
 * these, except OMNES_ERROR_ARGUMENT and OMNES_ERROR_REDUCTION, which this
 * function returns.
 */
int omnes_iallreduce(omnes_comm *comm, void *data, size_t count, int type, int op,
		     omnes_request **request);

/* omnes_ireduce starts omnes_reduce(); otherwise like omnes_iallreduce(). */
int omnes_ireduce(omnes_comm *comm, void *data, size_t count, int type, int op, int root,
		  omnes_request **request);

/*
 * omnes_ireduce_scatter starts omnes_reduce_scatter(); otherwise like
 * omnes_iallreduce(). *first and *length are written immediately, unless the
 * call is rejected.
 */
int omnes_ireduce_scatter(omnes_comm *comm, void *data, size_t count, int type, int op,
			  size_t *first, size_t *length, omnes_request **request);

/*
 * omnes_igather starts omnes_gather(); otherwise like omnes_iallreduce(). own
 * and all belong to the library until the request has completed; own is only
 * read, and all is ignored except at the root.
 */
int omnes_igather(omnes_comm *comm, const void *own, void *all, size_t bytes, int root,
		  omnes_request **request);

/*
 * omnes_igatherv starts omnes_gatherv(); otherwise like omnes_igather(), but
 * comm can still be used after the errors that leave it usable in
 * omnes_gatherv(), if omnes_test() or omnes_wait() returns them. lengths may be
 * reused as soon as the call returns. A root whose own bytes differ from its
 * lengths gets OMNES_ERROR_MISMATCH from this function and receives nothing;
 * the other ranks do not notice.
 */
int omnes_igatherv(omnes_comm *comm, const void *own, size_t bytes, void *all,
		   const size_t *lengths, int root, omnes_request **request);

/* omnes_iallgather starts omnes_allgather(); otherwise like omnes_igather(). */
int omnes_iallgather(omnes_comm *comm, const void *own, void *all, size_t bytes,
		     omnes_request **request);

/*
 * omnes_iallgatherv starts omnes_allgatherv(); otherwise like omnes_igather().
 * lengths may be reused as soon as the call returns. If lengths differ between
 * ranks, all ranks may block until one leaves.
 */
int omnes_iallgatherv(omnes_comm *comm, const void *own, size_t bytes, void *all,
		      const size_t *lengths, omnes_request **request);

/* omnes_iscatter starts omnes_scatter(); otherwise like omnes_igather(). */
int omnes_iscatter(omnes_comm *comm, const void *all, void *own, size_t bytes, int root,
		   omnes_request **request);

/*
 * omnes_iscatterv starts omnes_scatterv(); otherwise like omnes_igatherv(). If
 * a root's call is rejected with OMNES_ERROR_MISMATCH, the other ranks receive
 * no data and get OMNES_ERROR_MISMATCH, too, unless they expect none.
 */
int omnes_iscatterv(omnes_comm *comm, const void *all, const size_t *lengths, void *own,
		    size_t bytes, int root, omnes_request **request);

/* omnes_ialltoall starts omnes_alltoall(); otherwise like omnes_igather(). */
int omnes_ialltoall(omnes_comm *comm, const void *data, void *buffer, size_t bytes,
		    omnes_request **request);

/*
 * omnes_ialltoallv starts omnes_alltoallv(); otherwise like omnes_igather().
 * Both arrays of lengths may be reused as soon as the call returns. A rank whose
 * lengths for itself differ gets OMNES_ERROR_MISMATCH from this function, and no
 * collective works on comm any more.
 */
int omnes_ialltoallv(omnes_comm *comm, const void *data, const size_t *data_lengths,
		     void *buffer, const size_t *buffer_lengths, omnes_request **request);

/*
 * omnes_test sets *done to 1 if the operation has completed, successfully or
 * with the error that omnes_test() returns; *request is then freed and set to
 * NULL. Otherwise *done is set to 0. If *request is NULL, *done is set to 1.
 * Makes progress on all operations; never waits for another rank.
 * Errors: OMNES_ERROR_ARGUMENT, without effect, if request or done is NULL;
 * otherwise those of the blocking call.
 */
int omnes_test(omnes_request **request, int *done);

/*
 * omnes_wait waits until the operation has completed, with or without an error;
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
 * form a new communicator, ordered by key, then by rank in comm. *part is set
 * to NULL on ranks that pass OMNES_NO_COLOR, and on failure. Collective. Free
 * the result with omnes_comm_free(). A job can create at most 2^27 - 1
 * communicators in total, including freed ones.
 * Errors: OMNES_ERROR_ARGUMENT; OMNES_ERROR_PEER_FAILED; OMNES_ERROR_PEER_LEFT;
 * OMNES_ERROR_TOO_MANY_COMMUNICATORS; OMNES_ERROR_NO_NIC if OMNES_MULTISEND
 * requires slots and a rank of the new communicator got none.
 */
int omnes_comm_split(omnes_comm *comm, int color, int64_t key, omnes_comm **part);

/*
 * omnes_comm_dup creates a communicator of the same ranks, with a message
 * context of its own. Collective. *copy is set to NULL on failure. Free it with
 * omnes_comm_free().
 * Errors: those of omnes_comm_split().
 */
int omnes_comm_dup(omnes_comm *comm, omnes_comm **copy);

/*
 * omnes_comm_free frees a communicator created by omnes_comm_split(),
 * omnes_comm_dup() or omnes_comm_exchange(); its requests may still be in
 * progress. Not collective.
 * Errors: OMNES_ERROR_ARGUMENT, without effect, if comm is NULL or was created
 * by omnes_init(): omnes_finalize() frees such communicators.
 */
int omnes_comm_free(omnes_comm *comm);

/*
 * Ranks that can already exchange data by other means, such as those of an MPI
 * communicator; they need no launcher.
 */
typedef struct omnes_exchange {
	size_t struct_bytes; /* sizeof(omnes_exchange), so that fields can be added */
	int rank; /* the caller's rank, in [0,size-1] */
	int size; /* number of ranks, at least 1 */
	/*
	 * Gathers bytes bytes of every rank, in rank order, into all, which has
	 * room for size * bytes bytes. Collective. Returns 0, or an error code;
	 * must return normally. Called only during omnes_comm_exchange(), on
	 * the calling thread.
	 */
	int (*allgather)(void *context, const void *mine, void *all, size_t bytes);
	void *context; /* passed to allgather; may be NULL */
	/*
	 * Called repeatedly by blocking calls while they wait, on the calling
	 * thread; may be NULL. All communicators of a job use the function
	 * given for its first one. It may call omnes_test(), but no other
	 * function of this library, and must return normally. A request
	 * that omnes_wait() waits for is already NULL meanwhile.
	 */
	void (*while_waiting)(void);
} omnes_exchange;

/*
 * omnes_comm_exchange creates a communicator of the ranks of an exchange, in
 * the same order. The first call creates a job for these ranks, with an address
 * and a key that are chosen and distributed through the exchange; later
 * communicators whose ranks are all in one existing job share that job. A
 * process can have at most 8 jobs, and beyond that only jobs larger than all
 * before them. Settings come from the environment, except rank and size.
 * Collective; may be called from any thread. ranks is used only during the
 * call. *comm is set to NULL on failure. Free it with omnes_comm_free(), and
 * leave the jobs with omnes_leave().
 * Errors, the same on all ranks: OMNES_ERROR_EXCHANGE if a rank could not join
 * (omnes_last_error() names it); OMNES_ERROR_TOO_MANY_COMMUNICATORS. On the
 * caller only: OMNES_ERROR_ARGUMENT; OMNES_ERROR_EXCHANGE_FAILED if allgather
 * fails: it must then fail on all ranks, or the others wait forever.
 */
int omnes_comm_exchange(const omnes_exchange *ranks, omnes_comm **comm);

/*
 * omnes_comm_nodes returns the number of nodes on which the ranks of comm run,
 * at least 1. Without shared memory (OMNES_SHM=off) every rank counts as a
 * node.
 * Errors: OMNES_ERROR_ARGUMENT if comm is NULL.
 */
int omnes_comm_nodes(const omnes_comm *comm);

/*
 * omnes_leave leaves all jobs created by omnes_comm_exchange(): it waits until
 * all their ranks have called it and everything sent has arrived. If there are
 * no such jobs, it does nothing. Collective over the ranks of these jobs, and
 * the last operation: afterwards, their communicators can only be freed. A rank
 * that exits without calling it counts as failed.
 * Errors: OMNES_ERROR_PEER_FAILED; the caller leaves the jobs nevertheless.
 */
int omnes_leave(void);

/*
 * omnes_error_text returns a description of a value of enum omnes_error, or a
 * text saying that the value does not exist. Never NULL; valid forever.
 */
const char *omnes_error_text(int code);

/*
 * omnes_last_error returns the full text of the last failure on this thread,
 * with details, or "" if no call has failed. Successful calls do not change it.
 * Never NULL; valid until the next failing call on this thread, or the end of
 * the thread.
 */
const char *omnes_last_error(void);

/*
 * omnes_last_error_rank returns the rank named by the error of
 * omnes_last_error(), or -1 if the error names none, as for most errors. For
 * OMNES_ERROR_PEER_FAILED, OMNES_ERROR_PEER_LEFT, OMNES_ERROR_PEER_GAVE_UP,
 * OMNES_ERROR_COLLECTIVES_BROKEN, OMNES_ERROR_EXCHANGE and, if calls are
 * mismatched, OMNES_ERROR_MISMATCH, this is the rank concerned, numbered as in
 * the communicator of the call; for OMNES_ERROR_DECLARED_FAILED it is the rank
 * that has declared the caller failed, numbered as in the job.
 */
int omnes_last_error_rank(void);

/*
 * omnes_last_error_missing returns the number of ranks that had not entered the
 * barrier if the error of omnes_last_error() is OMNES_ERROR_BARRIER_TIMEOUT,
 * otherwise 0. It writes the first of these ranks, at most ranks_max, to ranks,
 * which may be NULL if ranks_max is 0.
 */
size_t omnes_last_error_missing(int *ranks, size_t ranks_max);

/*
 * omnes_version returns the version of the library, "MAJOR.MINOR.PATCH". Never
 * NULL; valid forever.
 */
const char *omnes_version(void);

/*
 * omnes_node returns a number that is the same in all processes of one node and
 * different on other nodes. A node is one kernel, network namespace and user:
 * its processes may share memory. 0 if the kernel does not provide it.
 */
uint64_t omnes_node(void);

#ifdef __cplusplus
}
#endif
#endif
