# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Broadcasts and barriers of mpi4py: buffers, pickled objects, requests.

Everything received is compared with the data of the sender. Rank 0 prints ok.

    mpirun -n 4 python mix.py [--steps N] [--seed N]
"""

import argparse
import array
import random
import sys

from mpi4py import MPI

WORLD = MPI.COMM_WORLD
LENGTHS = (0, 1, 8, 100, 1000, 5000, 70000, 1 << 20)


def check(is_right, what):
    if not is_right:
        print(f"mix.py: rank {WORLD.rank}: wrong: {what}", file=sys.stderr, flush=True)
        WORLD.Abort(1)


def content(generator, length):
    """Return the bytes that the root sends, which all ranks know."""
    return generator.randbytes(length)


def broadcast_buffer(comm, root, expected):
    buffer = bytearray(expected if comm.rank == root else bytes(len(expected)))
    comm.Bcast([buffer, MPI.BYTE], root)
    check(buffer == expected, "Bcast of a bytearray")


def broadcast_numbers(comm, root, expected):
    numbers = array.array("d", map(float, expected[:500]))
    buffer = numbers if comm.rank == root else array.array("d", bytes(8 * len(numbers)))
    comm.Bcast(buffer, root)
    check(buffer == numbers, "Bcast of doubles")


def broadcast_spread(comm, root, expected):
    """Broadcast every third byte, with a vector type; the bytes between must not change."""
    count = min(len(expected), 2000)
    spread = bytearray(b"\x55" * (3 * count))
    if comm.rank == root:
        spread[::3] = expected[:count]
    kind = MPI.BYTE.Create_vector(count, 1, 3).Commit()
    comm.Bcast([spread, 1, kind], root)
    kind.Free()
    check(spread[::3] == expected[:count], "Bcast of a vector")
    check(set(spread[1::3] + spread[2::3]) <= {0x55}, "the bytes between")


def broadcast_object(comm, root, expected):
    made = {"bytes": expected, "rank": root, "nested": [1, (2.5, "three"), None]}
    check(comm.bcast(made if comm.rank == root else None, root) == made, "bcast of an object")


def broadcast_nonblocking(comm, root, expected):
    buffers = [bytearray(expected if comm.rank == root else bytes(len(expected)))
               for _ in range(3)]
    requests = [comm.Ibcast([buffer, MPI.BYTE], root) for buffer in buffers]
    requests.insert(1, comm.Ibarrier())
    if expected[:1] < b"\x80":
        MPI.Request.Waitall(requests)
    else:
        while not MPI.Request.Testall(requests):
            pass
    check(all(buffer == expected for buffer in buffers), "Ibcast")


def objects_across(comm, root, _):
    """Send messages across a barrier and a broadcast of all ranks."""
    large = bytes([root % 256]) * 300000
    sent = comm.isend(large, (comm.rank + 1) % comm.size, 3)
    comm.Barrier()
    check(comm.bcast(root if comm.rank == root else None, root) == root, "bcast of a number")
    check(comm.recv(source=(comm.rank - 1) % comm.size, tag=3) == large, "a pickled message")
    sent.wait()


def meet(comm, root, _):
    comm.Barrier()
    comm.barrier()
    check(comm.allreduce(1) == comm.size, "allreduce after a barrier")
    check(comm.allgather(comm.rank) == list(range(comm.size)), f"allgather, root {root}")


ACTIONS = (broadcast_buffer, broadcast_numbers, broadcast_spread, broadcast_object,
           broadcast_nonblocking, objects_across, meet)


def communicators():
    """Yield the world, a duplicate of it, its two halves, and each rank alone."""
    yield WORLD, False
    yield WORLD.Dup(), True
    yield WORLD.Split(WORLD.rank % 2, -WORLD.rank), True
    yield MPI.COMM_SELF, False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    generator = random.Random(args.seed)  # the same on all ranks
    for comm, is_own in communicators():
        for _ in range(args.steps):
            action = generator.choice(ACTIONS)
            expected = content(generator, generator.choice(LENGTHS))
            action(comm, generator.randrange(1 << 20) % comm.size, expected)
        if is_own:
            comm.Free()
    try:
        WORLD.Bcast([bytearray(1), MPI.BYTE], WORLD.size)
        check(False, "a root that does not exist is taken")
    except MPI.Exception as error:
        check(error.Get_error_class() == MPI.ERR_ROOT, "the class of an error")
    WORLD.Barrier()
    if WORLD.rank == 0:
        print("mix.py: ok")


main()
