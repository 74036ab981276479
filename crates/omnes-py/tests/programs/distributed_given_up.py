"""After an error in a collective that consists of messages, none of them is received any more, even
if a traceback holds them, and the next collective, which is rejected, does not receive them either;
with 3 ranks. The error names the ranks for which a collective has waited in vain. A call that all
ranks reject ends nothing; a call that some reject ends all collectives of the group.
"""

import signal
from datetime import timedelta

import omnes
import omnes.distributed
import torch
import torch.distributed as dist

dist.init_process_group("omnes")
rank, size = dist.get_rank(), dist.get_world_size()
group = dist.new_group(range(size))
parts = [torch.full((9,), float(rank)) for _ in range(size)]
places = [torch.full((9,), -1.0) for _ in range(size)]
token = torch.zeros(1)
if rank == 0:
    group.set_timeout(timedelta(milliseconds=100))
    try:
        dist.all_to_all(places, parts, group=group)
    except TimeoutError as error:
        kept = error
    for other in range(1, size):
        dist.send(token, other)
    # Messages that the others sent in the collective arrive before this one.
    for other in range(1, size):
        dist.recv(token, other)
    assert str(kept).endswith("nothing has come from ranks: 1, 2"), kept
    assert kept.__traceback__ and all(place.eq(-1).all() for place in places[1:]), places
    for call in (
        lambda: dist.all_to_all(places, parts, group=group),
        lambda: dist.all_reduce(token, group=group, async_op=True).wait(),
    ):
        try:
            call()
        except omnes.CollectivesBroken as error:
            assert (error.rank, error.collective) == (0, "alltoall"), error
            assert "TimeoutError: the call has not ended within 0.1 s" in str(error), error
            assert "dist.new_group()" in str(error), error
        else:
            raise AssertionError("the group still works")
    assert all(place.eq(-1).all() for place in places[1:]), places
else:
    dist.recv(token, 0)
    dist.all_to_all(places, parts, group=group)
    assert all(place.eq(source).all() for source, place in enumerate(places)), places
    dist.send(token, 0)
# Barriers and other groups still work.
dist.barrier(group)
dist.all_to_all(places, parts)
assert all(place.eq(source).all() for source, place in enumerate(places)), places
# Rank 1 does not call it; the others report to each other that they wait.
group = dist.new_group(range(size), timeout=timedelta(milliseconds=400 if rank == 0 else 30_000))
if rank == 1:
    dist.recv(token, 0)
    dist.recv(token, 2)
else:
    try:
        dist.all_reduce(torch.zeros(1 << 16), group=group)
    except TimeoutError as error:
        assert rank == 0 and str(error).endswith("have done their part: 1"), error
    except omnes.CollectivesBroken as error:
        assert rank == 2 and (error.rank, error.collective) == (0, "allreduce"), error
        assert "dist.new_group()" in str(error) and "split or dup" not in str(error), error
    else:
        raise AssertionError("rank 1 has taken part")
    dist.send(token, 1)


def gather(length, group):
    dist.all_gather_into_tensor(torch.zeros(length), torch.ones(2), group=group)


for _ in range(2):
    try:
        gather(3, None)
    except ValueError:
        pass
    else:
        raise AssertionError("the tensor is too short")
for few in ([token], [token] * (size + 1), []):
    for call in (
        lambda: dist.all_gather(few, torch.ones(1)),
        lambda: dist.group.WORLD.reduce_scatter([token], [few]).wait(),
    ):
        try:
            call()
        except ValueError as error:
            assert f"{len(few)} tensors for {size} ranks" in str(error), error
        else:
            raise AssertionError("there is a tensor too few or too many")
number = torch.tensor(rank)
dist.all_reduce(number)
assert number.item() == sum(range(size))
group = dist.new_group(range(size))
try:
    gather(3 if rank == 0 else 2 * size, group)
except ValueError:
    assert rank == 0
except omnes.CollectivesBroken as error:
    assert rank and (error.rank, error.collective) == (0, "allgather_base"), error
    assert "it has refused its part" in str(error) and "3 elements" in str(error), error
else:
    raise AssertionError("rank 0 has taken part")
group.set_timeout(timedelta(milliseconds=300))
try:
    dist.all_reduce(number, group=group)
except omnes.CollectivesBroken as error:
    assert error.rank == 0, error
    assert rank or "others have not: 1, 2; ValueError: 3 elements" in str(error), error
else:
    raise AssertionError("that was another collective")
# Nor does a barrier match a call that a rank has rejected, for whatever reason, also if an earlier
# barrier was interrupted.
unusable = torch.ones(1, dtype=torch.float8_e4m3fn)


def interrupt(signal, frame):
    raise KeyboardInterrupt


def all_to_all_in_parts(group):
    splits = [size, -1] + [1] * (size - 2)
    dist.all_to_all_single(torch.ones(size), torch.ones(size), splits, None, group)


def broadcast_from_nobody(group):
    options = dist.BroadcastOptions()
    options.rootRank = -1
    group.broadcast([torch.ones(1)], options).wait()


signal.signal(signal.SIGALRM, interrupt)
for call, kind in (
    (lambda group: dist.all_reduce(unusable, group=group), TypeError),
    (all_to_all_in_parts, ValueError),
    (broadcast_from_nobody, ValueError),
):
    limit = timedelta(milliseconds=300 if rank == 0 else 30_000)
    group = dist.new_group(range(size), timeout=limit)
    try:
        if rank:
            dist.all_reduce(torch.ones(1), group=group)
        else:
            call(group)
    except kind:
        assert rank == 0
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            dist.barrier(group)
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("the barrier met another collective")
        try:
            dist.barrier(group)
        except omnes.CollectivesBroken as error:
            assert "others have not: 1, 2" in str(error), error
        else:
            raise AssertionError("the barrier met another collective")
    except omnes.CollectivesBroken as error:
        assert rank and error.rank == 0 and "dist.new_group()" in str(error), error
        assert f"others have not: 1, 2; {kind.__name__}: " in str(error), error
    else:
        raise AssertionError("rank 0 has taken part")
    try:
        dist.barrier(group)
    except omnes.CollectivesBroken as error:
        assert "dist.new_group()" in str(error) and "split or dup" not in str(error), error
    else:
        raise AssertionError("the group still works")
# Nor one that it has rejected, or that a signal handler has interrupted, after one of its parts.
def refuse_the_second(group):
    options = dist.AllreduceCoalescedOptions()
    second = unusable if rank == 0 else torch.ones(1)
    group.allreduce_coalesced([torch.ones(1), second], options).wait()


def be_interrupted_before(group):
    work = dist.all_reduce(torch.ones(1), group=group, async_op=True) if rank == 0 else None
    if rank == 0:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
    else:
        dist.recv(token, 0)
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
    try:
        dist.all_reduce(torch.ones(1), group=group)
    except KeyboardInterrupt:
        dist.send(token, 1)
        dist.send(token, 2)
        raise
    finally:
        work.wait()


for call, kind in ((refuse_the_second, TypeError), (be_interrupted_before, KeyboardInterrupt)):
    limit = timedelta(seconds=3 if rank == 0 else 30)
    group = dist.new_group(range(size), timeout=limit)
    try:
        call(group)
    except kind:
        assert rank == 0
    except omnes.CollectivesBroken as error:
        assert rank and error.rank == 0 and f"{kind.__name__}" in str(error), error
    else:
        raise AssertionError("rank 0 has taken part")
    number = torch.full((1,), 100.0)
    try:
        dist.all_reduce(number, group=group)
    except omnes.CollectivesBroken as error:
        assert f"{kind.__name__}" in str(error), error
    else:
        raise AssertionError(f"{number.item()} is the sum of different collectives")
# Nor one whose limit expires after one of its parts, or before one.
group = dist.new_group(range(size), timeout=timedelta(milliseconds=300 if rank == 1 else 30_000))
lengths = [20_000 * (other + 1) for other in range(size)]
places = [torch.zeros(length) for length in lengths]
if rank == 0:
    dist.recv(token, 1)
try:
    dist.all_gather(places, torch.ones(lengths[rank]), group=group)
except TimeoutError:
    assert rank == 1
    dist.send(token, 0)
except omnes.CollectivesBroken as error:
    assert rank != 1 and error.rank == 1 and "TimeoutError" in str(error), error
else:
    raise AssertionError("rank 0 has come too late")
try:
    dist.all_reduce(torch.ones(lengths[0]), group=group)
except omnes.CollectivesBroken as error:
    assert error.rank == 1 and "TimeoutError" in str(error), error
else:
    raise AssertionError("the group still works")
dist.destroy_process_group()
