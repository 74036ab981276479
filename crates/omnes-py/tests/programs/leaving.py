"""A rank leaves by an exception, but keeps its duplicate; a forked child of another ends. Ranks
that wait for the former get an error, and the parent of the latter is not reported missing.
"""

import os
import pathlib
import sys
import time
import warnings

import omnes

told = pathlib.Path(os.environ["PYTHONPATH"], "told")
try:
    with omnes.Communicator.from_env() as world:
        copy = world.dup()
        with world.split(0) as part:
            part.barrier()
        warnings.simplefilter("ignore", DeprecationWarning)  # of fork() in a process with threads
        if world.rank == 0 and os.fork() == 0:
            sys.exit()  # drops everything that it has inherited
        if world.rank == 0:
            assert os.wait()[1] == 0
        world.barrier()
        if world.rank == 1:
            raise KeyError("cannot go on")
        try:
            copy.bcast(bytearray(1000), root=1)
        except omnes.PeerLeft as error:
            assert error.rank != world.rank, error
        else:
            raise AssertionError("nobody has noticed")
        if world.rank == 0:
            told.touch()
        raise KeyError("cannot go on either")
except KeyError:
    # The duplicate still exists.
    while copy.rank == 1 and not told.exists():
        time.sleep(0.01)
assert copy.size == 3
try:
    copy.barrier()
except omnes.AlreadyLeft:
    pass
else:
    raise AssertionError("who has left goes on")
