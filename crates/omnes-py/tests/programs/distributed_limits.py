"""Collectives and messages of torch.distributed end at the limit of their group; only a message
that was ended by a signal raises what the handler raised.
"""

import gc
import signal
import time
import weakref
from datetime import timedelta

import omnes
import omnes.distributed
import torch
import torch.distributed as dist


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


SHORT = timedelta(milliseconds=200)
dist.init_process_group("omnes")
rank = dist.get_rank()
hasty = [dist.new_group(range(2), timeout=SHORT) for _ in range(4)]
if rank == 0:
    error = raises(TimeoutError, lambda: dist.all_reduce(torch.ones(9), group=hasty[0]))
    assert "0.2 s" in str(error) and "not come to it" in str(error), error
    assert str(error).endswith("part: 1"), error
    work = dist.broadcast(torch.ones(1 << 20), 1, group=hasty[1], async_op=True)
    error = raises(TimeoutError, work.wait)
    assert "0.2 s; it waits for rank 1, the root" in str(error), error
    raises(TimeoutError, lambda: dist.recv(torch.ones(1), 1, group=hasty[2]))
    work = dist.irecv(torch.ones(1), 1)
    raises(TimeoutError, lambda: work.wait(SHORT))
    # A barrier names the ranks.
    error = raises(omnes.BarrierTimeout, lambda: dist.barrier(hasty[3]))
    assert error.missing == [1], error.missing
else:
    time.sleep(1.5)
# The first group has its own, long limit.
number = torch.tensor(rank + 1)
dist.all_reduce(number)
assert number.item() == 3


def interrupted(call):
    """Ends the call by a signal that arrives while it waits."""
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    raises(KeyboardInterrupt, call)


if rank == 0:
    work = dist.irecv(torch.zeros(1), 1, tag=9)
    interrupted(work.wait)
    assert isinstance(work.exception(), KeyboardInterrupt) and work.is_completed()
    interrupted(lambda: dist.recv(torch.zeros(1), 1, tag=9))
    # A message that arrives while the handler runs is received, even into a strided tensor.
    place, token = torch.zeros(3, 2)[:, 0], torch.zeros(1)

    def end_after_message(*_):
        dist.send(token, 1)
        # After that message.
        dist.recv(token, 1)
        raise KeyError if token.item() else KeyboardInterrupt

    for kind in KeyboardInterrupt, KeyError:
        work = dist.irecv(place, 1, tag=10)
        signal.signal(signal.SIGALRM, end_after_message)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        raises(kind, work.wait)
        assert work.is_success() and work.wait() and place.eq(work.source_rank()).all(), place
        place.zero_()
        token.fill_(1)
else:
    for turn in range(2):
        token = torch.zeros(1)
        dist.recv(token, 0)
        dist.send(torch.ones(3), 0, tag=10)
        dist.send(token, 0)
# Enough messages for the group to look for those that have ended.
for turn in range(40):
    number = torch.tensor(turn)
    dist.recv(number, 0) if rank else dist.send(number, 1)
    assert number.item() == turn
# A message that has ended holds no memory.
tensor = torch.zeros(3)
work = dist.irecv(tensor, 0) if rank else dist.isend(tensor, 1)
work.wait()
memory = weakref.ref(tensor)
del tensor, work
gc.collect()
assert memory() is None
# A group names the ranks that do not join it.
if rank == 0:
    error = raises(TimeoutError, lambda: dist.new_group(timeout=SHORT))
    assert "of its ranks these: 1" in str(error), error
dist.destroy_process_group()
