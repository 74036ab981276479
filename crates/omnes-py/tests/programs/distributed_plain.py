"""A program that destroys no group: ranks that end first do not fail the others."""

import omnes.distributed
import torch
import torch.distributed as dist

dist.init_process_group("omnes")
odd = dist.new_group(range(1, dist.get_world_size(), 2))
for step in range(20):
    total = torch.full((1000 * step,), 1.0)
    dist.all_reduce(total)
    assert total.eq(dist.get_world_size()).all()
if dist.get_rank() % 2:
    dist.barrier(group=odd)
