"""A limit that is over while a rank leaves is told by that call, and not by the next one."""

import os
import signal
import time

import omnes

world = omnes.Communicator.from_env()
if world.rank == 1:
    world.send(str(os.getpid()).encode(), 0)
    os.kill(os.getpid(), signal.SIGSTOP)
else:
    room = bytearray(16)
    other = int(room[: world.recv(room, 1)[2]])
    while open(f"/proc/{other}/stat").read().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.001)
    try:
        with omnes.time_limit(0), world:
            # It cannot arrive.
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
        raise AssertionError("that is no rank")
