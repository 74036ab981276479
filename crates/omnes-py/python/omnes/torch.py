"""PyTorch: pushes weights from one rank to all at link speed, and sums tensors.

::

    import omnes
    import omnes.torch

    with omnes.Communicator.from_env() as world:
        weights = omnes.torch.Weights(world, model)  # once: all ranks hold the same tensors
        while training:
            ...
            weights.bcast(root=0)  # as often as you like: model is the same everywhere
            omnes.torch.allreduce(world, loss)  # the sum of all ranks', at all ranks

A CPU tensor whose elements are contiguous is sent and received in place. Other
tensors, such as those of a GPU, are copied through the processor's memory.
"""

from __future__ import annotations

import collections
import ctypes
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from ._omnes import Communicator, Mismatch

if TYPE_CHECKING:
    from ._omnes import Request, _Op

__all__ = ["Weights", "allreduce", "bcast"]

# Element types that reductions support.
_NUMBERS: dict[torch.dtype, Any] = {
    torch.float32: ctypes.c_float,
    torch.float64: ctypes.c_double,
    torch.int8: ctypes.c_int8,
    torch.int16: ctypes.c_int16,
    torch.int32: ctypes.c_int32,
    torch.int64: ctypes.c_int64,
    torch.uint8: ctypes.c_uint8,
    torch.uint16: ctypes.c_uint16,
    torch.uint32: ctypes.c_uint32,
    torch.uint64: ctypes.c_uint64,
}

# Element types that are combined as another type.
_WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.bool: torch.uint8}

# For 0 and 1, these operations compute what the names say.
_OPERATIONS_OF_BOOLS: dict[_Op, _Op] = {"sum": "or", "product": "and", "min": "and", "max": "or"}

# Maximum number of outstanding broadcasts: enough that the link is never idle, and few enough to
# limit the number of copies of tensors that need one.
_UNDER_WAY_MAX = 16


class Weights:
    """Tensors that all ranks hold under the same names, with the same shapes and types.

    weights is a torch.nn.Module, whose parameters and buffers are used, or a mapping of names to
    tensors. Tensors that share their memory, such as tied weights, are sent once. After tensors
    have been replaced, as by Module.half(), create new Weights.

    Collective; no rank raises before all ranks have reported. Raises omnes.Mismatch if the tensors
    of the ranks differ, naming the first that does; TypeError, and omnes.Mismatch on the other
    ranks, for an object that is not a tensor, or a tensor that cannot be received into: a sparse
    tensor, one without memory, or one whose elements share memory, as after expand().
    """

    def __init__(
        self, world: Communicator, weights: torch.nn.Module | Mapping[str, torch.Tensor]
    ) -> None:
        mistake: Exception | None = None
        try:
            self._tensors = _apart(_named(weights))
            held = "\n".join(_told(name, tensor) for name, tensor in self._tensors.items())
        except Exception as error:  # The other ranks wait, whatever the error is.
            mistake = error
            held = f"no weights: {error}"
        try:
            self._ranks = _agreed(world, held)
        except Mismatch:
            if mistake is None:
                raise
        if mistake is not None:
            raise mistake
        self.bytes = sum(tensor.nbytes for tensor in self._tensors.values())

    def bcast(self, root: int = 0) -> None:
        """Copies the root's tensors into those of all ranks. Collective.

        Several broadcasts are outstanding at a time. Raises omnes.RankOutOfRange, omnes.PeerFailed;
        the tensors may then be partly overwritten. Do not call it between a forward pass and its
        backward pass: autograd detects the change and rejects the backward pass.
        """
        under_way: collections.deque[_UnderWay] = collections.deque()
        try:
            for tensor in self._tensors.values():
                if tensor.nbytes:
                    if len(under_way) == _UNDER_WAY_MAX:
                        under_way.popleft().finish()
                    under_way.append(_UnderWay(self._ranks, tensor, root))
            while under_way:
                under_way.popleft().finish()
        except BaseException:
            # A traceback may hold them; no data may arrive after the call.
            for each in under_way:
                each.give_up()
            raise


def bcast(world: Communicator, tensor: torch.Tensor, root: int = 0) -> None:
    """Copies the root's tensor into that of all ranks, which have the same number of bytes.

    Collective. Raises the errors of Communicator.bcast(); TypeError for a tensor that cannot be
    received into.
    """
    _check("the tensor", tensor)
    _UnderWay(world, tensor, root).finish()


def allreduce(world: Communicator, tensor: torch.Tensor, op: _Op = "sum") -> None:
    """Combines the tensors of all ranks, of the same shape and type, in place.

    The result has the same bits on all ranks. op is "sum", "product", "min" or "max"; for integers,
    also "and", "or" or "xor". 16-bit floats are combined in 32 bits; for bools, a sum is "or" and a
    product "and". Type and op are not compared between ranks: if they differ, the result is
    meaningless. Collective. Raises the errors of Communicator.allreduce(); TypeError for a tensor
    of another type, or one that cannot be received into.
    """
    _check("the tensor", tensor)
    wide, op = _combined_as(tensor.dtype, op)
    place = memory = tensor.detach()
    if wide != place.dtype or not _is_plain(place):
        memory = place.to("cpu", wide).contiguous().resolve_neg()
    world.allreduce(_numbers(memory), op)
    if memory is place:
        _note_written(place)
    else:
        place.copy_(memory)


class _UnderWay:
    """An outstanding broadcast of one tensor, with the memory that it uses."""

    def __init__(self, ranks: Communicator, tensor: torch.Tensor, root: int) -> None:
        tensor = tensor.detach()
        self._is_written = ranks.rank != root
        self._place: torch.Tensor | None = None
        if _is_plain(tensor):
            self._memory = tensor
        elif ranks.rank == root:
            self._memory = tensor.resolve_conj().resolve_neg().cpu().contiguous()
        else:
            self._memory = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
            self._place = tensor
        memory = (ctypes.c_char * self._memory.nbytes).from_address(self._memory.data_ptr())
        memory.owner = self._memory  # kept alive as long as the request uses it
        self._request: Request | None = ranks.ibcast(memory, root)

    def finish(self) -> None:
        if self._request is not None:
            self._request.wait()
        if self._place is not None:
            self._place.copy_(self._memory)
        elif self._is_written:
            _note_written(self._memory)

    def give_up(self) -> None:
        self._request = None


def _named(weights: torch.nn.Module | Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors by name, in an order that is the same on all ranks."""
    named: dict[str, torch.Tensor] = {}
    if isinstance(weights, torch.nn.Module):
        named.update(weights.named_parameters(remove_duplicate=False))
        named.update(weights.named_buffers(remove_duplicate=False))
    else:
        named.update(weights)
    for name, value in named.items():
        _check(repr(name), value)
    return dict(sorted(named.items(), key=lambda item: str(item[0])))


def _check(name: str, tensor: object) -> None:
    """Rejects anything but a tensor that can be received into."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} is of type {type(tensor).__name__}, not a tensor")
    _check_memory(name, tensor)
    if any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape)):
        raise TypeError(f"{name} has elements that share memory; clone() it")


def _check_memory(name: str, tensor: torch.Tensor) -> None:
    """Rejects tensors whose elements are not all in memory."""
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} has the layout {tensor.layout}; only dense tensors can be sent")
    if tensor.nbytes and not _is_in_memory(tensor):
        raise TypeError(f"{name} has no memory: it is on {tensor.device}, or was given back")


def _is_in_memory(tensor: torch.Tensor) -> bool:
    """False for a meta tensor, and if the storage has been resized to fewer elements."""
    if tensor.is_meta:
        return False
    steps = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
    end = (tensor.storage_offset() + steps + 1) * tensor.itemsize
    storage = tensor.untyped_storage()
    return storage.data_ptr() != 0 and storage.nbytes() >= end


def _is_plain(tensor: torch.Tensor) -> bool:
    """True if the tensor's memory holds its elements, in order, and the network can access it."""
    is_here = tensor.device.type == "cpu" and tensor.is_contiguous()
    return is_here and not tensor.is_conj() and not tensor.is_neg()


def _combined_as(dtype: torch.dtype, op: _Op) -> tuple[torch.dtype, _Op]:
    """The type as which a reduction combines elements of dtype, and the operation that it uses."""
    wide = _WIDE.get(dtype, dtype)
    if wide not in _NUMBERS:
        raise TypeError(f"the tensor has elements of {dtype}, which no reduction knows")
    return wide, _OPERATIONS_OF_BOOLS.get(op, op) if dtype == torch.bool else op


def _numbers(tensor: torch.Tensor) -> Any:
    """The tensor's memory as an array of its element type, valid while the tensor is."""
    return (_NUMBERS[tensor.dtype] * tensor.numel()).from_address(tensor.data_ptr())


def _note_written(tensor: torch.Tensor) -> None:
    """Notifies autograd that the memory has changed, as PyTorch's own operations do."""
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)


def _apart(named: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Each tensor once: of tensors that share all of their memory, the first."""
    seen = set()
    apart = {}
    for name, tensor in named.items():
        place = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.nbytes == 0 or place not in seen:
            seen.add(place)
            apart[name] = tensor
    return apart


def _told(name: str, tensor: torch.Tensor) -> str:
    return f"{name!r}: {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _agreed(world: Communicator, held: str) -> Communicator:
    """A communicator of the ranks of world, all of which hold the same tensors. Collective."""
    theirs = _of_rank_0(world, held)
    alike = world.split(int(held == theirs), world.rank)
    assert alike is not None  # Every rank has a color.
    if alike.size == world.size:
        return alike
    raise Mismatch(f"the ranks hold different tensors; {_first_difference(held, theirs)}")


def _of_rank_0(world: Communicator, text: str) -> str:
    """The text of rank 0. Collective."""
    own = text.encode()
    length = bytearray(len(own).to_bytes(8, "big"))
    world.bcast(length)
    theirs = bytearray(own if world.rank == 0 else int.from_bytes(length, "big"))
    world.bcast(theirs)
    return theirs.decode()


def _first_difference(held: str, theirs: str) -> str:
    if held == theirs:
        return "this rank holds what rank 0 holds, others say what differs"
    lines = (held.splitlines(), theirs.splitlines())
    pairs = itertools.zip_longest(*lines, fillvalue="nothing more")
    here, there = next((a, b) for a, b in pairs if a != b)
    return f"here {here}, at rank 0 {there}"
