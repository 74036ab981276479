"""How groups of torch.distributed begin and end: a second one after the first, and a dead rank."""

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

if rank == 1:
    os._exit(0)
for call in (lambda: dist.all_reduce(torch.zeros(1 << 18)), lambda: dist.recv(torch.zeros(1), 1)):
    try:
        call()
    except omnes.PeerFailed as error:
        assert error.rank == 1 and "rank 1" in str(error), error
    else:
        raise AssertionError("nobody has noticed")
