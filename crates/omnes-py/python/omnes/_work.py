"""Works of torch.distributed: operations that have ended, and messages under way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import Work

from ._omnes import Communicator, Request
from ._tensors import bytes_of, check_written, is_plain, to_read


class Done(Work):
    """A collective, which has ended when it returns."""

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
        return True

    def exception(self) -> Exception | None:
        return None

    def result(self) -> list[Any]:
        self.wait()
        return self._tensors

    def get_future(self) -> torch.futures.Future:
        """Of the tensors that the operation has written; ended, so it waits first."""
        self.wait()
        future: torch.futures.Future = torch.futures.Future()
        future.set_result(self._tensors)
        return future


class Message(Done):
    """A message under way. Limits of wait() are not heeded: it ends when the other rank is gone."""

    def __init__(
        self, tensor: torch.Tensor, place: torch.Tensor | None, memory: torch.Tensor
    ) -> None:
        super().__init__([tensor])
        self._place, self._memory = place, memory
        self._request: Request | None = None
        self._source = -1
        self._error: Exception | None = None

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
        memory = place if is_plain(place) else torch.empty(place.shape, dtype=place.dtype)
        message = cls(tensor, place, memory)
        message._request = ranks.irecv(bytes_of(memory), source, tag=tag)
        return message

    def wait(self, timeout: timedelta | None = None) -> bool:
        self._finish(lambda request: request.wait())
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        self._finish(lambda request: request.test())
        return self._request is None

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> Exception | None:
        return self._error

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
            self._request = None
            self._take(request)
        except Exception as error:
            self._request, self._error = None, error

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
