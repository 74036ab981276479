"""Calls within a limit end with TimeoutError, whatever they wait for, and later calls work."""

import array
import contextlib
import gc
import os
import signal
import threading
import time
import weakref

import omnes

# Number of short waits that take a second in total.
SHORT_WAITS = 400


def times_out(call, *limits):
    """True if the call ends with a TimeoutError within nested limits."""
    try:
        with contextlib.ExitStack() as stack:
            for limit in limits:
                stack.enter_context(omnes.time_limit(limit))
            call()
    except TimeoutError as error:
        assert f"within {min(limits)} s" in str(error), error
        return True
    return False


class Beside:
    """An object that a function holds besides a request."""


def waits_in_vain(world):
    """The object held by a function that has waited twice for a request that no rank serves."""
    beside, request = Beside(), world.irecv(bytearray(4), 1, tag=11)
    for _ in range(2):
        assert times_out(lambda: (request.wait(), beside), 0.1)
    return weakref.ref(beside)


def block(limit):
    with omnes.time_limit(limit):
        yield


for wrong in (-1, float("nan"), -float("inf")):
    try:
        omnes.time_limit(wrong)
    except ValueError as error:
        assert "seconds=" in str(error), error
    else:
        raise AssertionError(f"{wrong} is a limit")


def let_limit_pass(*_):
    """Returns when the message that the call waits for is there, and its limit of a second has
    expired.
    """
    world.send(b"", 1, tag=10)
    # A message that arrives after it; code that runs while a call waits should not wait itself.
    while not world.iprobe(1, tag=10):
        pass
    time.sleep(1)


own = os.environ["OMNES_RENDEZVOUS"]
if os.environ["OMNES_RANK"] == "1":
    os.environ["OMNES_RENDEZVOUS"] = "127.0.0.1:1"
    assert times_out(omnes.Communicator.from_env, 0.1)
    os.environ["OMNES_RENDEZVOUS"] = own
with omnes.Communicator.from_env() as world:
    if world.rank == 0:
        room = bytearray(4)
        assert times_out(lambda: world.recv(room, 1, tag=1), 0.1)
        assert times_out(lambda: world.recv(room, 1, tag=1), 60, 0.1)
        assert times_out(lambda: world.recv(room, 1, tag=1), 0.1, 60)
        assert times_out(lambda: world.recv(room, 1, tag=1), float("inf"), 0.1)
        assert times_out(lambda: world.irecv(room, 1, tag=1).wait(), 0.1)
        assert times_out(lambda: world.bcast(room, root=1), 0.1)
        assert times_out(world.barrier, 0.1)
        # A limit applies to its thread and its block.
        limit = omnes.time_limit(0.1)
        with limit, limit:
            thread = threading.Thread(target=lambda: world.recv(room, 1, tag=3))
            thread.start()
            time.sleep(0.3)
            world.send(b"", 1, tag=2)
        thread.join()
        world.recv(room, 1, tag=1)
        assert room == b"here", room
        # Also if several threads are in one limit.
        shared = omnes.time_limit(60)
        inside, outside = threading.Event(), threading.Event()

        def share():
            with omnes.time_limit(0.1), shared:
                inside.set()
                outside.wait()

        thread = threading.Thread(target=share)
        with shared:
            thread.start()
            inside.wait()
        outside.set()
        thread.join()
        # Blocks that end before the blocks inside them leave nothing behind.
        blocks = [block(0.1), block(60)]
        for each in blocks:
            next(each)
        for each in blocks:
            each.close()
        # Nor do blocks that end on another thread, such as one that collects a generator.
        moved = block(0.01)
        next(moved)
        thread = threading.Thread(target=moved.close)
        thread.start()
        thread.join()
        assert times_out(lambda: world.recv(room, 1, tag=1), 0.1)
        # An exception that a request raises repeatedly holds nothing of the functions that waited
        # for it.
        kept = waits_in_vain(world)
        gc.collect()
        assert kept() is None
        request = world.irecv(room, 1, tag=5)
        world.send(b"", 1, tag=4)
        thread = threading.Thread(target=request.wait)
        thread.start()
        time.sleep(0.1)
        # A thread that waits for a request together with another has its own limits.
        assert times_out(request.wait, 0.1)
        world.send(b"", 1, tag=4)
        thread.join()
        request.wait()
        assert room == b"late", room
        # Calls that each wait only briefly also observe limits.
        world.send(b"", 1, tag=6)
        left = SHORT_WAITS

        def receive_all():
            global left
            while left:
                world.recv(bytearray(0), 1, tag=7)
                left -= 1

        assert times_out(receive_all, 0.1) and left
        receive_all()
        # A receive that ends while a handler runs has succeeded, even if its limit has expired by
        # then.
        signal.signal(signal.SIGALRM, let_limit_pass)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        over_at = time.monotonic() + 1
        assert not times_out(lambda: world.recv(room, 1, tag=9), 1)
        assert time.monotonic() > over_at and room == b"past", room
        # Without a limit, the next call works.
        world.recv(bytearray(0), 1, tag=10)
        world.send(b"", 1, tag=10)
        world.recv(room, 1, tag=9)
        assert room == b"next", room
    else:
        world.recv(bytearray(0), 0, tag=2)
        world.send(b"else", 0, tag=3)
        world.send(b"here", 0, tag=1)
        world.recv(bytearray(0), 0, tag=4)
        world.recv(bytearray(0), 0, tag=4)
        # The limit that another thread was in has expired by then.
        time.sleep(0.3)
        world.send(b"late", 0, tag=5)
        world.recv(bytearray(0), 0, tag=6)
        for _ in range(SHORT_WAITS):
            time.sleep(0.002)
            world.send(b"", 0, tag=7)
        world.recv(bytearray(0), 0, tag=10)
        world.send(b"past", 0, tag=9)
        world.send(b"", 0, tag=10)
        world.recv(bytearray(0), 0, tag=10)
        time.sleep(0.1)
        world.send(b"next", 0, tag=9)
        world.bcast(bytearray(4), root=1)
        # The other rank has entered the barrier, although it has not waited.
        world.barrier()
    # All ranks are notified of a collective that is given up.
    part = world.dup()
    numbers = array.array("d", [1] * 9)
    if world.rank == 0:
        assert times_out(lambda: part.allreduce(numbers), 0.1)
        world.send(b"", 1, tag=8)
    else:
        world.recv(bytearray(0), 0, tag=8)
    try:
        part.allreduce(numbers)
    except omnes.CollectivesBroken as error:
        assert (error.rank, error.collective) == (0, "allreduce"), error
    else:
        raise AssertionError("rank 0 has given up")
    world.barrier()
