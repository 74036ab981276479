"""Collectives of a group in the order in which they are started, done by a thread of its own."""

from __future__ import annotations

import collections
import threading
import weakref
from collections.abc import Callable
from typing import Any

from ._work import Queued, waitable

# Those that may still run.
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class Queue:
    """Works of one group, done one at a time by a thread, which begins with the first of them.

    A callback runs in that thread, after the works that were queued when its future was first asked
    for. What it starts is done immediately. So the callback may wait for it, and it comes at the
    same place on all ranks, whatever their programs have started meanwhile.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        # The first is being done, or its callbacks are.
        self._works: collections.deque[Queued] = collections.deque()
        self._thread: threading.Thread | None = None
        self._is_open = True

    def start(self, call: Callable[[], list[Any]]) -> Queued:
        """Has the call done after all that were started before; it returns the work's result.

        Raises ValueError after close(), RuntimeError if there can be no thread."""
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
        """Waits until all works and their callbacks have ended, for so long at most; whether they
        have. A callback waits for nothing here."""
        if not self._works or self._is_own():
            return True
        with self._changed:
            return self._changed.wait_for(lambda: not self._works, waitable(limit_s))

    def close(self) -> None:
        """Ends the thread, after the works that it still has."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()

    def _last(self) -> Queued | None:
        """The newest work that has not ended; none for callbacks, which cannot know it."""
        return self._works[-1] if self._works and not self._is_own() else None

    def _begin(self) -> None:
        """Begins the thread, or raises RuntimeError and leaves everything as it was."""
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
    """Waits for the threads of closed queues, each for so long at most."""
    for thread in list(_threads):
        thread.join(limit_s)
