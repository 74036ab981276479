"""Start and end of groups of torch.distributed: a second one after the first, and a dead rank."""

import os

import omnes
import omnes.distributed
import torch
import torch.distributed as dist

dist.init_process_group("omnes")
rank, size = dist.get_rank(), dist.get_world_size()
dist.destroy_process_group()

# The same part of the same store again, twice.
store = dist.FileStore(os.path.join(os.environ["PYTHONPATH"], "store"), size)
for turn in range(2):
    dist.init_process_group("omnes", store=store, rank=rank, world_size=size)
    number = torch.tensor(rank)
    dist.all_reduce(number)
    assert number.item() == sum(range(size))
    dist.barrier()
    if turn == 0:
        dist.destroy_process_group()


def raises(kind, call):
    """The exception of that kind that the call raises, which must name rank 1."""
    try:
        call()
    except kind as error:
        assert "rank 1" in str(error), error
        return error
    raise AssertionError("nobody has noticed")


layers = [torch.nn.Linear(100, 100) for _ in range(4)]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.01)
dist.barrier()
if rank == 1:
    os._exit(0)
works = [dist.all_reduce(torch.zeros(1 << 18), async_op=True) for _ in range(3)]
told = works[1].get_future().then(lambda future: future.value())
for work in reversed(works):
    error = raises(omnes.PeerFailed, work.wait)
    assert error.rank == 1 and work.exception() is error and not work.is_success()
    raises(RuntimeError, work.get_future().wait)
raises(RuntimeError, told.wait)
assert raises(omnes.PeerFailed, lambda: dist.all_reduce(torch.zeros(1 << 18))).rank == 1
assert raises(omnes.PeerFailed, lambda: dist.recv(torch.zeros(1), 1)).rank == 1
raises(RuntimeError, lambda: model(torch.ones(2, 100)).sum().backward())
# Creating a group also fails immediately.
for _ in range(2):
    assert raises(omnes.PeerFailed, dist.new_group).rank == 1
