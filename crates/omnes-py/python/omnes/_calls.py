"""Runs collectives of torch.distributed, immediately or in the queue, within their limits."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed import Work

from ._members import Members
from ._omnes import time_limit
from ._queue import Queue
from ._tensors import arrived
from ._turns import Turns
from ._work import Queued, TensorWork


@dataclasses.dataclass(frozen=True)
class _Kind:
    """Properties that all calls of one method share."""

    name: str
    is_limited: bool
    notifies_all: bool


def collective(
    *, is_limited: bool = True, notifies_all: bool = True
) -> Callable[[Callable[..., Sequence[Any]]], Callable[..., Work]]:
    """Wraps a method that returns the tensors it has written, so that PyTorch gets them in a Work.

    The method's object has Calls as _calls. is_limited says whether the call ends at the limit of
    its options or of the group, and is rejected after a call that was given up; otherwise the
    method itself ensures both. notifies_all says whether all ranks that wait in the collective
    are notified when one gives it up.
    """

    def decorate(method: Callable[..., Sequence[Any]]) -> Callable[..., Work]:
        kind = _Kind(method.__name__.strip("_"), is_limited, notifies_all)
        title = f"omnes:{kind.name}"

        @functools.wraps(method)
        def call(self: Any, *args: Any, **named: Any) -> Work:
            if not torch.autograd._profiler_enabled():
                return self._calls.begin(kind, functools.partial(method, self), args, named)
            with torch.profiler.record_function(title) as record:
                work = self._calls.begin(kind, functools.partial(method, self), args, named)
                if isinstance(work, Queued):
                    record._call_end_callbacks_on_future(work.get_future())
                return work

        return call

    return decorate


class Calls:
    """The collectives of one group, in the order in which its program calls them."""

    def __init__(self, members: Members, turns: Turns) -> None:
        self._members, self._turns = members, turns
        self._queue = Queue()
        # Number of calls so far, which PyTorch's tools compare between ranks.
        self.count = 0

    def begin(
        self,
        kind: _Kind,
        method: Callable[..., Sequence[Any]],
        args: Sequence[Any],
        named: dict[str, Any],
    ) -> Work:
        """Runs the collective, or queues it: method does the work, within the time limit.

        If the options say that PyTorch waits immediately, it runs in the caller's thread, otherwise
        in the queue's. The queue is also used without options, and if those of older versions have
        no such field: that is PyTorch's default, with which DistributedDataParallel calls.
        """
        self._members.check_joined()
        self.count += 1
        opts = named.get("opts", args[-1] if args else None)
        limit_s = self._members.limit_s(getattr(opts, "timeout", None))

        def within(args: Sequence[Any]) -> Sequence[Any]:
            if not kind.is_limited:
                return method(*args, **named)
            self._turns.begin()
            try:
                with time_limit(limit_s):
                    return method(*args, **named)
            except BaseException as error:  # including exceptions of signal handlers
                self._turns.on_error(kind.name, error, notifies_all=kind.notifies_all)
                raise

        is_queued = getattr(opts, "asyncOp", True)
        try:
            tensors = arrived(list(args))
            if not is_queued:
                self._queue.wait()
        except BaseException as error:
            # The other ranks take part in the collective nevertheless.
            self._queue.start(functools.partial(self._turns.refuse, kind.name, error))
            raise
        if is_queued:
            return self._queue.start(lambda: within(tensors))
        return TensorWork(within(tensors))

    def wait(self, limit_s: float | None = None) -> bool:
        """Waits until all queued collectives have ended, for at most limit_s seconds. True if they
        have. In a child of fork() they never end.
        """
        return self._queue.wait(limit_s)

    def close(self) -> None:
        """Accepts no more collectives; those that are queued still run."""
        self._queue.close()
