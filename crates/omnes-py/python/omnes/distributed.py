"""PyTorch: a backend of torch.distributed, for tensors on the processor.

::

    import omnes.distributed
    import torch

    torch.distributed.init_process_group("omnes")
    model = torch.nn.parallel.DistributedDataParallel(model)

The program is started by ``omnes run``, torchrun, or whatever sets RANK,
WORLD_SIZE, MASTER_ADDR and MASTER_PORT; under ``omnes run`` the import sets
those that are missing. Groups of some of the ranks work as the first one does.

All ranks of a group call its collectives in the same order, and they are done
one after the other. With async_op=True, as by DistributedDataParallel, they are
done by a thread of the group while the program goes on; others wait for those
before them. Callbacks of a work's future run in that thread: collectives that
they start are done at once, before those that the program has started meanwhile,
for which they must not wait. isend() and irecv() go on by themselves. A
collective that has not ended within its limit, mostly the group's, raises
TimeoutError, and the group is of no more use: others raise CollectivesBroken. But
for broadcasts and all_to_all() of lists, the error names the ranks that have not
come, as the others tell within half a second. barrier() names them and goes on.
All calls end when a rank has failed or left. A group belongs to the process that
made it; calls of a forked child raise ValueError.

Errors are those of omnes; TypeError and ValueError for tensors that cannot be
used, NotImplementedError for a reduction that there is not. Who has refused its
part in a collective by one of these waits in its next one, 10 s at most, until all
ranks have; if they have not, all of them get CollectivesBroken. With async_op=True
they are raised by wait(), whose own limit raises TimeoutError; futures have a
RuntimeError of the same text. Floats of 16 bits are combined as those of 32; of
bools a sum is "or", a product "and". Complex numbers have SUM and AVG, as have
sparse tensors in coordinates, which all_reduce() alone takes, such as gradients of
Embedding(sparse=True). new_group() raises PeerFailed if a rank has failed, and
TimeoutError, which names the ranks that have not come, after the group's limit.

PyTorch's profiler shows collectives, as "omnes:allreduce". With
TORCH_DISTRIBUTED_DEBUG=DETAIL for all ranks, OMNES_COMPARE is "on", unless it is set.

Not done: tensors elsewhere than on the processor, mixed backends such as
"cpu:omnes,cuda:nccl", split_group(), for which there is new_group();
dist.monitored_barrier(), which older versions of PyTorch have for Gloo alone, though
the group's own method works; DistributedDataParallel's built-in hook FP16_COMPRESS,
which PyTorch has in C++ for its own backends: default_hooks.fp16_compress_hook does
the same.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed
from torch.distributed import Store, Work

from . import _ending, _queue
from ._omnes import (
    BufferLength,
    CollectivesBroken,
    Communicator,
    Error,
    ExchangeFailed,
    Mismatch,
    PeerFailed,
    PeerLeft,
    RankOutOfRange,
    Reduction,
    abandon,
    join,
    time_limit,
)
from ._rendezvous import take_environment, through
from ._tensors import (
    all_apart,
    apart,
    bytes_of,
    check_here,
    check_written,
    joint,
    lengths_of,
    spread,
    to_read,
    to_spread,
    to_write,
    together,
)
from ._work import Message, Queued, TensorWork
from .torch import _combined_as, _numbers

if TYPE_CHECKING:
    from ._omnes import Request, _Op

__all__ = ["ProcessGroup"]

# Messages that are parts of collectives; those of programs have tags below 2**31.
_TAG = 2**32 - 1

# No message has it: who looks for one hears whether its source is there.
_TAG_OF_NONE = 2**32 - 2

# The empty message of a rank that has waited in vain: others know by it that it has come.
_TAG_OF_WAITING = 2**32 - 3

# How long a rank whose limit is over waits for those messages.
_WAITING_S = 0.5

# What a rank has refused, for the others to compare, and how long it waits for theirs.
_TAG_OF_REFUSAL = 2**32 - 4
_REFUSAL_S = 10.0

# Tensors of different lengths are gathered at once, through a copy, if all have so many bytes
# together; longer ones are broadcast one by one, in place.
_TABLE_BYTES_MAX = 64 << 10

# Messages under way that a group keeps before it looks for those that have ended.
_MESSAGES_MIN = 16

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


def _called(
    *, is_limited: bool
) -> Callable[[Callable[..., Sequence[Any]]], Callable[..., Work]]:
    """A method as PyTorch calls it: the tensors that it returns, which it has written, in a work.

    If the options say that PyTorch waits at once, it is done in the caller's thread, else in the
    queue's. So it is without options, or where older versions have nothing in them that says it:
    that is PyTorch's default, by which DistributedDataParallel calls. is_limited says whether it
    ends with the limit of the options or the group, and is refused after one that was given up, or
    sees to that itself.
    """

    def decorate(method: Callable[..., Sequence[Any]]) -> Callable[..., Work]:
        title = f"omnes:{method.__name__.strip('_')}"
        # Where a rank gives another one up, those that wait in it are not told.
        ends_all = method.__name__ not in ("broadcast", "alltoall")

        def begin(self: ProcessGroup, *args: Any, **named: Any) -> Work:
            self._joined  # refuses what comes after the end, or from a child
            self._collectives += 1
            opts = named.get("opts", args[-1] if args else None)
            limit_s = self._limit_s(getattr(opts, "timeout", None))

            def within(args: Sequence[Any]) -> Sequence[Any]:
                if not is_limited:
                    return method(self, *args, **named)
                self._check_whole()
                self._parts, self._turns = 0, self._turns + 1
                try:
                    with time_limit(limit_s):
                        return method(self, *args, **named)
                except TimeoutError as error:
                    if ends_all:
                        error.args = (f"{error}; {self._absent()}",)
                    raise
                except CollectivesBroken:
                    self._tell_waiting()
                    raise
                except (TypeError, ValueError, NotImplementedError) as error:
                    # Those of the core come before anything is sent, too.
                    if not self._parts or isinstance(error, (BufferLength, RankOutOfRange)):
                        self._note_refused(title, error)
                    raise

            if getattr(opts, "asyncOp", True):
                held = [_held(each) for each in args]
                return self._queue.start(lambda: within(held))
            self._queue.wait()
            return TensorWork(within(args))

        @functools.wraps(method)
        def call(self: ProcessGroup, *args: Any, **named: Any) -> Work:
            if not torch.autograd._profiler_enabled():
                return begin(self, *args, **named)
            with torch.profiler.record_function(title) as record:
                work = begin(self, *args, **named)
                if isinstance(work, Queued):
                    record._call_end_callbacks_on_future(work.get_future())
                return work

        return call

    return decorate


_collective = _called(is_limited=True)


def _held(argument: Any) -> Any:
    """The argument with copies of its lists, which the caller may change."""
    return [_held(each) for each in argument] if isinstance(argument, list) else argument


class ProcessGroup(torch.distributed.ProcessGroup):
    """A group of ranks; made by init_process_group() and new_group().

    Its methods are those that torch.distributed calls. Ranks are those of the group.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        timeout: timedelta,
        members: Sequence[int] = (),
    ) -> None:
        super().__init__(rank, size)
        self._store, self._rank, self._size, self._timeout = store, rank, size, timeout
        self._names = {"name": "", "desc": "undefined"}
        self._messages: set[Message] = set()
        self._messages_lock = threading.Lock()
        self._messages_max = _MESSAGES_MIN
        # Which collective was, and why; the next one would take its late messages for its own.
        self._given_up: tuple[str, str] | None = None
        # Messages that have told the others of what has gone wrong here.
        self._told: list[Request] = []
        self._has_waited_in_vain = False
        # Collectives so far, and parts of the last one that this rank has taken part in.
        self._turns = self._parts = 0
        # What it has refused since it has last taken part: its turns, and the first one's name and
        # error; and such turns of others, as far as they have been heard.
        self._refused = b""
        self._refused_first = ("", "")
        self._heard = dict.fromkeys(self._others, b"")
        self._queue = _queue.Queue()
        # Collectives so far, by which PyTorch's tools compare ranks.
        self._collectives = 0
        self._process = os.getpid()
        if torch.distributed.get_debug_level() == torch.distributed.DebugLevel.DETAIL:
            os.environ.setdefault("OMNES_COMPARE", "on")
        self._ranks: Communicator | None = self._meet_all(members)
        _ending.add(self)

    # ---- what PyTorch asks about a group ----------------------------------------------------

    def getBackendName(self) -> str:
        return "omnes"

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    getRank, getSize = rank, size

    def getGroupName(self) -> str:
        return self._names["name"]

    def setGroupName(self, name: str) -> None:
        self._names["name"] = name

    def getGroupDesc(self) -> str:
        return self._names["desc"]

    def setGroupDesc(self, desc: str) -> None:
        self._names["desc"] = desc

    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)
    _set_group_name, _set_group_desc = setGroupName, setGroupDesc

    def _get_backend(self, device: torch.device) -> ProcessGroup:
        return self

    @property
    def supports_splitting(self) -> bool:
        raise NotImplementedError(
            "groups of the backend omnes cannot be split by split_group(); use new_group(), which "
            "all ranks of the job call for each of the groups, or new_subgroups_by_enumeration()"
        )

    @property
    def _device_types(self) -> list[torch.device]:
        # None while PyTorch sets the group up: it would attach what asks for a backend in C++.
        is_set_up = self in torch.distributed.distributed_c10d._world.pg_map
        return [torch.device("cpu")] if is_set_up else []

    def _set_sequence_number_for_group(self) -> None:
        self._collectives = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._collectives

    def get_group_store(self) -> Store:
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    _set_default_timeout = setTimeout = set_timeout

    def shutdown(self) -> None:
        """Ends the group when its collectives have ended, or after its limit. The last one of a
        process leaves the job, after its ranks have come to this or a limit of 5 s is over."""
        self._finish(self._timeout.total_seconds())

    def abort(self) -> None:
        """Ends the group and waits for nobody; collectives that are queued end with ValueError."""
        self._end(lambda ranks: None)

    def __repr__(self) -> str:
        return f"<omnes.distributed.ProcessGroup rank {self._rank} of {self._size}>"

    # ---- one tensor -------------------------------------------------------------------------

    @_collective
    def broadcast(self, tensors: list[torch.Tensor], opts: Any = None) -> Sequence[Any]:
        root = opts.rootRank if opts else 0
        for tensor in tensors:
            if self._rank == root:
                own = to_read(tensor)
                self._part.bcast(bytes_of(own), root)
            else:
                with to_write(tensor) as place:
                    self._part.bcast(bytes_of(place), root)
        return tensors

    @_collective
    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Sequence[Any]:
        for tensor in tensors:
            if tensor.layout == torch.sparse_coo:
                self._allreduce_sparse(tensor, opts)
                continue
            with to_write(tensor) as place:
                self._reduce(place, place, opts, lambda *args: self._part.allreduce(*args))
        return tensors

    allreduce_coalesced = allreduce

    @_collective
    def reduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Sequence[Any]:
        root = opts.rootRank if opts else 0
        for tensor in tensors:
            self._reduce_to(tensor, tensor, root, opts)
        return tensors

    @_called(is_limited=False)
    def barrier(self, opts: Any = None) -> Sequence[Any]:
        given = opts if isinstance(opts, timedelta) else getattr(opts, "timeout", None)
        self._barrier(given)
        return []

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        self._joined  # refuses what the queue would keep for ever
        self._queue.wait()
        self._barrier(timeout)

    # ---- a tensor of each rank --------------------------------------------------------------

    @_collective
    def allgather(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None
    ) -> Sequence[Any]:
        for parts, tensor in zip(outputs, inputs, strict=True):
            self._allgather(parts, tensor)
        return outputs

    @_collective
    def _allgather_base(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Sequence[Any]:
        self._allgather_into(output, tensor)
        return [output]

    all_gather_single = _allgather_base

    @_collective
    def allgather_into_tensor_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None
    ) -> Sequence[Any]:
        for output, tensor in zip(outputs, inputs, strict=True):
            self._allgather_into(output, tensor)
        return outputs

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    @_collective
    def allgather_coalesced(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None
    ) -> Sequence[Any]:
        for index, tensor in enumerate(inputs):
            self._allgather([of_rank[index] for of_rank in outputs], tensor)
        return outputs

    @_collective
    def gather(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None
    ) -> Sequence[Any]:
        root = opts.rootRank if opts else 0
        for index, tensor in enumerate(inputs):
            own = to_read(tensor)
            if self._rank != root:
                self._part.gather(bytes_of(own), None, root)
                continue
            self._check_alike(outputs[index], tensor)
            with to_spread(own, outputs[index]) as table:
                self._part.gather(bytes_of(apart(own, table)), bytes_of(table), root)
        return outputs

    @_collective
    def scatter(
        self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any = None
    ) -> Sequence[Any]:
        root = opts.rootRank if opts else 0
        for index, output in enumerate(outputs):
            table = None
            if self._rank == root:
                self._check_alike(inputs[index], output)
                table = bytes_of(apart(together(inputs[index]), output))
            with to_write(output) as place:
                self._part.scatter(table, bytes_of(place), root)
        return outputs

    @_collective
    def reduce_scatter(
        self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any = None
    ) -> Sequence[Any]:
        for output, parts in zip(outputs, inputs, strict=True):
            if len({part.numel() for part in parts}) == 1:
                self._check_alike(parts, output)
                self._reduce_scatter(output, joint(parts), opts)
            else:
                self._check_pair(parts[self._rank], output)
                for root, part in enumerate(parts):
                    self._reduce_to(part, output, root, opts)
        return outputs

    @_collective
    def _reduce_scatter_base(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Sequence[Any]:
        self._reduce_scatter_from(output, tensor, opts)
        return [output]

    reduce_scatter_single = _reduce_scatter_base

    @_collective
    def reduce_scatter_tensor_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None
    ) -> Sequence[Any]:
        for output, tensor in zip(outputs, inputs, strict=True):
            self._reduce_scatter_from(output, tensor, opts)
        return outputs

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    # ---- a tensor of each rank for each -----------------------------------------------------

    @_collective
    def alltoall_base(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_splits: Sequence[int] | None = None,
        input_splits: Sequence[int] | None = None,
        opts: Any = None,
    ) -> Sequence[Any]:
        """Splits are counts along the first dimension; all ranks give them, or none does."""
        own = to_read(tensor)
        with to_write(output) as place:
            if output_splits or input_splits:
                outputs = self._split(place, output_splits, "output")
                inputs = self._split(own, input_splits, "input")
                self._check_pair(inputs[self._rank], outputs[self._rank])
                data, lengths = bytes_of(apart(own, place)), lengths_of(inputs)
                self._part.alltoallv(data, lengths, bytes_of(place), lengths_of(outputs))
            else:
                self._check_pair(tensor, output)
                self._check_divides(own)
                self._part.alltoall(bytes_of(apart(own, place)), bytes_of(place))
        return [output]

    all_to_all_single = alltoall_base

    @_collective
    def alltoall(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None
    ) -> Sequence[Any]:
        self._exchange(outputs, inputs)
        return outputs

    # ---- messages ---------------------------------------------------------------------------

    def send(self, tensors: list[torch.Tensor], to: int, tag: int = 0) -> Work:
        return self._kept([Message.sent(self._joined, tensor, to, tag) for tensor in tensors])

    def recv(self, tensors: list[torch.Tensor], source: int | None, tag: int = 0) -> Work:
        messages = [Message.received(self._joined, each, source, tag) for each in tensors]
        return self._kept(messages)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int = 0) -> Work:
        return self.recv(tensors, None, tag)

    recvAnysource = recv_anysource

    # ---- how ----------------------------------------------------------------------------------

    @property
    def _joined(self) -> Communicator:
        if self._ranks is None:
            raise ValueError("the process group has been destroyed")
        if not self._is_here():
            raise ValueError(
                "the process group belongs to the process that made it; a child of fork() leaves "
                "it alone, and lets its parent communicate"
            )
        return self._ranks

    def _is_here(self) -> bool:
        """Whether this process has made the group; the child of a fork() has not."""
        return os.getpid() == self._process

    def _meet_all(self, members: Sequence[int]) -> Communicator:
        """The ranks of a new group; members are their ranks in the whole job, if there is one."""
        own = (self._store, self._rank, self._size, self._timeout.total_seconds())
        try:
            return join(self._rank, self._size, through(*own, lambda: _check_alive(members)))
        except ExchangeFailed as error:
            # These say more.
            if isinstance(error.__cause__, (Error, TimeoutError)):
                raise error.__cause__ from None
            raise

    def _finish(self, limit_s: float) -> None:
        """Ends the group, after its collectives if they end in time."""
        is_over = self._is_here() and self._queue.wait(limit_s)
        self._end(self._meet if is_over else lambda ranks: None)

    def _end(self, last: Callable[[Communicator], None]) -> None:
        ranks, self._ranks = self._ranks, None
        if ranks is None:
            return
        is_last = _ending.is_last(self)
        if self._is_here():
            self._queue.close()
            if is_last:
                last(ranks)
                abandon()
        self._messages.clear()

    @staticmethod
    def _meet(ranks: Communicator) -> None:
        # Whatever keeps the others away, this rank leaves.
        with contextlib.suppress(Error):
            ranks.barrier(timeout_s=_ending.MEETING_S)

    def _limit_s(self, given: timedelta | None) -> float:
        """The limit that is given, else the group's."""
        # PyTorch says "none" by a negative one.
        limit = given if given is not None and given > timedelta(0) else self._timeout
        return limit.total_seconds()

    def _barrier(self, given: timedelta | None) -> None:
        self._joined.barrier(timeout_s=self._limit_s(given))

    def _reduce(
        self,
        data: torch.Tensor,
        result: torch.Tensor,
        opts: Any,
        reduction: Callable[[Any, _Op], Any],
    ) -> None:
        """Combines data, which may be overwritten, by reduction, and leaves what its range says, or
        all, in result."""
        name = _name_of(opts)
        if data.is_complex() and name in ("SUM", "AVG"):
            parts = torch.view_as_real(data)
            data, result = parts, parts if result is data else torch.view_as_real(result)
        wide, operation = _combined_as(data.dtype, _OPERATIONS[name])
        _check_operation(name, data.dtype)
        numbers = data.to(wide)
        if numbers.numel() == 0:
            return
        block = reduction(_numbers(numbers), operation)
        if block is not None:
            numbers = numbers.view(-1)[slice(*block)].view(result.shape)
        if name == "AVG":
            numbers.div_(self._size)
        if numbers is not result:
            result.copy_(numbers)

    def _allreduce_sparse(self, tensor: torch.Tensor, opts: Any) -> None:
        """Gathers the elements of all ranks, which each rank adds in the order of the ranks."""
        check_here("the tensor", tensor)
        name = _name_of(opts)
        if name not in ("SUM", "AVG"):
            raise NotImplementedError(f"no reduction {name} of sparse tensors; there are SUM, AVG")
        if not tensor.is_complex():
            _check_operation(name, tensor.dtype)
        own = tensor.detach().coalesce()
        counts = self._counts_of_alike(own)
        indices = self._rows_of_all(own.indices().t().contiguous(), counts)
        values = self._rows_of_all(own.values().contiguous(), counts)
        total = torch.sparse_coo_tensor(indices.t(), values, own.shape).coalesce()
        with torch.no_grad():
            tensor.copy_(total / self._size if name == "AVG" else total)

    def _counts_of_alike(self, own: torch.Tensor) -> list[int]:
        """How many elements the sparse tensor has on each rank. Raises Mismatch on all ranks where
        shapes or types differ."""
        kind = f"{own.dtype} {list(own.shape)}, {own.sparse_dim()} dimensions of them sparse"
        told = torch.tensor([own._nnz(), zlib.crc32(kind.encode())])
        rows = told.new_empty((self._size, 2))
        self._part.allgather(bytes_of(told), bytes_of(rows))
        counts, kinds = rows.t().tolist()
        if len(set(kinds)) > 1:
            others = [other for other in range(self._size) if kinds[other] != kinds[self._rank]]
            raise Mismatch(
                f"the ranks have sparse tensors of different kinds; rank {self._rank} has {kind}, "
                f"others have ranks {', '.join(map(str, others))}"
            )
        return counts

    def _rows_of_all(self, own: torch.Tensor, counts: list[int]) -> torch.Tensor:
        """The rows of all ranks, which have so many of them."""
        table = own.new_empty((sum(counts), *own.shape[1:]))
        self._allgather(list(table.split(counts)), own)
        return table

    def _reduce_to(
        self, tensor: torch.Tensor, output: torch.Tensor, root: int, opts: Any
    ) -> None:
        """Combines the ranks' tensor into output at root; those of the others stay as they are."""

        def reduction(memory: Any, name: _Op) -> None:
            self._part.reduce(memory, root, name)

        room = to_read(tensor).clone()
        if self._rank != root:
            return self._reduce(room, room, opts, reduction)
        with to_write(output) as place:
            self._reduce(room, place.view(room.shape), opts, reduction)

    def _reduce_scatter(self, output: torch.Tensor, room: torch.Tensor, opts: Any) -> None:
        with to_write(output) as place:
            self._reduce(room, place, opts, lambda *args: self._part.reduce_scatter(*args))

    def _reduce_scatter_from(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any
    ) -> None:
        self._check_parts(tensor, output)
        self._reduce_scatter(output, to_read(tensor).clone(), opts)

    def _allgather_into(self, output: torch.Tensor, tensor: torch.Tensor) -> None:
        self._check_parts(output, tensor)
        with to_write(output) as place:
            own = apart(to_read(tensor), place)
            self._part.allgather(bytes_of(own), bytes_of(place))

    def _allgather(self, parts: list[torch.Tensor], tensor: torch.Tensor) -> None:
        own = to_read(tensor)
        self._check_pair(tensor, parts[self._rank])
        if len({part.numel() for part in parts}) > 1:
            return self._allgather_unequal(parts, own)
        self._check_alike(parts, tensor)
        with to_spread(own, parts) as table:
            self._part.allgather(bytes_of(apart(own, table)), bytes_of(table))

    def _allgather_unequal(self, parts: list[torch.Tensor], own: torch.Tensor) -> None:
        self._check_count(parts)
        lengths = [part.numel() * own.itemsize for part in parts]
        if sum(lengths) <= _TABLE_BYTES_MAX:
            table = own.new_empty(sum(lengths) // own.itemsize)
            self._part.allgatherv(bytes_of(own), bytes_of(table), lengths)
            return spread(table.split([part.numel() for part in parts]), parts)
        for root, part in enumerate(parts):
            with to_write(part) as place:
                if root == self._rank:
                    place.copy_(own.view(place.shape))
                self._part.bcast(bytes_of(place), root)

    def _exchange(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> None:
        """Sends an input to each rank, and gets an output from each."""
        self._check_count(outputs)
        self._check_count(inputs)
        self._check_pair(inputs[self._rank], outputs[self._rank])
        for output in outputs:
            check_written("an output", output)
        data = all_apart([to_read(each) for each in inputs], outputs)
        ranks, others = self._part, self._others
        started: list[Message] = []
        try:
            for r in others:
                started.append(Message.received(ranks, outputs[r], r, _TAG))
            for r in others:
                started.append(Message.sent(ranks, data[r], r, _TAG))
            place = outputs[self._rank].detach()
            place.copy_(data[self._rank].view(place.shape))
            for message in started:
                message.wait()
        except BaseException as error:
            # Nothing comes in any more, whoever keeps the error and with it all of this.
            for message in started:
                message.give_up(error)
            # After these two, collectives say themselves that the rank has failed or left.
            if started and not isinstance(error, (PeerFailed, PeerLeft)):
                self._given_up = ("alltoall", f"it has not ended: {_text(error)}")
            raise

    def _tell(self, message: bytes, tag: int) -> None:
        """Sends all others the message, who may not be there any more."""
        for other in self._others:
            # Who has failed or left needs no word.
            with contextlib.suppress(Error):
                self._told.append(self._joined.isend(message, other, tag=tag))

    def _tell_waiting(self) -> None:
        """Tells the others, once, that this rank has come to a collective that has ended badly."""
        if self._ranks is not None and not self._has_waited_in_vain:
            self._has_waited_in_vain = True
            self._tell(b"?", _TAG_OF_WAITING)

    def _absent(self) -> str:
        """Which ranks this one has waited for in vain, as far as the others tell: those that wait
        are told by the end of the collective here, and say so."""
        self._tell_waiting()
        heard = dict.fromkeys(self._others, b"")
        with contextlib.suppress(Error):
            self._hear(heard, 1, _TAG_OF_WAITING, _WAITING_S)
        missing = [str(other) for other in self._others if not heard[other]]
        if not missing:
            return "all ranks have come to it, or to a later one"
        return f"ranks that have not come to it, or have done their part: {', '.join(missing)}"

    def _hear(self, heard: dict[int, bytes], count: int, tag: int, limit_s: float) -> None:
        """Receives messages of the others until there are so many bytes of each, or in vain."""
        ranks, end = self._joined, time.monotonic() + limit_s
        while any(len(each) < count for each in heard.values()) and time.monotonic() < end:
            found = ranks.iprobe(tag=tag)
            if found is None:
                time.sleep(0.002)
                continue
            source, _, length = found
            message = bytearray(length)
            ranks.recv(message, source, tag=tag)
            heard[source] += message

    @property
    def _others(self) -> list[int]:
        return [other for other in range(self._size) if other != self._rank]

    @property
    def _part(self) -> Communicator:
        """What this rank takes part in a collective by. Where it has refused some before, as for a
        tensor of a wrong size, it makes sure that all others have: this one would meet theirs."""
        if self._refused:
            self._agree()
        self._parts += 1
        return self._joined

    def _note_refused(self, title: str, error: Exception) -> None:
        """Remembers that this rank has no part in its turn, and tells the others."""
        if not self._refused:
            self._refused_first = (title.partition(":")[2], _text(error))
        turn = self._turns.to_bytes(8, "big")
        self._refused += turn
        if self._ranks is not None:
            self._tell(turn, _TAG_OF_REFUSAL)

    def _agree(self) -> None:
        """Ends the collectives of the group unless all ranks have refused the same ones."""
        own, self._refused = self._refused, b""
        limit_s = min(_REFUSAL_S, self._timeout.total_seconds())
        self._hear(self._heard, len(own), _TAG_OF_REFUSAL, limit_s)
        others = [str(other) for other in self._others if not self._heard[other].startswith(own)]
        if others:
            name, text = self._refused_first
            reason = f"it has refused its part, others have not: {', '.join(others)}; {text}"
            self._given_up = (name, reason)
            # The root of that sends nothing. As it is dropped at once, all others are told.
            self._joined.igather(b"?", bytearray(self._size), self._rank)
            self._check_whole()
        self._heard = {other: heard[len(own) :] for other, heard in self._heard.items()}
        self._told.clear()

    def _check_whole(self) -> None:
        """Refuses collectives after one that was given up here, as Communicator does by itself
        after others."""
        if self._given_up is None:
            return
        name, reason = self._given_up
        error = CollectivesBroken(
            f"rank {self._rank} has given up {name} of this group ({reason}), which has no "
            "collective operations any more: make another one"
        )
        error.rank, error.collective = self._rank, name
        raise error

    def _kept(self, messages: list[Message]) -> Work:
        """The message, which goes on also where its work is dropped."""
        if len(messages) != 1:
            raise ValueError(f"a message has one tensor, not {len(messages)}")
        message = messages[0]
        message.limit_s, message.kept = self._limit_s(None), self._messages
        with self._messages_lock:
            # Those that nobody waits for end where somebody looks.
            if len(self._messages) >= self._messages_max:
                for each in list(self._messages):
                    each.is_completed()
                self._messages_max = max(_MESSAGES_MIN, 2 * len(self._messages))
            self._messages.add(message)
        return message

    def _split(
        self, tensor: torch.Tensor, splits: Sequence[int] | None, name: str
    ) -> Sequence[torch.Tensor]:
        if not splits:
            self._check_divides(tensor)
            splits = [tensor.shape[0] // self._size] * self._size
        if len(splits) != self._size or sum(splits) != tensor.shape[0]:
            raise ValueError(
                f"{name} splits {list(splits)} do not part {tensor.shape[0]} rows among "
                f"{self._size} ranks"
            )
        return tensor.split(list(splits))

    def _check_divides(self, tensor: torch.Tensor) -> None:
        if tensor.dim() == 0 or tensor.shape[0] % self._size:
            shape = list(tensor.shape)
            raise ValueError(f"{shape} has no equal number of rows for {self._size} ranks")

    def _check_count(self, tensors: Sequence[torch.Tensor]) -> None:
        if len(tensors) != self._size:
            raise ValueError(f"{len(tensors)} tensors for {self._size} ranks")

    def _check_alike(self, parts: list[torch.Tensor], tensor: torch.Tensor) -> None:
        self._check_count(parts)
        for part in parts:
            self._check_pair(part, tensor)

    def _check_parts(self, whole: torch.Tensor, part: torch.Tensor) -> None:
        if whole.dtype != part.dtype or whole.numel() != part.numel() * self._size:
            raise ValueError(
                f"{whole.numel()} elements of {whole.dtype} are not {self._size} times "
                f"{part.numel()} of {part.dtype}"
            )

    def _check_pair(self, one: torch.Tensor, other: torch.Tensor) -> None:
        if one.dtype != other.dtype or one.numel() != other.numel():
            raise ValueError(
                f"{one.numel()} elements of {one.dtype} do not go into {other.numel()} of "
                f"{other.dtype}"
            )


def _check_alive(members: Sequence[int]) -> None:
    """Raises PeerFailed, PeerLeft or their like if one of the ranks is known to be gone."""
    missing = set(members)
    groups = torch.distributed.distributed_c10d._world.pg_group_ranks
    for group, ranks in list(groups.items()):
        if not isinstance(group, ProcessGroup) or group._ranks is None or not group._is_here():
            continue
        for member in missing & ranks.keys():
            if ranks[member] != group._rank:
                group._ranks.iprobe(ranks[member], tag=_TAG_OF_NONE)
        missing -= ranks.keys()


def _made(options: Any, _: object) -> ProcessGroup:
    """A group as PyTorch asks for it."""
    told = (options.store, options.group_rank, options.group_size, options.timeout)
    return ProcessGroup(*told, options.global_ranks_in_group)


def _check_operation(name: str, dtype: torch.dtype) -> None:
    """Refuses a reduction that is not for elements of that type."""
    is_float = dtype.is_floating_point
    if name == "AVG" and not is_float:
        raise TypeError(f"AVG is for floats, and the tensor has elements of {dtype}")
    if name in ("BAND", "BOR", "BXOR") and is_float:
        raise Reduction(
            f"{name} is for integers and bools, and the tensor has elements of {dtype}"
        )


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _name_of(opts: Any) -> str:
    """The operation of a reduction."""
    operation = getattr(opts, "reduceOp", opts) or torch.distributed.ReduceOp.SUM
    name = str(getattr(operation, "op", operation)).rpartition(".")[2]
    if name not in _OPERATIONS:
        known = ", ".join(_OPERATIONS)
        raise NotImplementedError(f"the backend omnes has no reduction {name}; it has {known}")
    return name


torch.distributed.Backend.register_backend("omnes", _made, extended_api=True, devices=["cpu"])
take_environment()
atexit.register(_ending.leave)
