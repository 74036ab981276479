"""The memory of CPU tensors, for operations that need contiguous bytes."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .torch import _check as check_place
from .torch import _check_memory as check_memory
from .torch import _is_plain as is_plain
from .torch import _note_written as note_written


def arrived(argument: Any) -> Any:
    """The argument, or its value when that is there: functional collectives return
    AsyncCollectiveTensors, wrappers without memory. Lists are copied, since the caller may change
    them.
    """
    if isinstance(argument, list):
        return [arrived(each) for each in argument]
    wait = getattr(argument, "trigger_wait", None)  # The class is in a private module.
    return argument if wait is None else wait()


def check_here(name: str, tensor: torch.Tensor) -> None:
    """Rejects a tensor that is not in the processor's memory."""
    if tensor.device.type != "cpu":
        raise TypeError(
            f"{name} is on {tensor.device}, and the backend omnes is for tensors on the processor: "
            "use tensor.cpu(), or a backend for that device, such as nccl"
        )


def check_read(name: str, tensor: torch.Tensor) -> None:
    """Rejects a tensor that cannot be sent; its elements may share memory."""
    check_here(name, tensor)
    check_memory(name, tensor)


def check_written(name: str, tensor: torch.Tensor) -> None:
    """Rejects a tensor that cannot be received into."""
    check_read(name, tensor)
    check_place(name, tensor)


def bytes_of(tensor: torch.Tensor) -> Any:
    """The bytes of a tensor with contiguous elements."""
    memory = (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())
    memory.owner = tensor  # kept alive as long as a request uses it
    return memory


def to_read(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy with contiguous elements."""
    check_read("the tensor", tensor)
    return _in_order(tensor.detach())


@contextlib.contextmanager
def to_write(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensor, or a copy with contiguous elements, which is copied back.

    A tensor that can be read but not written, because its elements share memory, is rejected only
    after the operation, in which the other ranks take part: their next one would meet this one
    otherwise.
    """
    check_read("the tensor", tensor)
    place = tensor.detach()
    try:
        check_written("the tensor", tensor)
    except TypeError:
        yield _in_order(place)
        raise
    memory = _in_order(place)
    yield memory
    if memory is not place:
        place.copy_(memory)


def apart(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy if it shares memory with the other."""
    return all_apart([tensor], [other])[0]


def all_apart(
    tensors: Sequence[torch.Tensor], others: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The tensors, with copies of those that may share memory with any of the others."""
    spans = [_span(other) for other in others]

    def is_apart(tensor: torch.Tensor) -> bool:
        start, end = _span(tensor)
        return all(end <= others_start or others_end <= start for others_start, others_end in spans)

    return [each if is_apart(each) else each.clone() for each in tensors]


def joint(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The elements of all parts, in a copy."""
    return torch.cat([to_read(part).reshape(-1) for part in parts])


def lengths_of(parts: Sequence[torch.Tensor]) -> list[int]:
    """Length of each part in bytes."""
    return [part.nbytes for part in parts]


def spread(rows: torch.Tensor | Sequence[torch.Tensor], parts: Sequence[torch.Tensor]) -> None:
    """Copies one row into each part."""
    for row, part in zip(rows, parts, strict=True):
        check_written("an output", part)
        part.detach().copy_(row.view(part.shape))


def together(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The elements of all parts, in a copy unless they are contiguous."""
    whole = _whole(parts)
    return joint(parts) if whole is None else whole


@contextlib.contextmanager
def to_spread(own: torch.Tensor, parts: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """The memory of all parts, or a copy that is distributed to them; each is as long as own."""
    whole = _whole(parts)
    if whole is None:
        table = own.new_empty((len(parts), own.numel()))
        yield table
        spread(table, parts)
    else:
        yield whole
        for part in parts:
            note_written(part)


def _whole(parts: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """One tensor of all parts, if they are contiguous, as those of chunk() may be."""
    first, end = parts[0], 0
    for part in parts:
        if part.layout != torch.strided or not part.nbytes or not is_plain(part):
            return None
        if end not in (0, part.data_ptr()) or part.dtype != first.dtype:
            return None
        end = part.data_ptr() + part.nbytes
    memory = first.untyped_storage()
    if end > memory.data_ptr() + memory.nbytes():
        return None
    return first.detach().as_strided((sum(part.numel() for part in parts),), (1,))


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Start and end address of the tensor's memory."""
    start = tensor.data_ptr()
    if tensor.numel() == 0:
        return start, start
    steps = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
    return start, start + (steps + 1) * tensor.itemsize


def _in_order(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy with contiguous elements."""
    if is_plain(tensor):
        return tensor
    return tensor.resolve_conj().resolve_neg().contiguous()
