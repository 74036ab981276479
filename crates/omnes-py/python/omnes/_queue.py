"""The queue of a group's collectives, which run in the order in which they are started."""

from __future__ import annotations

import collections
import threading
import weakref
from collections.abc import Callable
from typing import Any

from ._work import Queued, waitable

# Threads that may still run.
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class Queue:
    """The works of one group, run one at a time by a thread, which starts with the first of them.

    A callback runs in that thread, after the works that were queued when its future was first asked
    for. Collectives that it starts run immediately, so the callback may wait for them, and they
    come at the same place on all ranks, whatever the programs have started meanwhile.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        # The first work, or its callbacks, are in progress.
        self._works: collections.deque[Queued] = collections.deque()
        self._thread: threading.Thread | None = None
        self._is_open = True

    def start(self, call: Callable[[], list[Any]]) -> Queued:
        """Queues the call after all that were started before; it returns the work's result.

        Raises ValueError after close(), RuntimeError if the thread cannot be started."""
        work = Queued(call, self._changed, self._last)
        if self._is_own():
            work.run()
            return work
        with self._changed:
            if not self._is_open:
                raise ValueError("the process group has been destroyed")
            if self._thread is None:
                self._begin()
            self._works.append(work)
            self._changed.notify_all()
        return work

    def wait(self, limit_s: float | None = None) -> bool:
        """Waits, at most limit_s seconds, until all works and their callbacks have ended. True if
        they have. A callback does not wait here.
        """
        if not self._works or self._is_own():
            return True
        with self._changed:
            return self._changed.wait_for(lambda: not self._works, waitable(limit_s))

    def close(self) -> None:
        """Ends the thread after the works that are still queued."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()

    def _last(self) -> Queued | None:
        """The newest work that has not ended; None for callbacks, which cannot know it."""
        return self._works[-1] if self._works and not self._is_own() else None

    def _begin(self) -> None:
        """Starts the thread, or raises RuntimeError and leaves everything unchanged."""
        thread = threading.Thread(target=self._serve, name="omnes", daemon=True)
        thread.start()
        self._thread = thread
        _threads.add(thread)

    def _is_own(self) -> bool:
        return threading.current_thread() is self._thread

    def _serve(self) -> None:
        while self._has_next():
            try:
                self._works[0].run()
            finally:
                with self._changed:
                    self._works.popleft()
                    self._changed.notify_all()

    def _has_next(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._works or not self._is_open)
            return bool(self._works)


def join(limit_s: float) -> None:
    """Waits for the threads of closed queues, at most limit_s seconds for each."""
    for thread in list(_threads):
        thread.join(limit_s)
