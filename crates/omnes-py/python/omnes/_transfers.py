"""Transfers tensors of torch.distributed between ranks by calls of Communicator.

All ranks of the group make the calls of one collective together, each in its turn.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ._checks import (
    check_alike,
    check_count,
    check_divides,
    check_pair,
    check_parts,
    check_root,
    check_splits,
)
from ._messages import Message
from ._omnes import PeerFailed, PeerLeft
from ._tensors import (
    all_apart,
    apart,
    bytes_of,
    check_written,
    lengths_of,
    spread,
    to_read,
    to_spread,
    to_write,
    together,
)
from ._turns import Turns, text_of

# Tag of messages that are parts of collectives; those of programs are below 2**31.
_TAG = 2**32 - 1

# Tensors of different lengths are gathered by one call, through a copy, up to this number of bytes
# in total; longer ones are broadcast one by one, in place.
_TABLE_BYTES_MAX = 64 << 10


def broadcast(turns: Turns, tensor: torch.Tensor, root: int) -> None:
    """Copies root's tensor into those of the other ranks."""
    check_root(root, turns.size)
    if turns.rank == root:
        own = to_read(tensor)
        turns.part.bcast(bytes_of(own), root)
    else:
        with to_write(tensor) as place:
            try:
                turns.part.bcast(bytes_of(place), root)
            except TimeoutError as error:
                waits = f"it waits for rank {root}, the root, or ranks that pass its data on"
                error.args = (f"{error}; {waits}",)
                raise


def gather(
    turns: Turns, parts: Sequence[torch.Tensor] | None, tensor: torch.Tensor, root: int
) -> None:
    """Copies the tensors of all ranks into the parts, which only root has."""
    check_root(root, turns.size)
    own = to_read(tensor)
    if parts is None:
        turns.part.gather(bytes_of(own), None, root)
        return
    check_alike(parts, tensor, turns.size)
    with to_spread(own, parts) as table:
        own = apart(own, table)
        turns.part.gather(bytes_of(own), bytes_of(table), root)


def scatter(
    turns: Turns, output: torch.Tensor, parts: Sequence[torch.Tensor] | None, root: int
) -> None:
    """Copies each of the parts, which only root has, into the output of its rank."""
    check_root(root, turns.size)
    table = None
    if parts is not None:
        check_alike(parts, output, turns.size)
        table = bytes_of(apart(together(parts), output))
    with to_write(output) as place:
        turns.part.scatter(table, bytes_of(place), root)


def all_gather_into(turns: Turns, output: torch.Tensor, tensor: torch.Tensor) -> None:
    """Copies the tensors of all ranks into the output of each, concatenated."""
    check_parts(output, tensor, turns.size)
    with to_write(output) as place:
        own = apart(to_read(tensor), place)
        turns.part.allgather(bytes_of(own), bytes_of(place))


def all_gather(turns: Turns, parts: Sequence[torch.Tensor], tensor: torch.Tensor) -> None:
    """Copies the tensor of each rank into the part that all have for it; lengths may differ."""
    own = to_read(tensor)
    check_count(parts, turns.size)
    check_pair(tensor, parts[turns.rank])
    if len({part.numel() for part in parts}) > 1:
        return _all_gather_unequal(turns, parts, own)
    check_alike(parts, tensor, turns.size)
    with to_spread(own, parts) as table:
        own = apart(own, table)
        turns.part.allgather(bytes_of(own), bytes_of(table))


def _all_gather_unequal(
    turns: Turns, parts: Sequence[torch.Tensor], own: torch.Tensor
) -> None:
    lengths = [part.numel() * own.itemsize for part in parts]
    if sum(lengths) <= _TABLE_BYTES_MAX:
        table = own.new_empty(sum(lengths) // own.itemsize)
        turns.part.allgatherv(bytes_of(own), bytes_of(table), lengths)
        return spread(table.split([part.numel() for part in parts]), parts)
    # The parts of other ranks arrive before this rank's own is sent.
    [own] = all_apart([own], [part for root, part in enumerate(parts) if root != turns.rank])
    for root, part in turns.each(enumerate(parts)):
        with to_write(part) as place:
            if root == turns.rank:
                place.copy_(own.view(place.shape))
            turns.part.bcast(bytes_of(place), root)


def all_to_all_single(
    turns: Turns,
    output: torch.Tensor,
    tensor: torch.Tensor,
    output_splits: Sequence[int] | None,
    input_splits: Sequence[int] | None,
) -> None:
    """Sends rows of the tensor to each rank, and receives rows of the output from each."""
    own = to_read(tensor)
    with to_write(output) as place:
        if output_splits or input_splits:
            outputs = _split(place, output_splits, turns.size, "output")
            inputs = _split(own, input_splits, turns.size, "input")
            check_pair(inputs[turns.rank], outputs[turns.rank])
            data, lengths = bytes_of(apart(own, place)), lengths_of(inputs)
            turns.part.alltoallv(data, lengths, bytes_of(place), lengths_of(outputs))
        else:
            check_pair(tensor, output)
            check_divides(own, turns.size)
            own = apart(own, place)
            turns.part.alltoall(bytes_of(own), bytes_of(place))


def _split(
    tensor: torch.Tensor, splits: Sequence[int] | None, size: int, name: str
) -> Sequence[torch.Tensor]:
    if not splits:
        check_divides(tensor, size)
        splits = [tensor.shape[0] // size] * size
    check_splits(tensor, splits, size, name)
    return tensor.split(list(splits))


def all_to_all(
    turns: Turns, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]
) -> None:
    """Sends one input to each rank, and receives one output from each."""
    rank = turns.rank
    check_count(outputs, turns.size)
    check_count(inputs, turns.size)
    check_pair(inputs[rank], outputs[rank])
    for output in outputs:
        check_written("an output", output)
    data = all_apart([to_read(each) for each in inputs], outputs)
    ranks = turns.part
    started: list[Message] = []
    try:
        for r in turns.others:
            started.append(Message.received(ranks, outputs[r], r, _TAG, is_exact=True))
        for r in turns.others:
            started.append(Message.sent(ranks, data[r], r, _TAG))
        place = outputs[rank].detach()
        place.copy_(data[rank].view(place.shape))
        for message in started:
            message.wait()
    except BaseException as error:
        if isinstance(error, TimeoutError):
            received = zip(turns.others, started)
            missing = [str(r) for r, message in received if not message.is_success()]
            if missing:
                error.args = (f"{error}; nothing has come from ranks: {', '.join(missing)}",)
        # No more data arrive, even if someone keeps the error, and with it all of these messages.
        for message in started:
            message.give_up(error)
        # After these two, further collectives report by themselves that the rank has failed or
        # left.
        if started and not isinstance(error, (PeerFailed, PeerLeft)):
            turns.give_up("alltoall", f"it has not ended: {text_of(error)}")
        raise
