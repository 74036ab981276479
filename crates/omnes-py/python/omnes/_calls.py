"""How collectives of torch.distributed are begun: at once or by the queue, within their limit."""

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
    """What is the same for all calls of one method."""

    name: str
    is_limited: bool
    is_told_to_all: bool


def collective(
    *, is_limited: bool = True, is_told_to_all: bool = True
) -> Callable[[Callable[..., Sequence[Any]]], Callable[..., Work]]:
    """A method as PyTorch calls it: the tensors that it returns, which it has written, in a work.

    Its object has Calls as _calls. is_limited says whether it ends with the limit of the options or
    the group, and is refused after one that was given up, or sees to that itself; is_told_to_all,
    whether all ranks that wait in it are told when one gives it up.
    """

    def decorate(method: Callable[..., Sequence[Any]]) -> Callable[..., Work]:
        kind = _Kind(method.__name__.strip("_"), is_limited, is_told_to_all)
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
    """Collectives of one group in the order in which its program calls them."""

    def __init__(self, members: Members, turns: Turns) -> None:
        self._members, self._turns = members, turns
        self._queue = Queue()
        # So far, by which PyTorch's tools compare ranks.
        self.count = 0

    def begin(
        self,
        kind: _Kind,
        method: Callable[..., Sequence[Any]],
        args: Sequence[Any],
        named: dict[str, Any],
    ) -> Work:
        """Does the collective, or has it done: method is what does it, within its limit.

        If the options say that PyTorch waits at once, it is done in the caller's thread, else in
        the queue's. So it is without options, or where older versions have nothing in them that
        says it: that is PyTorch's default, by which DistributedDataParallel calls.
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
            except BaseException as error:  # also what a signal handler raises
                self._turns.end_badly(kind.name, error, is_told_to_all=kind.is_told_to_all)
                raise

        is_queued = getattr(opts, "asyncOp", True)
        try:
            tensors = arrived(list(args))
            if not is_queued:
                self._queue.wait()
        except BaseException as error:
            # The others take part in it all the same.
            self._queue.start(functools.partial(self._turns.refuse, kind.name, error))
            raise
        if is_queued:
            return self._queue.start(lambda: within(tensors))
        return TensorWork(within(tensors))

    def wait(self, limit_s: float | None = None) -> bool:
        """Waits until all that are queued have ended, for so long at most; whether they have. In a
        child of fork() they never do."""
        return self._queue.wait(limit_s)

    def close(self) -> None:
        """No more of them; those that are queued still have their turn."""
        self._queue.close()
