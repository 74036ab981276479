"""What is compiled; use it as ``omnes``."""

from collections.abc import Callable, Sequence
from typing import Literal, Self, final

from typing_extensions import Buffer

__version__: str

_Op = Literal["sum", "product", "min", "max", "and", "or", "xor"]

def join(rank: int, size: int, allgather: Callable[[bytes], list[bytes]]) -> Communicator:
    """A communicator of ranks that can tell each other something by means of their own.

    Called by all of them. allgather is given a rank's bytes, as many on all ranks, and returns
    those of all ranks, in their order; it is called the same number of times on all of them. The
    first such communicator is a job by itself, others whose ranks are all in one job share it. The
    jobs go on until leave() or abandon(). Raises Exchange on all ranks if one of them cannot;
    ExchangeFailed if allgather raises an Exception, with that as its cause; whatever else that
    raises, such as KeyboardInterrupt, unchanged; RankOutOfRange; ValueError in a child of fork()
    whose parent has joined a job.
    """

def leave() -> None:
    """Leaves all jobs of join(): waits for their ranks, then for the last answers.

    Called by all ranks of these jobs, as their last act. Raises PeerFailed if a rank has failed;
    the jobs are left nevertheless.
    """

def abandon() -> None:
    """Leaves all jobs of join(), without waiting for their ranks.

    Whoever waits for this rank then gets PeerLeft. Waits for the last answers, for a second per job
    at most.
    """

@final
class time_limit:
    """A limit of so many seconds for all calls of a thread in a with block.

    A call that has not ended by then raises TimeoutError, up to a twentieth of a second later, or
    once it gets the interpreter's lock if another thread holds that for longer, and its operation
    is given up; Communicator says what follows from that for a collective one, and recv() for a
    message, which is lost if it has begun to come. Of limits within each other, the nearest counts;
    infinity is none. Raises ValueError for a limit below 0 and NaN.
    """

    def __init__(self, seconds: float) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class Communicator:
    """A group of ranks that communicate with each other, apart from all other groups.

    All ranks call its collective operations, which are all but messages (send(), recv(), probe()
    and their like), in the same order, each rank from one thread at a time. They raise PeerLeft if
    a rank has left the job, beside what each of them names. Buffers are whatever has one, with
    elements one behind the other; TypeError or ValueError says why one cannot be used. Ranks, tags
    and colors are numbers from 0 to 2**32 - 1, ValueError for others. After finalize(), and in a
    child of fork(), which must not take its parent's place, rank and size remain, finalize() and
    abandon() do nothing, and all else raises ValueError.

    Any call may also raise DeclaredFailed, when the others have given up on this rank, and
    AlreadyLeft, once it has left the job. What waits for data of another rank may raise PeerGaveUp,
    when that has given up its part; what sends TooLarge; what enters a barrier Barrier, when omnesd
    has taken back what ran it. A collective operation but for bcast(), and barrier() without
    OMNES_NIC=off, that is begun and raises any of these, or ends by a signal handler or a
    time_limit(), is given up: it and all others on this communicator raise CollectivesBroken from
    then on, on all ranks; communicators that were made by dup() or split() go on, and may make
    others. So is one of the few barriers, from the seventeenth on, in which the nodes of a
    communicator agree on the kernel's network interface; a barrier with timeout_s is none of those.

    What a signal handler raises while a call waits is raised by the call, and its operation is
    given up. An operation that ends while the handler runs is not given up but done: a received
    message is in its buffer, though recv() does not return its length, which a Request has in its
    status. A time_limit() raises nothing for an operation that is done.

    Calls that do not fit each other, such as a receive of what nobody sends, may wait for ever, but
    for a time_limit(). With OMNES_COMPARE=on on all ranks, each collective call but those that do
    not block or have a limit is compared between them before, its root, length, type and op: where
    they differ, all raise Mismatch, which names both calls.
    """

    @staticmethod
    def from_env() -> Communicator:
        """All ranks of the job that this process belongs to, as the launcher's environment says.

        Waits until all have come. Raises NoLauncher, InvalidVariable, RankOutOfRange, Join,
        NoMulticast, NoNic, MultiSend; ValueError in a child of fork() whose parent has joined.
        """
    @property
    def rank(self) -> int:
        """This process's rank here, from 0."""
    @property
    def size(self) -> int:
        """Number of ranks here."""
    @property
    def node_count(self) -> int:
        """Number of nodes that the ranks are on; without shared memory each rank is one."""
    @property
    def multicast(self) -> str:
        """Group and interface that the job multicasts by, or "off" and why, in words."""
    def bcast(self, buffer: Buffer, root: int = 0) -> None:
        """Copies the root's bytes into buffer of every rank, which is as long everywhere.

        The root's buffer may be read-only. Raises RankOutOfRange, Truncated, Mismatch (the
        lengths differ), PeerFailed.
        """
    def ibcast(self, buffer: Buffer, root: int = 0) -> Request:
        """Starts what bcast() does; buffer is in use until the request has ended."""
    def barrier(self, *, timeout_s: float | None = None) -> None:
        """Waits until all ranks have called it, with a limit for so many seconds at most.

        If one rank gives a limit, all do, though limits may differ, and be infinite. Raises
        BarrierTimeout, whose missing names the ranks that have not come, and PeerFailed; ValueError
        for a limit below 0 and NaN. After a timeout the barrier remains entered: the next one, with
        a limit or without, goes on waiting for it; with OMNES_NIC=off only one with a limit does.
        """
    def ibarrier(self) -> Request:
        """Enters a barrier without waiting for it, as all ranks then do."""
    def allreduce(self, buffer: Buffer, op: _Op = "sum") -> None:
        """Combines the numbers of all ranks' buffers, which have the same bits everywhere then.

        buffer has integers of 1 to 8 bytes or floats of 4 or 8, as many on all ranks. op is sum,
        product, min, max, or of integers and, or, xor. Elements' type and op are compared between
        ranks with OMNES_COMPARE=on alone: else, where they differ, the result means nothing, and
        nobody is told. Raises Reduction, Truncated, Mismatch (the lengths differ), PeerFailed,
        PeerLeft; TypeError for other buffers. Where lengths differ, ranks that take different ways,
        as with up to four numbers and more, may all wait until somebody leaves.
        """
    def reduce(self, buffer: Buffer, root: int = 0, op: _Op = "sum") -> None:
        """Combines the numbers of all ranks' buffers at the root.

        Those of the others serve as room, and mean nothing afterwards. Raises what allreduce()
        raises, and RankOutOfRange.
        """
    def reduce_scatter(self, buffer: Buffer, op: _Op = "sum") -> tuple[int, int]:
        """Combines the numbers of all ranks' buffers, of which each rank gets a block.

        Returns the block's first index and the one after its last; all other numbers stay as they
        were. Blocks follow each other in order of ranks. Raises what allreduce() raises.
        """
    def scan(self, buffer: Buffer, op: _Op = "sum") -> None:
        """Combines the numbers of the buffers of this rank and of all ranks before it.

        In order of ranks and from the left, ((0 op 1) op 2) op 3 at rank 3, so that floats have the
        same bits as from a loop that does the same. Raises what allreduce() raises. Where the
        buffers of some have up to 4 KiB and those of others more, all may wait until somebody
        leaves.
        """
    def exscan(self, buffer: Buffer, op: _Op = "sum") -> None:
        """Does what scan() does with the buffers of the ranks before this one alone.

        That of rank 0, which has none before it, stays as it is.
        """
    def gather(self, own: Buffer, all: Buffer | None = None, root: int = 0) -> None:
        """Brings the bytes of every rank's own to the root, into all, in order of ranks.

        own is as long on all ranks; all is needed by the root alone. Raises BufferLength (all of
        the root is not as long as all own together), RankOutOfRange, Truncated, Mismatch,
        PeerFailed, PeerLeft; ValueError if the two overlap. Where lengths differ, some are short
        and others are not, all may wait until somebody leaves.
        """
    def gatherv(
        self,
        own: Buffer,
        all: Buffer | None = None,
        lengths: Sequence[int] | None = None,
        root: int = 0,
    ) -> None:
        """Does what gather() does, where each own may have any length.

        lengths has those of all ranks in bytes, in order of ranks; all and lengths are needed by
        the root alone. Raises what gather() raises, but of lengths at the root alone, and others,
        and this communicator, go on.
        """
    def allgather(self, own: Buffer, all: Buffer) -> None:
        """Brings the bytes of every rank's own to all ranks, into all, in order of ranks.

        Raises what gather() raises.
        """
    def allgatherv(self, own: Buffer, all: Buffer, lengths: Sequence[int]) -> None:
        """Does what allgather() does, where each own may have any length.

        lengths has those of all ranks in bytes, in order of ranks, the same on all. Raises what
        allgather() raises. Where lengths differ, but not their sum, bytes are in wrong places.
        """
    def scatter(self, all: Buffer | None, own: Buffer, root: int = 0) -> None:
        """Brings to every rank's own its part of the root's all, which has them in order of ranks.

        all is needed by the root alone. Raises what gather() raises.
        """
    def scatterv(
        self,
        all: Buffer | None,
        lengths: Sequence[int] | None,
        own: Buffer,
        root: int = 0,
    ) -> None:
        """Does what scatter() does, where each own may have any length.

        lengths has those of all ranks in bytes, in order of ranks; all and lengths are needed by
        the root alone. Raises what scatter() raises, but of lengths only where they do not fit, and
        others, and this communicator, go on.
        """
    def alltoall(self, data: Buffer, buffer: Buffer) -> None:
        """Brings part r of every rank's data to rank r, into buffer, in order of ranks.

        All parts are equally long. Raises what gather() raises.
        """
    def alltoallv(
        self,
        data: Buffer,
        data_lengths: Sequence[int],
        buffer: Buffer,
        buffer_lengths: Sequence[int],
    ) -> None:
        """Does what alltoall() does, where parts may have any lengths.

        data_lengths has those of data in bytes, in order of the ranks that they are for;
        buffer_lengths those of what comes, in order of the ranks that send it. Raises what
        alltoall() raises.
        """
    def send(self, data: Buffer, to: int, *, tag: int = 0) -> None:
        """Sends bytes to rank to; returns when data may be changed.

        A message of up to 16 KiB is on its way then, a longer one has arrived; one of more than
        OMNES_EAGER_BYTES waits until its receiver has asked for it: two ranks that both send such a
        message first wait for ever, which sendrecv() and isend() do not. As with MPI's standard
        sends, no more than a limit is kept of messages that nobody receives: of those of up to 16
        KiB, 4 MiB here for each receiver, each counted with 128 bytes beside its data, beyond which
        they too wait until they have arrived. Raises RankOutOfRange, PeerFailed, PeerLeft.
        """
    def recv(
        self, buffer: Buffer, source: int | None = None, *, tag: int | None = None
    ) -> tuple[int, int, int]:
        """Waits for the oldest message that no receive has taken, and puts it into buffer.

        source and tag are those wanted, None for any; buffer may be longer than the message.
        Messages of one sender with one tag come in the order sent. Returns source, tag and length
        in bytes. Raises RankOutOfRange, Truncated, PeerFailed, PeerLeft. After a receive that is
        given up, by a signal handler or a time_limit(), the next one gets its message, unless that
        has begun to come: it is lost then.
        """
    def probe(
        self, source: int | None = None, *, tag: int | None = None
    ) -> tuple[int, int, int]:
        """Waits for the oldest message that no receive has taken, as recv() does, but leaves it.

        Returns its source, tag and length in bytes: a recv() from that source with that tag gets
        it, unless another thread's was sooner. Raises RankOutOfRange, PeerFailed, PeerLeft.
        """
    def iprobe(
        self, source: int | None = None, *, tag: int | None = None
    ) -> tuple[int, int, int] | None:
        """As probe(), but None if no such message is there yet."""
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
        """Sends data as send() and receives into buffer as recv() at once, at any length.

        tag is that of data; source and wanted are those of the message that comes, None for any.
        Returns source, tag and length in bytes of that. Raises what send() and recv() do, and
        ValueError if the two overlap; after an error other than Truncated what has not been sent
        yet is given up.
        """
    def isend(self, data: Buffer, to: int, *, tag: int = 0) -> Request:
        """Starts what send() does; data is in use until the request has ended.

        Never waits: a message for which send() would is a request that ends later.
        """
    def irecv(
        self, buffer: Buffer, source: int | None = None, *, tag: int | None = None
    ) -> Request:
        """Starts what recv() does; buffer is in use until the request has ended."""
    def iallreduce(self, buffer: Buffer, op: _Op = "sum") -> Request:
        """Starts what allreduce() does; buffer is in use until the request has ended.

        All ranks start it by this call, in the same order as their other collective operations; any
        number may be under way, also of the ones below.
        """
    def ireduce(self, buffer: Buffer, root: int = 0, op: _Op = "sum") -> Request:
        """Starts what reduce() does; buffer is in use until the request has ended."""
    def ireduce_scatter(
        self, buffer: Buffer, op: _Op = "sum"
    ) -> tuple[Request, tuple[int, int]]:
        """Starts what reduce_scatter() does; buffer is in use until the request has ended.

        Returns the request and, at once, what reduce_scatter() does.
        """
    def igather(self, own: Buffer, all: Buffer | None = None, root: int = 0) -> Request:
        """Starts what gather() does; both buffers are in use until the request has ended."""
    def igatherv(
        self,
        own: Buffer,
        all: Buffer | None = None,
        lengths: Sequence[int] | None = None,
        root: int = 0,
    ) -> Request:
        """Starts what gatherv() does; both buffers are in use until the request has ended.

        Where one of them has a wrong length its wait() raises what gatherv() does, and others, and
        this communicator, go on.
        """
    def iallgather(self, own: Buffer, all: Buffer) -> Request:
        """Starts what allgather() does; both buffers are in use until the request has ended."""
    def iallgatherv(self, own: Buffer, all: Buffer, lengths: Sequence[int]) -> Request:
        """Starts what allgatherv() does; both buffers are in use until the request has ended."""
    def iscatter(self, all: Buffer | None, own: Buffer, root: int = 0) -> Request:
        """Starts what scatter() does; both buffers are in use until the request has ended."""
    def iscatterv(
        self,
        all: Buffer | None,
        lengths: Sequence[int] | None,
        own: Buffer,
        root: int = 0,
    ) -> Request:
        """Starts what scatterv() does; both buffers are in use until the request has ended.

        Lengths that do not fit raise what they do in igatherv(); a root that raises at once sends
        nothing.
        """
    def ialltoall(self, data: Buffer, buffer: Buffer) -> Request:
        """Starts what alltoall() does; both buffers are in use until the request has ended."""
    def ialltoallv(
        self,
        data: Buffer,
        data_lengths: Sequence[int],
        buffer: Buffer,
        buffer_lengths: Sequence[int],
    ) -> Request:
        """Starts what alltoallv() does; both buffers are in use until the request has ended."""
    def split(self, color: int | None, key: int = 0) -> Communicator | None:
        """Parts the communicator: ranks of one color get a new one, in the order of their keys.

        A rank without color gets None. A job makes at most 2^27 - 1 communicators in its life,
        those that were let go of counted. Raises PeerFailed, TooManyCommunicators.
        """
    def dup(self) -> Communicator:
        """A communicator of the same ranks whose messages do not mix with this one's."""
    def stats(self) -> dict[str, int]:
        """Counts since this rank has started; `omnes stat --help` says what each means."""
    def finalize(self) -> None:
        """Leaves the job: waits for all ranks, then for the last answers.

        The last act of every rank, on the communicator of from_env(); ValueError on others. A
        second call does nothing.
        """
    def abandon(self) -> None:
        """Leaves the job without waiting for its ranks: who waits for this one gets PeerLeft.

        For ranks that cannot go on; waits for the last answers for a second at most. Of the
        communicator of from_env(), ValueError on others, which get AlreadyLeft from then on. A
        second call does nothing.
        """
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None:
        """Finalizes; after an exception, that of sys.exit() too, leaves without waiting, and nobody
        waits for this rank.

        A communicator of join(), split() or dup() is just let go of: omnes.leave() leaves the jobs
        of join().
        """

@final
class Request:
    """An operation that has been started; it goes on by itself. Any threads may use it at once.

    Dropped before it has ended it is given up: the message of a receive is for the next receive,
    but lost if it has begun to come; those to whom this rank would have passed a broadcast on get
    PeerGaveUp, and later broadcasts their own data; of a reduction, gather or scatter, all
    collective operations of the communicator raise CollectivesBroken from then on.
    """

    def test(self) -> bool:
        """Whether the operation has ended; waits for nobody. Raises what the operation raises."""
    def wait(self) -> None:
        """Waits until the operation has ended. Raises what the operation raises.

        What a signal handler raises is raised too, and the operation is given up, unless it has
        ended while the handler ran: then status is not None, and another wait() raises nothing.
        """
    @property
    def status(self) -> tuple[int, int, int] | None:
        """Source, tag and length in bytes, as of recv(); None before the operation has ended."""

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
