"""The ranks of a group of torch.distributed, from when they meet until the group ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta

from torch.distributed import Store

from ._omnes import Communicator, Error, ExchangeFailed, join
from ._rendezvous import through


class Members:
    """The communicator of the ranks, in the process that created the group, until the group ends.

    check raises if a rank is known to be gone. Raises the errors of check, and TimeoutError, which
    names the missing ranks, after the timeout.
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
        self.timeout = timeout  # of collectives without a limit of their own
        self._process = os.getpid()
        self._ranks: Communicator | None = self._meet(store, check)

    @property
    def joined(self) -> Communicator:
        """The communicator; raises ValueError as check_joined() does."""
        return self.check_joined()

    def check_joined(self) -> Communicator:
        """The communicator; ValueError after the group has ended, and in a child of fork()."""
        if self._ranks is None:
            raise ValueError("the process group has been destroyed")
        if os.getpid() != self._process:
            raise ValueError(
                "the process group belongs to the process that made it; a child of fork() leaves "
                "it alone, and lets its parent communicate"
            )
        return self._ranks

    def is_here(self) -> bool:
        """True in the process that created the group, and False in a child of fork()."""
        return os.getpid() == self._process

    def is_open(self) -> bool:
        return self._ranks is not None

    def end(self) -> bool:
        """Ends the group. False if it had ended before."""
        ranks, self._ranks = self._ranks, None
        return ranks is not None

    def limit_s(self, given: timedelta | None) -> float:
        """The given limit, or else the group's."""
        # PyTorch passes a negative limit for "none".
        limit = given if given is not None and given > timedelta(0) else self.timeout
        return limit.total_seconds()

    def _meet(self, store: Store, check: Callable[[], None]) -> Communicator:
        exchange = through(store, self.rank, self.size, self.timeout.total_seconds(), check)
        try:
            return join(self.rank, self.size, exchange)
        except ExchangeFailed as error:
            # These errors say more.
            if isinstance(error.__cause__, (Error, TimeoutError)):
                raise error.__cause__ from None
            raise
