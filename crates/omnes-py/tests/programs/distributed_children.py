"""A forked child cannot use its parent's groups, and waits for nothing; the parent continues."""

import sys
import warnings
from datetime import timedelta

import omnes.distributed
import torch
import torch.distributed as dist
from children import in_child, refused

dist.init_process_group("omnes")
rank = dist.get_rank()
other, world = 1 - rank, dist.group.WORLD
one = torch.ones(1)
asked = dist.irecv(torch.zeros(1), other)
ended = dist.all_reduce(torch.ones(1), async_op=True)
ended.wait()
# The other rank calls it after the children.
pending = dist.all_reduce(torch.zeros(9), async_op=True) if rank == 0 else None


def child():
    refused(
        lambda: dist.all_reduce(one),
        lambda: dist.all_reduce(one, async_op=True),
        lambda: world.allreduce([one]),  # as DistributedDataParallel does
        lambda: dist.barrier(),
        lambda: world.monitored_barrier(timedelta(seconds=1)),
        lambda: dist.isend(one, other),
        lambda: dist.recv(one, other),
        asked.wait,
    )
    if pending:
        refused(pending.wait, pending.get_future)
    assert ended.wait() and ended.get_future().wait()
    dist.destroy_process_group()


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of fork() in a process with threads; PyTorch renames calls
    # They end like any program, with the groups that they have inherited.
    in_child(lambda: None, sys.exit)
    in_child(child, sys.exit)
if rank == 1:
    dist.recv(torch.zeros(1), other, tag=1)
    pending = dist.all_reduce(torch.zeros(9), async_op=True)
else:
    dist.send(one, other, tag=1)
pending.wait()
dist.send(one, other)
asked.wait()
dist.all_reduce(one)
assert one.item() == 2
