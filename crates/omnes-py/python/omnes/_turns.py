"""What the ranks of a group tell each other of collectives that go wrong on some of them.

A rank that waits in vain tells the others so, and hears from whom of them the same comes: the
rest is missing. A rank that refuses its part in a collective, as for a tensor of a wrong size,
tells them which: its next part would meet theirs of that one. They compare what they have refused
before they take part again, and give the group up unless it is the same.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from ._members import Members
from ._omnes import BufferLength, CollectivesBroken, Communicator, Error, RankOutOfRange

if TYPE_CHECKING:
    from ._omnes import Request

_Item = TypeVar("_Item")

# The empty message of a rank that has waited in vain: others know by it that it has come. Tags of
# programs are below 2**31.
_TAG_OF_WAITING = 2**32 - 3

# How long a rank whose limit is over waits for those messages.
_WAITING_S = 0.5

# What a rank has refused, for the others to compare, and how long it waits for theirs.
_TAG_OF_REFUSAL = 2**32 - 4
_REFUSAL_S = 10.0

# The collective that a rank gives up with all others of the group, and why, as text of JSON. It
# comes before the core's own notice, which knows only by what it was given up, or soon after.
_TAG_OF_REASON = 2**32 - 5
_REASON_S = 0.1


class Turns:
    """The collectives of a group as one of its ranks sees them, one after the other.

    Each is a turn, in which the rank has a part, or several, unless it refuses it.
    """

    def __init__(self, members: Members) -> None:
        self._members = members
        self.rank, self.size, self.others = members.rank, members.size, members.others
        # Collectives so far, and parts of the last one that this rank has taken part in. How many
        # more there are in a loop, and how many there were before its present round.
        self._turns = self._parts = self._rest = 0
        self._parts_before = -1
        # Which collective was, and why; the next one would take its late messages for its own.
        self._given_up: tuple[str, str] | None = None
        # What another rank has told of that.
        self._told_of: tuple[str, str] | None = None
        # Messages that have told the others of what has gone wrong here.
        self._told: list[Request] = []
        self._has_waited_in_vain = False
        # What it has refused since it has last taken part: its turns, and the first one's name and
        # error; and such turns of others, as far as they have been heard.
        self._refused = b""
        self._refused_first = ("", "")
        self._heard = dict.fromkeys(self.others, b"")

    def begin(self) -> None:
        """The next turn. Refuses it after one that was given up here, as Communicator does by
        itself after others."""
        self._check_whole()
        self._parts, self._turns = 0, self._turns + 1
        self._rest, self._parts_before = 0, -1

    @property
    def part(self) -> Communicator:
        """What this rank takes part in a collective by. Where it has refused some before, as for a
        tensor of a wrong size, it makes sure that all others have: this one would meet theirs."""
        if self._refused:
            self._agree()
        self._parts += 1
        return self._members.joined

    def each(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """The items of a collective that has parts for each: who ends with an error before the
        last part has missed some that the others take part in."""
        left = list(items)
        self._rest += max(len(left) - 1, 0)
        for at, item in enumerate(left):
            self._rest -= min(at, 1)
            self._parts_before = self._parts
            yield item

    def skip_rest(self) -> None:
        """All ranks end the collective here, with the same error: none has a part in the rest."""
        self._rest, self._parts_before = 0, -1

    def barrier(self, limit_s: float) -> None:
        """All ranks meet, also after a collective that was given up here; TimeoutError, which
        names those that have not come, after the limit."""
        ranks = self.part
        try:
            ranks.barrier(timeout_s=limit_s)
        except CollectivesBroken as error:
            self._explain(error)
            raise

    def refuse(self, name: str, error: BaseException) -> list[Any]:
        """A turn of which this rank's program has been kept by the error."""
        self.begin()
        self._note_refused(name, error)
        return []

    def end_badly(self, name: str, error: BaseException, *, is_told_to_all: bool) -> None:
        """Has the others told of the error by which this turn ends here, whichever it is.

        is_told_to_all says whether those that wait in the collective are told by its end here.
        """
        if isinstance(error, CollectivesBroken):
            self._tell_waiting()
            if self._given_up is None:
                self._explain(error)
        elif self._is_refusal(error):
            self._note_refused(name, error)
        else:
            if isinstance(error, TimeoutError) and is_told_to_all:
                error.args = (f"{error}; {self._absent()}",)
            is_between_parts = self._parts == self._parts_before and not isinstance(error, Error)
            if self._rest or is_between_parts:
                # The next part here would meet the others' next one of this turn.
                self._end_all(name, f"it has ended in the middle of its part: {text_of(error)}")

    def _is_refusal(self, error: BaseException) -> bool:
        """Whether it has come before anything of this turn was sent."""
        if isinstance(error, (BufferLength, RankOutOfRange)):
            return True
        # Else those of the core are about other ranks; PyTorch's are of any kind.
        return not self._parts and (isinstance(error, ValueError) or not isinstance(error, Error))

    def give_up(self, name: str, reason: str) -> None:
        """The collective of that name has not ended; the group has no others any more."""
        self._given_up = (name, reason)

    def _tell(self, message: bytes, tag: int) -> None:
        """Sends all others the message, who may not be there any more."""
        for other in self.others:
            # Who has failed or left needs no word.
            with contextlib.suppress(Error):
                self._told.append(self._members.joined.isend(message, other, tag=tag))

    def _hear(self, heard: dict[int, bytes], count: int, tag: int, limit_s: float) -> None:
        """Receives messages of the others until there are so many bytes of each, or in vain."""
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
        """Tells the others, once, that this rank has come to a collective that has ended badly."""
        if self._members.is_open() and not self._has_waited_in_vain:
            self._has_waited_in_vain = True
            self._tell(b"?", _TAG_OF_WAITING)

    def _absent(self) -> str:
        """Which ranks this one has waited for in vain, as far as the others tell: those that wait
        are told by the end of the collective here, and say so."""
        self._tell_waiting()
        heard = dict.fromkeys(self.others, b"")
        with contextlib.suppress(Error):
            self._hear(heard, 1, _TAG_OF_WAITING, _WAITING_S)
        missing = [str(other) for other in self.others if not heard[other]]
        if not missing:
            return "all ranks have come to it, or to a later one"
        return f"ranks that have not come to it, or have done their part: {', '.join(missing)}"

    def _note_refused(self, name: str, error: Exception) -> None:
        """Remembers that this rank has no part in its turn, and tells the others."""
        if not self._refused:
            self._refused_first = (name, text_of(error))
        turn = self._turns.to_bytes(8, "big")
        self._refused += turn
        if self._members.is_open():
            self._tell(turn, _TAG_OF_REFUSAL)

    def _agree(self) -> None:
        """Ends the collectives of the group unless all ranks have refused the same ones."""
        own, self._refused = self._refused, b""
        limit_s = min(_REFUSAL_S, self._members.timeout.total_seconds())
        self._hear(self._heard, len(own), _TAG_OF_REFUSAL, limit_s)
        others = [str(other) for other in self.others if not self._heard[other].startswith(own)]
        if others:
            name, text = self._refused_first
            reason = f"it has refused its part, others have not: {', '.join(others)}; {text}"
            self._end_all(name, reason)
            self._check_whole()
        self._heard = {other: heard[len(own) :] for other, heard in self._heard.items()}
        self._told.clear()

    def _end_all(self, name: str, reason: str) -> None:
        """Ends the collectives of the group, as this rank has no part in the rest of that one."""
        self.give_up(name, reason)
        if not self._members.is_open():
            return
        self._tell(json.dumps([name, reason]).encode(), _TAG_OF_REASON)
        # The root of that sends nothing. As it is dropped at once, all others are told, if they are
        # not already.
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
        """Which collective another rank has told that it has given up, and why."""
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
        """Has the error say what a user of PyTorch can do: the core's text knows Communicator."""
        if reason is None and (told := self._reason_of(error.rank)) is not None:
            error.collective, reason = told
        why = f" ({reason})" if reason else ""
        error.args = (
            f"rank {error.rank} of this group has given up {error.collective}{why}, so the group "
            "has no collective operations any more: make another one by dist.new_group() on all "
            "ranks of the job, or end all by destroy_process_group() and init them again",
        )


def text_of(error: BaseException) -> str:
    """Its kind and what it says."""
    return f"{type(error).__name__}: {error}"
