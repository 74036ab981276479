"""Reductions of torch.distributed, implemented by calls of Communicator."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed

from ._checks import (
    check_alike,
    check_count,
    check_operation,
    check_pair,
    check_parts,
    check_root,
)
from ._omnes import Communicator, Mismatch
from ._tensors import all_apart, bytes_of, check_here, joint, to_read, to_write
from ._transfers import all_gather
from ._turns import Turns
from .torch import _combined_as, _numbers

if TYPE_CHECKING:
    from ._omnes import _Op

_OPERATIONS: dict[str, _Op] = {
    "SUM": "sum",
    "AVG": "sum",
    "PRODUCT": "product",
    "MIN": "min",
    "MAX": "max",
    "BAND": "and",
    "BOR": "or",
    "BXOR": "xor",
}


def all_reduce(turns: Turns, tensor: torch.Tensor, opts: Any) -> None:
    """Combines the tensors of all ranks, in place on all of them."""
    if tensor.layout == torch.sparse_coo:
        return _all_reduce_sparse(turns, tensor, opts)
    with to_write(tensor) as place:
        _combine(turns, place, place, opts, Communicator.allreduce)


def reduce(
    turns: Turns, tensor: torch.Tensor, output: torch.Tensor, root: int, opts: Any
) -> None:
    """Combines the tensors of all ranks into output at root; other tensors are unchanged."""
    check_root(root, turns.size)

    def reduction(ranks: Communicator, memory: Any, name: _Op) -> None:
        ranks.reduce(memory, root, name)

    room = to_read(tensor).clone()
    if turns.rank != root:
        return _combine(turns, room, room, opts, reduction)
    with to_write(output) as place:
        _combine(turns, room, place.view(room.shape), opts, reduction)


def reduce_scatter(
    turns: Turns, output: torch.Tensor, parts: Sequence[torch.Tensor], opts: Any
) -> None:
    """Combines, for each rank, the parts that all ranks have for it, into its output."""
    check_count(parts, turns.size)
    if len({part.numel() for part in parts}) == 1:
        check_alike(parts, output, turns.size)
        return _reduce_scatter(turns, output, joint(parts), opts)
    check_pair(parts[turns.rank], output)
    own = [to_read(part) for part in parts]
    # The output is written before the parts of later ranks are read.
    for root, part in turns.each(enumerate(all_apart(own, [output]))):
        reduce(turns, part, output, root, opts)


def reduce_scatter_from(
    turns: Turns, output: torch.Tensor, tensor: torch.Tensor, opts: Any
) -> None:
    """As reduce_scatter(), with the parts in one tensor."""
    check_parts(tensor, output, turns.size)
    _reduce_scatter(turns, output, to_read(tensor).clone(), opts)


def _reduce_scatter(
    turns: Turns, output: torch.Tensor, room: torch.Tensor, opts: Any
) -> None:
    with to_write(output) as place:
        _combine(turns, room, place, opts, Communicator.reduce_scatter)


def _combine(
    turns: Turns,
    data: torch.Tensor,
    result: torch.Tensor,
    opts: Any,
    reduction: Callable[[Communicator, Any, _Op], Any],
) -> None:
    """Combines data, which may be overwritten, by reduction, and stores the range that this
    returns, or all of it, in result.
    """
    name = _name_of(opts)
    if data.is_complex() and name in ("SUM", "AVG"):
        parts = torch.view_as_real(data)
        data, result = parts, parts if result is data else torch.view_as_real(result)
    wide, operation = _combined_as(data.dtype, _OPERATIONS[name])
    check_operation(name, data.dtype)
    numbers = data.to(wide)
    if numbers.numel() == 0:
        return
    memory = _numbers(numbers)
    block = reduction(turns.part, memory, operation)
    if block is not None:
        numbers = numbers.view(-1)[slice(*block)].view(result.shape)
    if name == "AVG":
        numbers.div_(turns.size)
    if numbers is not result:
        result.copy_(numbers)


def _all_reduce_sparse(turns: Turns, tensor: torch.Tensor, opts: Any) -> None:
    """Gathers the elements of all ranks; each rank adds them in order of ranks."""
    check_here("the tensor", tensor)
    name = _name_of(opts)
    if name not in ("SUM", "AVG"):
        raise NotImplementedError(f"no reduction {name} of sparse tensors; there are SUM, AVG")
    if not tensor.is_complex():
        check_operation(name, tensor.dtype)
    own = tensor.detach().coalesce()
    counts: list[int] = []
    gathered = []
    for told in turns.each((None, own.indices().t().contiguous(), own.values().contiguous())):
        if told is None:
            counts = _counts_of_alike(turns, own)
        else:
            gathered.append(_rows_of_all(turns, told, counts))
    indices, values = gathered
    total = torch.sparse_coo_tensor(indices.t(), values, own.shape).coalesce()
    with torch.no_grad():
        tensor.copy_(total / turns.size if name == "AVG" else total)


def _counts_of_alike(turns: Turns, own: torch.Tensor) -> list[int]:
    """Number of elements of the sparse tensor on each rank. Raises Mismatch on all ranks if shapes
    or types differ.
    """
    kind = f"{own.dtype} {list(own.shape)}, {own.sparse_dim()} dimensions of them sparse"
    told = torch.tensor([own._nnz(), zlib.crc32(kind.encode())], device="cpu")
    rows = told.new_empty((turns.size, 2))
    turns.part.allgather(bytes_of(told), bytes_of(rows))
    counts, kinds = rows.t().tolist()
    if len(set(kinds)) > 1:
        turns.skip_rest()
        others = [str(other) for other in turns.others if kinds[other] != kinds[turns.rank]]
        raise Mismatch(
            f"the ranks have sparse tensors of different kinds; rank {turns.rank} has {kind}, "
            f"others have ranks {', '.join(others)}"
        )
    return counts


def _rows_of_all(turns: Turns, own: torch.Tensor, counts: list[int]) -> torch.Tensor:
    """The rows of all ranks; counts has the number of rows of each."""
    table = own.new_empty((sum(counts), *own.shape[1:]))
    all_gather(turns, table.split(counts), own)
    return table


def _name_of(opts: Any) -> str:
    """Name of the reduction operation."""
    operation = getattr(opts, "reduceOp", opts) or torch.distributed.ReduceOp.SUM
    name = str(getattr(operation, "op", operation)).rpartition(".")[2]
    if name not in _OPERATIONS:
        known = ", ".join(_OPERATIONS)
        raise NotImplementedError(f"the backend omnes has no reduction {name}; it has {known}")
    return name
