"""A rank that is stopped, as by a signal: what it is sent does not arrive."""

import os
import signal
import time


def stop(world):
    """Stops this process, of which rank 0 knows the number then."""
    world.send(str(os.getpid()).encode(), 0)
    os.kill(os.getpid(), signal.SIGSTOP)


def stopped(world, rank):
    """The process of a rank that stops, when it has."""
    room = bytearray(16)
    process = int(room[: world.recv(room, rank)[2]])
    while open(f"/proc/{process}/stat").read().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.001)
    return process
