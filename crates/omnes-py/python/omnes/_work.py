"""Works of torch.distributed: operations that have ended, and queued collectives."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import Work


class TensorWork(Work):
    """An operation that has ended, unless a subclass differs, and the tensors that it writes."""

    _error: BaseException | None = None

    def __init__(self, tensors: Sequence[Any]) -> None:
        super().__init__()
        self._tensors = list(tensors)

    def wait(self, timeout: timedelta | None = None) -> bool:
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> list[Any]:
        self.wait()
        return self._tensors

    def get_future(self) -> torch.futures.Future:
        """A future of the tensors that the operation has written. Waits first, so it has ended."""
        self.wait()
        future: torch.futures.Future = torch.futures.Future()
        future.set_result(self._tensors)
        return future


class Queued(TensorWork):
    """A queued collective: call runs it, and returns the tensors that it has written.

    changed notifies threads that wait for works of the same queue, and last is the newest of those
    that have not ended.
    """

    def __init__(
        self,
        call: Callable[[], Sequence[Any]],
        changed: threading.Condition,
        last: Callable[[], Queued | None],
    ) -> None:
        super().__init__([])
        self._call: Callable[[], Sequence[Any]] | None = call  # None once it has ended
        self._changed = changed
        self._last = last
        self._process = os.getpid()
        self._is_inference = torch.is_inference_mode_enabled()
        # Future of the result, once it has been requested.
        self._future: torch.futures.Future | None = None
        # Futures to set when this work has ended and before the next one begins.
        self._ends: list[torch.futures.Future] = []

    def run(self) -> None:
        """Runs the collective, then the callbacks of its future."""
        assert self._call is not None  # It runs only once.
        try:
            with torch.inference_mode(self._is_inference):
                self._tensors = list(self._call())
        except BaseException as error:  # Of any kind: other threads wait for it.
            self._error = error
        with self._changed:
            self._call = None
            self._changed.notify_all()
        for end in self._ends:
            end.set_result(None)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits for the collective. Raises its error, and TimeoutError after a limit above 0."""
        limit_s = timeout.total_seconds() if timeout and timeout > timedelta(0) else None
        self._check_comes()
        with self._changed:
            if not self._changed.wait_for(self.is_completed, waitable(limit_s)):
                raise TimeoutError(f"the collective has not ended in {limit_s} s")
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        return self._call is None

    def get_future(self) -> torch.futures.Future:
        """A future of the tensors that the collective writes. It fails with a RuntimeError with the
        error's text.

        Callbacks run in the thread of the queue, or in the caller's once the collective has ended.
        In both cases, collectives that they start come after all that were queued when the future
        was first asked for, and so at the same place on all ranks if callbacks are attached before
        others are queued. The future ends after those works, too."""
        self._check_comes()
        with self._changed:
            if self._future is None:
                end: torch.futures.Future = torch.futures.Future()
                # PyTorch only handles errors of callbacks: it would take others for the tensors.
                self._future = end.then(lambda _: self.result())
                if self.is_completed():
                    end.set_result(None)
                else:
                    (self._last() or self)._ends.append(end)
            return self._future

    def _check_comes(self) -> None:
        """Rejects waiting if nothing runs the collective: a forked child has no queue thread."""
        if os.getpid() != self._process and not self.is_completed():
            reason = "the collective belongs to the process that began it, not to its child"
            raise ValueError(reason)


def waitable(limit_s: float | None) -> float | None:
    """The limit, or the longest time for which a thread can wait."""
    return None if limit_s is None else min(limit_s, threading.TIMEOUT_MAX)
