"""Checks of arguments that collectives of torch.distributed make before they send anything."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ._omnes import Reduction


def check_pair(one: torch.Tensor, other: torch.Tensor) -> None:
    """The elements of one tensor can be copied into the other."""
    if one.dtype != other.dtype or one.numel() != other.numel():
        raise ValueError(
            f"{one.numel()} elements of {one.dtype} do not go into {other.numel()} of "
            f"{other.dtype}"
        )


def check_count(tensors: Sequence[torch.Tensor], size: int) -> None:
    """There is one tensor per rank."""
    if len(tensors) != size:
        raise ValueError(f"{len(tensors)} tensors for {size} ranks")


def check_root(root: int, size: int) -> None:
    """The root is a rank of the group."""
    if not 0 <= root < size:
        raise ValueError(f"the root, {root}, is not a rank of this group, which has {size}")


def check_alike(parts: Sequence[torch.Tensor], tensor: torch.Tensor, size: int) -> None:
    """There is one part per rank, and each is as long as the tensor."""
    check_count(parts, size)
    for part in parts:
        check_pair(part, tensor)


def check_parts(whole: torch.Tensor, part: torch.Tensor, size: int) -> None:
    """The whole consists of one such part per rank."""
    if whole.dtype != part.dtype or whole.numel() != part.numel() * size:
        raise ValueError(
            f"{whole.numel()} elements of {whole.dtype} are not {size} times "
            f"{part.numel()} of {part.dtype}"
        )


def check_divides(tensor: torch.Tensor, size: int) -> None:
    """The rows, along the first dimension, can be divided evenly among the ranks."""
    if tensor.dim() == 0 or tensor.shape[0] % size:
        shape = list(tensor.shape)
        raise ValueError(f"{shape} has no equal number of rows for {size} ranks")


def check_splits(tensor: torch.Tensor, splits: Sequence[int], size: int, name: str) -> None:
    """The splits are counts of the tensor's rows, one per rank."""
    if len(splits) != size or sum(splits) != tensor.shape[0] or min(splits) < 0:
        raise ValueError(
            f"{name} splits {list(splits)} do not part {tensor.shape[0]} rows among {size} ranks"
        )


def check_operation(name: str, dtype: torch.dtype) -> None:
    """The reduction supports elements of that type."""
    is_float = dtype.is_floating_point
    if name == "AVG" and not is_float:
        raise TypeError(f"AVG is for floats, and the tensor has elements of {dtype}")
    if name in ("BAND", "BOR", "BXOR") and is_float:
        raise Reduction(
            f"{name} is for integers and bools, and the tensor has elements of {dtype}"
        )
