"""Groups that have not been shut down, which are ended when their process exits."""

from __future__ import annotations

import multiprocessing.util
import sys
from typing import TYPE_CHECKING

from . import _queue

if TYPE_CHECKING:
    from .distributed import ProcessGroup

# How long the last group of a process waits for its ranks when it ends: a rank that leaves early
# ends the collectives of ranks that are late. A program that exits waits as long for the
# collectives that are still outstanding in a group.
MEETING_S = 5.0

# In the order of creation. The child of a fork() has its parent's groups, too.
_open: dict[ProcessGroup, None] = {}

# Ends the groups of a child of multiprocessing, which exits without atexit.
_end_of_child: multiprocessing.util.Finalize | None = None


def add(group: ProcessGroup) -> None:
    """Ends the group when this process exits, unless it is shut down before."""
    global _end_of_child
    _open[group] = None
    # A child of multiprocessing has dropped that of its parent.
    if _end_of_child is None or not _end_of_child.still_active():
        _end_of_child = multiprocessing.util.Finalize(None, leave, exitpriority=0)


def is_last(group: ProcessGroup) -> bool:
    """Removes the group. True if none is left."""
    _open.pop(group, None)
    return not _open


def leave() -> None:
    """Ends the groups that the program has not ended. After an exception, does not wait for other
    ranks.
    """
    is_failure = hasattr(sys, "last_exc") or hasattr(sys, "last_type")
    # A child of multiprocessing gets here while the exception propagates.
    is_failure = is_failure or isinstance(sys.exception(), Exception)
    own = [group for group in _open if group._is_here()]
    # The last group is the one with the most ranks, as in destroy_process_group(): its ranks meet
    # there. Of several it is the one created first, which is the same on all of its ranks.
    for group in sorted(reversed(own), key=lambda group: group.size()):
        group.abort() if is_failure else group._finish(MEETING_S)
    # A thread that returns from a call while the interpreter shuts down could not continue.
    _queue.join(MEETING_S)
