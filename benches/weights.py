"""Pushes the weights of a module from rank 0 to all ranks, with Omnes and with torch.distributed.

One program per rank, with the Python package in PYTHONPATH and PyTorch installed:

    omnes run -n 8 --lab --rate 1gbit --no-prefix -- python3 benches/weights.py

Both libraries push the same tensors in alternating rounds of one job. A round is timed from a
barrier to the end of a second one, at rank 0; the data that arrive are compared with the data sent.
Rank 0 prints median and spread, and how many times the data have left its interface, including
headers. The interface is GLOO_SOCKET_IFNAME, which Gloo uses, too (default eth0, that of labs).
"""

import argparse
import os
import pathlib
import statistics
import time

import torch
import torch.distributed

import omnes
import omnes.torch
from beside import alternating, model_of, ratio, spread


def by_gloo(model):
    """Broadcasts every tensor separately, all concurrently."""
    tensors = model.state_dict().values()
    for work in [torch.distributed.broadcast(tensor, 0, async_op=True) for tensor in tensors]:
        work.wait()


def timed(world, push):
    """Seconds taken, and bytes that have left the interface."""
    world.barrier()
    start, before = time.perf_counter(), bytes_sent()
    push()
    world.barrier()
    return time.perf_counter() - start, bytes_sent() - before


def bytes_sent():
    lines = pathlib.Path("/proc/net/dev").read_text().splitlines()[2:]
    counts = dict(line.split(":") for line in lines)
    of_interface = {name.strip(): numbers.split() for name, numbers in counts.items()}
    return int(of_interface[os.environ["GLOO_SOCKET_IFNAME"]][8])


def fill(world, model, value):
    for tensor in model.state_dict().values():
        tensor.fill_(value if world.rank == 0 else 0)


def has_all(model, value):
    return all(tensor.eq(value).all() for tensor in model.state_dict().values())


def join_gloo(world):
    address = os.environ["OMNES_RENDEZVOUS"].rpartition(":")[0]
    method = f"tcp://{address}:29500"
    torch.distributed.init_process_group(
        "gloo", init_method=method, rank=world.rank, world_size=world.size
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=64, help="size of the module (default 64)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds per library (default 5)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "eth0")
    with omnes.Communicator.from_env() as world:
        model = model_of(arguments.mib)
        weights = omnes.torch.Weights(world, model)
        join_gloo(world)
        pushes = {"omnes": weights.bcast, "gloo": lambda: by_gloo(model)}

        def measure(name, push, turn):
            fill(world, model, turn + 2)
            took = timed(world, push)
            assert has_all(model, turn + 2), f"{name}: wrong data at rank {world.rank}"
            return took

        taken = alternating(pushes, arguments.rounds, measure)
        if world.rank == 0:
            report(weights.bytes, world, taken)
        torch.distributed.destroy_process_group()


def report(size, world, taken):
    count = f"{size / 1e6:.0f} MB to {world.size - 1} ranks"
    for name, rounds in taken.items():
        times, sent = zip(*rounds)
        rate = f"{size / statistics.median(times) / 1e6:.1f} MB/s to each"
        often = f"{statistics.median(sent) / size:.2f} times from rank 0"
        print(f"{name:6} {count}: {spread(times)}, {rate}, {often}")
    ours, theirs = ([took for took, _ in taken[name]] for name in ("omnes", "gloo"))
    print(f"omnes / gloo: {ratio(ours, theirs)}")


main()
