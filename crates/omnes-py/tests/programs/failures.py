"""A rank dies, and the errors of all others name it."""

import os

import omnes

world = omnes.Communicator.from_env()
world.barrier()
if world.rank == 1:
    os._exit(0)
try:
    world.bcast(bytearray(1 << 20), root=1)
except omnes.PeerFailed as error:
    assert error.rank == 1 and "rank 1" in str(error), error
else:
    raise AssertionError("nobody has noticed")
world.abandon()
world.abandon()
assert "finalized" in repr(world)
