"""Messages of torch.distributed, which make progress by themselves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import torch

from ._omnes import Communicator, Request, time_limit
from ._tensors import bytes_of, check_written, is_plain, to_read
from ._work import TensorWork

# Number of outstanding messages from which a group looks for messages that have ended.
_KEPT_MIN = 16


class UnderWay:
    """Outstanding messages of a group, which continue even if their works are dropped."""

    def __init__(self) -> None:
        self._messages: set[Message] = set()
        # Reentrant, because a signal handler may send.
        self._lock = threading.RLock()
        self._count_max = _KEPT_MIN

    def keep(self, messages: list[Message], limit_s: float) -> Message:
        """Returns the only one of the messages, with limit_s as the default limit of its wait()."""
        if len(messages) != 1:
            raise ValueError(f"a message has one tensor, not {len(messages)}")
        message = messages[0]
        message.limit_s, message.kept = limit_s, self._messages
        with self._lock:
            # Messages that nobody waits for end only when they are tested.
            if len(self._messages) >= self._count_max:
                for each in list(self._messages):
                    each.is_completed()
                self._count_max = max(_KEPT_MIN, 2 * len(self._messages))
            self._messages.add(message)
        return message

    def clear(self) -> None:
        self._messages.clear()


class Message(TensorWork):
    """An outstanding message. It is given up when wait() raises TimeoutError."""

    limit_s: float = threading.TIMEOUT_MAX  # of wait(), unless the caller passes another
    kept: set[Message] | None = None  # outstanding messages, which include this one until it ends
    _is_exact = False

    def __init__(
        self, tensor: torch.Tensor, place: torch.Tensor | None, memory: torch.Tensor
    ) -> None:
        super().__init__([tensor])
        self._place, self._memory = place, memory
        self._request: Request | None = None
        # Held while the request is reset to None, and while received data are stored. Reentrant,
        # because a signal handler may interrupt its owner.
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
        """A shorter message fills only the first elements, unless is_exact: then wait() raises
        ValueError.
        """
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
                # Perhaps of a signal handler. The request would raise it again, in the code that
                # looks for messages that have ended. A request that has ended stays as it is.
                self.give_up(error)
                raise
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        self._finish(lambda request: request.test())
        return self._request is None

    def give_up(self, error: BaseException) -> None:
        """Unless the message has ended, no more data arrive, and wait() raises the error."""
        with self._ending:
            if self._request is not None:
                self._error, self._request = error, None
                self._leave()

    def source_rank(self) -> int:
        """The rank that sent the message; valid once the message has arrived."""
        return self._source

    _source_rank = source_rank

    def _finish(self, end: Callable[[Request], object]) -> None:
        """Ends the request by end(), which may report that it has not ended yet."""
        request = self._request
        if request is None:
            return
        try:
            if end(request) is False:
                return
        except BaseException as error:
            # The exception may come from a signal handler although the message has arrived.
            if request.status is not None:
                self._bring(request)
                raise
            if not isinstance(error, Exception):
                raise
            self.give_up(error)
            return
        self._bring(request)

    def _bring(self, request: Request) -> None:
        """Stores the data of the request, which has succeeded, and ends the message."""
        with self._ending:
            # Another thread may have been here meanwhile: then the tensor belongs to the caller
            # again.
            if self._request is None:
                return
            try:
                self._take(request)
            except Exception as error:
                self._error = error
            # Last, so that any thread that sees it finds everything else done.
            self._request = None
            self._leave()

    def _leave(self) -> None:
        """Forgets the message, so that only its user refers to it and its tensors."""
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
                # Bytes that were not received are unchanged.
                _as_bytes(self._memory)[count:] = _as_bytes(to_read(self._place))[count:]
            self._place.copy_(self._memory)


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(-1).view(torch.uint8)
