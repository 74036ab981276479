"""What the ranks of a group report to each other about collectives that fail on some of them.

A rank that has waited in vain notifies the other ranks, and receives the same notice from those
that have waited, too: the remaining ranks are missing. A rank that rejects its part in a
collective, for example because a tensor has the wrong size, notifies the others which collective it
is, because its next part would meet their parts of that one. The ranks compare what they have
rejected before they take part again, and give the group up unless it is the same.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from ._members import Members
from ._omnes import (
    BufferLength,
    CollectivesBroken,
    Communicator,
    Error,
    PeerFailed,
    PeerLeft,
    RankOutOfRange,
)

if TYPE_CHECKING:
    from ._omnes import Request

_Item = TypeVar("_Item")

# Tag of the empty message of a rank that has waited in vain, by which the others know that it has
# arrived. Tags of programs are below 2**31.
_TAG_OF_WAITING = 2**32 - 3

# How long a rank whose limit has expired waits for those messages.
_WAITING_S = 0.5

# Tag of the message about a rejected call, which the ranks compare, and how long a rank waits for
# those of the others.
_TAG_OF_REFUSAL = 2**32 - 4
_REFUSAL_S = 10.0

# Tag of the message that names, as JSON, the collective that a rank gives up with all others of the
# group, and why. It arrives before the core's own notice, which only names the core's call, or soon
# after.
_TAG_OF_REASON = 2**32 - 5
_REASON_S = 0.1


class Turns:
    """The collectives of a group as one of its ranks sees them, one after the other.

    Each collective is a turn, in which the rank has one or several parts, unless it rejects the
    call.
    """

    def __init__(self, members: Members) -> None:
        self._members = members
        self.rank, self.size, self.others = members.rank, members.size, members.others
        # Number of collectives so far, and of parts of the last one in which this rank has taken
        # part; number of parts still to come in a loop, and of parts before its current iteration.
        self._turns = self._parts = self._rest = 0
        self._parts_before = -1
        # The collective that was given up, and why; the next one would take its late messages for
        # its own.
        self._given_up: tuple[str, str] | None = None
        # The same, as another rank has reported it.
        self._told_of: tuple[str, str] | None = None
        # Messages that notify the other ranks of what has failed here.
        self._told: list[Request] = []
        self._has_waited_in_vain = False
        # Calls that this rank has rejected since it last took part: their turns, and name and error
        # of the first; and rejected turns of the other ranks, as far as they have been received.
        self._refused = b""
        self._refused_first = ("", "")
        self._heard = dict.fromkeys(self.others, b"")

    def begin(self) -> None:
        """Begins the next turn. Rejects it after a turn that was given up here, as Communicator
        does by itself after one that another rank gave up.
        """
        self._check_whole()
        self._parts, self._turns = 0, self._turns + 1
        self._rest, self._parts_before = 0, -1

    @property
    def part(self) -> Communicator:
        """The communicator for one part of a collective; whatever may fail before anything is sent
        must have been computed. If this rank has rejected calls before, for example because of a
        tensor of the wrong size, ensures that all others have: its part would meet theirs.
        """
        if self._refused:
            self._agree()
        self._parts += 1
        return self._members.joined

    def each(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """The items of a collective that has parts for each: a rank that ends with an error before
        the last part has missed parts in which the others take part.
        """
        left = list(items)
        self._rest += max(len(left) - 1, 0)
        for at, item in enumerate(left):
            self._rest -= min(at, 1)
            self._parts_before = self._parts
            yield item

    def skip_rest(self) -> None:
        """Ends the collective on all ranks, with the same error: none takes part in the rest."""
        self._rest, self._parts_before = 0, -1

    def barrier(self, limit_s: float) -> None:
        """Waits for all ranks, even after a collective that was given up here; TimeoutError, which
        names the missing ranks, after the limit.
        """
        ranks = self.part
        try:
            ranks.barrier(timeout_s=limit_s)
        except CollectivesBroken as error:
            self._explain(error)
            raise

    def refuse(self, name: str, error: BaseException) -> list[Any]:
        """A turn from which the error has kept this rank's program."""
        self.begin()
        self._note_refused(name, error)
        return []

    def on_error(self, name: str, error: BaseException, *, notifies_all: bool) -> None:
        """Notifies the other ranks of the error that ends this turn here, of any kind.

        notifies_all says whether ranks that wait in the collective are notified by its end here.
        """
        if isinstance(error, CollectivesBroken):
            self._tell_waiting()
            if self._given_up is None:
                self._explain(error)
        elif self._is_refusal(error):
            self._note_refused(name, error)
        else:
            if isinstance(error, TimeoutError) and notifies_all:
                error.args = (f"{error}; {self._absent()}",)
            is_between_parts = self._parts == self._parts_before and not isinstance(error, Error)
            # A rank that is gone ends the collectives of all others, too.
            is_detected_by_all = isinstance(error, (PeerFailed, PeerLeft))
            if (self._rest and not is_detected_by_all) or is_between_parts:
                # The next part here would meet the other ranks' next part of this turn.
                self._end_all(name, f"it has ended in the middle of its part: {text_of(error)}")

    def _is_refusal(self, error: BaseException) -> bool:
        """True if the error occurred before anything of this turn was sent."""
        if isinstance(error, (BufferLength, RankOutOfRange)):
            return True
        # Other errors of the core are about other ranks; those of PyTorch are of any kind.
        return not self._parts and (isinstance(error, ValueError) or not isinstance(error, Error))

    def give_up(self, name: str, reason: str) -> None:
        """Records that the collective of that name has not ended; the group accepts no more."""
        self._given_up = (name, reason)

    def _tell(self, message: bytes, tag: int) -> None:
        """Sends the message to all other ranks, some of which may be gone."""
        for other in self.others:
            # Ranks that have failed or left need no message.
            with contextlib.suppress(Error):
                self._told.append(self._members.joined.isend(message, other, tag=tag))

    def _hear(self, heard: dict[int, bytes], count: int, tag: int, limit_s: float) -> None:
        """Receives messages of the other ranks until each has sent count bytes, or for limit_s."""
        ranks, end = self._members.joined, time.monotonic() + limit_s
        while any(len(each) < count for each in heard.values()) and time.monotonic() < end:
            found = ranks.iprobe(tag=tag)
            if found is None:
                time.sleep(0.002)
                continue
            source, _, length = found
            message = bytearray(length)
            ranks.recv(message, source, tag=tag)
            heard[source] += message

    def _tell_waiting(self) -> None:
        """Notifies the other ranks, once, that this rank has entered a collective that failed."""
        if self._members.is_open() and not self._has_waited_in_vain:
            self._has_waited_in_vain = True
            self._tell(b"?", _TAG_OF_WAITING)

    def _absent(self) -> str:
        """Text that names the ranks for which this one has waited in vain, as far as the others
        report: ranks that wait are notified by the end of the collective here, and report that they
        were waiting.
        """
        self._tell_waiting()
        heard = dict.fromkeys(self.others, b"")
        with contextlib.suppress(Error):
            self._hear(heard, 1, _TAG_OF_WAITING, _WAITING_S)
        missing = [str(other) for other in self.others if not heard[other]]
        if not missing:
            return "all ranks have come to it, or to a later one"
        return f"ranks that have not come to it, or have done their part: {', '.join(missing)}"

    def _note_refused(self, name: str, error: Exception) -> None:
        """Records that this rank does not take part in its turn, and notifies the others."""
        if not self._refused:
            self._refused_first = (name, text_of(error))
        turn = self._turns.to_bytes(8, "big")
        self._refused += turn
        if self._members.is_open():
            self._tell(turn, _TAG_OF_REFUSAL)

    def _agree(self) -> None:
        """Ends the collectives of the group unless all ranks have rejected the same calls."""
        own = self._refused
        limit_s = min(_REFUSAL_S, self._members.timeout.total_seconds())
        self._hear(self._heard, len(own), _TAG_OF_REFUSAL, limit_s)
        others = [str(other) for other in self.others if not self._heard[other].startswith(own)]
        # Only now: a wait that is interrupted leaves the comparison to the next part.
        self._refused = b""
        if others:
            name, text = self._refused_first
            reason = f"it has refused its part, others have not: {', '.join(others)}; {text}"
            self._end_all(name, reason)
            self._check_whole()
        self._heard = {other: heard[len(own) :] for other, heard in self._heard.items()}
        self._told.clear()

    def _end_all(self, name: str, reason: str) -> None:
        """Ends the collectives of the group, as this rank does not take part in the rest of one."""
        self.give_up(name, reason)
        if not self._members.is_open():
            return
        self._tell(json.dumps([name, reason]).encode(), _TAG_OF_REASON)
        # The root of a gather sends nothing. As the request is dropped immediately, all others are
        # notified, if they are not already.
        with contextlib.suppress(Error):
            self._members.joined.igather(b"?", bytearray(self.size), self.rank)

    def _check_whole(self) -> None:
        if self._given_up is None:
            return
        name, reason = self._given_up
        error = CollectivesBroken()
        error.rank, error.collective = self.rank, name
        self._explain(error, reason)
        raise error

    def _reason_of(self, rank: int) -> tuple[str, str] | None:
        """The collective that another rank has reported as given up, and why."""
        if rank == self.rank or self._told_of is not None or not self._members.is_open():
            return self._told_of
        ranks, end = self._members.joined, time.monotonic() + _REASON_S
        with contextlib.suppress(Error):
            while (found := ranks.iprobe(rank, tag=_TAG_OF_REASON)) is None:
                if time.monotonic() > end:
                    return None
                time.sleep(0.002)
            message = bytearray(found[2])
            ranks.recv(message, rank, tag=_TAG_OF_REASON)
            name, reason = json.loads(message)
            self._told_of = (name, reason)
        return self._told_of

    def _explain(self, error: CollectivesBroken, reason: str | None = None) -> None:
        """Replaces the core's text, which is about Communicator, by advice for users of PyTorch."""
        if reason is None and (told := self._reason_of(error.rank)) is not None:
            error.collective, reason = told
        why = f" ({reason})" if reason else ""
        error.args = (
            f"rank {error.rank} of this group has given up {error.collective}{why}, so the group "
            "has no collective operations any more: make another one by dist.new_group() on all "
            "ranks of the job, or end all by destroy_process_group() and init them again",
        )


def text_of(error: BaseException) -> str:
    """Kind and text of the error."""
    return f"{type(error).__name__}: {error}"
