"""The compiled part of the package; use it as ``omnes``."""

from collections.abc import Callable, Sequence
from typing import Literal, Self, final

from typing_extensions import Buffer

__version__: str

_Op = Literal["sum", "product", "min", "max", "and", "or", "xor"]

def join(rank: int, size: int, allgather: Callable[[bytes], list[bytes]]) -> Communicator:
    """Creates a communicator of ranks that can exchange data by means of their own.

    All of these ranks must call it. allgather takes a rank's bytes, the same number on all ranks,
    and returns the bytes of all ranks, in order of ranks; it is called the same number of times on
    all ranks. The first such communicator is a job of its own; others whose ranks are all in one
    job share that job. The jobs last until leave() or abandon(). Raises Exchange on all ranks if
    one of them cannot join; ExchangeFailed if allgather raises an Exception, which is its cause;
    anything else that allgather raises, such as KeyboardInterrupt, unchanged; RankOutOfRange;
    ValueError in a child of fork() whose parent has joined a job.
    """

def leave() -> None:
    """Leaves all jobs of join(): waits for their ranks, then for outstanding acknowledgements.

    All ranks of these jobs must call it, as their last operation. Raises PeerFailed if a rank has
    failed; the jobs are left nevertheless.
    """

def abandon() -> None:
    """Leaves all jobs of join() without waiting for their ranks.

    Ranks that wait for this one then get PeerLeft. Waits at most one second per job for outstanding
    acknowledgements.
    """

@final
class time_limit:
    """A limit, in seconds, for all calls of a thread in a with block.

    A call that has not ended by then raises TimeoutError at most a twentieth of a second later, or
    once it gets the interpreter's lock if another thread holds that for longer. Its operation is
    given up: Communicator describes the consequences for a collective, and recv() for a message,
    which is lost if it has begun to arrive. Of nested limits, the nearest one applies; infinity
    means no limit. Raises ValueError for a negative limit or NaN.
    """

    def __init__(self, seconds: float) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class Communicator:
    """A group of ranks that communicate with each other, separately from all other groups.

    All ranks must call its collective operations, which are all except messages (send(), recv(),
    probe() and their variants), in the same order, each rank from one thread at a time. Collective
    operations raise PeerLeft if a rank has left the job, in addition to the errors that they list.
    A buffer is any object with the buffer protocol and contiguous elements; TypeError or ValueError
    says why an object cannot be used. Ranks, tags and colors are numbers from 0 to 2**32 - 1;
    others raise ValueError, or OverflowError beyond 64 bits. After finalize(), and in a child of
    fork(), which must not take its parent's place, rank and size remain available, finalize() and
    abandon() do nothing, and everything else raises ValueError.

    Any call may also raise DeclaredFailed, if the other ranks have declared this one failed, and
    AlreadyLeft, once this rank has left the job. A call that waits for data from another rank may
    raise PeerGaveUp, if that rank has given up its part; a call that sends, TooLarge; and a call
    that enters a barrier, Barrier, if omnesd has withdrawn the slot that ran it. A collective
    operation that has started and raises one of these errors, or is ended by a signal handler or a
    time_limit(), is given up, except for bcast(), and for barrier() unless OMNES_NIC=off: the
    operation and all others on this communicator raise CollectivesBroken from then on, on all
    ranks. Communicators that were made by dup() or split() continue to work, and can create others.
    A barrier is given up, too, if it is one of the few, from the seventeenth on, in which the nodes
    of a communicator agree on the kernel NIC; a barrier with timeout_s is never one of them.

    An exception that a signal handler raises while a call waits is raised by the call, and its
    operation is given up. An operation that completes while the handler runs is not given up: a
    received message is in its buffer, although recv() does not return its length, which a Request
    has in its status. A time_limit() raises nothing for a completed operation.

    Calls that do not match, such as a receive of a message that nobody sends, may wait forever
    unless a time_limit() ends them. With OMNES_COMPARE=on on all ranks, each collective call,
    except nonblocking calls and those with a limit, first compares its root, length, type and op
    between the ranks: if they differ, all ranks raise Mismatch, which names both calls.
    """

    @staticmethod
    def from_env() -> Communicator:
        """The communicator of all ranks of the job that the launcher's environment describes.

        Waits until all ranks have joined. Raises NoLauncher, InvalidVariable, RankOutOfRange, Join,
        NoMulticast, NoNic, MultiSend; ValueError in a child of fork() whose parent has joined a
        job.
        """
    @property
    def rank(self) -> int:
        """Rank of this process in the communicator, from 0."""
    @property
    def size(self) -> int:
        """Number of ranks in the communicator."""
    @property
    def node_count(self) -> int:
        """Number of nodes that the ranks are on; without shared memory, each rank is one."""
    @property
    def multicast(self) -> str:
        """Multicast group and interface of the job, or "off" and the reason, as text."""
    def bcast(self, buffer: Buffer, root: int = 0) -> None:
        """Copies the root's bytes into the buffer of every rank; all have the same length.

        The root's buffer may be read-only. Raises RankOutOfRange, Truncated, Mismatch (the
        lengths differ), PeerFailed.
        """
    def ibcast(self, buffer: Buffer, root: int = 0) -> Request:
        """Starts a bcast(); buffer is in use until the request has ended."""
    def barrier(self, *, timeout_s: float | None = None) -> None:
        """Waits until all ranks have entered the barrier, for at most timeout_s seconds.

        If one rank sets a limit, all must; limits may differ, and be infinite. Raises
        BarrierTimeout, whose missing lists the ranks that have not entered, and PeerFailed;
        ValueError for a negative limit or NaN. After a timeout this rank has still entered the
        barrier, and its next one, with or without a limit, continues to wait for it; with
        OMNES_NIC=off only one with a limit does.
        """
    def ibarrier(self) -> Request:
        """Enters a barrier without waiting for it; all ranks must then enter it by this call."""
    def allreduce(self, buffer: Buffer, op: _Op = "sum") -> None:
        """Combines the numbers in all ranks' buffers; every buffer gets the result.

        The result has the same bits on all ranks. buffer holds integers of 1 to 8 bytes or floats
        of 4 or 8 bytes, the same number on all ranks. op is "sum", "product", "min" or "max"; for
        integers, also "and", "or" or "xor". Element types and op are compared between ranks only
        with OMNES_COMPARE=on: otherwise, if they differ, the result is meaningless and no rank is
        notified. Raises Reduction, Truncated, Mismatch (the lengths differ), PeerFailed, PeerLeft;
        TypeError for other buffers. If lengths differ, ranks that use different algorithms, as for
        up to four numbers and for more, may all wait until one leaves.
        """
    def reduce(self, buffer: Buffer, root: int = 0, op: _Op = "sum") -> None:
        """Combines the numbers in all ranks' buffers; the root's buffer gets the result.

        The buffers of the other ranks are scratch space, and their contents are then undefined.
        Raises the errors of allreduce(), and RankOutOfRange.
        """
    def reduce_scatter(self, buffer: Buffer, op: _Op = "sum") -> tuple[int, int]:
        """Combines the numbers in all ranks' buffers; each rank gets one block of the result.

        Returns the index of the block's first number and the index after its last; all other
        numbers are unchanged. Blocks are contiguous, in order of ranks. Raises the errors of
        allreduce().
        """
    def scan(self, buffer: Buffer, op: _Op = "sum") -> None:
        """Combines the numbers in the buffers of this rank and of all ranks before it.

        Combines in order of ranks and from the left, ((0 op 1) op 2) op 3 at rank 3, so floats have
        the same bits as from a loop that does the same. Raises the errors of allreduce(). If some
        buffers have at most 4 KiB and others more, all ranks may wait until one leaves.
        """
    def exscan(self, buffer: Buffer, op: _Op = "sum") -> None:
        """As scan(), but combines only the buffers of the ranks before this one.

        The buffer of rank 0, which has no ranks before it, is unchanged.
        """
    def gather(self, own: Buffer, all: Buffer | None = None, root: int = 0) -> None:
        """Gathers every rank's own into the root's all, in order of ranks.

        own has the same length on all ranks; only the root needs all. Raises BufferLength (the
        root's all does not have the length of all own together), RankOutOfRange, Truncated,
        Mismatch, PeerFailed, PeerLeft; ValueError if the two buffers overlap. If lengths differ,
        some of them short and others long, all ranks may wait until one leaves.
        """
    def gatherv(
        self,
        own: Buffer,
        all: Buffer | None = None,
        lengths: Sequence[int] | None = None,
        root: int = 0,
    ) -> None:
        """As gather(), but each own may have a different length.

        lengths has those of all ranks in bytes, in order of ranks; only the root needs all and
        lengths. Raises the errors of gather(), but those about lengths only at the root; the other
        ranks, and this communicator, continue.
        """
    def allgather(self, own: Buffer, all: Buffer) -> None:
        """Gathers every rank's own into the all of every rank, in order of ranks.

        Raises the errors of gather().
        """
    def allgatherv(self, own: Buffer, all: Buffer, lengths: Sequence[int]) -> None:
        """As allgather(), but each own may have a different length.

        lengths has those of all ranks in bytes, in order of ranks, the same on all ranks. Raises
        the errors of allgather(); LengthMismatch also if own has another length than its lengths
        say, and the other ranks then wait until this one calls again or leaves. If lengths differ
        between ranks, but not in their sum, bytes are in wrong places.
        """
    def scatter(self, all: Buffer | None, own: Buffer, root: int = 0) -> None:
        """Distributes the parts of the root's all, in order of ranks, to every rank's own.

        Only the root needs all. Raises the errors of gather().
        """
    def scatterv(
        self,
        all: Buffer | None,
        lengths: Sequence[int] | None,
        own: Buffer,
        root: int = 0,
    ) -> None:
        """As scatter(), but each own may have a different length.

        lengths has those of all ranks in bytes, in order of ranks; only the root needs all and
        lengths. Raises the errors of scatter(), but those about lengths only on ranks whose lengths
        do not match; the other ranks, and this communicator, continue.
        """
    def alltoall(self, data: Buffer, buffer: Buffer) -> None:
        """Sends part r of every rank's data to rank r, into its buffer, in order of ranks.

        All parts have the same length. Raises the errors of gather().
        """
    def alltoallv(
        self,
        data: Buffer,
        data_lengths: Sequence[int],
        buffer: Buffer,
        buffer_lengths: Sequence[int],
    ) -> None:
        """As alltoall(), but parts may have different lengths.

        data_lengths has the lengths of the parts of data in bytes, in order of destination ranks;
        buffer_lengths those of the parts to receive, in order of source ranks. Raises the errors of
        alltoall().
        """
    def send(self, data: Buffer, to: int, *, tag: int = 0) -> None:
        """Sends data to rank to, and returns when data may be changed.

        A message of up to 16 KiB is then in flight; a longer one has arrived. A message of more
        than OMNES_EAGER_BYTES waits until its receiver has asked for it: two ranks that both first
        send each other such a message wait forever; use sendrecv() or isend(). As with MPI's
        standard mode, messages that nobody receives are buffered only up to a limit: 4 MiB here per
        receiver for messages of up to 16 KiB, counting 128 bytes of overhead each, beyond which
        they, too, wait until they have arrived. Raises RankOutOfRange, PeerFailed, PeerLeft.
        """
    def recv(
        self, buffer: Buffer, source: int | None = None, *, tag: int | None = None
    ) -> tuple[int, int, int]:
        """Waits for the oldest message that no receive has taken, and stores it in buffer.

        source and tag are those of the message, None for any; buffer may be longer than the
        message. Messages of one sender with the same tag arrive in the order sent. Returns source,
        tag and length in bytes. Raises RankOutOfRange, Truncated, PeerFailed, PeerLeft. If a signal
        handler or a time_limit() ends a receive, its message is left to the next receive, or lost
        if it has begun to arrive.
        """
    def probe(
        self, source: int | None = None, *, tag: int | None = None
    ) -> tuple[int, int, int]:
        """Waits for the oldest message that no receive has taken, as recv() does, but leaves it.

        Returns its source, tag and length in bytes: a recv() with that source and tag gets it,
        unless a receive of another thread is first. Raises RankOutOfRange, PeerFailed, PeerLeft.
        """
    def iprobe(
        self, source: int | None = None, *, tag: int | None = None
    ) -> tuple[int, int, int] | None:
        """As probe(), but returns None if no such message is there yet."""
    def sendrecv(
        self,
        data: Buffer,
        to: int,
        buffer: Buffer,
        source: int | None = None,
        *,
        tag: int = 0,
        wanted: int | None = None,
    ) -> tuple[int, int, int]:
        """Sends data as send() does, and concurrently receives into buffer as recv() does.

        The lengths are not limited. tag is that of data; source and wanted are the source and tag
        of the message to receive, None for any. Returns source, tag and length in bytes of that
        message. Raises the errors of send() and recv(), and ValueError if the two buffers overlap;
        after an error other than Truncated, data still arrive if at most 4 MiB were unsent;
        otherwise their receiver gets PeerGaveUp.
        """
    def isend(self, data: Buffer, to: int, *, tag: int = 0) -> Request:
        """Starts a send(); data is in use until the request has ended.

        Never waits: if send() would wait, the request ends later.
        """
    def irecv(
        self, buffer: Buffer, source: int | None = None, *, tag: int | None = None
    ) -> Request:
        """Starts a recv(); buffer is in use until the request has ended."""
    def iallreduce(self, buffer: Buffer, op: _Op = "sum") -> Request:
        """Starts an allreduce(); buffer is in use until the request has ended.

        All ranks must start it by this call, in the same order as their other collective
        operations. Any number of nonblocking reductions, gathers, scatters and all-to-alls may be
        outstanding.
        """
    def ireduce(self, buffer: Buffer, root: int = 0, op: _Op = "sum") -> Request:
        """Starts a reduce(); buffer is in use until the request has ended."""
    def ireduce_scatter(
        self, buffer: Buffer, op: _Op = "sum"
    ) -> tuple[Request, tuple[int, int]]:
        """Starts a reduce_scatter(); buffer is in use until the request has ended.

        Returns the request and, immediately, the two indices of reduce_scatter().
        """
    def igather(self, own: Buffer, all: Buffer | None = None, root: int = 0) -> Request:
        """Starts a gather(); both buffers are in use until the request has ended."""
    def igatherv(
        self,
        own: Buffer,
        all: Buffer | None = None,
        lengths: Sequence[int] | None = None,
        root: int = 0,
    ) -> Request:
        """Starts a gatherv(); both buffers are in use until the request has ended.

        If one of them has the wrong length, the root gets the error of gatherv(): of its own
        buffers from this call, otherwise from wait(). The other ranks, and this communicator,
        continue.
        """
    def iallgather(self, own: Buffer, all: Buffer) -> Request:
        """Starts an allgather(); both buffers are in use until the request has ended."""
    def iallgatherv(self, own: Buffer, all: Buffer, lengths: Sequence[int]) -> Request:
        """Starts an allgatherv(); both buffers are in use until the request has ended."""
    def iscatter(self, all: Buffer | None, own: Buffer, root: int = 0) -> Request:
        """Starts a scatter(); both buffers are in use until the request has ended."""
    def iscatterv(
        self,
        all: Buffer | None,
        lengths: Sequence[int] | None,
        own: Buffer,
        root: int = 0,
    ) -> Request:
        """Starts a scatterv(); both buffers are in use until the request has ended.

        Lengths that do not match raise errors as in igatherv(); a root that raises one immediately
        sends nothing.
        """
    def ialltoall(self, data: Buffer, buffer: Buffer) -> Request:
        """Starts an alltoall(); both buffers are in use until the request has ended."""
    def ialltoallv(
        self,
        data: Buffer,
        data_lengths: Sequence[int],
        buffer: Buffer,
        buffer_lengths: Sequence[int],
    ) -> Request:
        """Starts an alltoallv(); both buffers are in use until the request has ended."""
    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Splits the communicator: ranks of the same color form a new one, in order of their keys.

        A rank whose color is None gets None. A job can create at most 2^27 - 1 communicators in
        total, including those that were dropped. Raises PeerFailed, TooManyCommunicators.
        """
    def dup(self) -> Communicator:
        """A new communicator of the same ranks, whose messages do not mix with this one's."""
    def stats(self) -> dict[str, int]:
        """Counters since this rank started; `omnes stat --help` describes each of them."""
    def finalize(self) -> None:
        """Leaves the job: waits for all ranks, then for outstanding acknowledgements.

        Every rank must call it as its last operation, on the communicator of from_env(); others
        raise ValueError. A second call does nothing.
        """
    def abandon(self) -> None:
        """Leaves the job without waiting for its ranks; ranks that wait for this one get PeerLeft.

        For ranks that cannot continue; waits at most one second for outstanding acknowledgements.
        Must be called on the communicator of from_env(); on others it raises ValueError, and they
        raise AlreadyLeft once the job is left. A second call does nothing.
        """
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None:
        """Calls finalize(); after an exception, including sys.exit(), leaves without waiting.

        No rank then waits for this one. A communicator of join(), split() or dup() is only dropped:
        omnes.leave() leaves the jobs of join().
        """

@final
class Request:
    """A started operation, which progresses by itself. Several threads may use it concurrently.

    A request that is dropped before it has ended is given up: the message of a receive is left to
    the next receive, or lost if it has begun to arrive; ranks to which this rank would have
    forwarded a broadcast get PeerGaveUp, and later broadcasts get their own data; after a
    reduction, gather or scatter, all collective operations of the communicator raise
    CollectivesBroken from then on.
    """

    def test(self) -> bool:
        """True if the operation has ended; does not wait. Raises the operation's error."""
    def wait(self) -> None:
        """Waits until the operation has ended. Raises the operation's error.

        An exception of a signal handler is raised, too, and the operation is given up, unless it
        has ended while the handler ran: then status is not None, and another wait() raises nothing.
        """
    @property
    def status(self) -> tuple[int, int, int] | None:
        """Source, tag and length in bytes, as from recv(); None until the operation has ended."""

class Error(RuntimeError):
    """Any error of Omnes."""

class NoLauncher(Error):
    """The environment does not say which rank this is."""

class InvalidVariable(Error):
    """An environment variable has an invalid value, or is required and not set."""

class Join(Error):
    """This rank could not join the job."""

class RankOutOfRange(Error, ValueError):
    """A rank outside the communicator, which has size ranks."""

    rank: int
    size: int

class Truncated(Error):
    """A message of that many bytes exceeds the capacity of its buffer."""

    bytes: int
    capacity: int

class TooLarge(Error):
    """A message of that many bytes exceeds the limit; nothing was sent."""

    bytes: int
    limit: int

class PeerFailed(Error):
    """A rank has died or is unreachable; rank says which."""

    rank: int

class PeerLeft(Error):
    """The rank that this rank waited for has left the job; rank says which."""

    rank: int

class AlreadyLeft(Error):
    """This rank has already left the job."""

class PeerGaveUp(Error):
    """A rank has abandoned the operation whose data this rank waited for; rank says which."""

    rank: int

class CollectivesBroken(Error):
    """A rank could not complete a collective; no collective works on its communicator any more."""

    rank: int
    collective: str

class DeclaredFailed(Error):
    """The others have declared this rank failed; by is one of them, numbered as in the job."""

    by: int

class Mismatch(Error):
    """Something that must be the same on all ranks differs between them."""

class NoMulticast(Error):
    """Multicast is required, but does not work."""

class NoNic(Error):
    """The kernel NIC is required, but not available."""

class MultiSend(Error):
    """The requested multi-send is not possible."""

class Barrier(Error):
    """A barrier could not be entered or completed."""

class BarrierTimeout(Error, TimeoutError):
    """Ranks did not enter a barrier within its limit; missing says which."""

    missing: list[int]

class Interrupted(Error):
    """A wait was interrupted; usually the signal handler's own exception is raised instead."""

class BufferLength(Error, ValueError):
    """The length of a collective's buffer is not that of one part per rank."""

class Reduction(Error, ValueError):
    """The operation does not apply to the numbers' type, or no operation has that name."""

class Exchange(Error):
    """The ranks could not form a communicator; rank says which could not join, alike on all."""

    rank: int

class ExchangeFailed(Error):
    """The program's own exchange between the ranks has failed."""

class TooManyCommunicators(Error):
    """The job has created the maximum number of communicators, the limit."""

    limit: int
