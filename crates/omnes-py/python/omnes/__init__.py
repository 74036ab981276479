"""Collective communication for clusters on plain Ethernet.

A program is started once per rank, by ``omnes run``, ``mpirun``, ``srun`` or
``torchrun``, and each copy creates its communicator::

    import omnes

    with omnes.Communicator.from_env() as world:
        weights = bytearray(1 << 20)
        if world.rank == 0:
            weights[:] = b"\\7" * len(weights)
        world.bcast(weights)
        world.barrier()

Any object with the buffer protocol can be sent and received: bytearray, memoryview,
array.array, NumPy arrays. Buffers are used in place, without a copy in Python.
``omnes.torch`` pushes the weights of PyTorch modules, and ``omnes.distributed`` is
a backend of torch.distributed.

At the end of the ``with`` block a rank leaves the job together with all other
ranks; leave() leaves jobs of join(). If a rank leaves through an exception,
including that of sys.exit(), or without the ``with`` block, ranks that wait for it
get PeerLeft; if it is killed, PeerFailed.

Errors are subclasses of ``omnes.Error``, one per kind. While a call waits, other
threads run, and so do signal handlers, twenty times a second. An exception of a
handler, such as KeyboardInterrupt, ends the call, as does the time_limit() around
it. The operation is then given up; ``Communicator`` describes the consequences for
other operations and ranks. After fork(), as in the workers of a DataLoader, calls
in the child raise ValueError: only rank and size remain available there.
"""

from ._omnes import (
    AlreadyLeft,
    Barrier,
    BarrierTimeout,
    BufferLength,
    CollectivesBroken,
    Communicator,
    DeclaredFailed,
    Error,
    Exchange,
    ExchangeFailed,
    Interrupted,
    InvalidVariable,
    Join,
    Mismatch,
    MultiSend,
    NoLauncher,
    NoMulticast,
    NoNic,
    PeerFailed,
    PeerGaveUp,
    PeerLeft,
    RankOutOfRange,
    Reduction,
    Request,
    TooLarge,
    TooManyCommunicators,
    Truncated,
    __version__,
    abandon,
    join,
    leave,
    time_limit,
)

__all__ = [
    "AlreadyLeft",
    "Barrier",
    "BarrierTimeout",
    "BufferLength",
    "CollectivesBroken",
    "Communicator",
    "DeclaredFailed",
    "Error",
    "Exchange",
    "ExchangeFailed",
    "Interrupted",
    "InvalidVariable",
    "Join",
    "Mismatch",
    "MultiSend",
    "NoLauncher",
    "NoMulticast",
    "NoNic",
    "PeerFailed",
    "PeerGaveUp",
    "PeerLeft",
    "RankOutOfRange",
    "Reduction",
    "Request",
    "TooLarge",
    "TooManyCommunicators",
    "Truncated",
    "__version__",
    "abandon",
    "join",
    "leave",
    "time_limit",
]
