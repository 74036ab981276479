"""Collective communication for clusters on plain Ethernet.

A program is started once per rank, by ``omnes run``, ``mpirun``, ``srun`` or
``torchrun``, and each copy asks for its communicator::

    import omnes

    with omnes.Communicator.from_env() as world:
        weights = bytearray(1 << 20)
        if world.rank == 0:
            weights[:] = b"\\7" * len(weights)
        world.bcast(weights)
        world.barrier()

Any object with the buffer protocol will do: bytearray, memoryview, array.array,
NumPy arrays. They are used where they are, without a copy in Python. ``omnes.torch`` pushes
the weights of PyTorch modules, and ``omnes.distributed`` is a backend of
torch.distributed.

The end of the ``with`` block leaves the job together with all other ranks; jobs of
join() are left by leave(). Ranks that wait for one that leaves through an
exception, such as that of sys.exit(), or without the ``with`` block, get PeerLeft;
for one that is killed, PeerFailed.
Errors are ``omnes.Error``, one subclass per kind. Calls that wait let other
threads run, and signal handlers twenty times a second: what those raise, such as
KeyboardInterrupt, ends the call, as does the end of a time_limit() that it is in.
Its operation is given up then; ``Communicator`` says what that does to others.
After fork(), as of a DataLoader's workers, calls of the child raise ValueError:
it knows its rank, and leaves the rest to its parent.
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
