"""Ranks that are forked after the import end as any do: they meet who is late, and then leave."""

import multiprocessing
import os
import warnings

import omnes
import omnes.distributed
import torch
import torch.distributed as dist


def join():
    """Joins, and ends nothing."""
    dist.init_process_group("omnes")
    number = torch.ones(1)
    dist.all_reduce(number)
    assert number.item() == dist.get_world_size()


def outlive():
    """Comes to the barrier in which the others meet when they end."""
    join()
    dist.barrier()
    for other in range(1, dist.get_world_size()):
        try:
            dist.recv(torch.ones(1), other)
        except omnes.PeerLeft as error:
            assert error.rank in range(1, dist.get_world_size()), error
        else:
            raise AssertionError("nobody has left")


def fork():
    child = os.fork()
    if child == 0:
        join()
    else:
        assert os.waitpid(child, 0)[1] == 0


def start(method):
    child = multiprocessing.get_context(method).Process(target=join)
    child.start()
    child.join()
    assert child.exitcode == 0


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # of fork() beside threads
    turns = (outlive, fork, lambda: start("fork"), lambda: start("forkserver"))
    turns[int(os.environ["RANK"])]()
