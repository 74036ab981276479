"""A limit that expires while a rank leaves is reported by that call, and not by the next one."""

import os
import signal

import omnes
from stopping import stop, stopped

world = omnes.Communicator.from_env()
if world.rank == 1:
    stop(world)
else:
    other = stopped(world, 1)
    try:
        with omnes.time_limit(0), world:
            # The message cannot arrive.
            world.send(b"late", 1)
            raise KeyError
    except TimeoutError as error:
        assert isinstance(error.__context__, KeyError), error.__context__
    else:
        raise AssertionError("the limit was not told")
    finally:
        os.kill(other, signal.SIGCONT)
    os.environ["OMNES_RANK"] = "none"
    try:
        omnes.Communicator.from_env()
    except omnes.InvalidVariable:
        pass
    else:
        raise AssertionError("that is not a rank")
