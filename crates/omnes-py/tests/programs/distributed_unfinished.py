"""Collectives of torch.distributed that are outstanding when their group, or the program, ends; the
other ranks never call them. No rank waits forever.
"""

import omnes.distributed
import torch
import torch.distributed as dist

dist.init_process_group("omnes")
rank, size = dist.get_rank(), dist.get_world_size()
aborted = dist.new_group(range(size))
if rank == 0:
    works = [dist.all_reduce(torch.zeros(1 << 18), group=aborted, async_op=True) for _ in range(3)]
    assert not works[0].is_completed()
    aborted.abort()
    try:
        dist.all_reduce(torch.zeros(1), group=aborted, async_op=True)
    except ValueError as error:
        assert "destroyed" in str(error), error
    else:
        raise AssertionError("the group still works")
    # They do not call this one either.
    dist.all_reduce(torch.zeros(1 << 18), async_op=True)
