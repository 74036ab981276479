"""A communicator that is dropped, or a request that has ended and held the last one, leaves the
job: meanwhile other threads continue, and an exception of a signal handler is raised afterwards.
"""

import os
import signal
import sys
import threading
import time

import omnes
from stopping import stop, stopped


class Ended(Exception):
    """The exception that the handler raises."""


def end(*_):
    raise Ended


world = omnes.Communicator.from_env()
if world.rank == 1:
    stop(world)
else:
    other = stopped(world, 1)
    # A rank that leaves waits for its acknowledgement, which cannot arrive.
    request = world.isend(b"late", 1)
    if sys.argv[1] == "communicator":
        request.wait()
    signal.signal(signal.SIGALRM, end)
    sys.setswitchinterval(1000)  # a thread only runs when another one yields
    go, ran = threading.Event(), []
    waiting = threading.Thread(target=lambda: (go.wait(), ran.append(True)))
    waiting.start()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        go.set()
        del world
        request.test()
        time.sleep(10)
    except Ended:
        assert ran, "the other thread has waited"
    else:
        raise AssertionError("the handler had no turn")
    finally:
        os.kill(other, signal.SIGCONT)
    waiting.join()
