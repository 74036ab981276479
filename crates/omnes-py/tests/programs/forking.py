"""A forked child cannot take its parent's place; the parent continues."""

import os
import threading
import warnings

import omnes
from children import in_child, refused


def fork(world):
    """Forks while a request is outstanding and another thread waits for a second one."""
    room = bytearray(4)
    request, waited_for = world.irecv(room, 1, tag=1), world.irecv(bytearray(4), 1, tag=2)
    waiting = threading.Thread(target=waited_for.wait)
    waiting.start()

    def child():
        assert (world.rank, world.size) == (0, 2)
        calls = (
            lambda: world.bcast(bytearray(4)),
            lambda: world.send(b"evil", 1),
            lambda: world.recv(bytearray(4), 1),
            world.barrier,
            world.ibarrier,
            world.dup,
            world.stats,
            request.test,
            request.wait,
            lambda: request.status,
            waited_for.test,
            waited_for.wait,
            omnes.Communicator.from_env,
            lambda: omnes.join(0, 1, lambda own: [own]),
        )
        refused(*calls)
        omnes.abandon()
        for _ in range(2):
            world.finalize()
            world.abandon()

    in_child(child, lambda: os._exit(0))
    world.barrier()
    request.wait()
    waiting.join()
    assert room == b"good"


with omnes.Communicator.from_env() as world, warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of fork() in a process with threads
    if world.rank == 0:
        fork(world)
    else:
        world.barrier()
        world.send(b"good", 0, tag=1)
        world.send(b"last", 0, tag=2)
