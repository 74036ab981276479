"""Ranks that are forked after the import end like any: they wait for late ranks, and then leave."""

import multiprocessing
import os
import time
import warnings

import omnes
import omnes.distributed
import torch
import torch.distributed as dist


def join():
    """Joins the job, and ends nothing."""
    dist.init_process_group("omnes")
    number = torch.ones(1)
    dist.all_reduce(number)
    assert number.item() == dist.get_world_size()


def outlive():
    """Is late when the other ranks end and wait for it."""
    join()
    time.sleep(1)
    ranks = dist.group.WORLD._members.joined
    # Raises PeerLeft or PeerFailed.
    assert all(ranks.iprobe(other) is None for other in range(1, ranks.size))
    omnes.leave()


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
    warnings.simplefilter("ignore", DeprecationWarning)  # of fork() in a process with threads
    turns = (outlive, fork, lambda: start("fork"), lambda: start("forkserver"))
    turns[int(os.environ["RANK"])]()
