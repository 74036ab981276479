"""How the ranks of torch.distributed find each other."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence

from torch.distributed import Store


def take_environment() -> None:
    """Sets PyTorch's environment variables from those of `omnes run`, unless they are set."""
    rendezvous = os.environ.get("OMNES_RENDEZVOUS", "")
    host, _, port = rendezvous.rpartition(":")
    if "RANK" in os.environ or "OMNES_RANK" not in os.environ or not port.isdigit():
        return
    told = {
        "RANK": os.environ["OMNES_RANK"],
        "WORLD_SIZE": os.environ.get("OMNES_SIZE", ""),
        "LOCAL_RANK": os.environ.get("OMNES_LOCAL_RANK", ""),
        "LOCAL_WORLD_SIZE": os.environ.get("OMNES_LOCAL_SIZE", ""),
        "MASTER_ADDR": host.strip("[]"),
        # The port itself is used by Communicator.from_env().
        "MASTER_PORT": str(int(port) + 1),
    }
    for name, value in told.items():
        if value:
            os.environ.setdefault(name, value)


def through(
    store: Store, rank: int, size: int, limit_s: float, check: Callable[[], None]
) -> Callable[[bytes], list[bytes]]:
    """A function that gathers bytes of equal length from all ranks through the store and rank 0.

    A gathering leaves nothing in the store, a group one number per rank. While the function waits,
    it calls check, which raises if a rank cannot come. It raises TimeoutError, which names the
    missing ranks, after limit_s.
    """
    # Successive groups may have the same part of the same store.
    group = store.add(f"omnes/{rank}", 1)
    rounds = itertools.count()

    def allgather(own: bytes) -> list[bytes]:
        key = f"omnes/{group}/{next(rounds)}"
        rows = [f"{key}/{other}" for other in range(size)]
        end = time.monotonic() + limit_s

        def waited_for(wanted: str) -> bytes:
            pauses_s = _pauses_s()
            while not store.check([wanted]):
                check()
                if time.monotonic() > end:
                    raise TimeoutError(_late(store, rows, limit_s))
                time.sleep(next(pauses_s))
            return store.get(wanted)

        store.set(rows[rank], own)
        if rank == 0:
            store.set(key, b"".join(map(waited_for, rows)))
            _forget(store, *rows)
        table = waited_for(key)
        if store.add(f"{key}/read", 1) == size:
            _forget(store, key, f"{key}/read")
        return [table[start : start + len(own)] for start in range(0, len(table), len(own))]

    return allgather


def _pauses_s() -> Iterator[float]:
    """Intervals between polls: short at first, finally a twentieth of a second."""
    pause_s = 0.0005
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, 0.05)


def _late(store: Store, rows: Sequence[str], limit_s: float) -> str:
    """Text that names the missing ranks; rank 0 if only the combined bytes are missing."""
    missing = [other for other, row in enumerate(rows) if not store.check([row])] or [0]
    ranks = ", ".join(map(str, missing))
    return f"ranks have not come to the group within {limit_s:g} s; of its ranks these: {ranks}"


def _forget(store: Store, *keys: str) -> None:
    # Not every kind of store can delete keys.
    with contextlib.suppress(RuntimeError):
        for key in keys:
            store.delete_key(key)
