"""Nonblocking messages, and communicators of ranks that exchange data by other means."""

import array
import copy
import sys
import threading

import omnes

with omnes.Communicator.from_env() as world:
    rank, size = world.rank, world.size
    after, before = (rank + 1) % size, (rank - 1) % size

    # All ranks send first, more than a channel accepts unrequested; none waits forever.
    own, come = bytes([rank]) * 1_000_000, bytearray(1_000_000)
    sent = world.isend(own, after, tag=7)
    received = world.irecv(come, before, tag=7)
    assert received.status is None or received.test()
    received.wait()
    sent.wait()
    assert come == bytes([before]) * 1_000_000
    assert received.status == (before, 7, 1_000_000), received.status

    come = bytearray(1_000_000)
    assert world.sendrecv(own, after, come, before, tag=6, wanted=6) == (before, 6, 1_000_000)
    assert come == bytes([before]) * 1_000_000
    assert world.sendrecv(b"ab", after, come)[2] == 2
    try:
        world.sendrecv(memoryview(come)[:9], after, come)
    except ValueError as error:
        assert "overlap" in str(error), error
    else:
        raise AssertionError("nobody has noticed")

    # A message of any length, from any rank.
    assert world.iprobe(tag=4) is None
    world.isend(own[:1234], after, tag=5).wait()
    source, tag, length = world.probe(tag=5)
    assert (source, tag, length) == (before, 5, 1234), (source, tag, length)
    assert world.iprobe(before) == (before, 5, 1234)
    come = bytearray(length)
    assert world.recv(come, source, tag=tag) == (before, 5, 1234)
    assert come == bytes([before]) * 1234 and world.iprobe(tag=5) is None

    # From any rank, and shorter than the buffer.
    received = world.irecv(bytearray(10))
    world.isend(b"abc", after, tag=8).wait()
    received.wait()
    assert received.status == (before, 8, 3), received.status

    # A caller that is getting an error may ask for it again meanwhile.
    received = world.irecv(bytearray(2), before, tag=10)
    world.isend(b"abc", after, tag=10).wait()
    really_copied, asked = copy.copy, []

    def copied(error):
        copy.copy = really_copied
        assert received.status is None
        try:
            received.test()
        except omnes.Truncated:
            asked.append(error)
        return really_copied(error)

    for call in (received.wait, received.test):
        try:
            call()
        except omnes.Truncated:
            copy.copy = copied
        else:
            raise AssertionError("nobody has noticed")
    copy.copy = really_copied
    assert len(asked) == 1, asked

    # Several threads wait for one message, and another one tests for it meanwhile.
    received = world.irecv(bytearray(10), before, tag=9)
    ended = []

    def wait():
        received.wait()
        ended.append(received.status)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    world.barrier()
    assert not received.test() and received.status is None
    world.barrier()
    world.isend(b"last", after, tag=9).wait()
    while not received.test():
        pass
    for thread in threads:
        thread.join()
    assert ended == [(before, 9, 4)] * 3, ended

    # Memory that is freed at the end may access the request.
    class Watched(bytearray):
        def __del__(self):
            seen.append(received.status)

    seen = []
    received = world.irecv(Watched(10), before, tag=10)
    world.isend(b"seen", after, tag=10).wait()
    while not received.test():
        pass
    assert seen == [(before, 10, 4)], seen

    # Reductions and gathers, all outstanding concurrently, ended in another order.
    numbers, least = array.array("q", [rank, 1]), array.array("d", [rank + 0.5])
    own, table, at_all = bytes([rank]), bytearray(size), bytearray(size)
    part, back = bytearray(1), bytearray(size)
    requests = [
        world.iallreduce(numbers),
        world.ireduce(least, root=size - 1, op="min"),
        world.igather(own, table if rank == 0 else None),
        world.iallgather(own, at_all),
        world.iscatter(bytes(range(50, 50 + size)) if rank == 0 else None, part),
        world.ialltoall(bytes(10 * rank + to for to in range(size)), back),
    ]
    world.barrier()
    for request in reversed(requests):
        request.wait()
    assert list(numbers) == [size * (size - 1) // 2, size], numbers
    assert rank != size - 1 or least[0] == 0.5, least
    assert at_all == bytes(range(size)) and (rank or table == at_all)
    assert part == bytes([50 + rank]) and back == bytes(10 * k + rank for k in range(size))
    try:
        world.iallgather(own, bytearray(size + 1))
    except omnes.BufferLength:
        pass
    else:
        raise AssertionError("nobody has noticed")

    # Blocks of sums, and parts where rank r has r bytes, concurrently.
    numbers, lengths = array.array("q", range(rank, rank + 2 * size)), list(range(size))
    own, joint = bytes([rank]) * rank, b"".join(bytes([k]) * k for k in range(size))
    table, at_all, part = bytearray(len(joint)), bytearray(len(joint)), bytearray(rank)
    back, root = bytearray(rank * size), rank == 0
    summed, block = world.ireduce_scatter(numbers)
    requests = [
        summed,
        world.igatherv(own, table if root else None, lengths if root else None),
        world.iallgatherv(own, at_all, lengths),
        world.iscatterv(joint if root else None, lengths if root else None, part),
        world.ialltoallv(bytes([rank]) * len(joint), lengths, back, [rank] * size),
    ]
    for request in requests:
        request.wait()
    assert block == (2 * rank, 2 * rank + 2), block
    for at, number in enumerate(numbers):
        ours = size * at + size * (size - 1) // 2 if at in range(*block) else rank + at
        assert number == ours, numbers
    assert at_all == joint and (table == joint or not root) and part == own
    assert back == b"".join(bytes([k]) * rank for k in range(size)), back
    try:
        world.iallgatherv(own, at_all, lengths[1:])
    except omnes.BufferLength:
        pass
    else:
        raise AssertionError("nobody has noticed")

    same = bytearray(size)
    try:
        world.ialltoall(same, same)
    except ValueError as error:
        assert "overlap" in str(error), error
    else:
        raise AssertionError("nobody has noticed")

    def allgather(own):
        table = bytearray(len(own) * size)
        world.allgather(own, table)
        return [bytes(table[at : at + len(own)]) for at in range(0, len(table), len(own))]

    joined = omnes.join(rank, size, allgather)
    assert (joined.rank, joined.size) == (rank, size)
    number = bytearray([rank])
    joined.bcast(number, root=size - 1)
    assert number == bytes([size - 1])
    omnes.leave()
    try:
        joined.barrier()
    except omnes.AlreadyLeft as error:
        assert "this rank has left the job" in str(error), error
    else:
        raise AssertionError("who has left goes on")
    omnes.join(rank, size, allgather).barrier()
    omnes.abandon()
    world.barrier()

for broken, cause in ((lambda own: 1 / 0, ZeroDivisionError), (lambda own: [1], TypeError)):
    try:
        omnes.join(0, 1, broken)
    except omnes.ExchangeFailed as error:
        assert isinstance(error.__cause__, cause), error.__cause__
    else:
        raise AssertionError("nobody has noticed")


def interrupt(own):
    raise KeyboardInterrupt


# An exception that is to end the program is not an error of the exchange.
for end, kind in ((interrupt, KeyboardInterrupt), (lambda own: sys.exit(3), SystemExit)):
    try:
        omnes.join(0, 1, end)
    except kind as error:
        assert error.__cause__ is None and error.args in ((), (3,)), error
    else:
        raise AssertionError("the program goes on")
