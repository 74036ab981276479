"""Groups that have not been shut down, which end when their process does."""

from __future__ import annotations

import multiprocessing.util
import sys
from typing import TYPE_CHECKING

from . import _queue

if TYPE_CHECKING:
    from .distributed import ProcessGroup

# How long the last group of a process waits for its ranks when it ends: whoever leaves early ends
# the collectives of those that are late. A program that ends waits as long for the collectives that
# it has left under way in a group.
MEETING_S = 5.0

# In the order in which they were made. The child of a fork() has those of its parent, too.
_open: dict[ProcessGroup, None] = {}

# What ends the groups of a child of multiprocessing, which ends without atexit.
_end_of_child: multiprocessing.util.Finalize | None = None


def add(group: ProcessGroup) -> None:
    """Has the group ended with this process, unless it is shut down before."""
    global _end_of_child
    _open[group] = None
    # A child of multiprocessing has forgotten that of its parent.
    if _end_of_child is None or not _end_of_child.still_active():
        _end_of_child = multiprocessing.util.Finalize(None, leave, exitpriority=0)


def is_last(group: ProcessGroup) -> bool:
    """Takes the group out; whether none is left."""
    _open.pop(group, None)
    return not _open


def leave() -> None:
    """Ends what the program has not. After an exception the others are not waited for."""
    is_failure = hasattr(sys, "last_exc") or hasattr(sys, "last_type")
    # A child of multiprocessing comes here while the exception is on its way out.
    is_failure = is_failure or isinstance(sys.exception(), Exception)
    own = [group for group in _open if group._is_here()]
    # The last one is that of most ranks, as in destroy_process_group(): they meet there. Of several
    # it is the one made first, which is the same on all of its ranks.
    for group in sorted(reversed(own), key=lambda group: group.size()):
        group.abort() if is_failure else group._finish(MEETING_S)
    # A thread that comes back from a call while the interpreter ends could not go on.
    _queue.join(MEETING_S)
