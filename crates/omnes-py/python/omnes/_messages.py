"""Messages of torch.distributed, which go on by themselves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import torch

from ._omnes import Communicator, Request, time_limit
from ._tensors import bytes_of, check_written, is_plain, to_read
from ._work import TensorWork

# Messages under way that a group keeps before it looks for those that have ended.
_KEPT_MIN = 16


class UnderWay:
    """Messages of a group, which go on also where their works are dropped."""

    def __init__(self) -> None:
        self._messages: set[Message] = set()
        # Signal handlers that send run in between.
        self._lock = threading.RLock()
        self._count_max = _KEPT_MIN

    def keep(self, messages: list[Message], limit_s: float) -> Message:
        """The message, the only one, whose wait() has such a limit unless it gets another."""
        if len(messages) != 1:
            raise ValueError(f"a message has one tensor, not {len(messages)}")
        message = messages[0]
        message.limit_s, message.kept = limit_s, self._messages
        with self._lock:
            # Those that nobody waits for end where somebody looks.
            if len(self._messages) >= self._count_max:
                for each in list(self._messages):
                    each.is_completed()
                self._count_max = max(_KEPT_MIN, 2 * len(self._messages))
            self._messages.add(message)
        return message

    def clear(self) -> None:
        self._messages.clear()


class Message(TensorWork):
    """A message under way. After wait() has raised TimeoutError, it is given up."""

    limit_s: float = threading.TIMEOUT_MAX  # of wait(), unless that has another
    kept: set[Message] | None = None  # messages under way, of which it is one until it ends
    _is_exact = False

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
        cls,
        ranks: Communicator,
        tensor: torch.Tensor,
        source: int | None,
        tag: int,
        *,
        is_exact: bool = False,
    ) -> Message:
        """A shorter message fills the first elements of the tensor, unless it is to be exact: then
        wait() raises ValueError."""
        check_written("the tensor", tensor)
        place = tensor.detach()
        memory = place if is_plain(place) else torch.empty(
            place.shape, dtype=place.dtype, device="cpu"
        )
        message = cls(tensor, place, memory)
        message._is_exact = is_exact
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
        if self._is_exact and count != self._memory.nbytes:
            raise ValueError(
                f"rank {self._source} has sent {count} bytes for a tensor of {self._memory.nbytes}"
            )
        if self._memory is not self._place:
            if count < self._memory.nbytes:
                # What has not come is as it was.
                _as_bytes(self._memory)[count:] = _as_bytes(to_read(self._place))[count:]
            self._place.copy_(self._memory)


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(-1).view(torch.uint8)
