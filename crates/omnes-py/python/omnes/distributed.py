"""PyTorch: a backend of torch.distributed for tensors in the processor's memory.

::

    import omnes.distributed
    import torch

    torch.distributed.init_process_group("omnes")
    model = torch.nn.parallel.DistributedDataParallel(model)

Start the program with ``omnes run``, torchrun, or anything else that sets RANK,
WORLD_SIZE, MASTER_ADDR and MASTER_PORT; under ``omnes run`` the import sets those
that are missing. Groups made by new_group() work as the default group does. A
group belongs to the process that made it: in a forked child its calls raise
ValueError.

Order
    All ranks of a group must call its collectives in the same order; they run one
    after the other. With async_op=True, which DistributedDataParallel uses, a
    thread of the group runs them while the program continues; a blocking
    collective waits for those started before it. Callbacks of a work's future run
    in that thread. Collectives that callbacks start run after those that were
    started when get_future() was first called, and before those started since, so
    a callback must not wait for the latter. Attach callbacks that start collectives
    before starting others: once the work has ended, a callback runs immediately.
    isend() and irecv() make progress on their own.

Timeouts
    A collective that exceeds its limit, by default the group's, raises
    TimeoutError. The group cannot be used afterwards, except after a broadcast:
    further collectives raise CollectivesBroken. The error names the ranks that have not called the
    collective, as the other ranks report within half a second; the error of a
    broadcast names its root. barrier() names them, too, and leaves the group
    usable. new_group() raises TimeoutError, naming the missing ranks, after the
    group's limit. No call hangs on a rank that has failed or left: it raises an
    error instead, new_group() PeerFailed.

Errors
    Exceptions are those of omnes, with TypeError and ValueError for unsuitable
    tensors and NotImplementedError for an unsupported reduction. A rank whose call
    is rejected in this way, or by an error that PyTorch raises inside it, waits up
    to 10 s, in its next collective or barrier(), for all ranks to have rejected
    the same call. If they have not, every rank gets CollectivesBroken, as it does
    when a call ends in the middle of a collective. Errors that PyTorch raises
    before it calls the group are invisible here: the rank's next collective then
    meets the other ranks' current one. With async_op=True, wait() raises the
    errors, and TimeoutError when its own limit has passed; futures hold a
    RuntimeError with the same text.

Types
    16-bit floats are combined in 32 bits. For bools, a sum is "or" and a product
    "and". Complex numbers support SUM and AVG, as do sparse COO tensors, such as
    the gradients of Embedding(sparse=True), which only all_reduce() accepts.

Debugging
    PyTorch's profiler shows collectives, for example as "omnes:allreduce". With
    TORCH_DISTRIBUTED_DEBUG=DETAIL on all ranks, OMNES_COMPARE defaults to "on".

Not supported
    Tensors on other devices, and mixed backends such as "cpu:omnes,cuda:nccl".
    FP16_COMPRESS, the built-in hook of DistributedDataParallel, which PyTorch
    implements in C++ for its own backends: use default_hooks.fp16_compress_hook.
    Before PyTorch 2.15 split_group() and dist.monitored_barrier(), which older
    versions restrict to their own backends: use new_group() and the group's own
    monitored_barrier().
"""

# A collective arrives as a method call on ProcessGroup. _calls.py starts it, immediately or in the
# thread of _queue.py, and creates the work that PyTorch waits for (_work.py). _transfers.py and
# _reductions.py validate the arguments (_checks.py), find the memory of the tensors (_tensors.py)
# and call the communicator that _turns.py hands out. _turns.py also knows which calls have failed,
# on this rank and on others, and reports them. Point-to-point messages are in _messages.py; ranks
# meet in _members.py and leave in _ending.py.

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed
from torch.distributed import PrefixStore, Store, Work

from . import _ending, _reductions, _transfers
from ._calls import Calls, collective
from ._members import Members
from ._messages import Message, UnderWay
from ._omnes import Error, abandon, leave, time_limit
from ._rendezvous import take_environment
from ._tensors import arrived
from ._turns import Turns

__all__ = ["ProcessGroup"]

# Tag of no message: a probe for it reports whether its source is still there. Tags of programs are
# below 2**31.
_TAG_OF_NONE = 2**32 - 2


class ProcessGroup(torch.distributed.ProcessGroup):
    """A group of ranks, created by init_process_group() and new_group().

    torch.distributed calls its methods. Ranks are those of the group.
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
        self._store, self._rank, self._size = store, rank, size
        self._names = {"name": "", "desc": "undefined"}
        self._is_split, self._splits = False, 0
        if torch.distributed.get_debug_level() == torch.distributed.DebugLevel.DETAIL:
            os.environ.setdefault("OMNES_COMPARE", "on")
        self._members = Members(store, rank, size, timeout, lambda: _check_alive(members))
        self._turns = Turns(self._members)
        self._calls = Calls(self._members, self._turns)
        self._messages = UnderWay()
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
        return True

    def eager_connect_single_device(self, device: torch.device) -> None:
        """Does nothing: the ranks have already met."""

    def split_group(
        self,
        new_ranks: list[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: list[torch.device] | None = None,
    ) -> ProcessGroup | None:
        """Returns the group of some of this one's ranks, in their order, and None on all others."""
        self._splits += 1
        if self._rank not in new_ranks:
            return None
        own = torch.distributed.get_process_group_ranks(self)
        # The name differs if ranks have called this for a group that does not contain the others.
        place = f"split/{self._splits}/{'_'.join(map(str, new_ranks))}"
        group = ProcessGroup(
            PrefixStore(place, self._store),
            new_ranks.index(self._rank),
            len(new_ranks),
            timeout or self._members.timeout,
            [own[rank] for rank in new_ranks],
        )
        group._is_split = True
        group.setGroupName(group_name or "")
        group.setGroupDesc(group_desc or "undefined")
        return group

    def comm_split_count(self) -> int:
        """Number of splits so far, which PyTorch uses in the descriptions of the new groups."""
        return self._splits

    @property
    def _device_types(self) -> list[torch.device]:
        # Empty while PyTorch sets up a group that is not of split_group(): PyTorch would attach
        # code that requires a backend in C++.
        world = torch.distributed.distributed_c10d._world
        is_set_up = self._is_split or self in world.pg_map
        return [torch.device("cpu")] if is_set_up else []

    def _set_sequence_number_for_group(self) -> None:
        self._calls.count = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._calls.count

    def get_group_store(self) -> Store:
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        self._members.timeout = timeout

    _set_default_timeout = setTimeout = set_timeout

    def shutdown(self) -> None:
        """Ends the group when its collectives have ended, or after its limit. The last group of a
        process leaves the job, when all of its ranks have called this, or after 5 s.
        """
        self._finish(self._members.timeout.total_seconds())

    def abort(self) -> None:
        """Ends the group without waiting; queued collectives end with ValueError."""
        self._end(lambda: None)

    def __repr__(self) -> str:
        return f"<omnes.distributed.ProcessGroup rank {self._rank} of {self._size}>"

    # ---- one tensor -------------------------------------------------------------------------

    @collective(notifies_all=False)
    def broadcast(self, tensors: list[torch.Tensor], opts: Any = None) -> Sequence[Any]:
        root = opts.rootRank if opts else 0
        for tensor in self._turns.each(tensors):
            _transfers.broadcast(self._turns, tensor, root)
        return tensors

    @collective()
    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Sequence[Any]:
        for tensor in self._turns.each(tensors):
            _reductions.all_reduce(self._turns, tensor, opts)
        return tensors

    allreduce_coalesced = allreduce

    @collective()
    def reduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Sequence[Any]:
        root = opts.rootRank if opts else 0
        for tensor in self._turns.each(tensors):
            _reductions.reduce(self._turns, tensor, tensor, root, opts)
        return tensors

    @collective(is_limited=False)
    def barrier(self, opts: Any = None) -> Sequence[Any]:
        given = opts if isinstance(opts, timedelta) else getattr(opts, "timeout", None)
        self._barrier(given)
        return []

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        self._members.check_joined()  # otherwise the queue would block forever
        self._calls.wait()
        self._barrier(timeout)

    # ---- a tensor of each rank --------------------------------------------------------------

    @collective()
    def allgather(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None
    ) -> Sequence[Any]:
        for parts, tensor in self._turns.each(zip(outputs, inputs, strict=True)):
            _transfers.all_gather(self._turns, parts, tensor)
        return outputs

    @collective()
    def _allgather_base(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Sequence[Any]:
        _transfers.all_gather_into(self._turns, output, tensor)
        return [output]

    all_gather_single = _allgather_base

    @collective()
    def allgather_into_tensor_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None
    ) -> Sequence[Any]:
        for output, tensor in self._turns.each(zip(outputs, inputs, strict=True)):
            _transfers.all_gather_into(self._turns, output, tensor)
        return outputs

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    @collective()
    def allgather_coalesced(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None
    ) -> Sequence[Any]:
        for index, tensor in self._turns.each(enumerate(inputs)):
            parts = [of_rank[index] for of_rank in outputs]
            _transfers.all_gather(self._turns, parts, tensor)
        return outputs

    @collective()
    def gather(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None
    ) -> Sequence[Any]:
        root = opts.rootRank if opts else 0
        for index, tensor in self._turns.each(enumerate(inputs)):
            parts = outputs[index] if self._rank == root else None
            _transfers.gather(self._turns, parts, tensor, root)
        return outputs

    @collective()
    def scatter(
        self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any = None
    ) -> Sequence[Any]:
        root = opts.rootRank if opts else 0
        for index, output in self._turns.each(enumerate(outputs)):
            parts = inputs[index] if self._rank == root else None
            _transfers.scatter(self._turns, output, parts, root)
        return outputs

    @collective()
    def reduce_scatter(
        self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any = None
    ) -> Sequence[Any]:
        for output, parts in self._turns.each(zip(outputs, inputs, strict=True)):
            _reductions.reduce_scatter(self._turns, output, parts, opts)
        return outputs

    @collective()
    def _reduce_scatter_base(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> Sequence[Any]:
        _reductions.reduce_scatter_from(self._turns, output, tensor, opts)
        return [output]

    reduce_scatter_single = _reduce_scatter_base

    @collective()
    def reduce_scatter_tensor_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None
    ) -> Sequence[Any]:
        for output, tensor in self._turns.each(zip(outputs, inputs, strict=True)):
            _reductions.reduce_scatter_from(self._turns, output, tensor, opts)
        return outputs

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    # ---- a tensor of each rank for each -----------------------------------------------------

    @collective()
    def alltoall_base(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_splits: Sequence[int] | None = None,
        input_splits: Sequence[int] | None = None,
        opts: Any = None,
    ) -> Sequence[Any]:
        """Splits are counts along the first dimension; all ranks pass them, or none does."""
        _transfers.all_to_all_single(self._turns, output, tensor, output_splits, input_splits)
        return [output]

    all_to_all_single = alltoall_base

    @collective(notifies_all=False)
    def alltoall(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None
    ) -> Sequence[Any]:
        _transfers.all_to_all(self._turns, outputs, inputs)
        return outputs

    # ---- messages ---------------------------------------------------------------------------

    def send(self, tensors: list[torch.Tensor], to: int, tag: int = 0) -> Work:
        ranks = self._members.joined
        return self._kept([Message.sent(ranks, tensor, to, tag) for tensor in arrived(tensors)])

    def recv(self, tensors: list[torch.Tensor], source: int | None, tag: int = 0) -> Work:
        ranks = self._members.joined
        return self._kept([Message.received(ranks, each, source, tag) for each in arrived(tensors)])

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int = 0) -> Work:
        return self.recv(tensors, None, tag)

    recvAnysource = recv_anysource

    # ---- how it waits and ends --------------------------------------------------------------

    def _barrier(self, given: timedelta | None) -> None:
        self._turns.barrier(self._members.limit_s(given))

    def _kept(self, messages: list[Message]) -> Work:
        return self._messages.keep(messages, self._members.limit_s(None))

    def _is_here(self) -> bool:
        """True in the process that created the group, and False in a child of fork()."""
        return self._members.is_here()

    def _finish(self, limit_s: float) -> None:
        """Ends the group, after its collectives if they end in time."""
        is_over = self._is_here() and self._calls.wait(limit_s)
        self._end(self._meet if is_over else lambda: None)

    def _end(self, last: Callable[[], None]) -> None:
        if not self._members.end():
            return
        is_last = _ending.is_last(self)
        if self._is_here():
            self._calls.close()
            if is_last:
                last()
                abandon()
        self._messages.clear()

    @staticmethod
    def _meet() -> None:
        # The ranks meet by leaving the job, which cannot match a collective of ranks that are late.
        # Whatever keeps the others away, this rank leaves.
        with contextlib.suppress(Error, TimeoutError), time_limit(_ending.MEETING_S):
            leave()


def _check_alive(members: Sequence[int]) -> None:
    """Raises PeerFailed, PeerLeft or a similar error if one of the ranks is known to be gone."""
    missing = set(members)
    groups = torch.distributed.distributed_c10d._world.pg_group_ranks
    for group, ranks in list(groups.items()):
        if not isinstance(group, ProcessGroup):
            continue
        if not group._members.is_open() or not group._is_here():
            continue
        for member in missing & ranks.keys():
            if ranks[member] != group._rank:
                group._members.joined.iprobe(ranks[member], tag=_TAG_OF_NONE)
        missing -= ranks.keys()


def _made(options: Any, _: object) -> ProcessGroup:
    """Creates a group for PyTorch."""
    told = (options.store, options.group_rank, options.group_size, options.timeout)
    return ProcessGroup(*told, options.global_ranks_in_group)


torch.distributed.Backend.register_backend("omnes", _made, extended_api=True, devices=["cpu"])
# split_group() attaches the flight recorder unless the backend has its own, and asks the group for
# its C++ part to do so, which groups in Python do not have.
_recording = getattr(torch.distributed.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", None)
if isinstance(_recording, set):
    _recording.add("omnes")
take_environment()
atexit.register(_ending.leave)
