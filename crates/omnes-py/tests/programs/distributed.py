"""The backend of torch.distributed, with 3 or more ranks: results against local computations."""

import datetime
import functools
import itertools
import operator
import warnings

import omnes
import omnes.distributed
import torch
import torch.distributed as dist

ReduceOp = dist.ReduceOp


def raises(kind, call, *args, **options):
    """The exception of that kind that the call raises."""
    try:
        call(*args, **options)
    except kind as error:
        return error
    raise AssertionError(f"{call} has not raised {kind}")


def data(of_rank, *shape, dtype=torch.float32):
    """Tensors that differ between ranks; every rank can compute those of all."""
    generator = torch.Generator().manual_seed(of_rank)
    return torch.randint(1, 5, shape or (3, 4), generator=generator).to(dtype)


def everybody(size, *shape, dtype=torch.float32):
    return [data(other, *shape, dtype=dtype) for other in range(size)]


def broadcasts(rank, size):
    for root in range(size):
        for tensor in (data(rank), data(rank, 5, 4).t(), data(rank, 0), torch.tensor(rank)):
            wanted = {2: data(root, *tensor.shape), 1: data(root, 0), 0: torch.tensor(root)}
            dist.broadcast(tensor, root)
            if tensor.is_contiguous():
                assert torch.equal(tensor, wanted[tensor.dim()]), (root, tensor)
            else:
                assert torch.equal(tensor, data(root, 5, 4).t()), (root, tensor)
    things = [{"rank": rank, "text": "x" * 1000 * rank}, rank]
    dist.broadcast_object_list(things, src=1)
    assert things == [{"rank": 1, "text": "x" * 1000}, 1]
    got = [None] * size
    dist.all_gather_object(got, ("object of", rank, "y" * rank))
    assert got == [("object of", other, "y" * other) for other in range(size)]


NUMBERS = {
    ReduceOp.SUM: operator.add,
    ReduceOp.PRODUCT: operator.mul,
    ReduceOp.MIN: torch.minimum,
    ReduceOp.MAX: torch.maximum,
}
BITS = {
    ReduceOp.BAND: torch.bitwise_and,
    ReduceOp.BOR: torch.bitwise_or,
    ReduceOp.BXOR: torch.bitwise_xor,
}


def refusals(rank, size):
    """A rank that cannot write a tensor still takes part: the next collective gets its own data."""
    shared = torch.full((1,), 5.0 + rank).expand(4)
    if rank == 1:
        dist.broadcast(shared, 1)
    else:
        raises(TypeError, dist.broadcast, shared, 1)
    if rank == 1:
        raises(TypeError, dist.reduce, shared, 1)
    else:
        dist.reduce(shared, 1)
    parts = [torch.full((4,), 9.0)] * size if rank == 1 else None
    if rank == 0:
        raises(TypeError, dist.scatter, shared, parts, 1)
    else:
        dist.scatter(torch.zeros(4), parts, 1)
    raises(TypeError, dist.all_reduce, shared)
    tensor = torch.full((4,), float(rank))
    dist.broadcast(tensor, 1)
    assert tensor.tolist() == [1.0] * 4
    dist.all_reduce(tensor)
    assert tensor.tolist() == [float(size)] * 4
    assert dist.group.WORLD._get_sequence_number_for_group() > 5


def waves(of_rank, dtype, *shape):
    return torch.complex(data(of_rank, *shape), data(of_rank + 100, *shape)).to(dtype)


def reductions(rank, size):
    floats = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
    integers = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
    for dtype in floats + integers:
        for op, combine in (NUMBERS | (BITS if dtype in integers else {})).items():
            wanted = functools.reduce(combine, everybody(size, dtype=dtype))
            tensor = data(rank, dtype=dtype)
            dist.all_reduce(tensor, op)
            assert torch.equal(tensor, wanted), (dtype, op)
            tensor = data(rank, dtype=dtype)
            dist.reduce(tensor, 1, op)
            assert torch.equal(tensor, wanted if rank == 1 else data(rank, dtype=dtype))
    for dtype in floats:
        tensor = data(rank, dtype=dtype)
        dist.all_reduce(tensor, ReduceOp.AVG)
        wide = torch.promote_types(dtype, torch.float32)
        mean = (sum(everybody(size, dtype=wide)) / size).to(dtype)
        assert torch.equal(tensor, mean), dtype
    for dtype in (torch.uint16, torch.uint32, torch.uint64):
        tensor = torch.full((3,), rank, dtype=dtype)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [sum(range(size))] * 3, dtype
    for op, wanted in (
        (ReduceOp.SUM, True),
        (ReduceOp.MAX, True),
        (ReduceOp.PRODUCT, False),
        (ReduceOp.MIN, False),
        (ReduceOp.BXOR, True),
    ):
        tensor = torch.tensor([rank == 1, False])
        dist.all_reduce(tensor, op)
        assert tensor.tolist() == [wanted, False], op
    across = data(rank, 6, 4)
    dist.all_reduce(across.t()[1:3])
    assert torch.equal(across[:, 1:3], sum(everybody(size, 6, 4))[:, 1:3])
    assert torch.equal(across[:, 0], data(rank, 6, 4)[:, 0])
    empty = torch.empty(0)
    dist.all_reduce(empty)
    long = torch.full((300_000,), rank + 0.5)
    work = dist.all_reduce(long, async_op=True)
    assert work.wait() and work.is_completed() and work.get_future().wait()[0] is long
    assert torch.equal(long, torch.full((300_000,), sum(other + 0.5 for other in range(size))))
    wave = torch.full((3,), complex(rank, 1))
    dist.all_reduce(wave)
    assert wave[0] == complex(sum(range(size)), size)
    for dtype in (torch.complex64, torch.complex128):
        wave, wanted = waves(rank, dtype, 3), sum(waves(other, dtype, 3) for other in range(size))
        dist.reduce(wave, 1)
        assert torch.equal(wave, wanted if rank == 1 else waves(rank, dtype, 3)), dtype
        wave = waves(rank, dtype, 3)
        dist.reduce(wave.conj(), 1, ReduceOp.AVG)
        assert rank != 1 or torch.allclose(wave, wanted / size), dtype
        dist.group.WORLD.allreduce([wave := waves(rank, dtype, 3)]).wait()
        assert torch.equal(wave, wanted), dtype
    raises(TypeError, dist.reduce, wave, 1, ReduceOp.PRODUCT)
    assert "PREMUL_SUM" in str(
        raises(NotImplementedError, dist.all_reduce, data(rank), dist._make_nccl_premul_sum(2.0))
    )
    half = data(rank, dtype=torch.bfloat16)
    error = raises(omnes.Reduction, dist.all_reduce, half, ReduceOp.BOR)
    assert "BOR is for integers" in str(error) and "torch.bfloat16" in str(error), error
    raises(TypeError, dist.all_reduce, data(rank, dtype=torch.int32), ReduceOp.AVG)
    assert "on meta" in str(raises(TypeError, dist.all_reduce, torch.empty(3, device="meta")))


def sparse(of_rank, count, dtype=torch.float32, **options):
    """A sparse tensor with count elements, some of them at the same place."""
    places = data(of_rank, 1, count, dtype=torch.int64)
    return torch.sparse_coo_tensor(places, data(of_rank, count, 3), (6, 3), **options).to(dtype)


def sparse_tensors(rank, size):
    for count in (0, 2, 9_000):  # none on one rank, and more than are copied
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64):
            tensor = sparse(rank, count * rank, dtype)
            dist.all_reduce(tensor)
            wanted = sum(sparse(other, count * other, dtype).to_dense() for other in range(size))
            torch.testing.assert_close(tensor.to_dense(), wanted)
    tensor = sparse(rank, 4, requires_grad=True)
    work = dist.all_reduce(tensor.detach(), ReduceOp.AVG, async_op=True)
    mean = sum(sparse(other, 4).to_dense() for other in range(size)) / size
    assert torch.allclose(work.get_future().wait()[0].to_dense(), mean)
    wave = torch.sparse_coo_tensor([[rank]], torch.tensor([1j]), (size,))
    dist.group.WORLD.allreduce([wave]).wait()
    assert wave.to_dense().tolist() == [1j] * size
    error = raises(NotImplementedError, dist.all_reduce, sparse(rank, 2), ReduceOp.MAX)
    assert "MAX of sparse tensors" in str(error), error
    raises(TypeError, dist.all_reduce, sparse(rank, 2, torch.int64), ReduceOp.AVG)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raises(TypeError, dist.all_reduce, torch.eye(3).to_sparse_csr())
    # All ranks get the error, and continue together.
    error = raises(omnes.Mismatch, dist.all_reduce, torch.eye(3 if rank == 1 else 4).to_sparse())
    assert f"[{3 if rank == 1 else 4}, " in str(error), error


def sparse_gradients(rank, size):
    def module():
        torch.manual_seed(3)
        return torch.nn.Sequential(torch.nn.Embedding(20, 4, sparse=True), torch.nn.Linear(4, 2))

    words = [torch.tensor([other, 7, 2 * other]) for other in range(size)]
    alone, together = module(), torch.nn.parallel.DistributedDataParallel(module())
    alone(torch.stack(words)).square().mean().backward()
    together(words[rank]).square().mean().backward()
    for one, other in zip(alone.parameters(), together.parameters(), strict=True):
        torch.testing.assert_close(one.grad.to_dense(), other.grad.to_dense())


def profiled(rank, size):
    with torch.autograd.profiler.profile() as profile:
        dist.all_reduce(data(rank))
        work = dist.broadcast(data(rank), 0, async_op=True)
        work.wait()
        raises(TypeError, dist.all_reduce, data(rank, dtype=torch.int32), ReduceOp.AVG)
    counts = {event.key: event.count for event in profile.key_averages()}
    assert (counts["omnes:allreduce"], counts["omnes:broadcast"]) == (2, 1), counts


def gathers(rank, size):
    everything = everybody(size)
    outputs = [torch.zeros(3, 4) for _ in range(size)]
    dist.all_gather(outputs, data(rank))
    assert all(map(torch.equal, outputs, everything))
    for rows in (1, 10_000):  # of few bytes, and of many
        outputs = [torch.zeros(3, rows * other).t() for other in range(size)]
        dist.all_gather(outputs, torch.full((rows * rank, 3), float(rank)))
        for other, output in enumerate(outputs):
            assert torch.equal(output, torch.full((rows * other, 3), float(other)))
    for dtype in (torch.float32, torch.bool, torch.bfloat16):
        table = torch.zeros(3 * size, 4, dtype=dtype)
        dist.all_gather_into_tensor(table, data(rank, dtype=dtype))
        assert torch.equal(table, torch.cat(everybody(size, dtype=dtype)))
    for order in (1, -1):  # parts of one tensor, contiguous or not
        for own in (None, rank):  # the input elsewhere, or in its part of the output
            rows = torch.full((3 * size + 1, 4), -1.0)
            parts = [rows[3 * other : 3 * other + 3] for other in range(size)][::order]
            if own is not None:
                parts[rank].copy_(data(rank))
            version = rows._version
            dist.all_gather(parts, data(rank) if own is None else parts[rank])
            assert torch.equal(rows[:-1], torch.cat(everything[::order])), order
            assert rows[-1].eq(-1).all() and rows._version > version
            dist.scatter(scattered := torch.zeros(3, 4), parts if rank == 1 else None, 1)
            assert torch.equal(scattered, data(rank)), order
            # The output is one of the inputs.
            dist.scatter(parts[0], parts if rank == 1 else None, 1)
            assert torch.equal(parts[0], data(rank)), order
            rows.zero_()
            dist.gather(data(rank), parts if rank == 1 else None, 1)
            wanted = torch.cat(everything[::order])
            assert rank != 1 or torch.equal(rows[:-1], wanted), order
    for many in (1, 20_000):  # The input overlaps with the parts of other ranks.
        lengths = [many * (size - other) for other in range(size)]
        whole = torch.zeros(sum(lengths))
        own = whole[: lengths[rank]].fill_(rank + 1)
        dist.all_gather(list(whole.split(lengths)), own)
        wanted = [float(other + 1) for other, length in enumerate(lengths) for _ in range(length)]
        assert whole.tolist() == wanted, many
    # The input is its own part of the output.
    table[3 * rank : 3 * rank + 3] = rank % 2
    dist.all_gather_into_tensor(table, table[3 * rank : 3 * rank + 3])
    assert table[:, 0].tolist() == [other % 2 for other in range(size) for _ in range(3)]
    dist.all_gather_into_tensor(torch.empty(0), torch.empty(0))
    outputs = [torch.zeros(4, 3).t() for _ in range(size)] if rank == 1 else None
    dist.gather(data(rank), outputs, dst=1)
    assert rank != 1 or all(map(torch.equal, outputs, everything))
    output = torch.zeros(4, 3).t()
    dist.scatter(output, everything if rank == 2 else None, src=2)
    assert torch.equal(output, data(rank))
    raises(ValueError, dist.all_gather_into_tensor, torch.empty(2), torch.empty(size))
    things = [None]
    dist.scatter_object_list(things, list(range(size)) if rank == 0 else None)
    assert things == [rank]


def reduce_scatters(rank, size):
    wanted = sum(everybody(size, size, 5))[rank]
    output = torch.zeros(5)
    dist.reduce_scatter(output, list(data(rank, size, 5)))
    assert torch.equal(output, wanted)
    own = data(rank, size, 5)
    dist.reduce_scatter_tensor(output, own, ReduceOp.AVG)
    assert torch.equal(output, wanted / size)
    assert torch.equal(own, data(rank, size, 5))
    output = torch.zeros(rank + 1)
    dist.reduce_scatter(output, [torch.ones(other + 1) for other in range(size)])
    assert output.tolist() == [size] * (rank + 1)
    wanted_wave = sum(waves(other, torch.complex64, size, 5) for other in range(size))[rank]
    wave = waves(rank, torch.complex64, size, 5)
    output = torch.zeros(5, dtype=torch.complex64)
    dist.reduce_scatter(output, list(wave))
    assert torch.equal(output, wanted_wave)
    dist.reduce_scatter_tensor(output, wave, ReduceOp.AVG)
    assert torch.allclose(output, wanted_wave / size)
    many = [torch.zeros(5), torch.zeros(5, dtype=torch.int64)]
    with dist._coalescing_manager():
        for each in many:
            dist.reduce_scatter_tensor(each, data(rank, size, 5).to(each.dtype))
    assert torch.equal(many[0], wanted) and torch.equal(many[1], wanted.long())


def all_to_alls(rank, size):
    outputs = torch.zeros(2 * size, 3)
    dist.all_to_all_single(outputs, data(rank, 2 * size, 3))
    wanted = [data(r, 2 * size, 3)[2 * rank : 2 * rank + 2] for r in range(size)]
    assert torch.equal(outputs, torch.cat(wanted))
    # Rank r sends r + to rows to rank `to`.
    sizes = [rank + other for other in range(size)]
    own = torch.full((sum(sizes), 2), float(rank))
    output = torch.zeros(sum(sizes), 2)
    dist.all_to_all_single(output, own, sizes, sizes)
    assert output[:, 1].tolist() == [float(r) for r in range(size) for _ in range(rank + r)]
    # Rank 0 sends nothing to itself. The input is half of a table whose columns are strided, the
    # output its other half.
    table = torch.zeros(4, sum(sizes)).t()
    table[:, 1] = rank
    dist.all_to_all_single(table[:, 2:], table[:, :2], sizes, sizes)
    assert table[:, 3].tolist() == output[:, 1].tolist()
    parts = [torch.zeros(each) for each in sizes]
    dist.all_to_all(parts, [torch.full((each,), float(rank)) for each in sizes])
    assert [part.tolist() for part in parts] == [[float(r)] * (rank + r) for r in range(size)]
    raises(ValueError, dist.all_to_all_single, torch.zeros(3), torch.zeros(3), [1], [1])
    # An input may be the memory of an output: of the same rank's, or of another's.
    for count, step in itertools.product((3, 300_000), (1, -1)):
        parts = [torch.full((count,), 10.0 * rank + to) for to in range(size)]
        dist.all_to_all(parts[::step], parts)
        assert all(part.eq(10 * of + rank).all() for of, part in enumerate(parts[::step]))
    table = torch.stack([torch.full((size,), 10.0 * rank + to) for to in range(size)])
    dist.all_to_all(list(table.t()), list(table))
    assert torch.equal(table, (10.0 * torch.arange(size) + rank).expand(size, size))


def messages(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    for count in (0, 10, 1 << 20):  # the last one exceeds the eager limit
        own, got = torch.full((count,), float(rank)), torch.zeros(count, 2)[:, 0]
        sending = dist.isend(own, right)
        receiving = dist.irecv(got, left)
        receiving.wait()
        sending.wait()
        assert sending.is_completed() and receiving.is_completed()
        assert torch.equal(got, torch.full((count,), float(left)))
    from_right, from_left = torch.zeros(200_000), torch.zeros(200_000)
    own = torch.full((200_000,), float(rank))
    operations = [
        dist.P2POp(dist.isend, own, right),
        dist.P2POp(dist.isend, own, left),
        dist.P2POp(dist.irecv, from_left, left),
        dist.P2POp(dist.irecv, from_right, right),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert from_left[-1] == left and from_right[-1] == right
    if rank == 0:
        seen = set()
        for _ in range(1, size):
            number = torch.zeros(1)
            source = dist.recv(number, tag=5)
            assert source == number.item()
            seen.add(source)
        assert seen == set(range(1, size))
    else:
        dist.send(torch.tensor([float(rank)]), 0, tag=5)
    # The work is dropped, and the message still arrives.
    dist.isend(torch.full((1 << 20,), 7.0), right)
    got = torch.zeros(1 << 20)
    assert dist.recv(got, left) == left and got.eq(7).all()
    # A tensor belongs to the caller after wait(), even if another thread finds that the message has
    # ended.
    sending, got = dist.isend(own[:3], right), torch.zeros(3, 2)[:, 0]
    receiving = dist.irecv(got, left)

    def find_late(request):
        receiving.wait()
        got.fill_(-1)
        return request.test()

    receiving._finish(find_late)
    sending.wait()
    assert receiving.is_completed() and receiving.source_rank() == left
    assert got.eq(-1).all(), got
    # A shorter message fills the tensor's first elements, even if they are not contiguous.
    for got in torch.full((2, 3), -1.0), torch.full((3, 2), -1.0).t():
        sending = dist.isend(torch.arange(4.0), right)
        assert dist.recv(got, left) == left
        sending.wait()
        assert got.tolist() == [[0, 1, 2], [3, -1, -1]], got
    sending = dist.isend(torch.zeros(4), right)
    assert "16 bytes" in str(raises(omnes.Truncated, dist.recv, torch.zeros(3), left))
    sending.wait()


def splits(rank, size, part):
    """Groups of split_group(), in the order of their ranks; they can be split again."""
    group = dist.split_group(split_ranks=[[size - 1, 0], list(range(1, size - 1))])
    assert dist.get_backend(group) == "omnes" and group.size() == len(part)
    assert group.group_desc == "default_pg:split:0", group.group_desc
    numbers = torch.zeros(len(part), dtype=torch.int64)
    dist.all_gather_into_tensor(numbers, torch.tensor([rank]), group=group)
    assert sorted(numbers.tolist()) == part and numbers[group.rank()] == rank, numbers
    assert 0 not in part or numbers.tolist() == [size - 1, 0], numbers
    root = dist.get_process_group_ranks(group)[0]
    assert root == numbers[0]
    number = torch.tensor(rank)
    dist.broadcast(number, root, group=group)
    assert number.item() == root
    for is_first in (True, False):
        # PyTorch counts groups, and their names differ if only some ranks have created one.
        if is_first == (0 in part):
            alone = dist.split_group(group, [[0]], group_desc="first")
            if group.rank() == 0:
                assert alone.size() == 1 and alone.group_desc == "first"
                dist.barrier(alone)
                dist.destroy_process_group(alone)
            else:
                assert alone == dist.GroupMember.NON_GROUP_MEMBER
        again = dist.split_group(split_ranks=[list(range(size))])
        number = torch.tensor(rank)
        dist.all_reduce(number, group=again)
        assert number.item() == sum(range(size))
        dist.destroy_process_group(again)


def groups(rank, size):
    parts = [[0, size - 1], list(range(1, size - 1))]
    made = [dist.new_group(part) for part in parts]
    own = next(index for index, part in enumerate(parts) if rank in part)
    group = made[own]
    for _ in range(10):  # both groups concurrently
        number = torch.tensor([rank])
        dist.all_reduce(number, group=group)
        assert number.item() == sum(parts[own])
    number = torch.tensor([rank])
    dist.broadcast(number, parts[own][-1], group=group)
    assert number.item() == parts[own][-1]
    assert dist.get_backend(group) == "omnes"
    if torch.__version__ >= "2.15":
        splits(rank, size, parts[own])
    both, mine = torch.zeros(2), dist.new_group([2, 0])
    if rank in (0, 2):
        dist.all_gather_into_tensor(both, torch.tensor([float(rank)]), group=mine)
        assert sorted(both.tolist()) == [0, 2]
        dist.destroy_process_group(mine)
    dist.barrier()


def little_remains_of_groups_in_the_store(rank, size):
    store = dist.distributed_c10d._get_default_store()
    counts = []
    for _ in range(2):
        for _ in range(5):
            dist.destroy_process_group(dist.new_group())
        dist.barrier()
        counts.append(store.num_keys())
        dist.barrier()
    # PyTorch's own keys, and one number per rank.
    assert counts[1] - counts[0] <= 5 * (size + 2), counts


def barriers(rank, size):
    dist.barrier()
    dist.barrier(async_op=True).wait()
    limit = datetime.timedelta(seconds=0.05)
    world = dist.group.WORLD
    if rank == 0:
        error = raises(omnes.BarrierTimeout, dist.barrier, timeout=limit)
        assert error.missing == list(range(1, size)), error
        error = raises(omnes.BarrierTimeout, world.monitored_barrier, limit)
        assert "rank 1" in str(error)
        if torch.__version__ >= "2.15":
            raises(omnes.BarrierTimeout, dist.monitored_barrier, timeout=limit)
        for other in range(1, size):
            dist.send(torch.zeros(1), other)
    else:
        dist.recv(torch.zeros(1), 0)
    dist.barrier()


def functional(rank, size):
    """The functions that DTensor and compiled programs call."""
    import torch.distributed._functional_collectives as functions

    total = functions.all_reduce(data(rank), "sum", dist.group.WORLD)
    assert torch.equal(total + 0, sum(everybody(size)))
    table = functions.all_gather_tensor(data(rank), 0, dist.group.WORLD)
    assert torch.equal(table + 0, torch.cat(everybody(size)))
    # Their results have not been waited for yet.
    total = functions.all_reduce(data(rank), "sum", dist.group.WORLD)
    dist.all_reduce(total, ReduceOp.MAX)
    assert torch.equal(total + 0, sum(everybody(size)))
    outputs = [torch.zeros(3, 4) for _ in range(size)]
    dist.all_gather(outputs, functions.all_reduce(data(rank), "sum", dist.group.WORLD))
    assert all(torch.equal(output, sum(everybody(size))) for output in outputs)
    total = functions.all_reduce(data(rank), "sum", dist.group.WORLD)
    if rank == 1:
        dist.send(total, 0)
    elif rank == 0:
        dist.recv(other := torch.zeros(3, 4), 1)
        assert torch.equal(other, total + 0)


def module():
    torch.manual_seed(3)
    layers = [torch.nn.Linear(6, 9), torch.nn.BatchNorm1d(9), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(9, 2)).eval()


def data_parallel(rank, size):
    whole = torch.randn(4 * size, 6, generator=torch.Generator().manual_seed(5))
    alone = module()
    alone(whole).square().mean().backward()
    own = module()
    if rank:
        for parameter in own.parameters():
            torch.nn.init.constant_(parameter, rank)  # those of rank 0 are used
    together = torch.nn.parallel.DistributedDataParallel(own)
    for _ in range(2):
        together.zero_grad()
        together(whole[4 * rank : 4 * rank + 4]).square().mean().backward()
        for one, other in zip(alone.parameters(), together.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)


with warnings.catch_warnings():
    # PyTorch renames calls, and programs use its old names.
    warnings.simplefilter("ignore")
    dist.init_process_group("omnes", timeout=datetime.timedelta(seconds=40))
    rank, size = dist.get_rank(), dist.get_world_size()
    for each in (
        broadcasts,
        refusals,
        reductions,
        sparse_tensors,
        sparse_gradients,
        profiled,
        gathers,
        reduce_scatters,
        all_to_alls,
        messages,
        groups,
        little_remains_of_groups_in_the_store,
        barriers,
        functional,
        data_parallel,
    ):
        each(rank, size)
    dist.destroy_process_group()
raises(ValueError, dist.get_rank)
