"""Results of each collective call, with 2 or more ranks."""

import array
import ctypes
import math
import pickle
import sys
import threading

import omnes


def raises(kind, call, *args, **options):
    """The exception of that kind that the call raises."""
    try:
        call(*args, **options)
    except kind as error:
        return error
    raise AssertionError(f"{call} has not raised {kind}")


def broadcasts(world):
    for length in (0, 1, 1000, 1 << 20):
        for root in (0, world.size - 1):
            given = bytes((root + i) % 251 for i in range(length))
            # The root's buffer may be read-only, and any object with a buffer is accepted.
            buffer = given if world.rank == root else memoryview(bytearray(length))
            world.bcast(buffer, root)
            assert bytes(buffer) == given
    numbers = array.array("d", [world.rank] * 1000)
    world.bcast(numbers, root=1)
    assert set(numbers) == {1.0}
    number = ctypes.c_double(world.rank)  # has no dimensions
    world.bcast(number, root=1)
    assert number.value == 1


def requests(world):
    buffers = [bytearray([i + 1] * 3000 if world.rank == 0 else 3000) for i in range(20)]
    started = [world.ibcast(buffer) for buffer in buffers]
    # A buffer used by a request cannot be resized.
    raises(BufferError, buffers[0].append, 1)
    for request in reversed(started):
        request.wait()
        request.wait()  # nothing remains to wait for
    assert all(set(buffer) == {i + 1} for i, buffer in enumerate(buffers))
    buffers[0].append(1)
    entered = world.ibarrier()
    while not entered.test():
        pass
    assert entered.test()


def reductions(world):
    total = sum(range(world.size))
    for letter in "bhilqBHILQfd":
        numbers = array.array(letter, [world.rank, 1, 2] * 100)
        world.allreduce(numbers)
        assert list(numbers) == [total, world.size, 2 * world.size] * 100, letter
    numbers = array.array("d", [world.rank + 0.5] * 100_000)
    world.allreduce(numbers, "max")
    assert set(numbers) == {world.size - 0.5}
    number = ctypes.c_double(world.rank)
    world.allreduce(number)
    assert number.value == total
    bits = bytearray([1 << world.rank])
    world.allreduce(bits, op="or")
    assert bits[0] == (1 << world.size) - 1
    numbers = array.array("q", [world.rank + 1])
    world.reduce(numbers, root=1, op="product")
    if world.rank == 1:
        assert numbers[0] == math.factorial(world.size)
    numbers = array.array("i", [1] * 10)
    first, last = world.reduce_scatter(numbers)
    assert list(numbers) == [world.size if first <= i < last else 1 for i in range(10)]
    assert "and is not for elements of f64" in str(
        raises(omnes.Reduction, world.allreduce, array.array("d", [1]), "and")
    )
    assert "`avg` is none of sum" in str(raises(omnes.Reduction, world.allreduce, numbers, "avg"))
    raises(TypeError, world.allreduce, memoryview(bytes(8)).cast("d"))
    raises(TypeError, world.allreduce, memoryview(bytearray(8)).cast("?"))


def scans(world):
    for count in (3, 30_000):
        numbers = array.array("q", [world.rank + 1] * count)
        world.scan(numbers)
        assert set(numbers) == {sum(range(world.rank + 2))}
        numbers = array.array("d", [world.rank + 0.5] * count)
        world.exscan(numbers, op="product")
        before = world.rank if world.rank else 1
        assert set(numbers) == {math.prod(rank + 0.5 for rank in range(before))}
    raises(omnes.Reduction, world.exscan, array.array("d", [1]), "xor")


def gathers(world):
    own = array.array("i", [world.rank, -world.rank])
    all_own = [number for rank in range(world.size) for number in (rank, -rank)]
    table = array.array("i", [7] * (2 * world.size))
    world.gather(own, table if world.rank == 1 else None, root=1)
    if world.rank == 1:
        assert list(table) == all_own
    world.allgather(own, table)
    assert list(table) == all_own
    part = array.array("i", [0, 0])
    world.scatter(table if world.rank == 0 else None, part)
    assert part == own
    buffer = bytearray(world.size)
    world.alltoall(bytes(10 * world.rank + to for to in range(world.size)), buffer)
    assert list(buffer) == [10 * rank + world.rank for rank in range(world.size)]
    assert isinstance(raises(omnes.BufferLength, world.allgather, own, bytearray(3)), ValueError)
    raises(ValueError, world.allgather, memoryview(table)[:2], table)
    raises(omnes.RankOutOfRange, world.gather, own, None, world.size)


def varied_gathers(world):
    rank, size = world.rank, world.size
    lengths = [3 * other for other in range(size)]  # rank 0 has none
    own, all_own = bytes([rank] * 3 * rank), b"".join(bytes([r] * 3 * r) for r in range(size))
    table = bytearray(len(all_own))
    if rank == 1:
        world.gatherv(own, table, lengths, root=1)
        assert table == all_own
    else:
        world.gatherv(own, root=1)
    table = bytearray(len(all_own))
    world.allgatherv(own, table, lengths)
    assert table == all_own
    part = bytearray(3 * rank)
    world.scatterv(table if rank == 0 else None, lengths if rank == 0 else None, part)
    assert part == own
    # Rank r sends r + to bytes to rank `to`.
    counts = tuple(rank + other for other in range(size))
    buffer = bytearray(sum(counts))
    world.alltoallv(bytes([rank] * sum(counts)), counts, buffer, counts)
    assert buffer == b"".join(bytes([r] * (rank + r)) for r in range(size))
    # A rank that passes a wrong length gets an error, and all continue.
    longer = own + bytes(rank == size - 1)
    if rank == 0:
        raises(omnes.Truncated, world.gatherv, longer, table, lengths)
        raises(omnes.BufferLength, world.gatherv, own, table, lengths[1:])
    else:
        world.gatherv(longer)
        world.gatherv(own)
    raises(omnes.BufferLength, world.allgatherv, own, bytearray(1), lengths)
    raises(omnes.Mismatch, world.allgatherv, own + b"x", table, lengths)
    raises(ValueError, world.allgatherv, own, table, [-1] * size)
    raises(TypeError, world.alltoallv, own, 7, table, lengths)
    raises(ValueError, world.alltoallv, table, lengths, table, lengths)


def messages(world):
    right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    world.send(b"to the right", right, tag=7)
    buffer = bytearray(100)
    assert world.recv(buffer) == (left, 7, 12)
    assert buffer.startswith(b"to the right\0")
    world.send(bytes(10), right)
    error = raises(omnes.Truncated, world.recv, bytearray(9), left, tag=0)
    assert "10 bytes" in str(error) and (error.bytes, error.capacity) == (10, 9)


def barriers(world):
    world.barrier()
    world.barrier(timeout_s=30)
    if world.rank == 0:
        error = raises(TimeoutError, world.barrier, timeout_s=0.05)
        assert isinstance(error, omnes.BarrierTimeout) and isinstance(error, omnes.Error)
        assert error.missing == list(range(1, world.size)), error
        assert "missing: rank 1" in str(error)
        world.send(b"", 1)
        world.barrier(timeout_s=30)
    else:
        if world.rank == 1:
            world.recv(bytearray())
            for rank in range(2, world.size):
                world.send(b"", rank)
        else:
            world.recv(bytearray(), source=1)
        world.barrier(timeout_s=30)


def groups(world):
    odd = world.split(world.rank % 2, -world.rank)
    assert odd.size == len(range(world.rank % 2, world.size, 2))
    buffer = bytearray([world.rank] if odd.rank == 0 else 1)
    odd.bcast(buffer)
    assert buffer[0] == max(range(world.rank % 2, world.size, 2))  # the rank with the smallest key
    assert world.split(None) is None
    copy = world.dup()
    assert (copy.rank, copy.size) == (world.rank, world.size)
    assert 1 <= world.node_count <= world.size
    assert world.stats()["barriers"] > 0
    assert world.multicast


def mistakes(world):
    """Invalid calls are rejected before any rank waits."""
    error = raises(omnes.RankOutOfRange, world.bcast, bytearray(1), root=world.size)
    assert isinstance(error, ValueError) and (error.rank, error.size) == (world.size,) * 2
    assert f"rank {world.size} is not in a communicator of {world.size} ranks" in str(error)
    assert "str has none" in str(raises(TypeError, world.bcast, "no buffer"))
    raises(TypeError, world.recv, b"read-only")
    raises(TypeError, world.bcast, b"read-only", (world.rank + 1) % world.size)
    raises(ValueError, world.bcast, memoryview(bytearray(10))[::2])
    for wrong in -1, float("nan"), -float("inf"):
        assert "timeout_s=" in str(raises(ValueError, world.barrier, timeout_s=wrong))
    for endless in 9e18, 1e30, float("inf"):  # beyond the range of any clock
        world.barrier(timeout_s=endless)
    raises(ValueError, world.dup().finalize)
    raises(ValueError, world.dup().abandon)
    for call in (world.send, world.isend):
        assert "to=-1 is not a number from 0 to" in str(raises(ValueError, call, b"", -1))
        assert "tag=-1 is" in str(raises(ValueError, call, b"", 0, tag=-1))
    for call in (world.recv, world.irecv):
        assert "source=-1 is" in str(raises(ValueError, call, bytearray(1), -1))
        assert "tag=4294967296 is" in str(raises(ValueError, call, bytearray(1), tag=1 << 32))
    for call in (world.bcast, world.ibcast, world.reduce, world.gather):
        assert "root=-1 is" in str(raises(ValueError, call, bytearray(1), root=-1)), call
    raises(ValueError, world.scatter, None, bytearray(1), root=-1)
    assert "color=-1 is" in str(raises(ValueError, world.split, -1))
    assert "rank=-1 is" in str(raises(ValueError, omnes.join, -1, 1, lambda own: [own]))
    raises(TypeError, pickle.dumps, world)
    assert issubclass(omnes.RankOutOfRange, omnes.Error) and issubclass(omnes.Error, RuntimeError)


class Named(ctypes.Structure):
    """The name of a field does not say what it holds."""

    _fields_ = [("O", ctypes.c_int)]


class Holding(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int), ("object", ctypes.py_object)]


class Tensor:
    def data_ptr(self):
        return 0


def objects(world):
    """Addresses of Python objects are not sent: a receiver that used them would crash."""
    for buffer in ((ctypes.py_object * 2)(), ctypes.py_object(), Holding(), (Holding * 3)()):
        for call in (world.bcast, world.ibcast, world.recv, world.allreduce):
            assert "pickle.dumps()" in str(raises(TypeError, call, buffer)), call
        raises(TypeError, world.send, buffer, world.rank)
    named = Named(world.rank)
    world.bcast(named, root=1)
    assert named.O == 1
    assert "omnes.torch" in str(raises(TypeError, world.bcast, Tensor()))


def other_threads_go_on(world):
    """A rank that waits lets other threads run: here, the one it waits for."""
    buffer = bytearray(4)
    waiting = threading.Thread(target=lambda: world.recv(buffer, world.rank, tag=9))
    waiting.start()
    world.send(b"self", world.rank, tag=9)
    waiting.join()
    assert buffer == b"self"


def other_threads_go_on_while_a_request_is_dropped(world):
    """Data still to be sent are then copied, which takes time."""
    world.barrier()
    if world.rank == 0:
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1000)  # a thread only runs when another one yields
        assert any(has_run_while_dropping(world) for _ in range(20))
        sys.setswitchinterval(interval)
    world.barrier()


def has_run_while_dropping(world):
    """True if another thread ran while a request was dropped; on a busy machine it may be late."""
    go, ran = threading.Event(), []
    waiting = threading.Thread(target=lambda: (go.wait(), ran.append(True)))
    waiting.start()
    sent = world.isend(bytearray(32 << 20), 1, tag=11)
    go.set()
    del sent
    has_run = bool(ran)
    waiting.join()
    return has_run


with omnes.Communicator.from_env() as world:
    for each in (
        broadcasts,
        requests,
        reductions,
        scans,
        gathers,
        varied_gathers,
        messages,
        barriers,
        groups,
        mistakes,
        objects,
        other_threads_go_on,
        other_threads_go_on_while_a_request_is_dropped,
    ):
        each(world)
assert "finalized" in str(raises(ValueError, world.barrier))
world.finalize()
assert "finalized" in repr(world)
