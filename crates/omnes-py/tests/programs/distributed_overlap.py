"""Collectives of torch.distributed in progress while the program continues, with 3 ranks."""

import datetime
import itertools
import threading
import warnings
import weakref

import omnes
import omnes.distributed
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType, fully_shard


def raises(kind, call, *args, **options):
    """The exception of that kind that the call raises."""
    try:
        call(*args, **options)
    except kind as error:
        return error
    raise AssertionError(f"{call} has not raised {kind}")


def is_sum(tensor, size, value):
    """True if each rank contributed value + its rank."""
    return bool(tensor.eq(sum(value + rank for rank in range(size))).all())


def starts(rank, size):
    """Every collective, each on tensors of its own."""
    one, all_of_them = torch.zeros(1), torch.zeros(size)
    parts = list(torch.zeros(size, 1))
    others = list(torch.zeros(size, 1))
    for_root = {root: parts if rank == root else None for root in range(size)}
    return (
        (dist.all_reduce, one),
        (dist.broadcast, one, 1),
        (dist.reduce, one, 0),
        (dist.all_gather, parts, one),
        (dist.all_gather_into_tensor, all_of_them, one),
        (dist.gather, one, for_root[0], 0),
        (dist.scatter, one, for_root[1], 1),
        (dist.reduce_scatter, one, parts),
        (dist.reduce_scatter_tensor, one, all_of_them),
        (dist.all_to_all, others, parts),
        (dist.all_to_all_single, torch.zeros(size), all_of_them),
        (dist.barrier,),
    )


def calls_do_not_block(rank, size):
    """Rank 0 lets the others join a call, which waits for all of them, only after its own has
    returned.
    """
    token = torch.zeros(1)
    for call, *tensors in starts(rank, size):
        if rank == 0:
            work = call(*tensors, async_op=True)
            assert not work.is_completed(), call
            for other in range(1, size):
                dist.send(token, other)
        else:
            dist.recv(token, 0)
            work = call(*tensors, async_op=True)
        assert work.wait() and work.is_completed() and work.is_success(), call


def waits_in_any_order(rank, size):
    counts = (1, 300_000, 0, 5000, 70_000)
    tensors = [torch.full((count,), float(index + rank)) for index, count in enumerate(counts)]
    across = torch.full((4, 6), 9.0 + rank)
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    works.append(dist.all_reduce(across.t()[1:3], async_op=True))
    works[3].wait()
    assert works[0].is_completed() and is_sum(tensors[0], size, 0)
    # A blocking call waits for its turn.
    at_once = torch.full((10,), 4.5 + rank)
    dist.all_reduce(at_once)
    assert all(work.is_completed() for work in works) and is_sum(at_once, size, 4.5)
    works.append(dist.all_reduce(at_once, async_op=True))
    for work in reversed(works):
        work.wait()
        work.wait(datetime.timedelta(seconds=1))
    for index, tensor in enumerate(tensors):
        assert is_sum(tensor, size, index), index
    assert is_sum(across[:, 1:3], size, 9) and across[:, 0].eq(9 + rank).all()
    assert works[1].result()[0] is tensors[1] and works[1].exception() is None
    # Lists are read when the call is made.
    parts = [torch.zeros(2) for _ in range(size)]
    given = list(parts)
    work = dist.all_gather(given, torch.full((2,), float(rank)), async_op=True)
    given.clear()
    work.wait()
    assert [part[1].item() for part in parts] == list(range(size))
    # A work that is dropped is still run, and then holds no tensor.
    dropped = torch.full((70_000,), 6.0 + rank)
    tensor, memory = weakref.ref(dropped), dropped.untyped_storage()
    dist.all_reduce(dropped, async_op=True)
    del dropped
    dist.barrier()
    assert tensor() is None and is_sum(torch.empty(0).set_(memory), size, 6)


def limits_of_waits(rank, size):
    token = torch.zeros(1)
    if rank:
        dist.recv(token, 0)
    work = dist.all_reduce(token, async_op=True)
    if rank == 0:
        error = raises(TimeoutError, work.wait, datetime.timedelta(milliseconds=20))
        assert "0.02 s" in str(error), error
        assert not work.is_completed()
        for other in range(1, size):
            dist.send(torch.zeros(1), other)
    assert work.wait(datetime.timedelta.max)


def callbacks(rank, size):
    """Collectives that a callback starts run next, on all ranks."""
    tensors = [torch.full((200_000,), float(index + rank)) for index in range(3)]
    order = []

    def second(index):
        """As in PowerSGD, a callback waits for a collective that it starts."""

        def call(future):
            order.append(index)
            assert is_sum(future.value()[0], size, index)
            tensor = torch.full((4,), 10.0 * index + rank)
            return dist.all_reduce(tensor, async_op=True).get_future().wait()[0]

        return call

    def third(future):
        tensor = future.value() / size
        dist.all_reduce(tensor)
        return tensor

    chains = []
    for index, tensor in enumerate(tensors):
        future = dist.all_reduce(tensor, async_op=True).get_future()
        chains.append(future.then(second(index)).then(third))
    at_once = torch.full((10,), 0.5 + rank)
    dist.all_reduce(at_once)  # after all callbacks
    assert order == [0, 1, 2] and is_sum(at_once, size, 0.5)
    for index, chain in enumerate(chains):
        assert chain.done() and chain.wait().eq(10 * index * size + sum(range(size))).all()
    work = dist.all_reduce(torch.ones(3), async_op=True)
    work.wait()
    late = work.get_future()
    assert late.done() and late.value()[0].eq(size).all() and late.then(lambda _: 7).wait() == 7
    raises(RuntimeError, late.then(lambda _: [][1]).wait)
    collected = torch.futures.collect_all([dist.barrier(async_op=True).get_future(), late])
    assert len(collected.wait()) == 2


def late_callbacks(rank, size):
    """Collectives started by a callback that is attached late run after those started by then,
    whether or not the work of the callback has ended.
    """
    before = torch.full((3_000_000,), float(rank))
    tensors = [torch.full((4,), 10.0 * index + rank) for index in range(3)]
    dist.barrier()
    if rank != 0:
        dist.all_reduce(before, async_op=True)
    else:
        dist.all_reduce(before)
    work = dist.all_reduce(tensors[0], async_op=True)
    if rank == 0:
        work.wait()
    next_one = dist.all_reduce(tensors[1], async_op=True)
    chain = work.get_future().then(lambda _: dist.all_reduce(tensors[2]))
    chain.wait()
    next_one.wait()
    dist.barrier()
    for index, tensor in enumerate(tensors):
        assert is_sum(tensor, size, 10 * index), (index, tensor)


def two_groups(rank, size):
    """Each group has its own order: one that waits does not block the other."""
    other = dist.new_group(range(size))
    ours, theirs = torch.full((1000,), 1.0 + rank), torch.full((1000,), 2.0 + rank)
    if rank == 0:
        first = dist.all_reduce(ours, async_op=True)
        dist.all_reduce(theirs, group=other)
    else:
        dist.all_reduce(theirs, group=other)
        first = dist.all_reduce(ours, async_op=True)
    first.wait()
    assert is_sum(ours, size, 1) and is_sum(theirs, size, 2)
    tensors = [torch.full((30_000 * turn,), turn + float(rank)) for turn in range(12)]
    of = [dist.group.WORLD, other]
    works = [
        dist.all_reduce(tensor, group=of[turn % 2], async_op=True)
        for turn, tensor in enumerate(tensors)
    ]
    for work in works[::-1]:
        work.wait()
    assert all(is_sum(tensor, size, turn) for turn, tensor in enumerate(tensors))
    # Destroyed with outstanding work, which has been dropped.
    last = torch.full((400_000,), 3.0 + rank)
    dist.all_reduce(torch.zeros(400_000), group=other, async_op=True)
    work = dist.all_reduce(last, group=other, async_op=True)
    dist.destroy_process_group(other)
    assert work.is_completed() and is_sum(last, size, 3)


def mistakes(rank, size):
    bad = dist.all_reduce(torch.ones(3, dtype=torch.int32), dist.ReduceOp.AVG, async_op=True)
    good = dist.all_reduce(number := torch.tensor([rank]), async_op=True)
    error = raises(TypeError, bad.wait)
    assert bad.exception() is error and bad.is_completed() and not bad.is_success()
    assert str(error) in str(raises(RuntimeError, bad.get_future().wait))
    good.wait()
    assert number.item() == sum(range(size))
    with torch.inference_mode():
        across = torch.full((4, 6), float(rank)).t()
        work = dist.all_reduce(across, dist.ReduceOp.AVG, async_op=True)
    work.wait()
    assert across.eq(sum(range(size)) / size).all()
    barrier = dist.group.WORLD.barrier  # without options
    barrier().wait()


def no_thread(rank, size):
    """A collective that cannot be queued because there is no thread blocks no rank."""
    group = dist.new_group(range(size))
    number = torch.ones(1)
    usual = threading.stack_size(1 << 62)  # more memory than can exist
    try:
        raises(RuntimeError, dist.all_reduce, number, group=group, async_op=True)
    finally:
        threading.stack_size(usual)
    dist.all_reduce(number, group=group)
    assert number.item() == size
    dist.all_reduce(number, group=group, async_op=True).wait()
    assert number.item() == size * size
    dist.destroy_process_group(group)


def module():
    torch.manual_seed(3)
    layers = [torch.nn.Linear(40, 40) for _ in range(8)]
    return torch.nn.Sequential(*itertools.chain(*((each, torch.nn.Tanh()) for each in layers)))


def data_parallel(rank, size):
    whole = torch.randn(4 * size, 40, generator=torch.Generator().manual_seed(5))
    alone = module()
    alone(whole).square().mean().backward()
    buckets = []

    def counted(state, bucket):
        buckets.append(bucket.index())
        return default_hooks.allreduce_hook(state, bucket)

    for hook in (None, counted, default_hooks.fp16_compress_hook):
        together = torch.nn.parallel.DistributedDataParallel(module(), bucket_cap_mb=0.01)
        if hook:
            together.register_comm_hook(None, hook)
        for _ in range(3):
            together.zero_grad()
            together(whole[4 * rank : 4 * rank + 4]).square().mean().backward()
            limits = {"rtol": 1e-2, "atol": 1e-4} if hook and hook is not counted else {}
            for one, other in zip(alone.parameters(), together.parameters(), strict=True):
                torch.testing.assert_close(one.grad, other.grad, **limits)
    assert max(buckets) >= 3, buckets
    # Its callbacks wait for collectives; gradients are the same on all ranks nevertheless.
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, min_compression_rate=1)
    together = torch.nn.parallel.DistributedDataParallel(module(), bucket_cap_mb=0.01)
    together.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for _ in range(5):
        together.zero_grad()
        together(whole[4 * rank : 4 * rank + 4]).square().mean().backward()
        for parameter in together.parameters():
            grads = [torch.zeros_like(parameter) for _ in range(size)]
            dist.all_gather(grads, parameter.grad)
            assert all(torch.equal(grad, grads[0]) for grad in grads)


def sharded(rank, size):
    """Gathers parameters before they are used, and scatters gradients, by blocking and nonblocking
    calls.
    """
    whole = torch.randn(4 * size, 40, generator=torch.Generator().manual_seed(6))
    alone, own = module(), module()
    mesh = init_device_mesh("cpu", (size,))
    for layer in own:
        fully_shard(layer, mesh=mesh)
    fully_shard(own, mesh=mesh)
    for model, data in ((alone, whole), (own, whole[4 * rank : 4 * rank + 4])):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()
    for one, other in zip(alone.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(one.detach(), other.detach().full_tensor())


def shards_of_states(rank, size):
    """The state of a module that each rank would save, and loads again."""
    own = FullyShardedDataParallel(module(), device_id=torch.device("cpu"))
    before = [parameter.detach().clone() for parameter in own.parameters()]
    with FullyShardedDataParallel.state_dict_type(own, StateDictType.SHARDED_STATE_DICT):
        saved = own.state_dict()
        assert saved["0.weight"].size() == (40, 40)
        own(torch.ones(2, 40)).sum().backward()
        torch.optim.SGD(own.parameters(), lr=0.1).step()
        assert not all(map(torch.equal, own.parameters(), before))
        own.load_state_dict(saved)
    assert all(map(torch.equal, own.parameters(), before))


with warnings.catch_warnings():
    # PyTorch renames calls, and programs use its old names.
    warnings.simplefilter("ignore")
    dist.init_process_group("omnes", timeout=datetime.timedelta(seconds=40))
    rank, size = dist.get_rank(), dist.get_world_size()
    for each in (
        calls_do_not_block,
        waits_in_any_order,
        limits_of_waits,
        callbacks,
        late_callbacks,
        two_groups,
        mistakes,
        no_thread,
        data_parallel,
        sharded,
        shards_of_states,
    ):
        each(rank, size)
    last = torch.full((400_000,), float(rank))
    pending = [dist.all_reduce(torch.zeros(400_000), async_op=True) for _ in range(3)]
    pending.append(dist.all_reduce(last, async_op=True))
    dist.destroy_process_group()
assert all(work.is_completed() and work.is_success() for work in pending)
assert is_sum(last, size, 0)
raises(ValueError, dist.get_rank)
