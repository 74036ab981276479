"""How the ranks of torch.distributed find each other."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable

from torch.distributed import Store


def take_environment() -> None:
    """Tells PyTorch what `omnes run` has told, where nobody else has."""
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
        # The port itself is that of Communicator.from_env().
        "MASTER_PORT": str(int(port) + 1),
    }
    for name, value in told.items():
        if value:
            os.environ.setdefault(name, value)


def through(store: Store, rank: int, size: int) -> Callable[[bytes], list[bytes]]:
    """What gathers equally long bytes of all ranks through the store: rank 0 puts them together.

    Of each gathering nothing remains in the store, of each group a number per rank.
    """
    # Groups that follow each other may have the same part of the same store.
    group = store.add(f"omnes/{rank}", 1)
    rounds = itertools.count()

    def allgather(own: bytes) -> list[bytes]:
        key = f"omnes/{group}/{next(rounds)}"
        store.set(f"{key}/{rank}", own)
        if rank == 0:
            rows = [f"{key}/{other}" for other in range(size)]
            store.set(key, b"".join(map(store.get, rows)))
            _forget(store, *rows)
        table = store.get(key)
        if store.add(f"{key}/read", 1) == size:
            _forget(store, key, f"{key}/read")
        return [table[start : start + len(own)] for start in range(0, len(table), len(own))]

    return allgather


def _forget(store: Store, *keys: str) -> None:
    # Not every kind of store can.
    with contextlib.suppress(RuntimeError):
        for key in keys:
            store.delete_key(key)
