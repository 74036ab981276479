"""Trains a model with DistributedDataParallel, and sums tensors, on the backends omnes and gloo.

One program per rank, with the Python package in PYTHONPATH and PyTorch installed:

    OMP_NUM_THREADS=1 omnes run -n 4 --lab --rate 1gbit --no-prefix -- python3 benches/ddp.py

All arms train identical models on the same data, in alternating rounds of one job; "alone" sums no
gradients, "omnes at once" sums each bucket before backward continues, as calls without async_op do.
A round is timed from a barrier to the end of a second one, at rank 0; the models that the libraries
have trained are compared. Then follow sums of tensors, each waited for immediately. Gloo uses the
interface GLOO_SOCKET_IFNAME (default eth0, that of labs). Rank 0 prints median and spread of the
rounds.
"""

import argparse
import copy
import os
import time

import omnes.distributed
import torch
import torch.distributed as dist
from beside import alternating, model_of, ratio, spread
from torch.nn.parallel import DistributedDataParallel


class Training:
    """An arm: a copy of the model, which its own group keeps identical on all ranks."""

    def __init__(self, model, group, arguments, *, is_at_once=False):
        self.model = DistributedDataParallel(
            copy.deepcopy(model), process_group=group, bucket_cap_mb=arguments.bucket_mib
        )
        if is_at_once:
            self.model.register_comm_hook(group, sum_at_once)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def step(self, data):
        self.optimizer.zero_grad()
        self.model(data).square().mean().backward()
        self.optimizer.step()


class Alone(Training):
    """No sums of gradients."""

    def step(self, data):
        with self.model.no_sync():
            super().step(data)


def sum_at_once(group, bucket):
    tensor = bucket.buffer().div_(dist.get_world_size())
    dist.all_reduce(tensor, group=group)
    future = torch.futures.Future()
    future.set_result(tensor)
    return future


def timed(call, count):
    """Mean seconds per call, over `count` calls."""
    dist.barrier()
    start = time.perf_counter()
    for _ in range(count):
        call()
    dist.barrier()
    return (time.perf_counter() - start) / count


def train(groups, arguments):
    torch.manual_seed(1)
    width = 256
    model = torch.nn.Sequential(*model_of(arguments.mib, width)).eval()
    own = torch.Generator().manual_seed(dist.get_rank())
    data = torch.randn(32, arguments.rows, width, generator=own)
    arms = {
        "alone": Alone(model, groups["omnes"], arguments),
        "omnes at once": Training(model, groups["omnes"], arguments, is_at_once=True),
        **{name: Training(model, group, arguments) for name, group in groups.items()},
    }
    taken = alternating(
        arms,
        arguments.rounds,
        lambda _name, arm, _turn: timed(lambda: arm.step(data), arguments.steps),
    )
    for one, other in zip(arms["omnes"].model.parameters(), arms["gloo"].model.parameters()):
        torch.testing.assert_close(one, other)
    size = sum(parameter.nbytes for parameter in model.parameters())
    report(f"step, {size / 1e6:.1f} MB of gradients", taken)


def reduce(groups, arguments):
    for kibibytes in arguments.kib:
        tensor = torch.ones(kibibytes * 256)
        calls = {
            name: lambda group=group: dist.all_reduce(tensor, group=group)
            for name, group in groups.items()
        }
        count = max(2, min(100, 16384 // kibibytes))

        def measure(_name, call, _turn, tensor=tensor, count=count):
            tensor.fill_(1)
            call()
            assert tensor.eq(dist.get_world_size()).all()
            tensor.zero_()
            return timed(call, count)

        report(f"allreduce, {kibibytes} KiB", alternating(calls, arguments.rounds, measure))


def report(what, taken):
    if dist.get_rank() == 0:
        for name, times in taken.items():
            beside = "" if name == "gloo" else f", {ratio(times, taken['gloo'])} of gloo"
            print(f"{what}: {name:13} {spread(times, digits=1)}{beside}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=16, help="size of the model (default 16)")
    parser.add_argument("--rows", type=int, default=16, help="sequences per rank (default 16)")
    parser.add_argument("--bucket-mib", type=float, default=4, help="size of a bucket (default 4)")
    parser.add_argument("--steps", type=int, default=5, help="steps of a round (default 5)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of an arm (default 5)")
    parser.add_argument(
        "--kib", type=int, nargs="*", default=[64, 1024, 16384], help="tensors to sum, in KiB"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "eth0")
    dist.init_process_group("omnes")
    groups = {"omnes": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    train(groups, arguments)
    reduce(groups, arguments)
    dist.destroy_process_group()


main()
