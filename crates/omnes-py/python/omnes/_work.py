"""Works of torch.distributed: collectives that have ended or are queued, messages under way."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import Work

from ._omnes import Communicator, Request, time_limit
from ._tensors import bytes_of, check_written, is_plain, to_read


class TensorWork(Work):
    """An operation that has ended, unless a subclass says otherwise, and the tensors it writes."""

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
        """Of the tensors that the operation has written; ended, so it waits first."""
        self.wait()
        future: torch.futures.Future = torch.futures.Future()
        future.set_result(self._tensors)
        return future


class Queued(TensorWork):
    """A collective whose turn comes later: call, which returns the tensors that it has written.

    changed tells whoever waits for works of the same queue.
    """

    def __init__(
        self, call: Callable[[], Sequence[Any]], changed: threading.Condition
    ) -> None:
        super().__init__([])
        self._call: Callable[[], Sequence[Any]] | None = call  # nothing once it has ended
        self._changed = changed
        self._process = os.getpid()
        self._is_inference = torch.is_inference_mode_enabled()
        # Of the end, and of what it has brought; nothing until somebody asks.
        self._end: torch.futures.Future | None = None
        self._future: torch.futures.Future | None = None

    def run(self) -> None:
        """Does it, then the callbacks of its future."""
        assert self._call is not None  # Its turn comes once.
        try:
            with torch.inference_mode(self._is_inference):
                self._tensors = list(self._call())
        except BaseException as error:  # Whatever it is, others wait for it.
            self._error = error
        with self._changed:
            self._call = None
            self._changed.notify_all()
            end = self._end
        if end is not None:
            end.set_result(None)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Raises what the collective has raised, TimeoutError after a limit above 0."""
        limit_s = timeout.total_seconds() if timeout and timeout > timedelta(0) else None
        self._check_comes()
        with self._changed:
            if not self._changed.wait_for(self.is_completed, limit_s):
                raise TimeoutError(f"the collective has not ended in {limit_s} s")
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        return self._call is None

    def get_future(self) -> torch.futures.Future:
        """Of the tensors that the collective writes; fails with a RuntimeError of its error's text.
        Callbacks run in the thread of the queue, or at once after the end."""
        self._check_comes()
        with self._changed:
            if self._future is None:
                self._end = torch.futures.Future()
                # PyTorch knows errors of callbacks alone: it would take others for the tensors.
                self._future = self._end.then(lambda _: self.result())
                if self.is_completed():
                    self._end.set_result(None)
            return self._future

    def _check_comes(self) -> None:
        """Refuses to wait where nobody does it: a forked child has no thread of the queue."""
        if os.getpid() != self._process and not self.is_completed():
            reason = "the collective belongs to the process that began it, not to its child"
            raise ValueError(reason)


class Message(TensorWork):
    """A message under way. After wait() has raised TimeoutError, it is given up."""

    limit_s: float = threading.TIMEOUT_MAX  # of wait(), unless that has another
    kept: set[Message] | None = None  # messages under way, of which it is one until it ends

    def __init__(
        self, tensor: torch.Tensor, place: torch.Tensor | None, memory: torch.Tensor
    ) -> None:
        super().__init__([tensor])
        self._place, self._memory = place, memory
        self._request: Request | None = None
        # Held where that becomes None, and by who brings what has come. Once more by its thread, if
        # the handler of a signal comes in between.
        self._ending = threading.RLock()
        self._source = -1

    @classmethod
    def sent(cls, ranks: Communicator, tensor: torch.Tensor, to: int, tag: int) -> Message:
        message = cls(tensor, None, to_read(tensor))
        message._request = ranks.isend(bytes_of(message._memory), to, tag=tag)
        return message

    @classmethod
    def received(
        cls, ranks: Communicator, tensor: torch.Tensor, source: int | None, tag: int
    ) -> Message:
        check_written("the tensor", tensor)
        place = tensor.detach()
        memory = place if is_plain(place) else torch.empty(
            place.shape, dtype=place.dtype, device="cpu"
        )
        message = cls(tensor, place, memory)
        message._request = ranks.irecv(bytes_of(memory), source, tag=tag)
        return message

    def wait(self, timeout: timedelta | None = None) -> bool:
        given = timeout and timeout > timedelta(0)
        with time_limit(timeout.total_seconds() if given else self.limit_s):
            try:
                self._finish(lambda request: request.wait())
            except BaseException as error:
                # Of a signal handler. The request would raise it again, in whatever looks for
                # messages that have ended. One that has ended stays as it is.
                self.give_up(error)
                raise
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        self._finish(lambda request: request.test())
        return self._request is None

    def give_up(self, error: BaseException) -> None:
        """Nothing comes in any more, and wait() raises the error; unless it has ended."""
        with self._ending:
            if self._request is not None:
                self._error, self._request = error, None
                self._leave()

    def source_rank(self) -> int:
        """Who has sent the message; known when it is there."""
        return self._source

    _source_rank = source_rank

    def _finish(self, end: Callable[[Request], object]) -> None:
        """Ends the request by end(), which may find that it has not ended yet."""
        request = self._request
        if request is None:
            return
        try:
            if end(request) is False:
                return
        except BaseException as error:
            # Of a signal handler it may be, and the message is there all the same.
            if request.status is not None:
                self._bring(request)
                raise
            if not isinstance(error, Exception):
                raise
            self.give_up(error)
            return
        self._bring(request)

    def _bring(self, request: Request) -> None:
        """Ends with what the request, which has ended well, has brought."""
        with self._ending:
            # Another thread has been here meanwhile: the tensor is the caller's again.
            if self._request is None:
                return
            try:
                self._take(request)
            except Exception as error:
                self._error = error
            # Last: whoever sees it, in whichever thread, finds the rest done.
            self._request = None
            self._leave()

    def _leave(self) -> None:
        """Nobody but its user has it any more, nor its tensors."""
        if self.kept is not None:
            self.kept.discard(self)

    def _take(self, request: Request) -> None:
        if self._place is None or request.status is None:
            return
        self._source, _, count = request.status
        if count != self._memory.nbytes:
            raise ValueError(
                f"rank {self._source} has sent {count} bytes for a tensor of {self._memory.nbytes}"
            )
        if self._memory is not self._place:
            self._place.copy_(self._memory)
