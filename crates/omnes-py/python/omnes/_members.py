"""The ranks of a group of torch.distributed, from when they meet until the group ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta

from torch.distributed import Store

from ._omnes import Communicator, Error, ExchangeFailed, join
from ._rendezvous import through


class Members:
    """Their communicator, which the process has that made the group, until the group ends.

    check raises if one of them is known to be gone. Raises what it raises, TimeoutError, which
    names those that have not come, after the timeout.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        timeout: timedelta,
        check: Callable[[], None],
    ) -> None:
        self.rank, self.size = rank, size
        self.others = [other for other in range(size) if other != rank]
        self.timeout = timeout  # of collectives that have no limit of their own
        self._process = os.getpid()
        self._ranks: Communicator | None = self._meet(store, check)

    @property
    def joined(self) -> Communicator:
        """Raises ValueError as check_joined() does."""
        return self.check_joined()

    def check_joined(self) -> Communicator:
        """Raises ValueError after the end, and in a child of fork(); what they have joined."""
        if self._ranks is None:
            raise ValueError("the process group has been destroyed")
        if os.getpid() != self._process:
            raise ValueError(
                "the process group belongs to the process that made it; a child of fork() leaves "
                "it alone, and lets its parent communicate"
            )
        return self._ranks

    def is_here(self) -> bool:
        """Whether this process has made the group; the child of a fork() has not."""
        return os.getpid() == self._process

    def is_open(self) -> bool:
        return self._ranks is not None

    def end(self) -> bool:
        """False if the group has ended before."""
        ranks, self._ranks = self._ranks, None
        return ranks is not None

    def limit_s(self, given: timedelta | None) -> float:
        """The limit that is given, else the group's."""
        # PyTorch says "none" by a negative one.
        limit = given if given is not None and given > timedelta(0) else self.timeout
        return limit.total_seconds()

    def _meet(self, store: Store, check: Callable[[], None]) -> Communicator:
        exchange = through(store, self.rank, self.size, self.timeout.total_seconds(), check)
        try:
            return join(self.rank, self.size, exchange)
        except ExchangeFailed as error:
            # These say more.
            if isinstance(error.__cause__, (Error, TimeoutError)):
                raise error.__cause__ from None
            raise
