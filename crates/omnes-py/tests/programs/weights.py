"""Weights of modules reach all ranks, for all kinds of tensors; requires PyTorch."""

import torch

import omnes
import omnes.torch


class Model(torch.nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embedding = torch.nn.Embedding(100, 32)
        self.out = torch.nn.Linear(32, 100, bias=False)
        self.out.weight = self.embedding.weight  # tied: sent once
        self.wide = torch.nn.Linear(32, width, dtype=torch.bfloat16)
        self.norm = torch.nn.BatchNorm1d(16)  # also buffers, one of them an integer
        self.scale = torch.nn.Parameter(torch.randn(()))
        self.empty = torch.nn.Parameter(torch.empty(0, 3))
        self.register_buffer("scratch", torch.empty(0), persistent=False)


def raises(kind, call, *args, **options):
    """Asserts that the call raises an exception of that kind."""
    try:
        call(*args, **options)
    except kind:
        return
    raise AssertionError(f"{call} has not raised {kind}")


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.values(), b.values(), strict=True))


def modules(world):
    torch.manual_seed(world.rank)
    model = Model()
    weights = omnes.torch.Weights(world, model)
    tied = 100 * 32 * 4
    assert weights.bytes == sum(t.nbytes for t in model.state_dict().values()) - tied
    assert "scratch" not in model.state_dict()
    for root in (0, world.size - 1):
        torch.manual_seed(100 + root)
        expected = Model().state_dict()
        if world.rank == root:
            model.load_state_dict(expected)
        weights.bcast(root)
        assert same(model.state_dict(), expected)
        assert model.out.weight is model.embedding.weight and model.out.weight.requires_grad


def odd_tensors(world):
    """Tensors that are not contiguous, or conjugated, of all types."""
    types = (torch.float16, torch.float64, torch.int8, torch.bool, torch.complex64)
    expected = {str(kind): torch.arange(60).reshape(6, 10).to(kind) for kind in types}
    expected["transposed"] = torch.arange(60.0).reshape(6, 10).t()
    expected["part"] = torch.arange(60.0).reshape(6, 10)[:, 2:5]
    expected["conjugated"] = torch.complex(torch.ones(5), torch.arange(5.0)).conj()
    own = {name: tensor.clone() for name, tensor in expected.items()}
    own["transposed"] = own["transposed"].contiguous()
    own["transposed"] = torch.empty(6, 10).t().copy_(own["transposed"])
    own["conjugated"] = expected["conjugated"].clone().conj_physical().conj()
    if world.rank != 0:
        for tensor in own.values():
            tensor.zero_()
    outside = torch.zeros(6, 10)
    own["part"] = outside[:, 2:5].copy_(own["part"])
    omnes.torch.Weights(world, own).bcast()
    assert same(own, expected), own
    assert outside[:, :2].eq(0).all() and outside[:, 5:].eq(0).all()
    one = torch.full((3,), float(world.rank))
    omnes.torch.bcast(world, one, root=1)
    assert one.eq(1).all()


def differences(world):
    """If tensors differ, all ranks get an error that says how; none waits forever."""
    last = world.size - 1
    try:
        omnes.torch.Weights(world, Model(width=65 if world.rank == last else 64))
    except omnes.Mismatch as error:
        if world.rank == last:
            assert "here 'wide.bias': bfloat16 [65]" in str(error), error
            assert "at rank 0 'wide.bias': bfloat16 [64]" in str(error), error
    else:
        raise AssertionError("no rank may go on")


def mistakes(world):
    """A tensor that cannot be received into is rejected on its rank, and no other rank waits for
    it.
    """
    shared = torch.ones(1).expand(10)
    given_back = torch.ones(10)
    part = given_back[5:]
    given_back.untyped_storage().resize_(0)
    wrong = {
        "is of type int": 7,
        "has the layout torch.sparse_coo": torch.eye(3).to_sparse(),
        "has elements that share memory": shared,
        "has no memory: it is on meta": torch.ones(3, device="meta"),
        "has no memory: it is on cpu": given_back,
        "has no memory: it is on cpu,": part,
    }
    for reason, value in wrong.items():
        right = torch.ones(10)
        held = {"a": torch.ones(1), "b": value if world.rank == world.size - 1 else right}
        try:
            omnes.torch.Weights(world, held)
        except TypeError as error:
            assert world.rank == world.size - 1 and f"'b' {reason}" in str(error), error
        except omnes.Mismatch:
            assert world.rank != world.size - 1
        else:
            raise AssertionError(reason)


def order(world):
    """Tensors are matched by name, not by order."""
    names = ["b", "a", "c"] if world.rank == 0 else ["c", "b", "a"]
    own = {name: torch.full((5,), float(ord(name)) * (world.rank == 0)) for name in names}
    omnes.torch.Weights(world, own).bcast()
    assert all(tensor.eq(ord(name)).all() for name, tensor in own.items())


def sums(world):
    total = world.size * (world.size - 1) // 2
    known = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
    known += (torch.int8, torch.int16, torch.int32, torch.int64)
    known += (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
    for dtype in known:
        tensor = torch.full((3, 50), world.rank, dtype=dtype)
        omnes.torch.allreduce(world, tensor)
        assert tensor.dtype == dtype and torch.all(tensor == total), dtype
    # Rows that are not contiguous, and an optimizer's view of a parameter.
    wide = torch.full((4, 10), float(world.rank), requires_grad=True)
    omnes.torch.allreduce(world, wide[:, ::2], op="max")
    assert torch.all(wide[:, ::2] == world.size - 1)
    assert torch.all(wide[:, 1::2] == world.rank)
    omnes.torch.allreduce(world, torch.empty(0))
    for op, wanted in {"sum": True, "max": True, "product": False, "min": False}.items():
        bools = torch.tensor([world.rank == 1, False])
        omnes.torch.allreduce(world, bools, op)
        assert bools.tolist() == [wanted, False], op
    wave = torch.zeros(3, dtype=torch.complex64)
    raises(TypeError, omnes.torch.allreduce, world, wave)
    raises(omnes.Reduction, omnes.torch.allreduce, world, torch.zeros(3), "xor")


def autograd(world):
    """A write between a forward pass and its backward pass is detected."""
    writes = (
        lambda tensor: omnes.torch.allreduce(world, tensor),
        lambda tensor: omnes.torch.allreduce(world, tensor.t()),
        lambda tensor: omnes.torch.bcast(world, tensor, root=0),
        lambda tensor: omnes.torch.bcast(world, tensor.t(), root=0),
        lambda tensor: omnes.torch.Weights(world, {"a": tensor}).bcast(root=0),
    )
    for index, write in enumerate(writes):
        result = torch.ones(2, 3, requires_grad=True).exp()  # its gradient is the result itself
        write(result)
        if index < 2 or world.rank != 0:  # a broadcast writes nothing at its root
            raises(RuntimeError, result.sum().backward)
        else:
            result.sum().backward()
    with torch.inference_mode():
        untracked = torch.full((3,), float(world.rank))
    omnes.torch.bcast(world, untracked, root=1)
    omnes.torch.allreduce(world, untracked)
    assert untracked.eq(world.size).all()


def nonsense(world):
    """No other rank waits for one that has passed something else entirely."""
    is_wrong = world.rank == world.size - 1
    try:
        omnes.torch.Weights(world, 7 if is_wrong else {"a": torch.ones(1)})
    except (TypeError, omnes.Mismatch) as error:
        assert isinstance(error, TypeError) == is_wrong, error
    else:
        raise AssertionError("7 is not a mapping")


with omnes.Communicator.from_env() as world:
    modules(world)
    odd_tensors(world)
    differences(world)
    mistakes(world)
    order(world)
    sums(world)
    autograd(world)
    nonsense(world)
